"""Every Python block of the README and the docs runs, and prints what the page says. So do the examples."""

import contextlib
import io
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = {
    "few_labels.py": ["LDA          10 labels: alone 0.930, with the others 0.95"],
    "four_uses.py": ["right for 94% of the flowers", "mistyped: 0.0001"],
    "text_evidence.py": ["right for 77%"],
    "mixed_table.py": ["right for 79% of the bicycles", "with 33 earlier repairs: 0.0001"],
    "own_family.py": ["7 checks passed", "as directions  right for 80%, log-loss 0.40", "at 30 m/s: 0.0001"],
    "multiple_imputation.py": ["pooled over draws from the posterior: as often as they should"],
    "family_skeleton.py": ["optimiser, converged: True", "right for 71% of the rows"],
}
NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e-?\d+)?")


def run(code: str, namespace: dict, name: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), namespace)
    return printed.getvalue()


def agree(printed: str, promised: str) -> bool:
    """The same words, and numbers within 2% or two steps of the last digit: releases differ in the last digits."""
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", promised).split():
        return False
    for a, b in zip(NUMBER.findall(printed), NUMBER.findall(promised), strict=True):
        step = 10.0 ** -len(b.partition(".")[2])
        if abs(float(a) - float(b)) > max(0.02 * abs(float(b)), 2.001 * step * ("." in b)):
            return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_blocks_print_what_the_page_says(page):
    namespace: dict = {"__name__": page.stem}
    printed = ""
    for language, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            assert not printed, f"{page.name}: output without a text block after it:\n{printed}"
            printed = run(body, namespace, page.name)
        else:
            assert agree(printed, body), f"{page.name} says\n{body}\nbut its code prints\n{printed}"
            printed = ""
    assert not printed, f"{page.name}: output without a text block after it:\n{printed}"


@pytest.mark.parametrize(
    ("printed", "same"), [("p 0.41\n", True), ("p 0.45\n", False), ("q 0.41\n", False), ("p 1 2", False)]
)
def test_agreement_is_about_words_and_numbers(printed, same):
    assert agree(printed, "p 0.42\n") is same


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_run(script, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    for words in EXAMPLES[script.name]:
        assert words in printed


def test_pages_link_to_files_that_exist():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_continuous_integration_runs_the_command_of_the_readme():
    commands = re.findall(r"^python3 -m venv .*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) == 2
    for name in (".ci/run", "CONTRIBUTING.md"):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        assert commands[1] in [line.strip() for line in lines], name
