"""Laws 3 and 4: drawn rows and filled cells against the density, by the distribution function of each cell."""

from __future__ import annotations

import jax
import numpy as np
from scipy import stats

from bayesgen.laws.case import Density, quick
from bayesgen.laws.density import MOST_ROWS, ROWS, TOLERANCE, at, every_row
from bayesgen.laws.quadrature import integrate
from bayesgen.laws.report import Report

LEVEL = 1e-6  # of a test of draws: about one correct family in ten thousand fails
CONDITIONED = 300  # draws by class whose columns are taken given the others: an integral each


# -- law 3
def samples(density: Density, rng: np.random.Generator, report: Report) -> None:
    """F(x_j | k), and F(x_j | the other columns, k) where columns depend on each other, are uniform for drawn rows."""
    if density.support.unknown:
        return report.skip(3, "drawn rows", density.support.unknown)
    if not np.isfinite(density.draws).all():
        return report.check(3, "drawn rows", np.inf, 0.0, f"sample gives values that are not finite{at(density)}")
    if density.support.total is not None:
        return _counted_rows(density, report)
    if density.support.discrete and not np.array_equal(density.draws, np.rint(density.draws)):
        return report.check(3, "drawn rows", np.inf, 0.0, f"sample gives values that are not whole numbers{at(density)}")
    for k in range(density.shape[0]):
        outside = ~((density.draws[k] >= density.support.low[k]) & (density.draws[k] <= density.support.high[k]))
        for j in np.flatnonzero(outside.any(0)).tolist():
            value = density.draws[k, outside[:, j], j][0]
            message = f"class {k}, column {j}: {value:.6g} was drawn, outside the support of distribution{at(density)}"
            report.check(3, "drawn rows", np.inf, 0.0, message)
        for j in range(density.shape[1]):
            if density.marginals and not density.separable:
                _uniform(density, k, j, _alone(density.draws[k], j), 3, "drawn rows, each column by itself", rng, report)
            few = density.draws[k] if density.separable else density.draws[k, :CONDITIONED]
            _uniform(density, k, j, few, 3, "drawn rows, each column given the others", rng, report)
    return None


def _alone(rows: np.ndarray, j: int) -> np.ndarray:
    out = np.full_like(rows, np.nan)
    out[:, j] = rows[:, j]
    return out


def _counted_rows(density: Density, report: Report) -> None:
    """Chi-square over everything that can be drawn, rare rows together."""
    rows = every_row(density)
    if rows is None:
        return report.skip(3, "drawn rows", "too many rows")
    prob = np.exp(density.logs(rows))
    place = {tuple(row): i for i, row in enumerate(rows)}
    for k, drawn in enumerate(density.draws):
        codes = np.array([place.get(tuple(row), -1) for row in drawn])
        message = f"class {k}: a row was drawn that does not add up to {density.support.total}"
        report.check(3, "drawn rows", float(np.sum(codes < 0)), 0.0, message)
        count, expected = np.bincount(codes, minlength=len(rows)), prob[:, k] * len(drawn)
        rare = expected < 5
        seen, due = (np.append(v[~rare], v[rare].sum()) for v in (count, expected))
        seen, due = (seen, due) if due[-1] > 1 else (seen[:-1], due[:-1])
        chi = float(np.sum((seen - due) ** 2 / due))
        p_value = stats.chi2.sf(chi, max(len(due) - 1, 1))
        distance = float(np.abs(count / len(drawn) - prob[:, k]).max())
        message = f"class {k}: the draws do not have the frequencies of the density (p = {p_value:.1e}){at(density)}"
        report.check(3, "drawn rows", distance, distance if p_value > LEVEL else 0.0, message)
    return None


def transforms(density: Density, k: int, j: int, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """F(x_j | the other cells of the row), drawn within the jump where the column is discrete."""
    shared = density.separable or np.isnan(np.delete(rows, j, 1)).all()  # one function serves all the rows
    base = rows[:1] if shared else rows
    if density.support.discrete:
        values = density.values(k, j)
        if not 0 < len(base) * len(values) <= 50 * MOST_ROWS:
            return None
        table = density.table(k, j, base, values)
        ends = np.concatenate([np.zeros((len(base), 1)), np.cumsum(table, 1)], 1) / table.sum(1, keepdims=True)
        spot = np.clip(np.searchsorted(values, rows[:, j]), 0, len(values) - 1)
        line = np.zeros(len(rows), int) if shared else np.arange(len(rows))
        low, high = ends[line, spot], ends[line, spot + 1]
        return low + rng.random(len(rows)) * (high - low)
    lines = density.lines(k, j, base)
    t = lines.coordinate(rows[:, j])
    edges = lines.edges()
    if not shared:
        t = np.clip(t, edges[:, 0], edges[:, -1])
        panels = np.sort(np.concatenate([edges, t[:, None]], 1), 1)
        mass = integrate(lines, panels).mass
        return np.sum(mass * (panels[:, 1:] <= t[:, None]), 1) / mass.sum(1)
    t = np.clip(t, edges[0, 0], edges[0, -1])
    panels = np.sort(np.append(edges[0], t))
    ends = np.append(0.0, np.cumsum(integrate(lines, panels[None]).mass[0]))
    return ends[np.searchsorted(panels, t)] / ends[-1]


def _uniform(density, k: int, j: int, rows, law: int, what: str, rng, report: Report) -> None:
    """Uniform, by the largest distance, the mean and the spread of normal scores; and unrelated to the other columns."""
    u = transforms(density, k, j, rows, rng)
    if u is None:
        return report.skip(law, what, "too many values")
    n, z = len(u), stats.norm.ppf(np.clip(u, 1e-9, 1 - 1e-9))
    distance, p_shape = stats.kstest(u, "uniform")
    square = np.sum(z**2)
    p_values = [
        p_shape,
        2 * stats.norm.sf(abs(z.mean()) * np.sqrt(n)),
        2 * stats.chi2.sf(square, n),
        2 * stats.chi2.cdf(square, n),
    ]
    p_value = min(p_values)
    message = (
        f"class {k}, column {j}: the distribution function of the density at {n} draws is not uniform "
        f"(largest distance {distance:.3f}, p = {p_value:.1e}){at(density)}"
    )
    report.check(law, what, float(distance), float(distance) if p_value > LEVEL else 0.0, message)
    for i in range(density.shape[1]):
        if i != j and not np.isnan(rows[:, i]).any() and np.ptp(rows[:, i]) > 0:
            p_link = stats.spearmanr(u, rows[:, i]).pvalue
            message = (
                f"class {k}: drawn columns {i} and {j} depend on each other otherwise than in the density (p = {p_link:.1e})"
            )
            report.check(law, what, 0.0, 0.0 if p_link > LEVEL else -1.0, message)
    return None


# -- law 4
@quick
def _fill(family, params, x, share):
    return family.condition(params, x), family.fill(params, x, share)


@quick
def _complete(family, key, salt, params, x, y):
    return family.complete(jax.random.fold_in(key, salt), params, x, y)


def conditions(density: Density, rng: np.random.Generator, report: Report) -> None:
    """x_j | the other columns, k: the mean of `condition`, what `fill` puts in, and the draws of `complete`."""
    if not density.family.takes_missing:
        return report.skip(4, "filled cells", "the family takes no missing cells")
    if density.support.unknown or density.support.total is not None:
        return report.skip(4, "filled cells", density.support.unknown or "rows have a fixed total")
    try:
        for j in range(density.shape[1]):
            _filled(density, j, report)
            _completed(density, j, rng, report)
    except (TypeError, NotImplementedError) as error:  # what a family cannot do it does not claim
        report.skip(4, "filled cells", str(error).splitlines()[0])
    return None


def _filled(density: Density, j: int, report: Report) -> None:
    num_classes, p = density.shape
    rows = density.draws[:, :ROWS].reshape(-1, p).copy()
    rows[:, j] = np.nan
    y = np.repeat(np.arange(num_classes), ROWS)
    means, fills = (np.asarray(v) for v in _fill(density.family, density.params, rows, np.eye(num_classes)[y]))
    for k in range(num_classes):
        _filled_class(density, k, j, rows[y == k], means[y == k, k, j], fills[y == k, j], report)


def _filled_class(density: Density, k: int, j: int, rows, means, fills, report: Report) -> None:
    found = None if density.support.angles else _mean_and_mode(density, k, j, rows, fills)
    if found is None:
        return report.skip(4, "the mean of a missing cell", "it does not exist, or there are too many values")
    mean, mode, scale = found
    if np.isnan(means).all() and density.support.discrete:
        report.skip(4, "the mean of a missing cell", "condition gives none")
    else:
        _compare(density, k, j, means, mean, scale, "condition", "the mean of a missing cell", report)
    nearer = mode if np.array_equal(fills, mode) else mean
    return _compare(density, k, j, fills, nearer, scale, "fill", "what fills a missing cell", report)


def _compare(density, k: int, j: int, got, wanted, scale: float, method: str, what: str, report: Report) -> None:
    worst = int(np.argmax(np.nan_to_num(np.abs(got - wanted), nan=np.inf)))
    error = float(np.abs(got - wanted)[worst] / (scale + np.abs(wanted[worst])))
    message = (
        f"class {k}, column {j}: {method} gives {got[worst]:.6g} for the missing cell, "
        f"joint over marginal {wanted[worst]:.6g}{at(density)}"
    )
    report.check(4, what, error, TOLERANCE, message)


def _mean_and_mode(density: Density, k: int, j: int, rows: np.ndarray, fills: np.ndarray) -> tuple | None:
    """(mean, mode or NaN, scale) of column j given the other cells of each row; of several modes the one in `fills`."""
    base = rows[:1] if density.separable else rows
    if density.support.discrete:
        values = density.values(k, j)
        if not 0 < len(base) * len(values) <= 50 * MOST_ROWS:
            return None
        table = density.table(k, j, base, values)
        table = np.broadcast_to(table, (len(rows), len(values)))
        mean, mode = table @ values / table.sum(1), values[np.argmax(table, 1)]
        own = np.where(values == fills[:, None], table, 0.0).max(1)
        mode = np.where(own >= table.max(1) * (1 - 1e-9), fills, mode)
        return mean, mode, 1.0 + float(np.abs(mean).max())
    lines = density.lines(k, j, base)
    edges = lines.edges()
    found = integrate(lines, edges, moments=True)
    scale = float(
        np.subtract(*np.quantile(density.draws[k, :, j], [0.84, 0.16])) + np.abs(np.median(density.draws[k, :, j]))
    )
    total = found.mass.sum(1)
    for end in (edges[:, 0], edges[:, -1]):
        logs, x = lines.logs(np.arange(len(base)), end)
        if np.any(np.abs(x) * np.exp(logs - found.shift) > TOLERANCE * scale * total):  # it does not die out
            return None
    mean = np.broadcast_to(found.moment.sum(1) / total, len(rows))
    return mean, np.full(len(rows), np.nan), scale


def _completed(density: Density, j: int, rng, report: Report) -> None:
    num_classes, p = density.shape
    n = len(density.draws[0]) if density.separable else CONDITIONED
    rows = density.draws[:, :n].reshape(-1, p).copy()
    rows[:, j] = np.nan
    y = np.repeat(np.arange(num_classes), n)
    drawn = np.asarray(_complete(density.family, density.key, 100 + j, density.params, rows, y))
    kept = np.array_equal(np.delete(drawn, j, 1), np.delete(rows, j, 1))
    report.check(
        4, "draws of missing cells", 0.0, 0.0 if kept else -1.0, f"complete changed observed cells beside column {j}"
    )
    for k in range(num_classes):
        _uniform(density, k, j, drawn[y == k], 4, "draws of missing cells", rng, report)
