"""Rows without label: EM and Gibbs against brute force, NumPyro's own sampler, and what labels are worth."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pandas as pd
import pytest
from conftest import holes, make_rows
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC
from numpyro.infer import NUTS as NumPyroNUTS
from scipy import sparse
from scipy import stats as laws
from scipy.special import logsumexp
from test_em import objective

from bayesgen import (
    LDA,
    QDA,
    RDA,
    BernoulliNB,
    Categorical,
    CategoricalNB,
    ComplementNB,
    Gaussian,
    GaussianNB,
    GenerativeClassifier,
    MixedNB,
    MultinomialNB,
    PoissonNB,
    compare,
)
from bayesgen.inference import NUTS, Gibbs

X, Y = make_rows(2, 80, 2, 2)
GAPS = holes(X, 0.2)
SOME = Y.astype(float)
SOME[np.random.default_rng(5).random(len(Y)) < 0.6] = np.nan
OPEN = np.isnan(SOME)


# -- EM
def plain_em(x, y, steps=3000):
    """Mixture EM with given labels, by NumPy: QDA's mle."""
    known = ~np.isnan(y)
    codes = np.where(known, y, 0).astype(int)
    r = np.where(known[:, None], np.eye(2)[codes], 0.0)
    for _ in range(steps):
        n = r.sum(0)
        probs = n / n.sum()
        means = r.T @ x / n[:, None]
        covs = np.stack([(r[:, k, None] * (x - means[k])).T @ (x - means[k]) / n[k] for k in range(2)])
        logs = np.stack([np.log(probs[k]) + laws.multivariate_normal(means[k], covs[k]).logpdf(x) for k in range(2)], 1)
        r = np.where(known[:, None], np.eye(2)[codes], np.exp(logs - logsumexp(logs, axis=1, keepdims=True)))
    return probs, means, covs, r


def test_mle_is_that_of_plain_em():
    probs, means, covs, r = plain_em(X, SOME)
    clf = QDA(method="mle").fit(X, SOME)
    assert clf.engine_ == "em" and clf.converged_ and clf.n_iter_ < 100
    np.testing.assert_allclose(clf.priors_, probs, rtol=1e-6)
    np.testing.assert_allclose(clf.means_, means, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(clf.covariances_, covs, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(clf.label_distributions_, r, atol=1e-6)
    np.testing.assert_array_equal(clf.transduction_, r.argmax(1))
    np.testing.assert_array_equal(clf.transduction_[~OPEN], SOME[~OPEN])


def discrete(kind, n=90, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    if kind is PoissonNB:
        x = rng.poisson(np.array([[1.0, 4.0, 2.0], [3.0, 1.0, 2.0]])[y])
    elif kind is CategoricalNB:
        x = np.stack(
            [rng.random(n) < np.array([0.2, 0.7])[y], rng.integers(0, 3, n), (rng.random(n) < 0.4 + 0.3 * y) * 2], 1
        )
    elif kind is MultinomialNB:
        x = np.stack([rng.multinomial(6, [[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]][k]) for k in y])
    else:
        x = (rng.random((n, 3)) < np.array([[0.2, 0.8, 0.5], [0.7, 0.3, 0.5]])[y]).astype(float)
    labels = y.astype(float)
    labels[rng.random(n) < 0.5] = np.nan
    return x.astype(float), labels, y


@pytest.mark.parametrize("method", ["mle", "map"])
@pytest.mark.parametrize("kind", [BernoulliNB, CategoricalNB, PoissonNB, MultinomialNB, GaussianNB])
def test_the_gradient_vanishes_for_every_family(kind, method, x64):
    x, labels, _ = discrete(kind)
    if kind is not MultinomialNB:
        x = np.where(np.random.default_rng(1).random(x.shape) < 0.15, np.nan, x)
    clf = kind(method=method).fit(x, labels)
    assert clf.converged_
    rows = clf._read(x)
    value, start = objective(clf, x, labels, prior=method == "map")
    slope = jax.jit(jax.grad(value))(start)
    assert max(float(jnp.max(jnp.abs(leaf))) for leaf in slope.values()) < 1e-5, rows.shape
    (path,) = clf._paths
    assert (np.diff(path) >= -1e-12 * abs(path[-1])).all()


@pytest.mark.parametrize("kind", [BernoulliNB, PoissonNB, MultinomialNB])
def test_sparse_rows_are_dense_rows(kind):
    x, labels, _ = discrete(kind)
    a, b = kind().fit(x, labels), kind().fit(sparse.csr_array(x), labels)
    for name, value in a.params_.items():
        np.testing.assert_allclose(b.params_[name], value, rtol=1e-7)
    np.testing.assert_allclose(a.label_distributions_, b.label_distributions_, atol=1e-7)


@pytest.mark.parametrize(
    "make", [lambda: QDA(), lambda: LDA(method="mle"), lambda: MixedNB()], ids=["QDA", "LDA", "MixedNB"]
)
def test_whole_weights_are_repeated_rows(make):
    weight = np.random.default_rng(0).integers(0, 4, len(X))
    a = make().fit(GAPS, SOME, sample_weight=weight)
    b = make().fit(np.repeat(GAPS, weight, 0), np.repeat(SOME, weight))
    for name, value in a.params_.items():
        np.testing.assert_allclose(b.params_[name], value, rtol=1e-6, atol=1e-7)


def test_given_class_probabilities_stay_and_smoothing_counts():
    clf = QDA(priors=[0.9, 0.1]).fit(X, SOME)
    assert clf.priors_.tolist() == [0.9, 0.1]
    clf = LDA(class_smoothing=50.0).fit(X, SOME)
    count = clf.label_distributions_.sum(0)
    np.testing.assert_allclose(clf.priors_, (count + 50) / (len(X) + 100), rtol=1e-7)


def test_the_prior_is_made_of_the_labelled_rows():
    shifted = np.where(OPEN[:, None], X + 1000.0, X)
    assert QDA().fit(X, SOME).prior_.mean.tolist() == QDA().fit(shifted, SOME).prior_.mean.tolist()
    np.testing.assert_allclose(QDA().fit(X, SOME).prior_.scale, QDA().fit(X[~OPEN], Y[~OPEN]).prior_.scale)


# -- what unlabelled rows are worth
@pytest.mark.parametrize("kind", [LDA, QDA])
def test_ten_labels_in_a_thousand_rows(kind):
    """Accuracy within a point of the fit with all the labels, and above that of the ten alone; 20 replications."""
    few, all_, alone = [], [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, 2000)
        x = rng.normal(size=(2000, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]]) + np.array([[0.0, 0.0], [2.0, -1.0]])[y]
        train, labels = slice(0, 1000), np.full(1000, np.nan)
        ten = np.concatenate([np.flatnonzero(y[train] == k)[:5] for k in (0, 1)])
        labels[ten] = y[ten]
        test = x[1000:], y[1000:]
        few.append(kind().fit(x[train], labels).score(*test))
        all_.append(kind().fit(x[train], y[train]).score(*test))
        alone.append(kind().fit(x[ten], y[ten]).score(*test))
    assert np.mean(all_) - np.mean(few) < 0.01
    assert np.mean(few) > np.mean(alone) + 0.01


# -- the posterior
def chain_means(draws):
    """(means, standard errors) of draws (chains, draws, ...)."""
    flat = draws.reshape(*draws.shape[:2], -1)
    return flat.mean((0, 1)), flat.std((0, 1)) / np.sqrt(np.maximum(effective_sample_size(flat), 1))


@pytest.mark.parametrize("tied", [True, False])
def test_gibbs_is_numpyros_sampler_on_the_masked_model(tied):
    """A small table with missing cells and labels: means within four standard errors."""
    kind = LDA if tied else QDA
    clf = kind(method="posterior", num_draws=8000, random_state=0, engine=Gibbs(progress=False)).fit(GAPS[:50], SOME[:50])
    assert clf.engine_ == "gibbs" and clf.diagnostics_["r_hat"] < 1.02
    with jax.enable_x64(True):
        sampler = MCMC(NumPyroNUTS(clf.model), num_warmup=500, num_samples=2000, num_chains=2, progress_bar=False,
                       chain_method="sequential")  # fmt: skip
        sampler.run(jax.random.key(1), GAPS[:50], SOME[:50])
        found = {name: np.asarray(v) for name, v in sampler.get_samples(group_by_chain=True).items()}
    found["covariance"] = np.linalg.inv(found.pop("precision"))
    for name, value in found.items():
        ours = clf.draws_[name].reshape(4, 2000, *clf.draws_[name].shape[1:])
        (a, sa), (b, sb) = chain_means(ours), chain_means(value)
        np.testing.assert_array_less(np.abs(a - b), 4 * np.hypot(sa, sb) + 1e-12, err_msg=name)


def normal_logs(draws, x, cov):
    """log π_k N(x_obs; μ_k, Σ_k) of rows (n, d) under every draw, (S, n, K), by scipy."""
    out = np.zeros((len(draws["mean"]), len(x), draws["mean"].shape[1]))
    for s, k in np.ndindex(out.shape[0], out.shape[2]):
        sigma = cov[s] if cov.ndim == 3 else cov[s, k]
        for i, row in enumerate(x):
            o = ~np.isnan(row)
            law = laws.multivariate_normal(draws["mean"][s, k][o], sigma[np.ix_(o, o)])
            out[s, i, k] = np.log(draws["class_probs"][s, k]) + law.logpdf(row[o])
    return out


@pytest.mark.parametrize("engine", ["gibbs", "nuts"])
def test_the_predictive_averages_the_joint(engine):
    rows = GAPS[1:5]
    clf = QDA(method="posterior", num_draws=40, random_state=0, engine=engine).fit(X, SOME)
    logs = normal_logs(clf.draws_, rows, clf.draws_["covariance"])
    want = logsumexp(logs, axis=0) - np.log(40)
    np.testing.assert_allclose(clf.log_joint(rows), want, rtol=1e-9)
    np.testing.assert_allclose(clf.predict_proba(rows), np.exp(want - logsumexp(want, axis=1, keepdims=True)), rtol=1e-9)
    np.testing.assert_allclose(clf.score_samples(rows), logsumexp(want, axis=1), rtol=1e-9)
    shares = np.exp(logs - logsumexp(logs, axis=2, keepdims=True))
    np.testing.assert_allclose(clf.predict_proba_draws(rows), shares, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(clf.priors_, clf.draws_["class_probs"].mean(0))
    assert clf.draws_["class_probs"].std(0).min() > 0
    # of a training row: p(y | x, θ) averaged over the posterior
    first = np.flatnonzero(OPEN)[:2]
    logs = normal_logs(clf.draws_, X[first], clf.draws_["covariance"])
    shares = np.exp(logs - logsumexp(logs, axis=2, keepdims=True)).mean(0)
    np.testing.assert_allclose(clf.label_distributions_[first], shares, rtol=1e-8, atol=1e-12)


@pytest.fixture(scope="module")
def blocks():
    """Two blocks, cells and labels missing, sampled together."""
    rng = np.random.default_rng(0)
    colour = (rng.random(len(X)) < 0.3 + 0.4 * Y).astype(float) + rng.integers(0, 2, len(X))
    colour[rng.random(len(X)) < 0.2] = np.nan
    table = np.column_stack([colour, GAPS])
    plan = [([1, 2], Gaussian()), ([0], Categorical())]
    return table, GenerativeClassifier(plan, "posterior", num_draws=60, random_state=0).fit(table, SOME)


def test_blocks_that_labels_tie_together(blocks):
    table, clf = blocks
    assert clf.engine_ == "gibbs" and set(clf.diagnostics_) >= {"r_hat", "ess"}
    rows = np.array([[1.0, 0.5, np.nan], [np.nan, 1.0, 2.0], [2.0, np.nan, np.nan]])
    draws = {"mean": clf.draws_["gaussian.mean"], "class_probs": clf.draws_["class_probs"]}
    logs = np.zeros((60, 3, 2))
    seen = ~np.isnan(rows[:, 1:]).all(1)
    logs[:, seen] = normal_logs(draws, rows[seen, 1:], clf.draws_["gaussian.covariance"])
    logs[:, ~seen] = np.log(draws["class_probs"])[:, None]
    colours = np.log(clf.draws_["categorical.prob"][:, :, 0])  # (S, K, C)
    for i, c in enumerate(rows[:, 0]):
        logs[:, i] += 0.0 if np.isnan(c) else colours[:, :, int(c)]
    want = logsumexp(logs, axis=0) - np.log(60)
    np.testing.assert_allclose(clf.log_joint(rows), want, rtol=1e-9)
    # the category of largest probability, the draws weighted by what the other columns say
    weight = np.exp(logs[:, 1] - logsumexp(logs[:, 1]))
    mode = np.argmax(np.einsum("sk,skc->c", weight, np.exp(colours)))
    filled = clf.impute(rows)
    assert filled[1, 0] == mode and not np.isnan(filled).any()
    # the mean of a normal cell given the other, over draws and classes
    weight = np.exp(logs[:, 0] - logsumexp(logs[:, 0]))
    mean, cov = draws["mean"], clf.draws_["gaussian.covariance"]
    given = mean[..., 1] + cov[..., 1, 0] / cov[..., 0, 0] * (0.5 - mean[..., 0])
    np.testing.assert_allclose(filled[0, 2], np.sum(weight * given), rtol=1e-8)


def test_uses_of_blocks_that_labels_tie_together(blocks):
    table, clf = blocks
    x, y = clf.sample(4000, random_state=0)
    np.testing.assert_allclose(np.bincount(y.astype(int)) / 4000, clf.priors_, atol=0.03)
    want = np.einsum("sk,skd->kd", clf.draws_["class_probs"], clf.draws_["gaussian.mean"])
    want /= clf.draws_["class_probs"].sum(0)[:, None]
    for k in range(2):
        np.testing.assert_allclose(x[y == k][:, 1:].mean(0), want[k], atol=0.25)
    ratios = clf.explain(table[:4]).groupby("row")["log_ratio"].sum()
    odds = np.diff(clf.predict_log_proba(table[:4]), axis=1)[:, 0]
    np.testing.assert_allclose(ratios, odds, rtol=1e-8)
    assert ((clf.outlier_pvalues(table[:5], draws=200) > 0) & (clf.outlier_pvalues(table[:5], draws=200) <= 1)).all()
    assert len(clf.impute(table, draws=2)) == 2 and clf.sample(3, given={0: 1.0})[0][:, 0].tolist() == [1, 1, 1]
    data = clf.to_arviz()
    assert data["log_likelihood"]["joint"].shape == (4, 15, 80) and data["observed_data"]["y"].values.min() == -1
    assert data["posterior"]["class_probs"].values.std() > 0
    none = data["log_likelihood"]["conditional"].values[..., OPEN]
    assert (none == 0).all()


def test_compare_counts_rows_without_label_in_joint_scores_only():
    models = {
        name: kind(method="posterior", num_draws=200, random_state=0).fit(X, SOME) for name, kind in (("a", LDA), ("b", QDA))
    }
    table = compare(models)
    assert table.attrs["by"] == "psis_joint" and table["accuracy"].between(0, 1).all()
    points = {"a": LDA(method="mle").fit(X, SOME), "b": QDA(method="mle").fit(X, SOME)}
    lines = compare(points)
    for name, clf in points.items():
        logs = clf.log_joint(X)
        own = np.where(OPEN, logsumexp(logs, axis=1), logs[np.arange(len(X)), np.where(OPEN, 0, Y)])
        np.testing.assert_allclose(lines.loc[name, "log_likelihood"], own.sum(), rtol=1e-10)
        np.testing.assert_allclose(lines.loc[name, "bic"] + 2 * own.sum(), lines.loc[name, "num_parameters"] * np.log(80))


# -- families without statistics
def test_a_family_without_statistics_is_searched_for(x64):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120)
    x = np.column_stack([rng.gamma(3.0, np.array([1.0, 3.0])[y]), rng.normal(2.0 * y, 1.0)])
    labels = np.where(rng.random(120) < 0.6, np.nan, y)
    x[rng.random(x.shape) < 0.1] = np.nan
    clf = MixedNB({0: "gamma"}, method="mle").fit(x, labels)
    assert clf.engine_ == "optimiser" and clf.converged_
    model, start = clf._prior_joint, clf._working

    def value(params):
        table = model.log_joint(params, jnp.asarray(x))
        own = jnp.take_along_axis(table, jnp.where(np.isnan(labels), 0, labels).astype(int)[:, None], 1)[:, 0]
        return jnp.sum(jnp.where(np.isnan(labels), jax.scipy.special.logsumexp(table, -1), own))

    best = float(value(start))
    for name in start:
        for sign in (-1, 1):
            moved = {k: v * (1 + sign * 1e-3 * (k == name)) for k, v in start.items()}
            moved["class_probs"] = moved["class_probs"] / moved["class_probs"].sum()
            assert float(value(moved)) <= best + 1e-9
    drawn = MixedNB({0: "gamma"}, method="posterior", num_draws=200, random_state=0, engine=NUTS(progress=False)).fit(
        x, labels
    )
    assert drawn.engine_ == "nuts" and drawn.score(x, y) > 0.75
    assert drawn.draws_["class_probs"].shape == (200, 2)


# -- labels of every kind
@pytest.mark.parametrize(
    ("labels", "unlabelled"),
    [
        (np.where(OPEN, None, np.array(["a", "b"], object)[Y]), None),
        (pd.Series(np.where(OPEN, None, np.array(["a", "b"], object)[Y]), dtype="category"), None),
        (pd.Series(np.where(OPEN, pd.NA, np.array(["a", "b"], object)[Y]), dtype="string"), None),
        (np.where(OPEN, "?", np.array(["a", "b"])[Y]), "?"),
        (np.where(OPEN, -1, Y), -1),
        (pd.Series(np.where(OPEN, np.nan, Y)).astype("Int64"), None),
        (SOME, None),
    ],
    ids=["None", "category", "string", "marker", "minus one", "nullable integers", "NaN"],
)
def test_missing_labels_of_every_kind(labels, unlabelled):
    clf = LDA(unlabelled=unlabelled).fit(X, labels)
    want = LDA().fit(X, SOME)
    np.testing.assert_array_equal(clf.means_, want.means_)
    assert len(clf.classes_) == 2 and set(clf.transduction_) == set(clf.classes_)
    np.testing.assert_array_equal(clf.transduction_ == clf.classes_[1], want.transduction_ == 1)


def test_fits_with_all_the_labels_say_them_again():
    clf = LDA().fit(X, Y)
    np.testing.assert_array_equal(clf.transduction_, Y)
    np.testing.assert_array_equal(clf.label_distributions_, np.eye(2)[Y])
    with pytest.raises(AttributeError, match="has no transduction_"):
        _ = pickle.loads(pickle.dumps(clf)).transduction_
    partly = pickle.loads(pickle.dumps(LDA().fit(X, SOME)))
    assert partly.transduction_.shape == (80,)


def test_what_cannot_be_done_without_labels():
    clf = QDA().fit(X, SOME)
    for name in ("merge", "forget", "partial_fit", "loo_predict_proba", "log_evidence_"):
        assert not hasattr(clf, name)
    with pytest.raises(ValueError, match="None of the 80 rows has a label"):
        QDA().fit(X, np.full(80, np.nan))
    with pytest.raises(ValueError, match=r"rows have no label.*partial_fit and forget cannot be exact"):
        QDA().fit(X, Y).partial_fit(X, SOME)
    with pytest.raises(ValueError, match=r"rows have no label.*partial_fit and forget cannot be exact"):
        QDA().fit(X, Y).forget(X, SOME)
    with pytest.raises(ValueError, match="ComplementNB has no density that could say which class"):
        ComplementNB().fit(np.abs(X), SOME)
    with pytest.raises(ValueError, match="fractions on rows with missing cells or labels"):
        QDA(method="posterior", engine="gibbs").fit(X, SOME, sample_weight=np.full(80, 0.5))


def test_a_class_that_shrinks_onto_a_few_rows():
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(60, 2)), np.full(60, np.nan)
    labels[:10], labels[10:12] = 0, 1
    x[10:12] = [[3.0, 3.0], [3.0001, 3.0001]]
    with pytest.raises(ValueError, match="covariance of class 1.0 becomes singular: missing labels.*method='map'"):
        QDA(method="mle").fit(x, labels)
    assert QDA().fit(x, labels).converged_


def test_regularised_and_mixed_classifiers_learn_from_rows_without_label():
    clf = RDA(random_state=0).fit(GAPS, SOME)
    assert clf.converged_ and np.mean(clf.transduction_ == Y) > 0.7
    frame = pd.DataFrame({"a": GAPS[:, 0], "b": np.where(GAPS[:, 1] > 0, "high", "low"), "c": X[:, 0] > 1})
    mixed = MixedNB().fit(frame, SOME)
    assert mixed.engine_ == "em" and mixed.converged_ and np.mean(mixed.transduction_ == Y) > 0.6
    assert isinstance(mixed.sample(3)[0], pd.DataFrame)


def test_the_model_of_the_fit_takes_the_same_labels(x64):
    clf = QDA().fit(GAPS, SOME)
    density, _ = numpyro.infer.util.log_density(
        clf.model,
        (GAPS, SOME),
        {},
        {"class_probs": clf.priors_, "mean": clf.means_, "precision": np.linalg.inv(clf.covariances_)},
    )
    np.testing.assert_allclose(clf._paths[0][-1], float(density), rtol=1e-9)
