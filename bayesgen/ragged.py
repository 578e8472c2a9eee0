"""Several simplexes of unequal sizes laid end to end: how the categories of all the columns of a block are kept.

Column j with c_j categories takes c_j neighbouring places of a vector of length T = Σ c_j. Nothing is padded, so that
one column with ten thousand categories does not widen the others.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln, xlogy
from numpyro.distributions import constraints
from numpyro.distributions.transforms import ParameterFreeTransform, StickBreakingTransform, biject_to


@functools.lru_cache(maxsize=256)
def layout(sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(first place of each column (p,), column of each place (T,))."""
    # 32 bits: constants that mean the same with and without double precision
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    return starts, np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)


def totals(values: Any, sizes: tuple[int, ...]) -> Any:
    """Sums over each column's places: (..., T) -> (..., p)."""
    _, column = layout(sizes)
    if isinstance(values, jax.Array):
        moved = jax.ops.segment_sum(jnp.moveaxis(values, -1, 0), column, len(sizes), indices_are_sorted=True)
        return jnp.moveaxis(moved, 0, -1)
    return np.add.reduceat(values, layout(sizes)[0], axis=-1)


def spread(per_column: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Each column's number at each of its places: (..., p) -> (..., T)."""
    return per_column[..., layout(sizes)[1]]


def cumulative(values: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Running sums that begin anew with each column, (..., T): no column loses digits to those before it."""
    first = np.zeros(sum(sizes), bool)
    first[layout(sizes)[0]] = True

    def add(left, right):
        (a, _), (b, begins) = left, right
        return jnp.where(begins, b, a + b), left[1] | begins

    return jax.lax.associative_scan(add, (values, jnp.broadcast_to(first, values.shape)), axis=-1)[0]


def padded(values: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """(..., T) as (..., p, C), C the most categories, 0 where a column has fewer."""
    starts, _ = layout(sizes)
    place = np.arange(max(sizes))
    real = place < np.asarray(sizes)[:, None]
    return np.where(real, np.asarray(values)[..., np.where(real, starts[:, None] + place, 0)], 0.0)


class RaggedSimplex(constraints.Constraint):
    """Vectors whose places sum to 1 within each column."""

    event_dim = 1

    def __init__(self, sizes: tuple[int, ...]):
        self.sizes = tuple(sizes)

    def __call__(self, x):
        return jnp.all(x >= 0, -1) & jnp.all(jnp.abs(totals(jnp.asarray(x), self.sizes) - 1) < 1e-6, -1)

    def feasible_like(self, prototype):
        return jnp.broadcast_to(1.0 / spread(jnp.asarray(self.sizes, float), self.sizes), jnp.shape(prototype))

    def tree_flatten(self):
        return (), ((), {"sizes": self.sizes})

    def __eq__(self, other):
        return isinstance(other, RaggedSimplex) and self.sizes == other.sizes

    def __hash__(self):
        return hash(self.sizes)


class RaggedStickBreaking(ParameterFreeTransform):
    """Stick-breaking in each column: from Σ (c_j − 1) real numbers to the ragged simplex."""

    domain = constraints.real_vector

    def __init__(self, sizes: tuple[int, ...]):
        self.sizes = tuple(sizes)

    @property
    def codomain(self):
        return RaggedSimplex(self.sizes)

    def _groups(self):
        """Columns of equal size go together: (places (m, c), free coordinates (m, c − 1))."""
        sizes = np.asarray(self.sizes)
        starts, free = layout(self.sizes)[0], np.concatenate([[0], np.cumsum(sizes - 1)[:-1]])
        for c in np.unique(sizes).tolist():
            columns = np.flatnonzero(sizes == c)
            yield starts[columns, None] + np.arange(c), free[columns, None] + np.arange(c - 1)

    def __call__(self, x):
        out = jnp.zeros((*x.shape[:-1], sum(self.sizes)), x.dtype)
        for places, free in self._groups():
            out = out.at[..., places].set(StickBreakingTransform()(x[..., free]) if free.shape[1] else 1.0)
        return out

    def _inverse(self, y):
        out = jnp.zeros((*y.shape[:-1], sum(self.sizes) - len(self.sizes)), y.dtype)
        for places, free in self._groups():
            if free.shape[1]:
                out = out.at[..., free].set(StickBreakingTransform()._inverse(y[..., places]))
        return out

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        total = jnp.zeros(x.shape[:-1])
        for places, free in self._groups():
            if free.shape[1]:
                total += StickBreakingTransform().log_abs_det_jacobian(x[..., free], y[..., places]).sum(-1)
        return total

    def forward_shape(self, shape):
        return (*shape[:-1], shape[-1] + len(self.sizes))

    def inverse_shape(self, shape):
        return (*shape[:-1], shape[-1] - len(self.sizes))

    def tree_flatten(self):
        return (), ((), {"sizes": self.sizes})

    def __eq__(self, other):
        return isinstance(other, RaggedStickBreaking) and self.sizes == other.sizes

    def __hash__(self):
        return hash(("stick", self.sizes))


@biject_to.register(RaggedSimplex)
def _transform_to_ragged_simplex(constraint):
    return RaggedStickBreaking(constraint.sizes)


class RaggedDirichlet(dist.Distribution):
    """Independent Dirichlet laws, one per column, on the ragged simplex: concentration (..., T)."""

    arg_constraints: ClassVar = {"concentration": constraints.independent(constraints.positive, 1)}
    pytree_data_fields = ("concentration",)
    pytree_aux_fields = ("sizes",)

    def __init__(self, concentration, sizes: tuple[int, ...], *, validate_args=None):
        self.concentration, self.sizes = jnp.asarray(concentration), tuple(sizes)
        super().__init__(self.concentration.shape[:-1], self.concentration.shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self):
        return RaggedSimplex(self.sizes)

    def sample(self, key, sample_shape=()):
        # In logarithms: with small concentrations every gamma variate of a column may underflow.
        logs = jax.random.loggamma(key, self.concentration, sample_shape + self.shape())
        most = jax.ops.segment_max(jnp.moveaxis(logs, -1, 0), layout(self.sizes)[1], len(self.sizes))
        parts = jnp.exp(logs - spread(jnp.moveaxis(most, 0, -1), self.sizes))
        return parts / spread(totals(parts, self.sizes), self.sizes)

    def log_prob(self, value):
        a = self.concentration
        return (xlogy(a - 1, value) - gammaln(a)).sum(-1) + gammaln(totals(a, self.sizes)).sum(-1)

    @property
    def mean(self):
        return self.concentration / spread(totals(self.concentration, self.sizes), self.sizes)
