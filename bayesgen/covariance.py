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

import abc

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bayesgen import linalg
from bayesgen.covariance_base import Covariance
from bayesgen.improper import ImproperGamma, ImproperWishart
from bayesgen.moments import Moments, centred, centred_cells, rank


class Full(Covariance):
    """Σ unrestricted: Λ ~ Wishart(ν, rate Ψ), μ | Λ ~ N(m, (κΛ)⁻¹)."""

    key = "covariance"
    axes = ("feature", "feature_b")
    drops_missing = False
    elliptical = True
    scalable = True

    def column(self, per_weight):
        return per_weight[..., None]

    def matrix(self, per_scale):
        return per_scale[..., None, None]

    def outer(self, delta, weight):
        return self.matrix(weight) * delta[..., :, None] * delta[..., None, :]

    def empty(self, k, d):
        return Moments(np.zeros(k), np.zeros((k, d)), np.zeros((k, d, d)))

    def one_class(self, x, weight):
        return centred(x, weight, lambda delta, w: (delta if w is None else delta * w[:, None]).T @ delta)

    def soft(self, x, r):
        n = r.sum(0)
        mean = (r.T @ x) / jnp.where(n > 0, n, 1.0)[:, None]
        delta = x[:, None, :] - mean
        return Moments(n, mean, jnp.einsum("nk,nki,nkj->kij", r, delta, delta))

    def cells(self, moments):
        weight = np.broadcast_to(np.asarray(moments.weight)[:, None], moments.mean.shape)
        return Moments(weight, moments.mean, np.diagonal(moments.scatter, axis1=-2, axis2=-1))

    def exponents(self, d):
        return d + 1, 1

    def spread(self, scale, factor):
        return self.matrix(jnp.asarray(factor)) * scale

    def predictive_df(self, df, d):
        return df - d + 1

    def proper(self, df, scale, d):
        return bool(np.all(np.asarray(df) > d - 1)) and all(rank(m) == d for m in np.reshape(scale, (-1, d, d)))

    def auto_prior(self, variance):
        return len(variance) + 2.0, np.diag(variance)

    def scale_shapes(self, d):
        return [(), (d,), (d, d)]

    def full_scale(self, scale, d):
        return scale if scale.ndim >= 2 else np.broadcast_to(scale, (d,)) * np.eye(d)

    def precision_prior(self, df, scale, proper):
        return dist.Wishart(df, rate_matrix=scale) if proper else ImproperWishart(df, scale)

    def mean_prior(self, loc, strength, precision):
        return dist.MultivariateNormal(loc, precision_matrix=self.matrix(jnp.asarray(strength)) * precision)

    def invert(self, precision):
        return linalg.inverse(precision)

    def distribution(self, mean, cov, df=None):
        root = jnp.broadcast_to(jnp.linalg.cholesky(cov), (*mean.shape, mean.shape[-1]))
        if df is None:
            return dist.MultivariateNormal(mean, scale_tril=root)
        return dist.MultivariateStudentT(jnp.broadcast_to(df, mean.shape[:1]), mean, root)

    def _stack(self, cov):
        return cov if cov.ndim == 3 else cov[None]

    def log_prob(self, x, mean, cov, df=None, cells=None):
        return linalg.log_density(linalg.quadratic_form(x, mean, self._stack(cov), cells), df)

    def quadratic(self, x, mean, cov, cells=None):
        return linalg.quadratic_form(x, mean, self._stack(cov), cells).quadratic

    def log_likelihood(self, mean, cov, moments):
        root, logdet = linalg.inverse_root(cov)
        total = moments.scatter + self.outer(moments.mean - mean, moments.weight)
        trace = jnp.sum((root @ total) * root, (-1, -2))
        return -0.5 * jnp.sum(moments.weight * (mean.shape[-1] * linalg.LOG_2PI + logdet) + trace)

    def _width(self, x, cells) -> int:
        return cells.width if isinstance(cells, linalg.Scattered) else x.shape[-1]

    def conditional_mean(self, x, mean, cov, cells=None):
        return linalg.conditional_mean(x, mean, self._stack(cov), self._width(x, cells))

    def conditional_draw(self, key, x, y, mean, cov, df=None, cells=None):
        return linalg.conditional_draw(key, x, y, mean, self._stack(cov), self._width(x, cells), df)

    def expected(self, x, r, mean, cov, cells=None):
        if not isinstance(cells, linalg.Shared | linalg.Placed):
            d, width = x.shape[1], self._width(x, cells)
            where = jnp.sort(jnp.where(jnp.isnan(x), jnp.arange(d), d), 1)[:, :width]
            cells = linalg.Placed(jnp.where(where < d, where, jnp.arange(d, d + width)))
        covs = jnp.broadcast_to(self._stack(cov), (*mean.shape, mean.shape[-1]))
        parts = jax.lax.map(lambda one: linalg.expected_moments(x, *one, cells), (r.T, mean, covs))
        return Moments(*parts[:3]), parts.log_density.T

    def pooled_mean(self, key, moments, precision, centre, pool):
        own = self.matrix(moments.weight) * precision
        root = jnp.linalg.cholesky(pool + own)
        pull = pool @ centre + jnp.einsum("kij,kj->ki", own, moments.mean)
        noise = jax.random.normal(key, moments.mean.shape)
        half = jax.scipy.linalg.solve_triangular(root, pull[..., None], lower=True)[..., 0] + noise
        return jax.scipy.linalg.solve_triangular(root, half[..., None], lower=True, trans=1)[..., 0]

    def groups(self, missing):
        return linalg.group_rows(missing)

    def relative_to(self, scale, factor):
        return scale / factor[:, None] / factor

    def deviations(self, cov):
        return jnp.sqrt(jnp.diagonal(cov, axis1=-2, axis2=-1))

    def relative(self, delta, cov):
        sd = self.deviations(cov)
        return delta / (sd[..., :, None] * sd[..., None, :])

    def of_variances(self, variance):
        return variance[..., None] * jnp.eye(variance.shape[-1])

    def add(self, cov, ridge):
        return cov + ridge * jnp.eye(cov.shape[-1], dtype=cov.dtype)

    def matrices(self, cov, k, d):
        return np.array(np.broadcast_to(cov, (k, d, d)))

    def deficits(self, cov, mean):
        found = []
        for k, matrix in enumerate(self._stack(cov)):
            constant = ~(np.diagonal(matrix) > (1e-12 * mean[k]) ** 2)
            matrix = np.where(constant[:, None] | constant[None, :], 0.0, matrix)
            if rank(matrix) < len(matrix):
                found.append((k, rank(matrix), np.flatnonzero(constant).tolist()))
        return found

    def least_rows(self, d):
        return d + 1


class _Axes(Covariance):
    """What diagonal and spherical share: no correlation, weights per cell."""

    key = "variance"
    drops_missing = True

    def column(self, per_weight):
        return per_weight

    def matrix(self, per_scale):
        return per_scale

    def outer(self, delta, weight):
        return weight * delta**2

    def empty(self, k, d):
        return Moments(np.zeros((k, d)), np.zeros((k, d)), np.zeros((k, d)))

    def one_class(self, x, weight):
        return centred_cells(x, weight)

    def soft(self, x, r):
        missing = jnp.isnan(x)
        value = jnp.where(missing, 0.0, x)
        n = r.T @ jnp.where(missing, 0.0, 1.0)
        mean = (r.T @ value) / jnp.where(n > 0, n, 1.0)
        delta = jnp.where(missing[:, None, :], 0.0, value[:, None, :] - mean)
        return Moments(n, mean, jnp.einsum("nk,nkj->kj", r, delta**2))

    def cells(self, moments):
        return moments

    def predictive_df(self, df, d):
        return df

    def proper(self, df, scale, d):
        return bool(np.all(np.asarray(df) > 0) and np.all(np.asarray(scale) > 0))

    def precision_prior(self, df, scale, proper):
        return dist.Gamma(df / 2, scale / 2) if proper else ImproperGamma(df, scale)

    def invert(self, precision):
        return 1 / precision

    def per_column(self, cov):
        """The variances, broadcastable to (K, d)."""
        return cov

    def _cells(self, x, cells):
        """0/1 weights of the observed cells, (n, d), or (d,) when the batch shares them."""
        if isinstance(cells, linalg.Shared):
            return jnp.asarray(cells.observed, x.dtype)
        return 1.0 - jnp.isnan(x).astype(x.dtype)

    def _square(self, x, mean, cells):
        """(x − μ)² (n, K, d) with 0 at missing cells."""
        delta = x[:, None, :] - mean
        if not isinstance(cells, linalg.Shared):
            delta = jnp.where(jnp.isnan(delta), 0.0, delta)
        return delta**2

    def _sum(self, terms, x, cells):
        """Σ over the observed columns of terms (n, K, d)."""
        weight = self._cells(x, cells)
        if weight.ndim == 1:
            return jnp.einsum("nkd,d->nk", terms, weight)
        return jnp.sum(jnp.where(weight[:, None, :] > 0, terms, 0.0), -1)

    def quadratic(self, x, mean, cov, cells=None):
        return self._sum(self._square(x, mean, cells) / self.per_column(cov), x, cells)

    def log_likelihood(self, mean, cov, moments):
        variance = jnp.broadcast_to(self.per_column(cov), mean.shape)
        total = moments.scatter + self.outer(moments.mean - mean, moments.weight)
        return -0.5 * jnp.sum(moments.weight * (linalg.LOG_2PI + jnp.log(variance)) + total / variance)

    def conditional_mean(self, x, mean, cov, cells=None):
        return jnp.where(jnp.isnan(x)[:, None, :], mean, x[:, None, :])

    def conditional_draw(self, key, x, y, mean, cov, df=None, cells=None):
        noise = self._noise(key, x, y, mean, cov, df)
        scale = jnp.sqrt(jnp.broadcast_to(self.per_column(cov), mean.shape))
        return jnp.where(jnp.isnan(x), mean[y] + scale[y] * noise, x)

    @abc.abstractmethod
    def _noise(self, key, x, y, mean, cov, df):
        """Standardised draws (n, d) given the observed cells."""

    def pooled_mean(self, key, moments, precision, centre, pool):
        own = moments.weight * jnp.broadcast_to(self.per_column(jnp.asarray(precision)), moments.mean.shape)
        total = pool + own
        mean = (pool * centre + own * moments.mean) / total
        return mean + jax.random.normal(key, mean.shape) / jnp.sqrt(total)

    def relative_to(self, scale, factor):
        return scale / factor**2

    def deviations(self, cov):
        return jnp.sqrt(self.per_column(cov))

    def relative(self, delta, cov):
        return delta / cov

    def of_variances(self, variance):
        return variance

    def add(self, cov, ridge):
        return cov + ridge

    def matrices(self, cov, k, d):
        return np.where(np.eye(d, dtype=bool), np.broadcast_to(self.per_column(cov), (k, d))[:, :, None], 0.0)

    def deficits(self, cov, mean):
        constant = ~(np.broadcast_to(self.per_column(cov), mean.shape) > (1e-12 * mean) ** 2)
        classes = np.flatnonzero(constant.any(1))
        return [(int(k), int((~constant[k]).sum()), np.flatnonzero(constant[k]).tolist()) for k in classes]

    def least_rows(self, d):
        return 2


class Diagonal(_Axes):
    """Σ = diag(1/λ_j): λ_j ~ Gamma(ν/2, Ψ_j/2), μ_j | λ_j ~ N(m_j, 1/(κλ_j))."""

    axes = ("feature",)
    elliptical = False
    scalable = True

    def exponents(self, d):
        return 2, 1

    def spread(self, scale, factor):
        return factor * scale

    def auto_prior(self, variance):
        return 3.0, np.asarray(variance)

    def scale_shapes(self, d):
        return [(), (d,)]

    def full_scale(self, scale, d):
        return np.broadcast_to(scale, (d,)).copy()

    def precision_prior(self, df, scale, proper):
        return super().precision_prior(jnp.broadcast_to(df, jnp.shape(scale)), scale, proper).to_event(1)

    def mean_prior(self, loc, strength, precision):
        return dist.Normal(loc, 1 / jnp.sqrt(strength * precision)).to_event(1)

    def distribution(self, mean, cov, df=None):
        scale = jnp.broadcast_to(jnp.sqrt(cov), mean.shape)
        base = dist.Normal(mean, scale) if df is None else dist.StudentT(df, mean, scale)
        return base.to_event(1)

    def log_prob(self, x, mean, cov, df=None, cells=None):
        form = linalg.Form(self._square(x, mean, cells) / cov, jnp.log(cov), jnp.ones(()))
        return self._sum(linalg.log_density(form, df), x, cells)

    def _noise(self, key, x, y, mean, cov, df):
        if df is None:
            return jax.random.normal(key, x.shape, x.dtype)
        return jax.random.t(key, jnp.broadcast_to(df, mean.shape)[y], x.shape, x.dtype)


class Spherical(_Axes):
    """Σ = I/λ: λ ~ Gamma(ν/2, Ψ/2), μ | λ ~ N(m, I/(κλ))."""

    axes = ()
    elliptical = True
    scalable = False

    def reduce(self, per_cell):
        return per_cell.sum(-1)

    def exponents(self, d):
        return 2, d

    def per_weight(self, df):
        return jnp.asarray(df)[..., None]

    def spread(self, scale, factor):
        # The inflation differs by column once cells are missing: the predictive's scale is (K, d).
        return factor * jnp.asarray(scale)[..., None]

    def auto_prior(self, variance):
        return len(variance) + 2.0, np.sum(variance)

    def scale_shapes(self, d):
        return [()]

    def full_scale(self, scale, d):
        return scale

    def mean_prior(self, loc, strength, precision):
        return dist.Normal(loc, 1 / jnp.sqrt(strength * jnp.asarray(precision)[..., None])).to_event(1)

    def per_column(self, cov):
        return cov if cov.ndim == 2 else cov[..., None]

    def of_variances(self, variance):
        return variance.mean(-1)

    def distribution(self, mean, cov, df=None):
        scale = jnp.sqrt(jnp.broadcast_to(self.per_column(cov), mean.shape))
        if df is None:
            return dist.Normal(mean, scale).to_event(1)
        root = scale[..., None] * jnp.eye(mean.shape[-1])
        return dist.MultivariateStudentT(jnp.broadcast_to(df, mean.shape[:1]), mean, root)

    def log_prob(self, x, mean, cov, df=None, cells=None):
        weight = self._cells(x, cells)
        logdet = (jnp.log(jnp.broadcast_to(self.per_column(cov), mean.shape)) @ weight.T).T
        form = linalg.Form(self.quadratic(x, mean, cov, cells), logdet, weight.sum(-1, keepdims=True))
        return linalg.log_density(form, df)

    def _noise(self, key, x, y, mean, cov, df):
        key, key_chi = jax.random.split(key)
        noise = jax.random.normal(key, x.shape, x.dtype)
        if df is None:
            return noise
        q = self.quadratic(x, mean, cov)[jnp.arange(x.shape[0]), y]
        nu = jnp.broadcast_to(df, mean.shape[:1])[y]
        total = nu + jnp.sum(~jnp.isnan(x), -1)
        return noise * jnp.sqrt((nu + q) / jax.random.chisquare(key_chi, total))[:, None]


STRUCTURES: dict[str, Covariance] = {"full": Full(), "diag": Diagonal(), "spherical": Spherical()}
