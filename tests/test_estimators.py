"""scikit-learn manners, containers, streams, and agreement between the ways to the same fit."""

import pickle

import numpy as np
import pandas as pd
import pytest
from conftest import holes, make_rows
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bayesgen import LDA, QDA, RDA, GaussianNB, NormalWishart


@parametrize_with_checks([LDA(), QDA(), RDA(), GaussianNB()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@parametrize_with_checks([QDA(method="posterior"), GaussianNB(method="posterior")])
def test_scikit_learn_checks_of_posteriors(estimator, check):
    check(estimator)


IRIS = load_iris(as_frame=True)
FRAME, SPECIES = IRIS.data, IRIS.target_names[IRIS.target]
X = FRAME.to_numpy()
ALL = [LDA(), QDA(), RDA(), GaussianNB()]
FIXED = [LDA(), QDA(), RDA(alpha=0.4, gamma=0.7), GaussianNB(), LDA(covariance="spherical"), QDA(covariance="diag")]
METHODS = ["mle", "map", "posterior"]


def named(value):
    return type(value).__name__ if hasattr(value, "get_params") else str(value)


@pytest.mark.parametrize("clf", ALL, ids=named)
def test_pipelines_searches_and_clones(clf):
    pipe = make_pipeline(StandardScaler(), clone(clf))
    assert cross_val_score(pipe, FRAME, SPECIES, cv=3).mean() > 0.9
    grid = {"alpha": [0.1, 0.9], "gamma": [0.5]} if isinstance(clf, RDA) else {"method": ["map", "posterior"]}
    search = GridSearchCV(clone(clf), grid, cv=3, scoring="neg_log_loss").fit(FRAME, SPECIES)
    assert search.best_score_ > -0.2
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()


@pytest.mark.parametrize("clf", ALL, ids=named)
def test_layout_and_width_of_the_array_do_not_matter(clf):
    reference = clone(clf).fit(X, SPECIES).predict_proba(X)
    locked = X.copy()
    locked.setflags(write=False)
    wide = np.zeros((150, 8))
    wide[:, ::2] = X
    for table in (np.asfortranarray(X), locked, wide[:, ::2], X.tolist(), FRAME, FRAME.astype("Float64"), X.astype(object)):
        np.testing.assert_array_equal(clone(clf).fit(table, SPECIES).predict_proba(table), reference)
    single = X.astype(np.float32)
    both = (
        clone(clf).fit(single, SPECIES).predict_proba(single),
        clone(clf).fit(single.astype(float), SPECIES).predict_proba(single),
    )
    np.testing.assert_array_equal(*both)


@pytest.mark.parametrize(
    "labels",
    [
        SPECIES,
        IRIS.target.to_numpy(),
        SPECIES.astype(object),
        pd.Series(SPECIES, dtype="category"),
        pd.Series(SPECIES, dtype="string"),
    ],
    ids=["str", "int", "object", "category", "string"],
)
def test_kinds_of_labels(labels):
    clf = LDA(random_state=0).fit(FRAME, labels)
    assert list(clf.predict(FRAME[:2])) == [labels[0]] * 2
    rows, drawn = clf.sample(5)
    assert type(drawn) is (pd.Series if isinstance(labels, pd.Series) else np.ndarray)
    assert drawn.dtype == labels.dtype
    assert isinstance(rows, pd.DataFrame) and list(rows.columns) == list(FRAME.columns)


def test_two_booleans_and_one_class():
    clf = QDA().fit(X, SPECIES == "setosa")
    assert clf.classes_.dtype == bool and clf.predict(X[:1])[0]
    alone = QDA().fit(X[:50], SPECIES[:50])
    np.testing.assert_array_equal(alone.predict_proba(X), np.ones((150, 1)))


def test_names_are_checked():
    clf = LDA().fit(FRAME, SPECIES)
    assert list(clf.feature_names_in_) == list(FRAME.columns) and clf.n_features_in_ == 4
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(FRAME.rename(columns={FRAME.columns[0]: "other"}))
    with pytest.raises(ValueError, match="4 features"):
        clf.predict(X[:, :3])


def test_label_and_column_order_do_not_matter():
    rename = {"setosa": "z", "versicolor": "m", "virginica": "a"}
    other = np.array([rename[s] for s in SPECIES])
    order = [2, 0, 3, 1]
    for clf in FIXED:
        a = clone(clf).fit(X, SPECIES).predict_proba(X)
        b = clone(clf).fit(X[:, order], other).predict_proba(X[:, order])
        np.testing.assert_allclose(a, b[:, ::-1], rtol=1e-9, atol=1e-12)


# -- law 6: pieces, unions, removals
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("clf", FIXED, ids=str)
def test_streams_merging_and_forgetting(clf, method):
    if isinstance(clf, RDA) and method == "mle":
        pytest.skip("RDA has no mle")
    clf = clone(clf).set_params(method=method)
    half = np.arange(150) % 2 == 0
    whole = clone(clf).fit(X, SPECIES)
    a, b = clone(clf).fit(X[half], SPECIES[half]), clone(clf).fit(X[~half], SPECIES[~half])
    stream = clone(clf).partial_fit(X[half], SPECIES[half], classes=np.unique(SPECIES)).partial_fit(X[~half], SPECIES[~half])
    for other in (a.merge(b), stream):
        np.testing.assert_allclose(other.log_joint(X), whole.log_joint(X), rtol=1e-9)
        np.testing.assert_allclose(other.priors_, whole.priors_)
    np.testing.assert_allclose(whole.forget(X[~half], SPECIES[~half]).log_joint(X), a.log_joint(X), rtol=1e-9)
    for name, value in stream.params_.items():
        np.testing.assert_allclose(value, whole.params_[name], rtol=1e-9, atol=1e-12)


def test_merging_with_missing_cells_and_other_classes():
    gaps = holes(X)
    setosa = SPECIES == "setosa"
    whole = GaussianNB().fit(gaps, SPECIES)
    merged = GaussianNB().fit(gaps[setosa], SPECIES[setosa]).merge(GaussianNB().fit(gaps[~setosa], SPECIES[~setosa]))
    np.testing.assert_array_equal(merged.classes_, whole.classes_)
    np.testing.assert_allclose(merged.log_joint(gaps), whole.log_joint(gaps), rtol=1e-9)


def test_whole_weights_are_repeated_rows():
    weight = np.random.default_rng(0).integers(0, 4, 150)
    repeated = np.repeat(np.arange(150), weight)
    for clf in FIXED:
        for method in METHODS[isinstance(clf, RDA) :]:
            clf = clone(clf).set_params(method=method)
            a = clone(clf).fit(X, SPECIES, sample_weight=weight)
            b = clone(clf).fit(X[repeated], SPECIES[repeated])
            np.testing.assert_allclose(a.log_joint(X), b.log_joint(X), rtol=1e-9)


def test_what_cannot_be_done_is_not_there():
    assert not hasattr(RDA(), "merge") and not hasattr(RDA(), "partial_fit") and hasattr(RDA(alpha=0.5, gamma=0.5), "forget")
    known = LDA.from_parameters([0, 1], "uniform", [[0.0], [1.0]], [[1.0]])
    assert not hasattr(known, "merge") and not hasattr(known, "log_evidence_")
    assert not hasattr(QDA(), "transform") and not hasattr(GaussianNB(), "discriminants")
    assert not hasattr(LDA(), "params_") and not hasattr(LDA(), "draws_")
    assert not hasattr(LDA(method="mle").fit(X, SPECIES), "log_evidence_")


# -- law 7: reductions
def test_reductions():
    pairs = [
        (QDA(covariance="diag"), GaussianNB()),
        (LDA(covariance="diag"), GaussianNB(shared_variance=True)),
        (RDA(alpha=1.0, gamma=0.2), QDA(method="mle")),
        (RDA(alpha=0.0, gamma=1.0), LDA(method="mle")),
    ]
    for a, b in pairs:
        np.testing.assert_allclose(a.fit(X, SPECIES).log_joint(X), b.fit(X, SPECIES).log_joint(X), rtol=1e-9)
    for method in METHODS:
        a, b = QDA(covariance="diag", method=method), GaussianNB(method=method)
        np.testing.assert_array_equal(a.fit(X, SPECIES).predict_proba(X), b.fit(X, SPECIES).predict_proba(X))


def test_one_column_makes_all_structures_agree():
    column = X[:, 2:3]
    for clf in (LDA, QDA):
        full = clf(method="mle").fit(column, SPECIES).log_joint(column)
        for name in ("diag", "spherical"):
            np.testing.assert_allclose(
                clf(covariance=name, method="mle").fit(column, SPECIES).log_joint(column), full, rtol=1e-9
            )


# -- law 8: affine maps
def test_mle_posteriors_do_not_change_under_affine_maps():
    rng = np.random.default_rng(3)
    matrix, shift = rng.normal(size=(4, 4)), rng.normal(size=4) * 10
    for clf in (LDA(method="mle"), QDA(method="mle")):
        a = clone(clf).fit(X, SPECIES).predict_proba(X)
        b = clone(clf).fit(X @ matrix.T + shift, SPECIES).predict_proba(X @ matrix.T + shift)
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


# -- leave one out
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("clf", [*FIXED, QDA(priors=[0.2, 0.5, 0.3]), LDA(class_smoothing=2.0)], ids=str)
def test_leave_one_out_equals_refits_with_the_prior_kept(clf, method):
    if isinstance(clf, RDA):
        pytest.skip("its prior is made of the rows; see test_rda_leave_one_out")
    x, y = make_rows(5, n=40, d=2)
    clf = clone(clf).set_params(method=method)
    fitted = clone(clf).fit(x, y)
    if method != "mle":
        prior = fitted.prior_
        clf.set_params(prior=NormalWishart(prior.mean, float(prior.strength), float(prior.df), prior.scale))
    rows = range(0, 40, 5)
    expected = [clone(clf).fit(np.delete(x, i, 0), np.delete(y, i)).predict_proba(x[i : i + 1])[0] for i in rows]
    np.testing.assert_allclose(fitted.loo_predict_proba()[list(rows)], expected, rtol=1e-8, atol=1e-10)


def test_leave_one_out_with_missing_cells():
    x, y = make_rows(6, n=30, d=2)
    gaps = holes(x)
    fitted = GaussianNB(method="posterior", prior=NormalWishart(0.0, 1.0, 3.0, 1.0)).fit(gaps, y)
    expected = [
        clone(fitted).fit(np.delete(gaps, i, 0), np.delete(y, i)).predict_proba(gaps[i : i + 1])[0] for i in range(0, 30, 4)
    ]
    np.testing.assert_allclose(fitted.loo_predict_proba()[::4], expected, rtol=1e-8)


def test_rda_leave_one_out():
    fitted = RDA(alpha=0.5, gamma=0.5).fit(X, SPECIES)
    table = fitted.loo_predict_proba()
    np.testing.assert_allclose(table.sum(1), 1.0)
    assert np.mean(fitted.classes_[table.argmax(1)] == SPECIES) > 0.95


def test_leave_one_out_notices_a_changed_array():
    table = X.copy()
    clf = LDA().fit(table, SPECIES)
    table[3] += 1
    with pytest.raises(ValueError, match="changed since"):
        clf.loo_predict_proba()


# -- class probabilities
def test_class_probabilities():
    y = np.array(["a"] * 3 + ["b"] * 7)
    x = np.arange(10.0)[:, None]
    np.testing.assert_allclose(LDA().fit(x, y).priors_, [0.3, 0.7])
    np.testing.assert_allclose(LDA(class_smoothing=1.0).fit(x, y).priors_, [4 / 12, 8 / 12])
    np.testing.assert_allclose(LDA(class_smoothing=1.0, method="mle").fit(x, y).priors_, [0.3, 0.7])
    np.testing.assert_allclose(LDA(class_smoothing=1.0, method="posterior").fit(x, y).priors_, [5 / 14, 9 / 14])
    np.testing.assert_allclose(LDA(priors="uniform").fit(x, y).priors_, [0.5, 0.5])
    clf = LDA(method="posterior", num_draws=4000, random_state=1).fit(x, y)
    draws = clf.draws_["class_probs"]
    assert abs(draws[:, 0].mean() - 4 / 12) < 0.01
    np.testing.assert_array_equal(clf.with_priors([0.1, 0.9]).draws_["class_probs"][:2], [[0.1, 0.9]] * 2)


def test_stored_models_answer_the_same_and_carry_no_rows():
    for clf in ALL:
        clf = clone(clf).set_params(method="posterior", random_state=0).fit(FRAME, SPECIES)
        again = pickle.loads(pickle.dumps(clf))
        for use in ("predict_proba", "score_samples", "outlier_pvalues"):
            np.testing.assert_array_equal(getattr(again, use)(FRAME), getattr(clf, use)(FRAME))
        pd.testing.assert_frame_equal(again.sample(5)[0], clf.sample(5)[0])
        assert len(pickle.dumps(QDA().fit(np.zeros((5000, 4)) + X[0], np.arange(5000) % 2))) < 20_000
        with pytest.raises(ValueError, match="training rows"):
            again.loo_predict_proba()


def test_global_state_is_untouched():
    import warnings

    import jax

    before = jax.config.jax_enable_x64, list(warnings.filters), np.geterr()
    LDA(method="posterior").fit(X, SPECIES).predict_proba_interval(X[:2])
    assert (jax.config.jax_enable_x64, list(warnings.filters), np.geterr()) == before
    state = np.random.get_state()[1].copy()
    LDA(random_state=3).fit(X, SPECIES).sample(3)
    np.testing.assert_array_equal(np.random.get_state()[1], state)
