"""Laws 1 and 2: the density integrates to one, and missing cells leave its marginals."""

from __future__ import annotations

import itertools

import numpy as np

from bayesgen.laws.case import Density
from bayesgen.laws.quadrature import SHIFTS, Planes, integrate
from bayesgen.laws.report import Report

TOLERANCE = 1e-5
ROWS = 6  # by class, for laws about single rows
MOST_ROWS = 20_000  # of a table of everything that can be
MOST_PAIRS = 3


# -- law 1
def integrates(density: Density, rng: np.random.Generator, report: Report) -> None:
    """∫ f(x | k) dx = 1 over the whole row, or over pairs of columns where there are more than two."""
    p = density.shape[1]
    if density.support.unknown:
        return report.skip(1, "the whole row", density.support.unknown)
    if density.support.total is not None:
        return _sums_over_rows(density, report)
    if density.support.moving:
        _vanishes_outside(density, report)
    if p > 2 and not density.marginals:
        return report.skip(1, "the whole row", f"{p} columns, and missing cells are not integrated out: try num_features=2")
    if p == 1:
        return _columns(density, [0], "the whole row", report)
    for i, j in list(itertools.combinations(range(p), 2))[:MOST_PAIRS]:
        _pair(density, i, j, report)
    return None


def _vanishes_outside(density: Density, report: Report) -> None:
    """Where the support depends on the parameters, cells outside it are met: their density must be 0, and often is not."""
    for k, j in itertools.product(*map(range, density.shape)):
        low, high = density.support.low[k, j], density.support.high[k, j]
        step = max(1.0, 0.1 * (high - low)) if np.isfinite(high - low) else 1.0
        for value in (low - step, high + step):
            if np.isfinite(value):
                row = density.draws[k, :1].copy()
                row[:, j] = value
                height = float(np.exp(density.logs(row)[0, k]))
                message = (
                    f"class {k}, column {j}: the density at {value:.4g} is {height:.4g}, outside its support from "
                    f"{low:.4g} to {high:.4g}. NumPyro's log_prob does not look: define log_prob with −∞ there{at(density)}"
                )
                report.check(1, "0 outside the support", height, 0.0, message)


def _sums_over_rows(density: Density, report: Report) -> None:
    rows = every_row(density)
    if rows is None:
        return report.skip(1, "all rows", "too many rows")
    for k, total in enumerate(np.exp(density.logs(rows)).sum(0)):
        report.check(1, "all rows", abs(total - 1), TOLERANCE, f"class {k} sums to {total:.6g} over all rows{at(density)}")
    return None


def every_row(density: Density) -> np.ndarray | None:
    """All the rows of counts with the support's total, unless they are too many."""
    total, p = density.support.total, density.shape[1]
    assert total is not None
    if (total + 1) ** (p - 1) > MOST_ROWS:
        return None
    heads = [head for head in itertools.product(range(total + 1), repeat=p - 1) if sum(head) <= total]
    return np.array([(*head, total - sum(head)) for head in heads], float)


def at(density: Density) -> str:
    """At which parameters, for the end of a message."""
    numbers = {name: np.round(np.asarray(value), 4).tolist() for name, value in density.params.items()}
    text = ", ".join(f"{name}={value}" for name, value in numbers.items())
    return f" ({density.name}: {text if len(text) < 200 else text[:197] + '...'})"


def _columns(density: Density, columns, what: str, report: Report) -> None:
    for k, j in itertools.product(range(density.shape[0]), columns):
        total, doubt = _total(density, k, j, np.full((1, density.shape[1]), np.nan), 1.0)
        message = f"class {k}, column {j} {_verb(density)} to {_figure(total[0])}{at(density)}"
        report.check(1, what, abs(total[0] - 1), TOLERANCE + doubt[0], message)


def _figure(total: float) -> str:
    """Four digits, or as many as tell it from 1."""
    return f"{total:.4f}" if abs(total - 1) > 1e-4 else f"{total:.9f}"


def _verb(density: Density) -> str:
    return "sums" if density.support.discrete else "integrates"


def _total(density: Density, k: int, j: int, rows: np.ndarray, wanted) -> tuple[np.ndarray, np.ndarray]:
    """(Σ or ∫ over column j of each row, what the numeric method may have missed)."""
    if density.support.discrete:
        values = density.values(k, j)
        table = density.table(k, j, rows, values)
        open_end = np.isinf(density.support.high[k, j])
        return table.sum(1), 10 * len(values) * table[:, -1] * open_end
    return _by_grids(lambda shift: _along(density.lines(k, j, rows), shift), wanted)


def _along(lines, shift: float):
    return integrate(lines, lines.edges(shift))


def _by_grids(integral, wanted) -> tuple[np.ndarray, np.ndarray]:
    """(integral, doubt) on one grid or, if that is not what is wanted, by the median of several."""
    totals, doubts = [], []
    for shift in SHIFTS:
        found = integral(shift)
        totals.append(np.exp(found.log_total))
        doubts.append(found.error * np.exp(found.shift))
        if shift == SHIFTS[0] and np.all(np.abs(totals[0] / wanted - 1) < 0.1 * TOLERANCE):
            break
    return np.median(totals, 0), np.median(doubts, 0)


def _pair(density: Density, i: int, j: int, report: Report) -> None:
    what = "the whole row" if density.shape[1] == 2 else "pairs of columns"
    for k in range(density.shape[0]):
        found = _pair_total(density, k, i, j)
        if found is None:
            report.skip(1, what, "too many values")
            continue
        total, doubt = found
        message = f"class {k}, columns {i} and {j} together: {_verb(density)} to {_figure(total)}{at(density)}"
        if abs(total - 1) > TOLERANCE + doubt and density.separable and density.marginals:
            _columns(density, (i, j), what, report)  # names the column, if it is one column's fault
        report.check(1, what, abs(total - 1), TOLERANCE + doubt, message)


def _pair_total(density: Density, k: int, i: int, j: int) -> tuple[float, float] | None:
    empty = np.full((1, density.shape[1]), np.nan)
    if not density.support.discrete:
        lines = density.lines(k, i, empty)
        total, doubt = _by_grids(lambda shift: integrate(Planes(lines, j, density.lines, shift), lines.edges(shift)), 1.0)
        return float(total[0]), float(doubt[0])
    first, second = density.values(k, i), density.values(k, j)
    if not 0 < len(first) * len(second) <= 50 * MOST_ROWS:
        return None
    rows = np.repeat(empty, len(first), 0)
    rows[:, i] = first
    table = density.table(k, j, rows, second)
    doubt = 10 * len(first) * table[-1].sum() * np.isinf(density.support.high[k, i])
    return float(table.sum()), float(doubt + 10 * len(second) * table[:, -1].sum() * np.isinf(density.support.high[k, j]))


# -- law 2
def marginalises(density: Density, rng: np.random.Generator, report: Report) -> None:
    """f(x_o | k) = ∫ f(x_o, x_j | k) dx_j, and a row without any cell has density 1."""
    p, what = density.shape[1], "cells integrated out"
    if not density.family.takes_missing:
        return report.skip(2, what, "the family takes no missing cells")
    nothing = density.logs(np.full((1, p), np.nan))[0]
    for k, value in enumerate(nothing):
        message = f"class {k}: a row without any cell has log density {value:.4g}, not 0{at(density)}"
        report.check(2, "a row of missing cells", abs(value), TOLERANCE, message)
    if density.support.unknown or density.support.total is not None:
        return report.skip(2, what, density.support.unknown or "rows have a fixed total")
    if not density.marginals:
        return report.skip(2, what, "log_prob gives NaN where some cells are missing: define it to integrate them out")
    for k, j in itertools.product(range(density.shape[0]), range(p)):
        _marginal(density, k, j, rng, report)
    return None


def _marginal(density: Density, k: int, j: int, rng, report: Report) -> None:
    rows = density.draws[k, :ROWS].copy()
    hidden = rng.random(density.shape[1]) < (0.0 if density.shape[1] < 3 else 0.4)  # the same cells, for one regression
    rows[:, hidden] = np.nan
    rows[:, j] = np.nan
    if np.isnan(rows).all():
        return
    if density.support.discrete and not len(density.values(k, j)):
        return report.skip(2, "cells integrated out", "too many values")
    stated = np.exp(density.logs(rows)[:, k])
    total, doubt = _total(density, k, j, rows, stated)
    worst = int(np.argmax(np.abs(total / stated - 1) - doubt / stated))
    cells = ", ".join(f"column {i} = {v:.4g}" for i, v in enumerate(rows[worst]) if not np.isnan(v))
    message = (
        f"class {k}, {cells}: the density with column {j} missing is {stated[worst]:.6g}, "
        f"but the integral over column {j} is {total[worst]:.6g}{at(density)}"
    )
    error = abs(total[worst] / stated[worst] - 1)
    return report.check(2, "cells integrated out", error, TOLERANCE + doubt[worst] / stated[worst], message)
