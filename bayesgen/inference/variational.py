"""Stochastic variational inference by NumPyro: a normal law over unconstrained coordinates, fitted to the posterior.

It maximises the evidence lower bound E_q[log p(u, D) − log q(u)]. The guide sees z with u = mode + L z, so that it starts
near its goal whatever the units and the number of rows: L is the root of the inverse curvature for correlated guides, and
diagonal for AutoNormal, so that coordinates stay independent.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI as NumPyroSVI
from numpyro.infer import Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal
from numpyro.infer.initialization import init_to_value
from numpyro.optim import Adam

from bayesgen.families.base import BATCH_ROWS
from bayesgen.inference import optimise, target
from bayesgen.inference.chains import Chains
from bayesgen.inference.optimise import Frame
from bayesgen.inference.progress import bar
from bayesgen.inference.settings import SVI
from bayesgen.programs import jit, tracing

GUIDES = {"multivariate": AutoMultivariateNormal, "normal": AutoNormal}
PIECE = 100  # steps between two looks at the keyboard
FIRST_SCALE = 0.7  # of the guide, in units of the curvature at the mode
PARTICLES = 8  # draws behind each estimate of the bound


def _whitened(problem, frame: Frame) -> None:
    """The model in the guide's coordinates."""
    size = frame.centre.shape[0]
    z = numpyro.sample("z", dist.Normal(jnp.zeros(size), 1.0).to_event(1).mask(False))
    numpyro.factor("log_density", target.log_density(problem, frame(z)))


def _machine(guide: str, frame: Frame, step_size, steps):
    start = init_to_value(values={"z": jnp.zeros(frame.centre.shape[0])})
    law = GUIDES[guide](_whitened, init_loc_fn=start, init_scale=FIRST_SCALE)
    optimiser = Adam(lambda i: step_size * 0.01 ** (i / steps))
    return NumPyroSVI(_whitened, law, optimiser, Trace_ELBO(num_particles=PARTICLES)), law


@jit(static_argnames="guide")
def _begin(problem, frame, key, step_size, steps, guide):
    machine, _ = _machine(guide, frame, step_size, steps)
    return machine.init(key, problem, frame)


@jit(static_argnames=("guide", "batch", "length"))
def _advance(problem, frame, state, key, step_size, steps, guide, batch, length):
    """`length` steps: (state, minus the bound at each)."""
    machine, _ = _machine(guide, frame, step_size, steps)
    machine.init(jax.random.key(0), problem, frame)  # sets up the guide; what it returns is dropped

    def one(state, key):
        return machine.update(state, _some_rows(problem, key, batch), frame)

    return jax.lax.scan(one, state, jax.random.split(key, length))


def _some_rows(problem, key, batch: int | None):
    """A problem of a few of the rows, drawn at random, each standing for several."""
    if batch is None:
        return problem
    rows = problem.data
    some = jax.random.randint(key, (batch,), 0, rows.count)
    weight = rows.weight[some] * rows.count / batch
    return dataclasses.replace(
        problem, data=dataclasses.replace(rows, x=rows.x[some], codes=rows.codes[some], weight=weight)
    )


@jit(static_argnames=("guide", "num"))
def _draw(problem, frame, state, key, step_size, steps, guide, num):
    machine, law = _machine(guide, frame, step_size, steps)
    machine.init(jax.random.key(0), problem, frame)
    z = law.sample_posterior(key, machine.get_params(state), sample_shape=(num,))["z"]
    return target.constrained.__wrapped__(problem, jax.vmap(frame)(z))


def run(problem, key: jax.Array, num_draws: int, settings: SVI) -> Chains:
    """Draws from the fitted law, as one chain; the trace of the bound is among the diagnostics."""
    key_start, key_init, key_steps, key_draws = jax.random.split(key, 4)
    frame = _scaled(optimise.frame(problem, key_start), settings.guide)
    on_rows = isinstance(problem.data, target.Rows)
    size = settings.batch_rows if on_rows and len(problem.data.codes) > settings.batch_rows else None
    if size is not None and size > BATCH_ROWS:
        size -= size % BATCH_ROWS  # the likelihood goes through rows in batches of this size
    schedule = (float(settings.step_size), float(settings.steps))
    with tracing:
        state = _begin(problem, frame, key_init, *schedule, guide=settings.guide)
    bounds = []
    with bar(settings.steps, "SVI", on_rows and settings.progress) as advanced:
        for start in range(0, settings.steps, PIECE):
            length, use = min(PIECE, settings.steps - start), jax.random.fold_in(key_steps, start)
            options = {"guide": settings.guide, "batch": size, "length": length}
            with tracing:  # NumPyro's own handlers are at work while this compiles
                state, loss = jax.block_until_ready(_advance(problem, frame, state, use, *schedule, **options))
            bounds.append(-np.asarray(loss))
            advanced(length)
    with tracing:
        draws = _draw(problem, frame, state, key_draws, *schedule, guide=settings.guide, num=num_draws)
    # the bound over u, not over z: densities of the two differ by |det L|
    elbo = np.concatenate(bounds) + frame.log_det()
    found = {"elbo": elbo, "converged": bool(np.isfinite(elbo).all()) and _settled(elbo)}
    return Chains({name: np.asarray(value)[None] for name, value in draws.items()}, {}, found)


def _scaled(frame: Frame, guide: str) -> Frame:
    """The frame of the guide's coordinates; of independent ones their scales only."""
    if guide == "multivariate" or np.ndim(frame.root) == 1:
        return frame
    precision = np.linalg.inv(frame.root @ frame.root.T)
    return Frame(frame.centre, 1 / np.sqrt(np.diagonal(precision)))


def _settled(elbo: np.ndarray) -> bool:
    """Whether the last tenth of the trace is no better than the tenth before, up to its own noise."""
    tenth = max(len(elbo) // 10, 2)
    last, before = elbo[-tenth:], elbo[-2 * tenth : -tenth]
    noise = np.sqrt(last.var() / tenth + before.var() / max(len(before), 1))
    return bool(last.mean() - before.mean() < 4 * noise + 1e-3)
