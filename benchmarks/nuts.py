"""NUTS on sufficient statistics: does its time depend on the rows, and what does it save over NUTS on the rows?

    python benchmarks/nuts.py                      # 1,000 against 1,000,000 rows, then the wine data
    python benchmarks/nuts.py --rows 100000 --repeats 5
    python benchmarks/nuts.py --only wine

1.  Time of fit with engine="nuts" on many rows, less that of the map fit (the one pass that every fit makes), over the time
    on 1,000 rows; both warm. "compiled" counts programs compiled while timing: 0 means that nothing was compiled anew.
2.  The posterior of QDA on the wine data, 178 x 13 in 3 classes, against the same model written over the rows in NumPyro.

Each figure is the least time of the repeats, the tasks taking turns. Ratios are those of wall-clock times and, since a busy
machine disturbs these more than it should, of processor times.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import monitoring
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from bayesgen import LDA, QDA, BernoulliNB, CategoricalNB, GaussianNB, PoissonNB

FEW_ROWS, CLASSES = 1000, 3
SECONDS = 15.0  # for the repeats of quick cases
COMPILED = "/jax/core/compile/backend_compile_duration"
compilations: list[str] = []
monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compilations.append(event))


def least(tasks: dict, repeats: int, seconds: float = 0.0) -> dict[str, np.ndarray]:
    """Least (wall-clock, processor) milliseconds of tasks that take turns, until both repeats and seconds are over."""
    best = {name: np.full(2, np.inf) for name in tasks}
    start, done = time.perf_counter(), 0
    while done < repeats or time.perf_counter() - start < seconds:
        for name, task in tasks.items():
            before = np.array([time.perf_counter(), time.process_time()])
            task()
            best[name] = np.minimum(best[name], 1e3 * (np.array([time.perf_counter(), time.process_time()]) - before))
        done += 1
    return best


# -- 1: many rows and few
def numbers(rng: np.random.Generator, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Correlated columns, in classes of unequal means and covariances."""
    y = rng.integers(0, CLASSES, rows)
    laws = np.random.default_rng(0)
    mix, centre = laws.normal(size=(CLASSES, columns, columns)) + 2 * np.eye(columns), laws.normal(size=(CLASSES, columns))
    x = rng.standard_normal((rows, columns))
    for k in range(CLASSES):
        x[y == k] = x[y == k] @ mix[k] + centre[k]
    return x, y


def whole(rng: np.random.Generator, rows: int, columns: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers from 0 to `most`, whose law depends on the class; each is there."""
    y = rng.integers(0, CLASSES, rows)
    x = rng.binomial(most, 0.25 + 0.2 * y[:, None], (rows, columns))
    x[: most + 1] = np.arange(most + 1)[:, None]
    return x, y


TABLES = {
    "LDA, 5 columns": (LDA, lambda rng, n: numbers(rng, n, 5)),
    "QDA, 5 columns": (QDA, lambda rng, n: numbers(rng, n, 5)),
    "QDA, 10 columns": (QDA, lambda rng, n: numbers(rng, n, 10)),
    "GaussianNB, 10 columns": (GaussianNB, lambda rng, n: numbers(rng, n, 10)),
    "PoissonNB, 10 columns": (PoissonNB, lambda rng, n: whole(rng, n, 10, 9)),
    "BernoulliNB, 10 columns": (BernoulliNB, lambda rng, n: whole(rng, n, 10, 1)),
    "CategoricalNB, 10 columns of 4": (CategoricalNB, lambda rng, n: whole(rng, n, 10, 3)),
}


def race(name: str, rows: int, repeats: int) -> str:
    kind, make = TABLES[name]
    few, many = (make(np.random.default_rng(1), n) for n in (FEW_ROWS, rows))
    sampler, mode = kind(method="posterior", engine="nuts", random_state=0), kind(method="map")
    sampler.fit(*few)  # compiles
    mode.fit(*many)
    before = compilations.count(COMPILED)
    sampler.fit(*many)
    anew = compilations.count(COMPILED) - before
    tasks = {"few": lambda: sampler.fit(*few), "many": lambda: sampler.fit(*many), "map": lambda: mode.fit(*many)}
    t = least(tasks, repeats, SECONDS)
    ratio = (t["many"] - t["map"]) / t["few"]
    times = [f"{t[task][0]:.0f}" for task in tasks]
    return " | ".join(["| " + name, *times, f"{ratio[0]:.2f}", f"{ratio[1]:.2f}", str(anew)]) + " |"


def print_rows(rows: int, repeats: int) -> None:
    print(f"milliseconds, least of {repeats} or more\n")
    sizes = f"NUTS, {FEW_ROWS:,} rows | NUTS, {rows:,} rows | map, {rows:,} rows"
    print(f"| case | {sizes} | ratio | of processor times | compiled |")
    print("|---|---|---|---|---|---|---|")
    for name in TABLES:
        print(race(name, rows, repeats), flush=True)


# -- 2: the same model over the rows
def over_rows(x, y, prior, num_classes: int) -> None:
    """QDA with its Normal-Wishart prior, as one writes it down."""
    with numpyro.plate("class", num_classes):
        precision = numpyro.sample("precision", dist.Wishart(prior.df, rate_matrix=prior.scale))
        mean = numpyro.sample("mean", dist.MultivariateNormal(prior.mean, precision_matrix=prior.strength * precision))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", dist.MultivariateNormal(mean[y], precision_matrix=precision[y]), obs=x)


@partial(jax.jit, static_argnames="num_classes")
def _over_rows(key, x, y, prior, num_classes: int) -> dict:
    options = {"num_chains": 4, "chain_method": "vectorized", "progress_bar": False}
    chains = MCMC(NUTS(over_rows), num_warmup=500, num_samples=250, **options)
    chains.run(key, x, y, prior, num_classes, extra_fields=["num_steps"])
    return chains.get_samples(group_by_chain=True) | chains.get_extra_fields(group_by_chain=True)


class OverRows:
    """NumPyro's NUTS of `over_rows`, compiled as a whole: an MCMC object by itself would compile anew at every run."""

    def __init__(self, x: np.ndarray, y: np.ndarray, prior):
        self.data, self.num_classes = (x, y, prior), int(y.max()) + 1

    def run(self) -> None:
        with jax.enable_x64(True):
            found = jax.block_until_ready(_over_rows(jax.random.key(0), *self.data, self.num_classes))
        self.steps = np.asarray(found["num_steps"])
        self.draws = {"mean": np.asarray(found["mean"]), "covariance": np.linalg.inv(np.asarray(found["precision"]))}


def summary(name: str, draws: dict, steps: np.ndarray, truth: dict) -> str:
    """Gradients and effective draws, and how far posterior means lie from the closed form's, in standard errors."""
    worth, away = [], []
    for key, value in draws.items():
        flat, known = value.reshape(*value.shape[:2], -1), truth[key].ravel()
        ess = effective_sample_size(flat)
        worth.append(ess.min())
        away.append((flat.mean((0, 1)) - known) / (flat.std((0, 1)) / np.sqrt(ess)))
    z = np.concatenate(away)
    return (
        f"{name}: {steps.mean():.0f} gradients a draw, {min(worth):.0f} effective draws at least; means off by "
        f"{np.sqrt(np.mean(z**2)):.2f} standard errors (root mean square of {len(z)}), {np.abs(z).max():.1f} at most"
    )


def print_wine(repeats: int) -> None:
    x, y = load_wine(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    ours = QDA(method="posterior", engine="nuts", random_state=0)
    theirs = OverRows(x, y, QDA().fit(x, y).prior_)
    tasks = {"ours": lambda: ours.fit(x, y), "peer": theirs.run}
    cold, warm = least(tasks, 1), least(tasks, repeats)
    print(f"\nwine, {x.shape[0]} x {x.shape[1]}, full covariances; 4 chains of 500 + 250 steps; milliseconds\n")
    print("| run | bayesgen | NumPyro over the rows | ratio | of processor times |\n|---|---|---|---|---|")
    for name, t in {f"warm, least of {repeats}": warm, "first": cold}.items():
        ratio = t["peer"] / t["ours"]
        print(f"| {name} | {t['ours'][0]:.0f} | {t['peer'][0]:.0f} | {ratio[0]:.1f} | {ratio[1]:.1f} |")
    print()
    known = QDA(method="posterior").fit(x, y).params_
    chained, sampler = ours._chained_draws()
    print(summary("bayesgen", {key: chained[key] for key in ("mean", "covariance")}, sampler["n_steps"], known))
    print(summary("NumPyro over the rows", theirs.draws, theirs.steps, known))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=["rows", "wine"])
    given = parser.parse_args()
    if given.only != "wine":
        print_rows(given.rows, given.repeats)
    if given.only != "rows":
        print_wine(given.repeats)


if __name__ == "__main__":
    main()
