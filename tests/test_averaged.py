"""Densities averaged over draws, against plain sums over the draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import holes, make_rows
from scipy import stats
from scipy.special import logsumexp

from bayesgen.families import Bernoulli, Gaussian, NegativeBinomial, Poisson
from bayesgen.families.averaged import Averaged

S, K, D = 5, 2, 2
RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(S, K, D, D))
CASES = {
    "full": (
        Gaussian("full", prior=None),
        {"mean": RNG.normal(size=(S, K, D)), "covariance": ROOT @ np.swapaxes(ROOT, -1, -2) + np.eye(D)},
    ),
    "tied": (
        Gaussian("diag", True, prior=None),
        {"mean": RNG.normal(size=(S, K, D)), "variance": RNG.uniform(0.5, 2, (S, D))},
    ),
    "bernoulli": (Bernoulli(), {"prob": RNG.uniform(0.1, 0.9, (S, K, D))}),
    "poisson": (Poisson(), {"rate": RNG.uniform(0.5, 4, (S, K, D))}),
    "counts": (
        NegativeBinomial(),
        {"log_mean": RNG.uniform(-0.5, 1.5, (S, K, D)), "concentration": RNG.uniform(0.5, 4, (S, K, D))},
    ),
}


def rows_of(name):
    if name in ("full", "tied"):
        return holes(make_rows(1, 12, D, K)[0], 0.3)
    return holes(RNG.integers(0, 2 if name == "bernoulli" else 5, (12, D)).astype(float), 0.3)


def one(params, s):
    return {key: value[s] for key, value in params.items()}


def logs(family, params, x):
    """log f(x | k, θ_s), (S, n, K)."""
    return np.stack([np.asarray(family.log_prob(one(params, s), jnp.asarray(x))) for s in range(S)])


@pytest.fixture(params=list(CASES))
def law(request, x64):
    family, params = CASES[request.param]
    return request.param, family, params, rows_of(request.param)


def test_the_density_is_the_mean_of_the_densities(law):
    _, family, params, x = law
    want = logsumexp(logs(family, params, x), axis=0) - np.log(S)
    np.testing.assert_allclose(Averaged(family).log_prob(params, jnp.asarray(x)), want, rtol=1e-10, atol=1e-12)


def test_parts_of_the_columns_add_up(law):
    name, family, params, x = law
    averaged = Averaged(family)
    assert averaged.separable(params) == (name != "full")
    if name != "full":
        parts = np.asarray(averaged.cell_log_prob(params, jnp.asarray(x)))
        np.testing.assert_allclose(parts.sum(-1), averaged.log_prob(params, jnp.asarray(x)), rtol=1e-10, atol=1e-12)
        first = np.where(np.arange(D) == 0, x, np.nan)
        np.testing.assert_allclose(parts[..., 0], averaged.log_prob(params, jnp.asarray(first)), rtol=1e-10, atol=1e-12)


def test_means_are_weighted_by_what_the_row_says_of_the_draws(law):
    name, family, params, x = law
    share = RNG.dirichlet(np.ones(K), len(x))
    got = np.asarray(Averaged(family).fill(params, jnp.asarray(x), jnp.asarray(share)))
    table = logs(family, params, x)
    weight = np.exp(table - logsumexp(table, axis=0)) * share  # (S, n, K)
    np.testing.assert_allclose(got[~np.isnan(x)], x[~np.isnan(x)], rtol=1e-12)
    for i, j in np.argwhere(np.isnan(x)):
        if name in ("full", "tied"):
            filled = np.stack([np.asarray(family.condition(one(params, s), jnp.asarray(x[i : i + 1])))[0] for s in range(S)])
            np.testing.assert_allclose(got[i, j], np.sum(weight[:, i] * filled[..., j]), rtol=1e-9, atol=1e-12)
            continue
        # the mode of the mixture over draws and classes, by enumeration
        cells = np.full((40, D), np.nan)
        cells[:, j] = np.arange(40)
        cells = cells[: 2 if name == "bernoulli" else 40]
        heights = np.einsum("sk,snk->n", weight[:, i], np.exp(logs(family, params, cells)))
        assert got[i, j] == np.argmax(heights)


def test_drawn_rows_follow_the_averaged_density(law):
    name, family, params, _ = law
    y = jnp.arange(6000) % K
    rows = np.asarray(Averaged(family).sample(jax.random.key(0), params, y))
    for k in range(K):
        mine = rows[np.asarray(y) == k]
        if name in ("full", "tied"):
            cov = params["covariance"][:, k] if name == "full" else params["variance"][:, :, None] * np.eye(D)
            pit = np.mean([stats.norm.cdf(mine[:, 0], params["mean"][s, k, 0], np.sqrt(cov[s, 0, 0])) for s in range(S)], 0)
            assert stats.kstest(pit, "uniform").pvalue > 1e-4
        else:
            top = 2 if name == "bernoulli" else 12
            cells = np.column_stack([np.arange(top), np.full(top, np.nan)]).astype(float)
            p = np.exp(logsumexp(logs(family, params, cells), axis=0) - np.log(S))[:, k]
            counts = np.array([np.sum(mine[:, 0] == v) for v in range(top)])
            p, counts = np.append(p, max(1 - p.sum(), 1e-12)), np.append(counts, len(mine) - counts.sum())
            rare = p * len(mine) < 5
            p, counts = np.append(p[~rare], p[rare].sum() + 1e-12), np.append(counts[~rare], counts[rare].sum())
            assert stats.chisquare(counts, p / p.sum() * len(mine)).pvalue > 1e-4


def test_completed_cells_follow_joint_over_marginal(x64):
    family, params = CASES["full"]
    n = 6000
    given = 0.7
    x = np.tile([given, np.nan], (n, 1))
    y = jnp.zeros(n, int)
    drawn = np.asarray(Averaged(family).complete(jax.random.key(1), params, jnp.asarray(x), y))
    assert np.all(drawn[:, 0] == given)
    mean, cov = params["mean"][:, 0], params["covariance"][:, 0]
    weight = stats.norm.pdf(given, mean[:, 0], np.sqrt(cov[:, 0, 0]))
    slope = cov[:, 0, 1] / cov[:, 0, 0]
    middle, spread = mean[:, 1] + slope * (given - mean[:, 0]), np.sqrt(cov[:, 1, 1] - slope * cov[:, 0, 1])
    pit = np.average([stats.norm.cdf(drawn[:, 1], middle[s], spread[s]) for s in range(S)], axis=0, weights=weight)
    assert stats.kstest(pit, "uniform").pvalue > 1e-4


def test_a_row_of_density_zero_under_every_draw(x64):
    family, params = Bernoulli(), {"prob": np.ones((S, K, D))}
    x = jnp.array([[0.0, jnp.nan]])
    assert np.all(np.isneginf(Averaged(family).log_prob(params, x)))
    filled = np.asarray(Averaged(family).fill(params, x, jnp.full((1, K), 0.5)))
    np.testing.assert_array_equal(filled, [[0.0, 1.0]])
