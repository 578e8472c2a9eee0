"""The discrete families against enumeration, SciPy, NumPyro's distributions and their own NumPyro model."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import compiled
from numpyro.infer.util import log_density
from scipy import sparse, stats
from scipy.special import gammaln, logsumexp

from bayesgen.families import Bernoulli, Categorical, Gaussian, Labels, Multinomial, NormalWishart, Poisson
from bayesgen.families.base import log_prior
from bayesgen.inference import exact
from bayesgen.joint import Block, ClassPrior, Joint

SIZES = (3, 1, 4, 2)
K = 3
WIDTH = {"bernoulli": 4, "categorical": 4, "multinomial": 3, "poisson": 2}
TOTAL = 5
NAMES = list(WIDTH)


def family_of(name, alpha=None):
    """A family with a prior that is not the default; Bernoulli, Multinomial and Poisson with one number per column."""
    p = WIDTH[name]
    numbers = np.linspace(0.4, 1.7, p) if alpha is None else alpha
    return {
        "bernoulli": lambda: Bernoulli(numbers),
        "categorical": lambda: Categorical(0.6 if alpha is None else alpha, sizes=SIZES),
        "multinomial": lambda: Multinomial(numbers, total=float(TOTAL)),
        "poisson": lambda: Poisson(numbers, np.linspace(0.5, 2.0, p)),
    }[name]()


def make(name, n=30, missing=True, seed=0):
    """Rows of K unequal classes (every class, and every category, occurs), a fifth of the cells missing."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(K), rng.choice(K, n - K, p=[0.2, 0.3, 0.5])])
    p = WIDTH[name]
    if name == "bernoulli":
        x = (rng.random((n, p)) < rng.beta(1, 1, (K, p))[y]).astype(float)
    elif name == "categorical":
        x = np.stack([[rng.choice(c, p=t[k]) for k in y] for c, t in ((c, rng.dirichlet(np.ones(c), K)) for c in SIZES)], 1)
    elif name == "multinomial":
        x = rng.multinomial(rng.integers(0, 9, n), rng.dirichlet(np.ones(p), K)[y])
    else:
        x = rng.poisson(rng.gamma(1.5, 1.0, (K, p))[y])
    x = x.astype(float)
    if missing and name != "multinomial":
        x[rng.random(x.shape) < 0.2] = np.nan
    return x, y


def fitted(name, **kwargs):
    family, (x, y) = family_of(name), make(name, **kwargs)
    return family, family.stats(x, Labels(y, K)), x, y


def every_row(name):
    """All the rows that can be, those of the Poisson up to its far tail, those of the multinomial of one total."""
    if name == "multinomial":
        return np.array([r for r in itertools.product(range(TOTAL + 1), repeat=3) if sum(r) == TOTAL], float)
    ranges = {"bernoulli": [range(2)] * 4, "categorical": map(range, SIZES), "poisson": [range(70)] * 2}[name]
    return np.array(list(itertools.product(*ranges)), float)


def by_scipy(name, params, rows):
    """Log density (n, K) of rows with missing cells, by SciPy, cell by cell (the multinomial: row by row)."""
    out = np.zeros((len(rows), K))
    for (i, row), k in itertools.product(enumerate(np.asarray(rows)), range(K)):
        if name == "multinomial":
            if "concentration" in params:
                out[i, k] = stats.dirichlet_multinomial.logpmf(row.astype(int), params["concentration"][k], int(row.sum()))
            else:
                out[i, k] = stats.multinomial.logpmf(row, int(row.sum()), np.asarray(params["prob"])[k])
            continue
        for j in np.flatnonzero(~np.isnan(row)):
            out[i, k] += cell_by_scipy(name, params, row[j], k, j)
    return out


def cell_by_scipy(name, params, cell, k, j):
    if name == "bernoulli":
        return stats.bernoulli.logpmf(cell, params["prob"][k, j])
    if name == "categorical":
        with np.errstate(divide="ignore"):
            return np.log(params["prob"][k, sum(SIZES[:j]) + int(cell)])
    if "shape" in params:
        a, b = float(params["shape"][k, j]), float(params["inverse_scale"][k, j])
        return stats.nbinom.logpmf(cell, a, b / (1 + b))
    return stats.poisson.logpmf(cell, params["rate"][k, j])


def host(params):
    return {key: np.asarray(value) for key, value in params.items()}


@pytest.fixture(params=[(n, p) for n in NAMES for p in ("map", "predictive")], ids="-".join, scope="module")
def law(request):
    """(name, family, parameters): a plug-in density and a predictive of each family."""
    name, which = request.param
    with jax.enable_x64(True):
        family, stats_, _, _ = fitted(name)
        params = family.map(stats_) if which == "map" else family.update(stats_).predictive()
        return name, family, host(params)


# -- laws 1 and 2: sums to one, NaN is the marginal
def test_density_sums_to_one_and_is_scipys(law, x64):
    name, family, params = law
    rows = every_row(name)
    table = np.asarray(compiled(family, "log_prob", params, rows))
    np.testing.assert_allclose(np.exp(table).sum(0), 1.0, rtol=1e-12)
    some = np.random.default_rng(0).permutation(len(rows))[:60]
    np.testing.assert_allclose(table[some], by_scipy(name, params, rows[some]), rtol=1e-10, atol=1e-10)


def test_density_is_numpyros_distribution(law, x64):
    name, family, params = law
    rows = every_row(name)[:40]
    expected = jax.jit(lambda p, cells: family.distribution(p).log_prob(cells))(params, rows[:, None, :].astype(int))
    # NumPyro's own GammaPoisson is right to seven digits only (the test before this one has SciPy's to ten)
    digits = 1e-6 if "shape" in params else 1e-10
    np.testing.assert_allclose(compiled(family, "log_prob", params, rows), expected, rtol=digits, atol=digits)


def test_nan_is_the_marginal_by_enumeration(law, x64):
    name, family, params = law
    if name == "multinomial":
        return
    rows = every_row(name)
    table = np.asarray(compiled(family, "log_prob", params, rows))
    start = rows[len(rows) // 3]
    for pattern in itertools.product([False, True], repeat=WIDTH[name]):
        observed = np.array(pattern)
        gaps = np.where(observed, start, np.nan)
        same = (rows[:, observed] == start[observed]).all(1)
        got = np.asarray(compiled(family, "log_prob", params, gaps[None]))[0]
        np.testing.assert_allclose(got, logsumexp(table[same], axis=0), rtol=1e-10, atol=1e-10)


def test_row_without_cells_has_density_one(law, x64):
    name, family, params = law
    np.testing.assert_array_equal(compiled(family, "log_prob", params, np.full((2, WIDTH[name]), np.nan)), np.zeros((2, K)))


def test_parts_of_the_cells_add_up_to_the_row(law, x64):
    name, family, params = law
    rows = make(name, n=20, seed=4)[0]
    parts = np.asarray(compiled(family, "cell_log_prob", params, rows))
    assert parts.shape == (20, K, WIDTH[name])
    table = np.asarray(compiled(family, "log_prob", params, rows))
    coefficient = gammaln(rows.sum(1) + 1) - gammaln(rows + 1).sum(1) if name == "multinomial" else np.zeros(20)
    np.testing.assert_allclose(parts.sum(-1) + coefficient[:, None], table, rtol=1e-10, atol=1e-10)
    if name != "multinomial":
        assert np.all(parts[np.broadcast_to(np.isnan(rows)[:, None, :], parts.shape)] == 0)


def test_sparse_rows_have_the_density_of_dense_rows(law, x64):
    name, family, params = law
    if not family.takes_sparse:
        return
    rows = np.vstack([make(name, n=20, missing=False, seed=4)[0], np.zeros((1, WIDTH[name]))])
    expected = by_scipy(name, params, rows)
    got = family.log_prob_sparse(params, sparse.csr_array(rows))
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)
    here, rest, _ = family.present(params, sparse.csr_array(rows))
    which = np.repeat(np.arange(len(rows)), np.count_nonzero(rows, axis=1))
    total = np.zeros_like(expected)
    np.add.at(total, which, here)
    total += 0.0 if rest is None else rest
    if name == "multinomial":
        total += (gammaln(rows.sum(1) + 1) - gammaln(rows + 1).sum(1))[:, None]
    np.testing.assert_allclose(total, expected, rtol=1e-10, atol=1e-10)


# -- law 3: draws follow the density
def chi_square(rows, every, probabilities):
    """p-value of the counts of the rows among all possible ones; those expected less than five times go together."""
    place = {tuple(row): i for i, row in enumerate(every.tolist())}
    counts = np.zeros(len(every) + 1)
    for row, times in zip(*np.unique(rows, axis=0, return_counts=True), strict=True):
        counts[place.get(tuple(row.tolist()), len(every))] += times
    probabilities = np.append(probabilities, max(0.0, 1 - probabilities.sum()))
    assert np.all(counts[probabilities == 0] == 0)
    rare = probabilities * len(rows) < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(probabilities[~rare], probabilities[rare].sum()) * len(rows)
    keep = expected > 0
    if keep.sum() == 1:  # certain
        return float(observed[keep][0] == len(rows))
    return stats.chisquare(observed[keep], expected[keep] * observed[keep].sum() / expected[keep].sum()).pvalue


def test_drawn_rows_follow_the_enumerated_probabilities(law, x64):
    name, family, params = law
    every = every_row(name)
    table = (
        np.exp(by_scipy(name, params, every)) if len(every) < 500 else np.exp(compiled(family, "log_prob", params, every))
    )
    y = np.arange(30_000) % K
    rows = np.asarray(jax.jit(family.sample)(jax.random.key(1), params, jnp.asarray(y)))
    for k in range(K):
        assert chi_square(rows[y == k], every, np.asarray(table)[:, k]) > 1e-4


@pytest.mark.parametrize("total", [8, 40])  # few events and many have samplers of their own
def test_moments_of_dirichlet_multinomial_rows(total, x64):
    family, n = Multinomial(1.0, total=float(total)), 20_000
    a = np.array([[0.5, 2.0, 1.0], [8.0, 1.0, 3.0]])
    rows = np.asarray(jax.jit(family.sample)(jax.random.key(0), {"concentration": jnp.asarray(a)}, jnp.arange(n) % 2))
    np.testing.assert_array_equal(rows.sum(1), total)
    for k in range(2):
        mine, law = rows[k::2], stats.dirichlet_multinomial(a[k], total)
        delta = mine - law.mean()
        assert np.all(np.abs(delta.mean(0)) < 5 * np.sqrt(law.var() / len(mine)))
        products = delta[:, :, None] * delta[:, None, :]
        assert np.all(np.abs(products.mean(0) - law.cov()) < 5 * products.std(0) / np.sqrt(len(mine)))


ZEROS = {
    "bernoulli": {"prob": np.array([[0.0, 1.0, 0.5, 0.2], [1.0, 0.0, 0.3, 0.0], [0.5, 0.5, 1.0, 1.0]])},
    "categorical": {
        "prob": np.array(
            [
                [0.0, 0.4, 0.6, 1, 0.5, 0.0, 0.5, 0.0, 1.0, 0.0],
                [0.7, 0.0, 0.3, 1, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0],
                [1.0, 0.0, 0.0, 1, 0.0, 0.3, 0.7, 0.0, 0.5, 0.5],
            ]
        )
    },
    "multinomial": {"prob": np.array([[0.0, 0.3, 0.7], [0.6, 0.0, 0.4], [0.9, 0.1, 0.0]])},
    "poisson": {"rate": np.array([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]])},
}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_impossible_is_never_drawn_and_has_density_zero(name, x64):
    family, params, every = family_of(name), ZEROS[name], every_row(name)
    with np.errstate(divide="ignore"):
        expected = by_scipy(name, params, every[:400])
    got = np.asarray(family.log_prob(params, jnp.asarray(every[:400])))
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)
    assert np.isneginf(got).any() and not np.isnan(got).any()
    table = np.exp(np.asarray(family.log_prob(params, jnp.asarray(every))))
    y = np.arange(30_000) % K
    rows = np.asarray(jax.jit(family.sample)(jax.random.key(2), params, jnp.asarray(y)))
    for k in range(K):
        assert chi_square(rows[y == k], every, table[:, k]) > 1e-4


@pytest.mark.parametrize("total", [13, 20])
def test_multinomial_rows_of_many_events_follow_the_enumerated_probabilities(total, x64):
    family = Multinomial(1.0, total=float(total))
    every = np.array([r for r in itertools.product(range(total + 1), repeat=3) if sum(r) == total], float)
    prob = np.vstack([ZEROS["multinomial"]["prob"], [[0.05, 0.9, 0.05], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    y = np.arange(42_000) % len(prob)
    rows = np.asarray(jax.jit(family.sample)(jax.random.key(4), {"prob": jnp.asarray(prob)}, jnp.asarray(y)))
    assert not np.isnan(rows).any() and np.all(rows.sum(1) == total)
    for k, p in enumerate(prob):
        law = stats.multinomial.pmf(every, total, p)
        assert chi_square(rows[y == k], every, np.where(((every > 0) & (p == 0)).any(1), 0.0, law)) > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_what_is_impossible_has_density_zero_in_sparse_rows_too(name):
    family, params = family_of(name), ZEROS[name]
    if not family.takes_sparse:
        return
    rows = every_row(name)[:300]
    expected = by_scipy(name, params, rows)
    np.testing.assert_allclose(family.log_prob_sparse(params, sparse.csr_array(rows)), expected, rtol=1e-10, atol=1e-12)
    here, rest, _ = family.present(params, sparse.csr_array(rows))
    assert not np.isnan(here).any() and (rest is None or not np.isnan(rest).any())


def test_categories_of_many_columns_are_drawn_right_in_single_precision():
    # what users of clf.model meet: float32, many columns; some categories are rare, some impossible
    p, n = 2000, 400
    family = Categorical(1.0, sizes=(4,) * p)
    prob = np.tile([0.5, 0.499, 0.001, 0.0], (2, p))
    rows = np.asarray(jax.jit(family.sample)(jax.random.key(0), {"prob": jnp.asarray(prob)}, jnp.arange(n) % 2))
    counts = np.stack([(rows == c).sum() for c in range(4)])
    assert counts[3] == 0
    assert stats.chisquare(counts[:3], n * p * prob[0, :3]).pvalue > 1e-4


# -- law 5: closed form = model
def random_sites(name, seed):
    rng = np.random.default_rng(seed)
    if name == "bernoulli":
        return {"prob": rng.beta(1, 1, (K, 4))}
    if name == "categorical":
        return {"prob": np.concatenate([rng.dirichlet(np.ones(c), K) for c in SIZES], 1)}
    if name == "multinomial":
        return {"prob": rng.dirichlet(np.ones(3), K)}
    return {"rate": rng.gamma(1.0, 2.0, (K, 2))}


def prior_by_scipy(name, family, sites):
    """log p(θ) by SciPy."""
    a = 1 + np.asarray(family.alpha)
    if name == "bernoulli":
        return stats.beta.logpdf(sites["prob"], a, a).sum()
    if name == "categorical":
        parts = np.split(sites["prob"], np.cumsum(SIZES)[:-1], axis=1)
        return sum(stats.dirichlet.logpdf(row, np.full(len(row), a)) for part in parts for row in part if len(row) > 1)
    if name == "multinomial":
        return sum(stats.dirichlet.logpdf(row, a) for row in sites["prob"])
    return stats.gamma.logpdf(sites["rate"], a, scale=1 / family.beta).sum()


@pytest.mark.parametrize("name", NAMES)
def test_the_model_is_prior_times_likelihood_and_the_closed_form_is_the_model(name, x64):
    family, stats_, x, y = fitted(name)
    joint = Joint(ClassPrior(0.5), (Block(name, family),), K, WIDTH[name])
    posterior, counts = family.update(stats_), np.bincount(y, minlength=K)
    density = jax.jit(lambda theta: log_density(joint.model, (x, y), {}, theta)[0])
    closed = jax.jit(lambda sites: log_density(posterior.model, (K, WIDTH[name]), {}, sites)[0])
    gaps = []
    for seed in range(4):
        sites = random_sites(name, seed)
        probs = np.random.default_rng(seed).dirichlet(np.ones(K))
        model = float(density(sites | {"class_probs": probs}))
        rows = by_scipy(name, sites, x)[np.arange(len(x)), y].sum()
        by_hand = prior_by_scipy(name, family, sites) + rows + stats.dirichlet.logpdf(probs, np.full(K, 1.5))
        np.testing.assert_allclose(model, by_hand + np.log(probs[y]).sum(), rtol=1e-11)
        np.testing.assert_allclose(compiled(family, "log_likelihood", sites, stats_), rows, rtol=1e-11)
        gaps.append(model - float(closed(sites)) - stats.dirichlet.logpdf(probs, 1.5 + counts))
    np.testing.assert_allclose(gaps, gaps[0], rtol=0, atol=1e-8)
    evidence = exact.log_evidence(joint, joint.stats(x, Labels(y, K)))
    np.testing.assert_allclose(evidence, gaps[0], rtol=0, atol=1e-8)


def test_improper_poisson_posterior_differs_from_the_model_by_a_constant(x64):
    x, y = make("poisson", missing=False)
    family = Poisson(0.7, 0.0)
    stats_ = family.stats(x, Labels(y, K))
    family = family.resolve_stats(stats_)
    assert not family.has_evidence()
    gaps = []
    for seed in range(4):
        sites = random_sites("poisson", seed)
        model = log_prior(family, sites, K, 2) + by_scipy("poisson", sites, x)[np.arange(len(x)), y].sum()
        gaps.append(float(model - log_prior(family.update(stats_), sites, K, 2)))
    np.testing.assert_allclose(gaps, gaps[0], rtol=0, atol=1e-8)


def several_blocks(n=30):
    """A joint of all the families, their columns shuffled, with rows and labels."""
    parts = {name: make(name, n, seed=3)[0] for name in NAMES}
    rng = np.random.default_rng(5)
    y = make("bernoulli", n, seed=3)[1]
    parts["gaussian"] = np.where(rng.random((n, 2)) < 0.2, np.nan, rng.normal(size=(n, 2)) + y[:, None])
    table = np.hstack(list(parts.values()))
    order = rng.permutation(table.shape[1])
    place = np.argsort(order)  # where each of the columns has gone
    numbers = NormalWishart(np.array([-0.5, 0.5]), 0.7, 3.5, np.array([0.5, 2.0]))
    families = {name: family_of(name) for name in NAMES} | {"gaussian": Gaussian("diag", False, numbers)}
    blocks, start = [], 0
    for name, part in parts.items():
        blocks.append(Block(name, families[name], tuple(place[start : start + part.shape[1]].tolist())))
        start += part.shape[1]
    joint = Joint(ClassPrior(0.3), tuple(blocks), K, table.shape[1])
    x = table[:, order]
    return joint.resolve_stats(joint.stats(x, Labels(y, K))), x, y, parts


def test_several_blocks_are_the_product_of_their_parts(x64):
    joint, x, y, parts = several_blocks()
    stats_ = joint.stats(x, Labels(y, K))
    posterior = exact.update(joint, stats_)

    @jax.jit
    def densities(sites):
        """log p(θ, D) by the model, the table of log p(x, y | θ), log q(θ | D) but for the class probabilities."""
        model, _ = log_density(joint.model, (x, y), {}, sites)
        parts = [(block, joint.params_of(block, sites)) for block in posterior.blocks]
        q = sum(log_prior(block.family, own, K, len(block.columns)) for block, own in parts)
        working = [block.family.working(own) for block, (_, own) in zip(joint.blocks, parts, strict=True)]
        return model, joint.log_joint(joint.gather(sites["class_probs"], working), x), q

    gaps = []
    for seed in range(3):
        sites = {f"{name}.{key}": value for name in NAMES for key, value in random_sites(name, seed).items()}
        rng = np.random.default_rng(seed)
        mean, precision = rng.normal(size=(K, 2)), rng.gamma(2.0, 1.0, (K, 2))
        sites |= {"gaussian.mean": mean, "gaussian.precision": precision, "class_probs": rng.dirichlet(np.ones(K))}
        model, table, q = densities(sites)
        own = {name: {k.split(".")[1]: v for k, v in sites.items() if k.startswith(name)} for name in NAMES}
        rows = sum(by_scipy(name, own[name], parts[name]) for name in NAMES) + np.log(sites["class_probs"])
        cells = stats.norm.logpdf(parts["gaussian"][:, None, :], mean, 1 / np.sqrt(precision))
        rows = rows + np.nansum(cells, -1)
        np.testing.assert_allclose(table, rows, rtol=1e-10, atol=1e-10)
        gaps.append(float(model - q) - stats.dirichlet.logpdf(sites["class_probs"], 1.3 + stats_.labels))
    np.testing.assert_allclose(gaps, gaps[0], rtol=0, atol=1e-8)
    np.testing.assert_allclose(exact.log_evidence(joint, stats_), gaps[0], rtol=0, atol=1e-8)


def test_blocks_of_unlabelled_rows_are_mixtures_in_the_model(x64):
    joint, x, y, parts = several_blocks(12)
    x, labels = x[:8], np.where(np.arange(8) % 2, -1, y[:8])
    sites = {f"{name}.{key}": value for name in NAMES for key, value in random_sites(name, 1).items()}
    sites |= {"gaussian.mean": np.ones((K, 2)), "gaussian.precision": np.ones((K, 2)), "class_probs": np.full(K, 1 / K)}
    working = joint.gather(sites["class_probs"], [b.family.working(joint.params_of(b, sites)) for b in joint.blocks])
    table = np.asarray(compiled(joint, "log_joint", working, x))
    expected = sum(logsumexp(t) if k < 0 else t[k] for t, k in zip(table, labels, strict=True))
    empty = np.full((1, x.shape[1]), np.nan), np.array([-1])  # a row without cells and label says nothing
    got, nothing = jax.jit(lambda t: [log_density(joint.model, case, {}, t)[0] for case in ((x, labels), empty)])(sites)
    got -= nothing
    np.testing.assert_allclose(got, expected, rtol=1e-10)


def free(name, point):
    """Free coordinates of the parameters and the way back: logits, softmax, logarithms; no Jacobian."""
    if name == "bernoulli":
        return np.log(point["prob"]) - np.log1p(-point["prob"]), lambda z: {"prob": jax.nn.sigmoid(z)}
    if name == "poisson":
        return np.log(point["rate"]), lambda z: {"rate": jnp.exp(z)}
    sizes = SIZES if name == "categorical" else (3,)
    edges = np.cumsum(sizes)[:-1].tolist()
    return np.log(point["prob"]), lambda z: {"prob": jnp.concatenate([jax.nn.softmax(p) for p in jnp.split(z, edges, 1)], 1)}


@pytest.mark.parametrize("method", ["mle", "map"])
@pytest.mark.parametrize("name", NAMES)
def test_gradient_vanishes_at_interior_estimates(name, method, x64):
    family = family_of(name)
    x, y = make(name, n=40, seed=1)
    extra = {"categorical": np.stack([np.arange(12) % c for c in SIZES], 1)}.get(name, np.arange(12)[:, None] % 2)
    # rows with every category in every class: the mle lies inside
    x = np.vstack([x, *(np.broadcast_to(extra, (12, WIDTH[name])).astype(float),) * K])
    y = np.concatenate([y, np.repeat(np.arange(K), 12)])
    stats_ = family.stats(x, Labels(y, K))
    point = host(getattr(family, method)(stats_))
    start, back = free(name, point)
    np.testing.assert_allclose(
        np.asarray(next(iter(back(jnp.asarray(start)).values()))), next(iter(point.values())), rtol=1e-12
    )

    @jax.jit
    @jax.value_and_grad
    def objective(z):
        sites = back(z)
        rows = jnp.sum(family.log_prob(sites, jnp.asarray(x))[jnp.arange(len(x)), y])
        return rows + (log_prior(family, sites, K, WIDTH[name]) if method == "map" else 0.0)

    value, gradient = objective(start)
    assert np.abs(gradient).max() < 1e-9 * len(x)
    rng = np.random.default_rng(0)
    for _ in range(3):
        assert objective(start + 0.05 * rng.normal(size=start.shape))[0] < value


# -- statistics
@pytest.mark.parametrize("name", NAMES)
def test_hard_labels_equal_soft_weights_repeated_rows_and_the_traced_path(name, x64):
    family, stats_, x, y = fitted(name)
    weight = np.random.default_rng(0).integers(0, 4, len(x))
    hard = family.stats(x, Labels(y, K, weight.astype(float)))
    one_hot = np.eye(K)[y] * weight[:, None]
    others = [
        family.stats(x, one_hot),
        family.stats(jnp.asarray(x), jnp.asarray(one_hot)),
        jax.jit(family.stats)(jnp.asarray(x), jnp.asarray(one_hot)),
        family.stats(np.repeat(x, weight, 0), Labels(np.repeat(y, weight), K)),
    ]
    for other in others:
        for a, b in zip(hard, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_soft_responsibilities_give_weighted_sums(name, x64):
    family, _, x, _ = fitted(name)
    r = np.random.default_rng(0).dirichlet(np.ones(K), len(x))
    sites = random_sites(name, 2)
    expected = (r * by_scipy(name, sites, x)).sum()
    np.testing.assert_allclose(family.log_likelihood(sites, family.stats(x, r)), expected, rtol=1e-10)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "categorical"])
def test_statistics_of_sparse_rows_are_those_of_dense_rows(name):
    family, _, x, y = fitted(name, missing=False)
    for weight in (None, np.linspace(0, 2, len(x))):
        dense, thin = family.stats(x, Labels(y, K, weight)), family.stats(sparse.csr_array(x), Labels(y, K, weight))
        for a, b in zip(dense, thin, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_statistics_merge_and_come_apart(name, monkeypatch):
    family, whole, x, y = fitted(name)
    a, b = family.stats(x[::2], Labels(y[::2], K)), family.stats(x[1::2], Labels(y[1::2], K))
    for left, right in ((family.merge(a, b), whole), (family.remove(whole, b), a)):
        for p, q in zip(left, right, strict=True):
            np.testing.assert_allclose(p, q, rtol=1e-12, atol=1e-12)
    assert all(np.all(np.abs(leaf) < 1e-12) for leaf in family.remove(whole, whole))
    nothing = family.stats(x[:0], Labels(y[:0], K))
    for p, q in zip(family.merge(whole, nothing), whole, strict=True):
        np.testing.assert_array_equal(p, q)
    monkeypatch.setattr("bayesgen.families.base.BATCH_ROWS", 7)
    for p, q in zip(family.stats(x, Labels(y, K)), whole, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_updating_twice_is_updating_once(name, x64):
    family, whole, x, y = fitted(name)
    a, b = family.stats(x[::2], Labels(y[::2], K)), family.stats(x[1::2], Labels(y[1::2], K))
    for left, right in zip(
        jax.tree_util.tree_leaves(family.update(a).update(b)), jax.tree_util.tree_leaves(family.update(whole)), strict=True
    ):
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)


# -- the posterior and the predictive
@pytest.mark.parametrize("name", NAMES)
def test_posterior_draws_have_the_posteriors_moments(name, x64):
    family, stats_, _, _ = fitted(name)
    posterior = family.update(stats_)
    keys = jax.random.split(jax.random.key(0), 4000)
    draws = host(jax.jit(jax.vmap(partial(posterior.draw, num_classes=K, num_features=WIDTH[name])))(keys))
    expected = host(posterior.expectation())
    for key, value in draws.items():
        assert np.all(np.abs(value.mean(0) - expected[key]) < 5 * value.std(0) / np.sqrt(4000) + 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_posterior_draws_on_the_host_follow_the_same_law(name):
    family, stats_, _, _ = fitted(name)
    posterior = family.update(stats_)
    value = next(iter(posterior.host_draws(np.random.default_rng(0), 3000, K, WIDTH[name]).values()))
    alpha = np.asarray(family.alpha)
    count, weight = np.asarray(stats_.total), np.asarray(stats_.weight)
    sizes = SIZES if name == "categorical" else (3,)
    for k, j in itertools.product(range(K), range(value.shape[2])):
        a = 1 + (alpha if alpha.ndim == 0 else alpha[j]) + count[k, j]
        if name == "poisson":
            law = stats.gamma(a, scale=1 / (family.beta[j] + weight[k, j]))
        elif name == "bernoulli":
            law = stats.beta(a, 1 + alpha[j] + weight[k, j] - count[k, j])
        else:
            mine = np.repeat(np.arange(len(sizes)), sizes) == np.repeat(np.arange(len(sizes)), sizes)[j]
            whole = np.sum((1 + alpha + count[k])[mine])
            if whole == a:
                continue  # one category
            law = stats.beta(a, whole - a)
        assert stats.kstest(value[:, k, j], law.cdf).pvalue > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_predictive_is_the_average_density_over_draws(name, x64):
    family, stats_, x, _ = fitted(name)
    posterior, rows = family.update(stats_), jnp.asarray(make(name, n=8, seed=6)[0])

    def one(key):
        return jnp.exp(family.log_prob(posterior.draw(key, K, WIDTH[name]), rows))

    tables = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), 20_000)))
    expected = np.exp(compiled(family, "log_prob", posterior.predictive(), rows))
    assert np.all(np.abs(tables.mean(0) - expected) < 5 * tables.std(0) / np.sqrt(20_000) + 1e-12)


# -- leaving rows out
@pytest.mark.parametrize("method", ["mle", "posterior"])
@pytest.mark.parametrize("name", NAMES)
def test_left_out_rows_are_scored_by_the_statistics_without_them(name, method, x64):
    family, _, x, y = fitted(name, n=25, seed=7)
    weight = np.where(np.arange(25) % 4, 1.0, 0.5)
    whole = family.stats(x, Labels(y, K, weight))
    whole = jax.tree_util.tree_map(jnp.asarray, whole)
    left_out = jax.jit(family.left_out, static_argnums=4)
    got = np.asarray(left_out(whole, jnp.asarray(x), jnp.asarray(y), jnp.asarray(weight), method))
    for i in range(0, 25, 3):
        keep = np.arange(25) != i
        rest = family.stats(x[keep], Labels(y[keep], K, weight[keep]))
        with np.errstate(divide="ignore", invalid="ignore"):
            params = host(family.estimate(rest, method))
            expected = by_scipy(name, params, x[i : i + 1])[0]
        np.testing.assert_allclose(got[i], expected, rtol=1e-9, atol=1e-9)


# -- missing cells at their mode
def test_poisson_mode_of_widely_separated_rates(x64):
    family = Poisson()
    rate = np.array([[0.3, 7.3], [60.5, 7.9], [1500.2, 0.1]])
    share = np.random.default_rng(0).dirichlet(np.full(3, 0.3), 40)
    share[:3] = np.eye(3)
    x = np.full((40, 2), np.nan)
    grid = np.arange(1800)
    for params in ({"rate": rate}, {"shape": 1 + rate * 3, "inverse_scale": np.full((3, 2), 3.0)}):
        got = np.asarray(compiled(family, "fill", host(params), x, share))
        for j in range(2):
            cells = np.stack([cell_by_scipy("poisson", params, grid, k, j) for k in range(3)])
            np.testing.assert_array_equal(got[:, j], (share @ np.exp(cells)).argmax(1))


def test_poisson_mode_of_overlapping_classes_and_of_one_far_away(x64):
    family, rng = Poisson(), np.random.default_rng(0)
    x = jnp.full((400, 1), jnp.nan)
    fill = jax.jit(family.fill)
    for rate in ([900.0, 960.0, 1700.0], [1000.0, 1090.0, 1200.0], [0.2, 640.0, 700.0], [5.0, 2e4, 2.05e4]):
        grid = np.unique(np.concatenate([np.arange(max(0, r - 8 * r**0.5 - 9), r + 8 * r**0.5 + 9) // 1 for r in rate]))
        share = rng.dirichlet(np.ones(3), 400)
        params = {"rate": np.array(rate)[:, None]}
        got = np.asarray(fill(params, x, jnp.asarray(share)))[:, 0]
        heights = share @ np.exp([stats.poisson.logpmf(grid, r) for r in rate])
        reached = (share * np.exp([stats.poisson.logpmf(got, r) for r in rate]).T).sum(1)
        assert np.all(reached > heights.max(1) * (1 - 1e-9)), rate


def test_poisson_mode_where_two_peaks_are_almost_equally_high(x64):
    # the higher of two peaks, each of two classes that overlap, with a class far away
    rate = np.array([196.04944532, 160.64143559, 152.90111656, 201.41902389, 873.46725404])
    share = np.array([[0.19651556, 0.09577631, 0.27365041, 0.21468361, 0.2193741]])
    got = np.asarray(compiled(Poisson(), "fill", {"rate": rate[:, None]}, np.full((1, 1), np.nan), share))[0, 0]
    heights = share[0] @ np.exp([stats.poisson.logpmf(np.arange(1100), r) for r in rate])
    assert heights[int(got)] > heights.max() * (1 - 1e-9)
