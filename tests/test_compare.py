"""compare: leave-one-out, PSIS, WAIC, evidence and criteria against refits, formulas and hand counts; and its picture."""

import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from conftest import holes, make_rows
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

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
    MultinomialNB,
    NormalWishart,
    PoissonNB,
    compare,
    plots,
    scores,
)

matplotlib.use("Agg")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ArviZ announces its next release when it is imported
    import arviz as az

X, Y = make_rows(5, n=40, d=2)
PRIOR = NormalWishart(X.mean(0), 0.5, 5.0, np.eye(2))
COUNTS = np.random.default_rng(1).poisson(4 + 3 * (Y[:, None] == 2), (40, 3))


def own(clf, x, y):
    """log p(x, y) and log p(y | x) of one row by a fitted model."""
    table, k = clf.log_joint(x)[0], clf.classes_.tolist().index(y)
    return table[k], table[k] - logsumexp(table)


# -- exact leave-one-out
@pytest.mark.parametrize(
    ("clf", "x"),
    [
        (LDA(prior=PRIOR, method="posterior"), X),
        (QDA(prior=PRIOR), X),
        (GaussianNB(prior=NormalWishart(0.0, 1.0, 3.0, 1.0), method="posterior"), holes(X)),
        (
            GenerativeClassifier([([0], Gaussian("diag", prior=NormalWishart(0.0, 1.0, 3.0, 1.0))), ([1, 2], "poisson")]),
            COUNTS,
        ),
        (RDA(), X),
        (RDA(alpha=0.4, gamma=0.7, method="posterior", priors=[0.2, 0.5, 0.3]), X),
    ],
    ids=lambda v: f"{type(v).__name__}-{v.method}" if hasattr(v, "method") else "",
)
def test_exact_leave_one_out_equals_refits(clf, x):
    fitted = clone(clf).fit(x, Y)
    if isinstance(clf, RDA):  # its prior is made of the rows, and made again without the row
        clf = clone(clf).set_params(alpha=fitted.alpha_, gamma=fitted.gamma_)
    mine = fitted._evaluation(sampled=False)
    rows = range(0, 40, 7)
    expected = [own(clone(clf).fit(np.delete(x, i, 0), np.delete(Y, i)), x[i : i + 1], Y[i]) for i in rows]
    found = np.transpose([mine.rows["loo_joint"], mine.rows["loo_conditional"]])
    np.testing.assert_allclose(found[list(rows)], expected, rtol=1e-8, atol=1e-10)
    line = compare({"model": fitted}, sampled=False).iloc[0]
    np.testing.assert_allclose(line["loo_joint"], mine.rows["loo_joint"].sum())
    np.testing.assert_allclose(line["loo_joint_se"], np.sqrt(40) * mine.rows["loo_joint"].std(ddof=1))
    if hasattr(fitted, "loo_score_"):
        np.testing.assert_allclose(line["loo_joint"], fitted.loo_score_, rtol=1e-9)


def test_accuracy_and_brier_are_those_of_the_left_out_probabilities():
    clf = LDA(method="posterior").fit(X, Y)
    proba, truth = clf.loo_predict_proba(), np.eye(3)[Y]
    line = compare({"LDA": clf}, sampled=False).iloc[0]
    np.testing.assert_allclose(line["accuracy"], np.mean(proba.argmax(1) == Y))
    np.testing.assert_allclose(line["brier"], np.sum((proba - truth) ** 2) / 40)
    np.testing.assert_allclose(line["loo_conditional"], np.log(proba[truth > 0]).sum())
    np.testing.assert_allclose(line["brier_se"], np.sum((proba - truth) ** 2, 1).std(ddof=1) / np.sqrt(40))


def test_whole_weights_are_repeated_rows():
    weight = np.arange(40) % 3
    again = np.repeat(np.arange(40), weight)
    a = compare({"LDA": LDA(prior=PRIOR, method="posterior").fit(X, Y, sample_weight=weight)}, sampled=False)
    b = compare({"LDA": LDA(prior=PRIOR, method="posterior").fit(X[again], Y[again])}, sampled=False)
    np.testing.assert_allclose(a, b, rtol=1e-9)


# -- from draws
@pytest.fixture(scope="module")
def posteriors():
    """A tied covariance on three classes, 4000 draws: the importance weights are tame."""
    x, y = make_rows(8, n=60, d=2)
    return {"LDA": LDA(method="posterior", num_draws=4000, random_state=0).fit(x, y)}


@pytest.fixture(scope="module")
def drawn(posteriors):
    return compare(posteriors)


def test_psis_agrees_with_exact_leave_one_out(drawn):
    line = drawn.iloc[0]
    # Monte Carlo errors are some hundredths; the in-sample score is off by about p, which is several
    assert line["psis_joint_p"] > 5 and line["psis_joint_bad_k"] == 0
    for kind in ("joint", "conditional"):
        assert abs(line[f"psis_{kind}"] - line[f"loo_{kind}"]) < 0.1
        assert abs(line[f"waic_{kind}"] - line[f"loo_{kind}"]) < 0.5
        np.testing.assert_allclose(line[f"psis_{kind}_se"], line[f"loo_{kind}_se"], rtol=0.02)


def test_psis_is_that_of_arviz_and_waic_its_formula(posteriors, drawn):
    data, line = posteriors["LDA"].to_arviz(), drawn.iloc[0]
    for kind in ("joint", "conditional"):
        found = az.loo(data, var_name=kind, reff=1.0)
        elpd, p = (found.elpd, found.p) if hasattr(found, "elpd") else (found.elpd_loo, found.p_loo)
        np.testing.assert_allclose([line[f"psis_{kind}"], line[f"psis_{kind}_p"]], [elpd, p], rtol=1e-9, atol=1e-9)
        log_lik = data["log_likelihood"][kind].values.reshape(4000, 60)
        lppd, penalty = np.log(np.mean(np.exp(log_lik), 0)), np.var(log_lik, axis=0, ddof=1)
        np.testing.assert_allclose(line[f"waic_{kind}"], np.sum(lppd - penalty), rtol=1e-9)
        np.testing.assert_allclose(line[f"waic_{kind}_p"], np.sum(penalty), rtol=1e-9)


def test_without_a_closed_form_the_draws_serve(posteriors, drawn, monkeypatch):
    monkeypatch.setattr(LDA, "_exactly_left_out", lambda self, x, labels: None)
    table = compare(posteriors)
    assert table.columns[0] == "psis_joint" and "loo_joint" not in table
    np.testing.assert_allclose(table["accuracy"], drawn["accuracy"], atol=0.02)
    np.testing.assert_allclose(table["brier"], drawn["brier"], rtol=0.02)
    # the probability of the right class is the conditional score
    mine = posteriors["LDA"]._evaluation()
    shares = scores.hits(np.log([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]]), np.array([0, 1]))
    np.testing.assert_allclose(shares["brier"], [0.3**2 + 0.2**2 + 0.1**2, 0.3**2 + 0.7**2 + 0.4**2])
    assert shares["accuracy"].tolist() == [1, 0] and set(mine.rows) >= {"psis_joint", "waic_joint", "brier"}


def test_rows_of_certain_class_and_of_little_weight():
    sure = scores.psis(np.zeros((2, 100)), np.ones(2))
    assert not sure["elpd"].any() and not sure["p"].any() and not sure["bad"].any()
    # of a row of weight ½ half of its likelihood leaves: by importance sampling, which smoothing hardly changes here
    log_lik = np.random.default_rng(0).normal(-2, 0.2, (1, 4000))
    expected = logsumexp(0.5 * log_lik) - logsumexp(-0.5 * log_lik)
    np.testing.assert_allclose(scores.psis(log_lik, np.array([0.5]))["elpd"], expected, atol=1e-3)
    expected = logsumexp(log_lik) - np.log(4000) - 0.5 * log_lik.var(ddof=1)
    np.testing.assert_allclose(scores.waic(log_lik, np.array([0.5]))["elpd"], expected)


# -- maximum likelihood
SIZES = pd.DataFrame({"a": pd.Categorical(list("xyz") * 10), "b": pd.Categorical(list("uv") * 15)})


@pytest.mark.parametrize(
    ("clf", "x", "count"),
    [
        (LDA(), X, 2 + 3 * 2 + 3),
        (QDA(), X, 2 + 3 * 2 + 3 * 3),
        (QDA(covariance="diag", priors="uniform"), X, 3 * 2 + 3 * 2),
        (LDA(covariance="diag"), X, 2 + 3 * 2 + 2),
        (QDA(covariance="spherical"), X, 2 + 3 * 2 + 3),
        (LDA(covariance="spherical"), X, 2 + 3 * 2 + 1),
        (MultinomialNB(), COUNTS, 2 + 3 * 2),
        (PoissonNB(), COUNTS, 2 + 3 * 3),
        (BernoulliNB(), COUNTS > 4, 2 + 3 * 3),
        (CategoricalNB(), SIZES, 1 + 2 * (2 + 1)),
        (GenerativeClassifier([([0], "poisson"), ([1, 2], "gaussian")]), COUNTS, 2 + 3 + 3 * 4),
    ],
    ids=lambda v: type(v).__name__ if hasattr(v, "get_params") else "",
)
def test_criteria_count_the_free_parameters(clf, x, count, monkeypatch):
    monkeypatch.setattr(type(clf), "_exactly_left_out", lambda self, x, labels: None)  # saves its compilation
    y = np.arange(30) % 2 if isinstance(x, pd.DataFrame) else Y
    fitted = clf.set_params(method="mle").fit(x, y)
    numbers = fitted._evaluation(sampled=False).numbers
    likelihood = fitted.log_joint(x)[np.arange(len(y)), y].sum()
    assert numbers["num_parameters"] == count
    np.testing.assert_allclose(numbers["log_likelihood"], likelihood, rtol=1e-9)
    np.testing.assert_allclose(numbers["aic"], 2 * count - 2 * likelihood, rtol=1e-9)
    np.testing.assert_allclose(numbers["bic"], count * np.log(len(y)) - 2 * likelihood, rtol=1e-9)


def test_models_without_rows_are_compared_by_their_statistics():
    half = np.arange(40) % 2 == 0
    stream = {}
    for method in ("mle", "map"):
        clf = QDA(method=method, prior=PRIOR).partial_fit(X[half], Y[half], classes=[0, 1, 2])
        stream[method] = clf.partial_fit(X[~half], Y[~half])
    whole = {method: QDA(method=method, prior=PRIOR).fit(X, Y) for method in stream}
    for method, column in (("mle", "bic"), ("map", "log_evidence")):
        table = compare({"stream": stream[method], "whole": whole[method]})
        assert table.columns[0] == column and "loo_joint" in table
        np.testing.assert_allclose(table[column], table[column].iloc[0], rtol=1e-9)
    np.testing.assert_allclose(table[column].iloc[0], whole["map"].log_evidence_)
    assert np.isnan(table.loc["stream", "loo_joint"])
    assert "aic" not in compare({"unbiased": QDA(method="mle", unbiased=True).fit(X, Y)})


# -- the table
def test_order_and_differences():
    models = {
        "spherical": LDA(covariance="spherical", method="mle").fit(X, Y),
        "QDA": QDA(prior=PRIOR).fit(X, Y),
        "LDA": LDA(prior=PRIOR).fit(X, Y),
    }
    table = compare(models)
    rows = {name: model._evaluation(sampled=False).rows["loo_joint"] for name, model in models.items()}
    order = sorted(models, key=lambda name: -rows[name].sum())
    assert table.index.tolist() == order and table.attrs["by"] == "loo_joint"
    assert table.columns[:4].tolist() == ["loo_joint", "loo_joint_se", "difference", "difference_se"]
    for name in order:
        gap = rows[name] - rows[order[0]]
        expected = [gap.sum(), np.sqrt(40) * gap.std(ddof=1)]
        np.testing.assert_allclose(table.loc[name, ["difference", "difference_se"]], expected, atol=1e-9)
    assert not [name for name in table if name.startswith(("psis", "waic"))]  # no model has draws
    for by, best in (("log_evidence", np.nanmax), ("bic", np.nanmin), ("brier", np.nanmin), ("accuracy", np.nanmax)):
        other = compare(models, by=by)
        assert other.columns[0] == by and other[by].iloc[0] == best(table[by])
        assert ("difference_se" in other) == (by in ("brier", "accuracy"))
    np.testing.assert_allclose(
        compare(models, by="log_evidence")["difference"].iloc[1], table["log_evidence"].diff().abs().max() * -1
    )


class Known(BaseEstimator):
    """Stands for a model whose scores are known."""

    def __init__(self, rows, measure=("density",)):
        self.rows, self.measure, self.classes_ = rows, measure, np.arange(2)

    def fit(self, X, y):
        return self

    def _evaluation(self, sampled=True):
        return scores.Scores(self.classes_, np.array([1.0, 2.0]), self.measure, None, np.array([0, 1, 1]), None, self.rows)


def test_impossible_rows_and_models_of_the_labels_only():
    fine, never = np.array([-1.0, -2.0, -4.0]), np.array([-1.0, -np.inf, -1.0])
    table = compare({"never": Known({"loo_joint": never}), "fine": Known({"loo_joint": fine})})
    assert table.index.tolist() == ["fine", "never"] and np.isneginf(table.loc["never", ["loo_joint", "difference"]]).all()
    assert np.isnan(table.loc["never", "difference_se"]) and table.loc["fine", "difference"] == 0
    assert len(plots.compare(table, ax=matplotlib.figure.Figure().subplots()).texts) == 2
    # a model without p(x) is compared by the labels; by the joint score it comes last
    models = {
        "labels": Known({"loo_conditional": fine}, None),
        "both": Known({"loo_joint": fine, "loo_conditional": fine - 1}),
    }
    table = compare(models)
    assert table.columns[0] == "loo_conditional" and table.index.tolist() == ["labels", "both"]
    np.testing.assert_allclose(table.loc["both", ["difference", "difference_se"]], [-3.0, 0.0])
    assert compare(models, by="loo_joint").index.tolist() == ["both", "labels"]
    with pytest.raises(ValueError, match="no score in common"):
        compare({"a": Known({"loo_joint": fine}), "b": Known({"psis_joint": fine})})


def test_other_columns_are_compared_by_the_labels_only():
    wide, narrow = LDA().fit(X, Y), LDA().fit(X[:, :1], Y)
    table = compare({"wide": wide, "narrow": narrow})
    assert table.columns[0] == "loo_conditional" and "loo_joint" in table
    for by in ("loo_joint", "log_evidence"):
        with pytest.raises(ValueError, match="cannot be compared, 'wide' has 2 columns and 'narrow' has 1"):
            compare({"wide": wide, "narrow": narrow}, by=by)
    with pytest.raises(ValueError, match="columns of other values"):
        compare({"wide": wide, "scaled": LDA().fit(10 * X, Y)}, by="loo_joint")
    mass = PoissonNB().fit(COUNTS, Y)
    assert compare({"Poisson": mass, "normal": GaussianNB().fit(COUNTS, Y)}).columns[0] == "loo_conditional"
    with pytest.raises(ValueError, match="column 0 has a mass in 'Poisson' and a density in 'normal'"):
        compare({"Poisson": mass, "normal": GaussianNB().fit(COUNTS, Y)}, by="loo_joint")
    assert MultinomialNB().fit(COUNTS, Y)._measure() == ("mass given the row's total",) * 3


def test_what_cannot_be_compared_is_said():
    lda = LDA().fit(X, Y)
    with pytest.raises(ValueError, match="takes a dict of fitted models"):
        compare([lda, lda])
    with pytest.raises(ValueError, match="takes a dict"):
        compare({})
    with pytest.raises(NotFittedError, match="Model 'b', a QDA, is not fitted"):
        compare({"a": lda, "b": QDA()})
    for model in (ComplementNB().fit(COUNTS, Y), LDA, make_pipeline(StandardScaler(), LDA()).fit(X, Y)):
        with pytest.raises(ValueError, match="Model 'b' is a .*that have a density"):
            compare({"a": lda, "b": model})
    with pytest.raises(ValueError, match="neither rows nor statistics"):
        compare({"known": LDA.from_parameters([0, 1], "uniform", [[0.0], [1.0]], [[1.0]])})
    for other, match in (
        (LDA().fit(X[:30], Y[:30]), "'a' and 'b' .*(classes|rows)"),
        (LDA().fit(X, (Y + (np.arange(40) == 9)) % 3), "first in row 9"),
        (LDA().fit(X, Y.astype(str)), "classes"),
        (LDA().fit(X, Y, sample_weight=np.full(40, 2.0)), "weights"),
    ):
        with pytest.raises(ValueError, match=match):
            compare({"a": lda, "b": other})
    with pytest.raises(ValueError, match="by='elpd': must be 'auto' or one of \\['loo_joint'"):
        compare({"a": lda}, by="elpd")
    table = X.copy()
    clf = LDA().fit(table, Y)
    table[3] += 1
    with pytest.raises(ValueError, match="changed since"):
        compare({"a": clf})
    few = QDA(method="mle").fit(np.vstack([X, [[0.0, 1.0], [1.0, 0.0], [3.0, 3.0]]]), np.append(Y, [3, 3, 3]))
    line = compare({"few rows": few})  # without one of three rows a class of two columns has no covariance
    assert line.columns[0] == "bic" and "loo_joint" not in line


# -- which model
@pytest.mark.parametrize(("ratio", "right"), [(1.5, "QDA"), (1.0, "LDA")])
def test_the_right_model_is_found(ratio, right):
    rng = np.random.default_rng(11)
    y, found = np.arange(200) % 2, 0
    root = np.linalg.cholesky(0.5 ** np.abs(np.subtract.outer(np.arange(5), np.arange(5))))
    for _ in range(100):
        x = (rng.normal(size=(200, 5)) * np.where(y == 1, ratio, 1.0)[:, None]) @ root.T + y[:, None]
        models = {"LDA": LDA(method="posterior").fit(x, y), "QDA": QDA(method="posterior").fit(x, y)}
        table = compare(models, sampled=False)
        assert table.columns[0] == "loo_joint"
        found += table.index[0] == right
    assert found >= 95


# -- the picture
def test_picture():
    table = compare({"QDA": QDA(prior=PRIOR).fit(X, Y), "LDA": LDA(prior=PRIOR).fit(X, Y)})
    ax = plots.compare(table, title="Two models", ax=matplotlib.figure.Figure().subplots())
    assert [label.get_text() for label in ax.get_yticklabels()] == table.index.tolist()
    assert ax.get_xlabel() == "leave-one-out log score of the rows" and ax.get_title(loc="left") == "Two models"
    scores_, differences = (container for container in ax.containers)
    np.testing.assert_allclose(scores_.lines[0].get_xdata(), table["loo_joint"])
    ends = np.array([segment[:, 0] for segment in differences.lines[2][0].get_segments()])
    np.testing.assert_allclose(np.diff(ends)[:, 0] / 2, table["difference_se"].iloc[1:])
    assert ax.texts[1].get_text().startswith(f"\N{MINUS SIGN}{-table['difference'].iloc[1]:.1f}"[:3])
    assert not plots.compare(compare({"QDA": QDA().fit(X, Y)})).texts[0].get_text()
    matplotlib.pyplot.close("all")
