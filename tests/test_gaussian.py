"""The Gaussian family against its own NumPyro model, closed formulas, SciPy and numerical integration."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import compiled, holes, make_rows
from numpyro.infer.util import log_density
from scipy import integrate, stats
from scipy.special import multigammaln

from bayesgen.families import Gaussian, Labels, NormalWishart
from bayesgen.inference import exact
from bayesgen.joint import Block, ClassPrior, Joint

PRIORS = {
    "proper": lambda d: NormalWishart(np.linspace(-1, 1, d), 0.7, d + 1.5, np.linspace(0.5, 2, d)),
    "flat": lambda d: NormalWishart(0.0, 0.0, d + 1.5, 0.8),
    "improper": lambda d: NormalWishart(0.0, 0.0, 0.0, 0.0),
}


def family_of(structure, prior="proper", d=3):
    numbers = PRIORS[prior](d)
    if structure[0] == "spherical":
        numbers = dataclasses.replace(numbers, scale=float(np.mean(numbers.scale)))
    return Gaussian(structure[0], structure[1], numbers)


def resolved(structure, prior="proper", seed=0, n=40, d=3, k=3):
    x, y = make_rows(seed, n, d, k)
    family = family_of(structure, prior, d)
    stats_ = family.stats(x, Labels(y, k))
    return family.resolve_stats(stats_), stats_, x, y


@jax.jit
def predictive(family, stats_):
    return family.update(stats_).predictive()


def random_sites(structure, seed, d=3, k=3):
    """Parameters far from any estimate, in the parametrisation of the model."""
    rng = np.random.default_rng(seed)
    lead = () if structure[1] else (k,)
    if structure[0] == "full":
        root = rng.normal(size=(*lead, d, d)) + 2 * np.eye(d)
        precision = root @ np.swapaxes(root, -1, -2)
    else:
        precision = rng.gamma(2.0, size=(*lead, d) if structure[0] == "diag" else lead)
    return {"mean": rng.normal(size=(k, d)), "precision": np.asarray(precision)}


def dense_covariances(structure, sites, d=3, k=3):
    """The covariances that the sites mean, written out as matrices."""
    precision = np.broadcast_to(sites["precision"], (k, *np.shape(sites["precision"])[(0 if structure[1] else 1) :]))
    if structure[0] == "full":
        return np.linalg.inv(precision)
    if structure[0] == "diag":
        return np.stack([np.diag(1 / p) for p in precision])
    return np.stack([np.eye(d) / p for p in precision])


# -- law 5: closed form = model
@pytest.mark.parametrize("prior", list(PRIORS))
def test_log_posterior_differs_from_log_joint_by_a_constant(structure, prior, x64):
    family, stats_, x, y = resolved(structure, prior)
    joint = Joint(ClassPrior(0.5), (Block("gaussian", family),), 3, 3)
    counts = np.bincount(y, minlength=3)

    @jax.jit
    def densities(sites, probs):
        model, _ = log_density(joint.model, (x, y), {}, sites | {"class_probs": probs})
        return model, log_density(family.update(stats_).model, (3, 3), {}, sites)[0]

    gaps = []
    for seed in range(5):
        probs = np.random.default_rng(seed).dirichlet(np.ones(3))
        model, q = densities(random_sites(structure, seed), probs)
        gaps.append(float(model - q - stats.dirichlet.logpdf(probs, 1.5 + counts)))
    np.testing.assert_allclose(gaps, gaps[0], rtol=0, atol=1e-8)
    if prior == "proper":
        evidence = exact.log_evidence(joint, joint.stats(x, Labels(y, 3)))
        np.testing.assert_allclose(evidence, gaps[0], rtol=0, atol=1e-8)


@partial(jax.jit, static_argnums=3)
@jax.value_and_grad
def objective(sites, family, stats_, method):
    value = family.log_likelihood(sites, stats_)
    return value + (log_density(family.model, (3, 3), {}, sites)[0] if method == "map" else 0.0)


@pytest.mark.parametrize("method", ["mle", "map"])
@pytest.mark.parametrize("prior", ["proper", "flat"])
def test_gradient_vanishes_at_the_estimate(structure, prior, method, x64):
    family, stats_, x, y = resolved(structure, prior)
    point = family.sites(getattr(family, method)(stats_))

    best, gradient = objective(jax.tree_util.tree_map(jnp.asarray, point), family, stats_, method)
    scale = jax.tree_util.tree_map(lambda g, p: np.abs(g) * np.maximum(np.abs(p).max(), 1.0), gradient, point)
    assert max(float(np.max(leaf)) for leaf in jax.tree_util.tree_leaves(scale)) < 1e-8 * len(x)
    # and it is a maximum: every small step loses
    for seed in range(5):
        rng = np.random.default_rng(seed)
        away = {"mean": point["mean"] + 0.01 * rng.normal(size=(3, 3)), "precision": point["precision"] * 1.02}
        assert objective(away, family, stats_, method)[0] < best


def test_rows_and_statistics_give_the_same_likelihood(structure, x64):
    family, stats_, x, y = resolved(structure)
    sites = random_sites(structure, 3)
    covs = dense_covariances(structure, sites)
    rows = sum(stats.multivariate_normal.logpdf(r, sites["mean"][k], covs[k]) for r, k in zip(x, y, strict=True))
    np.testing.assert_allclose(compiled(family, "log_likelihood", sites, stats_), rows, rtol=1e-10)
    table = np.asarray(compiled(family, "log_prob", sites, x))
    np.testing.assert_allclose(table[np.arange(40), y].sum(), rows, rtol=1e-10)


@partial(jax.jit, static_argnums=(2, 3))
def log_evidence(family, seen, num_classes, num_features):
    return family.log_evidence(seen, num_classes, num_features)


@jax.jit
def one_step(family, seen, rows):
    return family.log_prob(family.update(seen).predictive(), rows)


@pytest.mark.parametrize("missing", [False, True])
def test_evidence_is_the_chain_of_one_step_predictives(structure, missing, x64):
    if missing and structure[0] == "full":
        pytest.skip("a full covariance has no statistics for missing cells")
    x, y = make_rows(4, 12, 3, 2)
    x = holes(x) if missing else x
    family = family_of(structure)
    empty = family.stats(x[:0], Labels(y[:0], 2))
    family = family.resolve_stats(empty)
    total, seen = 0.0, empty
    for i in range(len(x)):
        table = one_step(family, seen, x[i : i + 1])
        total += float(table[0, y[i]])
        seen = family.merge(seen, family.stats(x[i : i + 1], Labels(y[i : i + 1], 2)))
    np.testing.assert_allclose(log_evidence(family, seen, 2, 3), total, rtol=1e-10)


def test_evidence_of_a_full_covariance_by_the_textbook_formula(x64):
    family, stats_, x, y = resolved(("full", False), n=30, k=1)
    prior, post = family.prior, compiled(family, "update", stats_).prior
    d, n = 3, len(x)

    def log_normaliser(df, scale, strength):
        return (
            0.5 * df * d * np.log(2)
            + multigammaln(df / 2, d)
            - 0.5 * df * np.linalg.slogdet(scale)[1]
            - 0.5 * d * np.log(strength)
        )

    expected = log_normaliser(float(post.df[0]), np.asarray(post.scale[0]), float(post.strength[0]))
    expected -= log_normaliser(float(prior.df), prior.scale, float(prior.strength)) + 0.5 * n * d * np.log(2 * np.pi)
    np.testing.assert_allclose(log_evidence(family, stats_, 1, d), expected, rtol=1e-12)


# -- the estimates, by the formulas of the conventions
def test_map_formulas(structure, x64):
    name, tied = structure
    for prior in ("proper", "flat"):
        family, stats_, x, y = resolved(structure, prior)
        number, d, classes = family.prior, 3, 3
        kappa, nu, m = float(number.strength), float(number.df), number.mean
        scatters, counts = [], np.bincount(y, minlength=3)
        for k in range(classes):
            rows = x[y == k]
            mean = rows.mean(0)
            delta = mean - m
            scatters.append(
                (rows - mean).T @ (rows - mean) + kappa * counts[k] / (kappa + counts[k]) * np.outer(delta, delta)
            )
            np.testing.assert_allclose(family.map(stats_)["mean"][k], (kappa * m + counts[k] * mean) / (kappa + counts[k]))
        size = d if name != "diag" else 1
        for k in range(classes):
            scatter = sum(scatters) if tied else scatters[k]
            n, means = (counts.sum(), classes) if tied else (counts[k], 1)
            if name == "full":
                expected = (number.scale + scatter) / (n + nu - d - 1 + (means if kappa > 0 else 0))
            elif name == "diag":
                expected = (number.scale + np.diag(scatter)) / (n + nu - 2 + (means if kappa > 0 else 0))
            else:
                expected = (number.scale + np.trace(scatter)) / (n * size + nu - 2 + (means * d if kappa > 0 else 0))
            got = family.map(stats_)[family.covariance.key]
            np.testing.assert_allclose(got if tied else got[k], expected, rtol=1e-12)


def test_posterior_draws_have_the_moments_of_the_posterior(structure, x64):
    family, stats_, x, y = resolved(structure)
    posterior = compiled(family, "update", stats_)
    keys = jax.random.split(jax.random.key(0), 4000)
    draws = jax.jit(jax.vmap(lambda key: posterior.draw(key, 3, 3)))(keys)
    expected = compiled(posterior, "expectation")
    for name, value in draws.items():
        error = np.asarray(value).std(0) / np.sqrt(4000)
        assert np.all(np.abs(np.asarray(value).mean(0) - expected[name]) < 5 * error + 1e-12)


def test_predictive_is_the_average_density_over_draws(structure, x64):
    family, stats_, x, y = resolved(structure)
    posterior = compiled(family, "update", stats_)
    keys = jax.random.split(jax.random.key(1), 20_000)
    rows = holes(x)[:6]
    tables = jax.jit(jax.vmap(lambda key: jnp.exp(family.log_prob(posterior.draw(key, 3, 3), rows))))(keys)
    expected = np.exp(compiled(family, "log_prob", compiled(posterior, "predictive"), rows))
    error = np.asarray(tables).std(0) / np.sqrt(len(keys))
    assert np.all(np.abs(np.asarray(tables).mean(0) - expected) < 5 * error + 1e-12)


def test_predictive_is_numpyros_distribution(structure, x64):
    family, stats_, x, y = resolved(structure)
    params = predictive(family, stats_)
    table = jax.jit(lambda params: family.distribution(params).log_prob(x[:, None, :]))(params)
    np.testing.assert_allclose(compiled(family, "log_prob", params, x), table, rtol=1e-10)


# -- laws 1 and 2: integrates to one, NaN is the marginal
@pytest.mark.parametrize("averaged", [False, True])
def test_density_integrates_to_one_and_nan_is_the_marginal(structure, averaged, x64):
    family, stats_, x, y = resolved(structure, d=2, k=2)
    params = predictive(family, stats_) if averaged else family.map(stats_)
    u = np.linspace(-1, 1, 20_003)[1:-1]
    # the whole real line by x = 3u/(1 − u²), so that heavy tails are in
    grid, step = 3 * u / (1 - u**2), 3 * (1 + u**2) / (1 - u**2) ** 2
    line = np.stack([np.full_like(grid, 0.3), grid], 1)
    joint = np.exp(np.asarray(compiled(family, "log_prob", params, line))[:, 1])
    marginal = np.exp(compiled(family, "log_prob", params, np.array([[0.3, np.nan]])))[0, 1]
    np.testing.assert_allclose(integrate.simpson(joint * step, x=u), marginal, rtol=1e-8)
    alone = np.stack([grid, np.full_like(grid, np.nan)], 1)
    total = np.exp(np.asarray(compiled(family, "log_prob", params, alone))[:, 1])
    np.testing.assert_allclose(integrate.simpson(total * step, x=u), 1.0, rtol=1e-8)


def test_row_without_cells_has_density_one(structure, x64):
    family, stats_, x, y = resolved(structure)
    for params in (family.map(stats_), predictive(family, stats_)):
        table = compiled(family, "log_prob", params, np.full((2, 3), np.nan))
        np.testing.assert_allclose(table, 0.0, atol=1e-12)


# -- statistics
def test_hard_labels_equal_soft_weights(structure, x64):
    family, stats_, x, y = resolved(structure)
    weight = np.random.default_rng(0).integers(0, 4, len(x)).astype(float)
    hard = family.stats(x, Labels(y, 3, weight))
    one_hot = np.eye(3)[y] * weight[:, None]
    repeated = family.stats(np.repeat(x, weight.astype(int), 0), Labels(np.repeat(y, weight.astype(int)), 3))
    for other in (family.stats(x, one_hot), family.stats(jnp.asarray(x), jnp.asarray(one_hot)), repeated):
        for a, b in zip(hard, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_merge_and_remove(structure):
    family, stats_, x, y = resolved(structure)
    for table in (x, holes(x)) if structure[0] != "full" else (x,):
        whole = family.stats(table, Labels(y, 3))
        a, b = family.stats(table[::2], Labels(y[::2], 3)), family.stats(table[1::2], Labels(y[1::2], 3))
        for left, right in ((family.merge(a, b), whole), (family.remove(whole, b), a)):
            for p, q in zip(left, right, strict=True):
                np.testing.assert_allclose(p, q, rtol=1e-9, atol=1e-9)
        nothing = family.remove(whole, whole)
        assert all(np.all(leaf == 0) for leaf in nothing)


def test_batches_do_not_matter(structure, monkeypatch):
    family, stats_, x, y = resolved(structure)
    monkeypatch.setattr("bayesgen.families.base.BATCH_ROWS", 7)
    for a, b in zip(stats_, family.stats(x, Labels(y, 3)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_moments_far_from_the_origin_keep_their_digits(structure):
    # Dyadic noise on 1e8 is stored exactly, so that the shifted data are the centred data and nothing else.
    rng = np.random.default_rng(0)
    noise = np.round(rng.normal(size=(50_000, 3)) * 1024) / 1024
    y = rng.integers(0, 2, len(noise))
    family = Gaussian(*structure)
    near, far = family.stats(noise, Labels(y, 2)), family.stats(noise + 2.0**27, Labels(y, 2))
    np.testing.assert_allclose(far.scatter / len(y), near.scatter / len(y), rtol=0, atol=1e-9)
    np.testing.assert_allclose(far.mean - 2.0**27, near.mean, atol=1e-7)


def test_available_cells(structure):
    if structure[0] == "full":
        pytest.skip("a full covariance has no statistics for missing cells")
    x, y = make_rows()
    table = holes(x)
    stats_ = Gaussian(*structure).stats(table, Labels(y, 3))
    for k in range(3):
        rows = table[y == k]
        np.testing.assert_array_equal(stats_.weight[k], np.sum(~np.isnan(rows), 0))
        np.testing.assert_allclose(stats_.mean[k], np.nanmean(rows, 0))
        np.testing.assert_allclose(stats_.scatter[k], np.nanvar(rows, 0) * stats_.weight[k])


# -- the automatic prior
def test_auto_prior_numbers(structure):
    x, y = make_rows()
    prior = Gaussian(*structure).resolve(x, Labels(y, 3)).prior
    within = sum(((x[y == k] - x[y == k].mean(0)) ** 2).sum(0) for k in range(3)) / len(x)
    np.testing.assert_allclose(prior.mean, x.mean(0), rtol=1e-12)
    assert float(prior.strength) == 0.01
    df, scale = {"full": (5.0, np.diag(within)), "diag": (3.0, within), "spherical": (5.0, within.sum())}[structure[0]]
    assert float(prior.df) == df
    np.testing.assert_allclose(prior.scale, scale, rtol=1e-12)
    assert prior.proper and not prior.flat


def test_auto_prior_of_degenerate_columns():
    y = np.array([0, 0, 1, 1])
    x = np.stack([[1.0, 1, 5, 5], [7.0, 7, 7, 7], [0.0, 0, 0, 0], [1e8, 1e8, 1e8, 1e8], [1.0, 2, 3, 5]], 1)
    scale = Gaussian("diag").resolve(x, Labels(y, 2)).prior.scale
    np.testing.assert_allclose(scale, [4.0, 49e-12, 1.0, 1e4, (0.5 + 2) / 4], rtol=1e-9)


# -- law 3: draws follow the density
def test_drawn_rows_follow_the_density(structure, x64):
    family, stats_, x, y = resolved(structure)
    for params in (family.map(stats_), predictive(family, stats_)):
        rows = family.sample(jax.random.key(3), params, jnp.full(4000, 1))
        scale = np.asarray(family.distribution(params).variance)[1]
        assert np.all(np.abs(np.asarray(rows).mean(0) - params["mean"][1]) < 5 * np.sqrt(scale / 4000))
        # probability integral transform of each cell, from its own marginal
        for j in range(3):
            df = params.get("df")
            cov = np.asarray(params[family.covariance.key])
            variance = {"full": lambda c: c[..., j, j], "diag": lambda c: c[..., j], "spherical": lambda c: c}[structure[0]](
                cov
            )
            if structure[0] == "spherical" and cov.ndim == 2:
                variance = cov[:, j]
            sd = np.sqrt(np.broadcast_to(variance, (3,))[1])
            z = (np.asarray(rows)[:, j] - float(params["mean"][1, j])) / sd
            if df is None:
                u = stats.norm.cdf(z)
            else:
                nu = np.broadcast_to(np.asarray(df)[..., None] if structure[0] != "diag" else df, (3, 3))[1, j]
                u = stats.t.cdf(z, nu)
            assert stats.kstest(u, "uniform").pvalue > 1e-4
