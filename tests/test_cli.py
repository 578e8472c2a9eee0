"""The command: what the demo prints and draws, and how it fails."""

import re
import subprocess
import sys

import pytest
from conftest import normal_settings
from matplotlib import pyplot

import bayesgen
from bayesgen import QDA, cli, plots
from bayesgen.data import load_penguins

HEADINGS = [
    "1. Which species, and how sure?",
    "2. What would the missing cells be?",
    "3. New penguins that were never measured",
    "4. The most unusual birds",
]


@pytest.fixture(scope="module")
def demo():
    return cli.run_demo(seed=0)


def test_command_in_its_own_process_prints_every_section_and_draws(tmp_path):
    path = tmp_path / "demo.png"
    command = [sys.executable, "-m", "bayesgen", "demo", "--plot", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=normal_settings())
    assert done.returncode == 0, done.stderr
    assert [done.stdout.count(heading) for heading in HEADINGS] == [1, 1, 1, 1]
    assert path.read_bytes().startswith(b"\x89PNG")
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_demo_says_what_it_left_out(demo, capsys):
    cli.print_demo(demo)
    text = " ".join(capsys.readouterr().out.split())
    assert "on 338 of the 344 rows" in text
    assert "2 birds that were not measured" in text
    assert "4 birds kept aside" in text


def test_probabilities_and_intervals_make_sense(demo):
    assert demo.proba.shape == (6, 3)
    assert demo.proba.sum(axis=1) == pytest.approx(1)
    assert (demo.low <= demo.high).all()
    unmeasured = demo.shown.isna().all(axis=1).to_numpy()
    assert demo.proba[unmeasured] == pytest.approx(demo.clf.priors_[None].repeat(2, axis=0))


def test_every_missing_cell_is_filled_within_its_interval(demo):
    assert len(demo.cells) == demo.shown.isna().sum().sum()
    assert demo.cells["mean"].between(demo.cells["low"], demo.cells["high"]).all()
    hidden = demo.cells.dropna(subset="truth")
    assert hidden["row"].unique().tolist() == [310]
    assert hidden["truth"].between(hidden["low"], hidden["high"]).all()


def test_the_odd_chinstrap_is_the_most_unusual(demo):
    assert demo.pvalues.idxmin() == 293
    assert len(demo.pvalues) == 342


def test_seed_reproduces(demo, capsys):
    def printed(seed):
        cli.print_demo(demo if seed == 0 else cli.run_demo(seed))
        return capsys.readouterr().out

    first = printed(0)
    cli.print_demo(cli.run_demo(0))
    assert capsys.readouterr().out == first
    assert printed(1) != first


def test_main_draws_in_this_process(demo, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cli, "run_demo", lambda seed: demo)
    path = tmp_path / "demo.svg"
    assert cli.main(["demo", "--plot", str(path)]) == 0
    assert path.read_text().lstrip().startswith("<?xml")
    assert f"Figure written to {path}" in capsys.readouterr().out


def test_plots_make_their_own_axes_and_take_arrays(demo):
    pyplot.switch_backend("Agg")
    X = demo.X.dropna()
    clf = QDA(random_state=0).fit(X.to_numpy(), demo.y[X.index].to_numpy())
    ax = plots.two_columns(clf, X.to_numpy(), demo.y[X.index].to_numpy(), (0, 2))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == clf.classes_.tolist()
    assert len(ax.collections) == 3  # the contours of each class
    ax = plots.class_probabilities(demo.proba, demo.low, demo.high, demo.clf.classes_)
    assert ax.get_yticklabels()[1].get_text() == "row 1"
    assert plots.imputed_cells(demo.cells.drop(columns="truth")).get_ylim()[0] > len(demo.cells) - 1
    assert len(plots.outliers(demo.pvalues, lowest=2).texts) == 2
    pyplot.close("all")


def test_version(capsys):
    with pytest.raises(SystemExit) as done:
        cli.main(["--version"])
    assert done.value.code == 0
    assert capsys.readouterr().out == f"bayesgen {bayesgen.__version__}\n"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere/demo.png", "there is no directory"),
        (".", "must end in one of"),
        ("demo.txt", "must end in one of"),
        ("folder.png", "it is a directory"),
    ],
)
def test_a_path_that_cannot_be_written_is_one_clear_line(tmp_path, monkeypatch, capsys, path, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    monkeypatch.setattr(cli, "run_demo", lambda seed: pytest.fail("work was done before the path was checked"))
    assert cli.main(["demo", "--plot", path]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"bayesgen: cannot write {path}: ") and message in error
    assert error.count("\n") == 1


def test_a_full_disk_is_one_clear_line(demo, tmp_path, monkeypatch, capsys):
    def fail(demo, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cli, "run_demo", lambda seed: demo)
    monkeypatch.setattr(cli, "draw_demo", fail)
    assert cli.main(["demo", "--plot", str(tmp_path / "demo.png")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("No space left on device")


def test_a_wrong_command_is_refused(capsys):
    with pytest.raises(SystemExit) as done:
        cli.main(["paint"])
    assert done.value.code == 2
    assert "invalid choice" in capsys.readouterr().err


def test_penguins_are_the_published_table():
    penguins = load_penguins()
    assert penguins["species"].value_counts().to_dict() == {"Adelie": 152, "Gentoo": 124, "Chinstrap": 68}
    assert int(penguins.isna().sum().sum()) == 19
    assert all(re.fullmatch(r"[a-z_]+", name) for name in penguins.columns)
