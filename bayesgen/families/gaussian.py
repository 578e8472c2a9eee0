"""The Gaussian family: LDA (tied), QDA (per class) and naive Bayes (diagonal) are settings of it.

    full        Λ_k ~ Wishart(ν, rate Ψ),        μ_k | Λ_k ~ N(m, (κΛ_k)⁻¹)
    diagonal    λ_kj ~ Gamma(ν/2, Ψ_j/2),        μ_kj | λ_kj ~ N(m_j, 1/(κλ_kj))
    spherical   λ_k ~ Gamma(ν/2, Ψ/2),           μ_k | λ_k ~ N(m, I/(κλ_k))

and the same with one precision for all classes when tied. With n_k rows of mean x̄_k and scatter S_k the posterior
has the same form, with

    κ_n = κ + n_k,   m_n = (κm + n_k x̄_k)/κ_n,   ν_n = ν + n_k,   Ψ_n = Ψ + S_k + (κn_k/κ_n)(x̄_k − m)(x̄_k − m)ᵀ

(tied: ν_n = ν + n and Ψ_n sums over the classes). A flat mean, κ = 0, costs one degree of freedom per mean.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from bayesgen.covariance import STRUCTURES
from bayesgen.covariance_base import Covariance
from bayesgen.families import pooling as pools
from bayesgen.families import unseen as unseen_columns
from bayesgen.families.base import BATCH_ROWS, Conjugate, Labels, Params, static
from bayesgen.improper import Flat
from bayesgen.moments import Moments, namespace


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["mean", "strength", "df", "scale"],
    meta_fields=["flat", "proper"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class NormalWishart:
    """Prior numbers of a Gaussian: mean m, strength κ, degrees of freedom ν, scale Ψ.

    Zeros give the improper limit, which is accepted where the data make the posterior proper.

    Parameters
    ----------
    mean : float or array (d,)
        Of no account when the strength is 0.
    strength : float
        How many rows the prior mean is worth. 0 is a flat mean.
    df : float
        Degrees of freedom of the Wishart (Gamma) prior of the precision.
    scale : float, array (d,) or (d, d)
        Its rate. For a full covariance a number stands for that multiple of the identity and a vector for a diagonal
        matrix; a diagonal one takes a number or a vector, a spherical one a number.

    Examples
    --------
    >>> NormalWishart(strength=0, df=0, scale=0).flat
    True
    """

    mean: Any = 0.0
    strength: Any = 0.0
    df: Any = 0.0
    scale: Any = 0.0
    flat: bool | None = None
    proper: bool | None = None

    def __post_init__(self):
        if self.flat is None:
            object.__setattr__(self, "flat", bool(np.all(np.asarray(self.strength) == 0)))

    def resolve(self, structure: Covariance, stats: Moments) -> NormalWishart:
        """Every number in the shape that the columns and this covariance structure need."""
        d = stats.mean.shape[-1]
        mean = np.broadcast_to(np.asarray(self.mean, float), (d,)).copy()
        scale = structure.full_scale(np.asarray(self.scale, float), d)
        df, strength = np.asarray(self.df, float), np.asarray(self.strength, float)
        return NormalWishart(mean, strength, df, scale, self.flat, structure.proper(df, scale, d))


class Gaussian(Conjugate):
    """Normal class densities.

    Parameters
    ----------
    covariance : "full", "diag", "spherical" or a covariance object
    tied : bool
        One covariance for all the classes.
    prior : "auto", NormalWishart or Shrinkage
        "auto" is weak and scale-aware: the grand mean worth 0.01 rows, and one pseudo-row of the pooled within-class
        variances.
    unbiased : bool
        Divide by n_k − 1 (n − K when tied) instead of n_k (n) in the maximum-likelihood fit.
    ridge : float
        Added to the variances of the maximum-likelihood and MAP fits.
    pooling : bool
        Class means are drawn towards their common centre: μ_k ~ N(m, T), m and T learnt (see `families.pooling`). Under
        method="posterior" only, by Gibbs sampling or NUTS. It pays where classes are many and rows of each are few.

    Examples
    --------
    >>> import numpy as np
    >>> family = Gaussian("diag")
    >>> stats = family.stats(np.array([[1.0], [3.0]]), Labels(np.array([0, 0]), 1))
    >>> family.mle(stats)["variance"].tolist()
    [[1.0]]
    """

    covariance: Any = static(default="full")
    tied: bool = static(default=False)
    prior: Any = "auto"
    unbiased: bool = static(default=False)
    ridge: Any = 0.0
    pooling: bool = static(default=False)

    def __post_init__(self):
        if isinstance(self.covariance, str):
            object.__setattr__(self, "covariance", STRUCTURES[self.covariance])

    @property
    def dims(self) -> dict[str, list[str]]:  # type: ignore[override]
        """Names of the axes of the public parameters."""
        axes = [] if self.tied else ["class"]
        names = {"mean": ["class", "feature"], self.covariance.key: [*axes, *self.covariance.axes]}
        return names | {"pool_mean": ["feature"], pools.public_key(self.covariance): list(self.covariance.axes)}

    # -- the model
    @property
    def closed_form(self) -> bool:
        return not self.pooling

    def model(self, num_classes: int, num_features: int) -> Params:
        prior = self.prior
        if self.pooling:
            return pools.model(self.covariance, self.tied, prior, num_classes)
        precision_prior = self.covariance.precision_prior(prior.df, prior.scale, prior.proper)
        if self.tied:
            precision = numpyro.sample("precision", precision_prior)
        with numpyro.plate("class", num_classes):
            if not self.tied:
                precision = numpyro.sample("precision", precision_prior)
            if prior.flat:
                mean_prior = Flat(prior.mean)
            else:
                mean_prior = self.covariance.mean_prior(prior.mean, prior.strength, precision)
            mean = numpyro.sample("mean", mean_prior)
        return {"precision": precision, "mean": mean}

    def distribution(self, params: Params):
        return self.covariance.distribution(params["mean"], self._cov(params), params.get("df"))

    def _cov(self, params: Params):
        """Covariances, from public parameters as they are or from the precisions of the model's sites."""
        key = self.covariance.key
        return params[key] if key in params else self.covariance.invert(params["precision"])

    def working(self, params: Params) -> Params:
        pool = pools.working(self.covariance, params) if self.pooling else {}
        return {"mean": params["mean"], self.covariance.key: self._cov(params)} | pool

    def sites(self, params: Params) -> Params:
        return {"mean": params["mean"], "precision": self.covariance.invert(params[self.covariance.key])}

    # -- densities
    def log_prob(self, params: Params, x, cells=None):
        return self.covariance.log_prob(x, params["mean"], self._cov(params), params.get("df"), cells)

    def quadratic(self, params: Params, x, cells=None):
        """Squared Mahalanobis distances (n, K), missing cells left out."""
        return self.covariance.quadratic(x, params["mean"], self._cov(params), cells)

    def bare(self) -> Gaussian:
        return Gaussian(self.covariance, self.tied, prior=None)

    def groups(self, missing: np.ndarray):
        return self.covariance.groups(missing)

    def condition(self, params: Params, x, cells=None):
        """E[x | x_obs, class] (n, K, p): the rows with their missing cells filled under each class."""
        return self.covariance.conditional_mean(x, params["mean"], self._cov(params), cells)

    def complete(self, key, params: Params, x, y, cells=None):
        """The rows with their missing cells drawn given the others and the class y (n,)."""
        mean, cov = params["mean"], self._cov(params)
        return self.covariance.conditional_draw(key, x, y, mean, cov, params.get("df"), cells)

    # -- statistics
    def stats(self, x, r) -> Moments:
        if not isinstance(r, Labels):
            return self._soft_stats(x, r)
        total = self.covariance.empty(r.num_classes, x.shape[1])
        for rows, labels in r.batches():
            total = self.merge(total, self._batch_stats(x[rows], labels))
        return total

    def _batch_stats(self, x: np.ndarray, r: Labels) -> Moments:
        batch = self.covariance.empty(r.num_classes, x.shape[1])
        for k, rows, weight in r.segments():
            for target, value in zip(batch, self.covariance.one_class(x[rows], weight), strict=True):
                target[k] = value
        return batch

    def _soft_stats(self, x, r) -> Moments:
        if isinstance(x, jax.Array) or isinstance(r, jax.Array):
            return self.covariance.soft(x, r)
        total = self.covariance.empty(r.shape[1], x.shape[1])
        for start in range(0, len(x), BATCH_ROWS):
            rows = slice(start, start + BATCH_ROWS)
            total = self.merge(total, self._each_class(x[rows], r[rows]))
        return total

    def _each_class(self, x: np.ndarray, r: np.ndarray) -> Moments:
        parts = [self.covariance.one_class(x, np.ascontiguousarray(column)) for column in r.T]
        return Moments(*(np.stack([np.asarray(p) for p in leaf]) for leaf in zip(*parts, strict=True)))

    def e_step(self, params: Params, x, r, cells=None):
        return self.covariance.expected(x, r, params["mean"], self._cov(params), cells)

    def of_class(self, params: Params, k: int) -> Params:
        cov = params[self.covariance.key]
        return {"mean": params["mean"][k : k + 1], self.covariance.key: cov if self.tied else cov[k : k + 1]}

    def apart(self, k: int) -> Gaussian | None:
        if self.tied or self.pooling:
            return None
        df, scale = np.asarray(self.prior.df), np.asarray(self.prior.scale)
        own = scale[k] if scale.ndim > len(self.covariance.scale_shapes(1)[-1]) else scale
        return dataclasses.replace(self, prior=dataclasses.replace(self.prior, df=df[k] if df.ndim else df, scale=own))

    def begin(self, stats: Moments) -> Params:
        return Gaussian(self.covariance, self.tied).resolve_stats(stats).map(stats)

    def weak(self, x, r) -> Gaussian:
        return Gaussian(self.covariance, self.tied).resolve(x, r)

    def begin_from_cells(self, cells: Moments) -> Params:
        """`begin` from the moments of each column for itself: a full covariance starts without correlations."""
        start = Gaussian("diag", self.tied).begin(cells)
        return {"mean": start["mean"], self.covariance.key: self.covariance.of_variances(start["variance"])}

    def change(self, before: Params, after: Params) -> Params:
        structure, key = self.covariance, self.covariance.key
        mean = (after["mean"] - before["mean"]) / structure.deviations(after[key])
        return {"mean": mean, key: structure.relative(after[key] - before[key], after[key])}

    def resolution(self, params: Params) -> jax.Array:
        relative = jnp.abs(params["mean"]) / self.covariance.deviations(params[self.covariance.key])
        return 8 * jnp.finfo(relative.dtype).eps * jnp.max(relative)

    def scaled(self, factor: np.ndarray) -> Gaussian:
        if not self.covariance.scalable:
            return self
        prior = dataclasses.replace(
            self.prior, mean=self.prior.mean / factor, scale=self.covariance.relative_to(self.prior.scale, factor)
        )
        return dataclasses.replace(self, prior=prior, ridge=self.ridge / factor**2 if np.any(self.ridge) else self.ridge)

    def unscaled(self, params: Params, factor: np.ndarray) -> Params:
        if not self.covariance.scalable:
            return params
        means = {name: params[name] * factor for name in ("mean", "pool_mean") if name in params}
        spreads = (self.covariance.key, pools.public_key(self.covariance))
        return means | {name: self.covariance.relative_to(params[name], 1 / factor) for name in spreads if name in params}

    def merge(self, a: Moments, b: Moments) -> Moments:
        return self.covariance.merge(a, b)

    def remove(self, a: Moments, b: Moments) -> Moments:
        return self.covariance.remove(a, b)

    def log_likelihood(self, params: Params, stats: Moments):
        return self.covariance.log_likelihood(params["mean"], self._cov(params), stats)

    # -- estimates
    def mle(self, stats: Moments) -> Params:
        n = self.covariance.total(stats.weight - (1.0 if self.unbiased else 0.0), self.tied)
        scatter = self.covariance.total(stats.scatter, self.tied)
        return self._with_ridge(stats.mean, self.covariance.ratio(scatter, n))

    def map(self, stats: Moments) -> Params:
        k, d = stats.mean.shape
        prior = self.update(stats).prior
        return self._with_ridge(prior.mean, self.covariance.mode(prior.scale, prior.df, k if self.tied else 1, d))

    def _with_ridge(self, mean, cov) -> Params:
        return {"mean": mean, self.covariance.key: self.covariance.add(cov, self.ridge)}

    def update(self, stats: Moments) -> Gaussian:
        prior, structure = self.prior, self.covariance
        strength = prior.strength + stats.weight
        share = stats.weight / strength
        delta = stats.mean - prior.mean
        between = structure.outer(delta, prior.strength * share)
        posterior = NormalWishart(
            mean=prior.mean + structure.column(share) * delta,
            strength=strength,
            # a flat mean costs one row
            df=prior.df + structure.total(stats.weight - (1.0 if prior.flat else 0.0), self.tied),
            scale=prior.scale + structure.total(stats.scatter + between, self.tied),
            flat=False,
            proper=True,
        )
        return dataclasses.replace(self, prior=posterior)

    def resample(self, key, params: Params, stats: Moments, num_classes: int, num_features: int) -> Params:
        if not self.pooling:
            return super().resample(key, params, stats, num_classes, num_features)
        # a sweep starts from the means; at first those of the rows, where there are some
        seen = self.covariance.column(jnp.asarray(stats.weight)) > 0
        mean = jnp.where(seen, stats.mean, self.prior.mean) if params is None else params["mean"]
        hyper = Gaussian(self.covariance, False, self.prior)
        return self.working(pools.sweep(hyper, self.covariance, self.tied, self.prior, key, mean, stats))

    def refresh(self, key, params: Params, unseen: tuple) -> Params:
        if self.pooling or self.drops_missing:
            return params
        return unseen_columns.refresh(self.prior, self.tied, key, params, np.array(unseen))

    def predictive(self) -> Params:
        prior, structure = self.prior, self.covariance
        df = structure.predictive_df(prior.df, prior.mean.shape[-1])
        factor = (prior.strength + 1) / (prior.strength * structure.per_weight(df))
        return {"mean": prior.mean, structure.key: structure.spread(prior.scale, factor), "df": df}

    def expectation(self) -> Params:
        prior, d = self.prior, self.prior.mean.shape[-1]
        return {"mean": prior.mean, self.covariance.key: self.covariance.expectation(prior.scale, prior.df, d)}

    def centre(self) -> Params:
        precision = self.covariance.invert(self.covariance.ratio(self.prior.scale, self.prior.df))
        return {"mean": self.prior.mean, "precision": precision}

    def has_evidence(self) -> bool:
        return not self.prior.flat and self.prior.proper and not self.pooling

    def resolve_stats(self, stats: Moments) -> Gaussian:
        rule = AutoPrior() if isinstance(self.prior, str) else self.prior
        return dataclasses.replace(self, prior=rule.resolve(self.covariance, stats))

    def resolve(self, x, r):
        if self.drops_missing or not np.isnan(np.asarray(x)).any():
            return super().resolve(x, r)
        # a full covariance has no moments of rows with gaps; the prior asks for those of each column only
        cells = Gaussian("diag").stats(x, r)
        auto = isinstance(self.prior, str)
        prior = AutoPrior().of_cells(self.covariance, cells) if auto else self.prior.resolve(self.covariance, cells)
        return dataclasses.replace(self, prior=prior)

    def without(self, rest: Moments) -> Gaussian:
        """A prior that is made of the rows is made again of those that are left."""
        made = isinstance(self.prior, Shrinkage)
        return dataclasses.replace(self, prior=self.prior.numbers(rest)) if made else self

    @property
    def drops_missing(self) -> bool:
        """Whether the statistics are exact with missing cells."""
        return self.covariance.drops_missing


@dataclasses.dataclass(frozen=True)
class AutoPrior:
    """Weak and scale-aware: m the grand mean worth 0.01 rows, one pseudo-row of the pooled within-class variances."""

    def resolve(self, structure: Covariance, stats: Moments) -> NormalWishart:
        return self.of_cells(structure, structure.cells(stats))

    def of_cells(self, structure: Covariance, cells: Moments) -> NormalWishart:
        """From the moments of each column for itself."""
        mean, variance = column_scales(STRUCTURES["diag"], cells)
        df, scale = structure.auto_prior(variance)
        return NormalWishart(mean, 0.01, df, scale).resolve(structure, cells)


@partial(jax.tree_util.register_dataclass, data_fields=["alpha", "gamma"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Shrinkage:
    """The prior of regularised discriminant analysis: a flat mean and a Wishart whose map is

        Σ_k = α Σ̂_k + (1 − α) {γ Σ̂ + (1 − γ) σ̂² I},   σ̂² = tr(Σ̂)/d

    that is ν − d − 1 = n_k (1 − α)/α and Ψ = (ν − d − 1) {γ Σ̂ + (1 − γ) σ̂² I}.
    """

    alpha: float
    gamma: float

    def resolve(self, structure: Covariance, stats: Moments) -> NormalWishart:
        return self.numbers(stats).resolve(structure, stats)

    def numbers(self, stats: Moments) -> NormalWishart:
        """The prior's numbers; traceable."""
        xp, d = namespace(stats.weight), stats.scatter.shape[-1]
        pooled = stats.scatter.sum(0) / stats.weight.sum()
        target = self.gamma * pooled + (1 - self.gamma) * xp.trace(pooled) / d * np.eye(d)
        # α = 0 is a Wishart of infinite weight; 1e-15 is that to the last bit of α Σ̂_k + (1 − α) {...}.
        alpha = xp.maximum(self.alpha, 1e-15)
        excess = stats.weight * (1 - alpha) / alpha
        return NormalWishart(np.zeros(d), 0.0, d + 1 + excess, excess[:, None, None] * target)


def column_scales(structure: Covariance, stats: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Grand mean and pooled within-class variance of each column; never zero.

    A column that does not vary within the classes takes its total variance, one that does not vary at all
    (1e-6 · mean)², a column of zeros 1.
    """
    weight, mean, scatter = (np.asarray(leaf, float) for leaf in structure.cells(stats))
    n = weight.sum(0)
    safe = np.where(n > 0, n, 1.0)
    # Centre before averaging: the weighted mean of means near 1e8 must keep its digits.
    centre = mean[np.argmax(weight, 0), np.arange(mean.shape[1])]
    grand = centre + (weight * (mean - centre)).sum(0) / safe
    within = scatter.sum(0) / safe
    total = within + (weight * (mean - grand) ** 2).sum(0) / safe
    tiny = (1e-12 * np.abs(grand)) ** 2
    variance = np.where(within > tiny, within, np.where(total > tiny, total, (1e-6 * grand) ** 2))
    return grand, np.where(variance > 0, variance, 1.0)
