"""Simulation-based calibration of every engine: the long run, its table, and the rank histograms.

    python benchmarks/calibration.py                               # prints the table, draws docs/calibration.png
    python benchmarks/calibration.py --replications 20 --only nuts --figure ranks.png

Parameters are drawn from a stated prior, a table of 20 rows from the parameters, and draws from the engine; the truth's
rank among 19 of them is uniform if the engine is right. The cases and the ranks are those of `tests/simulation.py`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np
from scipy import stats

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from simulation import COUNTS, GAPS, GAUSSIAN, ONE_COLUMN, POOLED, POOLED_GAPS, RANKED, Ranks, ranks  # noqa: E402

FEW = ["Gaussian full, free", "Bernoulli", "Poisson", "Gamma"]
PLAN: dict[str, list[str]] = {
    "exact": [*GAUSSIAN, *COUNTS],
    "gibbs": ["Gaussian full, free", "Categorical", *GAPS, *POOLED, *POOLED_GAPS],
    "nuts": [*GAUSSIAN, "Bernoulli", "Categorical", "Poisson", *ONE_COLUMN, next(iter(GAPS)), next(iter(POOLED))],
    "laplace": FEW,
    "svi": FEW,
    "svi, normal guide": FEW,
}
APPROXIMATE = ("laplace", "svi", "svi, normal guide")
HEADER = "| engine | case | replications | quantities | effective draws, least | largest chi-square | p | sd ratio |"


def reference(name: str, engine: str, found: dict) -> Ranks | None:
    """The same tables by the engine that is exact, or as good as that."""
    others = [found.get((other, name)) for other in ("exact", "nuts", "gibbs") if other != engine]
    return next((other for other in others if other is not None), None)


def sd_ratio(mine: Ranks, other: Ranks | None) -> str:
    """Posterior standard deviations over those of the reference: least and largest median over the replications."""
    if other is None:
        return ""
    n = min(len(mine.sds), len(other.sds))
    names = [name for name in mine.names if name in other.names and name != "log likelihood"]
    a, b = (part.sds[:n, [part.names.index(name) for name in names]] for part in (mine, other))
    ratio = np.median(a / b, 0)
    return f"{ratio.min():.2f} to {ratio.max():.2f}"


def line(engine: str, name: str, mine: Ranks, found: dict) -> str:
    """One line of the table; p is that of the worst quantity, times their number."""
    worst = stats.chisquare(mine.counts(), axis=1).statistic.max()
    worth = "independent" if engine in (*APPROXIMATE, "exact") else f"{mine.worth.min():.0f}"
    cells = [len(mine.ranks), len(mine.names), worth, f"{worst:.0f}", f"{mine.level():.2g}"]
    return "| " + " | ".join([engine, name, *map(str, cells), sd_ratio(mine, reference(name, engine, found))]) + " |"


def band(mine: Ranks) -> tuple[np.ndarray, float]:
    """Shares of the ranks over all quantities, 1 where uniform, and twice the standard error of a bar.

    The quantities of one replication hang together, so the error is that between replications.
    """
    seen = np.array([np.bincount(row, minlength=RANKED + 1) for row in mine.ranks])
    scale = (RANKED + 1) / len(mine.names)
    return seen.mean(0) * scale, 2 * float(np.sqrt(seen.var(0).mean() / len(seen))) * scale


def draw(found: dict[tuple[str, str], Ranks], path: Path) -> None:
    """The rank histogram of every case."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = 6
    rows = -(-len(found) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(2.6 * columns, 1.75 * rows), sharex=True, sharey=True, squeeze=False)
    for axis, ((engine, name), mine) in zip(axes.flat, found.items(), strict=False):
        shares, width = band(mine)
        colour = "tab:orange" if engine in APPROXIMATE else "tab:blue"
        axis.axhspan(1 - width, 1 + width, color="0.85", lw=0)
        axis.bar(np.arange(RANKED + 1), shares, width=1.0, color=colour, alpha=0.75)
        axis.axhline(1.0, color="0.3", lw=0.8)
        axis.set_title(f"{engine}\n{name.replace('Gaussian', 'Gauss.').replace(' of cells', '')}", fontsize=7)
        axis.tick_params(labelsize=6)
    for axis in axes.flat[len(found) :]:
        axis.set_axis_off()
    figure.supxlabel("rank of the truth among 19 draws", fontsize=9)
    figure.supylabel("share of the ranks, 1 where uniform", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=300)
    parser.add_argument("--only", nargs="+", choices=list(PLAN), default=list(PLAN), metavar="ENGINE")
    parser.add_argument("--figure", type=Path, default=HERE.parent / "docs" / "calibration.png")
    given = parser.parse_args()
    found: dict[tuple[str, str], Ranks] = {}
    print(HEADER + "\n" + "|---" * HEADER.count(" | ") + "|---|", flush=True)
    for engine in given.only:
        for name in PLAN[engine]:
            start = time.perf_counter()
            with jax.enable_x64(True):
                found[engine, name] = ranks(name, engine, given.replications)
            print(line(engine, name, found[engine, name], found), flush=True)
            print(f"{engine}, {name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
            jax.clear_caches()  # the next case shares none of the programs
    draw(found, given.figure)


if __name__ == "__main__":
    main()
