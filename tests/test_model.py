"""`clf.model` as a plain NumPyro model."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from conftest import holes, make_rows
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, Predictive
from numpyro.infer.util import log_density

from bayesgen import LDA, QDA, RDA, Family, GaussianNB
from bayesgen.families import Gaussian, Labels
from bayesgen.joint import Block, ClassPrior, Joint

X, y = make_rows(0, 40, 2, 2)
NAMES = np.array(["no", "yes"])[y]


@pytest.mark.parametrize(
    "clf", [LDA(), QDA(), GaussianNB(), RDA(alpha=0.5, gamma=0.5), QDA(covariance="spherical")], ids=str
)
def test_trace_has_the_stated_sites(clf):
    clf.fit(X, NAMES)
    trace = handlers.trace(handlers.seed(clf.model, 0)).get_trace(X, NAMES)
    assert set(trace) == {"class_probs", "class", "precision", "mean", "rows", "y", "x"}
    assert trace["x"]["is_observed"] and trace["y"]["is_observed"] and trace["mean"]["value"].shape == (2, 2)


def test_render():
    graph = numpyro.render_model(QDA().fit(X, NAMES).model, (X, NAMES), render_distributions=True)
    assert "precision" in graph.source and "Wishart" in graph.source


def test_nuts_agrees_with_the_exact_posterior():
    clf = QDA(method="posterior", num_draws=4000, random_state=0).fit(X, NAMES)
    with jax.enable_x64(True):
        mcmc = MCMC(NUTS(clf.model), num_warmup=400, num_samples=1500, progress_bar=False)
        mcmc.run(jax.random.key(0), X, NAMES)
        samples = mcmc.get_samples()
        covariance = np.linalg.inv(np.asarray(samples["precision"]))
    for got, want in ((samples["mean"], clf.draws_["mean"]), (covariance, clf.draws_["covariance"])):
        got = np.asarray(got)
        error = want.std(0) / np.sqrt(len(got) / 4)
        assert np.all(np.abs(got.mean(0) - want.mean(0)) < 4 * error)
    assert abs(np.asarray(samples["class_probs"]).mean(0)[0] - clf.priors_[0]) < 0.02


def test_missing_labels_and_cells_are_marginalised(x64):
    clf = QDA().fit(X, NAMES)
    rows, labels = holes(X, 0.2)[:6], np.array(["no", None, "yes", None, "no", "yes"], dtype=object)
    trace = handlers.trace(handlers.seed(clf.model, 1)).get_trace(rows, labels)
    theta = {name: trace[name]["value"] for name in ("class_probs", "precision", "mean")}
    total = log_density(clf.model, (rows, labels), {}, theta)[0]
    prior = log_density(clf.model, (rows[:1] * np.nan, np.array([None], dtype=object)), {}, theta)[0]
    family = Gaussian("full")
    table = np.log(theta["class_probs"]) + family.log_prob(theta, jax.numpy.asarray(rows))
    codes = {"no": 0, "yes": 1}
    expected = sum(
        float(jax.nn.logsumexp(row)) if label is None else float(row[codes[label]])
        for row, label in zip(table, labels, strict=True)
    )
    np.testing.assert_allclose(total - prior, expected, rtol=1e-10)
    # inside jit the labels are codes, and the answer is the same
    traced = jax.jit(lambda c: log_density(clf.model, (rows, c), {}, theta)[0])(np.array([0, -1, 1, -1, 0, 1]))
    np.testing.assert_allclose(traced, total, rtol=1e-12)


def test_rows_are_sampled_when_none_are_given():
    clf = LDA().fit(X, NAMES)
    draws = Predictive(clf.model, num_samples=5)(jax.random.key(0), num_rows=7)
    assert draws["x"].shape == (5, 7, 2) and draws["y"].shape == (5, 7)


def test_single_precision_callers_are_served():
    clf = LDA().fit(X, NAMES)
    trace = handlers.trace(handlers.seed(clf.model, 0)).get_trace(X, NAMES)
    assert trace["mean"]["value"].dtype == np.float32


def test_several_blocks_have_scoped_sites(x64):
    families = [Gaussian("full").resolve(X, Labels(y, 2)), Gaussian("diag").resolve(X[:, :1], Labels(y, 2))]
    blocks = (Block("left", families[0], (0, 2)), Block("right", families[1], (1,)))
    joint = Joint(ClassPrior(), blocks, 2, 3)
    table = np.column_stack([X[:, 0], X[:, 1] * 2, X[:, 1]])
    trace = handlers.trace(handlers.seed(joint.model, 0)).get_trace(table, y)
    assert {"left.mean", "right.mean", "left.precision", "right.precision", "left.x", "right.x", "y", "class_probs"} <= set(
        trace
    )
    params = joint.gather(
        np.array([0.3, 0.7]), [f.map(f.stats(t, Labels(y, 2))) for f, t in zip(families, (X, X[:, :1]), strict=True)]
    )
    parts = [f.log_prob(joint.params_of(b, params), b.take(table)) for f, b in zip(families, blocks, strict=True)]
    np.testing.assert_allclose(joint.log_joint(params, table), np.log([0.3, 0.7]) + parts[0] + parts[1], rtol=1e-12)
    gaps = holes(table, 0.3)
    got = np.full((40, 2), np.nan)
    for rows, cells in joint.groups(np.isnan(gaps)):
        rows = slice(None) if rows is None else rows
        got[rows] = joint.log_joint(params, gaps[rows], cells)
    np.testing.assert_allclose(got, joint.log_joint(params, gaps), rtol=1e-10, atol=1e-12)


def test_a_users_family_in_two_methods():
    class Lomax(Family):
        rate: float = 1.0

        def model(self, num_classes, num_features):
            with numpyro.plate("class", num_classes):
                return {"rate": numpyro.sample("rate", dist.Gamma(2.0, self.rate).expand([num_features]).to_event(1))}

        def distribution(self, params):
            return dist.Exponential(params["rate"]).to_event(1)

    joint = Joint(ClassPrior(1.0), (Block("wait", Lomax()),), 2, 2)
    rows = np.abs(X)
    rows[0, 1] = np.nan
    trace = handlers.trace(handlers.seed(joint.model, 0)).get_trace(rows, y)
    theta = {"class_probs": trace["class_probs"]["value"], "rate": trace["rate"]["value"]}
    rate = np.asarray(theta["rate"])
    expected = np.log(theta["class_probs"])[None] + np.nansum(np.log(rate) - rate * rows[:, None, :], -1)
    np.testing.assert_allclose(joint.log_joint(theta, rows), expected, rtol=1e-5)
    assert joint.sample_rows(jax.random.key(0), theta, np.array([0, 1, 1])).shape == (3, 2)
    leaves, structure = jax.tree_util.tree_flatten(Lomax(2.0))
    assert leaves == [2.0] and jax.tree_util.tree_unflatten(structure, [3.0]).rate == 3.0
