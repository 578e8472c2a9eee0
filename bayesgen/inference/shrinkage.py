r"""The shrinkage of regularised discriminant analysis, chosen by the exact leave-one-out score.

The covariance of class k under the weights (alpha, gamma) is

.. math::
    \Sigma_k = \alpha \frac{S_k}{n_k} + (1-\alpha) \Big\{ \gamma \frac{W}{n} + (1-\gamma) s^2 I \Big\},
    \qquad W = \sum_k S_k, \quad s^2 = \frac{\operatorname{tr} W}{n d},

with S_k the scatter of class k about its mean. The score is :math:`\sum_i \log p(x_i, y_i \mid D_{-i})`: each
row leaves its class mean, S_k, W, s², the weights and the class probabilities before it is scored. No fit is
repeated. With δ the row minus its class mean, taking weight r out of a class of weight n_k leaves
:math:`S_k - c\,\delta\delta'`, :math:`c = n_k r / (n_k - r)`, and the covariance
:math:`A - \beta\,\delta\delta' - \tau I`, where A and β depend on the class and r only: one eigenbasis of A
serves all the rows of such a *cell*. Directions in which no row differs from its class mean though rows
abound (constant or collinear columns) are not scored: the score would have no maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter
from scipy.optimize import minimize

from bayesgen.programs import jit

Array = Any  # of NumPy on the host, of JAX inside a jitted function
Floats = NDArray[np.float64]
Method = Literal["map", "posterior"]

BATCH_ROWS, MIN_ROWS, CHUNK_ROWS = 16_384, 64, (8, 64, 1024)
BATCH_SIZE = 2**22  # numbers in a batch: wide tables take fewer rows; tables that fit keep their batches
MAX_FRACTIONS, TINY, SPAN, WALL = 256, 1e-13, 1 - 1e-12, 20.0
LEVELS, STARTS = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1 - 1e-3, 1 - 1e-5, 1 - 1e-7, 1 - 1e-9, 1.0), 3


@dataclass(frozen=True)
class Choice:
    """The chosen weights, their score, the optimiser's iterations over all its starts, and its success."""

    alpha: float
    gamma: float
    score: float
    n_iter: int
    converged: bool


class Totals(NamedTuple):
    """S_k (K, d, d), W (d, d), n_k (K,), n and columns of the table; 1 for "posterior", 0 for "map"."""

    scatter: Array
    pooled: Array
    class_weight: Array
    weight: Array
    columns: Array
    predictive: Array


class Cells(NamedTuple):
    """The cells (G,): class, weight r that leaves with a row, log probability of the class then."""

    label: Array
    leaving: Array
    log_prob: Array


class Batch(NamedTuple):
    """Centred rows (P, C, d) and their weights (P, C): P chunks of C rows, each chunk from one cell (P,)."""

    cells: Cells
    cell: Array
    delta: Array
    weight: Array


def _eigen(a, cell, tau, delta):
    """Eigenvectors V of A; per row: is A - tau I definite, its eigenvalues, V'delta; and `_solve`."""
    # By way of the Cholesky factor small eigenvalues keep twice the digits: columns may differ in spread.
    factor = jnp.linalg.cholesky(a)
    solid = (jnp.einsum("gii->gi", factor) ** 2 > TINY * jnp.einsum("gii->gi", a)).all(-1)
    vectors, roots, _ = jnp.linalg.svd(jnp.where(solid[:, None, None], factor, jnp.eye(a.shape[-1])))
    values = (roots * roots)[cell][:, None, :]
    shifted = values - tau[..., None]
    good = solid[cell][:, None] & (shifted[..., -1] > TINY * values[..., -1])
    shifted = jnp.where(good[..., None], shifted, 1.0)
    z = jnp.einsum("pci,pij->pcj", delta, vectors[cell])
    logdet, quad = jnp.log(shifted).sum(-1), (z * z / shifted).sum(-1)
    return vectors, good, shifted, z, (jnp.where(good, logdet, 0.0), jnp.where(good, quad, jnp.inf))


@jax.custom_jvp
def _solve(a, cell, tau, delta):
    r"""Return :math:`\log|A - \tau I|` and :math:`\delta'(A - \tau I)^{-1}\delta`; (0, inf) if not definite.

    The derivative uses the eigenvectors as a linear solver and never differentiates them: their derivative
    does not exist where eigenvalues repeat, as at alpha = gamma = 0, while that of these two numbers does.
    """
    return _eigen(a, cell, tau, delta)[-1]


@_solve.defjvp
def _solve_jvp(primals, tangents):
    a, cell, tau, delta = primals
    da, _, dtau, ddelta = tangents
    vectors, good, shifted, z, out = _eigen(a, cell, tau, delta)
    u = z / shifted
    turned = jnp.einsum("gji,gjk,gkl->gil", vectors, da, vectors)
    dlogdet = (jnp.einsum("gii->gi", turned)[cell][:, None, :] / shifted).sum(-1)
    dlogdet -= dtau * (1.0 / shifted).sum(-1)
    dz = jnp.einsum("pci,pij->pcj", ddelta, vectors[cell])
    dquad = ((2.0 * dz - jnp.einsum("pci,pij->pcj", u, turned[cell])) * u).sum(-1) + dtau * (u * u).sum(-1)
    return out, (jnp.where(good, dlogdet, 0.0), jnp.where(good, dquad, 0.0))


def _log1p_ratio(t):
    """log(1 + t) / t for t >= 0, smooth at 0."""
    small = t < 1e-2
    series = jnp.polyval(jnp.array([(-1.0) ** j / (j + 1) for j in range(9)][::-1]), jnp.where(small, t, 0.0))
    safe = jnp.where(small, 1.0, t)
    return jnp.where(small, series, jnp.log1p(safe) / safe)


def _gamma_ratio(u, d: int):
    r"""Return :math:`\log\Gamma(z + d/2) - \log\Gamma(z) - (d/2) \log z` at z = 1/(2u), smooth at u = 0."""
    odd, u = d % 2, u[..., None]
    total = jnp.log1p(2.0 * u * (jnp.arange(d // 2) + 0.5 * odd)).sum(-1)
    if not odd:
        return total
    # The last half step: the recurrence moves z up by ten, where the asymptotic series has all the digits.
    inverse = 2.0 * u / (1.0 + 20.0 * u)
    series = jnp.polyval(jnp.array([-31 / 18432, 17 / 14336, -1 / 640, 1 / 192, -1 / 8]), inverse * inverse)
    half = inverse * series + 0.5 * jnp.log1p(20.0 * u)
    return total + half[..., 0] - jnp.log1p(u / (1.0 + 2.0 * u * jnp.arange(10.0))).sum(-1)


def _log_density(logdet, mahalanobis, left, alpha, predictive, cell, d: int):
    """Log density: normal, or t with df n_k/alpha + 1 and scale Sigma_k (1 + 1/n_k) / (1 + alpha/n_k)."""
    # In terms of u = 1/df the normal is u = 0, and nothing is singular.
    h = predictive * alpha / left
    u, scale = h / (1.0 + h), (1.0 + predictive / left) / (1.0 + h)
    constant = _gamma_ratio(u, d) - 0.5 * d * jnp.log(2.0 * jnp.pi * scale)
    quad = mahalanobis / scale[cell][:, None]
    t = u[cell][:, None] * quad
    return constant[cell][:, None] - 0.5 * (logdet + quad * _log1p_ratio(t) + d * jnp.log1p(t))


def _matrices(point, totals: Totals, cells: Cells):
    """A (G, d, d); beta, tau/|delta|², the weight left in the class, the growth of delta (G,)."""
    alpha, gamma = point
    whole = totals.class_weight[cells.label]
    left, rest = whole - cells.leaving, totals.weight - cells.leaving
    own, pooled = alpha / left, (1.0 - alpha) * gamma / rest
    sphere = (1.0 - alpha) * (1.0 - gamma) / (rest * totals.columns)
    a = own[:, None, None] * totals.scatter[cells.label] + pooled[:, None, None] * totals.pooled
    a += (sphere * jnp.trace(totals.pooled))[:, None, None] * jnp.eye(totals.pooled.shape[-1])
    c = whole * cells.leaving / left
    return a, c * (own + pooled), c * sphere, left, whole / left


def _batch_score(point, totals: Totals, batch: Batch):
    """Sum of weight times log p(x_i, y_i | D without i) over the rows of a batch."""
    cells, cell, delta, weight = batch
    a, beta, tau, left, growth = _matrices(point, totals, cells)
    logdet, quad = _solve(a, cell, tau[cell][:, None] * (delta * delta).sum(-1), delta)
    finite = jnp.isfinite(quad)
    quad = jnp.where(finite, quad, 0.0)
    rest = 1.0 - beta[cell][:, None] * quad
    good = finite & (rest > TINY)
    rest = jnp.where(good, rest, 1.0)
    logdet, quad = logdet + jnp.log(rest), (growth**2)[cell][:, None] * quad / rest
    density = _log_density(logdet, quad, left, point[0], totals.predictive, cell, delta.shape[-1])
    score = jnp.where(good, cells.log_prob[cell][:, None] + density, -jnp.inf)
    return (weight * jnp.where(weight > 0.0, score, 0.0)).sum()


_value_and_grad = jit(jax.value_and_grad(_batch_score))


def _class_moments(x: Floats, rows: NDArray, weight: Floats) -> tuple[Floats, Floats]:
    """Mean and centred scatter of some rows, by slices; the first row as origin keeps all the digits."""
    total, origin = weight[rows].sum(), x[rows[0]]
    slices = [rows[i : i + BATCH_ROWS] for i in range(0, len(rows), BATCH_ROWS)]
    mean = origin + sum(weight[s] @ (x[s] - origin) for s in slices) / total
    return mean, sum((x[s] - mean).T * weight[s] @ (x[s] - mean) for s in slices)


def _moments(x: Floats, y: NDArray, order: NDArray, weight: Floats, num_classes: int):
    """Mean (K, d) and scatter (K, d, d) of each class, and a basis of the scored directions, None for all."""
    mean = np.zeros((num_classes, x.shape[1]))
    scatter = np.zeros((*mean.shape, x.shape[1]))
    ends = np.searchsorted(y[order], np.arange(num_classes + 1))
    present = np.flatnonzero(np.diff(ends))
    for k in present:
        mean[k], scatter[k] = _class_moments(x, order[ends[k] : ends[k + 1]], weight)
    pooled = scatter.sum(0)
    spread = np.maximum(np.sqrt(np.diag(pooled)), 1e-150)
    rank = np.count_nonzero(np.linalg.eigvalsh(pooled / np.outer(spread, spread)) > TINY * len(pooled))
    # With fewer rows than columns the columns are not at fault: a row that is left out enters new directions.
    if rank in (0, len(pooled)) or rank >= max(len(order), weight.sum()) - len(present):
        return mean, scatter, None
    basis = np.linalg.eigh(pooled)[1][:, -rank:]
    return mean, basis.T @ scatter @ basis, basis


def _next_power_of_two(count: int) -> int:
    return 1 << (int(count) - 1).bit_length()


def _slots(cell: NDArray, order: NDArray, size: int) -> tuple[NDArray, NDArray]:
    """Row numbers (P, size), -1 where padded, and cells (P,) of chunks; ``order`` sorts the rows by cell."""
    counts = np.bincount(cell)
    chunks = -(-counts // size)
    first_chunk, first_row = np.cumsum(chunks) - chunks, np.cumsum(counts) - counts
    slots = np.full(chunks.sum() * size, -1)
    slots[np.arange(len(order)) + (first_chunk * size - first_row)[cell]] = order
    return slots.reshape(-1, size), np.repeat(np.arange(len(counts)), chunks)


def _pad(array: NDArray, size: int, fill: float = 0) -> NDArray:
    """The array with its first axis filled up to a size."""
    return np.concatenate([array, np.full((size - len(array), *array.shape[1:]), fill, array.dtype)])


def _batch(x: Floats, mean: Floats, basis, weight: Floats, cells: Cells, most: int, slots, cell) -> Batch:
    """A batch of chunks, padded by rows of weight 0; its cells are numbered from 0 and padded to ``most``."""
    own, local = np.unique(cell, return_inverse=True)
    size = _next_power_of_two(max(len(slots), -(-MIN_ROWS // slots.shape[1])))
    rows, local = _pad(slots, size, -1), _pad(local, size)
    real = rows >= 0
    delta = np.where(real[..., None], x[rows] - mean[cells.label[own[local]]][:, None, :], 0.0)
    delta = delta if basis is None else delta @ basis
    mine = Cells(*(_pad(part[own], most, part[own[0]]) for part in cells))
    return jax.tree.map(jnp.asarray, Batch(mine, local, delta, np.where(real, weight[rows], 0.0)))


def _batch_maker(x: Floats, mean: Floats, basis, weight: Floats, cells: Cells, order: NDArray, number):
    """A function that gives the batches: always one list for a small table, made anew for a large one."""
    d = x.shape[1]
    # Chunks small against a cell, so that padding is cheap; large against d, so that one A per chunk is.
    target = max(len(order) / (64 * len(cells.label)), d / 4)
    size = next((rows for rows in CHUNK_ROWS if rows >= target), CHUNK_ROWS[-1])
    slots, cell = _slots(number, order, size)
    step = _next_power_of_two(max(min(BATCH_ROWS, BATCH_SIZE // d) // size, 1) // 2 + 1)
    pieces = [(slots[i : i + step], cell[i : i + step]) for i in range(0, len(slots), step)]
    most = _next_power_of_two(max(len(np.unique(piece[1])) for piece in pieces))
    fresh = partial(starmap, partial(_batch, x, mean, basis, weight, cells, most), pieces)
    return fresh if slots.size * d > BATCH_SIZE else partial(iter, list(fresh()))


def _leaving(weight: Floats) -> Floats:
    """The weight leaving with a row: min(w, 1), or up to 4 % less, to share cells, if fractions abound."""
    leaving = np.minimum(weight, 1.0)
    rounded = np.exp2(np.floor(16.0 * np.log2(np.maximum(leaving, 1e-300))) / 16.0)
    return leaving if len(np.unique(leaving)) <= MAX_FRACTIONS else rounded


def _prepare(x, y, num_classes, weight, method: Method, class_probs, smoothing) -> tuple[Callable, float]:
    """Sort the rows into cells; return the score as a function of (alpha, gamma) and the weight it scores."""
    weight = np.ones(len(x)) if weight is None else np.asarray(weight, float)
    leaving, class_weight = _leaving(weight), np.bincount(y, weight, num_classes)
    order = np.lexsort((leaving, y))
    order = order[weight[order] > 0]
    mean, scatter, basis = _moments(x, y, order, weight, num_classes)
    order = order[(class_weight[y] - leaving > 1e-10 * class_weight[y])[order]]
    if not len(order):
        raise ValueError("No row can be left out: every class has one sample only. Give numbers for alpha and gamma.")
    new = np.r_[True, (np.diff(y[order]) != 0) | (np.diff(leaving[order]) != 0)]
    label, out, number = y[order[new]], leaving[order[new]], np.cumsum(new) - 1
    total, predictive = class_weight.sum(), float(method == "posterior")
    extra = smoothing + predictive
    probs = (class_weight[label] - out + extra) / (total - out + extra * num_classes)
    probs = probs if class_probs is None else np.asarray(class_probs, float)[label]
    batches = _batch_maker(x, mean, basis, weight, Cells(label, out, np.log(probs)), order, number)
    totals = Totals(scatter, scatter.sum(0), class_weight, total, float(x.shape[1]), predictive)
    return partial(_evaluate, jax.tree.map(jnp.asarray, totals), batches), weight[order].sum()


def _evaluate(totals: Totals, batches: Callable[[], Iterable[Batch]], point) -> tuple[float, Floats]:
    """Score and gradient at (alpha, gamma); (-inf, 0) where some row has no density."""
    total, slope = 0.0, np.zeros(2)
    for batch in batches():
        value, grad = _value_and_grad(jnp.asarray(point, float), totals, batch)
        total, slope = total + float(value), slope + np.asarray(grad)
        if not np.isfinite(total):
            return -np.inf, np.zeros(2)
    return total, slope


def _climb(evaluate: Callable, unit: float, start: Floats, low: Floats, high: Floats) -> Choice:
    """L-BFGS-B from a start, in u = -log(1 - SPAN t) for each weight t.

    With columns of very different spreads the maximum lies next to 1: hence u. The first step is as long as
    the slope: the loss has slope 1. The line search interpolates: where the score is far below the start's,
    the loss is a wall of finite height.
    """
    begin, bottom, top = (-np.log1p(-SPAN * t) for t in (start, low, high))
    first, slope = evaluate(start)
    scale = np.abs(slope * np.exp(-begin) * np.where(slope > 0, begin < top, begin > bottom)).max()
    if scale < 1e-9 * unit:
        return Choice(start[0].item(), start[1].item(), first, 0, True)

    def weights(u: Floats) -> Floats:
        return np.where(u >= top, high, np.clip(-np.expm1(-u) / SPAN, low, high))

    def loss(u: Floats) -> tuple[float, Floats]:
        score, slope = evaluate(weights(u))
        fall = (first - score) / scale
        return (fall, slope * np.exp(-u) / -scale) if fall < WALL else (WALL, np.zeros(2))

    bounds, options = np.transpose([bottom, top]), {"ftol": 1e-13, "gtol": 1e-9 * unit / scale}
    found = minimize(loss, begin, method="L-BFGS-B", jac=True, bounds=bounds, options=options)
    # A search that stops at the rounding error of a flat top has not failed; a fixed weight has slope nan.
    step = np.clip(found.x - np.nan_to_num(found.jac), bottom, top) - found.x
    good = bool(found.success or np.abs(step).max() * scale < 1e-6 * unit)
    alpha, gamma = weights(found.x).tolist()
    return Choice(alpha, gamma, float(first - found.fun * scale), int(found.nit), good)


def _best(evaluate: Callable, unit: float, fixed: tuple[float | str, float | str]) -> Choice:
    """The maximum over the box, or over its free side: a grid, then climbs from its best few local maxima."""
    axes = [np.array(LEVELS if value == "loo" else [value], float) for value in fixed]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    scores = np.array([[evaluate(point)[0] for point in row] for row in grid])
    if scores.size == 1:
        return Choice(float(fixed[0]), float(fixed[1]), scores.item(), 0, True)
    peak = np.isfinite(scores) & (scores == maximum_filter(scores, size=3, mode="constant", cval=-np.inf))
    starts = grid[peak][np.argsort(-scores[peak], kind="stable")][:STARTS]
    # A weight that starts at 1 stays: there is nothing between it and the level before.
    climbs = [_climb(evaluate, unit, p, np.where(p == 1.0, 1.0, grid[0, 0]), grid[-1, -1]) for p in starts]
    if not climbs:
        raise ValueError(
            "The leave-one-out score is finite for no alpha and gamma: without some row the classes have no "
            "spread, or that row is too far from its class. Give numbers for alpha and gamma."
        )
    return replace(max(climbs, key=lambda choice: choice.score), n_iter=sum(c.n_iter for c in climbs))


def loo_score(
    x: Floats,
    y: NDArray,
    alpha: float,
    gamma: float,
    *,
    num_classes: int,
    weight: Floats | None = None,
    method: Method = "map",
    class_probs: Floats | None = None,
    class_smoothing: float = 0.0,
) -> float:
    """Exact leave-one-out joint log score, the sum over the rows of log p(x_i, y_i | D without i).

    Parameters
    ----------
    x, y : ndarray (n, d), ndarray (n,)
        Complete rows, and class numbers from 0. A row that is alone in its class is not scored.
    alpha, gamma : float
        The weights of the covariance, in [0, 1]. Where it is singular without some row the score is -inf.
    num_classes : int
    weight : ndarray (n,), optional
        Row weights w: a row counts w times, and min(w, 1) of it is left out: whole weights are repeated rows.
    method : {"map", "posterior"}
        Score by the normal density at the estimates, or by the posterior predictive Student t.
    class_probs : ndarray (K,), optional
        Fixed class probabilities; if not given they are estimated, without the row.
    class_smoothing : float
        Added to each class weight; the posterior mean adds 1 more.
    """
    with jax.enable_x64(True):
        evaluate, _ = _prepare(x, y, num_classes, weight, method, class_probs, class_smoothing)
        return evaluate((alpha, gamma))[0]


def choose(
    x: Floats | list[Floats],
    y: NDArray,
    *,
    alpha: float | Literal["loo"] = "loo",
    gamma: float | Literal["loo"] = "loo",
    num_classes: int,
    weight: Floats | None = None,
    method: Method = "map",
    class_probs: Floats | None = None,
    class_smoothing: float = 0.0,
) -> Choice:
    """The weights in the unit square with the highest leave-one-out score.

    A number for alpha or gamma is kept; the other parameters are those of `loo_score`. Of several tables, the same rows
    with their gaps filled in differently, the average score counts. ValueError if no row can be left out or the score is
    nowhere finite.
    """
    tables = x if isinstance(x, list) else [x]
    with jax.enable_x64(True):
        prepared = [_prepare(table, y, num_classes, weight, method, class_probs, class_smoothing) for table in tables]
        return _best(partial(_averaged, [evaluate for evaluate, _ in prepared]), prepared[0][1], (alpha, gamma))


def _averaged(evaluates: list[Callable], point) -> tuple[float, Floats]:
    """Score and gradient, averaged over tables."""
    scores, slopes = zip(*(evaluate(point) for evaluate in evaluates), strict=True)
    return float(np.mean(scores)), np.mean(slopes, axis=0)
