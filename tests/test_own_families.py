"""Families of two methods: the defaults of `Family`, and the ready-made ones, against SciPy, quadrature and enumeration."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import optimize, stats

from bayesgen.estimators.mixed import FAMILIES
from bayesgen.families import (
    Bernoulli,
    Categorical,
    Family,
    Gamma,
    GammaPrior,
    Gaussian,
    Labels,
    LogNormal,
    LogNormalPrior,
    Multinomial,
    NegativeBinomial,
    NegativeBinomialPrior,
    Poisson,
    StudentT,
    StudentTPrior,
    static,
)
from bayesgen.families.base import log_prior
from bayesgen.families.modes import Peaks, mixture_mode

NAN, INF = np.nan, np.inf
READY = {"lognormal": LogNormal, "gamma": Gamma, "studentt": StudentT, "negativebinomial": NegativeBinomial}
K, P = 2, 3


def params_of(name):
    """Parameters of two classes and three columns, from small to large."""
    loc = np.array([[0.3, -4.0, 11.0], [-1.2, 0.0, 2.0]])
    shape = np.array([[0.02, 1.0, 75.0], [3.5, 31.9, 900.0]])
    return {
        "lognormal": {"loc": loc, "precision": shape},
        "gamma": {"log_mean": loc, "concentration": shape},
        "studentt": {"df": shape, "loc": 100 * loc, "precision": 1 / shape[::-1]},
        "negativebinomial": {"log_mean": loc, "concentration": shape},
    }[name]


def law(name, params, k, j):
    """SciPy's distribution of one column in one class."""
    one = {key: float(value[k, j]) for key, value in params.items()}
    if name == "lognormal":
        return stats.lognorm(one["precision"] ** -0.5, scale=np.exp(one["loc"]))
    if name == "studentt":
        return stats.t(one["df"], one["loc"], one["precision"] ** -0.5)
    c, mean = one["concentration"], np.exp(one["log_mean"])
    return stats.gamma(c, scale=mean / c) if name == "gamma" else stats.nbinom(c, c / (c + mean))


def laws(name, params):
    return [(k, j, law(name, params, k, j)) for k in range(K) for j in range(P)]


@pytest.fixture(params=list(READY))
def name(request):
    return request.param


@jax.jit
def by_cell(family, params, x):
    return family.cell_log_prob(params, x)


def cells(family, params, x):
    return by_cell(family.bare(), params, x)


@jax.jit
def with_slopes(family, params, x):
    return family.log_prob(params, x), jax.jacrev(lambda theta: family.log_prob(theta, x))(params)


def values_and_slopes(family, params, x):
    """log_prob (n, K) and its derivatives by each parameter, (n, K, ...), as reverse differentiation has them."""
    values, slopes = with_slopes(family.bare(), {key: np.asarray(value, float) for key, value in params.items()}, x)
    return np.asarray(values), {key: np.asarray(value) for key, value in slopes.items()}


@jax.jit
def filled(family, params, x, share):
    return family.fill(params, x, share)


# -- the ready-made densities
CELLS = {
    "lognormal": [1e-300, 1e-9, 0.4, 1.0, 3.0, 1e6, 1e300],
    "gamma": [1e-300, 1e-9, 0.4, 1.0, 3.0, 150.0, 4e4],
    "studentt": [-1e14, -300.0, 0.0, 0.7, 29.0, 1.2e3, 3e12],
    "negativebinomial": [0.0, 1.0, 2.0, 11.0, 140.0, 3e3, 2e5],
}


def test_densities_are_scipys(name, x64):
    params, column = params_of(name), np.array(CELLS[name])
    got = np.asarray(cells(READY[name](), params, np.repeat(column[:, None], P, 1)))
    for k, j, reference in laws(name, params):
        logs = reference.logpmf(column) if name == "negativebinomial" else reference.logpdf(column)
        np.testing.assert_allclose(got[:, k, j], logs, rtol=1e-10, atol=1e-10)


def test_densities_add_up_to_one(name, x64):
    params = params_of(name)
    shape = next(key for key in ("concentration", "df", "precision") if key in params)
    params[shape] = np.maximum(params[shape], 0.1)  # below, much lies beyond the numbers that there are
    unit = np.linspace(-1, 1, 20_001)[:, None]
    for k in range(K):
        one = {key: value[k : k + 1] for key, value in params.items()}
        if name == "negativebinomial":
            one = {key: value[:, :2] for key, value in one.items()}  # the third column's tail is long
            x, width = np.repeat(np.arange(20_001.0)[:, None], 2, 1), 1.0
        elif name == "studentt":  # the trapezoid rule in arsinh of the standardised x
            scale, reach = one["precision"] ** -0.5, 36 / one["df"] + 6
            x, width = one["loc"] + scale * np.sinh(reach * unit), reach * 1e-4 * scale * np.cosh(reach * unit)
        else:  # and in log x
            reach = 12 / one["precision"] ** 0.5 if name == "lognormal" else 36 / one[shape] + 10 / one[shape] ** 0.5
            x = np.exp(one["loc" if name == "lognormal" else "log_mean"] + reach * unit)
            width = reach * 1e-4 * x
        total = (np.exp(np.asarray(cells(READY[name](), one, x))[:, 0]) * width).sum(0)
        np.testing.assert_allclose(total, 1.0, rtol=1e-9)


def test_limits_keep_their_digits(x64):
    big, one = np.array([[1e14]]), np.ones((1, 1))
    x = np.array([[0.0], [1.0], [4.0], [30.0]])
    poisson = cells(NegativeBinomial(), {"log_mean": np.log(3.0) * one, "concentration": big}, x)
    np.testing.assert_allclose(poisson[..., 0], stats.poisson.logpmf(x, 3.0), rtol=1e-11)
    normal = cells(StudentT(), {"df": big, "loc": 2 * one, "precision": 4 * one}, x)
    np.testing.assert_allclose(normal[..., 0], stats.norm.logpdf(x, 2, 0.5), rtol=1e-10)
    # at its mean the density of a gamma law is √(a/2π) (1 − 1/(12a) + ...) over the mean
    peak = cells(Gamma(), {"log_mean": np.log(7.0) * one, "concentration": big}, np.array([[7.0]]))
    np.testing.assert_allclose(peak, 0.5 * np.log(1e14 / (2 * np.pi)) - np.log(7), rtol=1e-12)
    # a Cauchy law's tail is 1/(π x²), where x² is no number any more
    cauchy = cells(StudentT(), {"df": one, "loc": 0 * one, "precision": one}, np.array([[1e200]]))
    np.testing.assert_allclose(cauchy, -np.log(np.pi) - 400 * np.log(10), rtol=1e-13)


def test_missing_cells_drop_out_and_impossible_ones_have_density_zero(name, x64):
    params = params_of(name)
    x = np.array([[1.0, 2.0, 3.0], [1.0, NAN, 3.0], [NAN] * 3, [1.0, -1.0, 3.0], [NAN, INF, 2.0], [NAN, 0.0, 2.0]])
    got, slopes = values_and_slopes(READY[name](), params, x)
    assert not np.isnan(got).any() and (got[2] == 0).all()
    parts = np.asarray(cells(READY[name](), params, x[:1]))[0]
    np.testing.assert_allclose(got[1], parts[:, [0, 2]].sum(1), rtol=1e-13)
    zero = {"studentt": [False, True, False], "negativebinomial": [True, True, False]}.get(name, [True] * 3)
    np.testing.assert_array_equal(np.isneginf(got[3:]), np.repeat(zero, K).reshape(3, K))
    for slope in slopes.values():  # (n, K, K, p): missing and impossible cells have none, and disturb no others
        assert np.isfinite(slope).all() and (slope[2] == 0).all() and (slope[1:3, :, :, 1] == 0).all()
        np.testing.assert_array_equal(slope[1][:, :, [0, 2]], slope[0][:, :, [0, 2]])
        assert (slope[0][np.arange(K), np.arange(K)] != 0).all()
        assert (slope[3:][np.array(zero)][..., 1] == 0).all()


def test_samples_follow_the_density_and_keep_what_was_observed(name, x64):
    params = {key: value[:, 1:2] for key, value in params_of(name).items()}
    x, y = np.full((8000, 1), NAN), np.arange(8000) % K
    x[:2] = 3.0
    rows = np.asarray(jax.jit(READY[name]().complete)(jax.random.key(3), params, x, y))
    assert rows.dtype == float and (rows[:2] == 3).all()
    for k in range(K):
        reference, mine = law(name, params, k, 0), rows[2 + k :: K, 0]
        if name != "negativebinomial":
            assert stats.kstest(mine, reference.cdf).pvalue > 0.01
            continue
        ends = np.unique(reference.ppf(np.linspace(0.1, 0.9, 9)))
        share = np.diff(np.concatenate([[0], reference.cdf(ends), [1]]))
        seen = np.bincount(np.searchsorted(ends, mine), minlength=len(share))
        assert stats.chisquare(seen, share * len(mine)).pvalue > 0.01


def test_means_fill_continuous_columns(x64):
    x, share = jnp.array([[NAN, 2.0, NAN]]), jnp.array([[0.25, 0.75]])
    for name in ("lognormal", "gamma"):
        params = params_of(name)
        means = np.array([[law(name, params, k, j).mean() for j in range(P)] for k in range(K)])
        got = np.asarray(filled(READY[name](prior=None), params, x, share))
        np.testing.assert_allclose(got, [[0.25 * means[0, 0] + 0.75 * means[1, 0], 2.0, share[0] @ means[:, 2]]], rtol=1e-12)
    params = params_of("studentt")  # df 0.02 has no mean
    np.testing.assert_allclose(
        filled(StudentT(prior=None), params, x, share)[0, 0], share[0] @ params["loc"][:, 0], rtol=1e-14
    )


def test_public_parameters_keep_axes_of_draws_and_precision(name):
    draws = {key: np.stack([value, 2 * value]) for key, value in params_of(name).items()}
    public = READY[name]().public(draws)
    assert set(public) == set(READY[name].dims)
    for value in public.values():
        assert value.shape == (2, K, P) and value.dtype == np.float64


# -- priors
@partial(jax.jit, static_argnames="size")
def prior_density(family, theta, size):
    return log_prior(family, theta, *size)


def awkward():
    """Columns: ordinary, constant, 1 everywhere, without a cell, constant within classes. The third class has one row."""
    rng = np.random.default_rng(0)
    y = np.array([0, 0, 0, 0, 1, 1, 1, 2])
    x = np.full((8, 5), NAN)
    x[:, 0], x[:, 1], x[:, 2], x[:, 4] = rng.integers(1, 30, 8), 7.0, 1.0, y + 1.0
    x[2, 0] = NAN
    return x, y


def test_priors_from_awkward_data_are_proper(name, x64):
    x, y = awkward()
    zeros = np.zeros((8, 1))
    tables = [(x, y), (x[:1], y[:1])] + ([(zeros, y)] if name in ("negativebinomial", "studentt") else [])
    for rows, codes in tables:
        family = READY[name]().resolve(rows, Labels(codes, 3))
        for field, value in family.prior._asdict().items():
            assert value.shape == (rows.shape[1],) and np.isfinite(value).all(), field
            assert field in READY[name].real or (value > 0).all(), field
        size = (3, rows.shape[1])
        sites = jax.eval_shape(lambda f: numpyro.handlers.seed(f.model, 0)(*size), family)
        assert all(value.shape == size for value in sites.values())
        theta = {key: np.ones(size) for key in sites}
        assert np.isfinite(prior_density(family, theta, size))


def test_weights_are_repeated_rows_and_unlabelled_rows_do_not_count(name):
    rng = np.random.default_rng(1)
    x, y = np.floor(rng.gamma(2.0, 8.0, (30, 2))) + 1, rng.integers(0, 3, 30)
    x[rng.random(x.shape) < 0.2] = NAN
    weight = rng.integers(0, 4, 30)
    times = np.repeat(np.arange(30), weight)
    repeated = READY[name]().resolve(x[times], Labels(y[times], 3)).prior
    weighted = READY[name]().resolve(x, Labels(y, 3, weight.astype(float))).prior
    soft = READY[name]().resolve(x, np.eye(3)[y] * weight[:, None]).prior
    unlabelled = READY[name]().resolve(np.append(x[times], 9 * x, 0), Labels(np.append(y[times], np.full(30, -1)), 3)).prior
    for other in (weighted, soft, unlabelled):
        np.testing.assert_allclose(np.stack(other), np.stack(repeated), rtol=1e-10)


@pytest.mark.parametrize("name", ["lognormal", "gamma", "studentt"])
def test_priors_follow_the_units(name):
    rng = np.random.default_rng(2)
    x, labels = rng.gamma(3.0, 1.0, (40, 1)), Labels(rng.integers(0, 2, 40), 2)
    here, there = (READY[name]().resolve(factor * x, labels).prior for factor in (1.0, 1e9))
    moved = {"lognormal": {"loc": np.log(1e9)}, "gamma": {"log_mean": np.log(1e9)}, "studentt": {}}[name]
    times = {"loc": 1e9, "loc_sd": 1e9, "rate": 1e18} if name == "studentt" else {}
    for field, value in here._asdict().items():
        np.testing.assert_allclose(getattr(there, field), value * times.get(field, 1.0) + moved.get(field, 0.0), rtol=1e-8)


def test_outliers_leave_the_scale_of_student_t_alone():
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(5, 2, 200), [1e7]])[:, None]
    prior = StudentT().resolve(x, Labels(np.zeros(201, int), 1)).prior
    np.testing.assert_allclose([prior.loc[0], np.sqrt(2 * prior.rate[0])], [5, 2], rtol=0.2)


def test_log_normal_is_gaussian_on_logarithms(x64):
    rng = np.random.default_rng(4)
    x, y = np.exp(rng.normal(size=(20, 3)) * [1, 0.1, 3] + [0, 5, -2]), rng.integers(0, 2, 20)
    x[rng.random(x.shape) < 0.2] = NAN
    ours, theirs = LogNormal().resolve(x, Labels(y, 2)), Gaussian("diag").resolve(np.log(x), Labels(y, 2))
    for _ in range(2):
        theta = {"loc": rng.normal(size=(2, 3)), "precision": rng.gamma(2.0, 1.0, (2, 3))}
        same = {"mean": theta["loc"], "precision": theta["precision"]}
        priors = [prior_density(family, at, (2, 3)) for family, at in ((ours, theta), (theirs, same))]
        np.testing.assert_allclose(*priors, rtol=1e-12)
        jacobian = np.nansum(np.log(x), 1, keepdims=True)
        expected = np.asarray(theirs.log_prob(same, np.log(x))) - jacobian
        np.testing.assert_allclose(cells(ours, theta, x).sum(-1), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["gamma", "studentt", "negativebinomial"])
def test_the_map_exists_where_the_likelihood_has_no_maximum(name, x64):
    # constant cells; for Student's t half of them tied; for counts less varied than a Poisson law
    cells = {"gamma": [5.0] * 6, "studentt": [1.0, 1, 1, 4, 5, 9], "negativebinomial": [3.0, 3, 3, 3, 3, 4]}[name]
    x = np.array(cells)[:, None]
    family = READY[name]().resolve(x, Labels(np.zeros(6, int), 1))
    fields = list(family.numbers(1)._fields)
    sites = {"gamma": ("log_mean", "concentration"), "studentt": ("loc", "precision", "df")}
    order = sites.get(name, sites["gamma"])
    assert len(fields) == 2 * len(order)

    def negative(flat):  # the first site is real, the others positive
        theta = {
            key: (v if i == 0 else jnp.exp(v)).reshape(1, 1) for i, (key, v) in enumerate(zip(order, flat, strict=True))
        }
        return -log_prior(family, theta, 1, 1) - jnp.sum(family.log_prob(theta, jnp.asarray(x)))

    both = jax.jit(jax.value_and_grad(negative))
    start = np.array([np.log(5.0) if name != "studentt" else 4.0, 0.0, 1.0][: len(order)])
    found = optimize.minimize(lambda u: [np.asarray(v) for v in both(u)], start, jac=True, method="BFGS", tol=1e-7)
    assert np.abs(found.jac).max() < 1e-4 and np.abs(found.x).max() < 40
    # a maximum inside: lower in every direction far away
    for i, sign in [(i, sign) for i in range(len(order)) for sign in (-1, 1)]:
        assert both(found.x + sign * 8.0 * np.eye(len(order))[i])[0] > found.fun + 1


def test_stated_numbers_of_priors():
    x, labels = np.ones((4, 2)), Labels(np.zeros(4, int), 1)
    prior = Gamma(prior=GammaPrior(shape=3.0, log_mean=[0.0, -1.0])).resolve(x, labels).prior
    assert prior.shape.tolist() == [3.0, 3.0] and prior.log_mean.tolist() == [0.0, -1.0] and np.isfinite(prior.rate).all()
    wrong = [
        (LogNormal(prior=LogNormalPrior(loc=[1.0, 2.0, 3.0])), ValueError, r"LogNormalPrior\(loc=...\) has shape \(3,\)"),
        (
            StudentT(prior=StudentTPrior(df_rate=0.0)),
            ValueError,
            r"StudentTPrior\(df_rate=...\): 0.0 must be finite and above 0",
        ),
        (NegativeBinomial(prior=NegativeBinomialPrior(log_mean=NAN)), ValueError, "log_mean=...*must be finite"),
        (Gamma(prior="weak"), TypeError, r"Gamma\(prior='weak'\): give 'auto' or GammaPrior"),
    ]
    for family, error, message in wrong:
        with pytest.raises(error, match=message):
            family.resolve(x, labels)


def test_new_prior_numbers_compile_nothing_anew(x64):
    traces = []

    @jax.jit
    def joint(family, theta):
        traces.append(1)
        return log_prior(family, theta, 1, 1)

    theta = {"log_mean": jnp.zeros((1, 1)), "concentration": jnp.ones((1, 1))}
    values = [float(joint(Gamma(prior=GammaPrior(0.0, sd, 2.0, 1.0)), theta)) for sd in (1.0, 2.0)]
    np.testing.assert_allclose(values, [stats.norm.logpdf(0, 0, sd) - 1 for sd in (1, 2)], rtol=1e-12)
    assert len(traces) == 1


def test_cells_that_cannot_be(name):
    x = np.array([[1.0, 0.0, -1.0], [NAN, 0.5, 2.0]])
    possible = {"studentt": np.ones((2, 3), bool), "negativebinomial": (x >= 0) & (x % 1 == 0)}.get(name, x > 0)
    family = READY[name]()
    np.testing.assert_array_equal(family.outside(x), ~possible & ~np.isnan(x))
    assert family.domain == ("numbers" if name == "studentt" else family.domain) and family.domain


def test_families_by_name():
    for name, family in READY.items():
        assert type(FAMILIES[name]()) is family
    for name, same in {"student_t": "studentt", "negative_binomial": "negativebinomial", "log_normal": "lognormal"}.items():
        assert FAMILIES[name] is FAMILIES[same]


# -- a user's families
class Geometric(Family):
    kind = "count"

    def model(self, num_classes, num_features):
        with numpyro.plate("class", num_classes):
            return {"prob": numpyro.sample("prob", dist.Beta(1.0, 1.0).expand([num_features]).to_event(1))}

    def distribution(self, params):
        return dist.Geometric(params["prob"]).to_event(1)


class Of(Family):
    """The columns of any NumPyro distribution, by its parameters."""

    law: object = static()
    columns: bool = static(default=True)

    def distribution(self, params):
        density = self.law(**params)
        return density.to_event(1) if self.columns else density


COUNTS = {
    "geometric": (Geometric(), {"prob": np.array([[0.3, 0.01], [0.9, 0.5], [0.02, 0.002]])}),
    "overdispersed": (
        NegativeBinomial(prior=None),
        {
            "log_mean": np.log([[3.0, 90.0], [40.0, 0.2], [9.0, 70.0]]),
            "concentration": np.array([[0.3, 50], [30, 2], [5, 9]]),
        },
    ),
    "far apart": (
        NegativeBinomial(prior=None),
        {
            "log_mean": np.log([[900.0, 5], [1500, 2], [2600, 1]]),
            "concentration": np.array([[300.0, 1], [400, 4], [0.9, 9]]),
        },
    ),
    "zero-inflated": (
        Of(dist.ZeroInflatedPoisson),
        {"gate": np.array([[0.2], [0.001], [0.02]]), "rate": np.array([[30.0], [12.0], [33.0]])},
    ),
    "categories": (Of(dist.CategoricalProbs), {"probs": np.random.default_rng(0).dirichlet(np.full(12, 0.4), (3, 2))}),
}


@pytest.mark.parametrize("case", list(COUNTS))
def test_modes_fill_discrete_columns(case, x64):
    family, params = COUNTS[case]
    p, top = next(iter(params.values())).shape[1], 12 if case == "categories" else 3000
    share = np.random.default_rng(0).dirichlet(np.full(3, 0.5), 30)
    share[:3] = np.eye(3)
    x = np.full((30, p), NAN)
    x[5, 0] = 1.0
    got = np.asarray(filled(family, params, x, share))
    assert got[5, 0] == 1.0 and family.fills_mode(params)
    heights = np.exp(np.asarray(cells(family, params, np.repeat(np.arange(float(top))[:, None], p, 1))))
    expected = np.einsum("nk,vkp->nvp", share, heights).argmax(1)
    assert len(np.unique(expected)) > 2 or case == "geometric"  # whose mode is 0
    np.testing.assert_array_equal(got[np.isnan(x)], expected[np.isnan(x)])


def test_mode_of_many_laws_on_few_hills(x64):
    rng = np.random.default_rng(5)
    top = np.concatenate([centre + rng.normal(0, 20, 100) for centre in (100, 5000, 9000)]).round()
    share = rng.dirichlet(np.ones(300), 40)

    def heights(value):  # (n, p) -> (n, p)
        return jnp.einsum("nk,nkp->np", share, jnp.exp(-0.5 * ((value[:, None, :] - top[:, None]) / 30) ** 2))

    peaks = Peaks(jnp.asarray(top)[:, None], jnp.full((300, 1), 30.0))
    got = np.asarray(mixture_mode(heights, peaks, (40, 1)))[:, 0].astype(int)
    every = share @ np.exp(-0.5 * ((np.arange(9200) - top[:, None]) / 30) ** 2)
    assert len(np.unique(np.round(got, -3))) == 3
    np.testing.assert_allclose(every[np.arange(40), got], every.max(1), rtol=1e-12)


def test_rows_of_discrete_families_are_floats(x64):
    for case in ("geometric", "categories"):
        family, params = COUNTS[case]
        rows = jax.jit(family.sample)(jax.random.key(0), params, np.zeros(4, int))
        assert rows.dtype == np.float64 and np.array_equal(rows, np.round(rows))


def test_categories_are_looked_up(x64):
    family, params = COUNTS["categories"]
    x = np.array([[0.0, 4.0], [2.0, NAN], [12.0, 1.0], [-1.0, 0.0], [0.5, 1.0]])
    got, prob = np.asarray(cells(family, params, x)).sum(-1), params["probs"]
    expected = [np.log(prob[:, 0, 0] * prob[:, 1, 4]), np.log(prob[:, 0, 2])]
    np.testing.assert_allclose(got[:2], expected, rtol=1e-12)
    assert np.isneginf(got[2:]).all()


SUPPORTS = {  # law, parameters of two classes, cells inside, cells outside, SciPy's logarithms of the two densities
    "interval": (
        dist.Beta,
        {"concentration1": [[2.0], [0.5]], "concentration0": [[3.0], [1.5]]},
        [0.2, 0.7],
        [-0.1, 1.3, INF],
        [stats.beta(2, 3).logpdf, stats.beta(0.5, 1.5).logpdf],
    ),
    "one end by class": (
        dist.Pareto,
        {"scale": [[1.0], [0.5]], "alpha": [[3.0], [1.5]]},
        [2.0, 7.0],
        [0.2, -5.0, INF],
        [stats.pareto(3).logpdf, stats.pareto(1.5, scale=0.5).logpdf],
    ),
    "both ends by class": (
        dist.Uniform,
        {"low": [[0.0], [-1.0]], "high": [[3.0], [2.5]]},
        [0.2, 2.1],
        [-4.0, 9.0, INF],
        [stats.uniform(0, 3).logpdf, stats.uniform(-1, 3.5).logpdf],
    ),
    "no mean": (
        dist.StudentT,
        {"df": [[0.5], [0.9]], "loc": [[1e3], [-4.0]], "scale": [[1.0], [2.0]]},
        [0.0, 3.0],
        [INF, -INF],
        [stats.t(0.5, 1e3).logpdf, stats.t(0.9, -4, 2).logpdf],
    ),
    "counts": (
        dist.Poisson,
        {"rate": [[2.0], [0.1]]},
        [0.0, 3.0],
        [-1.0, 0.5, INF],
        [stats.poisson(2).logpmf, stats.poisson(0.1).logpmf],
    ),
}


@pytest.mark.parametrize("case", list(SUPPORTS))
def test_any_support(case, x64):
    kind, params, inside, outside, reference = SUPPORTS[case]
    x = np.array([*inside, *outside, NAN])[:, None]
    n = len(inside)
    got, slopes = values_and_slopes(Of(kind), params, x)
    np.testing.assert_allclose(got[:n], np.stack([law(np.array(inside)) for law in reference], 1), rtol=1e-10)
    assert np.isneginf(got[n:-1]).all() and (got[-1] == 0).all()
    for slope in slopes.values():
        assert np.isfinite(slope).all() and (slope[n:] == 0).all() and (slope[:n] != 0).any()


def test_rows_of_dependent_columns(x64):
    class Normal(Family):
        def distribution(self, params):
            return dist.MultivariateNormal(params["mean"], scale_tril=params["root"])

    family = Normal()
    params = {"mean": np.array([[0.0, 1.0], [2.0, -1.0]]), "root": np.array([[[1.0, 0], [0.5, 1]], [[2.0, 0], [-0.7, 0.3]]])}
    x = np.array([[0.3, -1.0], [NAN, NAN], [INF, 0.0], [1.0, NAN]])
    got, slopes = values_and_slopes(family, params, x)
    pairs = zip(params["mean"], params["root"], strict=True)
    expected = [stats.multivariate_normal.logpdf(x[0], mean, root @ root.T) for mean, root in pairs]
    np.testing.assert_allclose(got[0], expected, rtol=1e-12)
    assert (got[1] == 0).all() and np.isneginf(got[2]).all() and np.isnan(got[3]).all()
    for slope in slopes.values():
        assert np.isfinite(slope).all() and (slope[0] != 0).any() and (slope[1:3] == 0).all()
    assert not family.integrates_missing(params) and not family.fills_mode(params)
    one = {"mean": params["mean"][:, :1], "root": params["root"][:, :1, :1]}
    assert family.integrates_missing(one)
    np.testing.assert_allclose(family.fill(one, jnp.array([[NAN]]), jnp.array([[0.5, 0.5]])), [[1.0]])
    for use in (
        lambda: family.condition(params, jnp.asarray(x)),
        lambda: family.complete(jax.random.key(0), params, x, None),
    ):
        with pytest.raises(TypeError, match="Normal: columns are not independent"):
            use()


def test_which_families_fill_modes_and_integrate_missing_cells(x64):
    prob, rate = {"prob": np.full((K, P), 0.3)}, {"rate": np.ones((K, P))}
    cases = [
        (Bernoulli(), prob, True, True),
        (Categorical(sizes=(1,) * P), {"prob": np.ones((K, P))}, True, True),
        (Poisson(), rate, True, True),
        (Multinomial(total=4.0), {"prob": np.full((K, P), 1 / 3)}, True, False),
        (Geometric(), prob, True, True),
        (Gaussian("full"), {"mean": np.zeros((K, P)), "covariance": np.stack([np.eye(P)] * K)}, False, True),
        *((READY[name](), params_of(name), name == "negativebinomial", True) for name in READY),
    ]
    for family, params, mode, missing in cases:
        assert (family.fills_mode(params), family.integrates_missing(params)) == (mode, missing), type(family).__name__


def test_a_mean_that_does_not_exist_is_never_filled_in(x64):
    gap = jnp.array([[NAN]])
    cauchy = {"loc": np.array([[1.0], [3.0]]), "scale": np.ones((2, 1))}
    np.testing.assert_allclose(Of(dist.Cauchy).fill(cauchy, gap, jnp.array([[0.5, 0.5]])), [[2.0]])  # the medians
    heavy = {"alpha": np.array([[0.5], [3.0]]), "scale": np.ones((2, 1))}
    np.testing.assert_allclose(Of(dist.Pareto).fill(heavy, gap, jnp.array([[0.0, 1.0]])), [[1.5]])
    nothing = Of(lambda df, loc: dist.StudentT(df, loc)), {"df": np.array([[0.5], [3.0]]), "loc": np.ones((2, 1))}
    filled = [nothing[0].fill(nothing[1], gap, jnp.array([share]))[0, 0] for share in ([0.5, 0.5], [0.0, 1.0])]
    assert not np.isinf(filled[0]) and filled[1] == 1.0


def test_a_distribution_without_a_mean_says_so(x64):
    class Bare(dist.Distribution):
        def __init__(self, rate):
            self.rate = rate
            super().__init__(jnp.shape(rate))

        def log_prob(self, value):
            return jnp.log(self.rate) - self.rate * value

    family, params = Of(Bare), {"rate": np.ones((2, 1))}
    np.testing.assert_allclose(family.log_prob(params, jnp.array([[2.0], [NAN]])), [[-2.0, -2.0], [0.0, 0.0]])
    assert not family.fills_mode(params)
    with pytest.raises(TypeError, match="Of: its distribution has no mean; define condition"):
        family.fill(params, jnp.array([[NAN]]), jnp.array([[0.5, 0.5]]))
