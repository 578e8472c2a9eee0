"""Class means that are partially pooled: drawn towards their common centre, as far as the data say.

    Λ_k ~ Wishart(ν, rate Ψ)                        (one for all the classes when tied)
    P ~ Wishart(ν, rate Ψ),  m | P ~ N(m₀, (κP)⁻¹)   T = P⁻¹: how far class means lie apart
    μ_k | m, P ~ N(m, P⁻¹)

with Gamma laws in the place of Wishart ones for diagonal and spherical covariances. It is conjugate one parameter at a
time, which is a Gibbs sweep:

    Λ_k | μ_k       ~ Wishart(ν + n_k, Ψ + S_k + n_k (x̄_k − μ_k)(x̄_k − μ_k)ᵀ)
    m, P | μ        the Normal-Wishart posterior of K rows μ_k
    μ_k | Λ_k, m, P ~ N(A_k⁻¹ (Pm + n_kΛ_k x̄_k), A_k⁻¹),  A_k = P + n_kΛ_k
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro import handlers

from bayesgen.families.base import Params
from bayesgen.moments import Moments
from bayesgen.programs import tracing


def model(structure, tied: bool, prior, num_classes: int) -> Params:
    """The sites of a Gaussian family whose means are pooled."""
    wishart = structure.precision_prior(prior.df, prior.scale, prior.proper)
    pool = numpyro.sample("pool_precision", wishart)
    centre = numpyro.sample("pool_mean", structure.mean_prior(prior.mean, prior.strength, pool))
    if tied:
        precision = numpyro.sample("precision", wishart)
    with numpyro.plate("class", num_classes):
        if not tied:
            precision = numpyro.sample("precision", wishart)
        mean = numpyro.sample("mean", structure.mean_prior(centre, jnp.ones(()), pool))
    return {"precision": precision, "mean": mean, "pool_precision": pool, "pool_mean": centre}


def sweep(hyper, structure, tied: bool, prior, key, mean, stats: Moments) -> Params:
    """One Gibbs sweep from class means (K, d); `hyper` is the family of K means as rows of one class."""
    key_precision, key_pool, key_mean = jax.random.split(key, 3)
    scale = prior.scale + structure.total(stats.scatter + structure.outer(stats.mean - mean, stats.weight), tied)
    df = prior.df + structure.total(stats.weight, tied)
    precision = structure.precision_prior(df, scale, True).sample(key_precision)
    posterior = hyper.update(hyper.stats(mean, jnp.ones((len(mean), 1))))
    with tracing:
        drawn = handlers.seed(posterior.model, key_pool)(1, mean.shape[1])
    pool = jax.tree_util.tree_map(lambda leaf: leaf[0], drawn)
    mean = structure.pooled_mean(key_mean, stats, precision, pool["mean"], pool["precision"])
    return {"precision": precision, "mean": mean, "pool_precision": pool["precision"], "pool_mean": pool["mean"]}


def public_key(structure) -> str:
    return f"pool_{structure.key}"


def working(structure, params: Params) -> Params:
    """What users see of the pool: its mean, and T."""
    pool: dict[str, Any] = {"pool_mean": params["pool_mean"]}
    return pool | {public_key(structure): structure.invert(params["pool_precision"])}
