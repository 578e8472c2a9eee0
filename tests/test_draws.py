"""Draws of discrete parameters come from NumPy: they must follow the stated NumPyro prior, whole or piece by piece."""

import jax
import numpy as np
import pytest
from scipy import stats

from bayesgen import BernoulliNB, CategoricalNB, MultinomialNB, PoissonNB
from bayesgen.estimators import fitted as fitted_module
from bayesgen.families import Bernoulli, Categorical, Labels, Multinomial, Poisson

K, N = 2, 30
RNG = np.random.default_rng(0)
Y = RNG.integers(0, K, N)
CODES = np.stack([RNG.integers(0, c, N) for c in (2, 4, 3)], 1).astype(float)
COUNTS = RNG.poisson(3, (N, 3)).astype(float)
CASES = {
    "bernoulli": (Bernoulli(0.5), (COUNTS > 2).astype(float), "prob"),
    "categorical": (Categorical(0.5, sizes=(2, 4, 3)), CODES, "prob"),
    "multinomial": (Multinomial(0.5), COUNTS, "prob"),
    "poisson": (Poisson(0.5, 2.0), COUNTS, "rate"),
}


@pytest.mark.parametrize("posterior", [False, True])
@pytest.mark.parametrize("name", list(CASES))
def test_draws_by_numpy_follow_the_numpyro_model(name, posterior, x64):
    family, x, key = CASES[name]
    family = family.update(family.stats(x, Labels(Y, K))) if posterior else family
    host = family.host_draws(np.random.default_rng(1), 3000, K, 3)[key].reshape(3000, -1)
    model = jax.vmap(lambda use: family.draw(use, K, 3))(jax.random.split(jax.random.key(1), 3000))[key].reshape(3000, -1)
    assert host.shape == model.shape
    for a, b in zip(host.T, np.asarray(model).T, strict=True):
        assert stats.ks_2samp(a, b).pvalue > 1e-4
    # and jointly: the same covariances between places (each with a standard error of about sd · sd/√n, twice)
    gap = np.abs(np.cov(host.T) - np.cov(np.asarray(model).T)) / np.sqrt(np.outer(host.var(0), host.var(0)))
    assert np.all(gap[~np.eye(len(gap), dtype=bool)] < 6 * np.sqrt(2 / 3000))


@pytest.mark.parametrize("clf", [BernoulliNB(), CategoricalNB(), MultinomialNB(), PoissonNB()], ids=str)
def test_pieces_are_the_whole(clf, monkeypatch):
    x = {"BernoulliNB": (COUNTS > 2).astype(float), "CategoricalNB": CODES}.get(type(clf).__name__, COUNTS)
    clf = clf.set_params(method="posterior", num_draws=21, random_state=0).fit(x, Y)
    whole = {name: value.copy() for name, value in clf.draws_.items()}
    proba, interval, table = clf.predict_proba_draws(x), clf.predict_proba_interval(x), clf.explain(x[:3])
    monkeypatch.setattr(fitted_module, "KEPT_DRAWS", 10)
    monkeypatch.setattr(fitted_module, "PIECE_OF_DRAWS", 100)
    again = clf.fit(x, Y)
    assert len(list(again._pieces_of_draws())) > 1
    for name, value in whole.items():
        np.testing.assert_array_equal(again.draws_[name], value)
    np.testing.assert_array_equal(again.predict_proba_draws(x), proba)
    np.testing.assert_array_equal(again.predict_proba_interval(x), interval)
    np.testing.assert_allclose(again.explain(x[:3])[["low", "high"]], table[["low", "high"]], rtol=1e-12)


def test_draws_that_would_fill_the_memory_are_refused(monkeypatch):
    monkeypatch.setattr(fitted_module, "MOST_DRAWS", 1000)
    clf = PoissonNB(method="posterior", num_draws=500).fit(COUNTS, Y)
    with pytest.raises(MemoryError, match="500 draws of 8 numbers.*Set num_draws to 125 or fewer"):
        _ = clf.draws_
    assert clf.predict_proba_draws(COUNTS).shape == (500, N, K)
