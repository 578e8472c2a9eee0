"""From a fitted joint to its uses: jitted functions over batches of rows.

Rows are padded to the next power of two (at least 64) and go in batches of at most 16,384, so that a function
compiles at most nine times on complete data whatever the table's length, and temporary arrays stay cache-sized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from scipy import sparse

from bayesgen import sparse_rows
from bayesgen.families.base import BATCH_ROWS, Labels, Params
from bayesgen.joint import Joint, JointStats
from bayesgen.linalg import Scattered, Shared
from bayesgen.moments import subtract
from bayesgen.programs import jit

# Whitened cells (rows x classes x columns) that a batch may hold: larger ones leave the cache and gain nothing.
BATCH_CELLS, LEAST_BATCH = 2**20, 256
# Work that one kernel call may hold in its per-row missing blocks, and coarser paddings there to compile less.
BLOCK_CELLS = 2_000_000
COARSE_SIZES = (64, 512, 4096, BATCH_ROWS)


# -- batches
def has_missing(x: np.ndarray) -> bool:
    """Whether any cell is NaN, without a table-sized temporary."""
    pieces = (x[i : i + BATCH_ROWS] for i in range(0, len(x), BATCH_ROWS))
    return any(np.isnan(piece.sum()) and np.isnan(piece).any() for piece in pieces)


def _bucket(count: int, most: int) -> int:
    return min(1 << max(count - 1, 0).bit_length(), most) if count else 0


def batches(
    joint: Joint, x: np.ndarray, *, each_row: bool = False, width: int | None = None
) -> Iterator[tuple[np.ndarray | slice, tuple, int]]:
    """(rows, cells per block, padded size) of each kernel call.

    each_row: the kernel works on the missing block of each row, also where rows share a pattern. width: numbers per row
    and class that it holds, by default the columns.
    """
    groups = joint.groups(np.isnan(x)) if has_missing(x) else iter([(None, complete_cells(joint))])
    for index, cells in groups:
        if each_row:
            cells = tuple(_as_scattered(c) for c in cells)
        limit, sizes = _limits(joint, cells, width or joint.num_features)
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


def _limits(joint: Joint, cells: tuple, columns: int) -> tuple[int, tuple[int, ...]]:
    """Most rows of a batch, and the sizes it may be padded to."""
    width = max((c.width for c in cells if isinstance(c, Scattered)), default=0)
    if width == 0:
        room = BATCH_CELLS // (joint.num_classes * columns)
        sizes = tuple(2**i for i in range(6, 15) if 2**i <= max(room, LEAST_BATCH))
        return sizes[-1], sizes
    room = min(BLOCK_CELLS // (joint.num_classes * width**2), BATCH_CELLS // columns)
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
@jit
def _log_joint(joint, params, x, cells):
    return joint.log_joint(params, x, cells)


@jit
def _log_density(joint, params, x, cells):
    return logsumexp(joint.log_joint(params, x, cells), -1)


def _normalise(table, class_probs):
    """log p(y | x) from log p(x, y); the class prior where every class has density 0."""
    total = logsumexp(table, -1, keepdims=True)
    return jnp.where(jnp.isneginf(total), jnp.log(class_probs), table - total)


@jit
def _proba(joint, params, x, cells):
    # NaN where every class has density 0: the caller fills in the class prior and says so.
    return jax.nn.softmax(joint.log_joint(params, x, cells), -1)


@jit
def _log_proba(joint, params, x, cells):
    return jax.nn.log_softmax(joint.log_joint(params, x, cells), -1)


@jit
def _proba_draws(joint, draws, x, cells):
    def one(params):
        return jnp.exp(_normalise(joint.log_joint(params, x, cells), params["class_probs"]))

    return jnp.moveaxis(jax.lax.map(one, draws), 0, 1)


@jit
def _row_draws(joint, draws, x, cells, y):
    """(n, S, 1 + K): log p(x, y | θ) at each row's class y (−1: log p(x | θ)), then log p(k | x, θ) of every class."""

    def one(params):
        table = joint.log_joint(params, x, cells)
        own = jnp.take_along_axis(table, jnp.maximum(y, 0)[:, None], 1)
        own = jnp.where(y[:, None] >= 0, own, logsumexp(table, -1, keepdims=True))
        return jnp.concatenate([own, _normalise(table, params["class_probs"])], 1)

    return jnp.moveaxis(jax.lax.map(one, draws), 0, 1)


@jit(static_argnames="n")
def _replicate(joint, draws, keys, n):
    """n rows and labels for each draw of the parameters."""

    def one(theta):
        params, key = theta
        key_labels, key_rows = jax.random.split(key)
        y = jax.random.categorical(key_labels, jnp.log(params["class_probs"]), shape=(n,))
        return joint.sample_rows(key_rows, params, y), y

    return jax.lax.map(one, (draws, keys))


@jit
def _quadratic(joint, params, x, cells):
    return joint.blocks[0].family.quadratic(params, x, cells[0])


@jit
def _impute(joint, params, x, cells, y):
    known = jnp.log(jax.nn.one_hot(y, joint.num_classes))
    unknown = _normalise(joint.log_joint(params, x, cells), params["class_probs"])
    share = jnp.exp(jnp.where((y >= 0)[:, None], known, unknown))
    return joint.fill(params, x, share, cells)


@jit
def _complete(joint, params, x, cells, y, key):
    key_class, key_cells = jax.random.split(key)
    table = joint.log_joint(params, x, cells)
    drawn = jax.random.categorical(key_class, _normalise(table, params["class_probs"]))
    y = jnp.where(y >= 0, y, drawn)
    return joint.complete(key_cells, params, x, y, cells), y


@jit
def _sample(joint, params, key, y):
    return joint.sample_rows(key, params, y)


# -- uses
def log_joint(joint: Joint, params: Params, x) -> np.ndarray:
    if sparse.issparse(x):
        return sparse_rows.log_joint(joint, params, x)
    return over_rows(_log_joint, joint, params, x, (joint.num_classes,))


def log_density(joint: Joint, params: Params, x) -> np.ndarray:
    if sparse.issparse(x):
        return sparse_rows.log_density(joint, params, x)
    return over_rows(_log_density, joint, params, x, ())


def proba(joint: Joint, params: Params, x) -> np.ndarray:
    if sparse.issparse(x):
        return sparse_rows.proba(joint, params, x)
    return over_rows(_proba, joint, params, x, (joint.num_classes,))


def log_proba(joint: Joint, params: Params, x) -> np.ndarray:
    if sparse.issparse(x):
        return sparse_rows.log_proba(joint, params, x)
    return over_rows(_log_proba, joint, params, x, (joint.num_classes,))


def proba_draws(joint: Joint, draws: Params, x) -> np.ndarray:
    """(S, n, K)."""
    if sparse.issparse(x):
        return sparse_rows.proba_draws(joint, draws, x)
    num = len(draws["class_probs"])
    out = np.empty((num, len(x), joint.num_classes))
    step = _power_below(2 * BLOCK_CELLS // (num * joint.num_classes))
    for start in range(0, len(x), step):
        rows = slice(start, start + step)
        part = over_rows(_proba_draws, joint, draws, x[rows], (num, joint.num_classes))
        out[:, rows] = np.moveaxis(part, 1, 0)
    return out


def row_draws(joint: Joint, draws: Params, x, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log p(x_i, y_i | θ_s), log p(x_i | θ_s) where y_i is −1, (n, S), and log p(k | x_i, θ_s), (n, S, K)."""
    if sparse.issparse(x):
        return sparse_rows.row_draws(joint, draws, x, y)
    tail = (len(draws["class_probs"]), 1 + joint.num_classes)
    table = over_rows(_row_draws, joint, draws, x, tail, y)
    return table[..., 0], table[..., 1:]


def row_batches(n: int, num_draws: int, num_classes: int) -> Iterator[slice]:
    """Slices of rows that `row_draws` can hold."""
    step = _power_below(2 * BLOCK_CELLS // (num_draws * (1 + num_classes)))
    yield from (slice(start, min(start + step, n)) for start in range(0, n, step))


def replicate(joint: Joint, draws: Params, n: int, key) -> tuple[np.ndarray, np.ndarray]:
    """A table of n rows and their labels for each draw of the parameters: (S, n, d), (S, n)."""
    num, d = len(draws["class_probs"]), joint.num_features
    x, y = np.empty((num, n, d)), np.empty((num, n), int)
    keys = jax.random.split(key, num)
    step = min(_power_below(BLOCK_CELLS // (joint.num_classes * d), least=8), max(64, 1 << (n - 1).bit_length()))
    several = max(1, 4 * BLOCK_CELLS // (step * d))
    for i, start in enumerate(range(0, n, step)):
        rows = slice(start, min(start + step, n))
        for first in range(0, num, several):
            mine = slice(first, first + several)
            part = {name: value[mine] for name, value in draws.items()}
            use = jax.vmap(jax.random.fold_in, (0, None))(keys[mine], i)
            drawn = _replicate(joint, part, use, step)
            x[mine, rows], y[mine, rows] = (np.asarray(v)[:, : rows.stop - start] for v in drawn)
    return x, y


def _power_below(rows: int, least: int = 64) -> int:
    """A batch size: the power of two at or below, between `least` and BATCH_ROWS."""
    return min(max(least, 1 << max(rows, 1).bit_length() - 1), BATCH_ROWS)


def quadratic(joint: Joint, params: Params, x: np.ndarray) -> np.ndarray:
    """Squared Mahalanobis distances (n, K) of a joint of one Gaussian block."""
    return over_rows(_quadratic, joint, params, x, (joint.num_classes,))


def impute(joint: Joint, params: Params, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Missing cells at their mean (mode), mixing over the class where y is −1."""
    filled = np.array(x)
    gaps = np.flatnonzero(np.isnan(x).any(1))
    width = max(block.family.width(block.num_features(joint.num_features)) for block in joint.blocks)
    for rows, cells, size in batches(joint, x[gaps], each_row=True, width=width) if len(gaps) else ():
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


def sample_batches(joint: Joint, params: Params, y: np.ndarray, key) -> Iterator[np.ndarray]:
    """A row for each class label in y, in batches."""
    # samplers of counts hold several arrays of the size of the batch
    step = _power_below(BLOCK_CELLS // (joint.num_classes * joint.num_features), least=8)
    for start in range(0, len(y), step):
        part = y[start : start + step]
        size = max(min(64, step), 1 << (len(part) - 1).bit_length())
        rows = _sample(joint, params, jax.random.fold_in(key, start), _padded(part, size))
        yield np.asarray(rows)[: len(part)]


def sample(joint: Joint, params: Params, y: np.ndarray, key) -> np.ndarray:
    """A row for each class label in y."""
    out = np.empty((len(y), joint.num_features))
    start = 0
    for rows in sample_batches(joint, params, y, key):
        out[start : start + len(rows)] = rows
        start += len(rows)
    return out


def sample_sparse(joint: Joint, params: Params, y: np.ndarray, key) -> sparse.csr_array:
    """The same as a sparse matrix."""
    return sparse.vstack([sparse.csr_array(rows) for rows in sample_batches(joint, params, y, key)], format="csr")


# -- leave-one-out
@jit(static_argnames="method")
def _loo(joint, stats, x, y, weight, method):
    """log p(x_i, y | D without row i) and log p(y | x_i, D without row i), from the statistics less the row's own."""

    def class_probs(code, w):
        return joint.class_prior.estimate(subtract(stats.labels, w * jax.nn.one_hot(code, joint.num_classes)), method)

    probs = jax.vmap(class_probs)(y, weight)
    table = jnp.log(probs)
    for block, part in zip(joint.blocks, stats.blocks, strict=True):
        table = table + block.family.left_out(part, block.take(x), y, weight, method)
    return jnp.stack([table, _normalise(table, probs)], 1)


def leave_one_out(joint: Joint, stats: JointStats, x, labels: Labels, method: str) -> tuple[np.ndarray, np.ndarray]:
    """log p(x_i, y | D without i) and log p(y | x_i, D without i), (n, K) each; sparse rows are widened a few at a time."""
    n = x.shape[0]
    out = np.empty((n, 2, joint.num_classes))
    limit = _power_below(BLOCK_CELLS // sum(np.size(leaf) for leaf in jax.tree_util.tree_leaves(stats.blocks)))
    # whole weights are repeated rows, of which one copy is left out
    weight = np.ones(n) if labels.weight is None else np.minimum(labels.weight, 1.0)
    for start in range(0, n, limit):
        rows = slice(start, start + limit)
        part = x[rows].toarray() if sparse.issparse(x) else x[rows]
        size = max(64, 1 << (len(part) - 1).bit_length())
        batch = (_padded(array, size) for array in (part, labels.codes[rows], weight[rows]))
        out[rows] = np.asarray(_loo(joint, stats, *batch, method))[: len(part)]
    return out[:, 0], out[:, 1]
