"""The laws over the whole table of families, wrong families that must break the right law, and the contract's errors."""

import dataclasses
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from scipy import integrate as scipy_integrate
from scipy import stats

import bayesgen
from bayesgen import families
from bayesgen.families import Bernoulli, Categorical, Family, Gaussian, Labels, Multinomial, NormalWishart, Poisson
from bayesgen.families.contract import check_contract
from bayesgen.laws import LawBroken, check_family
from bayesgen.laws.case import make_case
from bayesgen.laws.draws import transforms
from bayesgen.laws.quadrature import SHIFTS, integrate


class Exponential(Family):
    """A family in two methods."""

    prior_rate: float = 1.0

    def model(self, num_classes, num_features):
        with numpyro.plate("class", num_classes):
            prior = dist.Gamma(3.0, self.prior_rate).expand([num_features]).to_event(1)
            return {"rate": numpyro.sample("rate", prior)}

    def distribution(self, params):
        return dist.Exponential(params["rate"]).to_event(1)


class SkewedRow(Family):
    """Two columns that depend on each other, NaN left to the base: x_0 is normal, x_1 lies about x_0."""

    def model(self, num_classes, num_features):
        scale = numpyro.sample("scale", dist.Gamma(3.0, 2.0))
        with numpyro.plate("class", num_classes):
            return {"mean": numpyro.sample("mean", dist.Normal(0.0, 3.0)), "scale": scale}

    def distribution(self, params):
        mean = jnp.stack([params["mean"], params["mean"]], -1)
        cov = params["scale"] ** 2 * jnp.array([[1.0, 0.9], [0.9, 1.0]])
        return dist.MultivariateNormal(mean, jnp.broadcast_to(cov, (*params["mean"].shape, 2, 2)))


# -- right families
EVERY = {0, 1, 2, 3, 4, 5, 6, 9}
OWN = EVERY - {5, 6}
# a tied covariance or another prior changes what is learned, not the density of a class once it is learned
LEARNED = {0, 5, 6}
RIGHT = {
    "gaussian-full": (Gaussian("full"), EVERY),
    "gaussian-full-tied": (Gaussian("full", tied=True), LEARNED),
    "gaussian-diag": (Gaussian("diag"), EVERY - {4}),
    "gaussian-diag-tied": (Gaussian("diag", tied=True), LEARNED),
    "gaussian-spherical": (Gaussian("spherical"), EVERY),
    "gaussian-spherical-tied": (Gaussian("spherical", tied=True), LEARNED),
    "gaussian-flat": (Gaussian("diag", prior=NormalWishart(0.0, 0.0, 0.0, 0.0)), LEARNED),
    "bernoulli": (Bernoulli(alpha=0.5), EVERY),
    "categorical": (Categorical(sizes=(3, 2)), EVERY),
    "multinomial": (Multinomial(total=4.0), EVERY - {2, 4}),
    "poisson": (Poisson(alpha=0.5, beta=0.3), EVERY - {4}),
    "exponential": (Exponential(), OWN),
    "skewed-row": (SkewedRow(), {0, 1, 3}),
}
READY_MADE = {"LogNormal": OWN, "Gamma": {0, 1, 2, 3}, "StudentT": {0, 1, 3, 4}, "NegativeBinomial": {0, 1, 2, 3}}


@pytest.mark.parametrize("name", list(RIGHT))
def test_right_families_pass(name):
    family, laws = RIGHT[name]
    report = check_family(family, laws=laws - {0})
    assert set(report.law[report.passed == True]) == laws | ({9} if 6 in laws else set())  # noqa: E712
    assert set(report.columns) == {"law", "name", "checked", "largest_error", "passed", "note"}
    assert (report.passed.isna() == report.note.str.startswith("not checked: ")).all()


@pytest.mark.parametrize("name", list(READY_MADE))
def test_ready_made_families_pass(name):
    laws = READY_MADE[name]
    report = check_family(getattr(families, name)(), num_features=1, laws=laws - {0})
    assert set(report.law[report.passed == True]) == laws  # noqa: E712


def test_a_family_in_less_than_thirty_lines_passes_with_other_classes_and_data():
    assert len(inspect.getsource(Exponential).splitlines()) < 30
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 20)
    check_family(Exponential(), data=(rng.exponential(1e6, (60, 1)), y), laws=[1, 3])
    assert bayesgen.check_family is check_family


def test_three_columns_and_what_cannot_be_checked():
    report = check_family(Gaussian("spherical"), num_classes=3, num_features=3, laws=[1, 2])
    assert report.checked.tolist() == [
        "shapes and types",
        "a row of missing cells",
        "cells integrated out",
        "pairs of columns",
    ]
    report = check_family(SkewedRow(), laws=[2, 4]).set_index("checked")
    assert report.note["cells integrated out"].startswith("not checked: log_prob gives NaN")
    assert "columns are not independent" in report.note["filled cells"]


class Laplace(Exponential):
    """A kink at the median, where a grid would like to have an edge."""

    def distribution(self, params):
        return dist.Laplace(0.3, params["rate"]).to_event(1)


class Cauchy(Exponential):
    def distribution(self, params):
        return dist.Cauchy(0.0, params["rate"]).to_event(1)


class Angles(Exponential):
    def distribution(self, params):
        return dist.VonMises(1.0, params["rate"]).to_event(1)


@pytest.mark.parametrize(("family", "missing"), [(Laplace(), 0), (Cauchy(), 1), (Angles(), 1)])
def test_kinks_heavy_tails_and_angles(family, missing):
    report = check_family(family, num_features=1, laws=[1, 3, 4])
    assert report.note.str.contains("does not exist").sum() == missing


# -- the numeric side against SciPy
@pytest.mark.parametrize("name", ["LogNormal", "StudentT", "NegativeBinomial"])
def test_integrals_are_scipys(name, x64):
    density = make_case(getattr(families, name)(), 2, 1, None, jax.random.key(0)).densities[1]
    params = {key: np.asarray(value)[1, 0] for key, value in density.family.public(density.params).items()}
    law = {
        "LogNormal": lambda q: stats.lognorm(q["scale"], scale=np.exp(q["loc"])),
        "StudentT": lambda q: stats.t(q["df"], q["loc"], q["scale"]),
        "NegativeBinomial": lambda q: stats.nbinom(
            q["concentration"], q["concentration"] / (q["concentration"] + q["mean"])
        ),
    }[name](params)
    rows = density.draws[1][:500]
    if name == "NegativeBinomial":
        u = transforms(density, 1, 0, rows, np.random.default_rng(3))
        low, high = law.cdf(rows[:, 0] - 1), law.cdf(rows[:, 0])
        np.testing.assert_allclose(u, low + np.random.default_rng(3).random(500) * (high - low), atol=1e-8)
        return
    np.testing.assert_allclose(transforms(density, 1, 0, rows, None), law.cdf(rows[:, 0]), atol=1e-8)
    lines = density.lines(1, 0, np.full((1, 1), np.nan))
    found = integrate(lines, lines.edges(SHIFTS[1]), moments=True)
    np.testing.assert_allclose(found.moment.sum() / found.mass.sum(), law.mean(), rtol=1e-8)


def test_integrals_over_planes_are_scipys(x64):
    density = make_case(SkewedRow(), 2, None, None, jax.random.key(0)).densities[0]
    row = density.draws[0, :1]
    mean, scale = (np.asarray(density.params[key]) for key in ("mean", "scale"))
    cov = scale**2 * np.array([[1.0, 0.9], [0.9, 1.0]])
    line = lambda v: stats.multivariate_normal(np.full(2, mean[0]), cov).pdf([row[0, 0], v])  # noqa: E731
    below = scipy_integrate.quad(line, -np.inf, row[0, 1], epsabs=1e-13)[0]
    whole = scipy_integrate.quad(line, -np.inf, np.inf, epsabs=1e-13)[0]
    np.testing.assert_allclose(transforms(density, 0, 1, row, None), below / whole, atol=1e-8)


# -- wrong families
class Short(dist.Exponential):
    """A density that is a fifth too small."""

    def log_prob(self, value):
        return super().log_prob(value) + jnp.log(0.8)


class MissingConstant(Exponential):
    def distribution(self, params):
        return Short(params["rate"]).to_event(1)


class OneColumnTooMuch(Exponential):
    def cell_log_prob(self, params, x):
        return super().cell_log_prob(params, x) + jnp.where(jnp.isnan(x), 0.0, jnp.array([0.0, 0.1]))[:, None, :]


class NotANumber(Exponential):
    def cell_log_prob(self, params, x):
        return jnp.where(x[:, None, :] > 1.0, jnp.nan, super().cell_log_prob(params, x))


class Endless(Exponential):
    """Uniform up to a number to be learned, and beyond it too."""

    def distribution(self, params):
        return dist.Uniform(0.0, params["rate"]).to_event(1)

    def log_prob(self, params, x, cells=None):
        return jnp.sum(jnp.where(jnp.isnan(x)[:, None, :], 0.0, -jnp.log(params["rate"])), -1)


class OtherScale(Exponential):
    def sample(self, key, params, y):
        return 1.1 * super().sample(key, params, y)


class OwnWay(SkewedRow):
    """The right marginals, drawn as if the columns were independent."""

    def sample(self, key, params, y):
        return params["mean"][y][:, None] + params["scale"] * jax.random.normal(key, (len(y), 2))


class SameWay(Exponential):
    """The right marginals, drawn as if the columns were one."""

    def sample(self, key, params, y):
        return jax.random.exponential(key, (len(y), 1)) / params["rate"][y]


class OtherCounts(Poisson):
    def sample(self, key, params, y):
        rows = super().sample(key, params, y)
        return jnp.where(rows == 0, 1.0, rows)


class TooManyEvents(Multinomial):
    def sample(self, key, params, y):
        return super().sample(key, params, y).at[:, 0].add(1.0)


class FilledWithMean(Gaussian):
    """Missing cells at the mean instead of integrated out."""

    def log_prob(self, params, x, cells=None):
        value = jnp.where(jnp.isnan(x)[:, None, :], params["mean"], x[:, None, :])
        nothing = jnp.isnan(x).all(-1)[:, None]
        return jnp.where(nothing, 0.0, self.distribution(params).log_prob(value))


class HeedlessMean(Gaussian):
    def condition(self, params, x, cells=None):
        return jnp.where(jnp.isnan(x)[:, None, :], params["mean"], x[:, None, :])


class HeedlessDraws(Gaussian):
    def complete(self, key, params, x, y, cells=None):
        return jnp.where(jnp.isnan(x), self.sample(key, params, y), x)


class RuinedCells(Exponential):
    def complete(self, key, params, x, y, cells=None):
        return super().complete(key, params, x, y) * 1.0001


class OtherPrior(Bernoulli):
    """The prior of `model` is Beta(1 + α, 1 + α), that of `update` another."""

    def update(self, stats):
        return dataclasses.replace(super().update(stats), alpha=self.alpha + 0.5)


class OtherMap(Bernoulli):
    def map(self, stats):
        return self.mle(stats)


class OtherPredictive(Poisson):
    def predictive(self):
        return {"rate": self.expectation()["rate"]}


class NoFactorials(Poisson):
    def log_likelihood(self, params, stats):
        return super().log_likelihood(params, stats) - jnp.sum(stats.constant)


class OtherEvidence(Bernoulli):
    def log_evidence(self, stats, num_classes, num_features):
        return super().log_evidence(stats, num_classes, num_features) + 0.01


class LastMeanWins(Gaussian):
    def merge(self, a, b):
        return super().merge(a, b)._replace(mean=b.mean)


class NeverForgets(Bernoulli):
    def remove(self, a, b):
        return a


class FirstClassFirst(Exponential):
    def log_prob(self, params, x, cells=None):
        return super().log_prob(params, x) + jnp.arange(params["rate"].shape[0])


class Crowd(Exponential):
    def log_prob(self, params, x, cells=None):
        return super().log_prob(params, x) + 0.1 * jnp.nanmean(x[:2])


ONE = {"num_features": 1}
WRONG = {
    "constant": (MissingConstant(), ONE, 1, "the density integrates to one: class 0, column 0 integrates to 0.8000 "),
    "constant of a column": (OneColumnTooMuch(), {}, 1, f"class 0, column 1 integrates to {np.exp(0.1):.4f} "),
    "not a number": (NotANumber(), ONE, 1, "class 0, column 0 integrates to nan "),
    "outside": (Endless(), ONE, 1, "outside its support from 0 to "),
    "missing cells": (FilledWithMean("full"), {}, 2, "a missing cell leaves the marginal: class 0, column 1 = "),
    "missing cells of three": (FilledWithMean("full"), {"num_features": 3}, 2, "leaves the marginal: class 0, "),
    "sampler": (OtherScale(), ONE, 3, "drawn rows follow the density: class 0, column 0: the distribution function"),
    "independent draws": (OwnWay(), {"laws": [3]}, 3, "class 0, column 0: the distribution function of the density at 300"),
    "dependent draws": (SameWay(), {"laws": [3]}, 3, "drawn columns 1 and 0 depend on each other otherwise than in"),
    "counts": (OtherCounts(), ONE | {"laws": [3]}, 3, "column 0: the distribution function of the density at 4000 draws"),
    "total": (TooManyEvents(total=4.0), {"laws": [3]}, 3, "a row was drawn that does not add up to 4"),
    "conditional mean": (
        HeedlessMean("full"),
        {},
        4,
        "the conditional is joint over marginal: class 0, column 0: condition",
    ),
    "conditional draws": (HeedlessDraws("full"), {"laws": [4]}, 4, "the conditional is joint over marginal: class 0"),
    "observed cells": (RuinedCells(), {"laws": [4]}, 4, "complete changed observed cells beside column 0"),
    "prior": (OtherPrior(), ONE, 5, "the closed form is the model: log p(θ) + log p(D | θ) − log q(θ | D)"),
    "map": (OtherMap(), ONE | {"laws": [5]}, 5, "map is not at the maximum: the log posterior rises by"),
    "predictive": (OtherPredictive(), ONE | {"laws": [5]}, 5, "predictive gives row"),
    "likelihood": (NoFactorials(), ONE | {"laws": [5]}, 5, "log_likelihood of the statistics is "),
    "evidence": (OtherEvidence(), ONE | {"laws": [5]}, 5, "log_evidence is "),
    "merge": (LastMeanWins("diag"), {"laws": [6]}, 6, "merged halves are the whole, and removing undoes it: merge of"),
    "remove": (NeverForgets(), {"laws": [6]}, 6, "remove of the second half differs by"),
    "classes": (FirstClassFirst(), ONE | {"laws": [9]}, 9, "the density of a class depends on its place"),
    "rows": (Crowd(), ONE | {"laws": [9]}, 9, "with the rows around it"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_wrong_families_break_the_right_law(name):
    family, arguments, law, words = WRONG[name]
    with pytest.raises(LawBroken, match=re.escape(words)) as caught:
        check_family(family, **arguments)
    assert caught.value.law == law
    assert str(caught.value).startswith(f"law {law}, ")
    assert isinstance(caught.value, AssertionError)


def test_arguments_of_check_family():
    with pytest.raises(ValueError, match=re.escape("laws=[7]: the laws are [1, 2, 3, 4, 5, 6, 9].")):
        check_family(Exponential(), laws=[7])
    with pytest.raises(TypeError, match="A family is an instance: give Exponential\\(\\), not Exponential."):
        check_family(Exponential)
    with pytest.raises(ValueError, match=re.escape("data: x has shape (3,) and there are 3 labels; (n, p) finite cells")):
        check_family(Exponential(), data=([1.0, 2.0, 3.0], [0, 1, 0]))
    with pytest.raises(ValueError, match="give a proper one"):
        check_family(Improper())


# -- the contract
class Improper(Exponential):
    def model(self, num_classes, num_features):
        with numpyro.plate("class", num_classes):
            prior = dist.ImproperUniform(constraints.positive, (), (num_features,))
            return {"rate": numpyro.sample("rate", prior)}


def changed(base=Exponential, **methods):
    """A subclass with other methods."""
    return type("Mine", (base,), methods)()


def _columns(p):
    return dist.Gamma(2.0, 1.0).expand([p]).to_event(1)


def _in_plate(prior):
    def model(self, k, p):
        with numpyro.plate("class", k):
            return {"rate": numpyro.sample("rate", prior(p))}

    return model


def _branch(self, params):
    return dist.Exponential(params["rate"]).to_event(1) if params["rate"][0, 0] > 0 else None


def _discrete(self, k, p):
    return Exponential.model(self, k, p) | {"kind": numpyro.sample("kind", dist.Bernoulli(0.5))}


BROKEN = {
    "a class": (Exponential, TypeError, "give Exponential(), not Exponential."),
    "a name": (
        "exponential",
        TypeError,
        "str 'exponential' is not a family: inherit from bayesgen.Family and define model(",
    ),
    "no model": (type("Bare", (Family,), {})(), TypeError, "Bare has no method model: define model(self, num_classes, num_"),
    "no distribution": (
        type("Bare", (Family,), {"model": Exponential.model})(),
        TypeError,
        "Bare has no method distribution: define distribution(self, params).",
    ),
    "returns nothing": (
        changed(model=lambda self, k, p: [numpyro.sample("rate", _columns(p))].clear()),
        TypeError,
        "Mine.model returned None: end it with return a dict",
    ),
    "returns an array": (
        changed(model=lambda self, k, p: numpyro.sample("rate", _columns(p))),
        TypeError,
        "Mine.model returned an array of shape (3,): return a dict of the parameters",
    ),
    "returns a nested dict": (
        changed(model=lambda self, k, p: {"inner": Exponential.model(self, k, p)}),
        TypeError,
        "Mine.model returned a dict with 'inner': dict",
    ),
    "no sample statement": (
        changed(model=lambda self, k, p: {"rate": jnp.ones((k, p))}),
        ValueError,
        "Mine.model has no numpyro.sample statement",
    ),
    "discrete": (
        changed(model=_discrete),
        ValueError,
        "the site 'kind' is discrete (BernoulliProbs). Discrete parameters are",
    ),
    "improper": (Improper(), ValueError, "Improper.model: the site 'rate' has an improper prior"),
    "no plate": (
        changed(model=lambda self, k, p: {"rate": numpyro.sample("rate", _columns(p))}),
        ValueError,
        "not (2,) and (3,), for 2 classes and 3 columns. No class axis: 'rate' has shape (3,) in Mine.model. Sample it "
        'inside `with numpyro.plate("class", num_classes):`',
    ),
    "no event in the plate": (
        changed(model=_in_plate(lambda p: dist.Gamma(jnp.ones(p), 1.0))),
        ValueError,
        "Inside the plate the columns of a parameter are its event: add .to_event(1) to its prior.",
    ),
    "no columns": (
        changed(model=_in_plate(lambda p: dist.Gamma(2.0, 1.0))),
        ValueError,
        "The parameters are rate (2,). A row needs a column axis: sample parameters with .expand([num_features])",
    ),
    "no event": (
        changed(distribution=lambda self, params: dist.Exponential(params["rate"])),
        ValueError,
        "batch shape (2, 3) and event shape (), not (2,) and (3,), for 2 classes and 3 columns. The columns must be part of "
        "the event: add .to_event(1).",
    ),
    "another event": (
        changed(distribution=lambda self, params: dist.Exponential(params["rate"][:, :2]).to_event(1)),
        ValueError,
        "batch shape (2,) and event shape (2,), not (2,) and (3,)",
    ),
    "not a distribution": (
        changed(distribution=lambda self, params: params["rate"]),
        TypeError,
        "Mine.distribution returned an array of shape (2, 3): return a NumPyro distribution.",
    ),
    "nothing for a distribution": (
        changed(distribution=lambda self, params: None),
        TypeError,
        "Mine.distribution returned None: end it with return a NumPyro distribution.",
    ),
    "an error in distribution": (
        changed(distribution=lambda self, params: params["mean"]),
        ValueError,
        "Mine.distribution with 2 classes and 3 columns raised KeyError: 'mean' (parameters: rate (2, 3))",
    ),
    "an error in model": (
        changed(model=lambda self, k, p, q: None),
        TypeError,
        "Mine.model with 2 classes and 3 columns raised TypeError: ",
    ),
    "python on arrays": (changed(distribution=_branch), TypeError, "The method must run under jax.jit"),
    "log_prob without cells": (
        changed(log_prob=lambda self, params, x: jnp.zeros((len(x), 2))),
        TypeError,
        "It is called as log_prob(params, x, cells).",
    ),
    "log_prob the other way round": (
        changed(log_prob=lambda self, params, x, cells=None: jnp.zeros((2, len(x)))),
        ValueError,
        "Mine.log_prob with 2 classes and 3 columns returned shape (2, 6) for 6 rows, not (6, 2): (rows, classes).",
    ),
    "sample without columns": (
        changed(sample=lambda self, key, params, y: jnp.zeros(len(y))),
        ValueError,
        "Mine.sample with 2 classes and 3 columns returned shape (6,) for 6 rows, not (6, 3): (rows, columns).",
    ),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_broken_contracts(name):
    family, kind, words = BROKEN[name]
    with pytest.raises(kind, match=re.escape(words)) as caught:
        check_contract(family, 2, 3)
    assert (caught.value.__cause__ is not None) == (" raised " in str(caught.value))


def test_class_axis_is_missed_even_where_classes_are_as_many_as_columns():
    family, _, _ = BROKEN["no plate"]
    with pytest.raises(ValueError, match="No class axis: 'rate' has shape \\(3,\\)"):
        check_contract(family, 3, 3)


def test_contract_holds_for_every_family_whatever_the_sizes():
    x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    made = [Gaussian(c, t).resolve(x, Labels(y, 2)) for c in ("full", "diag", "spherical") for t in (False, True)]
    for family in [*made, Bernoulli(), Categorical(sizes=(3, 2, 4)), Multinomial(total=4.0), Poisson(), Exponential()]:
        for num_classes in (1, 2, 3):
            check_contract(family, num_classes, 3)
    check_contract(SkewedRow(), 2, 2)  # one scale for all the classes
    for unresolved in (Gaussian(), Categorical(), Multinomial()):
        check_contract(unresolved, 2, 3)


def test_contract_compiles_nothing():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
    check_contract(changed(), 3, 2)
    assert not [event for event in compiled if "backend_compile" in event]
