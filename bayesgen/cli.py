"""The command `bayesgen`: a demonstration on a table of penguins.

One fitted model classifies, says how sure it is, fills in missing cells, generates rows and flags unusual ones.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bayesgen import QDA, __version__, plots
from bayesgen.data import load_penguins

WIDTH = 88
LEVEL = 0.9
DRAWS = 400
# As many rows as outlier_pvalues simulates: the same compiled function serves both.
SYNTHETIC = 10_000
COLUMNS = {
    "bill_length_mm": "bill length",
    "bill_depth_mm": "bill depth",
    "flipper_length_mm": "flipper length",
    "body_mass_g": "body mass",
}
# Penguins that are kept out of training, with the cells that are hidden from the model: an easy bird, two hard ones, and
# one of which only the bill length is told.
ASIDE: dict[int, tuple[str, ...]] = {0: (), 330: (), 129: (), 310: tuple(COLUMNS)[1:]}


@dataclass(frozen=True)
class Demo:
    """Everything that the demonstration shows, computed once for the text and the figure."""

    X: pd.DataFrame
    y: pd.Series
    clf: QDA
    shown: pd.DataFrame
    proba: np.ndarray
    low: np.ndarray
    high: np.ndarray
    cells: pd.DataFrame
    synthetic: tuple[pd.DataFrame, pd.Series]
    pvalues: pd.Series


# -- computing
def run_demo(seed: int = 0) -> Demo:
    """Train on the penguins and put the model to its four uses."""
    penguins = load_penguins()
    X, y = penguins[list(COLUMNS)], penguins["species"]
    complete = X.notna().all(axis=1)
    train = complete & ~X.index.isin(list(ASIDE))
    clf = QDA(method="posterior", num_draws=DRAWS, random_state=seed).fit(X[train], y[train])
    shown = _hide(X.loc[[*ASIDE, *X.index[~complete]]])
    low, high = clf.predict_proba_interval(shown, level=LEVEL)
    return Demo(
        X=X,
        y=y,
        clf=clf,
        shown=shown,
        proba=clf.predict_proba(shown),
        low=low,
        high=high,
        cells=_filled(clf, X, y, shown),
        synthetic=clf.sample(SYNTHETIC),
        pvalues=pd.Series(clf.outlier_pvalues(X[complete]), index=X.index[complete]),
    )


def _hide(rows: pd.DataFrame) -> pd.DataFrame:
    hidden = rows.copy()
    for row, columns in ASIDE.items():
        hidden.loc[row, list(columns)] = np.nan
    return hidden


def _filled(clf: QDA, X: pd.DataFrame, y: pd.Series, shown: pd.DataFrame) -> pd.DataFrame:
    """Each missing cell: mean and interval of its draws, the truth, and the range of its column."""
    rows = shown[shown.isna().any(axis=1)]
    # The species is told only for the birds that were not measured at all.
    labels = y.loc[rows.index].where(rows.isna().all(axis=1), None)
    drawn = np.stack([table.to_numpy() for table in clf.impute(rows, y=labels, draws=DRAWS)])
    i, j = np.nonzero(rows.isna())
    low, high = np.quantile(drawn[:, i, j], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    found = {"mean": drawn[:, i, j].mean(0), "low": low, "high": high, "truth": X.loc[rows.index].to_numpy()[i, j]}
    ends = {"smallest": X.min().to_numpy()[j], "largest": X.max().to_numpy()[j]}
    return pd.DataFrame({"row": rows.index[i], "column": rows.columns[j]} | found | ends)


# -- printing
def _say(text: str = "") -> None:
    print("\n".join(textwrap.wrap(text, WIDTH)))


def _heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> None:
    """Aligned text: `align` has one of "l" and "r" per column."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[j]) for line in lines) for j in range(len(header))]
    print()
    for line in lines:
        cells = [c.ljust(w) if a == "l" else c.rjust(w) for c, w, a in zip(line, widths, align, strict=True)]
        print(("  " + "  ".join(cells)).rstrip())


def _number(column: str, value: float) -> str:
    """A measurement with the digits of the table."""
    if np.isnan(value):
        return "-"
    return f"{value:.0f}" if column in ("flipper_length_mm", "body_mass_g") else f"{value:.1f}"


def _unit(column: str) -> str:
    return f"{COLUMNS[column]} ({column.rsplit('_', 1)[1]})"


def _known(row: pd.Series) -> str:
    told = [COLUMNS[str(name)] for name in row.index[row.notna()]]
    if len(told) == len(row):
        return "everything"
    return f"{', '.join(told)} only" if told else "nothing"


def _print_training(demo: Demo) -> None:
    unmeasured = int(demo.X.isna().any(axis=1).sum())
    trained = len(demo.X) - unmeasured - len(ASIDE)
    _say(
        f"Palmer penguins: {len(demo.X)} birds, {demo.y.nunique()} species, four measurements (bill length, bill depth and "
        "flipper length in mm, body mass in g). Row numbers count from 0."
    )
    print()
    _say(
        f'Trained QDA(method="posterior") on {trained} of the {len(demo.X)} rows. Left out: {unmeasured} birds that were '
        f"not measured (QDA trains on complete rows only, for now), and {len(ASIDE)} birds kept aside to be shown below."
    )


def _print_probabilities(demo: Demo) -> None:
    _heading("1. Which species, and how sure?")
    _say(
        f"The probability of each species, with its {LEVEL:.0%} interval. A wide interval means that the training rows do "
        "not settle the answer. Some cells were hidden from the model on purpose; with nothing measured it falls back on "
        "how common each species is."
    )
    rows = []
    for i, row in enumerate(demo.shown.index):
        triples = zip(demo.proba[i], demo.low[i], demo.high[i], strict=True)
        answers = [f"{p:.2f} [{a:.2f}, {b:.2f}]" for p, a, b in triples]
        rows.append([str(row), demo.y[row], _known(demo.shown.loc[row]), *answers])
    _table(["row", "species", "model sees", *demo.clf.classes_], rows, "rll" + "l" * len(demo.clf.classes_))


def _print_cells(demo: Demo) -> None:
    _heading("2. What would the missing cells be?")
    _say(
        f"Mean and {LEVEL:.0%} interval of each missing cell, given the cells that are there. The species is told for the "
        "birds without any measurement, and unknown for the others."
    )
    rows = []
    for cell in demo.cells.to_dict("records"):
        mean, low, high, truth = (_number(cell["column"], cell[key]) for key in ("mean", "low", "high", "truth"))
        rows.append([str(cell["row"]), demo.y[cell["row"]], _unit(cell["column"]), mean, f"[{low}, {high}]", truth])
    _table(["row", "species", "cell", "mean", f"{LEVEL:.0%} interval", "truth"], rows, "rllrrr")


def _print_synthetic(demo: Demo) -> None:
    _heading("3. New penguins that were never measured")
    _say("Three synthetic rows of each species, drawn from the fitted model, under the mean of the real ones.")
    X, y = demo.synthetic
    rows = []
    for name in demo.clf.classes_:
        rows.append([name, "real mean", *_measurements(demo.X[demo.y == name].mean())])
        rows += [[name, "synthetic", *_measurements(row)] for _, row in X[y == name].head(3).iterrows()]
    _table(["species", "", *COLUMNS.values()], rows, "llrrrr")


def _measurements(row: pd.Series) -> list[str]:
    return [_number(name, row[name]) for name in COLUMNS]


def _print_outliers(demo: Demo) -> None:
    _heading("4. The most unusual birds")
    count = len(demo.pvalues)
    _say(
        "The p-value is the share of penguins drawn from the model that are at least as unusual as this one. Among "
        f"{count} ordinary birds about {count / 100:.0f} would be below 0.01 by chance."
    )
    lowest = demo.pvalues.nsmallest(5).index
    rows = [[str(row), demo.y[row], *_measurements(demo.X.loc[row]), f"{demo.pvalues[row]:.4f}"] for row in lowest]
    _table(["row", "species", *COLUMNS.values(), "p-value"], rows, "rlrrrrr")


def print_demo(demo: Demo) -> None:
    """The demonstration as text."""
    _print_training(demo)
    _print_probabilities(demo)
    _print_cells(demo)
    _print_synthetic(demo)
    _print_outliers(demo)


# -- drawing
def draw_demo(demo: Demo, path: Path) -> None:
    """The demonstration as a figure, in the format of the path's ending."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 9), layout="constrained")
    axes = figure.subplots(2, 2)
    _draw_rows(demo, axes[0, 0])
    _draw_probabilities(demo, axes[0, 1])
    _draw_outliers(demo, axes[1, 0])
    _draw_cells(demo, axes[1, 1])
    figure.suptitle("One fitted model, QDA on the Palmer penguins: classify, generate, flag and fill in", fontsize=14)
    figure.savefig(path, dpi=150)


def _draw_rows(demo: Demo, ax) -> None:
    pair = ("bill_length_mm", "flipper_length_mm")
    X, y = (part.head(250) for part in demo.synthetic)
    measured = demo.X.notna().all(axis=1)
    plots.two_columns(
        demo.clf,
        demo.X[measured],
        demo.y[measured],
        pair,
        synthetic=(X, y),
        names=[_unit(name) for name in pair],
        title="Real penguins (filled), synthetic ones (open)",
        ax=ax,
    )


def _draw_probabilities(demo: Demo, ax) -> None:
    names = [f"row {row}: {demo.y[row]}\nsees {_known(demo.shown.loc[row])}" for row in demo.shown.index]
    title = "Class probabilities"
    plots.class_probabilities(demo.proba, demo.low, demo.high, demo.clf.classes_, names=names, title=title, ax=ax)
    ax.set_xlabel(f"probability and its {LEVEL:.0%} interval")


def _draw_cells(demo: Demo, ax) -> None:
    names = [f"row {cell['row']}: {_unit(cell['column'])}" for cell in demo.cells.to_dict("records")]
    plots.imputed_cells(demo.cells, names=names, title=f"Missing cells, {LEVEL:.0%} intervals", ax=ax)


def _draw_outliers(demo: Demo, ax) -> None:
    names = [f"row {row} ({demo.y[row]})" for row in demo.pvalues.index]
    plots.outliers(demo.pvalues, names=names, title="Outlier p-values (dashed: rows from the model)", ax=ax)


# -- the command
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bayesgen", description="Bayesian generative classifiers.")
    parser.add_argument("--version", action="version", version=f"bayesgen {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    demo = commands.add_parser("demo", help="classify, fill in, generate and flag on a table of penguins")
    demo.add_argument(
        "--plot", type=Path, metavar="FILE", help="also draw a figure (the ending says the format: .png, .pdf)"
    )
    demo.add_argument("--seed", type=int, default=0, help="seed of everything that is drawn at random (default 0)")
    return parser


def _refuse(path: Path) -> str | None:
    """Why a figure cannot be written there, found out before any work is done."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    formats = FigureCanvasAgg.get_supported_filetypes()
    if path.suffix.lstrip(".").lower() not in formats:
        return f"the file name must end in one of {', '.join('.' + name for name in sorted(formats))}"
    if path.is_dir():
        return "it is a directory"
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}"
    place = path if path.exists() else path.parent
    return None if os.access(place, os.W_OK) else "permission denied"


def _demo(seed: int, plot: Path | None) -> int:
    if plot is not None and (reason := _refuse(plot)):
        return _fail(plot, reason)
    print("Fitting, and compiling for the first time: some seconds ...", file=sys.stderr)
    demo = run_demo(seed)
    print_demo(demo)
    if plot is not None:
        try:
            draw_demo(demo, plot)
        except OSError as error:
            return _fail(plot, error.strerror or str(error))
        print(f"\nFigure written to {plot}")
    return 0


def _fail(path: Path, reason: str) -> int:
    print(f"bayesgen: cannot write {path}: {reason}", file=sys.stderr)
    return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is 0, or 2 for a wrong argument."""
    arguments = _parser().parse_args(argv)
    try:
        return _demo(arguments.seed, arguments.plot)
    except BrokenPipeError:  # the reader has gone, as in `bayesgen demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
