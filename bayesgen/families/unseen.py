"""Columns that a class has no cell of: their parameters given the others, which the data leave as the prior has them.

Columns u without a cell, o with some, under Λ ~ Wishart(ν, rate Ψ), μ | Λ ~ N(m, (κΛ)⁻¹), Σ = Λ⁻¹:

    Σ_uu.o ~ inverse Wishart(ν, Ψ_uu.o),    B | Σ_uu.o ~ N(Ψ_uo Ψ_oo⁻¹, Σ_uu.o ⊗ Ψ_oo⁻¹),    independent of Σ_oo
    Σ_uo = B Σ_oo,    Σ_uu = Σ_uu.o + B Σ_oo Bᵀ
    μ_u | μ_o, Σ ~ N(m_u + B (μ_o − m_o), Σ_uu.o/κ)

Where classes share Σ, it is redrawn for columns that no class has a cell of, means for those that the class has none of.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bayesgen import linalg
from bayesgen.families.base import Params


def refresh(prior, tied: bool, key, params: Params, unseen: np.ndarray) -> Params:
    """Full covariances and means redrawn for the columns in `unseen` (K, p)."""
    mean, cov = params["mean"], params["covariance"]
    nowhere = np.asarray(unseen.all(0))
    for k, mine in enumerate(unseen):
        key, key_cov, key_mean = jax.random.split(key, 3)
        if not tied and mine.any():
            cov = cov.at[k].set(_covariance(prior, key_cov, cov[k], mine))
        if tied and k == 0 and nowhere.any():
            cov = _covariance(prior, key_cov, cov, nowhere)
        if mine.any():
            mean = mean.at[k].set(_mean(prior, key_mean, mean[k], cov if tied else cov[k], mine))
    return params | {"mean": mean, "covariance": cov}


def _split(matrix, unseen: np.ndarray) -> tuple:
    """(B, M_uu.o, M_oo) of a symmetric matrix: the regression of the unseen on the others, and what it leaves."""
    u, o = np.flatnonzero(unseen), np.flatnonzero(~unseen)
    own, cross, rest = matrix[np.ix_(u, u)], matrix[np.ix_(u, o)], matrix[np.ix_(o, o)]
    slope = jnp.linalg.solve(rest, cross.T).T if len(o) else cross
    left = own - slope @ cross.T
    return slope, (left + left.T) / 2, rest


def _covariance(prior, key, cov, unseen: np.ndarray):
    u, o = np.flatnonzero(unseen), np.flatnonzero(~unseen)
    key_left, key_slope = jax.random.split(key)
    centre, scale, rest = _split(jnp.asarray(prior.scale), unseen)
    left = linalg.inverse(dist.Wishart(prior.df, rate_matrix=scale).sample(key_left))
    noise = jax.random.normal(key_slope, centre.shape)
    slope = centre + jnp.linalg.cholesky(left) @ noise @ linalg.inverse_root(rest)[0] if len(o) else centre
    cross = slope @ cov[np.ix_(o, o)]
    out = cov.at[np.ix_(u, o)].set(cross).at[np.ix_(o, u)].set(cross.T)
    own = left + cross @ slope.T
    return out.at[np.ix_(u, u)].set((own + own.T) / 2)


def _mean(prior, key, mean, cov, unseen: np.ndarray):
    u, o = np.flatnonzero(unseen), np.flatnonzero(~unseen)
    slope, left, _ = _split(cov, unseen)
    noise = jnp.linalg.cholesky(left) @ jax.random.normal(key, (len(u),)) / jnp.sqrt(prior.strength)
    shift = slope @ (mean[o] - prior.mean[o]) if len(o) else 0.0
    return mean.at[u].set(jnp.asarray(prior.mean)[u] + shift + noise)
