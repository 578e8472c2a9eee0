"""Densities, centres and peaks of cells, from a NumPyro distribution: what the defaults of `Family` rest on.

Cells may be missing (NaN) or outside the support. Both are replaced by a point inside it before the density is
computed, and their value after: a density that is not a number there has a gradient that is not one either, which no
mask removes.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesgen.families.modes import Peaks, peaks_of


def known(support: constraints.Constraint | None) -> constraints.Constraint:
    """The support; all numbers where a distribution does not say."""
    return constraints.real if support is None or constraints.is_dependent(support) else support


def column_law(density: dist.Distribution) -> dist.Distribution | None:
    """The law of single cells, batch shape (K, p), of a distribution of rows whose columns are independent; else None."""
    independent = isinstance(density, dist.Independent) and density.reinterpreted_batch_ndims == 1
    return density.base_dist if independent and not density.base_dist.event_shape else None


def is_discrete(density: dist.Distribution) -> bool:
    """Whether cells are counts or categories; no where the distribution does not say."""
    support = (column_law(density) or density).support
    try:
        return support is not None and bool(support.is_discrete)
    except NotImplementedError:
        return False


def cell_logs(support: constraints.Constraint | None, log_prob: Callable, x: jax.Array) -> jax.Array:
    """log_prob of cells: −inf outside the support, 0 where missing. x (n, K, p), or what broadcasts to it.

    Examples
    --------
    >>> cell_logs(constraints.positive, lambda v: -v, jnp.array([2.0, -1.0, jnp.inf, jnp.nan])).tolist()
    [-2.0, -inf, -inf, 0.0]
    """
    support = known(support)
    inside = support(x) & jnp.isfinite(x)
    value = jnp.where(inside, x, support.feasible_like(x))
    return jnp.where(jnp.isnan(x), 0.0, jnp.where(inside, log_prob(_as_index(value, support)), -jnp.inf))


def _as_index(value: jax.Array, support: constraints.Constraint) -> jax.Array:
    """Whole numbers as such where they may be looked up: categories, in a range of values."""
    return value.astype(int) if isinstance(support, constraints.integer_interval) else value


def row_logs(density: dist.Distribution, x: jax.Array) -> jax.Array:
    """Log density (n, K) of rows x (n, p): 0 where all the cells are missing, NaN where some of them are."""
    rows = jnp.broadcast_to(x[:, None, :], (len(x), *density.batch_shape, *density.event_shape))
    missing = jnp.isnan(rows)
    support = known(density.support)
    inside = support(rows)
    inside = (inside if inside.ndim < rows.ndim else inside.all(-1)) & jnp.isfinite(rows).all(-1)
    value = jnp.where(inside[..., None], rows, support.feasible_like(rows))
    logs = jnp.where(inside, density.log_prob(value), -jnp.inf)
    return jnp.where(missing.all(-1), 0.0, jnp.where(missing.any(-1), jnp.nan, logs))


def centre(density: dist.Distribution) -> jax.Array:
    """The mean of each cell, (K, p); where there is none, the median if the distribution has one, else NaN."""
    law = column_law(density) or density
    mean = jnp.broadcast_to(density.mean, density.batch_shape + density.event_shape)
    try:
        median = law.icdf(jnp.full(law.batch_shape, 0.5)).reshape(mean.shape)
    except (NotImplementedError, ImportError):  # some need packages of their own
        median = jnp.full(mean.shape, jnp.nan)
    return jnp.where(jnp.isfinite(mean), mean, median)


def peaks(density: dist.Distribution) -> Peaks:
    """Where the mode of a mixture of the classes' laws of a cell is, for columns of counts or categories."""
    law, shape = column_law(density), density.batch_shape + density.event_shape

    def log_prob(value):
        return density.log_prob(value)[:, None] if law is None else law.log_prob(_as_index(value, law.support))

    low, high = (jnp.broadcast_to(jnp.asarray(end, float), shape) for end in _ends(density.support))
    mean, variance = (jnp.broadcast_to(_moment(density, name), shape) for name in ("mean", "variance"))
    return peaks_of(log_prob, mean, variance, low, high)


def _ends(support: constraints.Constraint) -> tuple:
    """The smallest and the largest value of a support."""
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if support is constraints.boolean:
        return 0.0, 1.0
    return getattr(support, "lower_bound", -jnp.inf), getattr(support, "upper_bound", jnp.inf)


def _moment(density: dist.Distribution, name: str) -> jax.Array:
    """The mean or the variance, NaN where the distribution does not know it."""
    try:
        return jnp.asarray(getattr(density, name), float)
    except NotImplementedError:
        return jnp.asarray(jnp.nan)
