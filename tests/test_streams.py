"""Law 6 for every classifier: rows in pieces, models merged, rows forgotten; and what is refused."""

import copy
import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from cases import ALL, CASES, CLASSES, TABLES, N, Y, classifier, close, rows, same_model
from conftest import holes, make_rows
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from bayesgen import (
    LDA,
    QDA,
    RDA,
    CategoricalNB,
    Gaussian,
    GaussianNB,
    GenerativeClassifier,
    MixedNB,
    NormalWishart,
    PoissonNB,
)
from bayesgen.families.base import Labels

FIRST, SECOND = np.arange(0, N, 2), np.arange(1, N, 2)
WEIGHT = np.random.default_rng(0).integers(1, 4, N) / 2
weighted = pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weighted"])
every = pytest.mark.parametrize(("name", "method"), ALL, ids=[f"{name}-{method}" for name, method in ALL])


def piece(name, index, weight=None):
    """(X, y) of some rows, with their weights, as keyword arguments."""
    found = {"X": rows(TABLES[CASES[name][1]], index), "y": Y[index]}
    return found if weight is None else found | {"sample_weight": weight[index]}


@weighted
@every
def test_pieces_and_merged_models_are_one_fit(name, method, weight):
    X = TABLES[CASES[name][1]]
    whole = classifier(name, method).fit(X, Y, **{} if weight is None else {"sample_weight": weight})
    stream = classifier(name, method)
    for index in (FIRST, SECOND):
        assert stream.partial_fit(**piece(name, index, weight), classes=CLASSES) is stream
    same_model(stream, whole, X, 1e-10)
    a, b = (classifier(name, method).fit(**piece(name, index, weight)) for index in (FIRST, SECOND))
    before = copy.deepcopy(a._stats)
    same_model(a.merge(b), whole, X, 1e-10)
    same_model(b.merge(a), whole, X, 1e-10)
    same_statistics(a._stats, before)


@weighted
@every
def test_forgetting_returns_to_the_earlier_model(name, method, weight):
    X = TABLES[CASES[name][1]]
    stream = classifier(name, method).partial_fit(**piece(name, FIRST, weight), classes=CLASSES)
    earlier = copy.deepcopy(stream)
    stream.partial_fit(**piece(name, SECOND, weight))
    later = copy.deepcopy(stream)
    back = stream.forget(**piece(name, SECOND, weight))
    same_model(back, earlier, rows(X, FIRST), 1e-9)
    same_model(stream, later, X, 0)
    # and row by row
    for i in SECOND:
        stream = stream.forget(**piece(name, np.array([i]), weight))
    same_model(stream, earlier, rows(X, FIRST), 1e-9)


def same_statistics(a, b):
    for x, y in zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


# -- many pieces, large means
@pytest.mark.parametrize("method", ["map", "posterior"])
@pytest.mark.parametrize("clf", [QDA(), GaussianNB(), PoissonNB()], ids=str)
def test_a_thousand_small_pieces(clf, method):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 3000)
    X = np.abs(rng.normal(size=(3000, 3)) + 2 * y[:, None])
    if isinstance(clf, PoissonNB):
        X = np.floor(X)
    if not isinstance(clf, QDA):
        X[rng.random(X.shape) < 0.1] = np.nan
    clf = type(clf)(method=method, num_draws=20, random_state=0)
    stream = type(clf)(**clf.get_params())
    for start in range(0, 3000, 3):
        stream.partial_fit(X[start : start + 3], y[start : start + 3], classes=[0, 1, 2])
    same_model(stream, clf.fit(X, y), X[:50], 1e-10)


@pytest.mark.parametrize("method", ["mle", "map", "posterior"])
@pytest.mark.parametrize("clf", [LDA(), QDA(), LDA("spherical"), GaussianNB(), RDA(0.5, 0.5)], ids=str)
def test_columns_far_from_zero(clf, method):
    if isinstance(clf, RDA) and method == "mle":
        pytest.skip("RDA has no mle")
    x, y = make_rows(seed=4, n=90)
    order = np.concatenate([np.arange(0, 90, 2), np.arange(1, 90, 2)])
    far, y = x[order] + 1e8, y[order]
    x = far - 1e8  # what is left of the digits
    clf = clone(clf).set_params(method=method)
    near, all_near = clone(clf).fit(x[:45], y[:45]), clone(clf).fit(x, y)
    stream = clone(clf).partial_fit(far[:45], y[:45])
    for start in range(45, 90, 5):
        stream.partial_fit(far[start : start + 5], y[start : start + 5])
    merged = clone(clf).fit(far[:45], y[:45]).merge(clone(clf).fit(far[45:], y[45:]))
    for got, want in ((stream, all_near), (merged, all_near), (stream.forget(far[45:], y[45:]), near)):
        close(got.covariances_, want.covariances_, 1e-6)
        np.testing.assert_allclose(got.means_ - 1e8, want.means_, rtol=0, atol=1e-7)


# -- too few rows yet
@pytest.mark.parametrize("name", [name for name, method in ALL if method == "mle"])
def test_a_stream_under_mle_waits_for_the_rows_that_it_needs(name):
    X, whole = TABLES[CASES[name][1]], classifier(name, "mle").fit(TABLES[CASES[name][1]], Y)
    stream = classifier(name, "mle")
    with pytest.warns(UserWarning, match="Not fitted yet: .*'jam'.*mle"):
        stream.partial_fit(rows(X, Y == "ham"), Y[Y == "ham"], classes=CLASSES)
    with pytest.raises(NotFittedError):
        stream.predict(X)
    assert not hasattr(stream, "params_") and not hasattr(stream, "draws_")
    with pytest.warns(UserWarning, match="Not fitted yet: .*'spam'.*mle"):
        stream.partial_fit(rows(X, Y == "jam"), Y[Y == "jam"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        stream.partial_fit(rows(X, Y == "spam"), Y[Y == "spam"])
    same_model(stream, whole, X, 1e-10)


def test_waiting_is_for_streams_only_and_ends_with_fit():
    x, y = make_rows(n=40)
    with pytest.raises(ValueError, match="singular"):
        QDA(method="mle").fit(x[:3], y[:3])
    clf = QDA(method="mle")
    with pytest.warns(UserWarning, match="singular"):
        clf.partial_fit(x[:2], y[:2])
    with pytest.raises(ValueError, match="method was 'mle' at the first call"):
        clf.set_params(method="map").partial_fit(x, y)
    clf.set_params(method="mle").fit(x, y)
    np.testing.assert_array_equal(clf.means_, QDA(method="mle").fit(x, y).means_)
    # a piece that cannot be read leaves what was kept as it was
    clf = QDA(method="mle")
    with pytest.warns(UserWarning, match="has no rows"):
        clf.partial_fit(x[y == 0], y[y == 0], classes=[0, 1, 2])
    with pytest.raises(ValueError, match="unknown label|9"):
        clf.partial_fit(x[y == 1], np.full((y == 1).sum(), 9))
    clf.partial_fit(x[y > 0], y[y > 0])
    close(clf.covariances_, QDA(method="mle").fit(x, y).covariances_, 1e-10)
    # an improper prior waits too
    flat = GaussianNB(prior=NormalWishart(strength=0, df=0, scale=0), method="posterior")
    with pytest.warns(UserWarning, match="Not fitted yet"):
        flat.partial_fit(x[y == 0], y[y == 0], classes=[0, 1, 2])
    assert flat.partial_fit(x[y > 0], y[y > 0]).params_["mean"].shape == (3, 3)


# -- what is refused, and leaves everything as it was
def refused(clf, action, match):
    before, proba = copy.deepcopy(clf.__dict__), clf.predict_proba(TABLES["cells"])
    with pytest.raises(ValueError, match=match):
        action(clf)
    same_statistics(clf._stats, before["_stats"])
    same_statistics(clf.params_, before["params_"])
    np.testing.assert_array_equal(clf.classes_, before["classes_"])
    np.testing.assert_array_equal(clf.predict_proba(TABLES["cells"]), proba)
    assert vars(clf).keys() == before.keys()


SHAPES = {
    "full": LDA(),
    "full, untied": QDA(),
    "diagonal": GaussianNB(),
    "spherical": QDA("spherical"),
    "RDA": RDA(0.5, 0.5),
}


@pytest.mark.parametrize("shape", list(SHAPES))
def test_forgetting_what_was_never_learnt(shape):
    X = TABLES["numbers"]
    clf = clone(SHAPES[shape]).fit(X, Y)
    ham = int(np.sum(Y == "ham"))
    twice = np.repeat(X[Y == "ham"], 2, 0)
    refused(clf, lambda c: c.forget(twice, np.full(2 * ham, "ham")), f"'ham' was fitted on {ham} row.*not all in the fit")
    refused(clf, lambda c: c.forget(X[:1], Y[:1], sample_weight=[1e6]), "fewer than the 1e[+]06 to forget")
    refused(clf, lambda c: c.forget(X[:4] + 50, Y[:4]), f"negative scatter in class {str(Y[0])!r}, column")
    refused(clf, lambda c: c.forget(X[Y == "jam"], np.full(int(np.sum(Y == "jam")), "ham")), "'ham' was fitted on|negative")


@pytest.mark.parametrize("clf", [LDA(), QDA(), RDA(0.5, 0.5)], ids=str)
def test_a_scatter_may_be_negative_although_no_column_is(clf):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(60, 1))
    X = np.hstack([a, a, a]) + 0.1 * rng.normal(size=(60, 3))
    y = np.repeat(["u", "v"], 30)
    clf.fit(X, y)
    row = X[:30].mean(0) + np.array([0.0, 0.7, -0.7])  # across the direction in which the class lies
    joint = clf._prior_joint
    rest = joint.remove(clf._stats, joint.stats(row[None], Labels(np.array([0]), 2))).blocks[0].scatter[0]
    assert np.diagonal(rest).min() > 1 and np.linalg.eigvalsh(rest)[0] < -0.1
    with pytest.raises(ValueError, match="negative scatter in class 'u', column [12]: these rows were not all"):
        clf.forget(row[None], ["u"])
    assert clf.forget(X[:29], y[:29]).classes_.tolist() == ["u", "v"]  # down to the last row


def test_forgetting_all_but_a_few_rows_is_no_negative_scatter():
    for scale in (1e-9, 1.0, 1e9):
        for offset in (0.0, 1e6):
            x, y = make_rows(seed=8, n=60)
            x = np.hstack([x, x.sum(1, keepdims=True), np.ones((60, 1))]) * scale + offset * scale  # collinear, and constant
            clf = QDA().fit(x, y)
            for count in (59, 50, 30):
                assert clf.forget(x[:count], y[:count])._stats.labels.sum() == 60 - count


def test_cells_that_were_never_seen():
    x = np.array([[np.nan, 1.0], [np.nan, 2.0], [3.0, 0.0], [4.0, 1.0]])
    for clf in (GaussianNB(), LDA("diag"), QDA("spherical"), MixedNB()):
        clf.fit(x, ["no", "no", "yes", "yes"])
        with pytest.raises(ValueError, match=r"'no' was fitted on 0 observed cell\(s\) of column 0, fewer than the 1"):
            clf.forget(np.array([[3.0, 1.0]]), ["no"])
        clf.forget(x[:1], ["no"])


def test_classes_and_columns_that_a_stream_does_not_have():
    X = TABLES["cells"]
    clf = GaussianNB().partial_fit(X, Y)
    new = np.where(Y == "jam", "tulip", Y)
    refused(clf, lambda c: c.partial_fit(X, new), "tulip")
    refused(clf, lambda c: c.forget(X, new), "tulip")
    refused(clf, lambda c: c.partial_fit(X, Y, classes=["ham", "jam"]), "differ from those of the first call")
    refused(clf, lambda c: c.partial_fit(X[:, :2], Y), "2 features")
    refused(clf, lambda c: c.forget(X[:, :2], Y), "2 features")
    refused(clf, lambda c: c.partial_fit(X, Y[:-1]), "inconsistent")
    refused(clf, lambda c: c.forget(X, Y, sample_weight=np.ones(3)), "sample_weight")
    refused(clf, lambda c: c.set_params(priors="uniform").partial_fit(X, Y), "priors was None at the first call")
    clf.set_params(priors=None)
    refused(clf, lambda c: c.merge(GaussianNB().fit(X[:, :2], Y)), "different columns")
    refused(clf, lambda c: c.merge(GaussianNB(method="mle").fit(X, Y)), "Cannot merge: method='map' here, 'mle'")
    with pytest.raises(ValueError, match="tulip"):
        GaussianNB().partial_fit(X, new, classes=CLASSES)
    with pytest.raises(ValueError, match="not fitted"):
        GaussianNB().forget(X, Y)
    with pytest.raises(ValueError, match="not fitted"):
        clf.merge(GaussianNB())


def test_names_that_a_stream_does_not_have():
    frame = TABLES["mixed"]
    clf = MixedNB({"eggs": "poisson"}).partial_fit(frame, Y)
    before = copy.deepcopy(clf._stats)
    for other in (frame.rename(columns={"sky": "sea"}), frame[frame.columns[::-1]]):
        for act in (clf.partial_fit, clf.forget):
            with pytest.raises(ValueError, match="eature names"):
                act(other, Y)
    with pytest.raises(ValueError, match="hail"):
        clf.forget(frame.assign(sky="hail"), Y)
    fixed = CategoricalNB().fit(frame[["sky"]].astype("category"), Y)
    with pytest.raises(ValueError, match="hail"):
        fixed.partial_fit(pd.DataFrame({"sky": pd.Categorical(["hail"])}), ["ham"])
    same_statistics(clf._stats, before)


def test_an_announced_class_waits_for_its_rows_under_map_and_posterior():
    X = TABLES["cells"]
    for method in ("map", "posterior"):
        clf = GaussianNB(method=method).partial_fit(X[Y != "jam"], Y[Y != "jam"], classes=CLASSES)
        assert clf.classes_.tolist() == CLASSES.tolist() and clf._stats.labels[1] == 0
        assert (clf.priors_[1] == 0) == (method == "map")
        clf.partial_fit(X[Y == "jam"], Y[Y == "jam"])
        same_model(clf, GaussianNB(method=method).fit(X, Y), X, 1e-10, draws=False)


# -- full covariances and missing cells
GAPS = holes(TABLES["numbers"], 0.1)
WITH_FULL_BLOCK = GenerativeClassifier([([0, 1], Gaussian("full")), ([2], "gaussian")])
full = pytest.mark.parametrize("clf", [LDA(), QDA(), WITH_FULL_BLOCK], ids=["LDA", "QDA", "blocks"])
methods = pytest.mark.parametrize("method", ["mle", "map", "posterior"])


@methods
@full
def test_a_full_covariance_takes_no_pieces_with_gaps(clf, method):
    clf = clone(clf).set_params(method=method, num_draws=20, random_state=0)
    why = "Input X contains NaN.*in one fit only.*GaussianNB"
    with pytest.raises(ValueError, match=why):
        clone(clf).partial_fit(GAPS, Y, classes=CLASSES)
    clf.partial_fit(TABLES["numbers"], Y)
    refused(clf, lambda c: c.partial_fit(GAPS, Y), why)
    refused(clf, lambda c: c.forget(GAPS, Y), why)
    clf.partial_fit(TABLES["numbers"], Y)


@methods
@full
def test_a_full_covariance_fitted_on_gaps_cannot_be_taken_apart(clf, method):
    clf = clone(clf).set_params(method=method, num_draws=20, random_state=0)
    whole = clone(clf).fit(TABLES["numbers"], Y)
    assert all(hasattr(whole, name) for name in ("partial_fit", "merge", "forget"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few draws have not converged
        gappy = clone(clf).fit(GAPS, Y)
    assert not any(hasattr(gappy, name) for name in ("partial_fit", "merge", "forget"))
    with pytest.raises(ValueError, match="Cannot merge: the other was fitted on rows with missing cells.*one fit only"):
        whole.merge(gappy)
    # gaps elsewhere do no harm
    elsewhere = TABLES["numbers"].copy()
    elsewhere[::3, 2] = np.nan
    if isinstance(clf, GenerativeClassifier):
        stream = clone(clf).partial_fit(elsewhere[FIRST], Y[FIRST]).partial_fit(elsewhere[SECOND], Y[SECOND])
        same_model(stream, clone(clf).fit(elsewhere, Y), GAPS, 1e-10)
