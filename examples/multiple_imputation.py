"""A regression after filling in: which intervals cover the truth?

Many tables are simulated whose truth is known. In each, cells go missing (more often where the response is high), the holes
are filled in several ways, a regression is fitted, and its 95% interval is compared with the true slope. Run it with
`python examples/multiple_imputation.py`; with the name of a file it makes 1,000 tables and draws the figure:

    python examples/multiple_imputation.py docs/imputation.png
"""

import sys

import numpy as np
from scipy import stats

from bayesgen import LDA
from bayesgen.inference import Gibbs

ROWS, TABLES, SLOPE = 200, 20, 1.0
WAYS = (
    "no cell missing",
    "complete rows only",
    "column means",
    "conditional means",
    "one drawn table",
    "20 tables, map",
    "20 tables, posterior",
)
QUICK = Gibbs(warmup=100, thin=5, progress=False)


def simulate(rng):
    """Dose, age and response of two groups, and the same with 80 doses and 30 ages missing."""
    group = np.arange(ROWS) % 2
    age = rng.normal(size=ROWS) + 0.5 * group
    dose = 0.5 * age + rng.normal(size=ROWS)
    response = SLOPE * dose + 0.5 * age + 0.8 * group + rng.normal(size=ROWS)
    whole = np.column_stack([dose, age, response])
    order = np.argsort(response + rng.logistic(size=ROWS))  # high responses come late: missing at random, given the response
    table = whole.copy()
    table[order[-80:], 0] = np.nan
    table[rng.permutation(order[:-80])[:30], 1] = np.nan
    return whole, table, group


def regress(table, group):
    """Least squares of the response on dose, age and group: the dose's coefficient, its variance, the degrees of freedom."""
    design = np.column_stack([table[:, :2], group, np.ones(len(table))])
    cross = np.linalg.inv(design.T @ design)
    coefficients = cross @ design.T @ table[:, 2]
    free = len(table) - design.shape[1]
    residual = table[:, 2] - design @ coefficients
    return coefficients[0], cross[0, 0] * residual @ residual / free, free


def pool(estimates, variances, free):
    """Rubin's rules: the estimate, its variance T = W + (1 + 1/m) B, and Barnard and Rubin's degrees of freedom."""
    m, within, between = len(estimates), np.mean(variances), np.var(estimates, ddof=1)
    total = within + (1 + 1 / m) * between
    share = (1 + 1 / m) * between / total
    old, seen = (m - 1) / share**2, (free + 1) / (free + 3) * free * (1 - share)
    return np.mean(estimates), total, 1 / (1 / old + 1 / seen)


def fillings(table, group, seed):
    """The tables that each way makes of one with holes."""
    proper = LDA(method="posterior", num_draws=2 * TABLES, engine=QUICK, random_state=seed).fit(table, group)
    point = LDA(method="map", random_state=seed).fit(table, group)
    return {
        "column means": [np.where(np.isnan(table), np.nanmean(table, axis=0), table)],
        "conditional means": [proper.impute(table, group)],
        "one drawn table": proper.impute(table, group, draws=1),
        "20 tables, map": point.impute(table, group, draws=TABLES),
        "20 tables, posterior": proper.impute(table, group, draws=TABLES),
    }


def interval(tables, group):
    """The 95% interval of the dose's coefficient from one table, or from several."""
    found = [regress(table, group) for table in tables]
    estimates, variances, free = zip(*found, strict=True)
    centre, variance, df = found[0] if len(found) == 1 else pool(estimates, variances, free[0])
    half = stats.t.ppf(0.975, df) * np.sqrt(variance)
    return centre - half, centre + half


def intervals(seed):
    """One simulated table: an interval for each way, (ways, 2)."""
    whole, table, group = simulate(np.random.default_rng(seed))
    rows = ~np.isnan(table).any(axis=1)
    found = {"no cell missing": interval([whole], group), "complete rows only": interval([table[rows]], group[rows])}
    found |= {way: interval(tables, group) for way, tables in fillings(table, group, seed).items()}
    return np.array([found[way] for way in WAYS])


def covers(found):
    """Which of the intervals (..., 2) hold the true slope."""
    return (found[..., 0] < SLOPE) & (found[..., 1] > SLOPE)


def report(found):
    """How often the intervals (tables, ways, 2) of each way cover, where they lie and how long they are."""
    error = np.sqrt(0.95 * 0.05 / len(found))
    print(f"{len(found)} tables; intervals should cover in 95%, give or take {2 * error:.0%} by chance\n")
    print(f"{'filled by':22s} covers   mean of slope (truth {SLOPE:g})   mean length")
    for way, mine in zip(WAYS, np.moveaxis(found, 1, 0), strict=True):
        length = np.mean(mine[:, 1] - mine[:, 0])
        print(f"{way:22s} {covers(mine).mean():6.1%}   {mine.mean():23.2f}   {length:11.2f}")
    honest = abs(covers(found[:, -1]).mean() - 0.95) < 2 * error
    print(
        f"\npooled over draws from the posterior: {'as often as they should' if honest else 'NOT as often as they should'}"
    )


def draw(found, path):
    """The intervals of three ways in a hundred tables, and how often those of every way cover."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    *left, right = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.35])
    for axes, way in zip(left, ("column means", "conditional means", "20 tables, posterior"), strict=True):
        one_way(axes, found[:100, WAYS.index(way)], way)
    left[0].set_ylabel("100 simulated tables")
    coverage(right, covers(found))
    figure.savefig(path, dpi=160)


def one_way(axes, mine, way):
    """Intervals, one below the other, those that miss the truth in red."""
    hit = covers(mine)
    for right, colour, width in ((True, "#9bb4cc", 1.0), (False, "#c0392b", 1.5)):
        rows = np.flatnonzero(hit == right)
        axes.hlines(rows, *mine[rows].T, color=colour, lw=width)
    axes.axvline(SLOPE, color="black", lw=1)
    axes.set(title=f"{way}\n{hit.sum()} of {len(hit)} cover", xlim=(0.2, 1.8), ylim=(-1, len(hit)), yticks=[])
    axes.set_xlabel("slope of the dose")
    axes.spines[["top", "left", "right"]].set_visible(False)


def coverage(axes, hit):
    """The share of tables in which each way's interval covers, with its own 95% interval."""
    share, places = hit.mean(axis=0), np.arange(len(WAYS))[::-1]
    low, high = stats.beta.ppf([[0.025], [0.975]], hit.sum(axis=0) + 0.5, (~hit).sum(axis=0) + 0.5)
    colours = ["#2c5d8a" if a <= 0.95 <= b else "#c0392b" for a, b in zip(low, high, strict=True)]
    axes.axvline(0.95, color="black", lw=1, ls="--")
    axes.hlines(places, low, high, color=colours, lw=2)
    axes.scatter(share, places, color=colours, zorder=3)
    for place, value, left, colour in zip(places, share, low, colours, strict=True):
        axes.annotate(
            f"{value:.1%}", (left, place), (-6, 0), textcoords="offset points", ha="right", va="center", color=colour
        )
    axes.set(
        yticks=places, yticklabels=WAYS, xticks=[0, 0.25, 0.5, 0.75, 0.95], xlim=(-0.2, 1.02), ylim=(-0.6, len(WAYS) - 0.4)
    )
    axes.set(title="how often 95% intervals cover", xlabel=f"share of {len(hit):,} tables")
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


if __name__ == "__main__":
    pictures = [name for name in sys.argv[1:] if name.endswith(".png")]
    results = np.array([intervals(seed) for seed in range(1000 if pictures else 60)])
    report(results)
    if pictures:
        draw(results, pictures[0])
