"""Engines and users' families given what they cannot serve: errors that say what and where, and nothing half-fitted."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from conftest import make_rows
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bayesgen import LDA, QDA, BernoulliNB, Family, Gaussian, GenerativeClassifier, MixedNB, NormalWishart
from bayesgen.improper import ImproperGamma
from bayesgen.inference import NUTS, SVI, Gibbs, nuts

X, Y = make_rows(0, 40, 2, 2)
NAMES = np.array(["a", "b"])[Y]
FRAME = pd.DataFrame(np.abs(X), columns=["length", "width"])


class Scales(Family):
    """Normal with mean 0 and a scale per class and column."""

    def model(self, num_classes, num_features):
        with numpyro.plate("class", num_classes):
            return {"scale": numpyro.sample("scale", self.prior_of(num_features))}

    def prior_of(self, num_features):
        return dist.HalfNormal(5.0).expand([num_features]).to_event(1)

    def distribution(self, params):
        return dist.Normal(0.0, params["scale"]).to_event(1)


def classifier(family=None, **settings):
    return GenerativeClassifier([(slice(None), family or Scales())], **settings)


ARGUMENTS = {
    "unknown": (QDA(method="posterior", engine="mcmc"), "engine='mcmc'.*'nuts'.*'laplace'"),
    "map with sampler": (QDA(engine="gibbs"), "engine='gibbs' samples a posterior, but method='map'"),
    "mle with settings": (QDA(method="mle", engine=NUTS()), "engine='nuts' samples a posterior, but method='mle'"),
    "chains": (QDA(method="posterior", engine=NUTS(chains=3)), "num_draws=1000 .* 3 chains"),
    "target": (QDA(method="posterior", engine=NUTS(target_accept=1.5)), "target_accept=1.5"),
    "thin": (QDA(method="posterior", engine=Gibbs(thin=0)), "thin=0"),
    "guide": (QDA(method="posterior", engine=SVI(guide="full")), "guide='full'.*'multivariate'"),
    "exact": (classifier(method="posterior", engine="exact"), "engine='exact'.*Scales family is not known in closed form"),
    "gibbs": (classifier(method="posterior", engine="gibbs"), "engine='gibbs' needs families that are conjugate.*Scales"),
    "pooled map": (classifier(Gaussian(pooling=True)), "method='map' is not defined for class means that are pooled"),
    "pooled improper": (
        classifier(Gaussian(pooling=True, prior=NormalWishart()), method="posterior"),
        "Pooled class means need a proper prior",
    ),
    "pooled exact": (
        classifier(Gaussian(pooling=True), method="posterior", engine="exact"),
        "engine='exact'.*Gaussian family is not known",
    ),
}


@pytest.mark.parametrize("name", list(ARGUMENTS))
def test_arguments(name):
    clf, message = ARGUMENTS[name]
    with pytest.raises(ValueError, match=message):
        clf.fit(X, NAMES)
    assert not hasattr(clf, "params_") and not hasattr(clf, "classes_")


def test_settings_are_ordinary_parameters():
    clf = clone(QDA(method="posterior", engine=NUTS(chains=2, warmup=50)))
    assert clf.engine == NUTS(chains=2, warmup=50) and clf.get_params()["engine"].chains == 2
    clf.set_params(num_draws=40, random_state=0).fit(X, NAMES)
    assert clf.engine_ == "nuts" and clf._chained_draws()[0]["mean"].shape == (2, 20, 2, 2)


class NoModel(Family):
    def distribution(self, params):
        return dist.Normal(0.0, params["scale"]).to_event(1)


class NoDistribution(Family):
    model = Scales.model
    prior_of = Scales.prior_of


class NoEvent(Scales):
    def distribution(self, params):
        return dist.Normal(0.0, params["scale"])


class WrongWidth(Scales):
    def prior_of(self, num_features):
        return dist.HalfNormal(5.0).expand([num_features + 1]).to_event(1)


CONTRACTS = {
    "no model": (NoModel(), "NoModel.*model\\("),
    "no distribution": (NoDistribution(), "NoDistribution.*distribution\\("),
    "no event": (NoEvent(), "NoEvent.distribution.*to_event"),
    "wrong width": (WrongWidth(), "WrongWidth.*3"),
    "a class": (Scales, "Scales"),
    "no family": ("cauchy", "'cauchy' is no family"),
}


@pytest.mark.parametrize("name", list(CONTRACTS))
def test_families_that_break_the_contract(name):
    family, message = CONTRACTS[name]
    with pytest.raises((TypeError, ValueError), match=message):
        classifier(family).fit(X, NAMES)


def test_cells_outside_the_support_are_named():
    frame = FRAME.copy()
    frame.loc[7, "width"] = -2.0
    with pytest.raises(ValueError, match=r"column 'width' has -2 in row 7 \(1 such cells\), but LogNormal .*positive"):
        MixedNB({"width": "lognormal"}).fit(frame, NAMES)
    # at predict time it is a row of density 0
    clf = MixedNB({"width": "lognormal"}).fit(FRAME, NAMES)
    assert np.isneginf(clf.score_samples(frame)[7])
    with pytest.warns(UserWarning, match="density 0 under every class"):
        np.testing.assert_allclose(clf.predict_proba(frame)[7], clf.priors_)


class Nowhere(Scales):
    def distribution(self, params):
        return dist.TransformedDistribution(
            dist.Normal(0.0, params["scale"]), dist.transforms.AffineTransform(jnp.nan, 1.0)
        ).to_event(1)


def test_a_density_that_is_finite_nowhere():
    with pytest.raises(ValueError, match="Nowhere block is not finite.*log likelihood"):
        classifier(Nowhere()).fit(X, NAMES)


class Flat(Scales):
    def prior_of(self, num_features):
        return ImproperGamma(jnp.zeros(num_features), jnp.zeros(num_features)).to_event(1)


def test_an_improper_prior_needs_data():
    clf = classifier(Flat(), method="map")
    clf.fit(X, NAMES)  # the rows make it proper
    assert np.isfinite(clf.params_["scale"]).all()
    gaps = FRAME.copy()
    gaps.loc[NAMES == "b", "width"] = np.nan
    with pytest.raises(
        ValueError, match="Class 'b' has no observed cell in column 'width', and the prior of 'scale' is impr"
    ):
        clf.fit(gaps, NAMES)
    with pytest.raises(ValueError, match="Class 'b' has no observed cell in column 'width', and method='mle' has no prior"):
        classifier(method="mle").fit(gaps, NAMES)
    assert np.isfinite(classifier().fit(gaps, NAMES).params_["scale"]).all()


class Ellipse(Family):
    """Columns that depend on each other."""

    def model(self, num_classes, num_features):
        with numpyro.plate("class", num_classes):
            return {"loc": numpyro.sample("loc", dist.Normal(0.0, 5.0).expand([num_features]).to_event(1))}

    def distribution(self, params):
        d = params["loc"].shape[-1]
        return dist.MultivariateNormal(params["loc"], 0.5 + 0.5 * jnp.eye(d))


def test_dependent_columns_with_gaps_are_refused():
    clf = classifier(Ellipse()).fit(X, NAMES)
    gaps = X.copy()
    gaps[3, 1] = np.nan
    for call in (lambda: clone(clf).fit(gaps, NAMES), lambda: clf.predict_proba(gaps), lambda: clf.impute(gaps)):
        with pytest.raises(ValueError, match="Input X contains NaN: column 1, row 3.*define log_prob"):
            call()
    gaps[3] = np.nan
    np.testing.assert_allclose(clf.predict_proba(gaps)[3], clf.priors_)


def test_sparse_rows_have_no_sampler():
    x = sparse.csr_array(np.eye(6))
    with pytest.raises(ValueError, match="engine='nuts' needs dense rows.*X.toarray"):
        BernoulliNB(method="posterior", engine="nuts").fit(x, [0, 0, 0, 1, 1, 1])


def test_more_rows_with_gaps_are_refused_by_full_covariances():
    clf = LDA(method="posterior", num_draws=50, random_state=0).partial_fit(X, NAMES)
    gaps = X.copy()
    gaps[0, 0] = np.nan
    before = clf.means_.copy()
    with pytest.raises(ValueError, match="Input X contains NaN.*in one fit only"):
        clf.partial_fit(gaps, NAMES)
    np.testing.assert_array_equal(clf.means_, before)


def test_what_is_not_there_is_not_there():
    for clf in (classifier(), MixedNB({0: "gamma"})):
        assert not any(hasattr(clf, name) for name in ("partial_fit", "merge", "forget"))
    assert hasattr(MixedNB({0: "gaussian"}), "partial_fit") and hasattr(MixedNB(), "partial_fit")
    clf = QDA(method="posterior").fit(X, NAMES)
    with pytest.raises(AttributeError, match="nothing was sampled"):
        _ = clf.diagnostics_


def test_an_interrupted_sampler_leaves_nothing_behind(monkeypatch):
    clf = QDA(method="posterior", engine="nuts", random_state=0, num_draws=40).fit(X, NAMES)
    advance, calls = nuts._advance, []

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return advance(*args, **kwargs)

    monkeypatch.setattr(nuts, "_advance", interrupted)
    fresh = clone(clf)
    for victim in (fresh, clf):
        calls.clear()
        with pytest.raises(KeyboardInterrupt):
            victim.fit(X, NAMES)
        assert not [name for name in vars(victim) if name.endswith("_") and not name.startswith("__")]
        assert not hasattr(victim, "_sampled") and not hasattr(victim, "_draws")
    monkeypatch.undo()
    assert clf.fit(X, NAMES).predict(X).shape == (40,)


class Funnel(Family):
    """Neal's funnel: a prior that no step size suits."""

    def model(self, num_classes, num_features):
        with numpyro.plate("class", num_classes):
            log_scale = numpyro.sample("log_scale", dist.Normal(0.0, 3.0).expand([num_features]).to_event(1))
            loc = numpyro.sample("loc", dist.Normal(0.0, jnp.exp(log_scale)).to_event(1))
        return {"loc": loc, "log_scale": log_scale}

    def distribution(self, params):
        return dist.Normal(params["loc"], 100.0).to_event(1)


def test_divergences_and_chains_that_disagree_are_reported():
    clf = classifier(Funnel(), method="posterior", engine=NUTS(warmup=30, progress=False), num_draws=200, random_state=0)
    with pytest.warns(ConvergenceWarning, match="draws diverged.*target_accept=.*to_arviz"):
        clf.fit(X[:6], NAMES[[0, -1, 0, -1, 0, -1]])
    assert clf.diagnostics_["divergences"] > 0


def test_a_search_that_ends_nowhere_is_reported():
    class Endless(Scales):
        def distribution(self, params):  # the likelihood rises for ever as the scale grows
            return dist.Normal(0.0, params["scale"]).mask(False).to_event(1)

        def cell_log_prob(self, params, x):
            return jnp.log(params["scale"]) + 0.0 * x[:, None, :]

    with pytest.warns(ConvergenceWarning, match="mle of the endless block did not converge"):
        clf = classifier(Endless(), method="mle").fit(X, NAMES)
    assert clf.converged_ is False
