"""Compiled programs are dropped before the process runs out of memory mappings."""

import jax.numpy as jnp
import pytest

from bayesgen import programs


@pytest.fixture
def compiled():
    function = programs.jit(lambda x: jnp.sort(x) + 1)
    yield function
    programs._programs.remove(function)


def lines(path, number):
    path.write_text("x\n" * number)
    return path


@pytest.mark.parametrize(("used", "dropped"), [(400, False), (600, True)])
def test_programs_are_dropped_when_half_of_the_mappings_are_in_use(compiled, used, dropped, tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "MAPS", lines(tmp_path / "maps", used))
    monkeypatch.setattr(programs, "MOST_MAPS", tmp_path / "most")
    (tmp_path / "most").write_text("1000\n")
    monkeypatch.setattr(programs, "EVERY", 3)
    monkeypatch.setattr(programs, "_since", 0)
    for n in (1, 2):
        compiled(jnp.zeros(n))
    assert programs._since >= 2 and compiled._cache_size() == 2
    monkeypatch.setattr(programs, "_since", 2)
    assert not programs.make_room() and compiled._cache_size() == 2  # too early to look
    compiled(jnp.zeros(3))
    assert programs.make_room() is dropped
    assert compiled._cache_size() == (0 if dropped else 3) and programs._since == 0
    assert compiled(jnp.zeros(2)).tolist() == [1, 1]


def test_systems_without_mappings_keep_everything(compiled, tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "MAPS", tmp_path / "nowhere")
    monkeypatch.setattr(programs, "_since", 10_000)
    compiled(jnp.zeros(1))
    assert not programs.make_room() and compiled._cache_size() == 1
