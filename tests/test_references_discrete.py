"""Naive Bayes of discrete, count and mixed columns against R (e1071, naivebayes, bnlearn) and the worked examples of the
lectures behind the project (where a printed value was wrong, the corrected one)."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from sklearn.datasets import load_iris

from bayesgen import (
    BernoulliNB,
    Categorical,
    CategoricalNB,
    Gaussian,
    GaussianNB,
    GenerativeClassifier,
    MixedNB,
    MultinomialNB,
    NormalWishart,
)

DATA = Path(__file__).parent / "data"
IRIS, INFERT, TITANIC = (
    json.loads((DATA / f"discrete_{name}.json").read_text(encoding="utf-8")) for name in ("iris", "infert", "titanic")
)


def vague(ddof):
    """Gaussian columns at maximum likelihood under method="map": flat mean, no scale: S/(n_k + ν − 2) = S/(n_k − ddof)."""
    return Gaussian("diag", prior=NormalWishart(strength=0, df=2 - ddof, scale=0))


def close(actual, expected, atol=1e-10):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


def with_missing(frame, cells):
    """A copy with the [row, column] cells missing."""
    out = frame.copy()
    for j, name in enumerate(frame.columns):
        out.loc[[row for row, column in cells if column == j], name] = np.nan
    return out


# -- e1071 and naivebayes on iris: Gaussian columns, sd with n_k − 1 (unbiased=True)
X, y = load_iris(as_frame=True, return_X_y=True)
X_MISSING = with_missing(X, IRIS["missing"])
NAMES = X.columns.tolist()
GAUSSIAN = {
    "GaussianNB": GaussianNB(method="mle", unbiased=True),
    "two blocks": GenerativeClassifier(
        blocks=[(NAMES[2:], Gaussian("diag", unbiased=True)), (NAMES[:2], Gaussian("diag", unbiased=True))], method="mle"
    ),
}
each_gaussian = pytest.mark.parametrize("name", GAUSSIAN)


@each_gaussian
def test_iris_posteriors_equal_e1071_and_naivebayes(name):
    clf = GAUSSIAN[name].fit(X, y)
    close(clf.predict_proba(X)[IRIS["rows"]], IRIS["posterior"])
    close(clf.predict_proba(X)[IRIS["rows"]], IRIS["posterior_naivebayes"])
    np.testing.assert_allclose(clf.log_joint(X)[IRIS["rows"]], IRIS["log_joint"], rtol=1e-10)


@each_gaussian
def test_iris_posteriors_of_rows_with_missing_cells_equal_e1071(name):
    clf = GAUSSIAN[name].fit(X, y)
    close(clf.predict_proba(X_MISSING)[IRIS["rows"]], IRIS["posterior_missing"])
    assert X_MISSING.iloc[149].isna().all()
    close(clf.predict_proba(X_MISSING)[149], [1 / 3, 1 / 3, 1 / 3])


@each_gaussian
def test_iris_trained_with_missing_cells_equals_e1071(name):
    clf = GAUSSIAN[name].fit(X_MISSING, y)
    close(clf.predict_proba(X)[IRIS["rows"]], IRIS["trained_missing_posterior"])


def test_iris_tables_equal_e1071():
    for rows, key in ((X, "tables"), (X_MISSING, "trained_missing")):
        clf = GaussianNB(method="mle", unbiased=True).fit(rows, y)
        np.testing.assert_allclose(clf.params_["mean"], IRIS[key]["mean"], rtol=1e-12)
        np.testing.assert_allclose(np.sqrt(clf.params_["variance"]), IRIS[key]["sd"], rtol=1e-12)


@each_gaussian
def test_iris_far_points_keep_their_exact_densities(name):
    # e1071 puts a floor of 0.001 under densities that underflow; the reference is the exact sum of log densities
    clf, far = GAUSSIAN[name].fit(X, y), pd.DataFrame(IRIS["far"]["rows"], columns=NAMES, dtype=float)
    np.testing.assert_allclose(clf.log_joint(far), IRIS["far"]["log_joint"], rtol=1e-12)
    close(clf.predict_proba(far), IRIS["far"]["posterior"], atol=1e-300)


# -- e1071 on infert: one factor, four Gaussian columns; `laplace` is alpha, and leaves the Gaussians and the classes alone
EDUCATION, NUMBERS = INFERT["columns"][:1], INFERT["columns"][1:]
LAPLACE = ["0", "1", "2.5"]


def infert(cells=()):
    levels = pd.Categorical.from_codes(INFERT["education"], categories=INFERT["levels"])
    frame = pd.DataFrame({"education": levels, **{name: np.array(INFERT[name], float) for name in NUMBERS}})
    return with_missing(frame, cells)


def infert_classifier(laplace, **settings):
    if laplace == "0":
        blocks, method = [(EDUCATION, Categorical()), (NUMBERS, Gaussian("diag", unbiased=True))], "mle"
    else:
        blocks, method = [(EDUCATION, Categorical(alpha=float(laplace))), (NUMBERS, vague(ddof=1))], "map"
    return GenerativeClassifier(blocks=blocks, method=method, **settings).fit(infert(), INFERT["case"])


@pytest.mark.parametrize("laplace", LAPLACE)
def test_infert_tables_equal_e1071(laplace):
    params = infert_classifier(laplace).params_
    np.testing.assert_allclose(params["class_probs"], [165 / 248, 83 / 248], rtol=1e-12)
    np.testing.assert_allclose(params["categorical.prob"][:, 0], INFERT[f"laplace_{laplace}"]["education"], rtol=1e-12)
    np.testing.assert_allclose(params["gaussian.mean"], INFERT["mean"], rtol=1e-12)
    np.testing.assert_allclose(np.sqrt(params["gaussian.variance"]), INFERT["sd"], rtol=1e-12)


@pytest.mark.parametrize("laplace", LAPLACE)
def test_infert_posteriors_equal_e1071(laplace):
    clf, expected = infert_classifier(laplace), INFERT[f"laplace_{laplace}"]
    close(clf.predict_proba(infert())[INFERT["rows"]], expected["posterior"])
    np.testing.assert_allclose(clf.log_joint(infert())[INFERT["rows"]], expected["log_joint"], rtol=1e-12)
    close(clf.predict_proba(infert(INFERT["missing"]))[INFERT["rows"]], expected["posterior_missing"])


@pytest.mark.parametrize("laplace", LAPLACE)
def test_infert_log_joint_is_the_sum_of_two_separate_fits(laplace):
    gaussian = GaussianNB(method="mle", unbiased=True).fit(infert()[NUMBERS], INFERT["case"])
    education = CategoricalNB(method="map", alpha=float(laplace)).fit(infert()[EDUCATION], INFERT["case"])
    joint = gaussian.log_joint(infert()[NUMBERS]) + education.log_joint(infert()[EDUCATION]) - np.log(gaussian.priors_)
    np.testing.assert_allclose(joint[INFERT["rows"]], INFERT[f"laplace_{laplace}"]["log_joint"], rtol=1e-12)


def test_infert_unknown_level_is_skipped_as_in_e1071():
    gone = [i for i in INFERT["rows"] if [j for row, j in INFERT["missing"] if row == i] == [0]]  # education alone
    assert gone
    rows = infert().iloc[gone]
    rows["education"] = pd.Categorical(["13+ yrs"] * len(gone), categories=[*INFERT["levels"], "13+ yrs"])
    expected = [INFERT["laplace_1"]["posterior_missing"][INFERT["rows"].index(i)] for i in gone]
    close(infert_classifier("1", handle_unknown="missing").predict_proba(rows), expected)


# -- e1071 and bnlearn on the Titanic: three factors, 24 cells with counts
CELLS, COUNTS = np.array(TITANIC["cells"]), np.array(TITANIC["counts"])
PEOPLE = np.repeat(CELLS, COUNTS, axis=0)
CONFIGURATIONS = np.array(TITANIC["configurations"])
FACTORS = ["Class", "Sex", "Age"]


def titanic(codes):
    """Codes as a frame of categories, in R's order of the levels."""
    columns = {name: pd.Categorical.from_codes(codes[:, j], TITANIC["levels"][name]) for j, name in enumerate(FACTORS)}
    return pd.DataFrame(columns)


def padded(tables):
    """The tables of the three factors as (class, factor, category), 0 where a factor has fewer categories."""
    return np.stack([np.pad(tables[name], ((0, 0), (0, 4 - len(tables[name][0])))) for name in FACTORS], axis=1)


@pytest.mark.parametrize(
    ("key", "method", "alpha"),
    [
        ("e1071_laplace_0", "mle", 1.0),
        ("e1071_laplace_0", "map", 0.0),
        ("e1071_laplace_1", "map", 1.0),
        ("bnlearn_mle", "mle", 1.0),
    ],
)
@pytest.mark.parametrize("kind", ["codes", "frame", "counts"])
def test_titanic_tables_and_posteriors_equal_r(key, method, alpha, kind):
    clf, expected = CategoricalNB(method=method, alpha=alpha), TITANIC[key]
    if kind == "counts":  # a count is a weight
        clf.fit(CELLS[:, :3], CELLS[:, 3], sample_weight=COUNTS)
    else:
        clf.fit(titanic(PEOPLE) if kind == "frame" else PEOPLE[:, :3], PEOPLE[:, 3])
    np.testing.assert_allclose(clf.priors_, [1490 / 2201, 711 / 2201], rtol=1e-12)
    np.testing.assert_allclose(clf.params_["prob"], padded(expected), rtol=1e-12)
    close(clf.predict_proba(titanic(CONFIGURATIONS) if kind == "frame" else CONFIGURATIONS), expected["posterior"])


def bnlearn_bayes(iss):
    """bnlearn adds iss/(2r) to each cell of a factor with r categories, and iss/2 to each class."""
    blocks = [(["Class"], Categorical(alpha=iss / 8)), (["Sex", "Age"], Categorical(alpha=iss / 4))]
    return GenerativeClassifier(blocks=blocks, class_smoothing=iss / 2, method="map").fit(titanic(PEOPLE), PEOPLE[:, 3])


@pytest.mark.parametrize("iss", [1, 10])
def test_titanic_posteriors_equal_bnlearn_bayes(iss):
    clf, expected = bnlearn_bayes(iss), TITANIC[f"bnlearn_bayes{iss}"]
    close(clf.predict_proba(titanic(CONFIGURATIONS)), expected["posterior"])
    np.testing.assert_allclose(clf.priors_, expected["Survived"], rtol=1e-12)


@pytest.mark.parametrize("iss", [1, 10])
@pytest.mark.parametrize(("j", "name"), list(enumerate(FACTORS)))
def test_titanic_tables_equal_bnlearn_bayes(iss, j, name):
    expected = TITANIC[f"bnlearn_bayes{iss}"]
    clf = CategoricalNB(alpha=iss / (2 * len(TITANIC["levels"][name])), class_smoothing=iss / 2)
    clf.fit(PEOPLE[:, [j]], PEOPLE[:, 3])
    np.testing.assert_allclose(clf.params_["prob"][:, 0], expected[name], rtol=1e-12)
    np.testing.assert_allclose(clf.priors_, expected["Survived"], rtol=1e-12)


def test_titanic_log_likelihood_equals_bnlearn():
    fits = {
        "mle": CategoricalNB(method="mle").fit(titanic(PEOPLE), PEOPLE[:, 3]),
        "bayes1": bnlearn_bayes(1),
        "bayes10": bnlearn_bayes(10),
    }
    for key, clf in fits.items():
        joint = clf.log_joint(titanic(CELLS))[np.arange(len(CELLS)), CELLS[:, 3]]
        np.testing.assert_allclose(COUNTS @ joint, TITANIC[f"bnlearn_{key}"]["logLik"], rtol=1e-12)


# -- worked examples: categories
EXAM = pd.DataFrame(
    {"X1": list("CABBACB"), "X2": ["No", "Yes", "Yes", "Yes", "No", "No", "Yes"], "X3": [0, 1, 0, 0, 1, 1, 1]}
)
EXAM_CLASS = ["+", "+", "-", "-", "+", "-", "+"]
EXAM_QUERY = pd.DataFrame({"X1": ["B"], "X2": ["Yes"], "X3": [1]})


def test_categorical_exam_by_maximum_likelihood():
    clf = CategoricalNB(method="mle").fit(EXAM, EXAM_CLASS)
    assert clf.classes_.tolist() == ["+", "-"]
    np.testing.assert_allclose(clf.priors_, [4 / 7, 3 / 7], rtol=1e-12)
    probs = clf.params_["prob"][:, [0, 1, 2], [1, 1, 1]]  # B of (A, B, C), Yes of (No, Yes), 1 of (0, 1)
    np.testing.assert_allclose(probs, [[1 / 4, 1 / 2, 3 / 4], [2 / 3, 2 / 3, 1 / 3]], rtol=1e-12)
    np.testing.assert_allclose(np.exp(clf.log_joint(EXAM_QUERY)), [[0.05357142857142857, 0.06349206349206349]], rtol=1e-12)
    np.testing.assert_allclose(clf.predict_proba(EXAM_QUERY), [[0.45762711864406774, 0.5423728813559322]], rtol=1e-12)
    assert clf.predict(EXAM_QUERY).tolist() == ["-"]


def test_categorical_exam_with_laplace_smoothing():
    clf = CategoricalNB(method="map", alpha=1.0).fit(EXAM, EXAM_CLASS)
    np.testing.assert_allclose(np.exp(clf.log_joint(EXAM_QUERY)), [[0.054421768707482984, 0.05142857142857142]], rtol=1e-12)
    np.testing.assert_allclose(clf.predict_proba(EXAM_QUERY), [[0.5141388174807198, 0.48586118251928023]], rtol=1e-12)
    assert clf.predict(EXAM_QUERY).tolist() == ["+"]


def test_weather_and_car():
    days = ["sunny", "rainy", "sunny", "sunny", "sunny", "rainy", "rainy", "sunny", "sunny", "rainy"]
    cars = ["working", "broken", "working", "working", "working", "broken", "broken", "working", "broken", "broken"]
    table = pd.DataFrame({"weather": days, "car": cars})
    clf = CategoricalNB(method="mle").fit(table, ["out"] * 5 + ["stay"] * 5)
    close(clf.priors_, [0.5, 0.5], atol=1e-15)
    rainy_sunny, broken_working = clf.params_["prob"][:, 0], clf.params_["prob"][:, 1]
    np.testing.assert_allclose(rainy_sunny, [[0.2, 0.8], [0.6, 0.4]], rtol=1e-12)
    np.testing.assert_allclose(broken_working, [[0.2, 0.8], [0.8, 0.2]], rtol=1e-12)
    query = pd.DataFrame(
        {"weather": ["sunny", "sunny", "rainy", "rainy"], "car": ["working", "broken", "working", "broken"]}
    )
    np.testing.assert_allclose(clf.predict_proba(query)[:, 0], [8 / 9, 1 / 3, 4 / 7, 1 / 13], rtol=1e-12)
    assert clf.score(table, ["out"] * 5 + ["stay"] * 5) == 0.8


@pytest.mark.parametrize("table", [EXAM[["X1"]], EXAM[["X1", "X2", "X3"]]])
def test_laplace_smoothing_is_a_map_and_also_a_posterior_mean_under_a_flat_prior(table):
    smoothed = CategoricalNB(method="map", alpha=1.0).fit(table, EXAM_CLASS)
    mean = CategoricalNB(method="posterior", alpha=0.0).fit(table, EXAM_CLASS)
    np.testing.assert_allclose(mean.params_["prob"], smoothed.params_["prob"], rtol=1e-12)


# -- worked examples: Gaussian and categorical columns
CREDIT = pd.DataFrame(
    {
        "balance": [500.0, 1980.0, 60.0, 2810.0, 1400.0, 300.0, 2000.0, 940.0, 1630.0, 2170.0],
        "student": ["No", "Yes", "No", "Yes", "No", "No", "Yes", "No", "No", "Yes"],
    }
)
DEFAULT = ["N", "Y", "N", "Y", "N", "N", "Y", "N", "Y", "Y"]
CREDIT_QUERY = pd.DataFrame({"balance": [2080.0], "student": ["Yes"]})
DENSITY_N, DENSITY_Y = 1.9616113724944426e-05, 0.0009161540473947143


def test_credit_default_without_smoothing():
    blocks = [(["balance"], Gaussian("diag", unbiased=True)), (["student"], Categorical())]
    clf = GenerativeClassifier(blocks=blocks, method="mle").fit(CREDIT, DEFAULT)
    np.testing.assert_allclose(clf.params_["gaussian.mean"], [[640.0], [2118.0]], rtol=1e-12)
    sd = np.sqrt(clf.params_["gaussian.variance"])
    np.testing.assert_allclose(sd, [[533.6665625650534], [433.7856613582335]], rtol=1e-12)
    np.testing.assert_allclose(clf.params_["categorical.prob"][:, 0], [[1.0, 0.0], [0.2, 0.8]], rtol=1e-12)
    np.testing.assert_allclose(np.exp(clf.log_joint(CREDIT_QUERY)), [[0.0, 0.5 * 0.8 * DENSITY_Y]], rtol=1e-10)
    assert clf.log_joint(CREDIT_QUERY)[0, 0] == -np.inf  # no student in class N
    assert clf.predict_proba(CREDIT_QUERY).tolist() == [[0.0, 1.0]]
    balance_only = CREDIT_QUERY.assign(student=np.nan)
    np.testing.assert_allclose(np.exp(clf.log_joint(balance_only)), [[0.5 * DENSITY_N, 0.5 * DENSITY_Y]], rtol=1e-10)


def test_credit_default_with_maximum_likelihood_variance():
    # the slide calls the sd with n − 1 maximum likelihood; with n the density is another one
    clf = MixedNB(columns={"balance": "gaussian", "student": "categorical"}, method="mle").fit(CREDIT, DEFAULT)
    expected = [[0.0, 0.5 * 0.8 * 0.0010233092948035497]]
    np.testing.assert_allclose(np.exp(clf.log_joint(CREDIT_QUERY)), expected, rtol=1e-10)
    np.testing.assert_allclose(np.sqrt(clf.params_["gaussian.variance"])[1], [387.9896905846855], rtol=1e-12)


def test_credit_default_with_laplace_smoothing():
    blocks = [(["balance"], vague(ddof=1)), (["student"], Categorical(alpha=1.0))]
    clf = GenerativeClassifier(blocks=blocks, method="map").fit(CREDIT, DEFAULT)
    np.testing.assert_allclose(clf.params_["categorical.prob"][:, 0, 1], [1 / 7, 5 / 7], rtol=1e-12)
    balance = GaussianNB(method="mle", unbiased=True).fit(CREDIT[["balance"]], DEFAULT)
    student = CategoricalNB(method="map", alpha=1.0).fit(CREDIT[["student"]], DEFAULT)
    summed = balance.log_joint(CREDIT_QUERY[["balance"]]) + student.log_joint(CREDIT_QUERY[["student"]]) - np.log(0.5)
    for joint in (clf.log_joint(CREDIT_QUERY), summed):
        np.testing.assert_allclose(np.exp(joint), [[1.4011509803531732e-06, 0.0003271978740695408]], rtol=1e-10)
    expected = [[0.004264014417390388, 1 - 0.004264014417390388]]
    np.testing.assert_allclose(clf.predict_proba(CREDIT_QUERY), expected, rtol=1e-10)


BUYERS = pd.DataFrame(
    {
        "age": [52.0, 22, 30, 26, 27, 32, 33, 50, 31, 27],
        "race": ["Indian", "Chinese", "Chinese", "Malay", "Indian", "Chinese", "Indian", "Malay", "Chinese", "Malay"],
        "gender": ["Male", "Female", "Male", "Male", "Female", "Female", "Male", "Female", "Female", "Male"],
        "income": [11500.0, 6500, 8000, 8500, 6500, 9500, 4000, 10000, 5500, 9200],
    }
)
BUY = ["Not Buy", "Buy", "Buy", "Buy", "Buy", "Not Buy", "Not Buy", "Buy", "Buy", "Not Buy"]
BUYER = pd.DataFrame({"age": [29.0], "race": ["Malay"], "gender": ["Female"], "income": [7800.0]})
CALLS = {  # alpha, divisor n − ddof: P(Malay), P(Female), sd of age, sd of income, joint, each for (Buy, Not Buy)
    (0, 1): (
        [1 / 3, 1 / 4],
        [2 / 3, 1 / 4],
        [9.838699100999074, 10.98483803552272],
        [1643.1676725154985, 3200.5207909547057],
        [1.2645268046047552e-06, 8.987582321611909e-08],
    ),
    (0, 0): (
        [1 / 3, 1 / 4],
        [2 / 3, 1 / 4],
        [8.981462390204987, 9.513148795220223],
        [1500.0, 2771.73231030704],
        [1.5061458592030796e-06, 1.1097214188813287e-07],
    ),
    (1, 1): (
        [1 / 3, 2 / 7],
        [5 / 8, 1 / 3],
        [9.838699100999074, 10.98483803552272],
        [1643.1676725154985, 3200.5207909547057],
        [1.185493879316958e-06, 1.3695363537694334e-07],
    ),
    (1, 0): (
        [1 / 3, 2 / 7],
        [5 / 8, 1 / 3],
        [8.981462390204987, 9.513148795220223],
        [1500.0, 2771.73231030704],
        [1.4120117430028872e-06, 1.6910040668667864e-07],
    ),
}


def buyers(alpha, ddof):
    numbers, factors = ["age", "income"], ["race", "gender"]
    if alpha:
        return GenerativeClassifier(blocks=[(numbers, vague(ddof)), (factors, Categorical(alpha=alpha))], method="map")
    if ddof:
        blocks = [(numbers, Gaussian("diag", unbiased=True)), (factors, Categorical())]
        return GenerativeClassifier(blocks=blocks, method="mle")
    kinds = {"age": "gaussian", "income": "gaussian", "race": "categorical", "gender": "categorical"}
    return MixedNB(columns=kinds, method="mle")


@pytest.mark.parametrize(("alpha", "ddof"), CALLS)
def test_mixed_exam(alpha, ddof):
    clf, (malay, female, age_sd, income_sd, joint) = buyers(alpha, ddof).fit(BUYERS, BUY), CALLS[alpha, ddof]
    np.testing.assert_allclose(clf.priors_, [0.6, 0.4], rtol=1e-12)
    probs = clf.params_["categorical.prob"]  # race (Chinese, Indian, Malay), gender (Female, Male)
    np.testing.assert_allclose(probs[:, [0, 1], [2, 0]], np.column_stack([malay, female]), rtol=1e-12)
    np.testing.assert_allclose(clf.params_["gaussian.mean"], [[31.0, 7500.0], [36.0, 8550.0]], rtol=1e-12)
    np.testing.assert_allclose(np.sqrt(clf.params_["gaussian.variance"]), np.column_stack([age_sd, income_sd]), rtol=1e-12)
    np.testing.assert_allclose(np.exp(clf.log_joint(BUYER)), [joint], rtol=1e-10)
    np.testing.assert_allclose(clf.predict_proba(BUYER), [np.array(joint) / sum(joint)], rtol=1e-10)
    assert clf.predict(BUYER).tolist() == ["Buy"]


def test_the_sum_of_the_joint_over_the_classes_is_the_marginal():
    # the lectures call Σ_k φ_k f_k(x) the joint; it is the density of x
    clf = buyers(1, 1).fit(BUYERS, BUY)
    np.testing.assert_allclose(clf.score_samples(BUYER), np.log(1.185493879316958e-06 + 1.3695363537694334e-07), rtol=1e-10)


def test_iris_confusion_by_mixed_naive_bayes():
    guess = MixedNB(columns=dict.fromkeys(NAMES, "gaussian"), method="mle").fit(X, y).predict(X)
    assert pd.crosstab(guess, y.to_numpy()).to_numpy().tolist() == [[50, 0, 0], [0, 47, 3], [0, 3, 47]]


def test_gaussian_table_with_own_and_common_sd():
    # the rows are not printed: pairs mean ± sd, with 62 % of the weight in class 1, have the table's moments exactly
    mean, sd = np.array([[-0.18, 0.01], [2.04, 1.97]]), np.array([[0.73, 0.81], [1.06, 1.15]])
    rows, labels = np.concatenate([mean - sd, mean + sd]), [0, 1, 0, 1]
    own = GaussianNB(method="mle").fit(rows, labels, sample_weight=[19, 31, 19, 31])
    np.testing.assert_allclose(own.params_["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(np.sqrt(own.params_["variance"]), sd, rtol=1e-12)
    common = GaussianNB(method="mle", shared_variance=True).fit(rows, labels, sample_weight=[19, 31, 19, 31])
    assert np.sqrt(common.params_["variance"]).reshape(-1, 2).round(2).tolist()[0] == [0.95, 1.03]


# -- worked examples: words and bits
@pytest.mark.parametrize(
    ("counts", "alpha", "expected"),
    [
        ([[3, 0, 1]], 1.0, [4 / 7, 1 / 7, 2 / 7]),  # the printed denominator N + α·2 made the sum 7/6: it is N + α·3
        ([[2, 1, 0], [1, 0, 0]], 1.0, [4 / 7, 2 / 7, 1 / 7]),
        ([[2, 1, 0], [1, 0, 0]], None, [3 / 4, 1 / 4, 0.0]),
    ],
)
def test_multinomial_word_probabilities(counts, alpha, expected):
    clf = MultinomialNB(method="mle") if alpha is None else MultinomialNB(method="map", alpha=alpha)
    prob = clf.fit(np.array(counts), ["only"] * len(counts)).params_["prob"]
    np.testing.assert_allclose(prob, [expected], rtol=1e-12)
    np.testing.assert_allclose(prob.sum(), 1.0, rtol=1e-12)


def bits():
    """25 rows whose relative frequencies are π = 0.4, θ_1 = (0.2, 0.7, 0.5), θ_0 = (0.6, 0.2, 0.4)."""
    ones = {1: ([2, 7, 5], 10), 0: ([9, 3, 6], 15)}
    rows = [np.arange(n)[:, None] < np.array(count) for count, n in ones.values()]
    return np.concatenate(rows).astype(float), np.repeat([1, 0], [10, 15])


def test_bernoulli_as_a_linear_classifier():
    clf = BernoulliNB(method="mle").fit(*bits())
    np.testing.assert_allclose(clf.params_["prob"], [[0.6, 0.2, 0.4], [0.2, 0.7, 0.5]], rtol=1e-12)
    np.testing.assert_allclose(clf.log_joint([[1, 0, 1]])[0, 1], -4.422848629194137, rtol=1e-12)
    theta_0, theta_1 = clf.params_["prob"]
    np.testing.assert_allclose(clf.coef_, [logit(theta_1) - logit(theta_0)], rtol=1e-10)
    offset = np.log(0.4 / 0.6) + np.sum(np.log1p(-theta_1) - np.log1p(-theta_0))
    np.testing.assert_allclose(clf.intercept_, [offset], rtol=1e-10)
    log_odds = [-4.422848629194137 - np.log(0.6 * 0.6 * 0.8 * 0.4)]
    np.testing.assert_allclose(np.array([[1, 0, 1]]) @ clf.coef_.T + clf.intercept_, [log_odds], rtol=1e-10)


def test_binary_posterior_of_bernoulli_needs_an_intercept():
    x, labels = bits()
    clf = BernoulliNB(method="mle").fit(x, labels)
    slope = (x @ clf.coef_.T)[:, 0]
    close(expit(slope + clf.intercept_[0]), clf.predict_proba(x)[:, 1], atol=1e-12)
    assert np.abs(expit(slope) - clf.predict_proba(x)[:, 1]).min() > 0.01


def test_number_of_parameters():
    def count(clf):
        return sum(value.size for value in clf.params_.values()) - 1  # the class probabilities add up to 1

    x = np.random.default_rng(0).integers(0, 2, (6, 10_000)).astype(float)
    assert count(BernoulliNB().fit(x, [0, 1, 2, 0, 1, 2])) == 2 + 3 * 10_000  # K − 1 + K d
    assert count(GaussianNB().fit(X, y)) == 26
    assert count(GaussianNB(shared_variance=True).fit(X, y)) == 18
