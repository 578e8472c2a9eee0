"""Faults that users of the engines could meet, each as it was found."""

import threading

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from conftest import make_rows
from sklearn.exceptions import ConvergenceWarning

from bayesgen import LDA, Family, GenerativeClassifier, StudentT
from bayesgen.inference import NUTS

X, Y = make_rows(0, 60, 2, 2)


def test_units_do_not_matter_to_the_search():
    def fitted(unit):
        return GenerativeClassifier([(slice(None), StudentT())]).fit(X * unit, Y)

    want = fitted(1.0)
    for unit in (1e12, 1e-12):
        clf = fitted(unit)
        assert clf.converged_
        np.testing.assert_allclose(clf.params_["loc"] / unit, want.params_["loc"], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(clf.predict_proba(X * unit), want.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("unit", [1e12, 1e-12])
def test_units_do_not_matter_to_samplers(unit):
    want = LDA(method="posterior").fit(X * unit, Y)
    clf = LDA(method="posterior", engine="laplace", random_state=0).fit(X * unit, Y)
    np.testing.assert_allclose(clf.means_ / unit, want.means_ / unit, atol=0.1)
    np.testing.assert_allclose(clf.predict_proba(X * unit), want.predict_proba(X * unit), atol=0.03)


class Hierarchy(Family):
    """Class means about a common one: the joint density is unbounded where their spread is 0."""

    def model(self, num_classes, num_features):
        centre = numpyro.sample("centre", dist.Normal(0.0, 5.0))
        spread = numpyro.sample("spread", dist.HalfNormal(5.0))
        with numpyro.plate("class", num_classes):
            mean = numpyro.sample("mean", dist.Normal(centre, spread).expand([num_features]).to_event(1))
        return {"mean": mean, "spread": spread}

    def distribution(self, params):
        return dist.Normal(params["mean"], 1.0).to_event(1)


def hierarchy_rows():
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(6), 10)
    return rng.normal(size=(60, 1)) + 0.5 * rng.normal(size=(6, 1))[y], y


def spread_by_quadrature(x, y):
    """Posterior mean of the spread: means integrated out, class averages are N(centre, spread² + 1/10)."""
    averages = np.array([x[y == k].mean() for k in range(6)])
    centre, spread = np.linspace(-8, 8, 801)[:, None], np.linspace(0.0005, 12, 4001)[None, :]
    variance = spread**2 + 0.1
    logs = -0.5 * (centre / 5) ** 2 - 0.5 * (spread / 5) ** 2 - 3 * np.log(variance)
    logs = logs - 0.5 * sum((a - centre) ** 2 for a in averages) / variance
    weight = np.exp(logs - logs.max())
    return float((weight * spread).sum() / weight.sum())


def test_a_hierarchy_is_sampled_where_its_mass_is():
    x, y = hierarchy_rows()
    clf = GenerativeClassifier(
        [([0], Hierarchy())], "posterior", NUTS(target_accept=0.95, progress=False), num_draws=2000, random_state=0
    ).fit(x, y)
    want = spread_by_quadrature(x, y)
    assert abs(clf.params_["spread"] - want) < 0.1 * want + 0.05
    with pytest.warns(ConvergenceWarning, match="map of the hierarchy block did not converge"):
        GenerativeClassifier([([0], Hierarchy())]).fit(x, y)


def test_threads_trace_one_after_the_other():
    found: list = [None] * 4

    def fit(i):
        rows = np.random.default_rng(i).normal(size=(40, 2 + i % 2))
        clf = LDA(method="posterior", engine="laplace", random_state=0).fit(rows, np.arange(40) % 2)
        found[i] = np.abs(clf.means_ - [rows[0::2].mean(0), rows[1::2].mean(0)]).max()

    threads = [threading.Thread(target=fit, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(value is not None and value < 0.2 for value in found)


class SharedSize(Family):
    """Counts with a concentration that the classes share, as many numbers as there are classes."""

    def model(self, num_classes, num_features):
        size = numpyro.sample("size", dist.Gamma(2.0, 1.0).expand([num_features]).to_event(1))
        with numpyro.plate("class", num_classes):
            mean = numpyro.sample("mean", dist.Gamma(2.0, 1.0).expand([num_features]).to_event(1))
        return {"size": size, "mean": mean}

    def distribution(self, params):
        return dist.NegativeBinomial2(params["mean"], params["size"]).to_event(1)


def test_parameters_that_classes_share():
    x = np.random.default_rng(0).poisson(3, (60, 2)).astype(float)
    x[::5, 0] = np.nan
    clf = GenerativeClassifier([(slice(None), SharedSize())], "posterior", "laplace", num_draws=50, random_state=0)
    clf.fit(x, np.arange(60) % 2)
    filled = clf.impute(x)
    assert clf.draws_["size"].shape == (50, 2) and clf.draws_["mean"].shape == (50, 2, 2)
    assert np.array_equal(filled, np.rint(filled)) and np.array_equal(filled[~np.isnan(x)], x[~np.isnan(x)])


class Sized(Family):
    pieces: int = 2

    def model(self, num_classes, num_features):
        with numpyro.plate("class", num_classes):
            prior = dist.Gamma(2.0, 1.0).expand([self.pieces]).to_event(1)
            return {"rate": numpyro.sample("rate", prior)}

    def distribution(self, params):
        return dist.Exponential(params["rate"]).to_event(1)


class Taken(Family):
    def model(self, num_classes, num_features):
        with numpyro.plate("class", num_classes):
            return {"rate": numpyro.sample("likelihood", dist.Gamma(2.0, 1.0).expand([num_features]).to_event(1))}

    def distribution(self, params):
        return dist.Exponential(params["rate"]).to_event(1)


def test_fields_that_are_structure_and_names_that_are_taken():
    with pytest.raises(TypeError, match=r"Sized.model.*'pieces'.*static\(\)"):
        GenerativeClassifier([(slice(None), Sized())]).fit(np.abs(X), Y)
    with pytest.raises(ValueError, match="the name 'likelihood' is taken"):
        GenerativeClassifier([(slice(None), Taken())]).fit(np.abs(X), Y)
