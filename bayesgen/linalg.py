"""Gaussian algebra with missing cells: densities and conditionals of normal and Student-t rows.

Everything rests on two facts about a row with observed cells o and missing cells m, precision
Λ = Σ⁻¹, and δ = x − μ with δ_m := 0:

    (x_o − μ_o)ᵀ Σ_oo⁻¹ (x_o − μ_o) = δᵀΛδ − gₘᵀ Λ_mm⁻¹ gₘ,   g = Λδ,     log|Σ_oo| = log|Σ| + log|Λ_mm|
    x_m | x_o ~ N(μ_m − Λ_mm⁻¹ gₘ, Λ_mm⁻¹)

so that only the (small) missing block is factorised row by row. Where many rows share one pattern the
observed block of Σ is factorised once instead. `Cells` says which of the two a batch of rows needs.

Shapes: x (n, d), mean (K, d), covariance (C, d, d) with C = K, or C = 1 when the classes share it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln

LOG_2PI = float(np.log(2 * np.pi))
# A pattern is worth a call of its own when at least this many rows share it.
ROWS_PER_PATTERN = 256
# Tables whose missing blocks have at most this many cells go in one call: compiling costs more than computing there.
SMALL_TABLE = 2**16


@partial(jax.tree_util.register_dataclass, data_fields=["observed"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Shared:
    """All rows of the batch have the same observed cells: `observed` (d,), boolean."""

    observed: jax.Array | np.ndarray


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["width"])
@dataclasses.dataclass(frozen=True)
class Scattered:
    """Each row has its own pattern, with at most `width` missing cells."""

    width: int


@partial(jax.tree_util.register_dataclass, data_fields=["where"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Placed:
    """Each row has its own pattern, known beforehand: `where` (n, w) are its missing cells (see `places`)."""

    where: jax.Array | np.ndarray


Cells = Shared | Scattered


class Form(NamedTuple):
    """Quadratic form (n, K), log determinant (broadcastable to (n, K)) and number of observed cells ((n, 1) or ())."""

    quadratic: jax.Array
    logdet: jax.Array
    cells: jax.Array


def inverse_root(covariance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """W with WᵀW = Σ⁻¹ (the inverse Cholesky factor), and log|Σ|."""
    lower = jnp.linalg.cholesky(covariance)
    eye = jnp.broadcast_to(jnp.eye(lower.shape[-1], dtype=lower.dtype), lower.shape)
    logdet = 2 * jnp.sum(jnp.log(jnp.diagonal(lower, axis1=-2, axis2=-1)), -1)
    return solve_triangular(lower, eye, lower=True), logdet


def inverse(matrix: jax.Array) -> jax.Array:
    """Inverse of a symmetric positive definite matrix, symmetric to the last bit."""
    root, _ = inverse_root(matrix)
    product = jnp.einsum("...ki,...kj->...ij", root, root)
    return (product + jnp.swapaxes(product, -1, -2)) / 2


def _keep_block(matrix: jax.Array, keep: jax.Array) -> jax.Array:
    """The matrix where both indices are kept, the identity elsewhere."""
    both = keep[..., :, None] & keep[..., None, :]
    return jnp.where(both, matrix, jnp.eye(matrix.shape[-1], dtype=matrix.dtype))


def quadratic_form(x: jax.Array, mean: jax.Array, covariance: jax.Array, cells: Cells | None = None) -> Form:
    """(x_o − μ_o)ᵀ Σ_oo⁻¹ (x_o − μ_o) and log|Σ_oo| of every row under every class, NaN cells left out."""
    if isinstance(cells, Shared):
        form = _quadratic_shared(x, mean, covariance, jnp.asarray(cells.observed))
    else:
        form = _quadratic_scattered(x, mean, covariance, x.shape[-1] if cells is None else cells.width)
    # A cell so large that its square overflows is infinitely far away, not undefined.
    return form._replace(quadratic=jnp.where(jnp.isnan(form.quadratic), jnp.inf, form.quadratic))


def _quadratic_shared(x, mean, covariance, observed) -> Form:
    root, logdet = inverse_root(_keep_block(covariance, observed))
    # Rows are centred once, by a point near all the means, so that data far from the origin lose no digits.
    centre = mean.mean(0)
    rows = jnp.where(observed, x - centre, 0.0)
    offset = jnp.where(observed, mean - centre, 0.0)
    white = jnp.einsum("nd,ced->nce", rows, root) - jnp.einsum("kd,ked->ke", offset, _per_class(root, mean))
    return Form(jnp.sum(white**2, -1), logdet, jnp.sum(observed))


def _per_class(stack: jax.Array, mean: jax.Array) -> jax.Array:
    return jnp.broadcast_to(stack, (mean.shape[0], *stack.shape[1:]))


class _Missing(NamedTuple):
    """The missing cells of each row, up to `width` of them: where, which are real, and the factor of Λ_mm."""

    where: jax.Array  # (n, w)
    real: jax.Array  # (n, w)
    lower: jax.Array  # (n, C, w, w)
    gradient: jax.Array  # (n, K, w): g at the missing cells, 0 elsewhere
    white: jax.Array  # (n, K, d)
    logdet: jax.Array  # (C,)


def _missing_blocks(x, mean, covariance, width: int) -> _Missing:
    missing = jnp.isnan(x)
    root, logdet = inverse_root(covariance)
    precision = jnp.einsum("cki,ckj->cij", root, root)
    delta = jnp.where(missing[:, None, :], 0.0, x[:, None, :] - mean)
    white = jnp.einsum("nkd,ked->nke", delta, _per_class(root, mean))
    gradient = jnp.einsum("nke,ked->nkd", white, _per_class(root, mean))
    index = jnp.argsort(~missing, axis=1, stable=True)[:, :width]
    real = jnp.take_along_axis(missing, index, 1)
    block = precision[:, index[:, :, None], index[:, None, :]].swapaxes(0, 1)
    lower = jnp.linalg.cholesky(_keep_block(block, real[:, None, :]))
    gradient = jnp.where(real[:, None, :], jnp.take_along_axis(gradient, index[:, None, :], 2), 0.0)
    return _Missing(index, real, lower, gradient, white, logdet)


def _solve(lower: jax.Array, rows: jax.Array, *, transpose: bool = False) -> jax.Array:
    """L⁻¹ v (or L⁻ᵀ v) for v (n, K, w) and L (n, C, w, w), C = 1 or K."""
    n, k, w = rows.shape
    c = lower.shape[1]
    right = rows.reshape(n, c, k // c, w).swapaxes(-1, -2)
    solved = solve_triangular(lower, right, lower=True, trans=int(transpose))
    return solved.swapaxes(-1, -2).reshape(n, k, w)


def _quadratic_scattered(x, mean, covariance, width: int) -> Form:
    count = jnp.sum(~jnp.isnan(x), -1, keepdims=True)
    if width == 0:
        return _quadratic_shared(x, mean, covariance, jnp.ones(x.shape[-1], bool))._replace(cells=count)
    parts = _missing_blocks(x, mean, covariance, width)
    explained = jnp.sum(_solve(parts.lower, parts.gradient) ** 2, -1)
    block_logdet = 2 * jnp.sum(jnp.log(jnp.diagonal(parts.lower, axis1=-2, axis2=-1)), -1)
    quadratic = jnp.maximum(jnp.sum(parts.white**2, -1) - explained, 0.0)
    return Form(quadratic, parts.logdet + block_logdet, count)


def log_density(form: Form, df: jax.Array | None = None) -> jax.Array:
    """Log density (n, K) of the normal (df None) or the Student-t with this quadratic form.

    log N = −½ (q + log|Σ| + p log 2π)
    log t = log Γ((ν+p)/2)/Γ(ν/2) − ½ (log|Σ| + p log πν) − ½ (ν+p) log(1 + q/ν)
    """
    q, logdet, p = form
    if df is None:
        return -0.5 * (q + logdet + p * LOG_2PI)
    constant = log_gamma_ratio(df / 2, p / 2) - 0.5 * p * jnp.log(jnp.pi * df)
    return constant - 0.5 * logdet - 0.5 * (df + p) * jnp.log1p(q / df)


def log_gamma_ratio(a: jax.Array, step: jax.Array) -> jax.Array:
    """log Γ(a + step) − log Γ(a), without the cancellation of two large numbers (Stirling's series for a > 1000)."""
    large = jnp.maximum(a, 1000.0)

    def series(z):
        return 1 / (12 * z) - 1 / (360 * z**3) + 1 / (1260 * z**5)

    stirling = (large - 0.5) * jnp.log1p(step / large) + step * jnp.log(large + step) - step
    stirling = stirling + series(large + step) - series(large)
    small = jnp.minimum(a, 1000.0)
    return jnp.where(a > 1000.0, stirling, gammaln(small + step) - gammaln(small))


def conditional_mean(x, mean, covariance, width: int) -> jax.Array:
    """E[x | x_o, class] (n, K, d): observed cells as they are, missing cells at μ_m − Λ_mm⁻¹ gₘ."""
    if width == 0:
        return jnp.broadcast_to(x[:, None, :], (x.shape[0], *mean.shape))
    parts = _missing_blocks(x, mean, covariance, width)
    shift = _solve(parts.lower, _solve(parts.lower, parts.gradient), transpose=True)
    filled = jnp.where(jnp.isnan(x)[:, None, :], mean, x[:, None, :])
    return _add_at(filled, parts, -shift)


def conditional_draw(key, x, y, mean, covariance, width: int, df: jax.Array | None = None) -> jax.Array:
    """A draw of the missing cells of each row given the others and its class y (n,): (n, d).

    For a Student-t the conditional is again one: with ν + p_o degrees of freedom and scale Λ_mm⁻¹ (ν + q_o)/(ν + p_o).
    """
    if width == 0:
        return x
    parts = _of_class(_missing_blocks(x, mean, covariance, width), y)
    half = _solve(parts.lower, parts.gradient)
    key_normal, key_chi = jax.random.split(key)
    noise = jax.random.normal(key_normal, half.shape, half.dtype)
    if df is not None:
        q = jnp.maximum(jnp.sum(parts.white**2, -1) - jnp.sum(half**2, -1), 0.0)
        nu = jnp.broadcast_to(df, (mean.shape[0],))[y][:, None]
        total = nu + jnp.sum(~jnp.isnan(x), -1, keepdims=True)
        noise = noise * jnp.sqrt((nu + q) / jax.random.chisquare(key_chi, total))[..., None]
    shift = _solve(parts.lower, noise - half, transpose=True)
    filled = jnp.where(jnp.isnan(x), mean[y], x)[:, None, :]
    return _add_at(filled, parts, shift)[:, 0]


def _of_class(parts: _Missing, y: jax.Array) -> _Missing:
    """Keep each row's own class (class axes of length 1)."""
    rows = jnp.arange(y.shape[0])
    shared = parts.lower.shape[1] == 1
    return parts._replace(
        lower=parts.lower if shared else parts.lower[rows, y][:, None],
        gradient=parts.gradient[rows, y][:, None],
        white=parts.white[rows, y][:, None],
    )


def _add_at(filled: jax.Array, parts: _Missing, shift: jax.Array) -> jax.Array:
    """filled (n, K, d) with shift (n, K, w) added at the missing cells."""
    shift = jnp.where(parts.real[:, None, :], shift, 0.0)
    rows = jnp.arange(filled.shape[0])[:, None, None]
    classes = jnp.arange(filled.shape[1])[None, :, None]
    return filled.at[rows, classes, parts.where[:, None, :]].add(shift)


# -- expectations given the observed cells
class Expected(NamedTuple):
    """Moments of rows of one class, gaps integrated out: weight (), mean (d,), scatter (d, d); their log density (n,)."""

    weight: jax.Array
    mean: jax.Array
    scatter: jax.Array
    log_density: jax.Array


def expected_moments(x: jax.Array, weight: jax.Array, mean: jax.Array, covariance: jax.Array, cells) -> Expected:
    """E[Σ w], mean and centred scatter of the completed rows, x_m | x_o being normal, and log N(x_o) of each row.

        E[x_m | x_o] = μ_m − Λ_mm⁻¹ gₘ,    Cov[x_m | x_o] = Λ_mm⁻¹,    scatter = Σ w (x̂ − x̄)(x̂ − x̄)ᵀ + Σ w Cov[x | x_o]

    mean (d,) and covariance (d, d) of one class; cells are `Shared` or `Placed`. Rows of weight 0 may be anything.
    """
    missing = jnp.isnan(x)
    root, logdet = inverse_root(covariance)
    precision = root.T @ root
    delta = jnp.where(missing, 0.0, x - mean)
    gradient = delta @ precision
    fill: Callable = _fill_shared if isinstance(cells, Shared) else _fill_placed
    filled, block_logdet, explained, spread = fill(delta, gradient, precision, weight, cells)
    quadratic = jnp.maximum(jnp.sum(delta * gradient, -1) - explained, 0.0)
    form = Form(quadratic, logdet + block_logdet, jnp.sum(~missing, -1))
    total = jnp.sum(weight)
    # rows are already centred near their mean: what is left of it may be taken off the sum of squares
    shift = weight @ filled / jnp.where(total > 0, total, 1.0)
    scatter = (filled * weight[:, None]).T @ filled - total * shift[:, None] * shift + spread
    return Expected(total, mean + shift, (scatter + scatter.T) / 2, log_density(form))


def _fill_shared(delta, gradient, precision, weight, cells: Shared):
    """Rows that miss the same cells: (δ̂, log|Λ_mm|, gₘᵀΛ_mm⁻¹gₘ, Σ w Cov), with one factorisation for all."""
    missing = ~jnp.asarray(cells.observed)
    root, logdet = inverse_root(_keep_block(precision, missing))
    half = jnp.where(missing, gradient, 0.0) @ root.T
    filled = jnp.where(missing, -(half @ root), delta)
    both = missing[:, None] & missing[None, :]
    return filled, logdet, jnp.sum(half**2, -1), jnp.where(both, jnp.sum(weight) * (root.T @ root), 0.0)


def _fill_placed(delta, gradient, precision, weight, cells: Placed):
    """The same for rows that miss different cells. Places left over are columns of their own, of precision 1."""
    d, n = delta.shape[1], delta.shape[0]
    where = jnp.asarray(cells.where, jnp.int32).T  # (w, n): rows last, which is the axis that is worked along
    width = len(where)
    size = d + width
    low, high = np.tril_indices(width)
    pair = where[low] * size + where[high]  # half of a symmetric matrix is looked up and added to, not all of it
    wide = jnp.eye(size, dtype=delta.dtype).at[:d, :d].set(precision)
    mirror = np.zeros((width, width), np.int32)
    mirror[low, high] = mirror[high, low] = np.arange(len(low))
    inverse_, logdet = invert_blocks(wide.ravel()[pair][mirror])
    slope = jnp.where(where < d, gradient.T[jnp.minimum(where, d - 1), jnp.arange(n)], 0.0)
    shift = -jnp.sum(inverse_ * slope[None], 1)
    filled = delta + jnp.sum(jnp.where(where[:, :, None] == jnp.arange(d), shift[:, :, None], 0.0), 0)
    half = jnp.zeros(size * size, delta.dtype).at[pair].add(inverse_[low, high] * weight).reshape(size, size)[:d, :d]
    return filled, logdet, -jnp.sum(shift * slope, 0), half + half.T - jnp.diag(jnp.diagonal(half))


def invert_blocks(blocks: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Inverses and log determinants of many small positive definite matrices, (w, w, n), by sweeping out each pivot.

    Several times faster than n calls of LAPACK for w up to 16: every step is one long loop over the matrices.
    """
    w = blocks.shape[0]

    def sweep(j, carry):
        a, logdet = carry
        column = jax.lax.dynamic_index_in_dim(a, j, 1, keepdims=False)  # (w, n)
        pivot = jax.lax.dynamic_index_in_dim(column, j, 0, keepdims=False)
        here = (jnp.arange(w) == j)[:, None]
        scaled = jnp.where(here, -1.0, column) / pivot
        swept = a - jnp.where(here, 0.0, column)[:, None] * scaled[None]
        swept = jnp.where(here[:, None], scaled[None], jnp.where(here[None], scaled[:, None], swept))
        return swept, logdet + jnp.log(pivot)

    swept, logdet = jax.lax.fori_loop(0, w, sweep, (blocks, jnp.zeros(blocks.shape[-1], blocks.dtype)))
    return -swept, logdet


def places(missing: np.ndarray, width: int) -> np.ndarray:
    """Positions (n, width) of the missing cells of each row, in order; d, d + 1, ... in the places left over.

    Examples
    --------
    >>> places(np.array([[False, True, True], [False, False, True]]), 2).tolist()
    [[1, 2], [2, 4]]
    """
    d = missing.shape[1]
    kind = np.min_scalar_type(d + width)
    found = np.sort(np.where(missing, np.arange(d, dtype=kind), kind.type(d)), axis=1)[:, :width]
    return np.where(found < d, found, np.arange(d, d + width, dtype=kind))


def group_rows(missing: np.ndarray) -> Iterator[tuple[np.ndarray | None, Cells]]:
    """Split rows (n, d) of a boolean table of missing cells into batches that one call can serve.

    A small table goes as one. Of a large one, patterns shared by many rows come alone, the other rows by the number of
    missing cells (next power of two). The index is None when one group holds all the rows in order.
    """
    n, d = missing.shape
    count = missing.sum(1)
    width = np.minimum(2 ** np.ceil(np.log2(np.maximum(count, 1))).astype(int), d)
    if not count.any():
        yield None, Shared(np.ones(d, bool))
    elif n * width.max() ** 2 <= SMALL_TABLE:
        yield None, Scattered(int(width.max()))
    else:
        yield from _large_groups(missing, width)


def _large_groups(missing: np.ndarray, width: np.ndarray) -> Iterator[tuple[np.ndarray, Cells]]:
    patterns, which, sizes = unique_patterns(missing)
    order = np.argsort(which, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    alone = (sizes >= ROWS_PER_PATTERN) | ~patterns.any(1)
    for j in np.flatnonzero(alone):
        yield order[starts[j] : starts[j + 1]], Shared(~patterns[j])
    rest = np.flatnonzero(~alone[which])
    for w in np.unique(width[rest]):
        yield rest[width[rest] == w], Scattered(int(w))


def unique_patterns(missing: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows of a boolean table, the index of each row's pattern, and how many rows have it."""
    packed = np.ascontiguousarray(np.packbits(missing, axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, which, sizes = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    return missing[first], which.ravel(), sizes
