"""Classify, say how sure, generate, fill in, flag: each against a formula, an integral or the law it must follow."""

import jax
import numpy as np
import pandas as pd
import pytest
from conftest import holes, make_rows
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_iris

from bayesgen import LDA, QDA, RDA, GaussianNB
from bayesgen import outliers as kernels

X, y = load_iris(return_X_y=True)
FRAME = load_iris(as_frame=True).data
GAPS = holes(X, 0.3)
KINDS = [LDA(), QDA(), RDA(alpha=0.5, gamma=0.5), GaussianNB(), QDA(covariance="spherical")]
METHODS = ["map", "posterior"]


# every kind and both methods, but not every pair: most of the time is compilation
PAIRS = [(KINDS[0], "map"), (KINDS[0], "posterior"), (KINDS[1], "map"), (KINDS[1], "posterior"), (KINDS[2], "map")]
PAIRS += [(KINDS[3], "posterior"), (KINDS[4], "map")]


@pytest.fixture(params=PAIRS, ids=lambda p: f"{p[0]}-{p[1]}", scope="module")
def fitted(request):
    clf, method = request.param
    return clone(clf).set_params(method=method, random_state=0, num_draws=200).fit(X, y)


def normal_table(clf, rows):
    """log π_k + log N(x_obs; μ_k, Σ_k) by SciPy on the observed sub-block."""
    out = np.tile(np.log(clf.priors_), (len(rows), 1))
    for i, row in enumerate(rows):
        o = ~np.isnan(row)
        for k in range(len(out[0])):
            if o.any():
                out[i, k] += stats.multivariate_normal.logpdf(row[o], clf.means_[k][o], clf.covariances_[k][np.ix_(o, o)])
    return out


@pytest.mark.parametrize("clf", KINDS, ids=str)
def test_log_joint_with_missing_cells_is_the_sub_block_formula(clf):
    fitted = clone(clf).fit(X, y)
    np.testing.assert_allclose(fitted.log_joint(GAPS), normal_table(fitted, GAPS), rtol=1e-9, atol=1e-9)


def test_probabilities_are_consistent(fitted):
    table, proba = fitted.log_joint(GAPS), fitted.predict_proba(GAPS)
    np.testing.assert_allclose(proba.sum(1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(GAPS)), proba, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(proba, np.exp(table) / np.exp(table).sum(1, keepdims=True), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(fitted.score_samples(GAPS), np.log(np.exp(table).sum(1)), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(proba[0], fitted.priors_, rtol=1e-12)  # row 0 has no observed cell
    np.testing.assert_array_equal(fitted.predict(GAPS), proba.argmax(1))


def test_costs(fitted):
    costs = np.array([[0, 1, 4], [2, 0, 1], [9, 1, 0.5]])
    expected = (fitted.predict_proba(GAPS)[:, :, None] * costs).sum(1).argmin(1)
    np.testing.assert_array_equal(fitted.predict(GAPS, costs=costs), expected)


def test_draws_and_intervals(fitted):
    draws = fitted.predict_proba_draws(GAPS[:40])
    low, high = fitted.predict_proba_interval(GAPS[:40], level=0.8)
    assert draws.shape == (200 if fitted.method == "posterior" else 1, 40, 3)
    np.testing.assert_allclose(draws.sum(2), 1.0)
    np.testing.assert_allclose(low, np.quantile(draws, 0.1, axis=0), atol=1e-12)
    np.testing.assert_allclose(high, np.quantile(draws, 0.9, axis=0), atol=1e-12)
    # each draw is the plug-in rule with its own parameters
    s = len(draws) - 1
    again = clone(fitted).set_params(method="map").fit(X, y)
    again._working = {name: value[s] for name, value in fitted.draws_.items()}
    np.testing.assert_allclose(again.predict_proba(GAPS[:40]), draws[s], rtol=1e-9, atol=1e-12)


def test_posterior_predictive_is_the_normalised_average_of_the_joint():
    clf = QDA(method="posterior", num_draws=20_000, random_state=1).fit(X[::5], y[::5])
    rows = np.array([[5.9, 2.9, 4.9, 1.7], [np.nan, 2.9, 4.9, 1.6]])
    parts = []
    for s in range(0, 20_000, 4000):
        chunk = {name: value[s : s + 4000] for name, value in clf.draws_.items()}
        with jax.enable_x64(True):
            parts.append(jax.vmap(lambda p: jax.numpy.exp(clf._density.log_joint(p, rows)))(chunk))
    draws = np.concatenate(parts)[:, :, 1:]  # the first class is so far away that no draw reaches its tail
    error = draws.std(0) / np.sqrt(20_000)
    assert np.all(np.abs(draws.mean(0) - np.exp(clf.log_joint(rows))[:, 1:]) < 5 * error)
    assert np.abs(clf.predict_proba_draws(rows).mean(0) - clf.predict_proba(rows)).max() > 1e-3


# -- generate
def test_samples_have_the_moments_of_the_classes(fitted):
    rows, labels = fitted.sample(30_000, random_state=5)
    counts = np.bincount(labels, minlength=3) / 30_000
    assert np.all(np.abs(counts - fitted.priors_) < 5 * np.sqrt(fitted.priors_ / 30_000))
    for k in range(3):
        error = np.sqrt(np.diagonal(fitted.covariances_[k]) * 1.2 / (labels == k).sum())
        assert np.all(np.abs(rows[labels == k].mean(0) - fitted.means_[k]) < 5 * error)


def test_samples_given_cells_follow_joint_over_marginal(fitted):
    rows, labels = fitted.sample(20_000, given={1: 2.9, 3: 1.7}, random_state=2)
    np.testing.assert_array_equal(rows[:, [1, 3]], np.tile([2.9, 1.7], (20_000, 1)))
    row = np.array([[np.nan, 2.9, np.nan, 1.7]])
    proba = fitted.predict_proba(row)[0]
    counts = np.bincount(labels, minlength=3) / 20_000
    assert np.all(np.abs(counts - proba) < 5 * np.sqrt(proba * (1 - proba) / 20_000) + 1e-12)
    # probability integral transform of one drawn cell, by integrating the conditional density on a grid
    grid = np.linspace(-2, 14, 4001)
    line = np.tile(row, (4001, 1))
    line[:, 0] = grid
    density = np.exp(fitted.score_samples(line) - fitted.score_samples(row))
    cdf = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * (grid[1] - grid[0]))])
    np.testing.assert_allclose(cdf[-1], 1.0, atol=2e-3)
    assert stats.kstest(np.interp(rows[:, 0], grid, cdf), "uniform").pvalue > 1e-4


def test_samples_of_given_classes():
    clf = LDA(random_state=0).fit(FRAME, np.array(["a", "b", "c"])[y])
    rows, labels = clf.sample(4, y="b")
    assert list(labels) == ["b"] * 4 and rows.shape == (4, 4)
    assert list(clf.sample(3, y=["c", "a", "b"])[1]) == ["c", "a", "b"]
    given = pd.Series({FRAME.columns[2]: 4.0})
    assert (clf.sample(5, y="c", given=given)[0][FRAME.columns[2]] == 4.0).all()


def test_randomness():
    clf = QDA(random_state=7).fit(X, y)
    np.testing.assert_array_equal(clf.sample(4)[0], clf.sample(4)[0])
    np.testing.assert_array_equal(clf.sample(4)[0], QDA(random_state=7).fit(X, y).sample(4)[0])
    assert not np.array_equal(clf.sample(4)[0], clf.sample(4, random_state=8)[0])
    for seed in (np.random.default_rng(1), jax.random.key(1), jax.random.PRNGKey(1), np.int64(3), np.random.RandomState(0)):
        assert QDA(random_state=seed).fit(X, y).sample(2, random_state=seed)[0].shape == (2, 4)


def test_samples_keep_the_dtypes_of_the_training_table():
    frame = pd.DataFrame(
        {"f": X[:, 0].astype("float32"), "i": (X[:, 1] * 10).astype(int), "n": pd.array(X[:, 2], "Float64")}
    )
    clf = QDA(random_state=0).fit(frame, y)
    rows, _ = clf.sample(10)
    assert list(rows.dtypes) == list(frame.dtypes)
    assert clf.impute(pd.DataFrame({"f": [1.0, None], "i": [2, 3], "n": [None, 1.5]})).isna().sum().sum() == 0
    assert LDA(random_state=0).fit(X.astype("float32"), y).sample(2)[0].dtype == np.float32


# -- fill in
def mixture_mean(clf, row, weights):
    o = ~np.isnan(row)
    out = row.copy()
    parts = []
    for k in range(len(weights)):
        cov, mean = clf.covariances_[k], clf.means_[k]
        gain = cov[np.ix_(~o, o)] @ np.linalg.inv(cov[np.ix_(o, o)]) if o.any() else np.zeros((len(row), 0))
        parts.append(mean[~o] + gain @ (row[o] - mean[o]))
    out[~o] = np.asarray(weights) @ np.array(parts)
    return out


def test_imputation_is_the_conditional_mean(fitted):
    filled, known = fitted.impute(GAPS[:40]), fitted.impute(GAPS[:40], y=y[:40])
    proba = fitted.predict_proba(GAPS[:40])
    for i in range(40):
        np.testing.assert_allclose(filled[i], mixture_mean(fitted, GAPS[i], proba[i]), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(known[i], mixture_mean(fitted, GAPS[i], np.eye(3)[y[i]]), rtol=1e-9, atol=1e-9)


def test_imputed_draws_average_to_the_imputed_mean(fitted):
    tables = np.array(fitted.impute(GAPS[1:9], draws=500, random_state=1))
    error = tables.std(0) / np.sqrt(500)
    gap = np.abs(tables.mean(0) - fitted.impute(GAPS[1:9]))
    slack = 0.12 * tables.std(0) if fitted.method == "posterior" else 0.0
    # under "posterior" the tables average p(x_mis | x_obs, θ) over θ | D, which is near, not equal, to the predictive mean
    assert np.all(gap < 5 * error + slack + 1e-12)
    observed = ~np.isnan(GAPS[1:9])
    np.testing.assert_array_equal(tables[:, observed], np.tile(GAPS[1:9][observed], (500, 1)))


def test_intervals_of_imputed_draws_cover():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    labels = rng.integers(0, 2, 3000)
    table = rng.normal(size=(3000, 4)) @ root.T + 3 * labels[:, None]
    gaps = np.where(rng.random(table.shape) < 0.25, np.nan, table)
    clf = LDA(method="posterior", random_state=0).fit(table[:1500], labels[:1500])
    draws = np.array(clf.impute(gaps[1500:], draws=100))
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    missing = np.isnan(gaps[1500:])
    cover = ((table[1500:] >= low) & (table[1500:] <= high))[missing].mean()
    assert 0.88 < cover < 0.92


def test_impute_keeps_the_frame():
    frame = FRAME.mask(np.isnan(GAPS)).set_axis(np.arange(150) * 2)
    clf = LDA().fit(FRAME, y)
    filled = clf.impute(frame)
    assert filled.index.equals(frame.index) and list(filled.columns) == list(frame.columns)
    assert filled.notna().all().all()
    assert frame.isna().any().any()
    pd.testing.assert_frame_equal(filled.where(frame.notna()), frame)
    assert [len(t) for t in clf.impute(frame, draws=2)] == [150, 150]
    pd.testing.assert_frame_equal(clf.impute(FRAME), FRAME)


# -- flag
@pytest.mark.parametrize("clf", [QDA(), LDA(), GaussianNB(), QDA(covariance="spherical")], ids=str)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("classes", [1, 3])
def test_outlier_pvalues_are_uniform_on_rows_from_the_model(clf, method, classes):
    x, labels = make_rows(9, n=90, d=4, k=classes)
    fitted = clone(clf).set_params(method=method, random_state=0).fit(x, labels)
    rows = fitted.sample(10_000, random_state=11)[0][:3000]  # as many are simulated: one program serves both
    cases = [np.ones(4, bool), np.array([1, 0, 1, 1], bool), np.array([0, 0, 1, 0], bool)]
    patterns = np.array(cases)[np.arange(3000) % 3]
    pvalues = fitted.outlier_pvalues(np.where(patterns, rows, np.nan))
    assert pvalues.min() > 0 and pvalues.max() <= 1
    for case in range(3):
        assert stats.kstest(pvalues[case::3], "uniform").pvalue > 1e-3


def test_outlier_pvalues_far_out_and_without_cells():
    for clf in (QDA(), LDA(method="posterior"), GaussianNB(), QDA(method="posterior", covariance="spherical")):
        fitted = clf.fit(X, y)
        sd = np.sqrt(np.diagonal(fitted.covariances_[0]))
        far = fitted.means_[0] - 10 * sd
        assert np.all(fitted.outlier_pvalues([far, np.where([1, 0, 1, 1], far, np.nan)]) < 0.01)
        assert fitted.outlier_pvalues(np.full((1, 4), np.nan))[0] == 1.0


def test_exact_tail_equals_simulation():
    x, labels = make_rows(1, n=60, d=3, k=1)
    for method in METHODS:
        fitted = QDA(method=method, random_state=0).fit(x, labels)
        rows = holes(x, 0.2)[1:16]
        with jax.enable_x64(True):
            labels_ = np.zeros(20_000, int)
            simulated = kernels.simulated_tail(fitted._density, fitted._working, rows, labels_, jax.random.key(1))
        np.testing.assert_allclose(fitted.outlier_pvalues(rows), simulated, atol=0.018)


def test_many_patterns_use_fewer_draws(monkeypatch):
    monkeypatch.setattr(kernels, "SIMULATION_BUDGET", 20_000)
    fitted = QDA(random_state=0).fit(X, y)
    some = fitted.outlier_pvalues(GAPS)
    patterns = len(np.unique(np.isnan(GAPS), axis=0))
    draws = max(20_000 // patterns, 500)
    assert 500 <= draws < 10_000
    np.testing.assert_allclose(some * (draws + 1), np.round(some * (draws + 1)), atol=1e-6)  # (r + 1)/(m + 1)
    monkeypatch.undo()
    np.testing.assert_allclose(some, fitted.outlier_pvalues(GAPS), atol=0.08)


# -- geometry
def test_distances_and_discriminants():
    for clf in (LDA(), QDA(), RDA(alpha=0.5, gamma=0.5), LDA(covariance="diag"), QDA(covariance="spherical")):
        fitted = clone(clf).fit(X, y)
        delta = X[:, None, :] - fitted.means_
        expected = np.sqrt(np.einsum("nki,kij,nkj->nk", delta, np.linalg.inv(fitted.covariances_), delta))
        np.testing.assert_allclose(fitted.mahalanobis(X), expected, rtol=1e-9)
        quadratic, linear, constant = fitted.discriminant_coefficients()
        by_hand = np.einsum("ni,kij,nj->nk", X, quadratic, X) + X @ linear.T + constant
        np.testing.assert_allclose(fitted.discriminants(X), by_hand, rtol=1e-8, atol=1e-8)
        gap = fitted.discriminants(GAPS) - fitted.log_joint(GAPS)
        np.testing.assert_allclose(gap, np.broadcast_to(gap[:, :1], gap.shape), atol=1e-8)


def test_transform():
    clf = LDA().fit(FRAME, y)
    coordinates = clf.transform(FRAME)
    assert coordinates.shape == (150, 2)
    assert list(clf.get_feature_names_out()) == ["lda0", "lda1"]
    _, directions = clf._directions()
    np.testing.assert_allclose(directions.T @ clf.covariance_ @ directions, np.eye(2), atol=1e-10)
    np.testing.assert_allclose(clf.priors_ @ clf.means_, clf._directions()[0])
    gaps = FRAME.mask(np.isnan(GAPS))
    np.testing.assert_allclose(clf.transform(gaps), clf.transform(clf.impute(gaps)), rtol=1e-9, atol=1e-9)


def test_zero_density_everywhere_gives_the_class_prior_and_one_warning():
    clf = LDA().fit(X, y)
    rows = np.array([[1e200] * 4, X[0]])
    with pytest.warns(UserWarning, match="density 0 under every class") as caught:
        proba = clf.predict_proba(rows)
    assert len(caught) == 1
    np.testing.assert_allclose(proba[0], clf.priors_)
    assert np.isneginf(clf.score_samples(rows)[0]) and clf.outlier_pvalues(rows)[0] < 0.01
