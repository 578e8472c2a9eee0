"""What a user can get wrong, and what they are told: what, where, and what to do."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from bayesgen import LDA, QDA, RDA, GaussianNB, NormalWishart

X, y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[y]
FRAME = load_iris(as_frame=True).data
BAD_CALLS = {
    "method": (LDA(method="bayes"), "method='bayes'.*'mle' or 'map' or 'posterior'"),
    "engine": (LDA(engine="nuts"), "engine='nuts'.*method='posterior'"),
    "covariance": (QDA(covariance="banded"), "covariance='banded'.*'full'"),
    "ridge": (QDA(ridge=-1.0), "ridge=-1.0.*at least 0"),
    "ridge posterior": (QDA(ridge=0.1, method="posterior"), "ridge.*state a prior"),
    "smoothing": (LDA(class_smoothing=-0.1), "class_smoothing=-0.1"),
    "draws": (LDA(num_draws=0), "num_draws=0"),
    "priors sum": (LDA(priors=[0.5, 0.4, 0.2]), "sum to 1.1, not to 1"),
    "priors count": (LDA(priors=[0.5, 0.5]), r"shape \(2,\) but there are 3 classes"),
    "priors sign": (LDA(priors=[1.5, -0.25, -0.25]), "not be negative"),
    "priors word": (LDA(priors="equal"), "priors='equal'.*'uniform'"),
    "prior word": (LDA(prior="flat"), "prior='flat'.*NormalWishart"),
    "prior number": (LDA(prior=3.0), "must be 'auto' or a NormalWishart"),
    "prior negative": (LDA(prior=NormalWishart(0.0, -1.0, 5.0, 1.0)), "prior.strength=-1.0"),
    "prior mean": (LDA(prior=NormalWishart([0.0, 0.0], 1.0, 5.0, 1.0)), "prior.mean has shape .2,.*4 columns"),
    "prior scale": (QDA(prior=NormalWishart(0.0, 1.0, 5.0, np.eye(3))), "prior.scale has shape .3, 3.*4 columns"),
    "prior scale sign": (QDA(prior=NormalWishart(0.0, 1.0, 9.0, -np.eye(4))), "prior.scale.*positive"),
    "alpha": (RDA(alpha=1.5), r"alpha=1.5.*\[0, 1\]"),
    "alpha word": (RDA(alpha="cv"), "alpha='cv'"),
    "gamma": (RDA(gamma=-0.1), "gamma=-0.1"),
    "rda mle": (RDA(method="mle"), "RDA is a prior"),
    "random_state": (LDA(random_state="seed"), "random_state='seed'"),
    "handle_unknown": (LDA(handle_unknown="ignore"), "handle_unknown='ignore'"),
}


@pytest.mark.parametrize("name", list(BAD_CALLS))
def test_bad_arguments(name):
    clf, message = BAD_CALLS[name]
    with pytest.raises(ValueError, match=message):
        clf.fit(X, NAMES)
    assert not hasattr(clf, "params_")


def broken(**cells):
    frame = FRAME.astype(object)
    for column, value in cells.items():
        frame.iloc[3, int(column[1:])] = value
    return frame


BAD_TABLES = {
    "inf": (broken(c2=np.inf), NAMES, "infinity.*petal length"),
    "text": (broken(c1="wide"), NAMES, "sepal width.*wide"),
    "one dimension": (X[:, 0], NAMES, "Reshape your data"),
    "no rows": (X[:0], NAMES[:0], "0 sample"),
    "no columns": (X[:, :0], NAMES, "0 feature"),
    "length": (X, NAMES[:-1], "inconsistent numbers of samples"),
    "no y": (X, None, "requires y to be passed"),
    "continuous y": (X, X[:, 0] + 0.123, "Unknown label type"),
    "no label at all": (X, np.full(150, None), "None of the 150 rows has a label.*nothing says what the classes are"),
}


@pytest.mark.parametrize("name", list(BAD_TABLES))
def test_bad_tables(name):
    table, labels, message = BAD_TABLES[name]
    with pytest.raises(ValueError, match=message):
        LDA().fit(table, labels)


def test_unlabelled_value_is_a_missing_label():
    clf = LDA(unlabelled="setosa").fit(X, NAMES)
    assert clf.classes_.tolist() == ["versicolor", "virginica"]
    assert set(clf.transduction_[NAMES == "setosa"]) <= {"versicolor", "virginica"}
    with pytest.raises(ValueError, match=r"50 of 150 rows have no label \(first: row 0\).*one fit"):
        LDA(unlabelled="setosa").partial_fit(X, NAMES)


@pytest.mark.parametrize("kind", [LDA, QDA])
def test_singular_covariances(kind):
    x = np.column_stack([X, X[:, 0] + X[:, 1]])
    who = "pooled covariance" if kind is LDA else "class 'setosa'"
    with pytest.raises(ValueError, match=f"{who}.*rank 4.*5 columns.*method='map'.*ridge.*RDA"):
        kind(method="mle").fit(x, NAMES)
    assert np.isfinite(kind(method="mle", ridge=1e-3).fit(x, NAMES).predict_proba(x)).all()
    with pytest.raises(ValueError, match="rank 4.*column 4"):
        kind(method="mle").fit(np.column_stack([X, np.ones(150)]), NAMES)


def test_too_few_rows_for_mle():
    few = np.r_[0:50, 50:53, 100:150]
    with pytest.raises(ValueError, match="class 'versicolor' is singular: rank 2.*3 row"):
        QDA(method="mle").fit(X[few], NAMES[few])
    with pytest.raises(ValueError, match="'versicolor'.*too few.*prior='auto'"):
        QDA(method="posterior", prior=NormalWishart(0.0, 0.0, 0.0, 0.0)).fit(X[few], NAMES[few])
    with pytest.raises(ValueError, match="'versicolor'.*unbiased"):
        QDA(method="mle", unbiased=True).fit(X[few[:51]], NAMES[few[:51]])


def test_constant_column_in_naive_bayes():
    x = FRAME.copy()
    x.loc[y == 1, x.columns[3]] = 1.0
    with pytest.raises(ValueError, match="class 'versicolor' is singular.*petal width.*method='map'"):
        GaussianNB(method="mle").fit(x, NAMES)


def test_column_all_missing_in_one_class():
    x = X.copy()
    x[y == 1, 2] = np.nan
    with pytest.raises(ValueError, match="Class 'versicolor' has no observed cell in column 2.*method='map'"):
        GaussianNB(method="mle").fit(x, NAMES)
    assert np.isfinite(GaussianNB().fit(x, NAMES).predict_proba(x)).all()


def test_predict_time():
    clf = LDA().fit(FRAME, NAMES)
    with pytest.raises(ValueError, match="0 sample"):
        clf.predict(FRAME[:0])
    with pytest.raises(ValueError, match="infinity"):
        clf.predict(FRAME.replace(5.1, np.inf))
    with pytest.raises(ValueError, match=r"costs must be a finite \(3, 3\)"):
        clf.predict(FRAME, costs=[[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="level=2"):
        clf.predict_proba_interval(FRAME, level=2)
    with pytest.raises(ValueError, match="draws=0"):
        clf.impute(FRAME, draws=0)
    with pytest.raises(ValueError, match="n=0"):
        clf.sample(0)
    with pytest.raises(ValueError, match="tulip"):
        clf.sample(3, y="tulip")
    with pytest.raises(ValueError, match="2 labels for 3 rows"):
        clf.sample(3, y=["setosa", "setosa"])
    with pytest.raises(ValueError, match="petal"):
        clf.sample(3, given={"petal": 1.0})
    with pytest.raises(ValueError, match="tulip"):
        clf.impute(FRAME, y=np.full(150, "tulip"))


def test_merging_and_forgetting():
    a = LDA().fit(X, NAMES)
    with pytest.raises(ValueError, match="LDA with QDA"):
        a.merge(QDA().fit(X, NAMES))
    with pytest.raises(ValueError, match="method='map' here, 'mle'"):
        a.merge(LDA(method="mle").fit(X, NAMES))
    with pytest.raises(ValueError, match="different columns"):
        a.merge(LDA().fit(X[:, :3], NAMES))
    with pytest.raises(ValueError, match="'setosa' was fitted on 50"):
        a.forget(np.repeat(X[:50], 2, 0), np.repeat(NAMES[:50], 2))
    with pytest.raises(ValueError, match="negative scatter.*'setosa'"):
        a.forget(X[:20] + 100, NAMES[:20])
    with pytest.raises(ValueError, match="tulip"):
        LDA().partial_fit(X, NAMES).partial_fit(X, np.full(150, "tulip"))
    with pytest.raises(ValueError, match="differ from those of the first call"):
        LDA().partial_fit(X, NAMES).partial_fit(X, NAMES, classes=["a", "b"])


def test_known_parameters():
    with pytest.raises(ValueError, match="either covariances or precisions"):
        LDA.from_parameters([0, 1], "uniform", [[0.0], [1.0]])
    with pytest.raises(ValueError, match="not symmetric"):
        LDA.from_parameters([0, 1], "uniform", [[0.0, 0], [1, 1]], [[1.0, 0.5], [0.0, 1.0]])
    with pytest.raises(ValueError, match="shape .2, 2, 2"):
        QDA.from_parameters([0, 1], "uniform", [[0.0, 0], [1, 1]], np.eye(2))
    with pytest.raises(ValueError, match="repeated labels"):
        LDA.from_parameters([1, 1], "uniform", [[0.0], [1.0]], [[1.0]])
    with pytest.raises(ValueError, match="variances must be positive"):
        GaussianNB.from_parameters([0, 1], "uniform", [[0.0], [1.0]], [[1.0], [-1.0]])
    named = LDA.from_parameters(["b", "a"], [0.1, 0.9], [[0.0], [9.0]], [[1.0]], feature_names=["x"])
    assert named.classes_.tolist() == ["a", "b"] and named.priors_.tolist() == [0.9, 0.1]
    assert named.predict(pd.DataFrame({"x": [8.0]})).tolist() == ["a"]
    assert list(named.sample(2)[0].columns) == ["x"]
    with pytest.raises(ValueError, match="made from parameters"):
        named.model(pd.DataFrame({"x": [8.0]}))


def test_rda_that_cannot_leave_a_row_out():
    with pytest.raises(ValueError, match="one sample.*alpha and gamma"):
        RDA().fit(X[[0, 60, 120]], NAMES[[0, 60, 120]])
    with pytest.raises(ValueError, match="class 'virginica' is singular|'virginica'.*too few"):
        RDA(alpha=1.0, gamma=0.0).fit(np.vstack([X[:60], X[140:142]]), np.append(NAMES[:60], NAMES[140:142]))


def test_a_refused_fit_leaves_an_unfitted_estimator():
    clf = QDA(method="mle").fit(X, NAMES)
    with pytest.raises(ValueError, match="singular"):
        clf.fit(X[::40], NAMES[::40])
    assert not hasattr(clf, "params_") and not hasattr(clf, "classes_")
