"""Simulation-based calibration of the exact posterior, under a fixed prior: ranks of the truth among draws are uniform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesgen.families import Bernoulli, Categorical, Gaussian, Labels, Multinomial, NormalWishart, Poisson

DRAWS = 19


DISCRETE = {
    "bernoulli": (Bernoulli(0.5), 2),
    "categorical": (Categorical(0.5, sizes=(3, 2)), 2),
    "multinomial": (Multinomial(0.5, total=6.0), 3),
    "poisson": (Poisson(0.5, 0.7), 2),
}


def ranks(structure, replications, d=2):
    """Rank of every scalar parameter among DRAWS posterior draws, one row per replication."""
    scale = 2.0 if structure[0] == "spherical" else np.linspace(1, 2, d)
    family = Gaussian(*structure, NormalWishart(np.linspace(-1, 1, d), 0.8, d + 3.0, scale))
    return ranks_of(family.resolve_stats(family.stats(np.empty((0, d)), Labels(np.empty(0, int), 2))), replications, d)


def ranks_of(family, replications, d, rows=8, k=2):
    y = jnp.arange(rows * k) % k

    def one(key):
        key_truth, key_rows, key_draws = jax.random.split(key, 3)
        truth = family.draw(key_truth, k, d)
        posterior = family.update(family.stats(family.sample(key_rows, truth, y), jax.nn.one_hot(y, k)))
        draws = jax.vmap(lambda use: posterior.draw(use, k, d))(jax.random.split(key_draws, DRAWS))
        below = jax.tree_util.tree_map(lambda drawn, true: jnp.sum(drawn < true, 0).ravel(), draws, truth)
        return jnp.concatenate(jax.tree_util.tree_leaves(below))

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), replications)))


def check(table):
    pvalues = [stats.chisquare(np.bincount(column, minlength=DRAWS + 1)).pvalue for column in table.T]
    # Bonferroni over the parameters: one false alarm in a thousand runs
    assert min(pvalues) > 1e-3 / len(pvalues)


@pytest.mark.parametrize("structure", [("full", False), ("diag", True), ("spherical", False)], ids=str)
def test_ranks_are_uniform(structure, x64):
    check(ranks(structure, 400))


@pytest.mark.slow
def test_ranks_are_uniform_in_many_replications(structure, x64):
    check(ranks(structure, 20_000))


@pytest.mark.parametrize("name", list(DISCRETE))
def test_ranks_are_uniform_for_discrete_families(name, x64):
    family, d = DISCRETE[name]
    check(ranks_of(family, 400, d))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(DISCRETE))
def test_ranks_are_uniform_for_discrete_families_in_many_replications(name, x64):
    family, d = DISCRETE[name]
    check(ranks_of(family, 20_000, d))
