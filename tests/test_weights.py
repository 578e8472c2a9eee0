"""Whole weights are repeated rows, everywhere; a row of weight 0 is a row that is not there."""

import numpy as np
import pytest
from cases import ALL, CASES, CLASSES, TABLES, N, Y, classifier, close, rows, same_model
from sklearn.base import clone

from bayesgen import LDA, QDA, RDA, BernoulliNB, GaussianNB, MixedNB

WEIGHT = np.array([1, 2, 0, 3, 1, 2, 1])[np.arange(N) % 7]
COPIES = np.repeat(np.arange(N), WEIGHT)
LEFT, RIGHT = np.arange(0, N, 2), np.arange(1, N, 2)
every = pytest.mark.parametrize(("name", "method"), ALL, ids=[f"{name}-{method}" for name, method in ALL])


def copies(index):
    """Each of these rows as often as it weighs."""
    return np.repeat(index, WEIGHT[index])


@every
def test_fit_and_what_follows_from_it(name, method):
    X = TABLES[CASES[name][1]]
    a = classifier(name, method).fit(X, Y, sample_weight=WEIGHT)
    b = classifier(name, method).fit(rows(X, COPIES), Y[COPIES])
    same_model(a, b, X, 1e-10)
    close(a.score(X, Y, sample_weight=WEIGHT), b.score(rows(X, COPIES), Y[COPIES]), 1e-12)
    close(a.score(X, Y, sample_weight=WEIGHT), np.average(a.predict(X) == Y, weights=WEIGHT), 1e-12)
    if hasattr(a, "prior_") and hasattr(a.prior_, "scale"):
        for number in ("mean", "strength", "df", "scale"):
            close(getattr(a.prior_, number), getattr(b.prior_, number), 1e-10, number)


@every
def test_leaving_one_out_leaves_out_one_copy(name, method):
    X = TABLES[CASES[name][1]]
    a = classifier(name, method).fit(X, Y, sample_weight=WEIGHT)
    if not hasattr(a, "loo_predict_proba"):
        pytest.skip("a decision rule")
    b = classifier(name, method).fit(rows(X, COPIES), Y[COPIES])
    close(a.loo_predict_proba()[COPIES], b.loo_predict_proba(), 1e-8)
    nothing = WEIGHT == 0
    close(a.loo_predict_proba()[nothing], a.predict_proba(rows(X, nothing)), 1e-8)


@every
def test_pieces_merging_and_forgetting(name, method):
    X = TABLES[CASES[name][1]]
    whole = classifier(name, method).fit(rows(X, COPIES), Y[COPIES])
    stream = classifier(name, method)
    for index in (LEFT, RIGHT):
        stream.partial_fit(rows(X, index), Y[index], classes=CLASSES, sample_weight=WEIGHT[index])
    same_model(stream, whole, X, 1e-10)
    # weighed on one side, repeated on the other
    half = classifier(name, method).fit(rows(X, copies(LEFT)), Y[copies(LEFT)])
    other = classifier(name, method).fit(rows(X, RIGHT), Y[RIGHT], sample_weight=WEIGHT[RIGHT])
    same_model(half.merge(other), whole, X, 1e-10)
    same_model(stream.forget(rows(X, copies(RIGHT)), Y[copies(RIGHT)]), half, X, 1e-9)
    same_model(whole.forget(rows(X, RIGHT), Y[RIGHT], sample_weight=WEIGHT[RIGHT]), half, X, 1e-9)


@every
def test_fractions_add_up(name, method):
    X = TABLES[CASES[name][1]]
    share = np.random.default_rng(0).uniform(0.1, 0.9, N)
    stream = classifier(name, method).partial_fit(X, Y, sample_weight=share).partial_fit(X, Y, sample_weight=1 - share)
    same_model(stream, classifier(name, method).fit(X, Y), X, 1e-10)
    same_model(
        stream.forget(X, Y, sample_weight=share), classifier(name, method).fit(X, Y, sample_weight=1 - share), X, 1e-9
    )


def test_shares_of_fractional_weights_are_at_most_1():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x, y, weight = np.ones((30, 3)), np.repeat([0, 1], 15), rng.uniform(0.1, 0.9, 30)
        x[15:, 0] = rng.integers(0, 2, 15)
        x[rng.random(x.shape) < 0.2] = np.nan
        clf = BernoulliNB(method="mle").fit(x, y, sample_weight=weight)
        assert np.all(clf.params_["prob"][:, 1:] == 1) and clf.params_["prob"].max() <= 1
        # and when zeros are taken off again
        more = clone(clf).fit(np.vstack([x, np.zeros((2, 3))]), [*y, 0, 1], sample_weight=[*weight, 0.1, 0.7])
        less = more.forget(np.zeros((2, 3)), [0, 1], sample_weight=[0.1, 0.7])
        assert less.params_["prob"].max() <= 1
        assert not np.isnan(less.log_joint([[1, 0, 1], [1, 1, 1]])).any()


@pytest.mark.parametrize("method", ["map", "posterior"])
def test_the_choice_of_shrinkage(method):
    X = TABLES["numbers"]
    a = RDA(method=method).fit(X, Y, sample_weight=WEIGHT)
    b = RDA(method=method).fit(X[COPIES], Y[COPIES])
    np.testing.assert_allclose([a.alpha_, a.gamma_], [b.alpha_, b.gamma_], rtol=0, atol=1e-5)
    np.testing.assert_allclose(a.loo_score_, b.loo_score_, rtol=1e-9)


@pytest.mark.parametrize("method", ["mle", "map"])
@pytest.mark.parametrize("family", ["gamma", "lognormal"])
def test_modes_that_are_searched_for(family, method):
    X = np.exp(TABLES["cells"][:, :2] / 4)
    a = MixedNB({0: family, 1: family}, method=method).fit(X, Y, sample_weight=WEIGHT)
    b = clone(a).fit(X[COPIES], Y[COPIES])
    for key in a.params_:
        np.testing.assert_allclose(a.params_[key], b.params_[key], rtol=1e-5, err_msg=key)
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X), rtol=0, atol=1e-6)


def test_the_scale_of_the_weights_is_that_of_the_rows():
    # twice the weights are twice the rows: the same mle, another posterior
    X = TABLES["numbers"]
    once, twice = (QDA(method="mle").fit(X, Y, sample_weight=w) for w in (np.ones(N), np.full(N, 2.0)))
    close(twice.covariances_, once.covariances_, 1e-12)
    once, twice = (QDA(method="posterior").fit(X, Y, sample_weight=w) for w in (np.ones(N), np.full(N, 2.0)))
    assert np.abs(once.covariances_ - twice.covariances_).max() > 1e-3
    close(once.log_evidence_, QDA(method="posterior").fit(X, Y).log_evidence_, 1e-12)


def test_weights_that_make_no_sense():
    X, clf = TABLES["cells"], GaussianNB()
    for act in (clf.fit, clf.partial_fit, GaussianNB().fit(X, Y).forget):
        with pytest.raises(ValueError, match="egative"):
            act(X, Y, sample_weight=np.full(N, -1.0))
        with pytest.raises(ValueError, match="sample_weight"):
            act(X, Y, sample_weight=np.ones(N - 1))
        with pytest.raises(ValueError, match="NaN"):
            act(X, Y, sample_weight=np.full(N, np.nan))
    with pytest.raises(ValueError, match="weight"):
        clf.fit(X, Y, sample_weight=np.zeros(N))
    assert not hasattr(clf, "params_")
    with pytest.raises(ValueError, match="'jam'.*only rows of weight 0"):
        LDA(method="mle").fit(TABLES["numbers"], Y, sample_weight=Y != "jam")
