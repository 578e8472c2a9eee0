"""Faults that were found by breaking fits of incomplete tables, each mended."""

import warnings

import numpy as np
import pytest
from conftest import holes
from scipy import sparse
from sklearn.model_selection import cross_val_score

from bayesgen import LDA, QDA, RDA, GaussianNB, MixedNB, MultinomialNB
from bayesgen.inference import Gibbs

RNG = np.random.default_rng(0)
Y = np.arange(60) % 2
X = RNG.normal(size=(60, 2)) + 2 * Y[:, None]
SOME = np.where(RNG.random(60) < 0.5, np.nan, Y)
GAPS = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
QUIET = Gibbs(progress=False)


def test_other_class_probabilities_after_labels_were_sampled():
    clf = GaussianNB(method="posterior", engine=QUIET, num_draws=200, random_state=0).fit(X, SOME)
    other = clf.with_priors([0.9, 0.1])
    nothing = np.full((1, 2), np.nan)
    np.testing.assert_allclose(other.draws_["class_probs"], np.tile([0.9, 0.1], (200, 1)))
    np.testing.assert_allclose(other.predict_proba_draws(nothing), np.tile([0.9, 0.1], (200, 1, 1)))
    np.testing.assert_allclose(other.predict_proba(nothing), [[0.9, 0.1]])
    # rows of another population: the class densities averaged over the posterior as it is
    mean, variance = clf.draws_["mean"], clf.draws_["variance"]
    logs = -0.5 * np.sum((X[0] - mean) ** 2 / variance + np.log(2 * np.pi * variance), -1)
    want = [0.9, 0.1] * np.exp(logs).mean(0)
    np.testing.assert_allclose(np.exp(other.log_joint(X[:1])[0]), want, rtol=1e-9)


@pytest.mark.parametrize("scale", [[1e-9, 1.0, 1e9], [1e-12, 1.0, 1e12]])
def test_units_do_not_matter_with_gaps_and_without_labels(scale):
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = rng.normal(size=(200, 3)) + y[:, None]
    x[:, 1] += x[:, 0]
    x[rng.random(x.shape) < 0.2] = np.nan
    some = np.where(rng.random(200) < 0.4, np.nan, y)
    for make, labels in (
        (LDA, y),
        (QDA, y),
        (QDA, some),
        (lambda: QDA(method="posterior", engine=QUIET, num_draws=40, random_state=0), y),
    ):
        a, b = make().fit(x, labels), make().fit(x * scale, labels)
        np.testing.assert_allclose(b.predict_proba(x * scale), a.predict_proba(x), atol=1e-7)
        np.testing.assert_allclose(b.means_ / scale, a.means_, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_columns_that_repeat_others_have_no_mle(seed):
    x = np.random.default_rng(seed).normal(size=(40, 3))
    x[:, 2] = x[:, 0] + x[:, 1]
    x[::3, 1] = np.nan
    x[1::4, 2] = np.nan
    with pytest.raises(ValueError, match="The pooled covariance becomes singular.*columns repeat others.*method='map'"):
        LDA(method="mle").fit(x, np.arange(40) % 2)
    assert LDA().fit(x, np.arange(40) % 2).converged_


def test_far_from_the_origin_the_search_ends_at_rounding():
    clf = GaussianNB().fit(GAPS + 1e8, SOME)
    assert clf.converged_ and clf.n_iter_ < 100
    np.testing.assert_allclose(clf.means_ - 1e8, GaussianNB().fit(GAPS, SOME).means_, atol=1e-5)


def test_given_class_probabilities_raise_no_alarm_and_may_be_zero():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf = GaussianNB(method="posterior", priors=[0.3, 0.7], engine=QUIET, random_state=0).fit(X, SOME)
    assert clf.diagnostics_["r_hat"] < 1.02
    np.testing.assert_array_equal(LDA(priors=[0, 1.0]).fit(GAPS, Y).predict(GAPS), 1)
    np.testing.assert_array_equal(GaussianNB(priors=[0, 1.0]).fit(X, SOME).predict(X), 1)
    sampled = LDA(priors=[0, 1.0], method="posterior", engine=QUIET, num_draws=40, random_state=0).fit(GAPS, SOME)
    np.testing.assert_allclose(sampled.predict_proba(GAPS)[:, 0], 0)


def test_regularised_analysis_with_nothing_to_go_by():
    message = "Class 0 has no observed cell in column 1.*Use LDA or QDA, whose prior is proper"
    with pytest.raises(ValueError, match=message):
        RDA(0.5, 0.5).fit([[1.0, np.nan], [np.nan, 2.0]], [0, 1])
    with pytest.raises(ValueError, match="has no observed cell"):
        RDA().fit(np.full((6, 2), np.nan), [0, 1] * 3)
    wide = np.random.default_rng(1).normal(size=(60, 3)) * [1e-6, 1.0, 1e9]
    assert 0 <= RDA().fit(holes(wide, 0.3), Y).alpha_ <= 1


def test_a_map_is_not_random():
    a, b = RDA().fit(GAPS, Y), RDA().fit(GAPS, Y)
    assert (a.alpha_, a.gamma_) == (b.alpha_, b.gamma_)


def test_rows_far_off_without_label():
    clf = QDA().fit(np.r_[X, [[1e6, 1e6], [1e8, -1e8]]], np.r_[Y, np.nan, np.nan])
    assert clf.converged_ and np.isfinite(clf.predict_proba(X)).all()


def test_reasons_and_remedies_are_true():
    counts = sparse.csr_array(np.random.default_rng(0).poisson(1.0, size=(60, 4)).astype(float))
    with pytest.raises(ValueError, match=r"dense rows: give X.toarray\(\), or use method='map'"):
        MultinomialNB(method="posterior").fit(counts, SOME)
    with pytest.raises(ValueError, match="Cannot merge: the other was fitted on rows without label"):
        GaussianNB().fit(X, Y).merge(GaussianNB().fit(X, SOME))
    constant = np.column_stack([GAPS, np.full(60, 7.0)])
    with pytest.raises(ValueError, match="becomes singular: some columns do not vary. Constant: column 2"):
        QDA(method="mle").fit(constant, Y)
    try:
        _ = QDA().fit(GAPS, Y).merge
    except AttributeError as error:
        assert "fit all the rows at once" in str(error.__cause__)
    else:
        pytest.fail("merge is there")


def test_scores_leave_out_rows_without_label():
    marked = np.where(np.isnan(SOME), -1, Y)
    known = ~np.isnan(SOME)
    clf = QDA(unlabelled=-1).fit(X, marked)
    want = np.mean(clf.predict(X)[known] == Y[known])
    assert clf.score(X, marked) == want == QDA().fit(X, SOME).score(X, SOME)
    weight = np.arange(60.0)
    np.testing.assert_allclose(
        clf.score(X, marked, weight), np.average(clf.predict(X)[known] == Y[known], weights=weight[known])
    )
    assert cross_val_score(QDA(unlabelled=-1), X, marked, cv=3).min() > 0.6
    with pytest.raises(ValueError, match="nothing to score"):
        clf.score(X, np.full(60, -1))


def test_weights_and_marks_that_make_no_sense():
    with pytest.raises(ValueError, match="total weight of .*engine='nuts'"):
        QDA(method="posterior", engine=QUIET).fit(GAPS, Y, sample_weight=np.full(60, 1e8))
    with pytest.raises(ValueError, match=r"unlabelled=\[-1, -2\]: must be one label"):
        QDA(unlabelled=[-1, -2]).fit(X, Y)


def test_no_warnings_of_numpy_leak():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MixedNB(method="mle").fit(np.column_stack([X, X[:, 0] > 1]), SOME)
        RDA().fit(GAPS, Y)
