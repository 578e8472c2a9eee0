"""Discrete naive Bayes against scikit-learn at its conventions, and against formulas of NumPy and SciPy."""

from functools import partial

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import betaln, gammaln, logsumexp, softmax
from sklearn import naive_bayes as sk

from bayesgen import (
    Bernoulli,
    BernoulliNB,
    Categorical,
    CategoricalNB,
    ComplementNB,
    Gaussian,
    GenerativeClassifier,
    MultinomialNB,
    Poisson,
    PoissonNB,
)

CONTAINERS = {"dense": np.asarray, "csr": sparse.csr_array, "csc": sparse.csc_array, "csr_matrix": sparse.csr_matrix}
PRIORS = {"fitted": None, "uniform": "uniform", "given": [0.2, 0.3, 0.5]}
SIZES = np.array([4, 2, 3, 5])  # categories of the four columns of `codes`


def same(ours, theirs, x):
    np.testing.assert_allclose(ours.predict_log_proba(x), theirs.predict_log_proba(x), rtol=0, atol=1e-10)
    np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))


def sk_priors(priors):
    """priors= in scikit-learn's words."""
    if isinstance(priors, str):
        return {"fit_prior": False}
    return {} if priors is None else {"class_prior": priors}


def labels(n=60, k=3, seed=0):
    """Unequal classes, every one among the first rows."""
    rng = np.random.default_rng(seed)
    return np.concatenate([np.arange(k), rng.choice(k, n - k, p=np.arange(1, k + 1) / (k * (k + 1) / 2))])


def bits(n=60, p=12, k=3, seed=1):
    rng, y = np.random.default_rng(seed), labels(n, k)
    return (rng.random((n, p)) < rng.beta(0.5, 1.0, (k, p))[y]).astype(float), np.array(["ham", "spam", "eggs"])[y]


def counts(n=60, p=12, k=3, seed=2):
    rng, y = np.random.default_rng(seed), labels(n, k)
    return rng.poisson(4 * rng.beta(0.3, 1.0, (k, p))[y]).astype(float), np.array(["ham", "spam", "eggs"])[y]


def codes(n=60, k=3, seed=3):
    """Four columns of categories, all of them among the first rows."""
    rng, y = np.random.default_rng(seed), labels(n, k)
    tables = [rng.dirichlet(np.ones(size), k) for size in SIZES]
    x = np.stack([[rng.choice(size, p=table[c]) for c in y] for size, table in zip(SIZES, tables, strict=True)], axis=1)
    x[: SIZES.max()] = np.arange(SIZES.max())[:, None] % SIZES
    return x, np.array(["ham", "spam", "eggs"])[y]


def weights(n=60, seed=4):
    """Fractional weights, some of them 0."""
    return np.random.default_rng(seed).gamma(1.0, 1.0, n).round(3) * (np.arange(n) % 7 > 0)


def tf_idf(x):
    return x * np.log(len(x) / (1 + np.sum(x > 0, axis=0))) / np.maximum(x.sum(axis=1, keepdims=True), 1) + 0.0


# -- scikit-learn: BernoulliNB
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("alpha", [1.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_bernoulli_equals_sklearn(container, alpha, weighted):
    (x, y), w = bits(), weights() if weighted else None
    make, new = CONTAINERS[container], bits(seed=11)[0]
    ours = BernoulliNB(alpha=alpha).fit(make(x), y, sample_weight=w)
    same(ours, sk.BernoulliNB(alpha=alpha, binarize=None).fit(make(x), y, sample_weight=w), make(new))


@pytest.mark.parametrize("priors", PRIORS)
def test_bernoulli_class_priors_equal_sklearn(priors):
    (x, y), new = bits(), bits(seed=11)[0]
    ours = BernoulliNB(priors=PRIORS[priors]).fit(x, y)
    same(ours, sk.BernoulliNB(binarize=None, **sk_priors(PRIORS[priors])).fit(x, y), new)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("threshold", [0.0, 1.5])
def test_bernoulli_binarize_equals_sklearn(container, threshold):
    (x, y), make, new = counts(), CONTAINERS[container], counts(seed=12)[0]
    ours = BernoulliNB(binarize=threshold).fit(make(x), y)
    same(ours, sk.BernoulliNB(binarize=threshold).fit(make(x), y), make(new))


def test_bernoulli_binarizes_numbers_of_both_signs_as_sklearn():
    x, y = np.random.default_rng(5).normal(size=(60, 5)), labels()
    same(BernoulliNB(binarize=0.4).fit(x, y), sk.BernoulliNB(binarize=0.4).fit(x, y), x[::-1] + 0.2)


# -- scikit-learn: MultinomialNB
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("alpha", [1.0, 0.3, 1e-6])
@pytest.mark.parametrize("weighted", [False, True])
def test_multinomial_equals_sklearn(container, alpha, weighted):
    (x, y), w = counts(), weights() if weighted else None
    make, new = CONTAINERS[container], counts(seed=12)[0]
    ours = MultinomialNB(alpha=alpha).fit(make(x), y, sample_weight=w)
    same(ours, sk.MultinomialNB(alpha=alpha).fit(make(x), y, sample_weight=w), make(new))


@pytest.mark.parametrize("priors", PRIORS)
def test_multinomial_class_priors_equal_sklearn(priors):
    (x, y), new = counts(), counts(seed=12)[0]
    ours = MultinomialNB(priors=PRIORS[priors]).fit(x, y)
    same(ours, sk.MultinomialNB(**sk_priors(PRIORS[priors])).fit(x, y), new)


@pytest.mark.parametrize("container", CONTAINERS)
def test_multinomial_of_fractional_counts_equals_sklearn(container):
    (x, y), make = counts(), CONTAINERS[container]
    x, new = tf_idf(x), tf_idf(counts(seed=12)[0])
    assert np.any(x % 1 > 0)
    same(MultinomialNB(alpha=0.1).fit(make(x), y), sk.MultinomialNB(alpha=0.1).fit(make(x), y), make(new))


# -- scikit-learn: ComplementNB
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("alpha", [1.0, 0.3])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_complement_equals_sklearn(container, alpha, norm, weighted):
    (x, y), w = counts(), weights() if weighted else None
    make, new = CONTAINERS[container], counts(seed=12)[0]
    ours = ComplementNB(alpha=alpha, norm=norm).fit(make(x), y, sample_weight=w)
    theirs = sk.ComplementNB(alpha=alpha, norm=norm).fit(make(x), y, sample_weight=w)
    same(ours, theirs, make(new))
    np.testing.assert_allclose(ours.predict_proba(make(new)), theirs.predict_proba(make(new)), rtol=0, atol=1e-10)


@pytest.mark.parametrize("norm", [False, True])
def test_complement_of_two_classes_and_of_fractional_counts_equals_sklearn(norm):
    x, y = counts(k=2)
    same(ComplementNB(norm=norm).fit(x, y), sk.ComplementNB(norm=norm).fit(x, y), counts(seed=12)[0])
    x, y = tf_idf(counts()[0]), counts()[1]
    same(ComplementNB(norm=norm).fit(x, y), sk.ComplementNB(norm=norm).fit(x, y), tf_idf(counts(seed=12)[0]))


@pytest.mark.parametrize("norm", [False, True])
def test_complement_of_one_class_equals_sklearn(norm):
    x, y = counts()[0], ["only"] * 60
    same(ComplementNB(norm=norm).fit(x, y), sk.ComplementNB(norm=norm).fit(x, y), x)


def test_complement_has_no_joint_model():
    for clf in (ComplementNB(), ComplementNB().fit(*counts())):
        for name in ("sample", "impute", "score_samples", "log_joint", "outlier_pvalues"):
            assert not hasattr(clf, name), name
        assert hasattr(clf, "predict_proba")


# -- scikit-learn: CategoricalNB
@pytest.mark.parametrize("alpha", [1.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("priors", PRIORS)
def test_categorical_equals_sklearn(alpha, weighted, priors):
    (x, y), w, new = codes(), weights() if weighted else None, codes(seed=13)[0]
    ours = CategoricalNB(alpha=alpha, priors=PRIORS[priors]).fit(x, y, sample_weight=w)
    theirs = sk.CategoricalNB(alpha=alpha, **sk_priors(PRIORS[priors])).fit(x, y, sample_weight=w)
    same(ours, theirs, new)
    for j, table in enumerate(theirs.feature_log_prob_):
        np.testing.assert_allclose(ours.params_["prob"][:, j, : SIZES[j]], np.exp(table), rtol=1e-12)
        assert not ours.params_["prob"][:, j, SIZES[j] :].any()


# -- scikit-learn: no smoothing, rows in pieces, one class, class smoothing
PAIRS = {
    "bernoulli": (BernoulliNB, lambda **kwargs: sk.BernoulliNB(binarize=None, **kwargs), bits),
    "multinomial": (MultinomialNB, sk.MultinomialNB, counts),
    "complement": (ComplementNB, sk.ComplementNB, counts),
    "categorical": (CategoricalNB, sk.CategoricalNB, codes),
}
GENERATIVE = [name for name in PAIRS if name != "complement"]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("weighted", [False, True])
def test_partial_fit_in_pieces_equals_sklearn_and_one_fit(name, weighted):
    ours, theirs, data = PAIRS[name]
    (x, y), w, new = data(), weights() if weighted else None, data(seed=14)[0]
    ours, theirs, whole = ours(alpha=0.7), theirs(alpha=0.7), ours(alpha=0.7).fit(x, y, sample_weight=w)
    for rows in (slice(0, 20), slice(20, 23), slice(23, 60)):
        piece = None if w is None else w[rows]
        ours.partial_fit(x[rows], y[rows], classes=["eggs", "ham", "spam"], sample_weight=piece)
        theirs.partial_fit(x[rows], y[rows], classes=["eggs", "ham", "spam"], sample_weight=piece)
        same(ours, theirs, new)
    same(whole, theirs, new)


def test_partial_fit_meets_categories_of_later_pieces_as_sklearn():
    x, y = codes()
    order = np.argsort(x[:, 3], kind="stable")
    ours, theirs = CategoricalNB(), sk.CategoricalNB()
    for rows in np.split(order, [20, 40]):
        ours.partial_fit(x[rows], y[rows], classes=["eggs", "ham", "spam"])
        theirs.partial_fit(x[rows], y[rows], classes=["eggs", "ham", "spam"])
    assert x[order[:40], 3].max() < x[:, 3].max()
    same(ours, theirs, codes(seed=13)[0])


@pytest.mark.parametrize("name", ["bernoulli", "multinomial", "complement"])
def test_partial_fit_of_sparse_pieces_equals_sklearn(name):
    ours, theirs, data = PAIRS[name]
    (x, y), new, ours, theirs = data(), data(seed=14)[0], ours(), theirs()
    for rows in (slice(0, 30), slice(30, 60)):
        ours.partial_fit(sparse.csr_array(x[rows]), y[rows])
        theirs.partial_fit(sparse.csr_array(x[rows]), y[rows], classes=["eggs", "ham", "spam"])
    same(ours, theirs, sparse.csr_array(new))


@pytest.mark.parametrize("name", GENERATIVE)
@pytest.mark.parametrize("settings", [{"method": "mle"}, {"method": "map", "alpha": 0.0}])
def test_without_smoothing_equals_sklearn(name, settings):
    ours, theirs, _ = PAIRS[name]
    y = labels(n=200)
    x = (np.random.default_rng(5).random((200, 4)) < np.array([0.3, 0.5, 0.8])[y][:, None]).astype(int)
    assert all(0 < x[y == k, j].sum() < np.sum(y == k) for k in range(3) for j in range(4))  # no probability is 0 or 1
    same(ours(**settings).fit(x, y), theirs(alpha=0.0).fit(x, y), x)


@pytest.mark.parametrize("name", GENERATIVE)
def test_one_class_is_certain_as_in_sklearn(name):
    ours, theirs, data = PAIRS[name]
    x, y = data()[0], ["only"] * 60
    same(ours().fit(x, y), theirs().fit(x, y), x)


@pytest.mark.parametrize("name", GENERATIVE)
def test_class_smoothing_is_added_to_every_class(name):
    ours, theirs, data = PAIRS[name]
    (x, y), new = data(), data(seed=14)[0]
    size = np.unique(y, return_counts=True)[1]
    smoothed = ours(class_smoothing=2.5).fit(x, y)
    np.testing.assert_allclose(smoothed.priors_, (size + 2.5) / (60 + 3 * 2.5), rtol=1e-12)
    same(smoothed, theirs(class_prior=(size + 2.5) / (60 + 3 * 2.5)).fit(x, y), new)
    np.testing.assert_allclose(ours().fit(x, y).priors_, size / 60, rtol=1e-12)


# -- linear classifiers
@pytest.mark.parametrize("name", ["bernoulli", "multinomial"])
def test_coefficients_of_two_classes_are_those_of_the_log_odds(name):
    ours, theirs, data = PAIRS[name]
    (x, y), new = data(k=2), data(seed=14)[0]
    clf, theirs = ours().fit(x, y), theirs().fit(x, y)
    assert clf.coef_.shape == (1, x.shape[1])
    assert clf.intercept_.shape == (1,)
    log_proba = theirs.predict_log_proba(new)
    np.testing.assert_allclose((new @ clf.coef_.T + clf.intercept_)[:, 0], log_proba[:, 1] - log_proba[:, 0], atol=1e-10)


@pytest.mark.parametrize("name", ["bernoulli", "multinomial"])
def test_softmax_of_the_linear_scores_of_three_classes_is_the_posterior(name):
    ours, theirs, data = PAIRS[name]
    (x, y), new = data(), data(seed=14)[0]
    clf, theirs = ours().fit(x, y), theirs().fit(x, y)
    assert clf.coef_.shape == (3, x.shape[1])
    assert clf.intercept_.shape == (3,)
    scores = softmax(new @ clf.coef_.T + clf.intercept_, axis=1)
    np.testing.assert_allclose(scores, theirs.predict_proba(new), rtol=0, atol=1e-10)


# -- formulas: the log density of one new row under each family, from the training rows of one class
def bernoulli_predictive(x, row):
    """log B(a + x, b + 1 − x)/B(a, b) per column, a and b of the posterior under Beta(1 + α, 1 + α), α = 0.7."""
    a, b = 1.7 + np.nansum(x, axis=0), 1.7 + np.nansum(1 - x, axis=0)
    return np.nansum(betaln(a + row, b + 1 - row) - betaln(a, b))


def categorical_predictive(x, row):
    """The same with Dirichlet functions, per column, under Dirichlet(1 + α)."""
    total = 0.0
    for j in np.flatnonzero(~np.isnan(row)):
        a = 1.7 + np.array([np.sum(x[:, j] == c) for c in range(SIZES[j])])
        more = a + (np.arange(SIZES[j]) == row[j])
        total += np.sum(gammaln(more) - gammaln(a)) + gammaln(a.sum()) - gammaln(more.sum())
    return total


def multinomial_predictive(x, row):
    """Dirichlet-multinomial, with its coefficient."""
    a = 1.7 + x.sum(axis=0)
    ratio = np.sum(gammaln(a + row) - gammaln(a)) + gammaln(a.sum()) - gammaln(a.sum() + row.sum())
    return gammaln(row.sum() + 1) - np.sum(gammaln(row + 1)) + ratio


def poisson_predictive(x, row):
    """Negative binomial: the posterior of the rate is Gamma(1 + α + Σx, β + n), α = 0.7, β = 2."""
    rate = 2.0 + np.sum(~np.isnan(x), axis=0)
    return np.nansum(stats.nbinom.logpmf(row, 1.7 + np.nansum(x, axis=0), rate / (rate + 1)))


PREDICTIVE = {
    "bernoulli": (partial(BernoulliNB, alpha=0.7), bernoulli_predictive, bits),
    "categorical": (partial(CategoricalNB, alpha=0.7), categorical_predictive, codes),
    "multinomial": (partial(MultinomialNB, alpha=0.7), multinomial_predictive, counts),
    "poisson": (partial(PoissonNB, alpha=0.7, beta=2.0), poisson_predictive, counts),
}
WITH_MISSING = [name for name in PREDICTIVE if name != "multinomial"]  # which refuses them
each_predictive = pytest.mark.parametrize("name", PREDICTIVE)
CLASSES = np.array(["eggs", "ham", "spam"])


def joint_predictive(law, x, y, row, smoothing=0.0):
    """log p(row, class | x, y): class probabilities (n_k + 1 + a)/(n + K(1 + a)) times the law of each class."""
    size = np.array([np.sum(y == label) for label in CLASSES])
    prior = (size + 1 + smoothing) / (len(y) + len(CLASSES) * (1 + smoothing))
    return np.log(prior) + [law(x[y == label], row) for label in CLASSES]


def holes(x, seed):
    """A fifth of the cells missing, none in the first five rows (where every category is seen)."""
    gone = np.random.default_rng(seed).random(x.shape) < 0.2
    gone[:5] = False
    return np.where(gone, np.nan, x.astype(float))


@pytest.mark.parametrize(
    ("name", "missing"), [(name, False) for name in PREDICTIVE] + [(name, True) for name in WITH_MISSING]
)
def test_posterior_predictive_is_a_ratio_of_normalising_constants(name, missing):
    make, law, data = PREDICTIVE[name]
    (x, y), new = data(), data(n=15, seed=15)[0].astype(float)
    x, new = (holes(x, 6), holes(new, 7)) if missing else (x, new)
    clf = make(method="posterior").fit(x, y)
    expected = np.array([joint_predictive(law, x, y, row) for row in new])
    np.testing.assert_allclose(clf.log_joint(new), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(clf.predict_proba(new), softmax(expected, axis=1), rtol=0, atol=1e-10)
    np.testing.assert_allclose(clf.score_samples(new), logsumexp(expected, axis=1), rtol=0, atol=1e-10)
    size = np.unique(y, return_counts=True)[1]
    np.testing.assert_allclose(clf.priors_, (size + 1) / (60 + 3), rtol=1e-12)


@each_predictive
def test_posterior_predictive_of_weighted_rows_is_that_of_repeated_rows(name):
    make, law, data = PREDICTIVE[name]
    (x, y), new, w = data(), data(n=5, seed=15)[0], np.arange(60) % 4
    clf = make(method="posterior").fit(x, y, sample_weight=w)
    expected = [joint_predictive(law, np.repeat(x, w, axis=0), np.repeat(y, w), row) for row in new.astype(float)]
    np.testing.assert_allclose(clf.log_joint(new), expected, rtol=0, atol=1e-10)


@each_predictive
@pytest.mark.parametrize("smoothing", [0.0, 1.5])
@pytest.mark.parametrize("method", ["map", "posterior"])
def test_log_evidence_is_the_chain_of_one_step_predictives_of_row_and_label(name, smoothing, method):
    make, law, data = PREDICTIVE[name]
    x, y = data(n=30)
    clf = make(method=method, class_smoothing=smoothing).fit(x, y)
    step = [joint_predictive(law, x[:i], y[:i], x[i].astype(float), smoothing)[y[i] == CLASSES] for i in range(30)]
    np.testing.assert_allclose(clf.log_evidence_, np.sum(step), rtol=1e-12)


@pytest.mark.parametrize("name", WITH_MISSING)
def test_log_evidence_of_rows_with_missing_cells_is_the_chain_too(name):
    make, law, data = PREDICTIVE[name]
    x, y = holes(data(n=30)[0], 8), data(n=30)[1]
    clf = make(method="posterior").fit(x, y)
    step = [joint_predictive(law, x[:i], y[:i], x[i])[y[i] == CLASSES] for i in range(30)]
    np.testing.assert_allclose(clf.log_evidence_, np.sum(step), rtol=1e-12)


@each_predictive
def test_log_evidence_under_given_class_probabilities(name):
    make, law, data = PREDICTIVE[name]
    x, y = data(n=30)
    free, given = make().fit(x, y), make(priors=[0.2, 0.3, 0.5]).fit(x, y)
    size = np.unique(y, return_counts=True)[1]
    drawn = np.sum(gammaln(1 + size)) + gammaln(3) - gammaln(33)  # Dirichlet(1) over the classes
    difference = size @ np.log([0.2, 0.3, 0.5]) - drawn
    np.testing.assert_allclose(given.log_evidence_ - free.log_evidence_, difference, rtol=1e-10)


def test_posterior_means_of_the_parameters():
    x, y = bits()
    size = np.array([np.sum(y == label) for label in CLASSES])[:, None]
    total = np.stack([x[y == label].sum(axis=0) for label in CLASSES])
    prob = BernoulliNB(alpha=0.7, method="posterior").fit(x, y).params_["prob"]
    np.testing.assert_allclose(prob, (total + 1.7) / (size + 3.4), rtol=1e-12)
    x, y = counts()
    total = np.stack([x[y == label].sum(axis=0) for label in CLASSES])
    prob = MultinomialNB(alpha=0.7, method="posterior").fit(x, y).params_["prob"]
    np.testing.assert_allclose(prob, (total + 1.7) / (total.sum(axis=1, keepdims=True) + 12 * 1.7), rtol=1e-12)
    rate = PoissonNB(alpha=0.7, beta=2.0, method="posterior").fit(x, y).params_["rate"]
    np.testing.assert_allclose(rate, (total + 1.7) / (size + 2.0), rtol=1e-12)
    x, y = codes()
    prob = CategoricalNB(alpha=0.7, method="posterior").fit(x, y).params_["prob"]
    for j, categories in enumerate(SIZES):
        total = np.array([[np.sum(x[y == label, j] == c) for c in range(categories)] for label in CLASSES])
        np.testing.assert_allclose(prob[:, j, :categories], (total + 1.7) / (size + 1.7 * categories), rtol=1e-12)


# -- formulas: point estimates
@pytest.mark.parametrize("method", ["map", "mle"])
@pytest.mark.parametrize("container", ["dense", "csr"])
def test_multinomial_log_joint_contains_the_multinomial_coefficient(method, container):
    x, y = counts(n=200, p=6)
    x[:3] += 1  # each word in each class
    new, alpha, make = counts(n=20, p=6, seed=12)[0], 0.4 * (method == "map"), CONTAINERS[container]
    total = np.stack([x[y == label].sum(axis=0) for label in CLASSES]) + alpha
    prob, size = total / total.sum(axis=1, keepdims=True), np.unique(y, return_counts=True)[1]
    laws = [stats.multinomial.logpmf(new, new.sum(axis=1), p) for p in prob]
    expected = np.log(size / 200) + np.stack(laws, axis=1)
    clf = MultinomialNB(alpha=0.4, method=method).fit(make(x), y)
    np.testing.assert_allclose(clf.params_["prob"], prob, rtol=1e-12)
    np.testing.assert_allclose(clf.log_joint(make(new)), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(clf.score_samples(make(new)), logsumexp(expected, axis=1), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("method", "alpha", "beta"), [("map", 1.0, 1.0), ("map", 0.3, 2.5), ("map", 0.0, 0.0), ("mle", 1.0, 1.0)]
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_poisson_equals_scipy(method, alpha, beta, weighted, missing):
    (x, y), w = counts(n=200, p=6), weights(200) if weighted else np.ones(200)
    x, new = (holes(x, 9), holes(counts(n=30, p=6, seed=12)[0], 10)) if missing else (x, counts(n=30, p=6, seed=12)[0])
    a, b = (0.0, 0.0) if method == "mle" else (alpha, beta)
    total = np.stack([np.nansum((w[:, None] * x)[y == label], axis=0) for label in CLASSES])
    size = np.stack([((w[:, None] * ~np.isnan(x))[y == label]).sum(axis=0) for label in CLASSES])
    rate, prior = (total + a) / (size + b), np.array([w[y == label].sum() for label in CLASSES]) / w.sum()
    assert np.all(rate > 0)
    clf = PoissonNB(method=method, alpha=alpha, beta=beta).fit(x, y, sample_weight=w if weighted else None)
    np.testing.assert_allclose(clf.params_["rate"], rate, rtol=1e-12)
    np.testing.assert_allclose(clf.priors_, prior, rtol=1e-12)
    expected = np.log(prior) + np.nansum(stats.poisson.logpmf(new[:, None], rate), axis=2)
    np.testing.assert_allclose(clf.log_joint(new), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(clf.predict_proba(new), softmax(expected, axis=1), rtol=0, atol=1e-10)
    np.testing.assert_array_equal(clf.predict(new), CLASSES[expected.argmax(axis=1)])


def test_poisson_partial_fit_equals_one_fit():
    x, y = counts()
    clf = PoissonNB(alpha=0.5, beta=0.1)
    for rows in (slice(0, 30), slice(30, 60)):
        clf.partial_fit(x[rows], y[rows], classes=CLASSES)
    same(clf, PoissonNB(alpha=0.5, beta=0.1).fit(x, y), x)
    total = np.stack([x[y == label].sum(axis=0) for label in CLASSES])
    size = np.unique(y, return_counts=True)[1][:, None]
    np.testing.assert_allclose(clf.params_["rate"], (total + 0.5) / (size + 0.1), rtol=1e-12)


def column_law(kind, own, x):
    """log density of column x under the law fitted to the column `own` of one class; 0 where x is missing."""
    own, seen = own[~np.isnan(own)], np.where(np.isnan(x), 0.0, x)
    if kind == "gaussian":
        law = stats.norm.logpdf(seen, own.mean(), own.std())
    elif kind == "poisson":
        law = stats.poisson.logpmf(seen, own.mean())
    else:
        with np.errstate(divide="ignore"):
            law = np.log([np.mean(own == value) for value in seen])
    return np.where(np.isnan(x), 0.0, law)


@pytest.mark.parametrize("missing", [False, True])
def test_mixed_table_equals_scipy_column_by_column(missing):
    (bit, y), word, code = bits(p=2), counts(p=2)[0], codes()[0][:, :2]
    number = np.random.default_rng(16).normal(size=(60, 2)) + (y == "ham")[:, None]
    x = np.column_stack([number, bit, word, code])
    x = holes(x, 17) if missing else x
    kinds = ["gaussian"] * 2 + ["bernoulli"] * 2 + ["poisson"] * 2 + ["categorical"] * 2
    blocks = [([4, 5], Poisson()), ([6, 7], Categorical()), ([0, 1], Gaussian("diag")), ([3, 2], Bernoulli())]
    clf = GenerativeClassifier(blocks=blocks, method="mle").fit(x, y)
    laws = [[column_law(kind, x[y == label, j], x[:, j]) for j, kind in enumerate(kinds)] for label in CLASSES]
    expected = np.log([np.mean(y == label) for label in CLASSES]) + np.sum(laws, axis=1).T
    np.testing.assert_allclose(clf.log_joint(x), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(clf.predict_proba(x), softmax(expected, axis=1), rtol=0, atol=1e-10)
