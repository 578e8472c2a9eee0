"""GenerativeImputer in scikit-learn's company: checks, pipelines, frames, and what it does with the labels."""

import pickle

import numpy as np
import pandas as pd
import pytest
from conftest import holes, make_rows
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bayesgen import LDA, QDA, ComplementNB, GaussianNB, GenerativeImputer, MixedNB
from bayesgen.data import load_penguins

BIRDS = load_penguins()
X, SPECIES = BIRDS.drop(columns="species"), BIRDS["species"]
SIZES = X.filter(regex="_(mm|g)$")
ROWS, LABELS = make_rows(n=90)
GAPS = holes(ROWS, share=0.2)


@parametrize_with_checks(
    [GenerativeImputer(), GenerativeImputer(GaussianNB()), GenerativeImputer(MixedNB(), labels="given", random_state=0)]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# -- it does what its estimator does
def test_one_class_without_labels_and_with_labels_ignored():
    alone = GenerativeImputer(GaussianNB()).fit(GAPS)
    ignored = GenerativeImputer(GaussianNB(), labels="ignore").fit(GAPS, LABELS)
    assert len(alone.estimator_.classes_) == len(ignored.estimator_.classes_) == 1
    expected = GaussianNB().fit(GAPS, np.zeros(90)).impute(GAPS)
    np.testing.assert_array_equal(alone.transform(GAPS), expected)
    np.testing.assert_array_equal(ignored.fit_transform(GAPS, LABELS), expected)


@pytest.mark.parametrize("make", [LDA, QDA, GaussianNB])
@pytest.mark.parametrize("sample", [False, True])
def test_labels_mix_by_default_and_are_used_when_asked(make, sample):
    clf = make(random_state=0).fit(GAPS, LABELS)
    draws = 1 if sample else None

    def expected(y):
        filled = clf.impute(GAPS, y, draws=draws, random_state=5)
        return filled[0] if sample else filled

    mixing = GenerativeImputer(make(random_state=0), sample=sample, random_state=5)
    np.testing.assert_array_equal(mixing.fit_transform(GAPS, LABELS), expected(None))
    np.testing.assert_array_equal(mixing.fit(GAPS, LABELS).transform(GAPS), expected(None))
    using = GenerativeImputer(make(random_state=0), labels="given", sample=sample, random_state=5)
    np.testing.assert_array_equal(using.fit_transform(GAPS, LABELS), expected(LABELS))
    np.testing.assert_array_equal(using.transform(GAPS), expected(None))
    assert np.abs(expected(LABELS) - expected(None)).max() > 0.1


def test_labels_given_leak_into_the_training_rows():
    """A column of noise, filled within classes whose means differ by chance, seems to tell the class; mixed, it does not."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    table = np.where(rng.random((400, 1)) < 0.9, np.nan, rng.normal(size=(400, 1)))
    scores = {}
    for labels in ("mix", "given"):
        filled = GenerativeImputer(GaussianNB(), labels=labels).fit_transform(table, y)
        scores[labels] = LogisticRegression(C=1e6).fit(filled, y).score(filled, y)
    assert scores["given"] > 0.9
    assert scores["mix"] < 0.6


def test_impute_passes_everything_on():
    imputer = GenerativeImputer(GaussianNB(method="posterior", random_state=0)).fit(GAPS, LABELS)
    clf = imputer.estimator_
    np.testing.assert_array_equal(imputer.impute(GAPS, LABELS), clf.impute(GAPS, LABELS))
    tables = imputer.impute(GAPS, LABELS, draws=3, random_state=1)
    np.testing.assert_array_equal(tables, clf.impute(GAPS, LABELS, draws=3, random_state=1))
    np.testing.assert_array_equal(imputer.impute(GAPS, draws=2), clf.impute(GAPS, draws=2))


def test_draws_vary_as_the_column_does_and_means_do_not():
    rng = np.random.default_rng(1)
    column = np.where(rng.random((3000, 1)) < 0.5, np.nan, rng.normal(size=(3000, 1)))
    lost = np.isnan(column)
    assert np.var(GenerativeImputer(GaussianNB()).fit_transform(column)[lost]) < 1e-20
    drawn = GenerativeImputer(GaussianNB(), sample=True, random_state=0).fit_transform(column)
    assert np.var(drawn[lost]) == pytest.approx(np.var(column[~lost]), rel=5 * np.sqrt(2 / 1500) * np.sqrt(2))


def test_seeds_of_draws():
    def fit(random_state):
        return GenerativeImputer(GaussianNB(random_state=0), sample=True, random_state=random_state).fit(GAPS)

    np.testing.assert_array_equal(fit(3).transform(GAPS), fit(3).transform(GAPS))
    assert not np.array_equal(fit(3).transform(GAPS), fit(4).transform(GAPS))
    own = fit(None)
    np.testing.assert_array_equal(own.transform(GAPS), own.transform(GAPS))
    stream = fit(np.random.default_rng(0))
    assert not np.array_equal(stream.transform(GAPS), stream.transform(GAPS))


def test_weights_are_repeated_rows():
    weight = np.random.default_rng(2).integers(0, 3, 90)
    weighted = GenerativeImputer(GaussianNB()).fit(GAPS, LABELS, sample_weight=weight)
    again = np.repeat(np.arange(90), weight)
    repeated = GenerativeImputer(GaussianNB()).fit(GAPS[again], LABELS[again])
    np.testing.assert_allclose(weighted.transform(GAPS), repeated.transform(GAPS), rtol=1e-9)
    np.testing.assert_array_equal(
        weighted.transform(GAPS), GenerativeImputer(GaussianNB()).fit_transform(GAPS, LABELS, sample_weight=weight)
    )


def test_some_labels_may_be_missing():
    some = np.where(np.arange(90) % 3 == 0, np.nan, LABELS.astype(float))
    imputer = GenerativeImputer(GaussianNB(), labels="given")
    filled, clf = imputer.fit_transform(GAPS, some), GaussianNB().fit(GAPS, some)
    assert clf.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(filled, clf.impute(GAPS, some))
    np.testing.assert_array_equal(filled[::3], imputer.transform(GAPS)[::3])


@pytest.mark.parametrize("estimator", [None, LDA(), QDA(), GaussianNB(method="posterior", random_state=0)], ids=str)
def test_observed_cells_keep_their_bits(estimator):
    filled = GenerativeImputer(estimator).fit_transform(GAPS, LABELS)
    seen = ~np.isnan(GAPS)
    assert filled[seen].tobytes() == GAPS[seen].tobytes() and np.isfinite(filled).all()


def test_the_default_is_lda():
    np.testing.assert_array_equal(
        GenerativeImputer().fit_transform(GAPS, LABELS), GenerativeImputer(LDA()).fit_transform(GAPS, LABELS)
    )
    assert type(GenerativeImputer().fit(GAPS).estimator_) is LDA


# -- frames
@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("labels", ["mix", "given", "ignore"])
def test_frames_keep_dtypes_names_and_index(sample, labels):
    table = X.assign(
        sex=X["sex"].astype("category"),
        tagged=np.arange(344) % 3 == 0,
        eggs=pd.array(np.where(np.arange(344) % 5, np.arange(344) % 20, None), dtype="Int64"),
    ).set_axis(np.arange(344) * 2)
    imputer = GenerativeImputer(MixedNB(random_state=0), labels=labels, sample=sample)
    filled = imputer.fit_transform(table, SPECIES)
    pd.testing.assert_series_equal(filled.dtypes, table.dtypes)
    pd.testing.assert_index_equal(filled.index, table.index)
    assert not filled.isna().any(axis=None) and table.isna().any(axis=None)
    for name in table:
        seen = table[name].notna()
        pd.testing.assert_series_equal(filled.loc[seen, name], table.loc[seen, name])
    assert imputer.feature_names_in_.tolist() == imputer.get_feature_names_out().tolist() == table.columns.tolist()
    assert imputer.n_features_in_ == table.shape[1]


def test_set_output():
    imputer = GenerativeImputer(GaussianNB()).set_output(transform="pandas")
    made = imputer.fit_transform(SIZES.to_numpy(), SPECIES)
    assert made.columns.tolist() == ["x0", "x1", "x2", "x3"]
    kept = imputer.fit_transform(SIZES.set_axis(np.arange(344) + 9), SPECIES)
    assert kept.columns.tolist() == SIZES.columns.tolist() and kept.index[0] == 9
    np.testing.assert_array_equal(made, kept)
    mixed = GenerativeImputer(MixedNB()).set_output(transform="pandas").fit_transform(X, SPECIES)
    pd.testing.assert_series_equal(mixed.dtypes, X.dtypes)


# -- pipelines
def test_pipelines_searches_and_clones():
    pipe = make_pipeline(GenerativeImputer(GaussianNB()), StandardScaler(), LogisticRegression())
    assert cross_val_score(pipe, SIZES, SPECIES, cv=3).mean() > 0.97
    grid = {"generativeimputer__estimator__method": ["map", "posterior"], "generativeimputer__sample": [False, True]}
    search = GridSearchCV(pipe, grid, cv=3).fit(SIZES, SPECIES)
    assert len(search.cv_results_["params"]) == 4
    inner = clone(search.best_estimator_)[0].set_params(estimator__shared_variance=True, labels="ignore")
    assert inner.get_params()["estimator__shared_variance"] is True
    assert not hasattr(inner, "estimator_") and not hasattr(inner.estimator, "classes_")


def test_the_estimator_given_stays_unfitted():
    given = GaussianNB()
    imputer = GenerativeImputer(given).fit(GAPS, LABELS)
    assert imputer.estimator_ is not given and not hasattr(given, "classes_")


def test_regression_pipelines():
    target = SIZES["body_mass_g"].fillna(4000.0) / 7
    table = SIZES.drop(columns="body_mass_g")
    pipe = make_pipeline(GenerativeImputer(GaussianNB(), labels="ignore"), LinearRegression()).fit(table, target)
    assert pipe.score(table, target) > 0.7
    with pytest.raises(ValueError, match="y is continuous.*labels='ignore'"):
        make_pipeline(GenerativeImputer(GaussianNB()), HistGradientBoostingRegressor()).fit(table, target)
    with pytest.warns(UserWarning, match="regression"):
        GenerativeImputer(GaussianNB()).fit(table, np.arange(344))


def test_column_transformers():
    sizes, others = SIZES.columns.tolist(), ["island", "sex"]
    both = make_column_transformer((GenerativeImputer(LDA()), sizes), (GenerativeImputer(MixedNB()), others))
    both.set_output(transform="pandas")
    filled = both.fit_transform(X, SPECIES)
    assert filled.shape == (344, 6) and not filled.isna().any(axis=None)


def test_pickles():
    imputer = GenerativeImputer(GaussianNB()).fit(GAPS, LABELS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(imputer)).transform(GAPS), imputer.transform(GAPS))


# -- refusals
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: GenerativeImputer(ComplementNB()).fit(GAPS, LABELS), TypeError, "ComplementNB.* cannot impute"),
        (lambda: GenerativeImputer("mean").fit(GAPS), TypeError, "'mean' cannot impute. Give a generative classifier"),
        (lambda: GenerativeImputer(GaussianNB).fit(GAPS), TypeError, "instance"),
        (lambda: GenerativeImputer(labels="yes").fit(GAPS), ValueError, "labels='yes': must be 'mix'"),
        (lambda: GenerativeImputer(GaussianNB()).transform(GAPS), NotFittedError, "not fitted"),
        (lambda: GenerativeImputer(GaussianNB()).impute(GAPS), NotFittedError, "not fitted"),
        (lambda: GenerativeImputer(GaussianNB()).fit(GAPS).impute(GAPS, LABELS), ValueError, "fitted without classes"),
        (lambda: GenerativeImputer(GaussianNB()).fit(GAPS).transform(GAPS[:, :2]), ValueError, "Imputer is expecting 3"),
        (lambda: GenerativeImputer(GaussianNB()).fit(GAPS, LABELS).impute(GAPS, LABELS + 9), ValueError, "9"),
        (lambda: GenerativeImputer(GaussianNB()).fit(SIZES).transform(SIZES[SIZES.columns[::-1]]), ValueError, "same order"),
        (lambda: GenerativeImputer(GaussianNB()).fit(GAPS, LABELS).impute(GAPS, draws=0), ValueError, "draws=0"),
    ],
)  # fmt: skip
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_refused_fit_leaves_the_imputer_unfitted():
    imputer = GenerativeImputer(GaussianNB())
    with pytest.raises(ValueError, match="infinity"):
        imputer.fit(np.array([[1.0], [np.inf]]))
    with pytest.raises(NotFittedError):
        imputer.transform([[1.0]])
