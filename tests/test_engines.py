"""Engines against closed forms: optimiser, NUTS, Gibbs, variational, Laplace, on statistics and on rows."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from conftest import STRUCTURES, holes, make_rows
from numpyro.diagnostics import effective_sample_size
from scipy import stats

from bayesgen import QDA, Family, GaussianNB, GenerativeClassifier, LogNormal
from bayesgen.families import Bernoulli, Categorical, Gaussian, Labels, NormalWishart, Poisson
from bayesgen.inference import NUTS, SVI, Gibbs, Laplace, gibbs, laplace, nuts, optimise, target, variational

K, D = 2, 2
X, Y = make_rows(0, 80, D, K)
LABELS = Labels(Y, K)
DISCRETE = {"bernoulli": Bernoulli(0.5), "categorical": Categorical(0.5, sizes=(3, 2)), "poisson": Poisson(0.5, 0.7)}


def discrete_rows(name):
    rng = np.random.default_rng(3)
    high = {"bernoulli": (2, 2), "categorical": (3, 2), "poisson": (6, 4)}[name]
    return np.stack([rng.integers(0, c, len(Y)) for c in high], 1).astype(float)


def case(name):
    """(resolved family, rows) of a Gaussian structure ("full-tied") or a discrete family."""
    if name in DISCRETE:
        return DISCRETE[name], discrete_rows(name)
    structure, tie = name.split("-")
    return Gaussian(structure, tie == "tied").resolve(X, LABELS), X


CASES = [f"{s}-{'tied' if t else 'free'}" for s, t in STRUCTURES] + list(DISCRETE)
FEW = ["full-free", "diag-tied", "spherical-free", *DISCRETE]


def on_statistics(family, rows):
    return target.Problem(family, family.stats(rows, LABELS), K, D)


def on_rows(family, rows, labels=LABELS):
    return target.Problem(family, target.Rows.of(rows, labels), K, D)


def exact_draws(family, stats_, num=20_000):
    posterior = family.update(stats_)
    if hasattr(family, "host_draws"):
        return posterior.host_draws(np.random.default_rng(0), num, K, D)
    draw = jax.jit(jax.vmap(lambda key: posterior.draw(key, K, D)), compiler_options={"xla_backend_optimization_level": 0})
    return {k: np.asarray(v) for k, v in draw(jax.random.split(jax.random.key(5), num)).items()}


def agree(found, want):
    """Means within 4 Monte-Carlo standard errors, standard deviations within 10%."""
    for name, value in found.draws.items():
        flat = value.reshape(*value.shape[:2], -1)
        reference = np.asarray(want[name]).reshape(len(want[name]), -1)
        varies = reference.std(0) > 0
        flat, reference = flat[..., varies], reference[:, varies]
        error = reference.std(0) * np.sqrt(1 / effective_sample_size(flat) + 1 / len(reference))
        np.testing.assert_array_less(np.abs(flat.mean((0, 1)) - reference.mean(0)), 4 * error)
        np.testing.assert_allclose(flat.std((0, 1)), reference.std(0), rtol=0.1)


# -- posteriors
@pytest.mark.parametrize("name", CASES)
def test_nuts_and_gibbs_agree_with_the_exact_posterior(name, x64):
    family, rows = case(name)
    problem = on_statistics(family, rows)
    want = exact_draws(family, problem.data)
    found = nuts.run(problem, jax.random.key(0), 4000, NUTS())
    agree(found, want)
    assert found.diagnostics["divergences"] == 0 and found.diagnostics["r_hat"] < 1.01
    assert {len(v) for v in found.statistics.values()} == {4} and found.statistics["diverging"].shape == (4, 1000)
    agree(gibbs.run(gibbs.Augmented.of_family(family, rows, LABELS), jax.random.key(1), 4000, Gibbs()), want)


def test_gibbs_fills_missing_cells_as_nuts_integrates_them_out(x64):
    rows = holes(X, 0.25)
    family = Gaussian("full", True).resolve(rows, LABELS)
    a = gibbs.run(gibbs.Augmented.of_family(family, rows, LABELS), jax.random.key(0), 8000, Gibbs())
    b = nuts.run(on_rows(family, rows), jax.random.key(1), 4000, NUTS(progress=False))
    agree(a, {name: value.reshape(-1, *value.shape[2:]) for name, value in b.draws.items()})


@pytest.mark.parametrize("structure", [("full", False), ("diag", True), ("spherical", False)], ids=str)
def test_pooled_means_by_gibbs_and_by_nuts(structure, x64):
    family = Gaussian(*structure, NormalWishart(0.5, 0.5, D + 30.0, 60.0), pooling=True).resolve(X, LABELS)
    a = gibbs.run(gibbs.Augmented.of_family(family, X, LABELS), jax.random.key(0), 8000, Gibbs())
    b = nuts.run(on_statistics(family, X), jax.random.key(1), 4000, NUTS())
    agree(a, {name: value.reshape(-1, *value.shape[2:]) for name, value in b.draws.items()})


def test_variational_and_laplace_are_near_on_many_rows_and_honest_on_few(x64):
    family = Gaussian("diag").resolve(X, LABELS)
    stats_ = family.stats(X, LABELS)
    many = stats_._replace(weight=stats_.weight * 100, scatter=stats_.scatter * 100)
    for part, sd_within in ((many, 0.1), (stats_, 0.25)):
        want = exact_draws(family, part)
        problem = target.Problem(family, part, K, D)
        for found in (
            laplace.run(problem, jax.random.key(0), 4000, Laplace()),
            variational.run(problem, jax.random.key(0), 4000, SVI()),
            variational.run(problem, jax.random.key(0), 4000, SVI("normal")),
        ):
            for name, value in found.draws.items():
                sd = want[name].std(0)
                np.testing.assert_allclose(value[0].std(0), sd, rtol=sd_within)
                assert np.abs(value[0].mean(0) - want[name].mean(0)).max() < (0.1 + 2 * sd_within**2) * sd.max() * 3


def test_the_bound_rises_to_below_the_evidence(x64):
    family = Poisson(0.5, 0.7)
    rows = discrete_rows("poisson")
    problem = on_statistics(family, rows)
    found = variational.run(problem, jax.random.key(0), 500, SVI(steps=1000))
    elbo = found.diagnostics["elbo"]
    evidence = float(family.log_evidence(problem.data, K, D))
    assert len(elbo) == 1000 and found.diagnostics["converged"]
    # the posterior of a log rate is nearly normal: the bound is nearly the evidence, and not above it
    assert evidence - 0.05 < elbo[-200:].mean() < evidence + 4 * elbo[-200:].std() / np.sqrt(200)


def test_mini_batches_find_what_all_the_rows_say(x64):
    rng = np.random.default_rng(0)
    rows, codes = rng.normal(size=(20_000, 1)) * 2 + 1, rng.integers(0, 2, 20_000)
    family = LogNormal().resolve(np.exp(rows), Labels(codes, 2))
    problem = target.Problem(family, target.Rows.of(np.exp(rows), Labels(codes, 2)), 2, 1)
    found = variational.run(problem, jax.random.key(0), 2000, SVI(steps=1000, batch_rows=1024, progress=False))
    same = Gaussian("diag").resolve(rows, Labels(codes, 2))
    want = exact_draws_of(same.update(same.stats(rows, Labels(codes, 2))))
    loc = family.public({k: v[0] for k, v in found.draws.items()})["loc"]
    np.testing.assert_allclose(loc.mean(0), want["mean"].mean(0), atol=0.5 * want["mean"].std(0).max())
    np.testing.assert_allclose(loc.std(0), want["mean"].std(0), rtol=0.25)


def exact_draws_of(posterior, num=4000):
    draws = jax.vmap(lambda key: posterior.draw(key, 2, 1))(jax.random.split(jax.random.key(2), num))
    return {k: np.asarray(v) for k, v in draws.items()}


# -- modes
@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("method", ["mle", "map"])
def test_the_optimiser_finds_the_closed_form_from_the_rows(name, method, x64):
    family, rows = case(name)
    problem = on_rows(family, rows)
    best = optimise.maximise(problem, target.starts(problem, jax.random.key(0), 3), prior=method == "map", jacobian=False)
    want = getattr(family, method)(family.stats(rows, LABELS))
    assert best.converged and best.n_iter > 0
    for key, value in target.constrained(problem, best.flat[None]).items():
        np.testing.assert_allclose(value[0], want[key], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", FEW)
def test_rows_and_statistics_have_the_same_density(name, x64):
    family, rows = case(name)
    weight = np.random.default_rng(0).uniform(0, 2, len(rows))
    labels = Labels(Y, K, weight)
    a = target.Problem(family, family.stats(rows, labels), K, D)
    b = target.Problem(family, target.Rows.of(rows, labels), K, D)
    for u in np.random.default_rng(1).normal(size=(3, target.dimension(a))):
        np.testing.assert_allclose(target.log_density(a, u), target.log_density(b, u), rtol=1e-10)


def test_coordinates_and_back(x64):
    family, rows = case("full-free")
    problem = on_statistics(family, rows)
    theta = family.update(problem.data).centre()
    u = target.coordinates(problem, theta)
    params = target.evaluate(problem, target.unflatten(problem, u)).params
    np.testing.assert_allclose(params["precision"], theta["precision"], rtol=1e-9)
    # with the Jacobian the density of u is that of θ times |dθ/du|
    with_, without = (float(target.log_density(problem, u, jacobian=j)) for j in (True, False))
    point = target.evaluate(problem, target.unflatten(problem, u))
    np.testing.assert_allclose(with_ - without, point.log_jacobian, rtol=1e-9)


def test_the_hessian_by_differences_is_jaxs(x64):
    family, rows = case("spherical-free")
    problem, options = on_statistics(family, rows), {"prior": True, "jacobian": True}
    u = target.starts(problem, jax.random.key(0), 1).places[0] + 0.1
    want = -jax.hessian(lambda v: target.log_density(problem, v))(jnp.asarray(u))
    got = optimise._Surface(problem, np.ones(len(u)), options).curvature(u, np.full(len(u), 1e-5))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())


class Kinked(Family):
    """A density with a kink, whose second derivatives say nothing."""

    def model(self, num_classes, num_features):
        with numpyro.plate("class", num_classes):
            loc = numpyro.sample("loc", dist.Normal(0.0, 10.0).expand([num_features]).to_event(1))
            scale = numpyro.sample("scale", dist.HalfNormal(5.0).expand([num_features]).to_event(1))
        return {"loc": loc, "scale": scale}

    def distribution(self, params):
        return dist.Laplace(params["loc"], params["scale"]).to_event(1)


def test_a_density_with_a_kink(x64):
    odd = np.concatenate([np.flatnonzero(k == Y)[: (np.sum(k == Y) - 1) // 2 * 2 + 1] for k in range(K)])
    rows, labels = X[odd], Labels(Y[odd], K)
    problem = on_rows(Kinked(), rows, labels)
    best = optimise.maximise(problem, target.starts(problem, jax.random.key(0), 2), prior=False, jacobian=False)
    assert best.converged
    params = target.constrained(problem, best.flat[None])
    for k in range(K):
        mine = rows[labels.codes == k]
        np.testing.assert_allclose(params["loc"][0, k], np.median(mine, 0), atol=1e-6)
        np.testing.assert_allclose(params["scale"][0, k], np.abs(mine - np.median(mine, 0)).mean(0), rtol=1e-5)
    with pytest.raises(laplace.NoCurvature, match="kink|strict"):
        laplace.run(problem, jax.random.key(0), 10, Laplace())


# -- programs
def test_other_rows_and_other_numbers_compile_nothing_anew(x64):
    family, _ = case("diag-free")
    nuts.run(target.Problem(family, family.stats(X, LABELS), K, D), jax.random.key(0), 100, NUTS())
    before = nuts._advance._cache_size(), optimise._slope._cache_size()
    rows, codes = make_rows(1, 5000, D, K)
    other = Gaussian("diag", prior=NormalWishart(1.0, 2.0, 5.0, 3.0)).resolve(rows, Labels(codes, K))
    nuts.run(target.Problem(other, other.stats(rows, Labels(codes, K)), K, D), jax.random.key(1), 60, NUTS())
    assert (nuts._advance._cache_size(), optimise._slope._cache_size()) == before
    on = on_rows(family, X[:70], Labels(Y[:70], K)), on_rows(family, X[:75], Labels(Y[:75], K))
    for problem in on:
        optimise.slope(problem, np.zeros(8), {"prior": True, "jacobian": True})
    assert optimise._slope._cache_size() == before[1] + 1


def test_work_does_not_grow_with_the_rows(x64):
    """Steps of the sampler, which is what its time is made of: a thousand times the rows, no more steps."""
    family, _ = case("full-free")
    stats_ = family.stats(X, LABELS)
    many = stats_._replace(weight=stats_.weight * 10_000, scatter=stats_.scatter * 10_000)
    steps = [
        nuts.run(target.Problem(family, part, K, D), jax.random.key(0), 400, NUTS()).statistics["n_steps"].mean()
        for part in (stats_, many)
    ]
    assert steps[1] < 1.3 * steps[0]


# -- estimators
class Waiting(Family):
    """Exponential waiting times: the posterior of a rate is Gamma(a + n, b + Σx), so that everything is known."""

    a: float = 2.0
    b: float = 1.0

    def model(self, num_classes, num_features):
        with numpyro.plate("class", num_classes):
            prior = dist.Gamma(self.a, self.b).expand([num_features]).to_event(1)
            return {"rate": numpyro.sample("rate", prior)}

    def distribution(self, params):
        return dist.Exponential(params["rate"]).to_event(1)


@pytest.fixture(scope="module")
def waits():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60)
    x = rng.exponential(1 / np.array([[1.0, 4.0], [3.0, 0.5]])[y])
    x[rng.random(x.shape) < 0.15] = np.nan
    return x, np.array(["slow", "fast"])[y]


def of_class(waits, k):
    return waits[0][waits[1] == ["fast", "slow"][k]]


@pytest.fixture(scope="module", params=["nuts", "laplace", "svi"])
def sampled(request, waits):
    blocks = [(slice(None), Waiting())]
    return GenerativeClassifier(blocks, "posterior", request.param, num_draws=2000, random_state=0).fit(*waits)


def gamma_of(waits):
    n = np.array([(~np.isnan(of_class(waits, k))).sum(0) for k in range(2)])
    total = np.array([np.nansum(of_class(waits, k), 0) for k in range(2)])
    return 2.0 + n, 1.0 + total


def test_a_users_family_by_mle_and_map(waits):
    a, b = gamma_of(waits)
    for method, want in (("mle", (a - 2) / (b - 1)), ("map", (a - 1) / b)):
        clf = GenerativeClassifier([(slice(None), Waiting())], method).fit(*waits)
        np.testing.assert_allclose(clf.params_["rate"], want, rtol=1e-7)
        assert clf.engine_ == "optimiser" and clf.converged_ and clf.n_iter_ > 0
        rate = want[:, None, :]
        logs = np.log(clf.priors_)[:, None] + np.nansum(np.log(rate) - rate * waits[0], -1)
        np.testing.assert_allclose(clf.log_joint(waits[0]), logs.T, rtol=1e-6)
        assert not hasattr(clf, "merge") and not hasattr(clf, "partial_fit") and not hasattr(clf, "loo_predict_proba")
        with pytest.raises(AttributeError):
            _ = clf.log_evidence_


def test_weights_are_repeated_rows(waits):
    x, y = waits
    weight = np.random.default_rng(1).integers(0, 3, len(x))
    a = GenerativeClassifier([(slice(None), Waiting())]).fit(x, y, sample_weight=weight)
    b = GenerativeClassifier([(slice(None), Waiting())]).fit(np.repeat(x, weight, 0), np.repeat(y, weight))
    np.testing.assert_allclose(a.params_["rate"], b.params_["rate"], rtol=1e-7)


def test_posterior_of_a_users_family(sampled, waits):
    a, b = gamma_of(waits)
    assert sampled.draws_["rate"].shape == (2000, 2, 2)
    np.testing.assert_allclose(sampled.params_["rate"], a / b, rtol=0.03)
    np.testing.assert_allclose(sampled.draws_["rate"].std(0), np.sqrt(a) / b, rtol=0.1)
    # the predictive of an exponential with a Gamma rate is Lomax
    n = (waits[1][:, None] == ["fast", "slow"]).sum(0)
    logs = np.log((n + 1) / (n.sum() + 2))[:, None]
    x = np.where(np.isnan(waits[0]), -1.0, waits[0])
    cells = np.where(x < 0, 0.0, stats.lomax.logpdf(np.maximum(x, 0), a[:, None, :], scale=b[:, None, :]))
    want = (logs + cells.sum(-1)).T
    likely = want > -8  # far tails are made of the few draws of smallest rate
    near = 0.1 if sampled.engine_ == "nuts" else 0.25
    np.testing.assert_allclose(sampled.log_joint(waits[0])[likely], want[likely], atol=near)
    np.testing.assert_allclose(sampled.priors_, (n + 1) / (n.sum() + 2))


def test_uses_of_a_sampled_posterior(sampled, waits):
    a, b = gamma_of(waits)
    x, y = waits
    proba = sampled.predict_proba(x)
    np.testing.assert_allclose(proba.sum(1), 1.0)
    assert sampled.predict_proba_draws(x[:3]).shape == (2000, 3, 2)
    low, high = sampled.predict_proba_interval(x)
    assert np.all(low <= high)
    rows, labels = sampled.sample(4000, y="fast")
    # P(X > t) of the Lomax law
    for j in range(2):
        assert stats.kstest(rows[:, j], stats.lomax(a[0, j], scale=b[0, j]).cdf).pvalue > 1e-4
    filled = sampled.impute(x, y)
    gap = np.isnan(x)
    assert np.array_equal(filled[~gap], x[~gap])
    mean = (b / (a - 1))[(y == "slow").astype(int)]
    np.testing.assert_allclose(filled[gap], mean[gap], rtol=0.05)
    assert len(sampled.impute(x, draws=2)) == 2
    assert np.all(sampled.sample(3, given={0: 1.0})[0][:, 0] == 1.0)
    pvalues = sampled.outlier_pvalues(sampled.sample(400, random_state=1)[0])
    assert stats.kstest(pvalues, "uniform").pvalue > 1e-4
    table = sampled.explain(x[:5])
    total = table.groupby("row")["log_ratio"].sum()
    np.testing.assert_allclose(total, np.log(proba[:5, 1] / proba[:5, 0]), atol=1e-8)
    again = sampled.with_priors([0.9, 0.1])
    np.testing.assert_allclose(again.draws_["class_probs"], np.tile([0.9, 0.1], (2000, 1)))


def test_lognormal_is_gaussian_of_the_logarithms(waits):
    x, y = waits
    a, b = GaussianNB().fit(np.log(x), y), GenerativeClassifier([(slice(None), "lognormal")]).fit(x, y)
    np.testing.assert_allclose(b.params_["loc"], a.means_, atol=1e-7)
    np.testing.assert_allclose(b.params_["scale"] ** 2, a.params_["variance"], rtol=1e-6)
    np.testing.assert_allclose(b.predict_proba(x), a.predict_proba(np.log(x)), atol=1e-6)


@pytest.mark.parametrize("engine", ["nuts", "gibbs", "svi", "laplace"])
def test_every_engine_of_a_classifier_in_closed_form(engine):
    names = np.array(["a", "b"])[Y]
    want = QDA(method="posterior", random_state=0).fit(X, names)
    clf = QDA(method="posterior", engine=engine, random_state=0).fit(X, names)
    assert clf.engine_ == engine and want.engine_ == "exact"
    assert {k: v.shape for k, v in clf.draws_.items()} == {k: v.shape for k, v in want.draws_.items()}
    own = np.arange(len(Y)), Y
    np.testing.assert_allclose(clf.log_joint(X)[own], want.log_joint(X)[own], atol=0.2)
    np.testing.assert_allclose(clf.priors_, want.priors_, rtol=1e-15)  # other programs, which may round otherwise
    # statistics were kept: what closed forms give is still there, and more rows can come
    assert clf.log_evidence_ == want.log_evidence_
    np.testing.assert_array_equal(clf.loo_predict_proba(), want.loo_predict_proba())
    np.testing.assert_allclose(clf.discriminants(X), want.discriminants(X), atol=0.5, rtol=0.1)
    same = QDA(method="posterior", engine=engine, random_state=0).fit(X, names)
    np.testing.assert_array_equal(same.draws_["mean"], clf.draws_["mean"])
    more = clf.merge(same)
    assert more.engine_ == engine and more.draws_["mean"].std(0).max() < clf.draws_["mean"].std(0).max()


def test_full_covariances_are_trained_on_missing_cells():
    rows = holes(X, 0.2)
    clf = QDA(method="posterior", random_state=0).fit(rows, Y)
    assert clf.engine_ == "gibbs" and not hasattr(clf, "merge") and not hasattr(clf, "partial_fit")
    whole = QDA(method="posterior", random_state=0).fit(X, Y)
    # not those of the complete rows, but near them; and surer of nothing
    assert 1e-3 < np.abs(clf.means_ - whole.means_).max() < 2 * whole.draws_["mean"].std(0).max()
    assert np.all(clf.draws_["mean"].std(0) > 0.95 * whole.draws_["mean"].std(0))
    with pytest.raises(ValueError, match="fractions"):
        QDA(method="posterior").fit(rows, Y, sample_weight=np.full(len(Y), 0.5))


def test_blocks_have_the_engines_that_suit_them(waits):
    table = np.column_stack([np.nan_to_num(waits[0][:, 0], nan=1.0), np.arange(60.0) % 7, np.arange(60.0) % 3])
    blocks = [([0], Waiting()), ([1], "gaussian"), ([2], "categorical")]
    clf = GenerativeClassifier(blocks, "posterior", num_draws=200, random_state=0).fit(table, waits[1])
    assert clf.engine_ == {"waiting": "nuts", "gaussian": "exact", "categorical": "exact"}
    assert set(clf.draws_) == {"class_probs", "waiting.rate", "gaussian.mean", "gaussian.variance", "categorical.prob"}
    assert all(len(value) == 200 for value in clf.draws_.values())
    alone = GenerativeClassifier([([0, 1], "gaussian")], "posterior").fit(table[:, [1, 1]], waits[1])
    np.testing.assert_allclose(clf.params_["gaussian.mean"][:, 0], alone.params_["mean"][:, 0])
    assert set(clf.diagnostics_) == {"waiting"} and clf.diagnostics_["waiting"]["divergences"] == 0
    draws, statistics = clf._chained_draws()
    assert draws["gaussian.mean"].shape[:2] == statistics["diverging"].shape == (4, 50)


def test_class_probabilities_do_not_depend_on_the_engine():
    clf = QDA(method="posterior", engine="laplace", priors=[0.3, 0.7]).fit(X, Y)
    np.testing.assert_array_equal(clf.priors_, [0.3, 0.7])
    assert np.all(clf.draws_["class_probs"] == [0.3, 0.7])
