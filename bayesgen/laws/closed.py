"""Laws 5, 6 and 9: closed forms against the model, statistics of parts and wholes, and the order of things."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from bayesgen.families.base import Family, Labels, log_prior
from bayesgen.inference import target
from bayesgen.laws.case import DRAWN, Case, draw_sites, log_table, on_host, quick, tables, updated
from bayesgen.laws.report import Report

EXACT = 1e-9  # of the largest term
AROUND = 64  # draws that an estimate must beat
ERRORS = 6.0  # Monte-Carlo standard errors that an average may be off
ROWS = 8
UPHILL = 1e-6  # slope at an estimate, per posterior standard deviation


@quick(static_argnames="shape")
def _log_priors(family, sites, shape):
    return jax.lax.map(lambda s: log_prior(family, s, *shape), sites)


@quick
def _by_statistics(family, params, stats):
    return jax.lax.map(lambda p: family.log_likelihood(p, stats), params)


@quick(static_argnames="shape")
def _log_evidence(family, stats, shape):
    return family.log_evidence(stats, *shape)


@quick
def _estimates(family, stats):
    """The sites of map and mle."""
    return [family.sites(method(stats)) for method in (family.map, family.mle)]


@quick
def _coordinates(problem, sites):
    return jax.lax.map(lambda s: target.coordinates(problem, s), sites)


@quick
def _slopes(problem, flats, weights):
    """Value and slope of log p(D | θ) + weight · log p(θ), in free coordinates, at each of several points."""

    def one(point):
        flat, weight = point

        def height(u):
            here = target.evaluate(problem, target.unflatten(problem, u))
            return here.log_likelihood + weight * here.log_prior

        return jax.value_and_grad(height)(flat)

    return jax.lax.map(one, (flats, weights))


# -- law 5
def closed_form(case: Case, report: Report) -> None:
    """log p(θ) + log p(D | θ) − log q(θ | D) is the same number for every θ, the log evidence, and so on."""
    posterior = case.posterior[0]
    some = _parts(len(case.x))[0]
    half = on_host(updated(case.family, case.family.stats(case.x[some], Labels(case.y[some], case.shape[0])))[0])
    # likely parameters, and less likely ones
    sites, params = jax.tree_util.tree_map(_joined, case.draws, on_host(draw_sites(half, case.key, 1, DRAWN, case.shape)))
    rows = np.asarray(tables(case.family, params, case.x))
    likelihood = rows[:, np.arange(len(case.x)), case.y].sum(1)
    _rows_and_statistics(case, params, likelihood, report)
    prior, q = (np.asarray(_log_priors(f, sites, case.shape)) for f in (case.family, posterior))
    scale = EXACT * (1 + max(np.abs(v).max() for v in (prior, q, likelihood)))
    _constant(case, prior + likelihood - q, scale, report)
    _maxima(case, report)
    _predictive(case, np.exp(rows[: DRAWN // 2]), report)


def _joined(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.concatenate([a[: DRAWN // 2], b[: DRAWN // 2]])


def _rows_and_statistics(case: Case, params, rows: np.ndarray, report: Report) -> None:
    found = np.asarray(_by_statistics(case.family, params, case.stats))
    worst = int(np.argmax(np.nan_to_num(np.abs(found - rows), nan=np.inf)))
    error = abs(found[worst] - rows[worst])
    message = (
        f"log_likelihood of the statistics is {found[worst]:.10g}, the sum of log_prob over the rows {rows[worst]:.10g}"
    )
    report.check(5, "likelihood of the statistics", error, EXACT * (1 + np.abs(rows).max()), message)


def _constant(case: Case, gaps: np.ndarray, scale: float, report: Report) -> None:
    spread = float(np.max(gaps) - np.min(gaps))
    message = (
        "log p(θ) + log p(D | θ) − log q(θ | D) of update must be one number, the log evidence, "
        f"but runs from {gaps.min():.6g} to {gaps.max():.6g} over {len(gaps)} draws of θ: "
        "the prior of model and the numbers of update disagree"
    )
    report.check(5, "posterior", spread, scale, message)
    if case.family.has_evidence():
        stated = float(_log_evidence(case.family, case.stats, case.shape))
        message = f"log_evidence is {stated:.10g}, but log p(θ, D) − log q(θ | D) is {gaps[0]:.10g}"
        report.check(5, "log evidence", abs(stated - gaps[0]), scale, message)


def _maxima(case: Case, report: Report) -> None:
    """The slope of log p(θ, D) (mle: log p(D | θ)) vanishes, in posterior standard deviations of free coordinates."""
    problem = target.Problem(case.family, target.Rows.of(case.x, case.labels), *case.shape)
    points = on_host(_estimates(case.family, case.stats))
    sites = {name: np.concatenate([np.stack([p[name] for p in points]), case.draws[0][name][:AROUND]]) for name in points[0]}
    flats = np.asarray(_coordinates(problem, sites))
    for i, method in enumerate(("map", "mle")):
        moved = np.any(np.asarray(getattr(case.family, "ridge", 0.0)) != 0) or (
            i and getattr(case.family, "unbiased", False)
        )
        if moved or not np.isfinite(flats[i]).all():
            why = "ridge and unbiased move it away from the maximum" if moved else "it lies on the edge: no slope vanishes"
            report.skip(5, method, why)
            continue
        spots = np.concatenate([flats[i : i + 1], flats[2:]])
        height, slope = (np.asarray(v) for v in _slopes(problem, spots, np.full(len(spots), 1.0 - i)))
        _maximum(method, height, np.abs(slope[0]) * flats[2:].std(0), len(case.x), report)


def _maximum(method: str, height: np.ndarray, steep: np.ndarray, num_rows: int, report: Report) -> None:
    of = "posterior" if method == "map" else "likelihood"
    message = (
        f"{method} is not at the maximum: the log {of} rises by {steep.max():.3g} per posterior standard deviation "
        f"along free coordinate {int(steep.argmax())}"
    )
    report.check(5, method, float(steep.max()), UPHILL * num_rows, message)
    above = float(np.max(height[1:] - height[0]))
    message = f"{method} is not the maximum: the log {of} of a draw of θ is higher by {above:.3g}"
    report.check(5, method, max(above, 0.0), UPHILL * num_rows, message)


def _predictive(case: Case, drawn: np.ndarray, report: Report) -> None:
    """E[f(x | θ) | D], as far as draws can tell."""
    own = np.arange(len(case.x)), case.y
    mean, error = drawn.mean(0)[own], drawn.std(0)[own] / np.sqrt(len(drawn))
    stated = np.exp(log_table(case.family, case.posterior[1], case.x))[own]
    off = np.nan_to_num(np.abs(mean - stated) / (error + 1e-6 * mean), nan=np.inf)
    off[mean < np.median(mean)] = 0.0  # in the tails a few draws decide
    i = int(np.argmax(off))
    message = (
        f"class {case.y[i]}: predictive gives row {i} of the data the density {stated[i]:.6g}, "
        f"its average over {len(drawn)} posterior draws is {mean[i]:.6g} ± {error[i]:.2g}"
    )
    report.check(5, "predictive, in standard errors of an average", float(off.max()), ERRORS, message)


# -- law 6
def statistics(case: Case, report: Report) -> None:
    """stats(A ∪ B) = merge(stats(A), stats(B)), and remove takes B out again."""
    family, rng = case.family, np.random.default_rng(0)
    holes = np.where(rng.random(case.x.shape) < 0.2, np.nan, case.x)
    tables = [("", case.x)] + ([(" with missing cells", holes)] if family.takes_missing and family.drops_missing else [])
    for note, x in tables:
        whole, a, b = (family.stats(x[s], Labels(case.y[s], case.shape[0])) for s in (slice(None), *_parts(len(x))))
        shuffled = rng.permutation(len(x))
        again = family.stats(x[shuffled], Labels(case.y[shuffled], case.shape[0]))
        pairs = [
            (6, "merge", "merge of two halves", family.merge(a, b), whole),
            (6, "merge", "merge of two halves, the other way round", family.merge(b, a), whole),
            (6, "remove", "remove of the second half", family.remove(whole, b), a),
            (9, "rows", "stats of the rows in another order", again, whole),
        ]
        for law, what, words, got, wanted in pairs:
            error, leaf = _distance(got, wanted, whole)
            message = f"{words}{note} differs by {error:.3g} (of the size of the numbers) in {leaf}"
            report.check(law, what + note, error, EXACT, message)


def _parts(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Half of the rows, and the others: at random, so that both have every class."""
    rows = np.random.default_rng(0).permutation(n)
    return rows[: n // 2], rows[n // 2 :]


def _distance(got, wanted, scale) -> tuple[float, str]:
    """Largest difference of any array, relative to its size, and its name."""
    named = [jax.tree_util.tree_flatten_with_path(tree)[0] for tree in (got, wanted, scale)]
    found = [(np.inf, "the structure of the statistics")] if len(named[0]) != len(named[1]) else []
    for (path, a), (_, b), (_, s) in zip(*named, strict=False):
        if np.shape(a) != np.shape(b):
            return np.inf, f"the shape of {jax.tree_util.keystr(path)}"
        error = np.max(np.abs(np.asarray(a) - np.asarray(b)), initial=0.0) / (
            np.max(np.abs(np.asarray(s)), initial=0.0) or 1.0
        )
        found.append((float(np.nan_to_num(error, nan=np.inf)), jax.tree_util.keystr(path)))
    return max(found)


# -- law 9
def order(case: Case, report: Report) -> None:
    """Classes and columns in another order give the same numbers in that order; rows do not know of each other."""
    for density in case.densities:
        rows = density.draws[:, :ROWS].reshape(-1, case.shape[1])
        table = density.logs(rows)
        error, backwards = _gap(density.logs(rows[::-1])[::-1], table), np.arange(case.shape[0])[::-1]
        report.check(9, "rows", error, EXACT, f"log_prob of a row changes by {error:.3g} with the rows around it")
        if density.name == "the predictive":
            continue
        fixed = _shared(case)
        turned = {n: v if n in fixed else v[backwards] for n, v in density.params.items()}
        error = _gap(log_table(case.family, turned, rows), table[:, backwards])
        message = f"classes in another order change log_prob by {error:.3g}: the density of a class depends on its place"
        report.check(9, "classes", error, EXACT, message)
        if density.separable and density.marginals and case.shape[1] > 1:
            _columns_add_up(density, rows, table, report)
    if case.closed:
        _fit_order(case, report)


def _shared(case: Case) -> set[str]:
    """Names of the parameters that have no class axis: with one class more their shape is the same."""
    (k, p), family = case.shape, case.family

    def shapes(num_classes: int) -> dict:
        return draw_sites.eval_shape(family, case.key, 0, 1, (num_classes, p))[1]

    here = shapes(k)
    try:
        more = shapes(k + 1)
    except (TypeError, ValueError):  # prior numbers by class: only the first axis is left to go by
        return {name for name, leaf in here.items() if leaf.shape[1:2] != (k,)}
    return {name for name, leaf in here.items() if leaf.shape == more[name].shape}


def _columns_add_up(density, rows, table, report: Report) -> None:
    parts = np.zeros_like(table)
    for j in range(rows.shape[1]):
        alone = np.full_like(rows, np.nan)
        alone[:, j] = rows[:, j]
        parts = parts + density.logs(alone)
    error = _gap(parts, table)
    message = f"separable says that columns are independent, but their log densities add up with an error of {error:.3g}"
    report.check(9, "independent columns", error, EXACT, message)


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    with np.errstate(invalid="ignore"):
        gap = np.where(a == b, 0.0, np.abs(a - b) / (1 + np.abs(b)))
    return float(np.max(np.nan_to_num(gap, nan=np.inf)))


def _fit_order(case: Case, report: Report) -> None:
    """The predictive of a fit to a table whose classes and columns were renamed."""
    k = case.shape[0]
    wanted = _fitted_table(case.given, case.x, case.y, k)
    turned = _fitted_table(case.given, case.x, k - 1 - case.y, k)[:, ::-1]
    error = _gap(turned, wanted)
    report.check(9, "classes, by the fit", error, EXACT, f"labels in another order change the fitted density by {error:.3g}")
    family = _other_way(case.given)
    if family is None:
        report.skip(9, "columns, by the fit", "the prior has numbers by column")
        return
    error = _gap(_fitted_table(family, case.x[:, ::-1], case.y, k), wanted)
    report.check(
        9, "columns, by the fit", error, EXACT, f"columns in another order change the fitted density by {error:.3g}"
    )


def _fitted_table(family: Any, x: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    x, labels = np.ascontiguousarray(x), Labels(y, k)
    resolved = family.resolve(x, labels)
    return log_table(resolved, updated(resolved, resolved.stats(x, labels))[1], x)


def _other_way(family: Family) -> Family | None:
    """The family for the columns in reverse order, None if that is not known."""
    sizes = getattr(family, "sizes", None)
    if sizes is not None:
        family = family.with_sizes(tuple(sizes)[::-1])
    numbers = [leaf for f in dataclasses.fields(family) for leaf in jax.tree_util.tree_leaves(getattr(family, f.name))]  # type: ignore[arg-type]
    plain = sizes is not None or all(np.ndim(leaf) == 0 for leaf in numbers if not isinstance(leaf, str))
    return family if plain else None
