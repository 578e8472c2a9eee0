"""Ragged simplexes against NumPyro's Dirichlet and automatic Jacobians; functions of counts against fifty digits."""

import functools
from decimal import Decimal, getcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to
from scipy import stats

from bayesgen.ragged import RaggedDirichlet, RaggedSimplex, RaggedStickBreaking, cumulative, layout, padded, spread, totals
from bayesgen.special import dot_logs, log_coefficient, log_factorial, log_rising

SIZES = [(3, 1, 4, 2), (2, 2), (1, 1), (5,), (1, 3, 1)]


def columns(values, sizes):
    """The columns of a vector laid end to end, one array each."""
    return np.split(np.asarray(values), np.cumsum(sizes)[:-1], axis=-1)


def concentrations(sizes, lead=(), seed=0):
    return np.random.default_rng(seed).gamma(2.0, 1.0, (*lead, sum(sizes))) + 0.3


# -- where the categories stand
def test_layout_totals_and_padding_by_loops():
    sizes = (3, 1, 4, 2)
    values = np.random.default_rng(0).normal(size=(2, 5, 10))
    starts, column = layout(sizes)
    assert starts.tolist() == [0, 3, 4, 8] and column.tolist() == [0, 0, 0, 1, 2, 2, 2, 2, 3, 3]
    sums = np.stack([part.sum(-1) for part in columns(values, sizes)], -1)
    np.testing.assert_allclose(totals(values, sizes), sums, rtol=1e-13)
    np.testing.assert_allclose(totals(jnp.asarray(values), sizes), sums, rtol=1e-5)
    again = columns(spread(jnp.asarray(sums), sizes), sizes)
    for j, part in enumerate(again):
        np.testing.assert_allclose(part, np.repeat(sums[..., [j]], sizes[j], -1), rtol=1e-6)
    table = padded(values, sizes)
    assert table.shape == (2, 5, 4, 4)
    for j, part in enumerate(columns(values, sizes)):
        np.testing.assert_array_equal(table[..., j, : sizes[j]], part)
        assert np.all(table[..., j, sizes[j] :] == 0)


# -- the law
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_log_density_and_mean_are_numpyros_column_by_column(sizes, x64):
    a = concentrations(sizes, (2,))
    law = RaggedDirichlet(a, sizes)
    value = np.concatenate([np.random.default_rng(1).dirichlet(np.ones(c), 2) for c in sizes], -1)
    parts = list(zip(columns(a, sizes), columns(value, sizes), strict=True))
    expected = sum(dist.Dirichlet(c).log_prob(v) for c, v in parts)
    np.testing.assert_allclose(law.log_prob(value), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(law.mean, np.concatenate([dist.Dirichlet(c).mean for c, _ in parts], -1), rtol=1e-12)
    assert law.batch_shape == (2,) and law.event_shape == (sum(sizes),)
    assert np.all(law.support(value)) and not np.any(law.support(value * 0.9))


def test_log_density_on_the_border_is_scipys(x64):
    a = np.array([1.0, 2.0, 1.0, 1.0, 3.0])
    value = np.array([0.0, 0.25, 0.75, 0.0, 1.0])
    expected = stats.dirichlet.logpdf(value[:3], a[:3]) + stats.dirichlet.logpdf(value[3:], a[3:])
    np.testing.assert_allclose(RaggedDirichlet(a, (3, 2)).log_prob(value), expected, rtol=1e-12)
    assert np.isneginf(RaggedDirichlet(a, (3, 2)).log_prob(np.array([0.5, 0.0, 0.5, 0.5, 0.5])))


def test_draws_follow_the_dirichlet_laws(x64):
    sizes = (3, 1, 4, 2)
    a = concentrations(sizes, (2,), 3)
    draws = np.asarray(RaggedDirichlet(a, sizes).sample(jax.random.key(0), (8000,)))
    assert draws.shape == (8000, 2, 10)
    for j, (c, part) in enumerate(zip(columns(a, sizes), columns(draws, sizes), strict=True)):
        np.testing.assert_allclose(part.sum(-1), 1.0, rtol=1e-12)
        if sizes[j] == 1:
            continue
        for k in range(2):
            for i in range(sizes[j]):  # a category's share is Beta, and so is that of two categories together
                law = stats.beta(c[k, i], c[k].sum() - c[k, i])
                assert stats.kstest(part[:, k, i], law.cdf).pvalue > 1e-4
            if sizes[j] > 2:
                both = stats.beta(c[k, :2].sum(), c[k, 2:].sum())
                assert stats.kstest(part[:, k, 0] + part[:, k, 1], both.cdf).pvalue > 1e-4
    # columns, and classes, are independent
    flat = draws.reshape(8000, -1)[:, [0, 4, 8, 10, 14, 18]]
    correlation = np.corrcoef(flat.T) - np.eye(6)
    assert np.abs(correlation).max() < 5 / np.sqrt(8000)


def test_draws_with_tiny_concentrations_are_probabilities():
    for enabled in (False, True):
        with jax.enable_x64(enabled):
            law = RaggedDirichlet(np.full(5, 1e-4), (3, 2))
            draws = np.asarray(law.sample(jax.random.key(0), (500,)))
        assert np.all(np.isfinite(draws)) and np.all(draws >= 0)
        np.testing.assert_allclose(np.stack([part.sum(-1) for part in columns(draws, (3, 2))]), 1.0, rtol=1e-6)


# -- the way to real numbers
@pytest.mark.parametrize("sizes", [(3, 1, 4, 2), (1, 1)], ids=str)
def test_transform_goes_there_and_back(sizes, x64):
    transform = biject_to(RaggedDirichlet(np.ones(sum(sizes)), sizes).support)
    assert transform == RaggedStickBreaking(sizes) and transform.codomain == RaggedSimplex(sizes)
    x = np.random.default_rng(0).normal(size=(4, 2, sum(sizes) - len(sizes)))
    value = transform(jnp.asarray(x))
    assert value.shape == transform.forward_shape(x.shape) and x.shape == transform.inverse_shape(value.shape)
    assert np.all(transform.codomain(value)) and np.all(np.asarray(value) > 0)
    np.testing.assert_allclose(transform.inv(value), x, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(totals(value, sizes), 1.0, rtol=1e-12)
    # column by column it is NumPyro's
    start = 0
    for size, part in zip(sizes, columns(value, sizes), strict=True):
        own = biject_to(constraints.simplex)(jnp.asarray(x[..., start : start + size - 1])) if size > 1 else 1.0
        np.testing.assert_allclose(part, np.broadcast_to(own, part.shape), rtol=1e-12)
        start += size - 1


@pytest.mark.parametrize("sizes", [(3, 1, 4, 2), (1, 3, 1)], ids=str)
def test_jacobian_is_the_automatic_one(sizes, x64):
    transform = RaggedStickBreaking(sizes)
    free = np.setdiff1d(np.arange(sum(sizes)), np.cumsum(sizes) - 1)  # the last share of a column follows from the others
    x = jnp.asarray(np.random.default_rng(1).normal(size=(3, sum(sizes) - len(sizes))))
    got = transform.log_abs_det_jacobian(x, transform(x))
    matrices = jax.jit(jax.vmap(jax.jacobian(lambda z: transform(z)[free])))(x)
    np.testing.assert_allclose(got, np.linalg.slogdet(np.asarray(matrices))[1], rtol=1e-9, atol=1e-10)


def test_feasible_point_and_equality():
    support = RaggedSimplex((3, 2))
    np.testing.assert_allclose(support.feasible_like(np.zeros((2, 5))), [[1 / 3] * 3 + [0.5] * 2] * 2, rtol=1e-6)
    assert support == RaggedSimplex((3, 2)) and support != RaggedSimplex((2, 3))
    assert hash(RaggedStickBreaking((3, 2))) == hash(RaggedStickBreaking((3, 2)))
    leaves, tree = jax.tree_util.tree_flatten(RaggedDirichlet(np.ones(5), (3, 2)))
    assert jax.tree_util.tree_unflatten(tree, leaves).sizes == (3, 2)


# -- functions of counts
getcontext().prec = 50
BERNOULLI_NUMBERS = [
    Decimal(a) / Decimal(b)
    for a, b in [(1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510), (43867, 798)]
]
PI = Decimal("3.14159265358979323846264338327950288419716939937510")


@functools.cache
def exact_lgamma(z):
    """ln Γ(z) to more than thirty digits: recurrence up to 300, then Stirling's series."""
    z, shift = Decimal(z), Decimal(0)
    while z < 300:
        shift, z = shift + z.ln(), z + 1
    series = sum(b / (2 * i * (2 * i - 1) * z ** (2 * i - 1)) for i, b in enumerate(BERNOULLI_NUMBERS, 1))
    return (z - Decimal("0.5")) * z.ln() - z + (2 * PI).ln() / 2 + series - shift


def exact_rising(a, x):
    return float(exact_lgamma(Decimal(a) + Decimal(x)) - exact_lgamma(a))


def test_the_reference_itself():
    assert exact_lgamma(1) == pytest.approx(Decimal(0), abs=Decimal("1e-30"))
    assert abs(exact_lgamma("0.5") - PI.ln() / 2) < Decimal("1e-30")
    assert abs(exact_lgamma(101) - sum(Decimal(i).ln() for i in range(1, 101))) < Decimal("1e-30")


@pytest.mark.parametrize("traced", [False, True], ids=["numpy", "jax"])
def test_rising_factorial_keeps_its_digits(traced, x64):
    a = [0.25, 1.0, 1.5, 7.0, 31.0, 31.999, 32.0, 33.5, 100.0, 12345.678, 1e6, 1e9, 1e12, 1e15]
    x = [0.0, 0.3, 1.0, 2.0, 2.5, 17.0, 40.0, 1000.0, 1e6]
    expected = np.array([[exact_rising(p, q) for q in x] for p in a])
    array = jnp.asarray if traced else np.asarray
    got = np.asarray(log_rising(array(a)[:, None], array(x)[None, :]))
    np.testing.assert_allclose(got, expected, rtol=2e-14, atol=1e-13)
    assert np.all(got[:, 0] == 0)


def test_rising_factorial_of_whole_numbers_is_a_product(x64):
    for a in (1, 5, 40, 10**12):
        for x in (1, 2, 5):
            product = 1
            for i in range(x):
                product *= a + i
            got = float(log_rising(np.float64(a), np.float64(x)))
            assert abs(got - float(Decimal(product).ln())) <= 4e-15 * max(1.0, abs(got))


def test_differences_of_large_concentrations_keep_their_digits(x64):
    # two classes of a predictive, far in: what is left of the logarithms must not be noise
    a = np.array([1e12, 1e12 + 1000.0])
    got = np.diff(log_rising(a, np.float64(3.0)))[0]
    assert abs(got - (exact_rising(a[1], 3) - exact_rising(a[0], 3))) < 1e-13


def test_dot_logs_treats_impossible_events_as_numpy_would(x64):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (20, 4)).astype(float)
    for zeros in (0, 1, 5):
        prob = rng.dirichlet(np.ones(4), 3)
        prob.flat[rng.permutation(12)[:zeros]] = 0
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = np.where(x[:, None, :] > 0, x[:, None, :] * np.log(prob), 0.0).sum(-1)
            for function in (
                dot_logs,
                jax.jit(dot_logs),
                jax.vmap(lambda row, logs: dot_logs(row[None], logs)[0], (0, None)),
            ):
                np.testing.assert_allclose(function(jnp.asarray(x), jnp.log(prob)), expected, rtol=1e-12, atol=1e-12)


def test_log_coefficient_is_the_number_of_arrangements(x64):
    from math import factorial, log, prod

    rows = np.array([[2, 1, 0], [0, 0, 0], [3, 3, 4], [20, 0, 1]])
    expected = [log(factorial(sum(r)) // prod(map(factorial, r))) for r in rows.tolist()]
    np.testing.assert_allclose(log_coefficient(jnp.asarray(rows, float)), expected, rtol=1e-12, atol=1e-12)


def test_log_factorial_of_whole_numbers_and_fractions():
    x = np.array([0.0, 1.0, 2.0, 3.0, 20.0, 170.0, 255.0, 256.0, 1e4, 1e6, 0.5, 3.25, 300.5])
    expected = [float(exact_lgamma(Decimal(v) + 1)) for v in x]
    np.testing.assert_allclose(log_factorial(x), expected, rtol=1e-14, atol=1e-15)
    assert log_factorial(np.zeros(0)).shape == (0,)
    whole = np.arange(12.0).reshape(3, 4)
    np.testing.assert_allclose(
        log_factorial(whole), [[float(exact_lgamma(Decimal(v) + 1)) for v in r] for r in whole], atol=1e-14
    )


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_running_sums_begin_anew_with_each_column(sizes):
    values = np.random.default_rng(0).random((2, sum(sizes)))
    got = cumulative(jnp.asarray(values), sizes)
    cuts = np.cumsum(sizes)[:-1]
    np.testing.assert_allclose(got, np.hstack([np.cumsum(p, 1) for p in np.split(values, cuts, 1)]), rtol=1e-6)
