"""Filling in removed cells: LDA, QDA and RDA against scikit-learn's imputers.

From three tables without missing cells (wine, breast cancer, penguins) 20% of the cells are removed at random, every method
learns from what is left, and fills. The score is the root of the mean of ((filled - true) / sd of the column)^2 over the
removed cells. Ours are fitted to the table with its holes, and fill with the class known, or averaged over. Rivals see the
columns as they are, standardised, and standardised beside one indicator column per class. Run
``python benchmarks/imputation.py``; ``--posterior`` adds ours under method="posterior", which takes minutes. ``--coverage``
counts instead how often 90% intervals of draws cover the removed cells of normal tables, by the number of rows.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401  IterativeImputer is behind this door
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from bayesgen import LDA, QDA, RDA
from bayesgen.data import load_penguins
from bayesgen.inference import Gibbs

SHARE = 0.2
OURS = {"LDA": LDA, "QDA": QDA, "RDA": RDA}
RIVALS = {
    "KNNImputer": KNNImputer,
    "KNNImputer, 15 neighbours": lambda: KNNImputer(n_neighbors=15),
    "IterativeImputer": lambda: IterativeImputer(max_iter=30, random_state=0),
}
KNOWN, UNKNOWN = "class known", "class not known"


def tables() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Columns of numbers without missing cells, and the classes."""
    penguins = load_penguins()
    sizes = penguins.filter(regex="_(mm|g)$")
    whole = sizes.notna().all(axis=1)
    return {
        "wine": load_wine(return_X_y=True),
        "breast cancer": load_breast_cancer(return_X_y=True),
        "penguins": (sizes[whole].to_numpy(), penguins.loc[whole, "species"].to_numpy()),
    }


def rivals(raw: np.ndarray, scaled: np.ndarray, y: np.ndarray) -> dict[str, Callable]:
    """Name -> a function that fills; in the units of the table given."""
    width = raw.shape[1]
    beside = np.column_stack([scaled, (y[:, None] == np.unique(y)).astype(float)])
    tasks: dict[str, Callable] = {f"column means, {UNKNOWN}": lambda: SimpleImputer().fit_transform(scaled)}
    for name, make in RIVALS.items():
        tasks[f"{name}, as they are, {UNKNOWN}"] = lambda make=make: _scaled(make().fit_transform(raw), raw)
        tasks[f"{name}, {UNKNOWN}"] = lambda make=make: make().fit_transform(scaled)
        tasks[f"{name}, {KNOWN}"] = lambda make=make: make().fit_transform(beside)[:, :width]
    return tasks


def ours(scaled: np.ndarray, y: np.ndarray, methods: list[str]) -> dict[str, np.ndarray]:
    """Name -> the filled table; one fit serves both uses."""
    found = {}
    for name, make in OURS.items():
        for method in methods:
            engine = Gibbs(progress=False) if method == "posterior" else "auto"
            clf = make(method=method, engine=engine, num_draws=200, random_state=0).fit(scaled, y)
            found[f"{name} {method}, {KNOWN}"] = clf.impute(scaled, y)
            found[f"{name} {method}, {UNKNOWN}"] = clf.impute(scaled)
    return found


def _scaled(x: np.ndarray, holes: np.ndarray) -> np.ndarray:
    """Columns less their mean, over their standard deviation, both from the cells that are left."""
    return (x - np.nanmean(holes, axis=0)) / np.nanstd(holes, axis=0)


def scores(x: np.ndarray, y: np.ndarray, seed: int, methods: list[str]) -> dict[str, float]:
    """Standardised root mean squared error of each method on one set of removed cells."""
    removed = np.random.default_rng(seed).random(x.shape) < SHARE
    raw = np.where(removed, np.nan, x)
    scaled = _scaled(raw, raw)
    filled = {name: task() for name, task in rivals(raw, scaled, y).items()} | ours(scaled, y, methods)
    unit = np.nanstd(raw, axis=0) / x.std(axis=0)  # errors in units of the whole column, not of what is left of it
    errors = {name: (unit * (table - _scaled(x, raw)))[removed] for name, table in filled.items()}
    return {name: float(np.sqrt(np.mean(error**2))) for name, error in errors.items()}


def run(seeds: int, methods: list[str]) -> dict[str, dict[str, np.ndarray]]:
    """Table -> method -> scores (seeds,)."""
    found = {}
    for name, (x, y) in tables().items():
        each = []
        for seed in range(seeds):
            print(f"\r{name}: {seed + 1}/{seeds} ", end="", file=sys.stderr)
            each.append(scores(x, y, seed, methods))
        found[name] = {method: np.array([one[method] for one in each]) for method in each[0]}
    print("\r", end="", file=sys.stderr)
    return found


def with_error(values: np.ndarray, sign: str = "") -> str:
    """Mean and standard error over the seeds."""
    return f"{values.mean():{sign}.3f} ({values.std(ddof=1) / np.sqrt(len(values)):.3f})"


def is_ours(name: str) -> bool:
    return name.split()[0] in OURS


def best(scores: dict[str, np.ndarray], mine: bool, which: str) -> str:
    """The method of least mean score among ours, or among the rivals."""
    names = [name for name in scores if is_ours(name) == mine and name.endswith(which)]
    return min(names, key=lambda name: scores[name].mean())


def report(found: dict[str, dict[str, np.ndarray]]) -> None:
    """Every method on every table, then the best of ours against the best of theirs, by pairs."""
    print("| method | " + " | ".join(found) + " |\n" + "|---" * (len(found) + 1) + "|")
    for method in next(iter(found.values())):
        print(f"| {method} | " + " | ".join(with_error(scores[method]) for scores in found.values()) + " |")
    print("\n| table | best of ours | best rival | ours - rival |\n|---|---|---|---|")
    for name, scores in found.items():
        for mine, theirs in ((KNOWN, UNKNOWN), (KNOWN, KNOWN), (UNKNOWN, UNKNOWN)):
            a, b = best(scores, True, f", {mine}"), best(scores, False, f", {theirs}")
            print(f"| {name} | {a} | {b} | {with_error(scores[a] - scores[b], '+')} |")


def coverage(rows: int, method: str, replications: int) -> np.ndarray:
    """Share of removed cells between the 10th and the 190th of 199 draws, in tables of three normal columns.

    A quarter of the cells are missing in each of the first two columns, in different rows.
    """
    removed, part = np.zeros((rows, 3), bool), rows // 4
    removed[:part, 0] = removed[part : 2 * part, 1] = True
    engine = Gibbs(warmup=100, thin=2, progress=False) if method == "posterior" else "auto"
    shares = []
    for seed in range(replications):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(rows, 3)) @ (np.tril(rng.normal(size=(3, 3))) + 2 * np.eye(3)).T
        holes = np.where(removed, np.nan, x)
        clf = LDA(method=method, engine=engine, num_draws=200, random_state=seed).fit(holes, np.zeros(rows))
        ordered = np.sort(clf.impute(holes, draws=199), axis=0)
        shares.append(((ordered[9] < x) & (x < ordered[189]))[removed].mean())
    return np.array(shares)


def report_coverage(replications: int) -> None:
    """One line for each number of rows."""
    print(f"Share of removed cells in their 90% intervals (standard error), {replications} tables each\n")
    print("| rows | posterior | map |\n|---|---|---|")
    for rows in (16, 24, 40, 80, 160):
        print(f"| {rows} | " + " | ".join(with_error(coverage(rows, m, replications)) for m in ("posterior", "map")) + " |")


def main() -> None:
    """Parse the options, run every table, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--posterior", action="store_true")
    parser.add_argument("--coverage", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # IterativeImputer's on most tables; of few draws, on purpose
    if args.coverage:
        return report_coverage(replications=200)
    print(f"Standardised root mean squared error (standard error), {SHARE:.0%} of the cells removed, {args.seeds} seeds\n")
    report(run(args.seeds, ["map", "posterior"] if args.posterior else ["map"]))


if __name__ == "__main__":
    main()
