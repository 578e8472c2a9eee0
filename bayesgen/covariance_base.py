"""What a covariance structure must offer; `covariance` has the three that there are."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bayesgen import linalg
from bayesgen.moments import Array, Moments, namespace, subtract


@dataclasses.dataclass(frozen=True)
class Covariance(abc.ABC):
    """What every structure offers. K classes, d columns; `tied`: one precision serves all the classes."""

    key: ClassVar[str]  # name of the public parameter
    axes: ClassVar[tuple[str, ...]]  # names of its axes beside the class
    drops_missing: ClassVar[bool]  # whether the moments are exact with missing cells
    elliptical: ClassVar[bool]  # whether the quadratic form alone orders the predictive density

    # -- shapes
    @abc.abstractmethod
    def column(self, per_weight: Array) -> Array:
        """Something of the shape of the weights, broadcastable to the means."""

    @abc.abstractmethod
    def matrix(self, per_scale: Array) -> Array:
        """A number per precision, broadcastable to the scales (for Full, to the scatters)."""

    @abc.abstractmethod
    def outer(self, delta: Array, weight: Array) -> Array:
        """weight · δδᵀ, as far as the scatter keeps it."""

    @abc.abstractmethod
    def empty(self, k: int, d: int) -> Moments:
        """The moments of no rows."""

    # -- moments
    @abc.abstractmethod
    def one_class(self, x: np.ndarray, weight: np.ndarray | None) -> tuple[Array, Array, Array]:
        """Moments of rows of one class, on the host."""

    @abc.abstractmethod
    def soft(self, x: jax.Array, r: jax.Array) -> Moments:
        """Moments under weights r (n, K), traceable."""

    @abc.abstractmethod
    def cells(self, moments: Moments) -> Moments:
        """The moments of each column for itself: all three (K, d)."""

    def merge(self, a: Moments, b: Moments) -> Moments:
        """Moments of the union, by the pairwise update."""
        xp = namespace(a.weight)
        n = a.weight + b.weight
        share = b.weight / xp.where(n > 0, n, 1.0)
        delta = b.mean - a.mean
        scatter = a.scatter + b.scatter + self.outer(delta, a.weight * share)
        return Moments(n, a.mean + self.column(share) * delta, scatter)

    def remove(self, a: Moments, b: Moments) -> Moments:
        """Moments of a without b: undoes `merge`."""
        xp = namespace(a.weight)
        n = subtract(a.weight, b.weight)
        empty = n == 0
        share = xp.where(empty, 0.0, b.weight / xp.where(empty, 1.0, n))
        delta = b.mean - a.mean
        mean = a.mean - self.column(share) * delta
        scatter = a.scatter - b.scatter - self.outer(delta, a.weight * share)
        keep = 1.0 - empty
        return Moments(n, self.column(keep) * mean, self.outer(xp.ones_like(mean), keep) * scatter)

    # -- prior and posterior
    def reduce(self, per_cell: Array) -> Array:
        """From the axes of the moments to those of a precision."""
        return per_cell

    def total(self, per_class: Array, tied: bool) -> Array:
        """Weights as degrees of freedom, or scatters as a scale: over the classes when tied."""
        reduced = self.reduce(per_class)
        return reduced.sum(0) if tied else reduced

    @abc.abstractmethod
    def exponents(self, d: int) -> tuple[int, int]:
        """(a, b) with the mode of (μ, Λ) at Ψ/(ν − a + bM), M means sharing Λ, and E[Σ] = Ψ/(ν − a)."""

    def mode(self, scale: Array, df: Array, means: int, d: int) -> Array:
        """Σ at the joint mode of (μ, Λ), `means` mean vectors sharing Λ."""
        less, more = self.exponents(d)
        return self.ratio(scale, df - less + more * means)

    def expectation(self, scale: Array, df: Array, d: int) -> Array:
        """E[Σ], infinite where it does not exist."""
        free = jnp.asarray(df - self.exponents(d)[0])
        return jnp.where(self.matrix(free > 0), self.ratio(scale, jnp.where(free > 0, free, 1.0)), jnp.inf)

    def ratio(self, scale: Array, n: Array) -> Array:
        return scale / self.matrix(jnp.asarray(n))

    def per_weight(self, df: Array) -> Array:
        """Degrees of freedom, broadcastable to the weights."""
        return df

    @abc.abstractmethod
    def spread(self, scale: Array, factor: Array) -> Array:
        """scale · factor, factor of the shape of the weights."""

    @abc.abstractmethod
    def predictive_df(self, df: Array, d: int) -> Array:
        """Degrees of freedom of the Student-t predictive."""

    @abc.abstractmethod
    def proper(self, df: np.ndarray, scale: np.ndarray, d: int) -> bool:
        """Whether the prior of the precision has a finite integral."""

    @abc.abstractmethod
    def auto_prior(self, variance: np.ndarray) -> tuple[float, np.ndarray]:
        """(ν, Ψ) worth one pseudo-row of these column variances."""

    @abc.abstractmethod
    def scale_shapes(self, d: int) -> list[tuple[int, ...]]:
        """Shapes that a stated scale may have."""

    @abc.abstractmethod
    def full_scale(self, scale: np.ndarray, d: int) -> np.ndarray:
        """A stated scale in the shape that the formulas need."""

    @abc.abstractmethod
    def precision_prior(self, df, scale, proper: bool) -> dist.Distribution: ...

    @abc.abstractmethod
    def mean_prior(self, loc, strength, precision) -> dist.Distribution: ...

    @abc.abstractmethod
    def invert(self, precision): ...

    # -- densities
    @abc.abstractmethod
    def distribution(self, mean, cov, df=None) -> dist.Distribution:
        """Normal, or Student-t with df degrees of freedom: batch (K,), event (d,)."""

    @abc.abstractmethod
    def log_prob(self, x, mean, cov, df=None, cells=None) -> jax.Array:
        """Its log density (n, K), missing cells integrated out."""

    @abc.abstractmethod
    def quadratic(self, x, mean, cov, cells=None) -> jax.Array:
        """Squared Mahalanobis distances (n, K), missing cells left out."""

    @abc.abstractmethod
    def log_likelihood(self, mean, cov, moments: Moments) -> jax.Array:
        """The normal log likelihood of the rows behind the moments."""

    @abc.abstractmethod
    def conditional_mean(self, x, mean, cov, cells=None) -> jax.Array:
        """E[x | x_obs, class], (n, K, d)."""

    @abc.abstractmethod
    def conditional_draw(self, key, x, y, mean, cov, df=None, cells=None) -> jax.Array:
        """Rows with their missing cells drawn given the others and the class y, (n, d)."""

    def expected(self, x, r, mean, cov, cells=None) -> tuple[Moments, jax.Array]:
        """Moments under weights r (n, K), missing cells integrated out given mean and cov, and the log density (n, K)."""
        return self.soft(x, r), self.log_prob(x, mean, cov, None, cells)

    @abc.abstractmethod
    def pooled_mean(self, key, moments: Moments, precision, centre, pool) -> jax.Array:
        """A draw (K, d) of μ_k ~ N(A⁻¹(Pm + nΛx̄), A⁻¹), A = P + nΛ: class means given precisions Λ and their pool (m, P)."""

    def groups(self, missing: np.ndarray) -> Iterator[tuple[np.ndarray | None, linalg.Cells | None]]:
        """How rows with missing cells are best split into batches."""
        # NaN cells drop out of a sum over columns: every row can go with every other.
        yield None, None

    # -- sizes, for searches
    scalable: ClassVar[bool]  # whether columns may be given in units of their own

    @abc.abstractmethod
    def relative_to(self, scale, factor) -> Array:
        """A scale (covariance, variance) of columns divided by `factor` (d,)."""

    @abc.abstractmethod
    def deviations(self, cov) -> jax.Array:
        """Standard deviations of the columns, broadcastable to the means."""

    @abc.abstractmethod
    def relative(self, delta, cov) -> jax.Array:
        """A change of the covariance in units of the columns' standard deviations."""

    @abc.abstractmethod
    def of_variances(self, variance) -> jax.Array:
        """The covariance without correlations that has these variances of the columns."""

    # -- estimates as users and checks see them
    @abc.abstractmethod
    def add(self, cov, ridge):
        """Σ + ridge · I."""

    @abc.abstractmethod
    def matrices(self, cov: np.ndarray, k: int, d: int) -> np.ndarray:
        """As (K, d, d) matrices."""

    @abc.abstractmethod
    def deficits(self, cov: np.ndarray, mean: np.ndarray) -> list[tuple[int, int, list[int]]]:
        """(class, rank, constant columns) of every covariance that is not positive definite."""

    @abc.abstractmethod
    def least_rows(self, d: int) -> int:
        """Fewest rows of a class that can give a nonsingular covariance."""
