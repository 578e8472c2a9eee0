"""What the discrete families share: their statistics are weighted sums over rows, and rows never share parameters
across classes.

The posterior has the prior's form with the sums added, so a family at its posterior is the same family with the
field `counts` filled.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from bayesgen.families.base import BATCH_ROWS, Conjugate, Labels, Params
from bayesgen.linalg import Shared
from bayesgen.moments import namespace, subtract


class Counts(NamedTuple):
    """Weight of the observed cells or rows, weighted sums of them, and what of the likelihood depends on no parameter."""

    weight: Any  # (K, p) by cell, or (K,) by row
    total: Any  # (K, p), or (K, T) over the categories of all the columns
    constant: Any  # (K,)


@dataclasses.dataclass(frozen=True)
class Shares:
    """Soft labels of sparse rows: weights r (n, K)."""

    r: np.ndarray

    @property
    def num_classes(self) -> int:
        return self.r.shape[1]

    def counts(self) -> np.ndarray:
        """Total weight of each class."""
        return self.r.sum(0)


def indicator(labels: Labels | Shares) -> sparse.csr_array:
    """The weights rᵀ (K, n); of hard labels one stored number per row of the table."""
    if isinstance(labels, Shares):
        return sparse.csr_array(labels.r.T)
    n, k = len(labels.codes), labels.num_classes
    order = np.argsort(labels.codes, kind="stable")
    data = np.ones(n) if labels.weight is None else np.asarray(labels.weight, float)[order]
    return sparse.csr_array((data, order, np.searchsorted(labels.codes[order], np.arange(k + 1))), shape=(k, n))


def seen(x: jax.Array, cells) -> tuple[jax.Array, jax.Array]:
    """(the rows with 0 for missing cells, 1.0 where a cell is observed)."""
    missing = jnp.isnan(x)
    if isinstance(cells, Shared):
        missing = missing | ~jnp.asarray(cells.observed)
    return jnp.where(missing, 0.0, x), jnp.where(missing, 0.0, 1.0)


def row_sums(values: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Sums over the stored cells of each row of a csr matrix: values (nnz, K) -> (n, K)."""
    nnz = len(values)
    rows = sparse.csr_array((np.ones(nnz), np.arange(nnz), indptr), shape=(len(indptr) - 1, nnz))
    return rows @ values


def row_totals(values: np.ndarray, x: sparse.csr_array) -> np.ndarray:
    """Sums of one number per stored cell over each row of x, (n,)."""
    return sparse.csr_array((values, x.indices, x.indptr), shape=x.shape) @ np.ones(x.shape[1])


def sparse_logs(x: sparse.csr_array, logs: np.ndarray) -> np.ndarray:
    """Σ_j x_j logs_kj over the stored cells, (n, K); a stored cell with logs −∞ gives −∞."""
    impossible = np.isneginf(logs)
    if not impossible.any():
        return x @ logs.T
    sums = x @ np.where(impossible, 0.0, logs).T
    sums[x.astype(bool).astype(float) @ impossible.T.astype(float) > 0] = -np.inf
    return sums


class Counting(Conjugate):
    """A family whose statistics are `Counts`. Subclasses say how rows are summed, in `sums`."""

    alpha: Any = 1.0
    # the statistics behind a posterior, None for the prior
    counts: Any = dataclasses.field(default=None, kw_only=True, repr=False)
    takes_sparse: ClassVar[bool] = True

    # -- statistics
    def sums(self, x, r) -> Counts:
        """Statistics of rows under weights r (n, K); traceable. Missing cells count nothing."""
        raise NotImplementedError

    def host_sums(self, x, labels: Labels | Shares) -> Counts:
        """The same on the host, for hard labels (of sparse rows, soft ones too)."""
        raise NotImplementedError

    def stats(self, x, r) -> Counts:
        if sparse.issparse(x):
            return self.host_sums(x, r if isinstance(r, Labels) else Shares(np.asarray(r)))
        if isinstance(r, Labels):
            parts = [self.host_sums(x[rows], labels) for rows, labels in r.batches()]
        elif isinstance(x, jax.Array) or isinstance(r, jax.Array):
            return self.sums(jnp.asarray(x), jnp.asarray(r))
        else:
            pieces = (slice(start, start + BATCH_ROWS) for start in range(0, len(x), BATCH_ROWS))
            with jax.enable_x64(True):
                batches = [self.sums(jnp.asarray(x[rows]), jnp.asarray(r[rows])) for rows in pieces]
            parts = [Counts(*(np.asarray(leaf) for leaf in batch)) for batch in batches]
        return self._added(parts, r.num_classes if isinstance(r, Labels) else r.shape[1], x.shape[1])

    def _added(self, parts: list[Counts], num_classes: int, num_features: int) -> Counts:
        if not parts:
            return self.host_sums(np.zeros((0, num_features)), Labels(np.zeros(0, int), num_classes))
        total = parts[0]
        for part in parts[1:]:
            total = self.merge(total, part)
        return total

    def merge(self, a: Counts, b: Counts) -> Counts:
        return Counts(*(x + y for x, y in zip(a, b, strict=True)))

    def remove(self, a: Counts, b: Counts) -> Counts:
        weight = subtract(a.weight, b.weight)
        xp = namespace(weight)
        gone = a.total - b.total
        return Counts(weight, xp.where(gone <= 1e-12 * a.total, 0.0, gone), a.constant - b.constant)

    def begin(self, stats: Counts) -> Params:
        return dataclasses.replace(self, alpha=np.maximum(self.alpha, 1.0)).map(stats)

    def cannot_be_negative(self, stats: Counts) -> tuple:
        """What must be at least 0 by class and column (or category), in the statistics of whatever rows."""
        return (stats.total,)

    def update(self, stats: Counts):
        counts = stats if self.counts is None else self.merge(self.counts, stats)
        return dataclasses.replace(self, counts=counts)

    def host_draws(self, rng: np.random.Generator, num: int, num_classes: int, num_features: int) -> Params:
        """`num` draws of the parameters from `model`, by NumPy."""
        raise NotImplementedError

    # -- leaving a row out changes its own class only
    def left_out(self, stats: Counts, x, y, weight, method: str):
        table = self.log_prob(self.estimate(stats, method), x)

        def own(row, code, w):
            mine = Counts(*(leaf[code][None] for leaf in stats))
            rest = self.remove(mine, self.sums(row[None], w[None, None]))
            return self.log_prob(self.estimate(rest, method), row[None])[0, 0]

        return table.at[jnp.arange(x.shape[0]), y].set(jax.vmap(own)(x, y, weight))

    # -- cells
    def separable(self, params: Params) -> bool:
        return True

    def fills_mode(self, params: Params) -> bool:
        return True

    def complete(self, key, params: Params, x, y, cells=None):
        return jnp.where(jnp.isnan(x), self.sample(key, params, y), x)

    def bare(self):
        return dataclasses.replace(self, alpha=0.0, counts=None)

    # -- sparse rows, on the host
    def log_prob_sparse(self, params: Params, x: sparse.csr_array, *, constants: bool = True) -> np.ndarray:
        """`log_prob` of sparse rows, (n, K); constants False: up to a number per row that all the classes share."""
        raise NotImplementedError

    def present(self, params: Params, x: sparse.csr_array) -> tuple[np.ndarray, np.ndarray | None, str]:
        """log_prob taken apart: (each stored cell's part (nnz, K), that of all the others together (n, K), its name)."""
        raise NotImplementedError
