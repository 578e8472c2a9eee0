"""Tables with missing labels, or with missing cells that a family cannot leave out: sorted once into what is known and
what has to be filled in again and again.

The statistics of the labelled rows with nothing to fill in are computed once. The others are kept in batches of rows that
one call can serve: by class and pattern of missing cells where they have a label, by pattern where they have none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from scipy.special import logsumexp

from bayesgen import linalg, sparse_rows
from bayesgen.families.base import Labels, Params
from bayesgen.families.gaussian import Gaussian
from bayesgen.joint import Joint, JointStats

Cells = linalg.Shared | linalg.Placed
LEAST_ROWS, MOST_ROWS = 64, 8192  # of a batch
BATCH_CELLS = 2**16  # numbers in the missing blocks of a batch: more leave the cache
LEAST_WIDTH = 4  # missing cells of a row, padded to this, to 6, 8, 12, 16, ...: fewer programs


class GivenClass(NamedTuple):
    """Labelled rows of one class with gaps in one block, padded by rows of weight 0."""

    block: int
    code: int
    x: jax.Array
    weight: jax.Array
    cells: Cells


class Unlabelled(NamedTuple):
    """Rows without label; cells None: sparse ones."""

    rows: np.ndarray
    cells: tuple | None
    size: int


@dataclasses.dataclass
class Incomplete:
    """A joint and its table: statistics of what is known, and the rows that have something to fill in."""

    joint: Joint
    x: Any
    weight: np.ndarray
    known: JointStats
    gaps: list[GivenClass]
    unlabelled: list[Unlabelled]

    @classmethod
    def of(cls, joint: Joint, x, labels: Labels) -> Incomplete:
        known = labels.known
        gaps, parts = [], []
        for b, block in enumerate(joint.blocks):
            open_ = known & _has_gaps(block, x)
            parts.append(_statistics(block, x, labels, known & ~open_))
            if open_.any():
                gaps += [_gathered(b, block, x, labels, *rows) for rows in _by_class(block, x, labels.codes, open_)]
        stats = JointStats(labels.part(known).counts(), tuple(parts))
        return cls(joint, x, labels.weights(), stats, gaps, list(_unlabelled(joint, x, np.flatnonzero(~known))))


def _has_gaps(block, x) -> np.ndarray:
    """Rows of which the block's family cannot leave out the missing cells, and has some to go by."""
    if block.family.drops_missing or sparse.issparse(x):
        return np.zeros(x.shape[0], bool)
    return np.isnan(block.take_host(x)).any(1)


def _statistics(block, x, labels: Labels, rows: np.ndarray):
    if rows.all():
        return block.family.stats(block.take_host(x), labels)
    return block.family.stats(block.take_host(x[rows]), labels.part(rows))


def _gathered(b: int, block, x, labels: Labels, code: int, rows: np.ndarray, cells: Cells, size: int) -> GivenClass:
    """Rows where the programs need them: gathering them again at every step would take as long as the step."""
    weight = np.ones(len(rows)) if labels.weight is None else labels.weight[rows]
    own = jnp.asarray(padded(block.take_host(x[rows]), size))
    return GivenClass(b, code, own, jnp.asarray(padded(weight, size)), jax.tree_util.tree_map(jnp.asarray, cells))


def _by_class(block, x, codes: np.ndarray, open_: np.ndarray) -> Iterator[tuple[int, np.ndarray, Cells, int]]:
    """(class, rows, cells, padded size) of the batches of labelled rows with gaps."""
    rows = np.flatnonzero(open_)
    missing = np.isnan(block.take_host(x)[rows])
    keep = ~missing.all(1)  # a row without any cell says nothing
    rows, missing = rows[keep], missing[keep]
    small = missing.sum(1).max(initial=0) ** 2 * len(rows) <= linalg.SMALL_TABLE
    for k in np.unique(codes[rows]):
        mine = np.flatnonzero(codes[rows] == k)
        for index, cells, size in _patterns(missing[mine], small):
            yield int(k), rows[mine[index]], cells, size


def _patterns(missing: np.ndarray, small: bool) -> Iterator[tuple[np.ndarray, Cells, int]]:
    """Rows that share a pattern with many go alone, the others by how many cells they miss; a small table goes as one."""
    count = missing.sum(1)
    width = _widths(np.full_like(count, count.max()) if small else count, missing.shape[1])
    rest = np.arange(len(missing))
    if not small:
        patterns, which, sizes = linalg.unique_patterns(missing)
        alone = sizes >= linalg.ROWS_PER_PATTERN
        for j in np.flatnonzero(alone):
            yield from _sliced(np.flatnonzero(which == j), MOST_ROWS, linalg.Shared(~patterns[j]), missing.shape[1])
        rest = np.flatnonzero(~alone[which])
    for w in np.unique(width[rest]):
        mine = rest[width[rest] == w]
        most = int(np.clip(BATCH_CELLS // w**2, LEAST_ROWS, MOST_ROWS))
        yield from _sliced(mine, most, linalg.Placed(linalg.places(missing[mine], int(w))), missing.shape[1])


def _widths(count: np.ndarray, d: int) -> np.ndarray:
    """Missing cells of each row, padded."""
    doubled = LEAST_WIDTH * 2 ** np.ceil(np.log2(np.maximum(count, 1) / LEAST_WIDTH)).astype(int).clip(0)
    between = doubled * 3 // 4
    return np.minimum(np.where((count <= between) & (doubled > LEAST_WIDTH), between, doubled), d)


def _sliced(index: np.ndarray, most: int, cells: Cells, d: int) -> Iterator[tuple[np.ndarray, Cells, int]]:
    for start in range(0, len(index), most):
        part = index[start : start + most]
        size = _size(len(part), most)
        if isinstance(cells, linalg.Placed):
            where = np.asarray(cells.where)[start : start + most]
            none = linalg.places(np.zeros((size - len(part), d), bool), where.shape[1])
            yield part, linalg.Placed(np.concatenate([where, none]).astype(np.int32)), size
        else:
            yield part, cells, size


def _unlabelled(joint: Joint, x, rows: np.ndarray) -> Iterator[Unlabelled]:
    if sparse.issparse(x):
        if len(rows):
            yield Unlabelled(rows, None, len(rows))
        return
    if not len(rows):
        return
    for index, cells in joint.groups(np.isnan(x[rows])):
        mine = rows if index is None else rows[index]
        width = max((c.width for c in cells if isinstance(c, linalg.Scattered)), default=1)
        room = BATCH_CELLS // max(width**2, joint.num_features) * 16 // joint.num_classes
        most = int(np.clip(1 << max(room, 1).bit_length() - 1, LEAST_ROWS, MOST_ROWS))
        for start in range(0, len(mine), most):
            part = mine[start : start + most]
            yield Unlabelled(part, cells, _size(len(part), most))


def _size(count: int, most: int) -> int:
    """What a batch is padded to: one of a few sizes, so that few programs are compiled."""
    sizes = (LEAST_ROWS, most // 8, most // 4, most // 2, most * 3 // 4, most)
    return next(size for size in sizes if size >= max(count, LEAST_ROWS))


def padded(array: np.ndarray, size: int, fill: float = 0) -> np.ndarray:
    """The array with its first axis filled up to a size."""
    if len(array) == size:
        return np.ascontiguousarray(array)
    return np.concatenate([array, np.full((size - len(array), *array.shape[1:]), fill, array.dtype)])


def sparse_part(joint: Joint, params: Params, x, weight: np.ndarray) -> tuple[JointStats, float]:
    """Expected statistics of sparse rows without label, and Σ w log Σ_k p(x, y=k)."""
    table = sparse_rows.log_joint(joint, params, x)
    total = logsumexp(table, axis=1)
    share = np.exp(table - total[:, None]) * weight[:, None]
    parts = tuple(block.family.stats(block.take_host(x), share) for block in joint.blocks)
    return JointStats(share.sum(0), parts), float(np.sum(weight * np.where(weight > 0, total, 0.0)))


def begin(joint: Joint, x, labels: Labels) -> Params:
    """Parameters to begin with, from the labelled rows alone: smooth, and without correlations where cells are missing."""
    rows = labels.part(labels.known)
    own = x if labels.complete else x[labels.known]
    parts = []
    for block in joint.blocks:
        mine, family = block.take_host(own), block.family
        if _has_gaps(block, own).any():
            parts.append(family.begin_from_cells(Gaussian("diag").stats(mine, rows)))
        else:
            parts.append(family.begin(family.stats(mine, rows)))
    probs = (rows.counts() + 1.0) / (rows.counts().sum() + joint.num_classes)
    fixed = joint.class_prior.fixed
    flat = joint.gather(probs if fixed is None else np.asarray(fixed), parts)
    return {name: np.asarray(value) for name, value in flat.items()}
