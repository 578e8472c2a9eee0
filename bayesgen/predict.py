"""From a fitted joint to its uses: jitted functions over batches of rows.

Rows are padded to the next power of two (at least 64) and go in batches of at most 16,384, so that a function
compiles at most nine times on complete data whatever the table's length, and temporary arrays stay cache-sized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from bayesgen.families.base import BATCH_ROWS, Labels, Params
from bayesgen.joint import Joint, JointStats
from bayesgen.linalg import Scattered, Shared, unique_patterns

# Whitened cells (rows x classes x columns) that a batch may hold: larger ones leave the cache and gain nothing.
BATCH_CELLS, LEAST_BATCH = 2**20, 256
# Work that one kernel call may hold in its per-row missing blocks, and coarser paddings there to compile less.
BLOCK_CELLS = 2_000_000
COARSE_SIZES = (64, 512, 4096, BATCH_ROWS)
# outlier_pvalues: simulated rows scored per call of it, over all patterns, and the least per pattern.
SIMULATION_BUDGET = 50_000_000
LEAST_DRAWS = 500


# -- batches
def has_missing(x: np.ndarray) -> bool:
    """Whether any cell is NaN, without a table-sized temporary."""
    pieces = (x[i : i + BATCH_ROWS] for i in range(0, len(x), BATCH_ROWS))
    return any(np.isnan(piece.sum()) and np.isnan(piece).any() for piece in pieces)


def _bucket(count: int, most: int) -> int:
    return min(1 << max(count - 1, 0).bit_length(), most) if count else 0


def batches(joint: Joint, x: np.ndarray, *, each_row: bool = False) -> Iterator[tuple[np.ndarray | slice, tuple, int]]:
    """(rows, cells per block, padded size) of each kernel call.

    each_row: the kernel works on the missing block of each row, also where rows share a pattern.
    """
    groups = joint.groups(np.isnan(x)) if has_missing(x) else iter([(None, complete_cells(joint))])
    for index, cells in groups:
        if each_row:
            cells = tuple(_as_scattered(c) for c in cells)
        limit, sizes = _limits(joint, cells)
        n = len(x) if index is None else len(index)
        for start in range(0, n, limit):
            stop = min(start + limit, n)
            rows = slice(start, stop) if index is None else index[start:stop]
            yield rows, cells, next(size for size in sizes if size >= stop - start)


def _as_scattered(cells):
    if not isinstance(cells, Shared):
        return cells
    return Scattered(_bucket(int(np.sum(~np.asarray(cells.observed))), len(cells.observed)))


def complete_cells(joint: Joint) -> tuple:
    return tuple(Shared(np.ones(b.num_features(joint.num_features), bool)) for b in joint.blocks)


def _limits(joint: Joint, cells: tuple) -> tuple[int, tuple[int, ...]]:
    """Most rows of a batch, and the sizes it may be padded to."""
    width = max((c.width for c in cells if isinstance(c, Scattered)), default=0)
    if width == 0:
        room = BATCH_CELLS // (joint.num_classes * joint.num_features)
        sizes = tuple(2**i for i in range(6, 15) if 2**i <= max(room, LEAST_BATCH))
        return sizes[-1], sizes
    room = BLOCK_CELLS // (joint.num_classes * width**2)
    sizes = tuple(s for s in COARSE_SIZES if s <= max(room, COARSE_SIZES[0]))
    return sizes[-1], sizes


def _padded(array: np.ndarray, size: int) -> np.ndarray:
    array = np.ascontiguousarray(array)
    if len(array) == size:
        return array
    out = np.zeros((size, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out


def over_rows(kernel: Callable, joint: Joint, params: Params, x: np.ndarray, tail: tuple[int, ...], *more) -> np.ndarray:
    """kernel(joint, params, rows, cells, *more) over all rows; `more` are arrays with a row axis."""
    out = np.empty((len(x), *tail))
    for rows, cells, size in batches(joint, x):
        extra = [_padded(array[rows], size) for array in more]
        result = kernel(joint, params, _padded(x[rows], size), cells, *extra)
        part = out[rows]
        out[rows] = np.asarray(result)[: len(part)]
    return out


# -- kernels: one batch
@jax.jit
def _log_joint(joint, params, x, cells):
    return joint.log_joint(params, x, cells)


@jax.jit
def _log_density(joint, params, x, cells):
    return logsumexp(joint.log_joint(params, x, cells), -1)


def _normalise(table, class_probs):
    """log p(y | x) from log p(x, y); the class prior where every class has density 0."""
    total = logsumexp(table, -1, keepdims=True)
    return jnp.where(jnp.isneginf(total), jnp.log(class_probs), table - total)


@jax.jit
def _proba(joint, params, x, cells):
    # NaN where every class has density 0: the caller fills in the class prior and says so.
    return jax.nn.softmax(joint.log_joint(params, x, cells), -1)


@jax.jit
def _log_proba(joint, params, x, cells):
    return jax.nn.log_softmax(joint.log_joint(params, x, cells), -1)


@jax.jit
def _proba_draws(joint, draws, x, cells):
    def one(params):
        return jnp.exp(_normalise(joint.log_joint(params, x, cells), params["class_probs"]))

    return jnp.moveaxis(jax.lax.map(one, draws), 0, 1)


@jax.jit
def _quadratic(joint, params, x, cells):
    return joint.blocks[0].family.quadratic(params, x, cells[0])


@jax.jit
def _impute(joint, params, x, cells, y):
    known = jnp.log(jax.nn.one_hot(y, joint.num_classes))
    unknown = _normalise(joint.log_joint(params, x, cells), params["class_probs"])
    share = jnp.exp(jnp.where((y >= 0)[:, None], known, unknown))
    return jnp.einsum("nk,nkd->nd", share, joint.condition(params, x, cells))


@jax.jit
def _complete(joint, params, x, cells, y, key):
    key_class, key_cells = jax.random.split(key)
    table = joint.log_joint(params, x, cells)
    drawn = jax.random.categorical(key_class, _normalise(table, params["class_probs"]))
    y = jnp.where(y >= 0, y, drawn)
    return joint.complete(key_cells, params, x, y, cells), y


@jax.jit
def _sample(joint, params, key, y):
    return joint.sample_rows(key, params, y)


@jax.jit
def _score_patterns(joint, params, x, observed):
    """log p of the complete rows x restricted to each pattern: observed (P, d) -> (P, m)."""

    def one(pattern):
        cells = tuple(Shared(block.take(pattern)) for block in joint.blocks)
        return logsumexp(joint.log_joint(params, x, cells), -1)

    return jax.vmap(one)(observed)


# -- uses
def log_joint(joint: Joint, params: Params, x: np.ndarray) -> np.ndarray:
    return over_rows(_log_joint, joint, params, x, (joint.num_classes,))


def log_density(joint: Joint, params: Params, x: np.ndarray) -> np.ndarray:
    return over_rows(_log_density, joint, params, x, ())


def proba(joint: Joint, params: Params, x: np.ndarray) -> np.ndarray:
    return over_rows(_proba, joint, params, x, (joint.num_classes,))


def log_proba(joint: Joint, params: Params, x: np.ndarray) -> np.ndarray:
    return over_rows(_log_proba, joint, params, x, (joint.num_classes,))


def proba_draws(joint: Joint, draws: Params, x: np.ndarray) -> np.ndarray:
    """(S, n, K)."""
    num = len(draws["class_probs"])
    out = np.empty((num, len(x), joint.num_classes))
    step = _power_below(2 * BLOCK_CELLS // (num * joint.num_classes))
    for start in range(0, len(x), step):
        rows = slice(start, start + step)
        part = over_rows(_proba_draws, joint, draws, x[rows], (num, joint.num_classes))
        out[:, rows] = np.moveaxis(part, 1, 0)
    return out


def _power_below(rows: int) -> int:
    """A batch size: the power of two at or below, between 64 and BATCH_ROWS."""
    return min(max(64, 1 << max(rows, 1).bit_length() - 1), BATCH_ROWS)


def quadratic(joint: Joint, params: Params, x: np.ndarray) -> np.ndarray:
    """Squared Mahalanobis distances (n, K) of a joint of one Gaussian block."""
    return over_rows(_quadratic, joint, params, x, (joint.num_classes,))


def impute(joint: Joint, params: Params, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """E[x | x_obs], mixing over the class where y is −1."""
    filled = np.array(x)
    gaps = np.flatnonzero(np.isnan(x).any(1))
    for rows, cells, size in batches(joint, x[gaps], each_row=True) if len(gaps) else ():
        index = gaps[rows]
        values = _impute(joint, params, _padded(x[index], size), cells, _padded(y[index], size))
        filled[index] = np.where(np.isnan(x[index]), np.asarray(values)[: len(index)], x[index])
    return filled


def complete(joint: Joint, params: Params, x: np.ndarray, y: np.ndarray, key) -> tuple[np.ndarray, np.ndarray]:
    """A draw of the missing cells (and of the class where y is −1)."""
    filled, labels = np.array(x), np.array(y)
    for i, (rows, cells, size) in enumerate(batches(joint, x, each_row=True)):
        use = jax.random.fold_in(key, i)
        values, drawn = _complete(joint, params, _padded(x[rows], size), cells, _padded(y[rows], size), use)
        count = len(labels[rows])
        filled[rows], labels[rows] = np.asarray(values)[:count], np.asarray(drawn)[:count]
    return filled, labels


def sample(joint: Joint, params: Params, y: np.ndarray, key) -> np.ndarray:
    """A row for each class label in y."""
    out = np.empty((len(y), joint.num_features))
    step = _power_below(BLOCK_CELLS // (joint.num_classes * joint.num_features))
    for start in range(0, len(y), step):
        part = y[start : start + step]
        size = max(64, 1 << (len(part) - 1).bit_length())
        rows = _sample(joint, params, jax.random.fold_in(key, start), _padded(part, size))
        out[start : start + len(part)] = np.asarray(rows)[: len(part)]
    return out


# -- outliers
def simulated_tail(joint: Joint, params: Params, x: np.ndarray, labels: np.ndarray, key) -> np.ndarray:
    """(r + 1)/(m + 1), r = how many of m draws from the model are at most as likely as each row, on its own cells.

    One set of draws, of classes `labels`, serves all the rows; with many patterns only its first part is used.
    """
    observed, which, sizes = unique_patterns(~np.isnan(x))
    num = min(max(SIMULATION_BUDGET // len(observed), LEAST_DRAWS), len(labels))
    draws = sample(joint, params, labels[:num], key)
    score = log_density(joint, params, x)
    order = np.argsort(which, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    below = np.empty(len(x))
    step = max(1, min(len(observed), 4 * BLOCK_CELLS // (num * joint.num_classes * joint.num_features)))
    for first in range(0, len(observed), step):
        chunk = _padded(observed[first : first + step], step)
        simulated = np.asarray(_score_patterns(joint, params, draws, chunk))
        rows = order[starts[first] : starts[min(first + step, len(observed))]]
        below[rows] = _count_below(simulated, which[rows] - first, score[rows])
    return (below + 1) / (num + 1)


def _count_below(simulated: np.ndarray, which: np.ndarray, score: np.ndarray) -> np.ndarray:
    """How many of simulated[which[i]] are at most score[i]; `which` is sorted."""
    # A draw and a row that are equally likely may differ by rounding: ties count as below.
    score = score + np.where(np.isfinite(score), 1e-9 * np.maximum(1.0, np.abs(score)), 0.0)
    if len(score) <= 4 * len(simulated):
        return np.count_nonzero(simulated[which] <= score[:, None], axis=1)
    ends = np.searchsorted(which, np.arange(len(simulated) + 1))
    counts = np.empty(len(score))
    for j, values in enumerate(simulated):
        rows = slice(ends[j], ends[j + 1])
        counts[rows] = np.searchsorted(np.sort(values), score[rows], side="right")
    return counts


# -- leave-one-out
@partial(jax.jit, static_argnames="method")
def _loo(joint, stats, x, y, weight, method):
    """log p(x_i, y | D without row i), each row under every class, from the statistics less the row's own."""

    def one(row, code, w):
        r = w * jax.nn.one_hot(code[None], joint.num_classes)
        parts = tuple(b.family.stats(b.take(row[None]), r) for b in joint.blocks)
        rest = joint.remove(stats, JointStats(r[0], parts))
        families = [b.family for b in joint.blocks]
        if method == "posterior":
            estimates = [f.update(s).predictive() for f, s in zip(families, rest.blocks, strict=True)]
        else:
            estimates = [getattr(f, method)(s) for f, s in zip(families, rest.blocks, strict=True)]
        probs = joint.class_prior.estimate(rest.labels, method)
        return joint.log_joint(joint.gather(probs, estimates), row[None])[0], probs

    table, probs = jax.vmap(one)(x, y, weight)
    return _normalise(table, probs), table


def leave_one_out(joint: Joint, stats: JointStats, x: np.ndarray, labels: Labels, method: str) -> np.ndarray:
    """log p(y | x_i, D without i), (n, K)."""
    out = np.empty((len(x), joint.num_classes))
    limit = _power_below(BLOCK_CELLS // (joint.num_classes * x.shape[1] ** 2))
    # whole weights are repeated rows, of which one copy is left out
    weight = np.ones(len(x)) if labels.weight is None else np.minimum(labels.weight, 1.0)
    for start in range(0, len(x), limit):
        rows = slice(start, start + limit)
        size = max(64, 1 << (len(x[rows]) - 1).bit_length())
        batch = (_padded(array[rows], size) for array in (x, labels.codes, weight))
        out[rows] = np.asarray(_loo(joint, stats, *batch, method)[0])[: len(out[rows])]
    return out
