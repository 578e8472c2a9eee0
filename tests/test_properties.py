"""What holds for any table: shapes, dtypes, missing patterns and class counts at random."""

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from sklearn.base import clone

from bayesgen import QDA, CategoricalNB, GaussianNB, MixedNB

# few sizes: every other one compiles anew
SIZES = [(1, 2), (3, 2)]
NUMBERS = ["float64", "float32", "int64", "Float64", "Int64", "object"]
CATEGORIES = ["object", "string", "category", "boolean", "bool", "Int64"]
COMPLETE = {"int64", "bool"}  # dtypes that have no missing cells
anything = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def _numbers(rng, y, dtype):
    """A column of numbers whose mean depends on the class."""
    value = rng.normal(size=len(y)) * 10.0 ** rng.integers(-2, 4) + y
    whole = dtype in ("int64", "Int64")
    return pd.Series(np.rint(value) if whole else value).astype("float64" if dtype == "object" else dtype)


def _categories(rng, y, dtype):
    codes = (rng.integers(0, 2 if dtype in ("bool", "boolean") else 3, len(y)) * (1 + y)) % 3
    if dtype in ("bool", "boolean"):
        return pd.Series(codes > 0).astype(dtype)
    return pd.Series(codes).astype(dtype) if dtype == "Int64" else pd.Series(np.array(["a", "b", "ç"])[codes]).astype(dtype)


def _with_gaps(column, gaps, dtype):
    if dtype in COMPLETE:
        return column
    return column.astype(object).mask(gaps, None) if dtype == "object" else column.mask(gaps)


@st.composite
def tables(draw, categories=False, mixed=False, complete=False):
    """(frame, labels): every class in both halves of the rows."""
    k, p = draw(st.sampled_from(SIZES))
    n = draw(st.integers(6 * k, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    share = 0.0 if complete else draw(st.sampled_from([0.0, 0.2, 0.6]))
    codes = np.arange(n) % k
    columns = {}
    for j in range(p):
        nominal = categories if not mixed else j % 2 == 0
        dtype = draw(st.sampled_from(CATEGORIES if nominal else NUMBERS))
        column = (_categories if nominal else _numbers)(rng, codes, dtype)
        gaps = rng.random(n) < share
        gaps[: 2 * k] = gaps[-2 * k :] = False  # something to learn from in every class and column of both halves
        columns[f"x{j}"] = _with_gaps(column, gaps, dtype)
    return pd.DataFrame(columns), np.array(["no", "yes", "maybe"])[codes]


def _names(frame):
    return {c: "categorical" if j % 2 == 0 else "gaussian" for j, c in enumerate(frame)}


def check(clf, frame, y):
    fitted = clone(clf).fit(frame, y)
    holed = frame.copy().astype(object)
    holed[np.random.default_rng(0).random(frame.shape) < 0.3] = None
    for rows in (frame, holed):
        probabilities(fitted, rows)
    row_order(clf, fitted, frame, y)
    no_cells(fitted, frame, y)
    dtypes(fitted, frame, holed)
    halves(clf, fitted, frame, y)


def probabilities(fitted, rows):
    proba = fitted.predict_proba(rows)
    assert proba.shape == (len(rows), len(fitted.classes_))
    assert np.isfinite(proba).all() and (proba >= 0).all()
    np.testing.assert_allclose(proba.sum(1), 1.0, rtol=1e-12)
    table = fitted.log_joint(rows)
    np.testing.assert_allclose(fitted.score_samples(rows), logsumexp(table, 1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(proba, np.exp(table - logsumexp(table, 1, keepdims=True)), rtol=1e-9, atol=1e-12)
    assert (fitted.predict(rows) == fitted.classes_[proba.argmax(1)]).all()


def row_order(clf, fitted, frame, y):
    order = np.random.default_rng(1).permutation(len(y))
    again = clone(clf).fit(frame.iloc[order], y[order])
    np.testing.assert_allclose(again.log_joint(frame), fitted.log_joint(frame), rtol=1e-9, atol=1e-9)


def no_cells(fitted, frame, y):
    """A row without any cell has the class prior, and log density 0."""
    empty = pd.DataFrame({c: pd.Series([None], dtype=object) for c in frame})
    counts = np.array([(y == c).sum() for c in fitted.classes_], float)
    counts = counts + 1 if fitted.method == "posterior" else counts
    np.testing.assert_allclose(fitted.predict_proba(empty)[0], counts / counts.sum(), rtol=1e-12)
    np.testing.assert_allclose(fitted.score_samples(empty), 0.0, atol=1e-12)


def dtypes(fitted, frame, holed):
    drawn, labels = fitted.sample(5, random_state=0)
    assert (drawn.dtypes == frame.dtypes).all() and set(labels) <= set(fitted.classes_)
    filled = fitted.impute(holed)
    assert list(filled.columns) == list(frame.columns) and filled.index.equals(frame.index)
    assert not filled.isna().any(axis=None)
    for c in frame:
        seen = holed[c].notna()
        assert (filled[c][seen] == holed[c][seen]).all(), c


def halves(clf, fitted, frame, y):
    middle = 2 * (len(y) // 4)
    a, b = (clone(clf).fit(frame.iloc[rows], y[rows]) for rows in (slice(0, middle), slice(middle, None)))
    np.testing.assert_allclose(a.merge(b).log_joint(frame), fitted.log_joint(frame), rtol=1e-8, atol=1e-8)


# one method each, to compile less: point estimates and predictives share everything but the density
@anything
@given(tables())
def test_gaussian_naive_bayes(table):
    check(GaussianNB(method="posterior", num_draws=10, random_state=0), *table)


@anything
@given(tables(complete=True))
def test_quadratic_discriminants(table):
    check(QDA(random_state=0), *table)


@anything
@given(tables(categories=True))
def test_categories(table):
    check(CategoricalNB(random_state=0), *table)


@anything
@given(tables(mixed=True))
def test_mixed_tables(table):
    frame, y = table
    check(MixedNB(columns=_names(frame), method="posterior", num_draws=10, random_state=0), frame, y)
