"""Simulation-based calibration: parameters from the prior, rows from the parameters, draws of the parameters from an engine.

If an engine draws from the posterior, the rank of each true parameter among L independent draws is uniform on 0, ..., L,
and so is the rank of any function of parameters and rows: the log likelihood is ranked too, since it sees how parameters
hang together. Priors are stated: one that looks at the rows is not the law that the truth came from.

Chains are not independent draws. RANKED of them are taken, evenly spaced, and a chain goes on until it is worth APART
times as many.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from scipy import stats

from bayesgen.families import (
    Bernoulli,
    Categorical,
    Family,
    Gamma,
    Gaussian,
    Labels,
    LogNormal,
    Multinomial,
    NegativeBinomial,
    NormalWishart,
    Poisson,
    StudentT,
)
from bayesgen.inference import NUTS, SVI, Gibbs, Laplace, exact, gibbs, laplace, nuts, target, variational
from bayesgen.joint import Block, ClassPrior, Joint

RANKED, APART = 19, 4
DRAWS, MOST_DRAWS = 400, 6400
CLASS_PRIOR = ClassPrior(1.0)
LOG_LIKELIHOOD = "log likelihood"


class Waiting(Family):
    """Exponential waiting times, as a user would write them."""

    shape: float = 3.0
    rate: float = 2.0

    def model(self, num_classes, num_features):
        with numpyro.plate("class", num_classes):
            prior = dist.Gamma(self.shape, self.rate).expand([num_features]).to_event(1)
            return {"rate": numpyro.sample("rate", prior)}

    def distribution(self, params):
        return dist.Exponential(params["rate"]).to_event(1)


class Case(NamedTuple):
    """A family with a stated prior, and the size of the tables drawn from it."""

    family: Any
    num_classes: int = 2
    num_features: int = 2
    rows: int = 20
    gaps: float = 0.0  # share of the cells that are missing, always the same ones

    def resolved(self) -> Any:
        """The family with its prior's numbers in full shape."""
        return self.family.resolve(np.empty((0, self.num_features)), Labels(np.empty(0, int), self.num_classes))

    def missing(self) -> np.ndarray:
        where = np.random.default_rng(0).random((self.rows, self.num_features)) < self.gaps
        where[0] = self.gaps > 0
        return where


def gaussian(covariance: str, tied: bool, d: int = 2, **options) -> Gaussian:
    scale = 2.0 if covariance == "spherical" else np.linspace(1, 2, d)
    return Gaussian(covariance, tied, NormalWishart(np.linspace(-1, 1, d), 0.8, d + 3.0, scale), **options)


STRUCTURES = {f"{s}, {'tied' if t else 'free'}": (s, t) for s in ("full", "diag", "spherical") for t in (False, True)}
GAUSSIAN = {f"Gaussian {name}": Case(gaussian(*s)) for name, s in STRUCTURES.items()}
COUNTS = {
    "Bernoulli": Case(Bernoulli(0.5)),
    "Categorical": Case(Categorical(0.5, sizes=(3, 2))),
    "Multinomial": Case(Multinomial(0.5, total=6.0), num_features=3),
    "Poisson": Case(Poisson(0.5, 0.7)),
}
GAPS = {
    f"Gaussian {name}, 30% of cells missing": Case(gaussian(*STRUCTURES[name]), gaps=0.3)
    for name in ("full, free", "full, tied")
}
POOLED = {
    f"Gaussian {name}, pooled": Case(gaussian(*STRUCTURES[name], pooling=True), num_classes=4, rows=32)
    for name in ("full, free", "diag, tied", "spherical, free")
}
POOLED_GAPS = {
    "Gaussian full, tied, pooled, 30% missing": Case(gaussian("full", True, pooling=True), num_classes=4, rows=32, gaps=0.3)
}
ONE_COLUMN = {
    "a user's exponential family": Case(Waiting()),
    "LogNormal": Case(LogNormal(LogNormal.Prior(0.5, 0.8, 2.0, 1.5)), num_features=1),
    "Gamma": Case(Gamma(Gamma.Prior(0.5, 1.0, 3.0, 1.0)), num_features=1),
    "StudentT": Case(StudentT(StudentT.Prior(0.5, 2.0, 3.0, 2.0, 3.0, 0.5)), num_features=1),
    "NegativeBinomial": Case(NegativeBinomial(NegativeBinomial.Prior(1.0, 0.8, 3.0, 1.0)), num_features=1),
}
CASES = GAUSSIAN | COUNTS | GAPS | POOLED | POOLED_GAPS | ONE_COLUMN


# -- one table
@partial(jax.jit, static_argnames=("rows", "k", "d"), compiler_options=target.ONCE)
def simulate(family, key, rows: int, k: int, d: int):
    """(class probabilities, parameters, table, classes), all from the prior."""
    keys = jax.random.split(key, 4)
    probs = CLASS_PRIOR.draw(keys[0], jnp.zeros(k))
    codes = jax.random.categorical(keys[1], jnp.log(probs), shape=(rows,))
    truth = family.working(handlers.seed(family.model, keys[2])(k, d))
    return probs, truth, family.sample(keys[3], truth, codes), codes


class Table(NamedTuple):
    """Rows and classes that a family made, and the parameters behind them."""

    family: Any
    truth: dict
    x: np.ndarray
    labels: Labels

    @classmethod
    def of(cls, case: Case, family, key) -> Table:
        probs, truth, x, codes = simulate(family, key, case.rows, case.num_classes, case.num_features)
        x = np.where(case.missing(), np.nan, np.asarray(x, float))
        return cls(family, {"class_probs": probs} | truth, x, Labels(np.asarray(codes), case.num_classes))

    def problem(self) -> target.Problem:
        """On statistics where the family has them, else on rows."""
        joint = self.joint()
        part = joint.stats(self.x, self.labels).blocks[0]
        data = target.Rows.of(self.x, self.labels) if part == () else part
        return target.Problem(self.family, data, joint.num_classes, joint.num_features)

    def joint(self) -> Joint:
        return Joint(CLASS_PRIOR, (Block("x", self.family),), self.labels.num_classes, self.x.shape[1])


# -- engines: draws (num, ...) by name, and how many independent ones they are worth
def by_exact(table: Table, key, num: int) -> tuple[dict, float]:
    joint = table.joint()
    known = joint.stats(table.x, table.labels)
    posterior = exact.run(exact.update, joint, known)
    return next(exact.draws(posterior, known.labels, key, num)), float(num)


def _by(run: Callable, make: Callable, settings, table: Table, key, num: int) -> tuple[dict, float]:
    found = run(make(table), key, num, settings)
    draws = {name: value.reshape(-1, *value.shape[2:]) for name, value in found.draws.items()}
    return draws, float(found.diagnostics.get("ess", num))


def _augmented(table: Table) -> gibbs.Augmented:
    return gibbs.Augmented.of_family(table.family, table.x, table.labels)


ENGINES: dict[str, Callable] = {
    "exact": by_exact,
    "gibbs": partial(_by, gibbs.run, _augmented, Gibbs(progress=False)),
    "nuts": partial(_by, nuts.run, Table.problem, NUTS(progress=False)),
    "laplace": partial(_by, laplace.run, Table.problem, Laplace()),
    "svi": partial(_by, variational.run, Table.problem, SVI(progress=False)),
    "svi, normal guide": partial(_by, variational.run, Table.problem, SVI("normal", progress=False)),
}


# -- ranks
class Ranks(NamedTuple):
    """Of each replication: ranks (R, Q) of the named quantities, sds (R, Q) of all their draws, worth of the chains."""

    names: list[str]
    ranks: np.ndarray
    sds: np.ndarray
    worth: np.ndarray

    def counts(self) -> np.ndarray:
        """How often each rank was seen, (Q, RANKED + 1)."""
        return np.array([np.bincount(column, minlength=RANKED + 1) for column in self.ranks.T])

    def pvalues(self, bins: int = RANKED + 1) -> np.ndarray:
        """Chi-square of each quantity's histogram, neighbouring ranks together in `bins` bins."""
        return stats.chisquare(self.counts().reshape(len(self.names), bins, -1).sum(2), axis=1).pvalue

    def level(self, bins: int = RANKED + 1) -> float:
        """The smallest p-value times their number (Bonferroni)."""
        return float(min(1.0, len(self.names) * self.pvalues(bins).min()))


@partial(jax.jit, compiler_options=target.ONCE)
def _log_likelihoods(problem, params):
    return jax.lax.map(problem.log_likelihood, params)


def replicate(case: Case, family, engine: str, key) -> tuple[dict, dict, dict, float]:
    """(truth, ranked draws, standard deviations of all draws, worth) of one table."""
    key_table, key_draws = jax.random.split(key)
    table = Table.of(case, family, key_table)
    draws, worth, num = {}, 0.0, DRAWS
    while worth < APART * RANKED and num <= MOST_DRAWS:
        draws, worth = ENGINES[engine](table, key_draws, num)
        num *= 4
    spots = np.linspace(0, len(next(iter(draws.values()))) - 1, RANKED).round().astype(int)
    some = {name: np.asarray(draws[name])[spots] for name in draws}
    truth = {name: np.asarray(table.truth[name]) for name in draws}
    own = {name: np.concatenate([truth[name][None], some[name]]) for name in draws if name != "class_probs"}
    logs = np.asarray(_log_likelihoods(table.problem(), own))
    some, truth = some | {LOG_LIKELIHOOD: logs[1:]}, truth | {LOG_LIKELIHOOD: logs[0]}
    return truth, some, {name: np.std(value, 0) for name, value in draws.items()} | {LOG_LIKELIHOOD: np.std(logs[1:])}, worth


def _flat(params: dict, keep: np.ndarray | None = None) -> np.ndarray:
    whole = np.concatenate([np.ravel(params[name]) for name in sorted(params)])
    return whole if keep is None else whole[keep]


def ranks(name: str, engine: str, replications: int, seed: int = 0) -> Ranks:
    """Ranks of the parameters of a case under an engine; the same seed gives every engine the same tables."""
    case = CASES[name]
    family, rows = case.resolved(), []
    for r in range(replications):
        rows.append(replicate(case, family, engine, jax.random.fold_in(jax.random.key(seed), r)))
    first = rows[0][0]
    labels = [f"{n}{list(i) if i else ''}" for n in sorted(first) for i in np.ndindex(np.shape(first[n]))]
    keep = np.sort(np.unique(_flat(first).round(12), return_index=True)[1])  # once, what a symmetric matrix says twice
    below = [_flat({n: np.sum(some[n] < truth[n], 0) for n in truth}, keep) for truth, some, _, _ in rows]
    sds = [_flat(row[2], keep) for row in rows]
    return Ranks([labels[i] for i in keep], np.array(below), np.array(sds), np.array([row[3] for row in rows]))
