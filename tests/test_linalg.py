"""The masked Gaussian algebra against sub-block formulas in NumPy, SciPy, and 40-digit densities."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from bayesgen import linalg

DENSITIES = json.loads((Path(__file__).parent / "data" / "densities.json").read_text())


def case(seed=0, n=300, d=5, k=3, tied=False, share=0.3):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(1 if tied else k, d, d)) + np.eye(d)
    cov = root @ root.swapaxes(-1, -2) + 0.1 * np.eye(d)
    x = rng.normal(size=(n, d)) * 2
    x[rng.random(x.shape) < share] = np.nan
    x[0] = np.nan
    return x, rng.normal(size=(k, d)), cov


def sub_block(x, mean, cov, df=None):
    """log density of the observed cells, row by row and class by class."""
    out = np.zeros((len(x), len(mean)))
    for i, row in enumerate(x):
        o = ~np.isnan(row)
        for k in range(len(mean)):
            block = cov[k % len(cov)][np.ix_(o, o)]
            if o.any() and df is None:
                out[i, k] = stats.multivariate_normal.logpdf(row[o], mean[k][o], block)
            elif o.any():
                out[i, k] = stats.multivariate_t.logpdf(row[o], mean[k][o], block, df=df[k])
    return out


def log_density(x, mean, cov, cells=None, df=None):
    """One program; outside jit each operation would be compiled by itself."""
    return jax.jit(lambda *args: linalg.log_density(linalg.quadratic_form(*args, cells), df))(x, mean, cov)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("df", [None, np.array([2.5, 7.0, 40.0])])
def test_scattered_cells_equal_the_sub_block(tied, df, x64):
    x, mean, cov = case(tied=tied)
    np.testing.assert_allclose(log_density(x, mean, cov, None, df), sub_block(x, mean, cov, df), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("tied", [False, True])
def test_every_group_equals_the_sub_block(tied, x64, monkeypatch):
    monkeypatch.setattr(linalg, "ROWS_PER_PATTERN", 12)
    monkeypatch.setattr(linalg, "SMALL_TABLE", 0)
    x, mean, cov = case(1, n=400, tied=tied, share=0.15)
    expected, out = sub_block(x, mean, cov), np.full((400, 3), np.nan)
    kinds = set()
    for rows, cells in linalg.group_rows(np.isnan(x)):
        kinds.add(type(cells))
        out[rows] = log_density(x[rows], mean, cov, cells)
    assert kinds == {linalg.Shared, linalg.Scattered}
    np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-9)


def test_small_tables_go_as_one():
    missing = np.isnan(case(2, n=100, share=0.2)[0])
    assert list(linalg.group_rows(missing)) == [(None, linalg.Scattered(5))]


def test_groups_cover_every_row_once(monkeypatch):
    monkeypatch.setattr(linalg, "SMALL_TABLE", 0)
    missing = np.isnan(case(2, n=1000, share=0.2)[0])
    seen = np.concatenate([rows for rows, _ in linalg.group_rows(missing)])
    np.testing.assert_array_equal(np.sort(seen), np.arange(1000))
    for rows, cells in linalg.group_rows(missing):
        if isinstance(cells, linalg.Scattered):
            assert missing[rows].sum(1).max() <= cells.width
        else:
            np.testing.assert_array_equal(missing[rows], np.tile(~cells.observed, (len(rows), 1)))


def conditional(row, mean, cov):
    """The textbook conditional of the missing cells: mean and covariance."""
    m, o = np.isnan(row), ~np.isnan(row)
    gain = cov[np.ix_(m, o)] @ np.linalg.inv(cov[np.ix_(o, o)])
    return mean[m] + gain @ (row[o] - mean[o]), cov[np.ix_(m, m)] - gain @ cov[np.ix_(o, m)]


@pytest.mark.parametrize("tied", [False, True])
def test_conditional_mean(tied, x64):
    x, mean, cov = case(3, n=60, tied=tied)
    got = np.asarray(jax.jit(linalg.conditional_mean, static_argnums=3)(x, mean, cov, 5))
    for i, row in enumerate(x):
        for k in range(3):
            m = np.isnan(row)
            np.testing.assert_allclose(got[i, k][~m], row[~m])
            np.testing.assert_allclose(got[i, k][m], conditional(row, mean[k], cov[k % len(cov)])[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("df", [None, 6.0])
def test_conditional_draws(tied, df, x64):
    """Law 4: draws given some cells follow joint / marginal (mean and covariance of the conditional)."""
    _, mean, cov = case(4, tied=tied)
    row = np.array([np.nan, 0.7, np.nan, -1.0, 2.0])
    n = 40_000
    x = np.tile(row, (n, 1))
    nu = None if df is None else np.full(3, df)
    rows = jax.jit(linalg.conditional_draw, static_argnums=5)(jax.random.key(0), x, np.full(n, 2), mean, cov, 2, nu)
    draws = np.asarray(rows)[:, [0, 2]]
    centre, spread = conditional(row, mean[2], cov[2 % len(cov)])
    if df is not None:
        o = ~np.isnan(row)
        delta = row[o] - mean[2][o]
        q = delta @ np.linalg.solve(cov[2 % len(cov)][np.ix_(o, o)], delta)
        spread = spread * (df + q) / (df + 3) * (df + 3) / (df + 3 - 2)
    error = np.sqrt(np.diag(spread) / n)
    assert np.all(np.abs(draws.mean(0) - centre) < 5 * error)
    np.testing.assert_allclose(np.cov(draws.T), spread, rtol=0.06, atol=0.03 * np.max(spread))


@pytest.mark.parametrize("name", ["S1", "S2", "S3", "S4"])
def test_densities_to_ten_digits_far_into_the_tails(name, x64):
    ref = DENSITIES[name]
    x, mean, cov = jnp.asarray(ref["X"], float), jnp.asarray([ref["mean"]], float), jnp.asarray([ref["sigma"]])
    for cells in (linalg.Shared(np.ones(5, bool)), None):
        form = jax.jit(lambda *args, cells=cells: linalg.quadratic_form(*args, cells))(x, mean, cov)
        normal = jax.jit(linalg.log_density)(form)[:, 0]
        np.testing.assert_allclose(normal, np.array(ref["exact_dmvnorm_log"], float), rtol=1e-10)
        for df in (1.0, 2.5, 5.0, 30.0, 10000.0):
            key = f"exact_dmvt_log_df{df:g}"
            student = jax.jit(linalg.log_density)(form, df)[:, 0]
            np.testing.assert_allclose(student, np.array(ref[key], float), rtol=1e-10)


def test_student_t_with_many_degrees_of_freedom_is_the_normal(x64):
    x, mean, cov = case(5)
    form = linalg.quadratic_form(jnp.asarray(x), mean, jnp.asarray(cov))
    np.testing.assert_allclose(linalg.log_density(form, 1e15), linalg.log_density(form), rtol=1e-10)


def test_log_gamma_ratio(x64):
    a = np.array([0.3, 5.0, 999.0, 1001.0])
    for step in (0.5, 1.0, 10.0, 37.5):
        np.testing.assert_allclose(linalg.log_gamma_ratio(a, step), gammaln(a + step) - gammaln(a), rtol=1e-11)
    # whole steps have an exact answer: log a (a+1) ... (a+step-1)
    for big in (1e4, 1e8, 1e13):
        expected = np.sum(np.log(big + np.arange(7.0)))
        np.testing.assert_allclose(linalg.log_gamma_ratio(big, 7.0), expected, rtol=1e-14)


def test_data_far_from_the_origin_keep_their_digits(x64):
    x, mean, cov = case(6, share=0.2)
    shift = 1e8
    x, mean = np.round(x * 1024) / 1024, np.round(mean * 1024) / 1024
    near = linalg.quadratic_form(jnp.asarray(x), mean, jnp.asarray(cov)).quadratic
    far = linalg.quadratic_form(jnp.asarray(x + shift), mean + shift, jnp.asarray(cov)).quadratic
    np.testing.assert_allclose(far, near, rtol=1e-9, atol=1e-9)


def test_a_cell_that_overflows_is_infinitely_far(x64):
    form = linalg.quadratic_form(
        jnp.full((1, 2), 1e200), jnp.zeros((1, 2)), jnp.eye(2)[None], linalg.Shared(np.ones(2, bool))
    )
    assert np.isposinf(form.quadratic).all()
