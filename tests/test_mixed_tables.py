"""Real tables as they come: every dtype, missing cells everywhere, odd columns; sparse rows in little memory."""

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from conftest import normal_settings
from sklearn.naive_bayes import MultinomialNB as SklearnMultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from bayesgen import (
    BernoulliNB,
    Categorical,
    CategoricalNB,
    ComplementNB,
    Gaussian,
    GenerativeClassifier,
    MixedNB,
    MultinomialNB,
    Poisson,
    PoissonNB,
)
from bayesgen.data import load_messages, load_penguins

RANDOM_FLOATS = {
    "check_sample_weight_equivalence_on_dense_data": "its categories are random floats: rows of weight 0 have others",
    "check_classifiers_one_label_sample_weights": "its categories are random floats: new rows have none of them",
}


@parametrize_with_checks(
    [
        BernoulliNB(binarize=0.0),
        CategoricalNB(),
        MultinomialNB(),
        PoissonNB(),
        ComplementNB(),
        MixedNB(),
        GenerativeClassifier([(slice(None), Gaussian("diag"))]),
    ],
    expected_failed_checks=lambda estimator: RANDOM_FLOATS if isinstance(estimator, CategoricalNB) else {},
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def every_dtype(n=120, seed=0):
    """A column of every pandas dtype, missing cells wherever the dtype can hold them, names in several scripts."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.4, "ja", "nein")
    shift = (y == "ja").astype(float)
    words = rng.choice(["rot", "grün", "蓝"], n)
    gap = rng.random((n, 20)) < 0.15
    frame = pd.DataFrame(
        {
            "float64": np.where(gap[:, 0], np.nan, rng.normal(size=n) + 2 * shift),
            "float32": np.where(gap[:, 1], np.nan, rng.normal(size=n)).astype("float32"),
            "Float64": pd.array(np.where(gap[:, 2], None, rng.normal(size=n) - shift), dtype="Float64"),
            "int64, few values": rng.integers(0, 4, n),
            "int64, counts": rng.poisson(8 + 6 * shift),
            "int64, spread": rng.integers(0, 10_000, n),
            "int8, negative": rng.integers(-60, 60, n).astype("int8"),
            "uint16": rng.poisson(20, n).astype("uint16"),
            "Int64": pd.array(np.where(gap[:, 3], None, rng.poisson(9, n)), dtype="Int64"),
            "bool": rng.random(n) < 0.3 + 0.3 * shift,
            "boolean": pd.array(np.where(gap[:, 4], None, rng.random(n) < 0.5), dtype="boolean"),
            "object bool": np.where(gap[:, 5], None, rng.random(n) < 0.5),
            "object": np.where(gap[:, 6], None, words),
            "string": pd.array(np.where(gap[:, 7], None, words), dtype="string"),
            "größe 📏": pd.Categorical(np.where(gap[:, 8], None, words), categories=["蓝", "rot", "unused", "grün"]),
            "ordered": pd.Categorical.from_codes(rng.integers(-1, 3, n), ["low", "mid", "high"], ordered=True),
            "category of numbers": pd.Categorical(rng.integers(3, 6, n)),
            "constant": 1.5,
            "constant text": "same",
            "missing in ja": np.where(y == "ja", np.nan, rng.normal(size=n)),
            "text missing in ja": np.where(y == "ja", None, words),
        },
        index=[f"row {i}" for i in range(n)],
    )
    return frame, pd.Series(y, index=frame.index, name="antwort")


FRAME, ANSWER = every_dtype()


@pytest.fixture(scope="module", params=["map", "posterior"])
def fitted(request):
    return MixedNB(method=request.param, random_state=0, num_draws=50).fit(FRAME, ANSWER)


def test_auto_families(fitted):
    found = {column: type(family).__name__ for columns, family in fitted.blocks_ for column in columns}
    expected = {
        "Gaussian": ["float64", "float32", "Float64", "int64, spread", "int8, negative", "constant", "missing in ja"],
        "Poisson": ["int64, counts", "uint16", "Int64"],
        "Bernoulli": ["bool", "boolean"],
    }
    stated = {column: family for family, columns in expected.items() for column in columns}
    assert found == {column: stated.get(column, "Categorical") for column in FRAME.columns}


def test_every_use_of_every_dtype(fitted):
    proba = fitted.predict_proba(FRAME)
    np.testing.assert_allclose(proba.sum(1), 1.0)
    table = fitted.log_joint(FRAME)
    assert np.isfinite(table).all()
    assert fitted.score(FRAME, ANSWER) > 0.8
    low, high = fitted.predict_proba_interval(FRAME)
    assert np.all(low <= high)
    pvalues = fitted.outlier_pvalues(FRAME[:10])
    assert np.all((pvalues > 0) & (pvalues <= 1))
    assert np.isfinite(fitted.loo_predict_proba()).all()
    assert np.isfinite(fitted.log_evidence_)
    odds = fitted.explain(FRAME[:7]).groupby("row")["log_ratio"].sum()
    np.testing.assert_allclose(odds, (table[:, 1] - table[:, 0])[:7], rtol=0, atol=1e-10)


def test_samples_come_back_as_the_table_was(fitted):
    rows, labels = fitted.sample(40)
    pd.testing.assert_index_equal(rows.columns, FRAME.columns)
    pd.testing.assert_series_equal(rows.dtypes, FRAME.dtypes)
    assert labels.name == "antwort" and set(labels) <= {"ja", "nein"}
    assert not rows.isna().any().any()
    assert (rows["constant text"] == "same").all()
    assert rows["int64, counts"].min() >= 0
    assert set(rows["object"]) <= {"rot", "grün", "蓝"}
    again = fitted.predict_proba(rows)
    assert np.isfinite(again).all()


@pytest.mark.parametrize("draws", [None, 2])
def test_imputed_tables_keep_everything_but_the_gaps(fitted, draws):
    filled = fitted.impute(FRAME, draws=draws)
    for table in [filled] if draws is None else filled:
        assert not table.isna().any().any()
        pd.testing.assert_index_equal(table.index, FRAME.index)
        pd.testing.assert_series_equal(table.dtypes, FRAME.dtypes)
        for column in FRAME:
            seen = FRAME[column].notna()
            assert (table.loc[seen, column] == FRAME.loc[seen, column]).all()


def test_all_cells_missing_gives_the_class_prior(fitted):
    nothing = FRAME.iloc[:2].astype(object)
    nothing.loc[:] = None
    np.testing.assert_allclose(fitted.predict_proba(nothing), np.tile(fitted.priors_, (2, 1)), rtol=1e-12)
    np.testing.assert_allclose(fitted.score_samples(nothing), 0.0, atol=1e-12)


def test_the_joint_is_the_product_over_columns():
    columns = ["float64", "int64, counts", "bool", "größe 📏", "text missing in ja"]
    whole = MixedNB().fit(FRAME[columns], ANSWER)
    total = np.log(whole.priors_) + sum(
        MixedNB().fit(FRAME[[c]], ANSWER).log_joint(FRAME[[c]]) - np.log(whole.priors_) for c in columns
    )
    np.testing.assert_allclose(whole.log_joint(FRAME[columns]), total, rtol=1e-12)


def test_unused_categories_have_a_share_by_the_prior(fitted):
    clf = CategoricalNB().fit(FRAME[["größe 📏"]], ANSWER)
    assert clf.categories_[0].tolist() == ["蓝", "rot", "unused", "grün"]
    counts = FRAME["größe 📏"][ANSWER == "ja"].value_counts()
    expected = (counts.reindex(clf.categories_[0], fill_value=0) + 1) / (counts.sum() + 4)
    np.testing.assert_allclose(clf.params_["prob"][0, 0], expected, rtol=1e-12)


def test_column_missing_in_one_class_is_refused_by_mle_and_named():
    for column in ("missing in ja", "text missing in ja"):
        with pytest.raises(ValueError, match=f"Class 'ja' has no observed cell in column '{column}'"):
            MixedNB(method="mle").fit(FRAME[["float64", column]], ANSWER)


def test_ten_thousand_categories():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 10_000, 30_000)
    city = pd.Categorical.from_codes(codes, [f"city {c}" for c in range(10_000)])
    frame = pd.DataFrame({"city": city, "colour": rng.choice(["a", "b"], 30_000)})
    y = (codes % 7 < 3) ^ (rng.random(30_000) < 0.1)
    clf = CategoricalNB(method="posterior", num_draws=20, random_state=0).fit(frame, y)
    counts = np.stack([np.bincount(codes[y == k], minlength=10_000) for k in (0, 1)])
    prob = (counts + 2) / (counts.sum(1, keepdims=True) + 2 * 10_000)
    np.testing.assert_allclose(clf.params_["prob"][:, 0], prob, rtol=1e-12)
    assert clf.predict_proba_draws(frame[:5]).shape == (20, 5, 2)
    assert clf.impute(frame[:3].assign(city=None))["city"].isin(clf.categories_[0]).all()


def test_penguins():
    birds = load_penguins()
    species = birds.pop("species")
    clf = MixedNB(method="posterior", random_state=0).fit(birds, species)
    accuracy = (clf.classes_[clf.loo_predict_proba().argmax(1)] == species).mean()
    assert accuracy > 0.97
    rows, labels = clf.sample(200)
    assert (pd.crosstab(labels, rows["island"]).loc["Gentoo", "Biscoe"]) > 40
    filled = clf.impute(birds)
    assert filled["sex"].isin(["male", "female"]).all() and filled["year"].dtype == birds["year"].dtype


# -- errors
def test_repeated_names_and_the_target_among_the_columns():
    with pytest.raises(ValueError, match="repeated column names: 'float64'"):
        MixedNB().fit(pd.concat([FRAME[["float64"]], FRAME[["float64", "bool"]]], axis=1), ANSWER)
    for target in (ANSWER, ANSWER.to_numpy()):
        with pytest.raises(ValueError, match="The target 'antwort' is among the columns of X"):
            MixedNB().fit(FRAME.assign(antwort=ANSWER), target)


def test_unknown_categories():
    train, new = FRAME[["object", "float64"]], FRAME[["object", "float64"]].iloc[:2].assign(object=["lila", "rot"])
    strict, lenient = MixedNB().fit(train, ANSWER), MixedNB(handle_unknown="missing").fit(train, ANSWER)
    for use in (strict.predict_proba, strict.score_samples, strict.impute, strict.explain, strict.outlier_pvalues):
        with pytest.raises(ValueError, match="unknown categories in column 'object': 'lila'"):
            use(new)
    np.testing.assert_array_equal(lenient.predict_proba(new), lenient.predict_proba(new.assign(object=[None, "rot"])))
    assert lenient.impute(new)["object"].isin(["rot", "grün", "蓝"]).all()


def test_multinomial_refuses_missing_counts_and_says_why():
    x, y = np.array([[1.0, 2.0], [3.0, 0.0]]), [0, 1]
    clf = MultinomialNB().fit(x, y)
    gaps = np.array([[1.0, np.nan]])
    for call in (lambda: clf.predict(gaps), lambda: MultinomialNB().fit(np.vstack([x, gaps]), [0, 1, 1])):
        with pytest.raises(ValueError, match=r"column 1, row \d\. Multinomial counts cannot have missing cells, because"):
            call()


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        (None, "give a list of"),
        ([], "give a list of"),
        ([("float64",)], "give a list of"),
        ([(["float64"], "normal")], "no family"),
        ([(["float64"], Gaussian()), (["float64", "bool"], "bernoulli")], r"more than one block: \['float64'\]"),
        ([(["float64"], Gaussian("diag"))], r"in no block: \['bool'\]"),
        ([(["float64", "length"], Gaussian())], "unknown column: 'length'"),
        ([(["float64", "bool"], Gaussian("diag")), ([], "poisson")], "no columns"),
        ([([True], Gaussian())], "mask of 1"),
    ],
)
def test_blocks_that_make_no_sense(blocks, words):
    with pytest.raises(ValueError, match=words):
        GenerativeClassifier(blocks).fit(FRAME[["float64", "bool"]], ANSWER)


def test_columns_that_make_no_sense():
    for columns, words in (
        ("all", "'auto'"),
        ({"length": "gaussian"}, "unknown columns"),
        ({"bool": "normal"}, "columns..bool"),
    ):
        with pytest.raises(ValueError, match=words):
            MixedNB(columns).fit(FRAME[["float64", "bool"]], ANSWER)


# -- columns as in ColumnTransformer
@pytest.mark.parametrize(
    ("numbers", "rest"),
    [
        (["a", "b"], "c"),
        ([0, 1], [2]),
        ([0, 1], -1),
        (slice(0, 2), slice(2, None)),
        (slice("a", "b"), slice("c", None)),
        ([True, True, False], [False, False, True]),
        (lambda X: X.select_dtypes("number").columns, lambda X: ["c"]),
    ],
)
def test_columns_of_blocks(numbers, rest):
    X = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [2.0, 1.0, 4.0, 5.0], "c": list("xyxy")})
    clf = GenerativeClassifier([(numbers, Gaussian()), (rest, Categorical())]).fit(X, [0, 0, 1, 1])
    assert [columns for columns, _ in clf.blocks_] == [["a", "b"], ["c"]]
    assert set(clf.params_) == {"class_probs", "gaussian.mean", "gaussian.covariance", "categorical.prob"}


def test_blocks_of_one_family_are_numbered_and_blocks_serve_again():
    X = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.5], "b": [2.0, 1.0, 4.0, 5.0], "n": [3, 0, 2, 8]})
    clf = GenerativeClassifier([("a", Gaussian("diag")), ("b", Gaussian("diag")), ("n", Poisson())]).fit(X, [0, 0, 1, 1])
    assert set(clf.params_) >= {"gaussian_1.mean", "gaussian_2.mean", "poisson.rate"}
    again = GenerativeClassifier(clf.blocks_).fit(X, [0, 0, 1, 1])
    np.testing.assert_allclose(again.log_joint(X), clf.log_joint(X), rtol=1e-12)
    merged = clf.merge(clf)
    np.testing.assert_allclose(merged.params_["poisson.rate"], np.array([[7.0], [21.0]]) / 5)


# -- text
def test_text_in_a_pipeline_stays_sparse(monkeypatch):
    from sklearn.feature_extraction.text import CountVectorizer

    def densified(*args, **kwargs):
        raise AssertionError("a sparse matrix was made dense")

    messages = load_messages()
    half = np.arange(len(messages)) % 2 == 0
    vectorizer = CountVectorizer()
    train, test = vectorizer.fit_transform(messages["text"][half]), vectorizer.transform(messages["text"][~half])
    plain = {}
    for clf in (MultinomialNB(), BernoulliNB(binarize=0.0), PoissonNB(), MultinomialNB(method="posterior", num_draws=5)):
        plain[clf] = clf.fit(train.toarray(), messages["topic"][half]).predict_log_proba(test.toarray())
    for kind in (scipy.sparse.csr_matrix, scipy.sparse.csc_matrix, scipy.sparse.csr_array):
        x, new = kind(train), kind(test)
        for clf, expected in plain.items():
            with monkeypatch.context() as patch:
                patch.setattr(kind, "todense", densified)
                # sums per class, (K, d), are the only thing that is unpacked
                unpack = kind.toarray
                patch.setattr(
                    kind, "toarray", lambda self, *a, u=unpack, **k: u(self, *a, **k) if self.shape[0] <= 4 else densified()
                )
                clf.fit(x, messages["topic"][half])
                np.testing.assert_allclose(clf.predict_log_proba(new), expected, rtol=0, atol=1e-9)
                clf.partial_fit(x, messages["topic"][half])
                clf.explain(new[:5])
    ours, theirs = (
        make_pipeline(CountVectorizer(), clf).fit(messages["text"][half], messages["topic"][half]).predict(messages["text"])
        for clf in (MultinomialNB(), SklearnMultinomialNB())
    )
    np.testing.assert_array_equal(ours, theirs)


MEMORY = """
import numpy as np, scipy.sparse
from bayesgen import {name}

def peak():
    return [int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")][0]

rng = np.random.default_rng(0)
n, p, nnz, k = 20_000, 100_000, 2_000_000, 10
order = np.sort(rng.integers(0, n, nnz))
X = scipy.sparse.csr_matrix((rng.integers(1, 4, nnz).astype(float), (p * rng.random(nnz) ** 3).astype(np.int32),
                             np.searchsorted(order, np.arange(n + 1)).astype(np.int32)), shape=(n, p))
X.sum_duplicates()
y = rng.integers(0, k, n)
del order
open("/proc/self/clear_refs", "w").write("5")
before = peak()
clf = {name}({settings}).fit(X, y)
clf.predict_proba(X)
print(peak() - before - k * p * 8 / 2**20)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from Linux's /proc")
@pytest.mark.parametrize(("name", "settings"), [("MultinomialNB", ""), ("BernoulliNB", "binarize=0.0")])
def test_wide_sparse_text_in_little_memory(name, settings):
    code = textwrap.dedent(MEMORY.format(name=name, settings=settings))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=normal_settings())
    assert float(done.stdout) < 300
