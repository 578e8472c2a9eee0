"""Class probabilities of rows without labels: against an independent optimiser, and as users meet them."""

import functools

import numpy as np
import pandas as pd
import pytest
from conftest import holes, make_rows
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import chi2
from sklearn.exceptions import ConvergenceWarning

from bayesgen import (
    LDA,
    QDA,
    RDA,
    BernoulliNB,
    CategoricalNB,
    ComplementNB,
    Gaussian,
    GaussianNB,
    GenerativeClassifier,
    MixedNB,
    MultinomialNB,
    PoissonNB,
)
from bayesgen.prior_shift import TOLERANCE, adapt

METHODS = ["mle", "map", "posterior"]


def by_another_optimiser(logs, weight=None):
    """argmax Σ w_i log Σ_k π_k f_ik by sequential least squares, its answer made to add up to 1 exactly."""
    weight = np.ones(len(logs)) if weight is None else weight
    density, k = np.exp(logs - logs.max(1, keepdims=True)), logs.shape[1]
    total = {"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(k)}
    found = minimize(
        lambda p: -weight @ np.log(np.maximum(density @ p, 1e-300)) / weight.sum(),
        np.full(k, 1 / k),
        jac=lambda p: -(weight / (density @ p)) @ density / weight.sum(),
        bounds=[(0, 1)] * k,
        constraints=[total],
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return found.x / found.x.sum()


def log_likelihood(logs, probs):
    with np.errstate(divide="ignore"):
        return np.sum(logsumexp(logs + np.log(probs), axis=1))


# -- the algorithm
def overlapping(seed, n, k, apart):
    """Log densities of n values under k normal laws whose means are `apart` standard deviations from each other."""
    rng = np.random.default_rng(seed)
    means = apart * rng.normal(size=k)
    x = means[rng.choice(k, n, p=rng.dirichlet(np.full(k, 0.5)))] + rng.normal(size=n)
    return -0.5 * (x[:, None] - means) ** 2


@pytest.mark.parametrize("apart", [0.1, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("k", [2, 3, 7])
def test_the_maximum_is_that_of_another_optimiser(k, apart):
    for seed in range(4):
        logs, rng = overlapping(seed, 150, k, apart), np.random.default_rng(seed)
        start, weight = rng.dirichlet(np.ones(k)), rng.integers(1, 4, 150).astype(float)
        found = adapt(logs, start, weight)
        assert found.converged and found.n_iter < 40
        np.testing.assert_allclose(found.probs.sum(), 1, rtol=1e-14)
        if (
            apart > 0.1
        ):  # classes that are all but the same leave the maximum flat: its place is not comparable, its height is
            np.testing.assert_allclose(found.probs, by_another_optimiser(logs, weight), rtol=0, atol=1e-6)
        rows = np.repeat(np.arange(150), weight.astype(int))
        best = log_likelihood(logs[rows], by_another_optimiser(logs, weight))
        assert log_likelihood(logs[rows], found.probs) > best - 1e-9 * len(rows)


def test_the_maximum_is_a_fixed_point_of_em_and_no_direction_leads_up():
    for seed in range(20):
        logs = overlapping(seed, 80, 4, 0.8)
        probs = adapt(logs, np.full(4, 0.25), np.ones(80)).probs
        posterior = np.exp(logs) * probs / (np.exp(logs) @ probs)[:, None]
        np.testing.assert_allclose(posterior.mean(0), probs, rtol=0, atol=1e-10)
        assert np.max(np.mean(np.exp(logs) / (np.exp(logs) @ probs)[:, None], 0)) <= 1 + 1e-10


def test_every_step_goes_up():
    for seed in range(10):
        logs, start = overlapping(seed, 60, 5, 1.0), np.random.default_rng(seed).dirichlet(np.ones(5))
        path = [log_likelihood(logs, adapt(logs, start, np.ones(60), max_steps=m).probs) for m in range(25)]
        assert np.all(np.diff(path) >= -1e-12 * abs(path[-1]))
        assert path[-1] > path[0]


def test_it_ends_where_em_creeps():
    logs = overlapping(3, 2000, 4, 0.3)
    found = adapt(logs, np.full(4, 0.25), np.ones(2000))
    assert found.converged and found.n_iter < 40
    slow, density = np.full(4, 0.25), np.exp(logs)
    for _ in range(1000):
        slow = slow * np.mean(density / (density @ slow)[:, None], 0)
    assert np.abs(slow - found.probs).max() > 0.01  # the case is a hard one
    assert log_likelihood(logs, found.probs) > log_likelihood(logs, slow)


def test_densities_of_any_scale():
    logs = overlapping(1, 100, 3, 2.0)
    shift = np.random.default_rng(0).uniform(-3000, 3000, (100, 1))
    a, b = (adapt(table, np.array([0.2, 0.3, 0.5]), np.ones(100)).probs for table in (logs, logs + shift))
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_one_row_one_class_and_classes_that_are_the_same():
    assert adapt(np.array([[-1.0, -2.0, -9.0]]), np.full(3, 1 / 3), np.ones(1)).probs.tolist() == [1, 0, 0]
    assert adapt(np.array([[-1.0], [-5.0]]), np.ones(1), np.ones(2)).probs.tolist() == [1]
    # of two classes that are the same the rows say only how frequent they are together
    twins = np.log([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]])[:, [0, 1, 1]]
    found = adapt(twins, np.array([0.2, 0.6, 0.2]), np.ones(4))
    assert found.converged and found.probs.min() > 0
    np.testing.assert_allclose(found.probs[0], 0.8125, rtol=1e-9)  # 3 · 0.8/(0.8 π + 0.1) = 0.8/(0.9 − 0.8 π)


def test_a_search_cut_short_says_so():
    found = adapt(overlapping(0, 50, 3, 1.0), np.full(3, 1 / 3), np.ones(50), max_steps=2)
    assert not found.converged and found.n_iter == 2


# -- estimators
def frame(seed=0, n=120):
    """Categories, counts and numbers in three classes, some cells missing."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    y[:3] = [0, 1, 2]
    table = pd.DataFrame(
        {
            "mass": rng.normal(size=n) + 1.2 * y,
            "sky": np.array(["fog", "rain", "sun"])[(rng.integers(0, 2, n) + y) % 3],
            "eggs": rng.poisson(1.0 + y),
            "ringed": rng.random(n) < 0.3 + 0.2 * y,
        }
    )
    return table.mask(rng.random(table.shape) < 0.15), np.array(["a", "b", "c"])[y]


def texts(seed=0, n=120, d=30):
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=[0.6, 0.2, 0.2])
    y[:3] = [0, 1, 2]
    words = np.random.default_rng(9).dirichlet(np.full(d, 0.5), 3)
    return sparse.csr_array(rng.poisson(6 * words[y]).astype(float)), y


ROWS = make_rows(n=60)
CASES = {
    "LDA": (LDA(), ROWS),
    "QDA": (QDA(), ROWS),
    "QDA, spherical": (QDA("spherical"), ROWS),
    "RDA": (RDA(0.5, 0.5), ROWS),
    "GaussianNB": (GaussianNB(), (holes(ROWS[0]), ROWS[1])),
    "CategoricalNB": (CategoricalNB(), (frame()[0][["sky"]], frame()[1])),
    "MixedNB": (MixedNB({"eggs": "poisson"}), frame()),
    "blocks": (
        GenerativeClassifier([([0, 2], Gaussian("full", tied=True)), ([1], Gaussian("diag"))]),
        ROWS,
    ),
    "PoissonNB, sparse": (PoissonNB(), texts()),
    "BernoulliNB, sparse": (BernoulliNB(binarize=0.5), texts()),
    "MultinomialNB, sparse": (MultinomialNB(), texts()),
}


@functools.cache
def fitted(name, method):
    clf, (X, y) = CASES[name]
    return type(clf)(**clf.get_params() | {"method": method, "random_state": 0}).fit(X, y)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", list(CASES))
def test_every_classifier_finds_the_maximum(name, method):
    if (name, method) == ("RDA", "mle"):
        pytest.skip("RDA has no mle")
    X, _ = CASES[name][1]
    new = X.iloc[40:80] if hasattr(X, "iloc") else X[20:50]
    clf = fitted(name, method)
    adapted = clf.adapt_priors(new)
    assert adapted.priors_converged_ and 0 <= adapted.priors_n_iter_ < 40
    logs = clf.log_joint(new) - np.log(clf.priors_)
    np.testing.assert_allclose(adapted.priors_, by_another_optimiser(logs), rtol=0, atol=1e-6)
    # the copy is the same model with other class probabilities
    share = clf.predict_proba(new) * adapted.priors_ / clf.priors_
    np.testing.assert_allclose(adapted.predict_proba(new), share / share.sum(1, keepdims=True), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(adapted.predict_proba(new).mean(0), adapted.priors_, rtol=0, atol=1e-9)
    assert adapted.score_samples(new).sum() >= clf.score_samples(new).sum()


KNOWN = QDA.from_parameters([0, 1, 2], [0.8, 0.1, 0.1], [[0.0, 0], [2, 0], [0, 2]], [np.eye(2), np.eye(2), 2 * np.eye(2)])


def shifted(seed, n, truth):
    """Rows of the known classes in other proportions."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=truth)
    return KNOWN.means_[y] + rng.normal(size=(n, 2)) * np.sqrt([1, 1, 2])[y][:, None], y


def test_shifted_frequencies_are_recovered():
    truth, basis, total = np.array([0.1, 0.3, 0.6]), np.array([[1, 0], [0, 1], [-1, -1.0]]), 0.0
    for seed in range(20):
        X, _ = shifted(seed, 2000, truth)
        error = (KNOWN.adapt_priors(X).priors_ - truth)[:2]
        density = np.exp(KNOWN.log_joint(X) - np.log(KNOWN.priors_))
        ratio = density / (density @ truth)[:, None]
        total += error @ (basis.T @ ratio.T @ ratio @ basis) @ error  # by the information of the rows: chi-square, 2 each
    low, high = chi2.ppf([1e-4, 1 - 1e-4], 40)
    assert low < total < high


def test_adapting_to_a_shift_classifies_better():
    X, y = shifted(0, 20_000, [0.1, 0.3, 0.6])
    adapted, known = KNOWN.adapt_priors(X), KNOWN.with_priors([0.1, 0.3, 0.6])
    assert adapted.score(X, y) > KNOWN.score(X, y) + 0.1
    assert abs(adapted.score(X, y) - known.score(X, y)) < 0.005


def test_missing_cells_and_rows_without_any():
    X, y = ROWS
    clf, gaps = QDA().fit(X, y), holes(X)
    logs = clf.log_joint(gaps) - np.log(clf.priors_)
    np.testing.assert_allclose(clf.adapt_priors(gaps).priors_, by_another_optimiser(logs), rtol=0, atol=1e-6)
    # rows without cells say nothing
    more = np.vstack([gaps, np.full((50, 3), np.nan)])
    np.testing.assert_allclose(clf.adapt_priors(more).priors_, clf.adapt_priors(gaps).priors_, rtol=0, atol=1e-9)
    alone = clf.adapt_priors(np.full((5, 3), np.nan))
    np.testing.assert_allclose(alone.priors_, clf.priors_, rtol=1e-12)


def test_sampled_posteriors_are_averaged_first():
    X, y = ROWS
    clf = QDA(method="posterior", engine="laplace", num_draws=50, random_state=0).fit(X, y)
    logs = clf.log_joint(X[:30]) - np.log(clf.priors_)
    adapted = clf.adapt_priors(X[:30])
    np.testing.assert_allclose(adapted.priors_, by_another_optimiser(logs), rtol=0, atol=1e-6)
    assert np.all(adapted.draws_["class_probs"] == adapted.priors_)
    np.testing.assert_array_equal(adapted.draws_["mean"], clf.draws_["mean"])


def test_weights_are_repeated_rows():
    X, y = ROWS
    clf, weight = LDA().fit(X, y), np.arange(60) % 3
    a = clf.adapt_priors(X, sample_weight=weight)
    b = clf.adapt_priors(np.repeat(X, weight, axis=0))
    np.testing.assert_allclose(a.priors_, b.priors_, rtol=1e-9)
    with pytest.raises(ValueError, match="egative"):
        clf.adapt_priors(X, sample_weight=np.full(60, -1.0))
    with pytest.raises(ValueError, match="sample_weight.shape"):
        clf.adapt_priors(X, sample_weight=np.ones(59))


def test_nothing_else_changes():
    X, y = ROWS
    clf = LDA(method="posterior", random_state=0).fit(X, y)
    before = clf.priors_.copy()
    adapted = clf.adapt_priors(X[:20])
    np.testing.assert_array_equal(clf.priors_, before)
    assert clf.priors is None and not hasattr(clf, "priors_n_iter_")
    np.testing.assert_array_equal(adapted.params_["mean"], clf.params_["mean"])
    np.testing.assert_array_equal(adapted.draws_["mean"], clf.draws_["mean"])
    # priors that are given are not found
    assert not hasattr(adapted.with_priors("uniform"), "priors_converged_")
    # given probabilities are divided by their sum, which may round
    np.testing.assert_allclose(adapted.with_priors(clf.priors_).predict_proba(X), clf.predict_proba(X), rtol=1e-14)
    # the answer does not depend on where the search starts, nor on how often it is made
    for start in (clf.with_priors("uniform"), clf.with_priors([0.98, 0.01, 0.01]), adapted):
        np.testing.assert_allclose(start.adapt_priors(X[:20]).priors_, adapted.priors_, rtol=0, atol=1e-9)
    # what is fixed stays fixed when more rows come
    fixed = adapted.priors_
    np.testing.assert_array_equal(adapted.partial_fit(X, y).priors_, fixed)


def test_a_class_of_probability_0_keeps_it_until_it_is_let_in():
    X, y = ROWS
    clf = GaussianNB(priors=[0.5, 0.5, 0]).fit(X, y)
    adapted = clf.adapt_priors(X)
    assert adapted.priors_[2] == 0
    logs = clf.with_priors("uniform").log_joint(X)
    np.testing.assert_allclose(adapted.priors_[:2], by_another_optimiser(logs[:, :2]), rtol=0, atol=1e-6)
    let_in = clf.with_priors("uniform").adapt_priors(X)
    np.testing.assert_allclose(let_in.priors_, by_another_optimiser(logs), rtol=0, atol=1e-6)
    assert let_in.priors_[2] > 0.3


def test_rows_that_are_impossible_everywhere_are_left_out():
    X = np.array([[0, 1], [0, 1], [0, 0], [1, 1], [1, 1], [1, 0]])
    clf = BernoulliNB(method="mle").fit(np.column_stack([X, np.ones(6, int)]), list("aaabbb"))
    new = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 1], [1, 1, 0]])  # nobody has seen the last
    with pytest.warns(UserWarning, match=r"1 row\(s\) have density 0 under every class \(first: row 3\)"):
        adapted = clf.adapt_priors(new)
    np.testing.assert_allclose(adapted.priors_, [1 / 3, 2 / 3], rtol=1e-12)
    with pytest.raises(ValueError, match="None of the 1 row"):
        clf.adapt_priors(new[3:])
    with pytest.raises(ValueError, match="weight"):
        clf.adapt_priors(new, sample_weight=np.zeros(4))


def test_one_class_few_rows_and_what_is_refused():
    X, y = ROWS
    alone = QDA().fit(X[y == 0], y[y == 0])
    assert alone.adapt_priors(X).priors_.tolist() == [1]
    one = LDA().fit(X, y).adapt_priors(X[:1])
    assert one.priors_.max() == 1 and one.priors_.sum() == 1
    assert not hasattr(ComplementNB(), "adapt_priors")
    with pytest.raises(ValueError, match="0 sample"):
        LDA().fit(X, y).adapt_priors(X[:0])
    with pytest.raises(ValueError, match="not fitted"):
        LDA().adapt_priors(X)
    with pytest.raises(ValueError, match="3 features"):
        LDA().fit(X, y).adapt_priors(X[:, :2])


def test_a_warning_when_the_search_is_cut_short(monkeypatch):
    X, y = ROWS
    clf = LDA().fit(X, y)
    monkeypatch.setattr("bayesgen.prior_shift.TOLERANCE", -TOLERANCE - 2)
    with pytest.warns(ConvergenceWarning, match="did not converge in 200 steps"):
        adapted = clf.adapt_priors(X[:20])
    assert not adapted.priors_converged_ and adapted.priors_n_iter_ == 200
