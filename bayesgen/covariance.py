"""Covariance structures: the only place that branches on full, diagonal or spherical.

A structure knows how rows become moments, how a scatter becomes a precision's posterior, and what density,
predictive and conditional follow. Parameters carry a leading class axis; a tied one has none:

| structure | public key   | per class | tied   | moments: weight, mean, scatter   |
|-----------|--------------|-----------|--------|----------------------------------|
| Full      | `covariance` | (K, d, d) | (d, d) | (K,), (K, d), (K, d, d)          |
| Diagonal  | `variance`   | (K, d)    | (d,)   | (K, d), (K, d), (K, d): per cell |
| Spherical | `variance`   | (K,)      | ()     | as Diagonal                      |

Per-cell weights make the moments of Diagonal and Spherical exact, mergeable and removable with missing cells.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bayesgen import linalg
from bayesgen.improper import ImproperGamma, ImproperWishart

Array = Any  # numpy on the host, jax inside jit


class Moments(NamedTuple):
    """Total weight, weighted mean and centred scatter of the rows of each class."""

    weight: Array
    mean: Array
    scatter: Array


def namespace(array: Array):
    """numpy for host arrays (no dispatch cost, always float64), jax.numpy for traced ones."""
    return jnp if isinstance(array, jax.Array) else np


@dataclasses.dataclass(frozen=True)
class Covariance:
    """What every structure offers. K classes, d columns; `tied` says that one precision serves all the classes."""

    key: ClassVar[str]
    site_dims: ClassVar[int]  # trailing axes of one precision
    drops_missing: ClassVar[bool]  # whether the moments are exact with missing cells

    def merge(self, a: Moments, b: Moments) -> Moments:
        """Moments of the union, by the pairwise update: no sum of raw squares."""
        xp = namespace(a.weight)
        n = a.weight + b.weight
        share = b.weight / xp.where(n > 0, n, 1.0)
        delta = b.mean - a.mean
        mean = a.mean + self._column(share) * delta
        return Moments(n, mean, a.scatter + b.scatter + self.outer(delta, a.weight * share))

    def remove(self, a: Moments, b: Moments) -> Moments:
        """Moments of a without b: undoes `merge`."""
        xp = namespace(a.weight)
        n = a.weight - b.weight
        empty = n <= 1e-12 * a.weight
        share = xp.where(empty, 0.0, b.weight / xp.where(empty, 1.0, n))
        delta = b.mean - a.mean
        scatter = a.scatter - b.scatter - self.outer(delta, a.weight * share)
        return Moments(
            xp.where(empty, 0.0, n),
            xp.where(self._column(empty), 0.0, a.mean - self._column(share) * delta),
            xp.where(self._matrix(empty), 0.0, scatter),
        )

    def _column(self, per_weight: Array) -> Array:
        """Broadcast something of the shape of the weights against the means."""
        raise NotImplementedError

    def _matrix(self, per_weight: Array) -> Array:
        """Broadcast something of the shape of the weights against the scatters."""
        raise NotImplementedError

    def outer(self, delta: Array, weight: Array) -> Array:
        """weight · δδᵀ, as far as the scatter keeps it."""
        raise NotImplementedError


class Full(Covariance):
    """Σ unrestricted: Λ ~ Wishart(ν, rate Ψ), μ | Λ ~ N(m, (κΛ)⁻¹)."""

    key = "covariance"
    site_dims = 2
    drops_missing = False

    def _column(self, per_weight):
        return per_weight[..., None]

    def _matrix(self, per_weight):
        return per_weight[..., None, None]

    def outer(self, delta, weight):
        return self._matrix(weight) * delta[..., :, None] * delta[..., None, :]

    # -- rows -> moments
    def one_class(self, x: np.ndarray, weight: np.ndarray | None) -> tuple[Array, Array, Array]:
        return _centred(x, weight, lambda c, w: (c if w is None else c * w[:, None]).T @ c)

    def soft(self, x: jax.Array, r: jax.Array) -> Moments:
        n = r.sum(0)
        mean = (r.T @ x) / jnp.where(n > 0, n, 1.0)[:, None]
        delta = x[:, None, :] - mean
        return Moments(n, mean, jnp.einsum("nk,nki,nkj->kij", r, delta, delta))

    # -- prior and posterior
    def pooled(self, scatter: Array, tied: bool) -> Array:
        return scatter.sum(0) if tied else scatter

    def dof(self, weight: Array, d: int, tied: bool) -> Array:
        return weight.sum(0) if tied else weight

    def mode(self, scale: Array, df: Array, means: int, d: int) -> Array:
        """Σ at the joint mode of (μ, Λ), `means` mean vectors sharing Λ."""
        return scale / self._matrix(jnp.asarray(df - d - 1 + means))

    def expectation(self, scale: Array, df: Array, d: int) -> Array:
        """E[Σ], infinite where it does not exist."""
        free = jnp.asarray(df - d - 1)
        return jnp.where(self._matrix(free > 0), scale / self._matrix(jnp.where(free > 0, free, 1.0)), jnp.inf)

    def ratio(self, scatter: Array, n: Array, d: int) -> Array:
        return scatter / self._matrix(jnp.asarray(n))

    def proper(self, df: np.ndarray, scale: np.ndarray, d: int) -> bool:
        if not np.all(np.asarray(df) > d - 1):
            return False
        return all(rank(matrix) == d for matrix in np.reshape(scale, (-1, d, d)))

    def expand(self, diagonal: Array) -> Array:
        """A scale with this diagonal of column scatters."""
        return np.diag(diagonal)

    def auto_df(self, d: int) -> float:
        return d + 2.0

    def precision_prior(self, df, scale, proper: bool):
        return dist.Wishart(df, rate_matrix=scale) if proper else ImproperWishart(df, scale)

    def mean_prior(self, loc, strength, precision):
        return dist.MultivariateNormal(loc, precision_matrix=self._matrix(jnp.asarray(strength)) * precision)

    def invert(self, precision):
        return linalg.inverse(precision)

    def full_scale(self, scale: np.ndarray, d: int) -> np.ndarray:
        """A number or a diagonal as the matrix it stands for."""
        return scale if scale.ndim >= 2 else np.broadcast_to(scale, (d,)) * np.eye(d)

    def scale_shapes(self, d: int) -> list[tuple[int, ...]]:
        """Shapes that a stated scale may have."""
        return [(), (d,), (d, d)]

    def per_weight(self, df: Array) -> Array:
        """Degrees of freedom, broadcastable to the weights."""
        return df

    def cells(self, moments: Moments) -> Moments:
        """The moments of each column for itself: all three (K, d)."""
        weight = np.broadcast_to(np.asarray(moments.weight)[:, None], moments.mean.shape)
        return Moments(weight, moments.mean, np.diagonal(moments.scatter, axis1=-2, axis2=-1))

    def deficits(self, cov: np.ndarray, mean: np.ndarray) -> list[tuple[int, int, list[int]]]:
        """(class, rank, constant columns) of every covariance that is not positive definite."""
        found = []
        for k, matrix in enumerate(cov if cov.ndim == 3 else cov[None]):
            constant = ~(np.diagonal(matrix) > (1e-12 * mean[k]) ** 2)
            matrix = np.where(constant[:, None] | constant[None, :], 0.0, matrix)
            if rank(matrix) < len(matrix):
                found.append((k, rank(matrix), np.flatnonzero(constant).tolist()))
        return found

    def least_rows(self, d: int) -> int:
        """Fewest rows of a class that can give a nonsingular covariance."""
        return d + 1

    # -- densities
    def spread(self, scale: Array, factor: Array, tied: bool) -> Array:
        """scale · factor, per class."""
        return self._matrix(jnp.asarray(factor)) * scale

    def predictive_df(self, df: Array, d: int) -> Array:
        return df - d + 1

    def distribution(self, mean, cov, df=None):
        root = jnp.broadcast_to(jnp.linalg.cholesky(cov), (*mean.shape, mean.shape[-1]))
        if df is None:
            return dist.MultivariateNormal(mean, scale_tril=root)
        return dist.MultivariateStudentT(jnp.broadcast_to(df, mean.shape[:1]), mean, root)

    def log_prob(self, x, mean, cov, df=None, cells=None):
        stack = cov if cov.ndim == 3 else cov[None]
        return linalg.log_density(linalg.quadratic_form(x, mean, stack, cells), df)

    def quadratic(self, x, mean, cov, cells=None):
        stack = cov if cov.ndim == 3 else cov[None]
        return linalg.quadratic_form(x, mean, stack, cells).quadratic

    def groups(self, missing: np.ndarray):
        return linalg.group_rows(missing)

    def conditional_mean(self, x, mean, cov, cells=None):
        width = cells.width if isinstance(cells, linalg.Scattered) else x.shape[-1]
        return linalg.conditional_mean(x, mean, cov if cov.ndim == 3 else cov[None], width)

    def conditional_draw(self, key, x, y, mean, cov, df=None, cells=None):
        width = cells.width if isinstance(cells, linalg.Scattered) else x.shape[-1]
        return linalg.conditional_draw(key, x, y, mean, cov if cov.ndim == 3 else cov[None], width, df)

    def log_likelihood(self, mean, cov, moments: Moments):
        root, logdet = linalg.inverse_root(cov)
        delta = moments.mean - mean
        total = moments.scatter + self.outer(delta, moments.weight)
        trace = jnp.sum((root @ total) * root, (-1, -2))
        return -0.5 * jnp.sum(moments.weight * (mean.shape[-1] * linalg.LOG_2PI + logdet) + trace)

    def add(self, cov, ridge):
        return cov + ridge * jnp.eye(cov.shape[-1], dtype=cov.dtype)

    def matrices(self, cov: np.ndarray, k: int, d: int) -> np.ndarray:
        """As (K, d, d) matrices, whatever the structure."""
        return np.array(np.broadcast_to(cov, (k, d, d)))

    def exact_law(self) -> bool:
        """Whether the quadratic form alone orders the density (chi-square or F law), also as a Student-t."""
        return True


class _Axes(Covariance):
    """What diagonal and spherical share: no correlation, weights per cell."""

    key = "variance"
    site_dims = 0
    drops_missing = True

    def _column(self, per_weight):
        return per_weight

    def _matrix(self, per_weight):
        return per_weight

    def outer(self, delta, weight):
        return weight * delta**2

    def one_class(self, x: np.ndarray, weight: np.ndarray | None) -> tuple[Array, Array, Array]:
        missing = np.isnan(x)
        if not missing.any():
            n, mean, scatter = _centred(x, weight, _sum_of_squares)
            return np.full(x.shape[1], n), mean, scatter
        cell = np.where(missing, 0.0, 1.0 if weight is None else weight[:, None])
        n = cell.sum(0)
        safe = np.where(n > 0, n, 1.0)
        mean = (cell * np.where(missing, 0.0, x)).sum(0) / safe
        delta = np.where(missing, 0.0, x - mean)
        shift = (cell * delta).sum(0) / safe
        return n, mean + shift, (cell * delta**2).sum(0) - n * shift**2

    def soft(self, x: jax.Array, r: jax.Array) -> Moments:
        missing = jnp.isnan(x)
        value = jnp.where(missing, 0.0, x)
        n = r.T @ jnp.where(missing, 0.0, 1.0)
        mean = (r.T @ value) / jnp.where(n > 0, n, 1.0)
        delta = jnp.where(missing[:, None, :], 0.0, value[:, None, :] - mean)
        return Moments(n, mean, jnp.einsum("nk,nkj->kj", r, delta**2))

    def least_rows(self, d: int) -> int:
        return 2

    def invert(self, precision):
        return 1 / precision

    def groups(self, missing: np.ndarray):
        # NaN cells drop out of a sum over columns: every row can go with every other.
        yield None, None

    def _cells(self, x, cells):
        """0/1 weights of the observed cells, (n, d), or (d,) when the batch shares them."""
        if isinstance(cells, linalg.Shared):
            return jnp.asarray(cells.observed, x.dtype)
        return 1.0 - jnp.isnan(x).astype(x.dtype)

    def log_likelihood(self, mean, cov, moments: Moments):
        variance = jnp.broadcast_to(self._per_column(cov, mean), mean.shape)
        total = moments.scatter + self.outer(moments.mean - mean, moments.weight)
        return -0.5 * jnp.sum(moments.weight * (linalg.LOG_2PI + jnp.log(variance)) + total / variance)

    def add(self, cov, ridge):
        return cov + ridge

    def _square(self, x, mean, cells):
        """(x − μ)² (n, K, d) with 0 at missing cells."""
        delta = x[:, None, :] - mean
        if not isinstance(cells, linalg.Shared):
            delta = jnp.where(jnp.isnan(delta), 0.0, delta)
        return delta**2

    def quadratic(self, x, mean, cov, cells=None):
        weight = self._cells(x, cells)
        scaled = self._square(x, mean, cells) / self._per_column(cov, mean)
        return jnp.einsum("nkd,d->nk", scaled, weight) if weight.ndim == 1 else jnp.sum(scaled, -1)

    def _per_column(self, cov, mean):
        """The variances as (K, d) (or broadcastable to it)."""
        raise NotImplementedError

    def conditional_mean(self, x, mean, cov, cells=None):
        return jnp.where(jnp.isnan(x)[:, None, :], mean, x[:, None, :])

    def matrices(self, cov: np.ndarray, k: int, d: int) -> np.ndarray:
        per_column = np.broadcast_to(np.asarray(self._per_column(cov, np.empty((k, d)))), (k, d))
        return per_column[:, :, None] * np.eye(d)

    def cells(self, moments: Moments) -> Moments:
        return moments

    def deficits(self, cov: np.ndarray, mean: np.ndarray) -> list[tuple[int, int, list[int]]]:
        wide = np.broadcast_to(np.asarray(self._per_column(cov, mean)), mean.shape)
        constant = ~(wide > (1e-12 * mean) ** 2)
        classes = np.flatnonzero(constant.any(1))
        return [(int(k), int((~constant[k]).sum()), np.flatnonzero(constant[k]).tolist()) for k in classes]

    def precision_prior(self, df, scale, proper: bool):
        return dist.Gamma(df / 2, scale / 2) if proper else ImproperGamma(df, scale)

    def proper(self, df: np.ndarray, scale: np.ndarray, d: int) -> bool:
        return bool(np.all(np.asarray(df) > 0) and np.all(np.asarray(scale) > 0))


class Diagonal(_Axes):
    """Σ = diag(1/λ_j): λ_j ~ Gamma(ν/2, Ψ_j/2), μ_j | λ_j ~ N(m_j, 1/(κλ_j))."""

    site_dims = 1

    def pooled(self, scatter, tied):
        return scatter.sum(0) if tied else scatter

    def dof(self, weight, d, tied):
        return weight.sum(0) if tied else weight

    def mode(self, scale, df, means, d):
        return scale / (df - 2 + means)

    def expectation(self, scale, df, d):
        return jnp.where(df > 2, scale / jnp.where(df > 2, df - 2, 1.0), jnp.inf)

    def ratio(self, scatter, n, d):
        return scatter / n

    def expand(self, diagonal):
        return np.asarray(diagonal)

    def auto_df(self, d):
        return 3.0

    def precision_prior(self, df, scale, proper: bool):
        return super().precision_prior(jnp.broadcast_to(df, jnp.shape(scale)), scale, proper).to_event(1)

    def mean_prior(self, loc, strength, precision):
        return dist.Normal(loc, 1 / jnp.sqrt(strength * precision)).to_event(1)

    def spread(self, scale, factor, tied):
        return factor * scale

    def predictive_df(self, df, d):
        return df

    def full_scale(self, scale: np.ndarray, d: int) -> np.ndarray:
        return np.broadcast_to(scale, (d,)).copy()

    def scale_shapes(self, d: int) -> list[tuple[int, ...]]:
        return [(), (d,)]

    def per_weight(self, df):
        return df

    def _per_column(self, cov, mean):
        return cov

    def distribution(self, mean, cov, df=None):
        scale = jnp.broadcast_to(jnp.sqrt(cov), mean.shape)
        base = dist.Normal(mean, scale) if df is None else dist.StudentT(df, mean, scale)
        return base.to_event(1)

    def log_prob(self, x, mean, cov, df=None, cells=None):
        weight = self._cells(x, cells)
        form = linalg.Form(self._square(x, mean, cells) / cov, jnp.log(cov), jnp.ones(()))
        terms = linalg.log_density(form, df)
        if weight.ndim == 1:
            return jnp.einsum("nkd,d->nk", terms, weight)
        return jnp.sum(jnp.where(weight[:, None, :] > 0, terms, 0.0), -1)

    def conditional_draw(self, key, x, y, mean, cov, df=None, cells=None):
        noise = jax.random.normal(key, x.shape, x.dtype)
        if df is not None:
            noise = jax.random.t(key, jnp.broadcast_to(df, mean.shape)[y], x.shape, x.dtype)
        scale = jnp.sqrt(jnp.broadcast_to(cov, mean.shape))
        return jnp.where(jnp.isnan(x), mean[y] + scale[y] * noise, x)

    def exact_law(self) -> bool:
        return False


class Spherical(_Axes):
    """Σ = I/λ: λ ~ Gamma(ν/2, Ψ/2), μ | λ ~ N(m, I/(κλ))."""

    site_dims = 0

    def pooled(self, scatter, tied):
        return scatter.sum() if tied else scatter.sum(-1)

    def dof(self, weight, d, tied):
        return weight.sum() if tied else weight.sum(-1)

    def mode(self, scale, df, means, d):
        return scale / (df - 2 + means * d)

    def expectation(self, scale, df, d):
        return jnp.where(df > 2, scale / jnp.where(df > 2, df - 2, 1.0), jnp.inf)

    def ratio(self, scatter, n, d):
        return scatter / n

    def expand(self, diagonal):
        return np.sum(diagonal)

    def auto_df(self, d):
        return d + 2.0

    def mean_prior(self, loc, strength, precision):
        return dist.Normal(loc, 1 / jnp.sqrt(strength * jnp.asarray(precision)[..., None])).to_event(1)

    def spread(self, scale, factor, tied):
        # The predictive's inflation differs by column once cells are missing: then it is diagonal in scale.
        return factor * jnp.asarray(scale)[..., None]

    def predictive_df(self, df, d):
        return df

    def full_scale(self, scale: np.ndarray, d: int) -> np.ndarray:
        return scale

    def scale_shapes(self, d: int) -> list[tuple[int, ...]]:
        return [()]

    def per_weight(self, df):
        return jnp.asarray(df)[..., None]

    def _per_column(self, cov, mean):
        return cov if cov.ndim == 2 else cov[..., None]

    def distribution(self, mean, cov, df=None):
        scale = jnp.sqrt(jnp.broadcast_to(self._per_column(cov, mean), mean.shape))
        if df is None:
            return dist.Normal(mean, scale).to_event(1)
        root = scale[..., None] * jnp.eye(mean.shape[-1])
        return dist.MultivariateStudentT(jnp.broadcast_to(df, mean.shape[:1]), mean, root)

    def log_prob(self, x, mean, cov, df=None, cells=None):
        weight = self._cells(x, cells)
        logdet = jnp.log(jnp.broadcast_to(self._per_column(cov, mean), mean.shape)) @ weight.T
        form = linalg.Form(self.quadratic(x, mean, cov, cells), logdet.T, weight.sum(-1, keepdims=True))
        return linalg.log_density(form, df)

    def conditional_draw(self, key, x, y, mean, cov, df=None, cells=None):
        key, key_chi = jax.random.split(key)
        noise = jax.random.normal(key, x.shape, x.dtype)
        if df is not None:
            rows = jnp.arange(x.shape[0])
            q = self.quadratic(x, mean, cov)[rows, y]
            nu = jnp.broadcast_to(df, mean.shape[:1])[y]
            total = nu + jnp.sum(~jnp.isnan(x), -1)
            noise = noise * jnp.sqrt((nu + q) / jax.random.chisquare(key_chi, total))[:, None]
        scale = jnp.sqrt(jnp.broadcast_to(self._per_column(cov, mean), mean.shape))
        return jnp.where(jnp.isnan(x), mean[y] + scale[y] * noise, x)

    def exact_law(self) -> bool:
        return True


def _centred(x: np.ndarray, weight: np.ndarray | None, gram) -> tuple[Array, Array, Array]:
    """Weight, mean and scatter of the rows of one class by the corrected two-pass algorithm."""
    n = float(len(x)) if weight is None else float(weight.sum())
    if n == 0:
        return 0.0, np.zeros(x.shape[1]), 0.0 * gram(x[:0], None)
    mean = x.mean(0) if weight is None else weight @ x / n
    delta = x - mean
    shift = delta.mean(0) if weight is None else weight @ delta / n
    delta -= shift
    return n, mean + shift, gram(delta, weight)


def _sum_of_squares(delta: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    return np.einsum("ij,ij->j", delta, delta) if weight is None else weight @ delta**2


def rank(matrix: np.ndarray) -> int:
    """Numerical rank of a scatter, columns first brought to a common scale (so that units do not count)."""
    scale = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    eigenvalues = np.linalg.eigvalsh(matrix / scale[:, None] / scale[None, :])
    return int(np.sum(eigenvalues > len(matrix) * 1e-14))


STRUCTURES: dict[str, Covariance] = {"full": Full(), "diag": Diagonal(), "spherical": Spherical()}
