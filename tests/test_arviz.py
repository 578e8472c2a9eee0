"""to_arviz: draws, log likelihoods and data under ArviZ's names, for ArviZ before and after 1.0."""

import pickle
import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats
from scipy.special import logsumexp

from bayesgen import (
    LDA,
    QDA,
    RDA,
    BernoulliNB,
    CategoricalNB,
    ComplementNB,
    Family,
    Gaussian,
    GaussianNB,
    GenerativeClassifier,
    MixedNB,
    MultinomialNB,
    PoissonNB,
    arviz_data,
)
from bayesgen.estimators import diagnosed
from bayesgen.joint import Block, ClassPrior, Joint

matplotlib.use("Agg")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # ArviZ announces its next release when it is imported
    import arviz as az

N = 30
RNG = np.random.default_rng(0)
CLASS = np.array(["no", "yes"])[np.arange(N) % 2]
NUMBERS = pd.DataFrame(
    {"a": RNG.normal(size=N), "b": RNG.normal(size=N) + (CLASS == "yes")}, index=[f"row {i}" for i in range(N)]
)
KINDS = pd.DataFrame({"colour": RNG.choice(["r", "g", "b"], N), "size": RNG.choice(["s", "l"], N)}, index=NUMBERS.index)
COUNTS = pd.DataFrame({"p": RNG.poisson(3, N), "q": RNG.poisson(12, N)})
BITS = pd.DataFrame({"u": RNG.integers(0, 2, N), "v": RNG.integers(0, 2, N)})
MIXED = pd.concat([NUMBERS, KINDS], axis=1)
GAPS = MIXED.copy()
GAPS.iloc[3, 0] = None
SETTINGS = {"method": "posterior", "num_draws": 100, "random_state": 0}
BLOCKS = [(["a", "b"], Gaussian()), (["colour", "size"], "categorical")]
CASES = [
    (LDA(**SETTINGS), NUMBERS),
    (QDA(**SETTINGS), NUMBERS),
    (RDA(alpha=0.5, gamma=0.5, **SETTINGS), NUMBERS),
    (GaussianNB(**SETTINGS), NUMBERS),
    (BernoulliNB(priors=[0.5, 0.5], **SETTINGS), BITS),
    (CategoricalNB(**SETTINGS), KINDS),
    (MultinomialNB(**SETTINGS), COUNTS),
    (PoissonNB(**SETTINGS), COUNTS),
    (MixedNB(**SETTINGS), GAPS),
    (GenerativeClassifier(BLOCKS, **SETTINGS), MIXED),
]


# -- SciPy's densities of one row, from the parameters that users see
def _normal(theta, k, x, prefix=""):
    mean = theta[prefix + "mean"][k]
    if prefix + "variance" in theta:
        return np.nansum(stats.norm.logpdf(x, mean, np.sqrt(theta[prefix + "variance"][k])))
    cov = theta[prefix + "covariance"]
    return stats.multivariate_normal.logpdf(x, mean, cov[k] if cov.ndim == 3 else cov)


def _categories(theta, k, x, prefix=""):
    return sum(np.log(theta[prefix + "prob"][k, j, int(code)]) for j, code in enumerate(x))


def density(clf, theta, k, x):
    name = type(clf).__name__
    if name == "BernoulliNB":
        return stats.bernoulli.logpmf(x, theta["prob"][k]).sum()
    if name == "CategoricalNB":
        return _categories(theta, k, x)
    if name == "MultinomialNB":
        return stats.multinomial.logpmf(x, int(x.sum()), theta["prob"][k])
    if name == "PoissonNB":
        return stats.poisson.logpmf(x, theta["rate"][k]).sum()
    if name in ("MixedNB", "GenerativeClassifier"):
        return _normal(theta, k, x[:2], "gaussian.") + _categories(theta, k, x[2:], "categorical.")
    return _normal(theta, k, x)


def named(value):
    return type(value).__name__ if hasattr(value, "get_params") else ""


@pytest.mark.parametrize(("clf", "X"), CASES, ids=named)
def test_every_posterior_goes_through_arviz(clf, X):
    data = clf.fit(X, CLASS).to_arviz()
    posterior, rows = data["posterior"], data["observed_data"]
    draws = clf.draws_
    assert set(posterior.data_vars) == set(draws)
    for name, value in draws.items():
        flat = posterior[name].values.reshape(-1, *value.shape[1:])
        np.testing.assert_array_equal(flat, value)
        assert posterior[name].dims[:2] == ("chain", "draw") and not any("_dim_" in d for d in posterior[name].dims)
    # the log likelihood of a few rows and draws, by SciPy
    x, codes = rows["x"].values, rows["y"].values
    assert clf.classes_[codes].tolist() == CLASS.tolist() and list(rows["row"].values) == list(X.index)
    for i, (chain, draw) in ((0, (0, 3)), (3, (1, 24)), (17, (3, 0))):
        theta = {name: posterior[name].values[chain, draw] for name in draws}
        table = np.log(theta["class_probs"]) + [density(clf, theta, k, x[i]) for k in range(2)]
        joint, conditional = (data["log_likelihood"][v].values[chain, draw, i] for v in ("joint", "conditional"))
        np.testing.assert_allclose([joint, conditional], [table[codes[i]], table[codes[i]] - logsumexp(table)], rtol=1e-9)
    # and what people do with it; importance weights of so few draws may be warned of
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = az.summary(data, round_to="none")
        assert len(table) == sum(value[0].size for value in draws.values())
        first = f"class_probs[{clf.classes_[0]}]"
        np.testing.assert_allclose(float(table.loc[first, "mean"]), draws["class_probs"][:, 0].mean())
        found = az.loo(data, var_name="joint")
        assert np.isfinite(found.elpd if hasattr(found, "elpd") else found.elpd_loo)
        az.plot_trace(data)
        az.plot_forest(data)
        matplotlib.pyplot.close("all")


@pytest.fixture(scope="module")
def lda():
    return LDA(**SETTINGS).fit(NUMBERS, CLASS)


def test_axes_have_names(lda):
    data = lda.to_arviz(log_likelihood=False)
    assert data["posterior"]["covariance"].dims == ("chain", "draw", "feature", "feature_b")
    assert data["posterior"]["mean"].sel(feature="b")["class"].values.tolist() == ["no", "yes"]
    assert "log_likelihood" not in _groups(data) and "sample_stats" not in _groups(data)
    assert data.attrs["engine"] == "exact" and data["posterior"].attrs["method"] == "posterior"
    several = CASES[-1][0].fit(MIXED, CLASS).to_arviz(log_likelihood=False)["posterior"]
    assert several["gaussian.covariance"].dims[2:] == ("class", "gaussian.feature", "gaussian.feature_b")
    assert several["categorical.prob"].dims[2:] == ("class", "categorical.feature", "categorical.category")
    assert several["categorical.feature"].values.tolist() == ["colour", "size"]
    assert several["categorical.category"].values.tolist() == [0, 1, 2]


def _groups(data) -> set:
    return {str(name).strip("/") for name in (data.groups() if callable(data.groups) else data.groups)}


def test_categories_that_all_columns_share_have_their_names():
    known = arviz_data.Names(["k"], ["a", "b"], [["l", "s"], ["l", "s"]])
    joint = Joint(ClassPrior(), (Block("categorical", Family()),), 1, 2)
    assert arviz_data.coordinates(joint, known)["category"].tolist() == ["l", "s"]
    other = known._replace(categories=[["l", "s"], ["l", "m", "s"]])
    assert arviz_data.coordinates(joint, other)["category"].tolist() == [0, 1, 2]


def test_labels_that_cannot_be_coordinates():
    assert arviz_data.coordinate([("a", 1), ("a", 2)]).tolist() == ["('a', 1)", "('a', 2)"]
    assert arviz_data.coordinate([1, "1", None]).tolist() == ["1", "1 (1)", "None"]
    assert arviz_data.coordinate([False, True]).dtype == bool
    doubled = NUMBERS.set_axis([0, 0, *range(2, N)])
    rows = LDA(**SETTINGS).fit(doubled, CLASS).to_arviz(log_likelihood=False)["observed_data"]["row"]
    assert rows.values.tolist() == list(range(N))


class Named(Family):
    """A user's family of which only some axes have names."""

    dims = {"rate": ["class", "feature"]}  # noqa: RUF012


def test_axes_of_a_users_family():
    joint = Joint(ClassPrior(), (Block("named", Named(), (0, 1, 2)), Block("other", Family(), (3,))), 2, 4)
    public = {
        "class_probs": np.zeros((4, 5, 2)),
        "named.rate": np.zeros((4, 5, 2, 3)),
        "named.shape": np.zeros((4, 5, 2, 6)),
    }
    public |= {"other.scale": np.zeros((4, 5, 7)), "other.level": np.zeros((4, 5))}
    dims = {name: value[0][2:] for name, value in arviz_data.parameters(joint, public).items()}
    assert dims == {
        "class_probs": ("class",),
        "named.rate": ("class", "named.feature"),
        "named.shape": ("class", "named.shape_dim_1"),
        "other.scale": ("other.scale_dim_0",),
        "other.level": (),
    }
    with pytest.raises(ValueError, match=r"Named.dims names 2 axes of 'rate'.*shape \(2,\)"):
        arviz_data.parameters(joint, public | {"named.rate": np.zeros((4, 5, 2))})
    with pytest.raises(ValueError, match="'feature': it has 9, not 3"):
        arviz_data.parameters(joint, public | {"named.rate": np.zeros((4, 5, 2, 9))})


def test_replicated_tables_follow_the_draws(lda):
    data = lda.to_arviz(log_likelihood=False, posterior_predictive=True)
    x, y = data["posterior_predictive"]["x"].values, data["posterior_predictive"]["y"].values
    assert x.shape == (4, 25, N, 2) and y.shape == (4, 25, N)
    theta = {name: data["posterior"][name].values for name in ("class_probs", "mean", "covariance")}
    # given the draw, labels are of its class and rows standard normal after whitening
    expected, spread = theta["class_probs"][..., 1].sum() * N, np.prod(theta["class_probs"], -1).sum() * N
    assert abs(y.sum() - expected) < 4 * np.sqrt(spread)
    centred = x - np.take_along_axis(theta["mean"], y[..., None], 2)
    white = np.linalg.solve(np.linalg.cholesky(theta["covariance"])[:, :, None], centred[..., None])[..., 0].reshape(-1, 2)
    assert all(stats.kstest(column, "norm").pvalue > 1e-3 for column in white.T)
    assert abs(np.corrcoef(white.T)[0, 1]) < 4 / np.sqrt(len(white))
    few = lda.to_arviz(log_likelihood=False, posterior_predictive=2)["posterior_predictive"]
    assert few["draw"].values.tolist() == [0, 24] and few["x"].shape == (4, 2, N, 2)
    np.testing.assert_array_equal(few["x"].values, lda.to_arviz(False, 2)["posterior_predictive"]["x"].values)
    assert not np.array_equal(few["x"].values, lda.to_arviz(False, 2, random_state=7)["posterior_predictive"]["x"].values)


def test_statistics_of_the_sampler(lda, monkeypatch):
    draws = lda._chained_draws()[0]
    statistics = {"diverging": np.arange(100).reshape(4, 25) % 10 == 0, "lp": np.arange(100.0).reshape(4, 25)}
    monkeypatch.setattr(LDA, "_chained_draws", lambda self: (draws, statistics))
    data = lda.to_arviz(log_likelihood=False)
    assert data["sample_stats"]["diverging"].dims == ("chain", "draw") and int(data["sample_stats"]["diverging"].sum()) == 10
    az.plot_trace(data)
    matplotlib.pyplot.close("all")


def test_efficiency_of_dependent_draws():
    """Of a first-order autoregression with correlation ρ it is (1 − ρ)/(1 + ρ)."""
    noise = np.random.default_rng(0).normal(size=(4, 2000, 3))
    chain = noise.copy()
    for t in range(1, 2000):
        chain[:, t] = 0.6 * chain[:, t - 1] + 0.8 * noise[:, t]
    for values, expected in ((noise, 1.0), (chain, 0.25)):
        found = arviz_data.efficiency({"class_probs": (("chain", "draw", "class"), values)})
        np.testing.assert_allclose(found, expected, rtol=0.2)


def test_sparse_rows_and_weights():
    weight = np.arange(N) % 3 + 1.0
    dense = MultinomialNB(**SETTINGS).fit(COUNTS, CLASS, sample_weight=weight).to_arviz()
    thin = MultinomialNB(**SETTINGS).fit(sparse.csr_array(COUNTS.to_numpy(float)), CLASS, sample_weight=weight).to_arviz()
    for name in ("joint", "conditional"):
        np.testing.assert_allclose(thin["log_likelihood"][name].values, dense["log_likelihood"][name].values, rtol=1e-9)
    np.testing.assert_array_equal(thin["observed_data"]["x"].values, COUNTS)
    np.testing.assert_array_equal(thin["constant_data"]["weight"].values, weight)


def test_what_cannot_be_done_is_said(lda, monkeypatch):
    assert not hasattr(ComplementNB(), "to_arviz")
    for method in ("mle", "map"):
        with pytest.raises(ValueError, match="to_arviz needs method='posterior'"):
            LDA(method=method).fit(NUMBERS, CLASS).to_arviz()
    with pytest.raises(ValueError, match="log_likelihood='yes'"):
        lda.to_arviz(log_likelihood="yes")
    with pytest.raises(ValueError, match="posterior_predictive"):
        lda.to_arviz(posterior_predictive=0)
    stored = pickle.loads(pickle.dumps(lda))
    with pytest.warns(UserWarning, match="rows were not kept"):
        assert _groups(stored.to_arviz()) - {""} == {"posterior"}
    with pytest.raises(ValueError, match="log likelihood of to_arviz needs the training rows"):
        stored.to_arviz(log_likelihood=True)
    monkeypatch.setattr(diagnosed, "MOST_NUMBERS", 2 * 100 * N - 1)
    with pytest.warns(UserWarning, match="log_likelihood would take"):
        assert "log_likelihood" not in _groups(lda.to_arviz())
    with pytest.raises(MemoryError, match="group log_likelihood would take"):
        lda.to_arviz(log_likelihood=True)
    with pytest.raises(MemoryError, match="group posterior_predictive would take"):
        lda.to_arviz(log_likelihood=False, posterior_predictive=True)
    monkeypatch.setattr(diagnosed, "MOST_NUMBERS", 100)
    with pytest.raises(MemoryError, match="Set num_draws lower"):
        lda.to_arviz(log_likelihood=False)
