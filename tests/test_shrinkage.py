"""The leave-one-out score of RDA against refits in NumPy and SciPy, and its maximum against a grid."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal, multivariate_t

from bayesgen.inference import shrinkage
from bayesgen.inference.shrinkage import choose, loo_score

METHODS = ("map", "posterior")
INSIDE = [(0.3, 0.6), (0.9, 0.1), (0.05, 0.95)]
EDGES = [(0.0, 0.0), (0.0, 1.0), (0.0, 0.4), (0.5, 0.0), (0.5, 1.0)]


def table(seed: int, sizes: list[int], d: int) -> tuple[np.ndarray, np.ndarray]:
    """Classes of given sizes with means and covariances of their own, in random order."""
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d) for n in sizes]
    order = rng.permutation(sum(sizes))
    return np.concatenate(parts)[order], np.repeat(np.arange(len(sizes)), sizes)[order]


def log_density(row, x, y, k, alpha, gamma, method) -> float:
    """Log density of a row in class k after a fit to (x, y), by the textbook formulas."""
    n, d = x.shape
    centred = {j: x[y == j] - x[y == j].mean(0) for j in set(y)}
    pooled = sum(c.T @ c for c in centred.values()) / n
    target = gamma * pooled + (1 - gamma) * np.trace(pooled) / d * np.eye(d)
    n_k, scatter, mean = len(centred[k]), centred[k].T @ centred[k], x[y == k].mean(0)
    covariance = alpha * scatter / n_k + (1 - alpha) * target
    if method == "map":
        return multivariate_normal(mean, covariance).logpdf(row)
    if alpha == 0:
        return multivariate_normal(mean, covariance * (1 + 1 / n_k)).logpdf(row)
    # Wishart(nu, rate psi) prior on the precision, flat mean: the conjugate update and its Student t.
    strength = n_k * (1 - alpha) / alpha
    nu, psi = strength + d + 1, strength * target
    df = (nu + n_k - 1) - d + 1
    return multivariate_t(mean, (psi + scatter) * (n_k + 1) / (n_k * df), df).logpdf(row)


def refit_score(x, y, alpha, gamma, num_classes, method, class_probs=None, smoothing=0.0) -> float:
    """The score by one refit per row."""
    total = 0.0
    extra = smoothing + (method == "posterior")
    for i, k in enumerate(y):
        rest, labels = np.delete(x, i, 0), np.delete(y, i)
        n_k = np.sum(labels == k)
        if n_k:
            estimate = (n_k + extra) / (len(rest) + extra * num_classes)
            prob = estimate if class_probs is None else class_probs[k]
            total += np.log(prob) + log_density(x[i], rest, labels, k, alpha, gamma, method)
    return total


def evaluate(x, y, point, **options):
    """Score and gradient of the module."""
    settings = {"weight": None, "method": "map", "class_probs": None, "smoothing": 0.0, **options}
    with jax.enable_x64(True):
        return shrinkage._prepare(x, y, int(y.max()) + 1, **settings)[0](point)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("d", [1, 3, 4])
@pytest.mark.parametrize("sizes", [[14, 9, 2, 1], [12], [30, 7]])
def test_score_equals_refits(sizes, d, method):
    x, y = table(d, sizes, d)
    for alpha, gamma in INSIDE + EDGES:
        score = loo_score(x, y, alpha, gamma, num_classes=len(sizes), method=method)
        refits = refit_score(x, y, alpha, gamma, len(sizes), method)
        assert score == pytest.approx(refits, abs=1e-8, rel=1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_score_equals_refits_without_shrinkage(method):
    x, y = table(5, [14, 11], 3)
    for gamma in (0.0, 0.3, 1.0):
        score = loo_score(x, y, 1.0, gamma, num_classes=2, method=method)
        assert score == pytest.approx(refit_score(x, y, 1.0, gamma, 2, method), abs=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_class_probabilities(method):
    x, y = table(6, [10, 6, 5], 2)
    given = np.array([0.2, 0.3, 0.5])
    score = loo_score(x, y, 0.4, 0.7, num_classes=3, method=method, class_probs=given)
    assert score == pytest.approx(refit_score(x, y, 0.4, 0.7, 3, method, given), abs=1e-8)
    score = loo_score(x, y, 0.4, 0.7, num_classes=5, method=method, class_smoothing=0.5)
    assert score == pytest.approx(refit_score(x, y, 0.4, 0.7, 5, method, smoothing=0.5), abs=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_more_columns_than_rows(method):
    x, y = table(7, [8, 6, 5], 30)
    for alpha, gamma in INSIDE:
        score = loo_score(x, y, alpha, gamma, num_classes=3, method=method)
        assert score == pytest.approx(refit_score(x, y, alpha, gamma, 3, method), abs=1e-7, rel=1e-9)
    assert loo_score(x, y, 1.0, 0.5, num_classes=3, method=method) == -np.inf
    assert loo_score(x, y, 0.5, 1.0, num_classes=3, method=method) == -np.inf
    best = choose(x, y, num_classes=3, method=method)
    assert best.converged and np.isfinite(best.score) and (1 - best.alpha) * (1 - best.gamma) > 0


@pytest.mark.parametrize("method", METHODS)
def test_whole_weights_are_repeated_rows(method):
    x, y = table(8, [9, 7, 1, 3], 3)
    weight = np.random.default_rng(0).integers(0, 4, len(x)).astype(float)
    weight[y == 2] = 2.0
    repeated = np.repeat(np.arange(len(x)), weight.astype(int))
    for alpha, gamma in INSIDE + EDGES:
        score = loo_score(x, y, alpha, gamma, num_classes=4, weight=weight, method=method)
        same = loo_score(x[repeated], y[repeated], alpha, gamma, num_classes=4, method=method)
        assert score == pytest.approx(same, rel=1e-12)


def test_fractions_of_a_row():
    """A row of weight 1/2 leaves whole; of the row of weight 5/2 one leaves and three halves stay."""
    x, y, weight = np.array([[0.0], [1.0], [4.0]]), np.zeros(3, int), np.array([0.5, 2.5, 1.0])
    total = 0.0
    for i, left in enumerate([[0.0, 2.5, 1.0], [0.5, 1.5, 1.0], [0.5, 2.5, 0.0]]):
        mean = np.average(x[:, 0], weights=left)
        variance = np.average((x[:, 0] - mean) ** 2, weights=left)
        total += weight[i] * multivariate_normal(mean, variance).logpdf(x[i, 0])
    assert loo_score(x, y, 0.3, 0.3, num_classes=1, weight=weight) == pytest.approx(total, rel=1e-12)


def test_many_fractions_share_cells(monkeypatch):
    x, y = table(9, [60, 50], 2)
    weight = np.random.default_rng(0).uniform(0.0, 1.0, len(x))
    exact = loo_score(x, y, 0.3, 0.6, num_classes=2, weight=weight)
    monkeypatch.setattr(shrinkage, "MAX_FRACTIONS", 10)
    assert loo_score(x, y, 0.3, 0.6, num_classes=2, weight=weight) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("d", [2, 3])
def test_gradient_equals_finite_differences(d, method):
    x, y = table(10, [12, 9, 2], d)
    for alpha, gamma in [*INSIDE, (0.5, 0.5), (0.02, 0.98)]:
        _, slope = evaluate(x, y, (alpha, gamma), method=method)
        for j, step in enumerate(np.eye(2) * 1e-5):
            ends = (np.array([alpha, gamma]) + move for move in (step, -step))
            high, low = (evaluate(x, y, end, method=method)[0] for end in ends)
            assert slope[j] == pytest.approx((high - low) / 2e-5, rel=1e-6, abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("point", [(0.0, 0.0), (1e-6, 1 - 1e-6), (0.0, 1.0)])
def test_gradient_at_the_corners(point, method):
    """One-sided differences of second order, into the box."""
    x, y = table(11, [12, 9, 8], 3)
    _, slope = evaluate(x, y, point, method=method)
    for j, h in enumerate(np.where(np.array(point) < 0.5, 1e-4, -1e-4)):
        values = [evaluate(x, y, np.array(point) + m * h * np.eye(2)[j], method=method)[0] for m in range(4)]
        difference = (-11 * values[0] + 18 * values[1] - 9 * values[2] + 2 * values[3]) / (6 * h)
        assert slope[j] == pytest.approx(difference, rel=1e-4, abs=1e-4)


DATA = {
    "small": ([14, 9, 2, 1], 3),
    "even": ([20, 20, 20], 5),
    "wide": ([12, 10, 11], 20),
    "one class": ([25], 4),
    "one column": ([10, 15], 1),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", DATA)
def test_choice_is_a_maximum(name, method):
    sizes, d = DATA[name]
    x, y = table(12, sizes, d)
    best = choose(x, y, num_classes=len(sizes), method=method)
    point = np.array([best.alpha, best.gamma])
    levels = np.linspace(0, 1, 41)
    with jax.enable_x64(True):
        score, weight = shrinkage._prepare(x, y, len(sizes), None, method, None, 0.0)
        assert best.score >= max(score((a, g))[0] for a in levels for g in levels) - 1e-9
        value, slope = score(point)
    assert best.converged and best.score == pytest.approx(value, rel=1e-12)
    assert np.abs(np.clip(point + (1 - point) * slope / weight, 0, 1) - point).max() < 1e-6
    assert best == choose(x, y, num_classes=len(sizes), method=method)


def test_choice_of_one_weight():
    x, y = table(13, [20, 15, 12], 4)
    levels = np.linspace(0, 1, 41)
    for fixed, free in (("alpha", "gamma"), ("gamma", "alpha")):
        best = choose(x, y, num_classes=3, **{fixed: 0.3})
        scores = [loo_score(x, y, num_classes=3, **{fixed: 0.3, free: level}) for level in levels]
        assert getattr(best, fixed) == 0.3 and best.converged and best.score >= max(scores)
    both = choose(x, y, num_classes=3, alpha=0.2, gamma=1)
    assert (both.alpha, both.gamma, both.n_iter) == (0.2, 1.0, 0)
    assert both.score == loo_score(x, y, 0.2, 1.0, num_classes=3)


def test_choice_near_the_edge():
    """Columns of very different spreads: the sphere must all but vanish."""
    x, y = table(14, [40, 30], 3)
    x = x * [1e-3, 1.0, 1e3]
    best = choose(x, y, num_classes=2)
    assert best.converged and (1 - best.alpha) * (1 - best.gamma) < 1e-6
    for alpha, gamma in [(0.5, 1.0), (1.0, 1.0), (0.5, 1 - 1e-7), (0.9, 1 - 1e-6)]:
        assert best.score >= loo_score(x, y, alpha, gamma, num_classes=2)


@pytest.mark.parametrize("extra", [lambda x: 3.7 + 0 * x[:, 0], lambda x: x[:, 0], lambda x: 1 - x.sum(1)])
def test_constant_and_collinear_columns(extra):
    """They have no density of their own, and must not draw the weights to the edge."""
    x, y = table(15, [40, 30], 3)
    best = choose(np.c_[x, extra(x)], y, num_classes=2)
    assert best.converged and best.alpha < 1 and best.gamma < 1
    with_noise = np.c_[x, extra(x) + 1e-2 * np.random.default_rng(0).normal(size=len(x))]
    assert np.isfinite(choose(with_noise, y, num_classes=2).score)


def test_large_means_cost_no_digits():
    x, y = table(16, [20, 15], 3)
    near, far = (loo_score(x + shift, y, 0.3, 0.6, num_classes=2) for shift in (0.0, 1e8))
    assert far == pytest.approx(near, rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_batches_do_not_matter(method, monkeypatch):
    x, y = table(17, [300, 150, 90, 1], 3)
    weight = np.random.default_rng(0).choice([0.5, 1.0, 2.0], len(x))
    whole = evaluate(x, y, (0.3, 0.6), weight=weight, method=method)
    for rows, kept in ((64, 2**22), (128, 0)):
        monkeypatch.setattr(shrinkage, "BATCH_ROWS", rows)
        monkeypatch.setattr(shrinkage, "BATCH_SIZE", max(kept, 3 * rows))
        parts = evaluate(x, y, (0.3, 0.6), weight=weight, method=method)
        assert parts[0] == pytest.approx(whole[0], rel=1e-12)
        assert parts[1] == pytest.approx(whole[1], rel=1e-9)


def test_row_counts_do_not_recompile(monkeypatch):
    traces = []
    original = shrinkage._log_density
    monkeypatch.setattr(shrinkage, "_log_density", lambda *args: traces.append(1) or original(*args))
    jax.clear_caches()
    for sizes in ([30, 30, 20], [29, 32, 17], [31, 25, 24], [32, 32, 32]):
        x, y = table(18, sizes, 7)
        loo_score(x, y, 0.3, 0.6, num_classes=3)
        loo_score(x, y, 0.1, 0.2, num_classes=3, method="posterior", weight=np.full(len(x), 2.0))
    assert len(traces) == 1


def test_what_cannot_be_chosen():
    x = np.random.default_rng(0).normal(size=(3, 2))
    with pytest.raises(ValueError, match="Give numbers for alpha and gamma"):
        choose(x, np.arange(3), num_classes=3)
    with pytest.raises(ValueError, match="Give numbers for alpha and gamma"):
        choose(x, np.array([0, 0, 1]), num_classes=2)
    with pytest.raises(ValueError, match="Give numbers for alpha and gamma"):
        choose(np.ones((9, 2)), np.arange(9) % 3, num_classes=3)
