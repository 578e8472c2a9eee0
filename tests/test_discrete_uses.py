"""The uses of the discrete and mixed classifiers, against formulas by hand, enumeration and refits."""

import functools
import itertools
import warnings

import jax
import numpy as np
import numpyro
import pandas as pd
import pytest
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, Predictive
from numpyro.infer.util import log_density
from scipy import sparse, stats
from scipy.special import gammaln, logsumexp, xlog1py, xlogy
from sklearn.base import clone

from bayesgen import (
    LDA,
    QDA,
    Bernoulli,
    BernoulliNB,
    Categorical,
    CategoricalNB,
    ComplementNB,
    Gaussian,
    GaussianNB,
    GenerativeClassifier,
    MixedNB,
    Multinomial,
    MultinomialNB,
    NormalWishart,
    Poisson,
    PoissonNB,
)
from bayesgen.outliers import simulate_events

METHODS = ["mle", "map", "posterior"]
LEVELS = {"sky": ["fog", "rain", "sun"], "car": ["no", "yes"], "top": ["p", "q", "r", "s"]}
NORMAL = NormalWishart(0.3, 0.7, 3.5, 1.2)  # m, κ, ν, Ψ of one column
NORMALS = NormalWishart(np.array([0.3, -0.2]), 0.7, 4.5, np.array([1.2, 0.8]))
CLASSES = np.array(["ham", "jam", "spam"])

# what each classifier is made of: (kind, columns, prior numbers), and the classifier itself
CASES = {
    "bernoulli": ([("bernoulli", 4, {"alpha": 0.7})], BernoulliNB(0.7)),
    "categorical": ([("categorical", ["sky", "car", "top"], {"alpha": 0.6})], CategoricalNB(0.6)),
    "multinomial": ([("multinomial", 4, {"alpha": 0.8})], MultinomialNB(0.8)),
    "poisson": ([("poisson", 3, {"alpha": 0.5, "beta": 1.5})], PoissonNB(0.5, 1.5)),
    "mixed": (
        [
            ("gaussian", ["mass"], {}),
            ("categorical", ["sky", "car"], {"alpha": 1.0}),
            ("bernoulli", ["flag"], {"alpha": 1.0}),
            ("poisson", ["eggs"], {"alpha": 0.5, "beta": 1.5}),
        ],
        MixedNB({"mass": Gaussian("diag", prior=NORMAL), "eggs": Poisson(0.5, 1.5)}),
    ),
    "blocks": (
        [
            ("full", ["a", "b"], {}),
            ("categorical", ["top"], {"alpha": 0.6}),
            ("multinomial", ["w1", "w2", "w3"], {"alpha": 0.8}),
            ("poisson", ["eggs"], {"alpha": 0.5, "beta": 1.5}),
            ("bernoulli", ["flag"], {"alpha": 0.7}),
        ],
        GenerativeClassifier(
            [
                (["a", "b"], Gaussian("full", tied=True, prior=NORMALS)),
                ("top", Categorical(0.6)),
                (["w1", "w2", "w3"], Multinomial(0.8)),
                ("eggs", Poisson(0.5, 1.5)),
                ("flag", Bernoulli(0.7)),
            ]
        ),
    ),
}
NAMES = list(CASES)
ORDER = {"mixed": ["mass", "sky", "flag", "eggs", "car"], "blocks": ["eggs", "a", "w1", "top", "w2", "b", "flag", "w3"]}


def labels(n, k, rng):
    """Unequal classes, four rows of each at least."""
    weights = np.arange(1, k + 1) / (k * (k + 1) / 2)
    return CLASSES[np.concatenate([np.repeat(np.arange(k), 4), rng.choice(k, n - 4 * k, p=weights)])]


def column(kind, label, y, rng):
    k = len(CLASSES)
    code = np.searchsorted(CLASSES, y)
    if kind in ("gaussian", "full"):
        return rng.normal(size=len(y)) * 0.8 + rng.normal(size=k)[code]
    if kind == "bernoulli":
        return (rng.random(len(y)) < rng.beta(1.5, 1.5, k)[code]).astype(float)
    if kind == "categorical":
        c = len(LEVELS[label])
        table = rng.dirichlet(np.full(c, 2.0), k)
        values = np.array([rng.choice(c, p=table[i]) for i in code])
        values[:c] = np.arange(c)  # every category occurs
        return values.astype(float)
    return rng.poisson(rng.gamma(2.0, 1.0, k)[code]).astype(float)


@functools.cache
def numbers(name, n=45, k=3, missing=True, seed=0):
    """(numbers (n, d), categories as codes, columns in the order of the blocks; labels): a sixth of the cells missing."""
    rng = np.random.default_rng(seed)
    y = labels(n, k, rng)
    parts = []
    for kind, columns, _ in CASES[name][0]:
        names = columns if isinstance(columns, list) else range(columns)
        part = np.stack([column(kind, label, y, rng) for label in names], 1)
        if missing and kind not in ("multinomial", "full"):
            part[rng.random(part.shape) < 1 / 6] = np.nan
        parts.append(part)
    return np.hstack(parts), y


def blocks(name):
    """(kind, places among the columns of `numbers`, prior numbers) of each block."""
    start = 0
    for kind, columns, prior in CASES[name][0]:
        size = len(columns) if isinstance(columns, list) else columns
        yield kind, np.arange(start, start + size), prior
        start += size


def names_of(name):
    """Column names in the order of `numbers`; positions for classifiers of arrays."""
    listed = [c for _, columns, _ in CASES[name][0] for c in (columns if isinstance(columns, list) else range(columns))]
    return listed


def table(name, x, dtype="object"):
    """The numbers as the classifier is given them: an array, or a frame of text, booleans and counts."""
    listed = names_of(name)
    if isinstance(listed[0], int):
        return np.array(x)
    frame = {}
    for j, label in enumerate(listed):
        if label in LEVELS:
            values = pd.Categorical.from_codes(np.where(np.isnan(x[:, j]), -1, x[:, j]).astype(int), LEVELS[label])
            frame[label] = values if dtype == "category" else pd.Series(np.asarray(values, object), dtype=object)
        elif label == "flag":
            frame[label] = pd.array([None if np.isnan(v) else bool(v) for v in x[:, j]], dtype="boolean")
        elif label == "eggs":
            frame[label] = pd.array([None if np.isnan(v) else int(v) for v in x[:, j]], dtype="Int64")
        else:
            frame[label] = x[:, j]
    return pd.DataFrame(frame)[ORDER.get(name, listed)]


def back(name, X):
    """A table of the classifier's as numbers, in the order of `numbers`."""
    listed = names_of(name)
    if isinstance(listed[0], int):
        return np.asarray(X, float)
    codes = {c: {level: i for i, level in enumerate(levels)} for c, levels in LEVELS.items()}
    out = np.empty((len(X), len(listed)))
    for j, label in enumerate(listed):
        cells = X[label].astype(object)
        out[:, j] = [np.nan if pd.isna(v) else codes[label][v] if label in LEVELS else float(v) for v in cells]
    return out


@functools.cache
def fitted(name, method, k=3, missing=True, **settings):
    x, y = numbers(name, k=k, missing=missing)
    clf = clone(CASES[name][1]).set_params(method=method, random_state=0, num_draws=60, **settings)
    return clf.fit(table(name, x), y)


@pytest.fixture(params=[(n, m) for n in NAMES for m in METHODS], ids="-".join)
def case(request):
    name, method = request.param
    return name, method, fitted(name, method)


# -- by hand: each feature's part of the log density, (n, K, p)
def by_class(x, y, classes, function):
    return np.stack([function(x[y == c]) for c in classes])


def hand_bernoulli(method, x, y, rows, classes, alpha):
    n = by_class(x, y, classes, lambda r: np.sum(~np.isnan(r), 0))
    ones = by_class(x, y, classes, lambda r: np.nansum(r, 0))
    prob = {"mle": ones / n, "map": (ones + alpha) / (n + 2 * alpha), "posterior": (1 + alpha + ones) / (2 + 2 * alpha + n)}
    return bernoulli_terms(prob[method], rows)


def bernoulli_terms(prob, rows):
    rows = rows[:, None, :]
    return np.where(np.isnan(rows), 0.0, xlogy(rows, prob) + xlog1py(1 - rows, -prob))


def hand_categorical(method, x, y, rows, classes, alpha, sizes):
    prob = np.zeros((len(classes), x.shape[1], max(sizes)))
    for j, c in enumerate(sizes):
        count = by_class(x, y, classes, lambda r: np.array([np.sum(r[:, j] == v) for v in range(c)]))
        count = count + {"mle": 0.0, "map": alpha, "posterior": 1 + alpha}[method]
        prob[:, j, :c] = count / count.sum(1, keepdims=True)
    return categorical_terms(prob, rows)


def categorical_terms(prob, rows):
    out = np.zeros((len(rows), len(prob), rows.shape[1]))
    for i, j in np.argwhere(~np.isnan(rows)):
        with np.errstate(divide="ignore"):
            out[i, :, j] = np.log(prob[:, j, int(rows[i, j])])
    return out


def hand_poisson(method, x, y, rows, classes, alpha, beta):
    n = by_class(x, y, classes, lambda r: np.sum(~np.isnan(r), 0))
    total = by_class(x, y, classes, lambda r: np.nansum(r, 0))
    if method != "posterior":
        return poisson_terms(total / n if method == "mle" else (total + alpha) / (n + beta), rows)
    rows = rows[:, None, :]
    law = stats.nbinom(1 + alpha + total, (beta + n) / (beta + n + 1))
    return np.where(np.isnan(rows), 0.0, law.logpmf(np.nan_to_num(rows)))


def poisson_terms(rate, rows):
    rows = rows[:, None, :]
    return np.where(np.isnan(rows), 0.0, stats.poisson.logpmf(np.nan_to_num(rows), rate))


def hand_multinomial(method, x, y, rows, classes, alpha):
    """The coefficient, which all the classes share, goes to the first column."""
    count = by_class(x, y, classes, lambda r: r.sum(0))
    if method != "posterior":
        count = count + (alpha if method == "map" else 0.0)
        return multinomial_terms(count / count.sum(1, keepdims=True), rows)
    a, rows = 1 + alpha + count, rows[:, None, :]
    total = rows.sum(-1, keepdims=True)
    share = rows / np.maximum(total, 1)
    whole = gammaln(a.sum(1, keepdims=True) + total) - gammaln(a.sum(1, keepdims=True))
    out = gammaln(a + rows) - gammaln(a) - share * whole
    out[:, :, 0] += gammaln(total[:, :, 0] + 1) - gammaln(rows + 1).sum(-1)
    return out


def multinomial_terms(prob, rows):
    out = xlogy(rows[:, None, :], prob)
    out[:, :, 0] += (gammaln(rows.sum(1) + 1) - gammaln(rows + 1).sum(1))[:, None]
    return out


def hand_gaussian(method, x, y, rows, classes):
    m, kappa, nu, psi = 0.3, 0.7, 3.5, 1.2
    n = by_class(x, y, classes, lambda r: np.sum(~np.isnan(r), 0))
    mean, scatter = (by_class(x, y, classes, f) for f in (lambda r: np.nanmean(r, 0), lambda r: np.nanvar(r, 0)))
    scatter = scatter * n
    rows = rows[:, None, :]
    if method == "mle":
        return np.nan_to_num(stats.norm.logpdf(rows, mean, np.sqrt(scatter / n)))
    scale = psi + scatter + kappa * n / (kappa + n) * (mean - m) ** 2
    centre = (kappa * m + n * mean) / (kappa + n)
    if method == "map":
        return np.nan_to_num(stats.norm.logpdf(rows, centre, np.sqrt(scale / (n + nu - 1))))
    width = np.sqrt(scale * (kappa + n + 1) / ((kappa + n) * (nu + n)))
    return np.nan_to_num(stats.t.logpdf(rows, nu + n, centre, width))


def hand_full(method, x, y, rows, classes):
    """A full covariance has its own tests: LDA's log density, as one column."""
    alone = LDA(prior=NORMALS, method=method, priors="uniform").fit(x, y)
    return (alone.log_joint(rows) + np.log(len(classes)))[:, :, None]


HAND = {
    "bernoulli": hand_bernoulli,
    "categorical": hand_categorical,
    "poisson": hand_poisson,
    "multinomial": hand_multinomial,
    "gaussian": hand_gaussian,
    "full": hand_full,
}


def by_hand(name, method, x, y, rows):
    """(features, terms (n, K, features), log class prior (K,)) from the training numbers and the formulas alone."""
    classes, count = np.unique(y, return_counts=True)
    extra = 1.0 if method == "posterior" else 0.0
    prior = np.log((count + extra) / (len(y) + extra * len(classes)))
    listed, features, terms = names_of(name), [], []
    for kind, places, given in blocks(name):
        sizes = {"sizes": [len(LEVELS[listed[j]]) for j in places]} if kind == "categorical" else {}
        with np.errstate(divide="ignore"):
            terms.append(HAND[kind](method, x[:, places], y, rows[:, places], classes, **given, **sizes))
        named = [f"column {j}" if isinstance(listed[j], int) else listed[j] for j in places]
        features += [" + ".join(named)] if kind == "full" else named
    return features, np.concatenate(terms, -1), prior


def with_parameters(name, theta, rows):
    """log p(x, y) (n, K) with given public parameters, one draw of them."""
    several = len(CASES[name][0]) > 1
    total = np.log(theta["class_probs"])[None]
    for kind, places, _ in blocks(name):
        family = {"full": "gaussian"}.get(kind, kind)
        mine = {key.split(".")[-1]: v for key, v in theta.items() if key.startswith(family + ".") or not several}
        part = rows[:, places]
        if kind == "full":
            total = total + np.stack([normal_rows(m, mine["covariance"], part) for m in mine["mean"]], 1)
        elif kind == "gaussian":
            cells = stats.norm.logpdf(part[:, None, :], mine["mean"], np.sqrt(mine["variance"]))
            total = total + np.nan_to_num(cells).sum(-1)
        else:
            function = {
                "bernoulli": bernoulli_terms,
                "categorical": categorical_terms,
                "poisson": poisson_terms,
                "multinomial": multinomial_terms,
            }[kind]
            total = total + function(mine["rate" if kind == "poisson" else "prob"], part).sum(-1)
    return total


def normal_rows(mean, covariance, rows):
    out = np.zeros(len(rows))
    for i, row in enumerate(rows):
        o = ~np.isnan(row)
        if o.any():
            out[i] = stats.multivariate_normal.logpdf(row[o], mean[o], covariance[np.ix_(o, o)])
    return out


def new_rows(name, n=12, missing=True):
    """Rows that were not in training, those of a Gaussian block with gaps too; the first without any cell that may lack."""
    x = np.array(numbers(name, n=max(n, 16), seed=7, missing=missing)[0][:n])
    if missing:
        for kind, places, _ in blocks(name):
            if kind == "full":
                x[::3, places[0]] = np.nan
            if kind != "multinomial":
                x[0, places] = np.nan
    return x


# -- densities: the formulas themselves
def test_log_joint_is_the_formula_by_hand(case):
    name, method, clf = case
    rows = new_rows(name)
    _, terms, prior = by_hand(name, method, *numbers(name), rows)
    expected = prior + terms.sum(-1)
    np.testing.assert_allclose(clf.log_joint(table(name, rows)), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(clf.score_samples(table(name, rows)), logsumexp(expected, axis=1), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        clf.predict_log_proba(table(name, rows)), expected - logsumexp(expected, axis=1, keepdims=True), rtol=1e-9, atol=1e-9
    )


# -- how sure
@pytest.mark.parametrize("method", ["map", "posterior"])
@pytest.mark.parametrize("name", NAMES)
def test_probability_draws_are_the_formula_at_each_draw(name, method):
    clf, rows = fitted(name, method), new_rows(name)
    got, draws = clf.predict_proba_draws(table(name, rows)), clf.draws_
    assert got.shape == (60 if method == "posterior" else 1, len(rows), 3)
    for s in range(0, len(got), 7):
        expected = with_parameters(name, {key: value[s] for key, value in draws.items()}, rows)
        expected = np.exp(expected - logsumexp(expected, axis=1, keepdims=True))
        np.testing.assert_allclose(got[s], expected, rtol=1e-8, atol=1e-12)
    low, high = clf.predict_proba_interval(table(name, rows), level=0.8)
    np.testing.assert_allclose(low, np.quantile(got, 0.1, axis=0), atol=1e-12)
    np.testing.assert_allclose(high, np.quantile(got, 0.9, axis=0), atol=1e-12)


@pytest.mark.parametrize("name", ["categorical", "multinomial", "mixed"])
def test_posterior_is_the_normalised_average_of_the_joint_over_draws(name):
    x, y = numbers(name)
    clf = clone(CASES[name][1]).set_params(method="posterior", num_draws=4000, random_state=1).fit(table(name, x), y)
    rows, draws = new_rows(name)[:4], clf.draws_
    tables = np.exp([with_parameters(name, {k: v[s] for k, v in draws.items()}, rows) for s in range(4000)])
    error = tables.std(0) / np.sqrt(4000)
    assert np.all(np.abs(tables.mean(0) - np.exp(clf.log_joint(table(name, rows)))) < 5 * error + 1e-12)
    for key, value in draws.items():
        assert np.all(np.abs(value.mean(0) - clf.params_[key]) < 5 * value.std(0) / np.sqrt(4000) + 1e-12), key


@pytest.mark.parametrize("name", ["bernoulli", "multinomial", "poisson"])
def test_draws_and_intervals_of_sparse_rows(name):
    x, y = numbers(name, missing=False)
    rows = new_rows(name, missing=False)
    dense = clone(CASES[name][1]).set_params(method="posterior", random_state=0, num_draws=20).fit(x, y)
    thin = clone(dense).fit(sparse.csr_array(x), y)
    np.testing.assert_allclose(
        thin.predict_proba_draws(sparse.csr_array(rows)), dense.predict_proba_draws(rows), rtol=1e-9, atol=1e-12
    )
    for a, b in zip(thin.predict_proba_interval(sparse.csr_array(rows)), dense.predict_proba_interval(rows), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


# -- leaving one out
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_leave_one_out_equals_refits(name, method, weighted):
    x, y = numbers(name)
    X = table(name, x, "category")  # without a row the categories stay
    weight = np.where(np.arange(len(x)) % 3, 1.0, np.where(np.arange(len(x)) % 2, 0.4, 2.0)) if weighted else np.ones(len(x))
    clf = clone(CASES[name][1]).set_params(method=method).fit(X, y, sample_weight=weight if weighted else None)
    got = clf.loo_predict_proba()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # under mle some rows have density 0
        for i in range(0, len(x), 9):
            rest = weight.copy()
            rest[i] = max(weight[i] - 1, 0)  # one copy of the row
            row = X[i : i + 1] if isinstance(X, np.ndarray) else X.iloc[i : i + 1]
            expected = clone(clf).fit(X, y, sample_weight=rest).predict_proba(row)[0]
            np.testing.assert_allclose(got[i], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["bernoulli", "multinomial", "poisson"])
def test_leave_one_out_of_sparse_rows(name):
    x, y = numbers(name, missing=False)
    for method in METHODS:
        dense = clone(CASES[name][1]).set_params(method=method).fit(x, y)
        thin = clone(dense).fit(sparse.csr_array(x), y)
        np.testing.assert_allclose(thin.loo_predict_proba(), dense.loo_predict_proba(), rtol=1e-10, atol=1e-12)
        keep = np.arange(len(x)) != 20
        expected = clone(dense).fit(x[keep], y[keep]).predict_proba(x[20:21])[0]
        np.testing.assert_allclose(thin.loo_predict_proba()[20], expected, rtol=1e-9, atol=1e-12)


# -- generate
def chi_square(codes, probabilities):
    """p-value of counts of the outcomes 0, 1, ...; those expected less than five times go together."""
    counts, n = np.bincount(codes, minlength=len(probabilities)), len(codes)
    assert np.all(counts[probabilities == 0] == 0)
    rare = probabilities * n < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(probabilities[~rare], probabilities[rare].sum()) * n
    keep = expected > 0
    return stats.chisquare(observed[keep], expected[keep] / expected[keep].sum() * n).pvalue


def tiny(name, method, k=2):
    """A classifier of few columns, whose rows can be listed: (classifier, all the rows, log p(x, y) by hand)."""
    rng = np.random.default_rng(3)
    y = CLASSES[np.arange(24) % 5 % k]
    if name == "bernoulli":
        x, every = rng.integers(0, 2, (24, 3)).astype(float), np.array(list(itertools.product(range(2), repeat=3)), float)
    elif name == "multinomial":
        x = rng.multinomial(4, [0.5, 0.3, 0.2], 24).astype(float)
        every = np.array([r for r in itertools.product(range(5), repeat=3) if sum(r) == 4], float)
    elif name == "poisson":
        x, every = (
            rng.poisson([1.0, 2.0], (24, 2)).astype(float),
            np.array(list(itertools.product(range(25), repeat=2)), float),
        )
    else:
        x = np.stack([rng.integers(0, c, 24) for c in (3, 2, 4)], 1).astype(float)
        x[:4] = np.arange(4)[:, None] % [3, 2, 4]
        every = np.array(list(itertools.product(range(3), range(2), range(4))), float)
    prior = {"alpha": 0.5, "beta": 1.0} if name == "poisson" else {"alpha": 0.5}
    sizes = {"sizes": [3, 2, 4]} if name == "categorical" else {}
    clf = type(CASES[name][1])(**prior, method=method, random_state=0).fit(x, y)
    classes, count = np.unique(y, return_counts=True)
    extra = 1.0 if method == "posterior" else 0.0
    log_prior = np.log((count + extra) / (24 + extra * k))
    return clf, every, log_prior + HAND[name](method, x, y, every, classes, **prior, **sizes).sum(-1)


TINY = ["bernoulli", "categorical", "multinomial", "poisson"]


def places(rows, every):
    """Which of the listed rows each row is."""
    where = {tuple(row): i for i, row in enumerate(every.tolist())}
    return np.array([where[tuple(row)] for row in np.asarray(rows, float).tolist()])


@pytest.mark.parametrize("method", ["map", "posterior"])
@pytest.mark.parametrize("name", TINY)
def test_samples_follow_the_enumerated_joint(name, method):
    clf, every, joint = tiny(name, method)
    rows, drawn = clf.sample(40_000, random_state=5)
    pairs = places(rows, every) * 2 + np.searchsorted(clf.classes_, drawn)
    assert chi_square(pairs, np.exp(joint).ravel()) > 1e-4
    # of a class that is given
    rows, drawn = clf.sample(40_000, y="jam", random_state=6)
    assert set(drawn) == {"jam"}
    assert chi_square(places(rows, every), np.exp(joint[:, 1] - logsumexp(joint[:, 1]))) > 1e-4


@pytest.mark.parametrize("method", ["map", "posterior"])
@pytest.mark.parametrize("name", ["bernoulli", "categorical", "poisson"])
def test_samples_given_cells_follow_joint_over_marginal(name, method):
    clf, every, joint = tiny(name, method)
    rows, drawn = clf.sample(20_000, given={1: 1}, random_state=5)
    assert np.all(rows[:, 1] == 1)
    conditional = np.where(every[:, [1]] == 1, np.exp(joint), 0.0)
    pairs = places(rows, every) * 2 + np.searchsorted(clf.classes_, drawn)
    assert chi_square(pairs, (conditional / conditional.sum()).ravel()) > 1e-4
    rows, _ = clf.sample(20_000, y="ham", given={1: 1}, random_state=6)
    assert chi_square(places(rows, every), conditional[:, 0] / conditional[:, 0].sum()) > 1e-4


def test_samples_given_cells_of_other_blocks():
    clf = fitted("blocks", "map")
    rows, drawn = clf.sample(6000, given={"top": "q", "b": 0.4}, random_state=2)
    assert (rows["top"] == "q").all() and (rows["b"] == 0.4).all()
    given = new_rows("blocks")[:1] * np.nan
    listed = names_of("blocks")
    given[0, listed.index("top")], given[0, listed.index("b")] = 1.0, 0.4
    given[0, [listed.index(w) for w in ("w1", "w2", "w3")]] = 0.0  # no events say nothing
    log_joint = with_parameters("blocks", clf.params_, given)[0]
    proba = np.exp(log_joint - logsumexp(log_joint))
    assert chi_square(np.searchsorted(clf.classes_, drawn), proba) > 1e-4
    for k, label in enumerate(clf.classes_):
        mine = rows[(drawn == label)]
        events = mine[["w1", "w2", "w3"]].sum()
        assert stats.chisquare(events, clf.params_["multinomial.prob"][k] * events.sum()).pvalue > 1e-4
        mean, cov = clf.params_["gaussian.mean"][k], clf.params_["gaussian.covariance"]
        centre = mean[0] + cov[0, 1] / cov[1, 1] * (0.4 - mean[1])
        law = stats.norm(centre, np.sqrt(cov[0, 0] - cov[0, 1] ** 2 / cov[1, 1]))
        assert stats.kstest(mine["a"], law.cdf).pvalue > 1e-4


def test_samples_of_a_mixed_table_follow_each_column():
    clf = fitted("mixed", "map")
    rows, drawn = clf.sample(9000, random_state=1)
    assert chi_square(np.searchsorted(CLASSES, drawn), clf.priors_) > 1e-4
    x, code = back("mixed", rows), np.searchsorted(CLASSES, drawn)
    for k in range(3):
        mine, theta = x[code == k], clf.params_
        law = stats.norm(theta["gaussian.mean"][k, 0], np.sqrt(theta["gaussian.variance"][k, 0]))
        assert stats.kstest(mine[:, 0], law.cdf).pvalue > 1e-4
        assert chi_square(mine[:, 1].astype(int), theta["categorical.prob"][k, 0]) > 1e-4
        assert chi_square(mine[:, 2].astype(int), theta["categorical.prob"][k, 1, :2]) > 1e-4
        one = theta["bernoulli.prob"][k, 0]
        assert chi_square(mine[:, 3].astype(int), np.array([1 - one, one])) > 1e-4
        pmf = stats.poisson.pmf(np.arange(60), theta["poisson.rate"][k, 0])
        assert chi_square(mine[:, 4].astype(int), pmf) > 1e-4
        correlation = np.corrcoef(mine.T) - np.eye(5)  # columns are independent within the class
        assert np.abs(correlation).max() < 5 / np.sqrt(len(mine))


@pytest.mark.parametrize("name", ["bernoulli", "multinomial", "poisson"])
def test_sparse_training_gives_sparse_samples_of_the_same_law(name):
    clf, every, joint = tiny(name, "map")
    x, y = every[:8], np.repeat(["ham", "jam"], 4)
    thin, dense = clone(clf).fit(sparse.csr_array(x), y), clone(clf).fit(x, y)
    rows, drawn = thin.sample(500, random_state=1)
    assert sparse.issparse(rows) and rows.shape == (500, every.shape[1])
    np.testing.assert_array_equal(rows.toarray(), dense.sample(500, random_state=1)[0])


def test_categories_that_a_class_never_had_are_never_drawn_without_smoothing():
    X = pd.DataFrame({"a": list("xxyyzz") * 5, "b": list("uvuvuv") * 5})
    y = np.where(X["a"] == "z", "late", "early")
    clf = CategoricalNB(method="mle", random_state=0).fit(X, y)
    rows, drawn = clf.sample(5000)
    pd.testing.assert_series_equal(rows["a"] == "z", pd.Series(drawn == "late"), check_names=False)
    assert set(rows["a"]) == {"x", "y", "z"}


# -- fill in
def enumerated_cells(name, method, row, support, allowed):
    """For one row, the law of each missing cell given the observed ones: {place: (values, probabilities)}."""
    missing = np.flatnonzero(np.isnan(row))
    completions = np.array(list(itertools.product(*(support[j] for j in missing))), float)
    rows = np.tile(row, (len(completions), 1))
    rows[:, missing] = completions
    _, terms, prior = by_hand(name, method, *numbers(name), rows)
    weights = np.exp(prior + terms.sum(-1))[:, allowed].sum(1)
    weights /= weights.sum()
    return {j: (support[j], np.array([weights[rows[:, j] == v].sum() for v in support[j]])) for j in missing}


SUPPORT = {
    "bernoulli": [range(2)] * 4,
    "categorical": [range(3), range(2), range(4)],
    "poisson": [range(40)] * 3,
}


@pytest.mark.parametrize("method", ["map", "posterior"])
@pytest.mark.parametrize("name", list(SUPPORT))
@pytest.mark.parametrize("known", ["unknown", "known", "partly"])
def test_imputed_cells_are_the_most_probable_by_enumeration(name, method, known):
    clf, rows = fitted(name, method), new_rows(name, 14)
    rows[np.isnan(rows).sum(1) > 2] = rows[1]  # at most two missing cells keep the lists short
    for i in range(len(rows)):
        rows[i, i % rows.shape[1]] = np.nan
    y = np.array([None] * 14, object)
    if known != "unknown":
        y[:: 1 if known == "known" else 2] = "jam"
    filled = back(name, clf.impute(table(name, rows), y=None if known == "unknown" else y))
    observed = ~np.isnan(rows)
    np.testing.assert_array_equal(filled[observed], rows[observed])
    for i, row in enumerate(rows):
        allowed = [0, 1, 2] if y[i] is None else [1]
        for j, (values, law) in enumerated_cells(name, method, row, SUPPORT[name], allowed).items():
            assert law[list(values).index(filled[i, j])] > law.max() - 1e-12


def test_imputed_counts_of_widely_separated_classes():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [30, 10, 20])
    x = np.stack([rng.poisson(np.array([0.4, 40.0, 900.0])[y]), rng.poisson(np.array([2.0, 3.0, 2.5])[y])], 1).astype(float)
    for method in ("map", "posterior"):
        clf = PoissonNB(method=method).fit(x, y)
        rows = np.column_stack([np.full(12, np.nan), np.arange(12.0)])
        grid = np.column_stack([np.repeat(np.arange(1100.0), 12), np.tile(np.arange(12.0), 1100)])
        classes, count = np.unique(y, return_counts=True)
        extra = 1.0 if method == "posterior" else 0.0
        prior = np.log((count + extra) / (60 + extra * 3))
        law = logsumexp(prior + hand_poisson(method, x, y, grid, classes, 1.0, 1.0).sum(-1), axis=1).reshape(1100, 12)
        got = clf.impute(rows)[:, 0].astype(int)
        assert len(set(got)) > 1 and np.all(law[got, np.arange(12)] > law.max(0) - 1e-9)  # two modes may be equally high


@pytest.mark.parametrize("method", ["map", "posterior"])
@pytest.mark.parametrize("known", [False, True])
def test_mixed_tables_are_filled_with_means_and_modes(method, known):
    clf, rows = fitted("mixed", method), new_rows("mixed", 12)
    x, y = numbers("mixed")
    target = np.array([None, "ham", "spam"] * 4, object) if known else None
    filled = back("mixed", clf.impute(table("mixed", rows), y=target))
    _, terms, prior = by_hand("mixed", method, x, y, rows)
    share = prior + terms.sum(-1)
    share = np.exp(share - logsumexp(share, axis=1, keepdims=True))
    if known:
        share = np.array(
            [s if t is None else np.eye(3)[np.searchsorted(CLASSES, t)] for s, t in zip(share, target, strict=True)]
        )
    n = by_class(x, y, CLASSES, lambda r: np.sum(~np.isnan(r[:, 0])))
    mean = by_class(x, y, CLASSES, lambda r: np.nanmean(r[:, 0]))
    centre = (0.7 * 0.3 + n * mean) / (0.7 + n)
    support = [None, range(3), range(2), range(2), range(60)]
    for i, row in enumerate(rows):
        for j in np.flatnonzero(np.isnan(row)):
            if j == 0:
                np.testing.assert_allclose(filled[i, 0], share[i] @ centre, rtol=1e-9)
                continue
            trial = np.full((len(support[j]), 5), np.nan)
            trial[:, j] = list(support[j])
            law = np.exp(by_hand("mixed", method, x, y, trial)[1].sum(-1)) @ share[i]
            assert law[int(filled[i, j])] > law.max() - 1e-12
        observed = ~np.isnan(row)
        np.testing.assert_array_equal(filled[i, observed], row[observed])


@pytest.mark.parametrize("name", ["bernoulli", "categorical", "poisson"])
def test_imputed_draws_follow_the_conditional(name):
    clf, every, joint = tiny(name, "map")
    row = every[len(every) // 2].copy()
    row[0] = np.nan
    rows = np.tile(row, (500, 1))
    for y, shares in ((None, np.exp(joint).sum(1)), (np.full(500, "jam"), np.exp(joint[:, 1]))):
        tables = clf.impute(rows, y=y, draws=20, random_state=3)
        assert len(tables) == 20
        same = (every[:, 1:] == row[1:]).all(1)
        law = np.where(same, shares, 0.0)
        assert chi_square(places(np.vstack(tables), every), law / law.sum()) > 1e-4


@pytest.mark.parametrize("name", ["bernoulli", "categorical", "poisson"])
def test_imputed_tables_under_posterior_have_their_own_parameters(name):
    clf, every, joint = tiny(name, "posterior")
    row = every[len(every) // 2].copy()
    row[0] = np.nan
    tables = np.array(clf.impute(np.tile(row, (60, 1)), y=np.full(60, "jam"), draws=400, random_state=3))[:, :, 0]
    same = (every[:, 1:] == row[1:]).all(1)
    law = np.exp(joint[same, 1] - logsumexp(joint[same, 1]))  # with the class known, the average over θ is the predictive
    for value, probability in zip(every[same, 0], law, strict=True):
        shares = (tables == value).mean(1)
        assert abs(shares.mean() - probability) < 5 * max(shares.std(), np.sqrt(probability / 60)) / np.sqrt(400) + 1e-12
    # tables differ by more than the noise of 60 draws: each has parameters of its own
    spread = (tables == every[same, 0][0]).mean(1).var()
    assert spread > 1.2 * law[0] * (1 - law[0]) / 60


# -- flag
@pytest.mark.parametrize("method", ["map", "posterior"])
@pytest.mark.parametrize("name", TINY)
def test_outlier_pvalues_are_the_enumerated_tail(name, method):
    clf, every, joint = tiny(name, method)
    density = logsumexp(joint, axis=1)
    rows = np.argsort(density)[np.linspace(0, len(every) - 1, 12).astype(int)]
    tail = np.array([np.exp(density[density <= density[i] + 1e-9]).sum() for i in rows]).clip(0, 1)
    got = clf.outlier_pvalues(every[rows], draws=40_000)
    assert np.all(np.abs(got - tail) < 5 * np.sqrt(tail * (1 - tail) / 40_000) + 2 / 40_000)
    if name == "multinomial":
        return
    # on the observed cells only
    gaps = every[rows].copy()
    gaps[:, 0] = np.nan
    firsts = {}
    for value, d in zip(map(tuple, every[:, 1:]), density, strict=True):
        firsts.setdefault(value, []).append(d)
    marginal = {value: logsumexp(d) for value, d in firsts.items()}
    tail = [sum(np.exp(d) for d in marginal.values() if d <= marginal[tuple(r[1:])] + 1e-9) for r in gaps]
    tail, got = np.clip(tail, 0, 1), clf.outlier_pvalues(gaps, draws=40_000)
    assert np.all(np.abs(got - tail) < 5 * np.sqrt(tail * (1 - tail) / 40_000) + 2 / 40_000)


def at_most_uniform(pvalues, draws):
    """P(p ≤ a) ≤ a, up to the noise of the rows and of the shared simulation."""
    assert pvalues.min() > 0 and pvalues.max() <= 1
    for a in (0.005, 0.01, 0.05, 0.1, 0.3, 0.6):
        slack = 4 * np.sqrt(a * (1 - a) * (1 / len(pvalues) + 1 / draws)) + 1 / draws
        assert np.mean(pvalues <= a) <= a + slack, a


@pytest.mark.parametrize(("name", "method"), [(name, "map" if name == "mixed" else "posterior") for name in NAMES])
def test_outlier_pvalues_are_at_most_uniform_on_rows_from_the_model(name, method):
    clf = fitted(name, method)
    rows, _ = clf.sample(10_000, random_state=11)  # as many as are simulated: one program serves both
    x = back(name, rows)
    at_most_uniform(clf.outlier_pvalues(rows), 10_000)
    patterns = np.zeros((3, x.shape[1]), bool)
    for kind, where, _ in blocks(name):
        if kind != "multinomial":
            patterns[0, where[-1:]] = patterns[1, where[:1]] = True
    gaps = np.where(patterns[np.arange(10_000) % 3], np.nan, x)
    pvalues = clf.outlier_pvalues(table(name, gaps))
    for i in range(3):
        at_most_uniform(pvalues[i::3], 10_000)


@pytest.mark.parametrize("method", ["map", "posterior"])
def test_outlier_pvalues_of_multinomial_rows_of_all_totals(method):
    x, y = numbers("multinomial")
    clf = fitted("multinomial", method)
    rng = np.random.default_rng(0)
    code = rng.choice(3, 3000, p=clf.priors_)
    totals = rng.integers(0, 40, 3000)
    if method == "map":
        prob = clf.params_["prob"][code]
    else:
        count = by_class(x, y, CLASSES, lambda r: r.sum(0))
        prob = np.array([rng.dirichlet(1.8 + count[k]) for k in code])
    rows = np.array([rng.multinomial(n, p) for n, p in zip(totals, prob, strict=True)]).astype(float)
    pvalues = clf.outlier_pvalues(rows)
    at_most_uniform(pvalues, 10_000)
    assert np.all(pvalues[totals == 0] == 1.0)
    large = pvalues[totals > 25]
    assert abs(np.mean(large <= 0.3) - 0.3) < 0.05  # and not much less than uniform where there are many outcomes
    np.testing.assert_array_equal(clf.outlier_pvalues(sparse.csr_array(rows)), pvalues)
    assert np.all(clf.outlier_pvalues(np.zeros((2, 4))) == 1.0)


@pytest.mark.parametrize("method", ["map", "posterior"])
def test_outlier_pvalues_of_multinomial_rows_of_many_events(method, monkeypatch):
    monkeypatch.setattr("bayesgen.outliers.FEW_EVENTS", 5)  # longer rows are simulated for themselves
    x, y = np.array([[5.0, 3, 2], [4, 4, 1], [1, 2, 9], [0, 3, 8]]), np.array([0, 0, 1, 1])
    clf = MultinomialNB(method=method, random_state=0).fit(x, y)
    every = np.array([r for r in itertools.product(range(21), repeat=3) if sum(r) == 20], float)
    prior = np.log([0.5, 0.5])
    density = logsumexp(prior + hand_multinomial(method, x, y, every, [0, 1], 1.0).sum(-1), axis=1)
    np.testing.assert_allclose(np.exp(density).sum(), 1.0, rtol=1e-10)
    tail = np.array([np.exp(density[density <= d + 1e-9]).sum() for d in density]).clip(0, 1)
    got = clf.outlier_pvalues(every, draws=10_000)
    assert np.all(np.abs(got - tail) < 5 * np.sqrt(tail * (1 - tail) / 10_000) + 2 / 10_000)


def test_simulated_events_are_an_urn():
    # few and small concentrations: events repeat each other
    a = np.array([[0.6, 0.3, 0.5], [2.0, 0.2, 0.1]])
    kinds, earlier = simulate_events({"concentration": a}, np.arange(20_000) % 2, 4, np.random.default_rng(0))
    every = np.array([r for r in itertools.product(range(5), repeat=3) if sum(r) == 4])
    rows = np.stack([(kinds == j).sum(1) for j in range(3)], 1)
    for k in range(2):
        law = stats.dirichlet_multinomial.pmf(every, a[k], 4)
        assert chi_square(places(rows[k::2], every), law) > 1e-4
    assert np.all(earlier == np.array([[np.sum(row[:t] == row[t]) for t in range(4)] for row in kinds]))


def test_outlier_pvalues_of_many_columns_are_uniform():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 2, (200, 40)).astype(float), rng.integers(0, 2, 200)
    x[:, :20] = rng.poisson(0.3, (200, 20)).clip(0, 1)
    for clf, rows in ((BernoulliNB(method="posterior", random_state=0), x), (PoissonNB(random_state=0), x * 3)):
        clf.fit(rows, y)
        pvalues = clf.outlier_pvalues(clf.sample(10_000, random_state=5)[0])
        for a in (0.05, 0.3, 0.6):
            assert abs(np.mean(pvalues <= a) - a) < 4 * np.sqrt(a * (1 - a) * (1 / 10_000 + 1 / 10_000)) + 0.01


def test_outlier_pvalues_of_sparse_blocks_of_several_families():
    rng = np.random.default_rng(2)
    x, y = rng.poisson(1.0, (60, 6)).astype(float), rng.integers(0, 2, 60)
    clf = GenerativeClassifier([([0, 1, 2], Multinomial()), ([3, 4, 5], Poisson())], random_state=0)
    dense = clone(clf).fit(x, y).outlier_pvalues(x)
    thin = clone(clf).fit(sparse.csr_array(x), y).outlier_pvalues(sparse.csr_array(x))
    np.testing.assert_allclose(thin, dense, rtol=1e-12)


def test_unusual_rows_are_flagged():
    clf = fitted("mixed", "map")
    rows = new_rows("mixed", 3, missing=False)
    rows[0, 4] = 200  # eggs
    rows[1, 0] = 40.0  # mass
    assert np.all(clf.outlier_pvalues(table("mixed", rows))[:2] < 1e-3)
    assert clf.outlier_pvalues(table("mixed", np.full((1, 5), np.nan)))[0] == 1.0


# -- explain
def test_evidence_is_the_formula_by_hand_and_adds_up_to_the_log_odds(case):
    name, method, clf = case
    rows, reference = new_rows(name), "spam" if method == "map" else None
    got = clf.explain(table(name, rows), reference=reference)
    features, terms, prior = by_hand(name, method, *numbers(name), rows)
    r = 0 if reference is None else 2
    log_proba = clf.predict_log_proba(table(name, rows))
    sums = got.groupby(["row", "class"])["log_ratio"].sum()
    assert len(sums) == 2 * len(rows) and set(got["reference"]) == {CLASSES[r]}
    for i, k in itertools.product(range(len(rows)), set(range(3)) - {r}):
        mine = got[(got["row"] == i) & (got["class"] == CLASSES[k])].set_index("feature")["log_ratio"]
        assert mine.index[0] == "(prior)" and sorted(mine.index[1:]) == sorted(features)
        np.testing.assert_allclose(mine["(prior)"], prior[k] - prior[r], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(mine[features], terms[i, k] - terms[i, r], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(sums[i, CLASSES[k]], log_proba[i, k] - log_proba[i, r], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_intervals_of_the_evidence_are_quantiles_over_the_draws(name):
    clf, rows = fitted(name, "posterior"), new_rows(name, 6)
    got, draws = clf.explain(table(name, rows), level=0.8), clf.draws_
    assert np.all(got["low"] <= got["high"])
    thetas = [{key: value[s] for key, value in draws.items()} for s in range(60)]
    # a row of which only one feature is observed has that feature's ratio and the prior's as its log odds
    listed = names_of(name)
    priors = np.log([t["class_probs"][1] / t["class_probs"][0] for t in thetas])
    low, high = np.quantile(priors, [0.1, 0.9])
    first = got[(got["feature"] == "(prior)") & (got["class"] == "jam")]
    np.testing.assert_allclose(first["low"], low, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(first["high"], high, rtol=1e-10, atol=1e-12)
    kind, where, _ = list(blocks(name))[-1]
    for i in range(1, 6):
        alone = np.full((1, rows.shape[1]), np.nan)
        for other, cells, _ in blocks(name):
            alone[0, cells] = 0.0 if other == "multinomial" else np.nan  # no events say nothing
        alone[0, where[-1]] = rows[i, where[-1]]
        odds = np.array([np.diff(with_parameters(name, t, alone)[0, :2])[0] for t in thetas]) - priors
        label = f"column {listed[where[-1]]}" if isinstance(listed[where[-1]], int) else listed[where[-1]]
        mine = got[(got["row"] == i) & (got["class"] == "jam") & (got["feature"] == label)]
        expected = np.quantile(odds, [0.1, 0.9])
        np.testing.assert_allclose(mine[["low", "high"]].to_numpy()[0], expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["bernoulli", "multinomial", "poisson"])
def test_evidence_of_sparse_rows(name, method):
    x, y = numbers(name, k=2, missing=False)
    rows = np.vstack([new_rows(name, 6, missing=False), np.zeros((1, x.shape[1]))])
    clf = clone(CASES[name][1]).set_params(method=method, random_state=0, num_draws=20).fit(sparse.csr_array(x), y)
    words = [f"w{j}" for j in range(x.shape[1])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = clf.explain(sparse.csr_array(rows), feature_names=words)
    _, terms, prior = by_hand(name, method, x, y, rows)
    log_proba = clf.predict_log_proba(rows)
    np.testing.assert_allclose(log_proba, clf.predict_log_proba(sparse.csr_array(rows)), rtol=1e-9, atol=1e-12)
    for i in range(len(rows)):
        mine = got[got["row"] == i].set_index("feature")
        ratio = terms[i, 1] - terms[i, 0]
        stored = np.flatnonzero(rows[i])
        rest = [] if name == "multinomial" else ["(absent)"]
        assert list(mine.index) == ["(prior)", *(words[j] for j in stored), *rest]
        np.testing.assert_allclose(mine["log_ratio"][[words[j] for j in stored]], ratio[stored], rtol=1e-9, atol=1e-9)
        if rest:
            np.testing.assert_allclose(mine["log_ratio"]["(absent)"], np.delete(ratio, stored).sum(), rtol=1e-9, atol=1e-9)
        assert abs(mine["log_ratio"].sum() - (log_proba[i, 1] - log_proba[i, 0])) < 1e-10
    if method == "posterior":
        assert np.all(got["low"] <= got["high"])
        draws = clf.draws_
        odds = np.log(draws["class_probs"][:, 1] / draws["class_probs"][:, 0])
        first = got[got["feature"] == "(prior)"][["low", "high"]].to_numpy()
        np.testing.assert_allclose(first, np.tile(np.quantile(odds, [0.05, 0.95]), (7, 1)), rtol=1e-10)


@pytest.mark.parametrize("name", ["bernoulli", "multinomial"])
@pytest.mark.parametrize("k", [2, 3])
def test_coefficients_reproduce_the_log_odds(name, k):
    x, y = numbers(name, k=k, missing=False)
    rows = new_rows(name, missing=False)
    for method in ("map", "posterior") if name == "bernoulli" else ("map",):
        clf = clone(CASES[name][1]).set_params(method=method).fit(x, y)
        scores = rows @ clf.coef_.T + clf.intercept_
        assert clf.coef_.shape == ((1, 4) if k == 2 else (3, 4)) and clf.intercept_.shape == ((1,) if k == 2 else (3,))
        _, terms, prior = by_hand(name, method, x, y, rows)
        expected = prior + terms.sum(-1)
        odds = expected[:, 1:] - expected[:, :1]
        np.testing.assert_allclose(scores if k == 2 else scores[:, 1:] - scores[:, :1], odds, rtol=1e-9, atol=1e-10)


# -- zero probability
IMPOSSIBLE = {
    "bernoulli": (BernoulliNB, [[1, 0, 1], [1, 0, 0], [0, 1, 1], [0, 1, 0]], [[1, 0, 1], [1, 1, 0]]),
    "multinomial": (MultinomialNB, [[2, 0, 1], [1, 0, 3], [0, 2, 1], [0, 1, 1]], [[2, 0, 1], [1, 1, 0]]),
    "poisson": (PoissonNB, [[2, 0, 1], [1, 0, 3], [0, 2, 1], [0, 1, 1]], [[2, 0, 1], [1, 1, 0]]),
    "categorical": (CategoricalNB, [[0, 0, 1], [0, 0, 0], [1, 1, 1], [1, 1, 0]], [[0, 0, 1], [0, 1, 0]]),
    "mixed": (MixedNB, [[0, 0, 1], [0, 0, 0], [1, 1, 1], [1, 1, 0]], [[0, 0, 1], [0, 1, 0]]),
}


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", list(IMPOSSIBLE))
def test_impossible_rows_without_smoothing(name, container):
    kind, x, rows = IMPOSSIBLE[name]
    if container is sparse.csr_array and name in ("categorical", "mixed"):
        return
    # classes 2:2:1, the third like the first
    x, y = container(np.array([*x, x[0]])), np.array([0, 0, 1, 1, 2])
    clf = kind(method="mle").fit(x, y)
    rows = container(np.array(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = clf.predict_proba(rows[:1])  # class 1 is impossible, the others are not
    assert one[0, 1] == 0 and np.all(one[0, [0, 2]] > 0) and abs(one.sum() - 1) < 1e-12
    joint = clf.log_joint(rows)
    assert np.isneginf(joint[0, 1]) and np.all(np.isfinite(joint[0, [0, 2]])) and np.all(np.isneginf(joint[1]))
    np.testing.assert_allclose(one[0], np.exp(joint[0] - logsumexp(joint[0])), rtol=1e-12)
    for function, expected in ((clf.predict_proba, clf.priors_), (clf.predict_log_proba, np.log(clf.priors_))):
        with pytest.warns(UserWarning, match="density 0 under every class") as caught:
            got = function(rows)
        assert len(caught) == 1 and "row 1" in str(caught[0].message)
        np.testing.assert_allclose(got[1], expected, rtol=1e-12)
        assert not np.isnan(got).any()
    score = clf.score_samples(rows)
    assert np.isfinite(score[0]) and np.isneginf(score[1])
    np.testing.assert_allclose(clf.predict_proba_draws(rows)[0, 1], clf.priors_, rtol=1e-12)
    assert clf.outlier_pvalues(rows)[1] < 1e-3
    table_ = clf.explain(rows)
    assert not table_["log_ratio"].isna().any()
    sums = table_[table_["row"] == 0].groupby("class")["log_ratio"].sum()
    assert np.isneginf(sums[1]) and abs(sums[2] - (joint[0, 2] - joint[0, 0])) < 1e-10


def test_impossible_observed_cells_leave_the_prior_for_the_missing_ones():
    clf = CategoricalNB(method="mle", random_state=0).fit(
        pd.DataFrame({"a": list("xxyy"), "b": list("uvuv"), "c": list("rrss")}), [0, 0, 1, 1]
    )
    rows = pd.DataFrame({"a": ["x"] * 30, "b": [None] * 30, "c": ["s"] * 30}, dtype=object)
    assert clf.impute(rows)["b"].isin(["u", "v"]).all()
    assert set(clf.impute(rows, draws=1)[0]["b"]) == {"u", "v"}


# -- the NumPyro model
SITES = {
    "bernoulli": {"prob": (3, 4)},
    "categorical": {"prob": (3, 9)},
    "multinomial": {"prob": (3, 4)},
    "poisson": {"rate": (3, 3)},
    "mixed": {
        "gaussian.mean": (3, 1),
        "gaussian.precision": (3, 1),
        "categorical.prob": (3, 5),
        "bernoulli.prob": (3, 1),
        "poisson.rate": (3, 1),
    },
    "blocks": {
        "gaussian.mean": (3, 2),
        "gaussian.precision": (2, 2),
        "categorical.prob": (3, 4),
        "multinomial.prob": (3, 3),
        "poisson.rate": (3, 1),
        "bernoulli.prob": (3, 1),
    },
}


@pytest.mark.parametrize(("name", "double"), [*((name, True) for name in NAMES if name != "mixed"), ("mixed", False)])
def test_model_traces_and_has_the_density_of_the_formulas(name, double):
    clf, (x, y) = fitted(name, "map"), numbers(name)
    X = table(name, x)

    def draw(key):
        trace = handlers.trace(handlers.seed(clf.model, key)).get_trace(X, y)
        return {key: site["value"] for key, site in trace.items() if site["type"] == "sample" and not site["is_observed"]}

    def densities(theta):  # of all the rows, and of the first alone, its label unknown
        return [log_density(clf.model, case, {}, theta)[0] for case in ((X, y), (take(X, [0]), None))]

    with jax.enable_x64(double):
        sites = jax.jit(draw)(jax.random.key(0))
        assert {key: value.shape for key, value in sites.items()} == {"class_probs": (3,), **SITES[name]}
        assert {value.dtype for value in sites.values()} == {np.dtype("float64" if double else "float32")}
        whole, alone = jax.jit(densities)(sites)
    rows = with_parameters(name, public(name, {key: np.asarray(v, float) for key, v in sites.items()}), x)
    expected = rows[np.arange(len(x)), np.searchsorted(CLASSES, y)].sum() - logsumexp(rows[0])
    np.testing.assert_allclose(float(whole) - float(alone), expected, rtol=1e-9 if double else 1e-4)


@pytest.mark.parametrize("name", ["bernoulli", "multinomial", "poisson"])
def test_model_samples_rows(name):
    clf = fitted(name, "map")
    drawn = Predictive(clf.model, num_samples=2)(jax.random.key(0), num_rows=3)
    assert drawn["y"].shape == (2, 3) and drawn["x"].shape == (2, 3, clf.n_features_in_)
    assert np.all(np.asarray(drawn["x"]) >= 0) and np.all(np.asarray(drawn["x"]) % 1 == 0)
    if name == "multinomial":
        assert np.all(drawn["x"].sum(-1) == round(numbers(name)[0].sum(1).mean()))


def public(name, sites):
    """Sites of the model as users see the parameters."""
    out = {}
    for key, value in sites.items():
        block, _, site = key.rpartition(".")
        if site == "precision":
            full = name == "blocks"
            out[f"{block}.{'covariance' if full else 'variance'}"] = np.linalg.inv(value) if full else 1 / value
        elif site == "prob" and "categorical" in (block, name):
            sizes = [
                len(LEVELS[c])
                for c in {"categorical": ["sky", "car", "top"], "mixed": ["sky", "car"], "blocks": ["top"]}[name]
            ]
            padded = np.zeros((3, len(sizes), max(sizes)))
            for j, part in enumerate(np.split(value, np.cumsum(sizes)[:-1], axis=1)):
                padded[:, j, : sizes[j]] = part
            out[key] = padded
        else:
            out[key] = value
    return out


def test_nuts_on_categories_of_unequal_number_agrees_with_the_exact_posterior():
    clf, (x, y) = fitted("categorical", "posterior"), numbers("categorical")

    @jax.jit  # one program; outside jit the start of the chain is compiled operation by operation
    def chain(key):
        mcmc = MCMC(NUTS(clf.model), num_warmup=50, num_samples=50, progress_bar=False)
        mcmc.run(key, table("categorical", x), y)
        return mcmc.get_samples()["prob"]

    with jax.enable_x64(True):
        samples = np.asarray(chain(jax.random.key(0)))
    assert samples.shape == (50, 3, 9)
    np.testing.assert_allclose(np.stack([part.sum(-1) for part in np.split(samples, [3, 5], -1)]), 1.0, rtol=1e-9)
    exact = np.concatenate([clf.params_["prob"][:, j, :c] for j, c in enumerate((3, 2, 4))], 1)
    error = samples.std(0) / np.sqrt(50 / 4)
    assert np.all(np.abs(samples.mean(0) - exact) < 4 * error)


@pytest.mark.parametrize("first", ["uses", "model"])
def test_a_model_in_single_precision_and_uses_in_double_live_side_by_side(first):
    # sizes that no other test has: nothing is compiled yet
    c = 5 if first == "uses" else 6
    X = pd.DataFrame({"a": np.arange(30) % c, "b": np.arange(30) % (c + 2)}).astype(str)
    y = np.arange(30) % 4 % 2
    clf = CategoricalNB(random_state=0).fit(X, y)

    def model():
        trace = handlers.trace(handlers.seed(clf.model, 0)).get_trace(X, y)
        theta = {name: trace[name]["value"] for name in ("class_probs", "prob")}
        assert theta["prob"].dtype == np.float32
        assert np.isfinite(jax.jit(lambda t: log_density(clf.model, (X, y), {}, t)[0])(theta))

    def uses():
        assert np.all(np.isfinite(clf.predict_proba(X))) and len(clf.sample(5)[0]) == 5 and clf.impute(X).equals(X)

    for step in (uses, model) if first == "uses" else (model, uses):
        step()


def test_model_of_a_mixed_table_can_be_drawn():
    x, y = numbers("mixed")
    graph = numpyro.render_model(fitted("mixed", "map").model, (table("mixed", x), y), render_distributions=True)
    for word in ("categorical.prob", "gaussian.precision", "poisson.rate", "Beta", "RaggedDirichlet", "class_probs"):
        assert word in graph.source


# -- law 6: more rows, fewer rows
def same_fit(a, b, rtol=1e-12):
    np.testing.assert_array_equal(a.classes_, b.classes_)
    assert a.params_.keys() == b.params_.keys()
    for key in a.params_:
        np.testing.assert_allclose(a.params_[key], b.params_[key], rtol=rtol, atol=1e-12, err_msg=key)
    if hasattr(a, "log_evidence_"):
        np.testing.assert_allclose(a.log_evidence_, b.log_evidence_, rtol=1e-10)


def take(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def test_merge_partial_fit_and_forget_equal_one_fit(case):
    name, method, clf = case
    x, y = numbers(name)
    X = table(name, x)
    left, right = np.arange(0, 45, 2), np.arange(1, 45, 2)
    if method == "mle":
        clf = fitted(name, "mle")
    a, b = (clone(clf).fit(take(X, rows), y[rows]) for rows in (left, right))
    same_fit(a.merge(b), clf)
    same_fit(b.merge(a), clf)
    grown = clone(clf)
    for rows in (left, right):
        grown.partial_fit(take(X, rows), y[rows], classes=CLASSES)
    same_fit(grown, clf)
    same_fit(clf.forget(take(X, right), y[right]), a)
    same_fit(grown.forget(take(X, right), y[right]), a)
    np.testing.assert_allclose(grown.predict_proba(X), clf.predict_proba(X), rtol=1e-10, atol=1e-12)


def test_pieces_with_their_own_categories_and_classes():
    X = pd.DataFrame({"a": ["x", "z", "x", "x", "w", "v", "x"], "b": ["u", None, "u", "t", "t", "u", None]})
    y = np.array(["m", "m", "k", "k", "n", "n", "n"])
    for method in ("map", "posterior"):
        whole = CategoricalNB(method=method).fit(X, y)
        first, second = (CategoricalNB(method=method).fit(X[s], y[s]) for s in (slice(0, 4), slice(4, 7)))
        for merged in (first.merge(second), second.merge(first)):
            same_fit(merged, whole)
            assert [c.tolist() for c in merged.categories_] == [["v", "w", "x", "z"], ["t", "u"]]
            np.testing.assert_allclose(merged.predict_proba(X), whole.predict_proba(X), rtol=1e-12)
        grown = CategoricalNB(method=method).partial_fit(X[:4], y[:4], classes=["k", "m", "n"]).partial_fit(X[4:], y[4:])
        same_fit(grown, whole)
        np.testing.assert_allclose(grown.score_samples(X), whole.score_samples(X), rtol=1e-12)
        # and with numbers beside
        wide = X.assign(c=np.arange(7.0))
        kind = MixedNB(method=method, columns={"c": Gaussian("diag", prior=NORMAL)})
        parts = [clone(kind).fit(wide[s], y[s]) for s in (slice(0, 4), slice(4, 7))]
        same_fit(parts[0].merge(parts[1]), clone(kind).fit(wide, y))


def test_pieces_in_which_a_column_is_all_missing():
    for name in ("bernoulli", "poisson"):
        x, y = numbers(name)
        x = x.copy()
        x[:15, 1] = np.nan
        whole = clone(CASES[name][1]).fit(x, y)
        parts = [clone(whole).fit(x[s], y[s]) for s in (slice(0, 15), slice(15, 45))]
        same_fit(parts[0].merge(parts[1]), whole)
        same_fit(clone(whole).partial_fit(x[:15], y[:15], classes=CLASSES).partial_fit(x[15:], y[15:]), whole)
        same_fit(whole.forget(x[15:], y[15:]), parts[0])
    x, y = numbers("categorical")
    x = x.copy()
    x[15:, 1] = np.nan
    for dtype in ("category", "object"):
        X = table("categorical", x, dtype)
        whole = CategoricalNB().fit(X, y)
        same_fit(CategoricalNB().partial_fit(X[:15], y[:15], classes=CLASSES).partial_fit(X[15:], y[15:]), whole)
        if dtype == "category":
            same_fit(CategoricalNB().fit(X[:15], y[:15]).merge(CategoricalNB().fit(X[15:], y[15:])), whole)


@pytest.mark.parametrize("name", ["bernoulli", "multinomial", "poisson", "complement"])
def test_sparse_pieces(name):
    x, y = numbers("multinomial" if name == "complement" else name, missing=False)
    clf = ComplementNB(0.3) if name == "complement" else clone(CASES[name][1])
    whole, thin = clone(clf).fit(x, y), sparse.csr_array(x)
    parts = [clone(clf).fit(thin[s], y[s]) for s in (slice(0, 20), slice(20, 45))]
    same_fit(parts[0].merge(parts[1]), whole)
    same_fit(clone(clf).partial_fit(thin[:20], y[:20], classes=CLASSES).partial_fit(thin[20:], y[20:]), whole)
    same_fit(whole.forget(thin[20:], y[20:]), parts[0])
    same_fit(clone(clf).fit(thin, y).forget(x[20:], y[20:]), parts[0])


@pytest.mark.parametrize("name", NAMES)
def test_weighted_rows_are_repeated_rows_and_forgotten_so(name):
    x, y = numbers(name)
    X, weight = table(name, x), np.arange(45) % 3
    whole = clone(CASES[name][1]).fit(take(X, np.repeat(np.arange(45), weight)), np.repeat(y, weight))
    same_fit(clone(whole).fit(X, y, sample_weight=weight), whole)
    twice = clone(whole).fit(X, y, sample_weight=weight + 1.5)
    same_fit(twice.forget(X, y, sample_weight=np.full(45, 1.5)), whole, rtol=1e-10)


def test_forgetting_a_piece_that_brought_categories_is_the_fit_that_never_saw_it():
    X = pd.DataFrame({"a": ["x", "z", "x", "x", "w", "v"], "b": ["u", "t", "u", "t", "t", "u"]})
    y = np.array(["m", "m", "k", "k", "m", "k"])
    before = CategoricalNB().fit(X[:4], y[:4])
    after = CategoricalNB().fit(X, y).forget(X[4:], y[4:])
    np.testing.assert_allclose(after.score_samples(X[:4]), before.score_samples(X[:4]), rtol=1e-12)


NEVER_SEEN = {
    "ones": (BernoulliNB(), [[0, 1], [0, 1], [1, 0]], [[1, 1]]),
    "zeros": (BernoulliNB(), [[1, 1], [1, 1], [1, 0]], [[0, 1]]),
    "counts": (PoissonNB(), [[0, 1], [2, 1], [3, 0]], [[3, 1]]),
    "events": (MultinomialNB(), [[0, 1], [2, 1], [3, 0]], [[3, 1]]),
    "categories": (CategoricalNB(), [[0, 1], [0, 1], [1, 0]], [[1, 1]]),
    "complement": (ComplementNB(), [[0, 1], [2, 1], [3, 0]], [[3, 1]]),
    "mixed": (MixedNB({0: "poisson", 1: "poisson"}), [[0, 1], [2, 1], [3, 0]], [[3, 1]]),
    "cells": (PoissonNB(), [[np.nan, 1], [np.nan, 1], [3, 0]], [[0, 1]]),
    "binary cells": (BernoulliNB(), [[np.nan, 1], [np.nan, 1], [1, 0]], [[0, 1]]),
}


@pytest.mark.parametrize("what", list(NEVER_SEEN))
def test_rows_that_leave_a_negative_count_are_not_forgotten(what):
    clf, x, row = NEVER_SEEN[what]
    clf = clone(clf).fit(np.array(x, float if np.isnan(np.array(x, float)).any() else int), ["no", "no", "yes"])
    with pytest.raises(ValueError, match=r"class 'no', column 0"):
        clf.forget(np.array(row), ["no"])


# -- law 7: reductions
@pytest.mark.parametrize("method", METHODS)
def test_mixed_tables_of_one_kind_are_the_classifier_of_that_kind(method):
    rng = np.random.default_rng(0)
    y = CLASSES[rng.integers(0, 3, 40)]
    frame = pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"]).mask(rng.random((40, 3)) < 0.1)
    mixed, alone = MixedNB(method=method).fit(frame, y), GaussianNB(method=method).fit(frame, y)
    np.testing.assert_allclose(mixed.log_joint(frame), alone.log_joint(frame), rtol=1e-10)
    np.testing.assert_array_equal(mixed.impute(frame), alone.impute(frame))
    x, y = numbers("categorical")
    X = table("categorical", x)
    mixed, alone = MixedNB(method=method).fit(X, y), CategoricalNB(method=method).fit(X, y)
    np.testing.assert_allclose(mixed.log_joint(X), alone.log_joint(X), rtol=1e-12)
    same_fit(mixed, alone)


ONE_BLOCK = {
    "bernoulli": lambda **kw: GenerativeClassifier([(slice(None), Bernoulli(0.7))], **kw),
    "categorical": lambda **kw: GenerativeClassifier([(["sky", "car", "top"], Categorical(0.6))], **kw),
    "multinomial": lambda **kw: GenerativeClassifier([([0, 1, 2, 3], Multinomial(0.8))], **kw),
    "poisson": lambda **kw: GenerativeClassifier([(lambda X: [0, 1, 2], Poisson(0.5, 1.5))], **kw),
}


@pytest.mark.parametrize(("name", "method"), [(name, "posterior") for name in ONE_BLOCK] + [("categorical", "mle")])
def test_one_block_is_the_classifier_of_its_family(name, method):
    x, y = numbers(name)
    X, alone = table(name, x), fitted(name, method)
    clf = ONE_BLOCK[name](method=method, random_state=0, num_draws=60).fit(X, y)
    same_fit(clf, alone)
    np.testing.assert_allclose(clf.log_joint(X), alone.log_joint(X), rtol=1e-12)
    a, b = clf.sample(20)[0], alone.sample(20)[0]
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    np.testing.assert_allclose(clf.predict_proba_draws(X), alone.predict_proba_draws(X), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("tied", "method"), [(True, "map"), (True, "posterior"), (False, "posterior")])
def test_one_gaussian_block_is_discriminant_analysis(tied, method):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [12, 15, 18])
    x = rng.normal(size=(45, 3)) @ rng.normal(size=(3, 3)) + y[:, None]
    clf = GenerativeClassifier([([0, 1, 2], Gaussian("full", tied=tied))], method=method).fit(x, y)
    alone = (LDA if tied else QDA)(method=method).fit(x, y)
    gaps = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    np.testing.assert_allclose(clf.log_joint(gaps), alone.log_joint(gaps), rtol=1e-9)
    np.testing.assert_allclose(clf.impute(gaps), alone.impute(gaps), rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_two_categories_are_binary_columns(method):
    x, y = numbers("bernoulli")
    a, b = CategoricalNB(0.7, method=method).fit(x, y), BernoulliNB(0.7, method=method).fit(x, y)
    np.testing.assert_allclose(a.log_joint(x), b.log_joint(x), rtol=1e-12)
    np.testing.assert_allclose(a.params_["prob"][:, :, 1], b.params_["prob"], rtol=1e-12)
    np.testing.assert_allclose(a.loo_predict_proba(), b.loo_predict_proba(), rtol=1e-10, atol=1e-12)


def test_poisson_rows_given_their_total_are_multinomial():
    # Π Poisson(x_j; λ_kj) = Poisson(N; Λ_k) · Multinomial(x; λ_k/Λ_k): the posteriors differ by the law of the total
    x, y = numbers("multinomial")
    poisson = PoissonNB(method="mle").fit(x, y)
    multinomial = MultinomialNB(method="mle").fit(x, y)
    rate = poisson.params_["rate"]
    np.testing.assert_allclose(multinomial.params_["prob"], rate / rate.sum(1, keepdims=True), rtol=1e-12)
    of_total = stats.poisson.logpmf(x.sum(1)[:, None], rate.sum(1))
    np.testing.assert_allclose(poisson.log_joint(x), multinomial.log_joint(x) + of_total, rtol=1e-10, atol=1e-10)


# -- law 9: order does not matter
@pytest.mark.parametrize("name", NAMES)
def test_order_of_rows_columns_and_labels_does_not_matter(name):
    x, y = numbers(name)
    X, rng = table(name, x), np.random.default_rng(0)
    for method in ("map", "posterior") if name in ("categorical", "multinomial") else ("posterior",):
        clf = fitted(name, method)
        expected = clf.predict_log_proba(X)
        rows = rng.permutation(45)
        shuffled = clone(clf).fit(take(X, rows), y[rows])
        np.testing.assert_allclose(shuffled.predict_log_proba(X), expected, rtol=1e-10, atol=1e-12)
        columns = rng.permutation(X.shape[1])
        turned = X[:, columns] if isinstance(X, np.ndarray) else X.iloc[:, columns]
        np.testing.assert_allclose(clone(clf).fit(turned, y).predict_log_proba(turned), expected, rtol=1e-10, atol=1e-12)
        renamed = clone(clf).fit(X, np.array(["c", "a", "b"])[np.searchsorted(CLASSES, y)])
        np.testing.assert_allclose(renamed.predict_log_proba(X)[:, [2, 0, 1]], expected, rtol=1e-10, atol=1e-12)
        if name == "blocks":
            again = clone(clf).set_params(blocks=clf.blocks[::-1]).fit(X, y)
            np.testing.assert_allclose(again.predict_log_proba(X), expected, rtol=1e-10, atol=1e-12)
            assert [c for c, _ in again.blocks_] == [["flag"], ["eggs"], ["w1", "w2", "w3"], ["top"], ["a", "b"]]


def test_columns_of_a_block_may_be_named_in_any_order():
    x, y = numbers("categorical")
    X = table("categorical", x)
    clf = GenerativeClassifier([(["top", "sky"], Categorical(0.6)), (["car"], Categorical(0.6))]).fit(X, y)
    alone = fitted("categorical", "map")
    np.testing.assert_allclose(clf.log_joint(X), alone.log_joint(X), rtol=1e-12)
    filled = clf.impute(X)
    pd.testing.assert_frame_equal(filled, alone.impute(X))
    table_ = clf.explain(X[:3])
    expected = alone.explain(X[:3])
    pd.testing.assert_frame_equal(table_, expected, rtol=1e-10)
