"""NUTS by NumPyro on one block's parameters: chains side by side, in coordinates scaled by the curvature at the mode.

The sampler sees z with u = mode + L z, LLᵀ the inverse of minus the Hessian of log p(u, D): then its work depends on how
far the posterior is from normal, not on units, nor on how many rows make it narrow. The programs take problem, mode and
L as arguments: another table of the same shape, or other statistics, compile nothing anew.
"""

from __future__ import annotations

import jax
import numpy as np
from numpyro.infer.hmc import hmc
from numpyro.infer.util import ParamInfo

from bayesgen.inference import optimise, target
from bayesgen.inference.chains import Chains, collect, diagnose, pieces
from bayesgen.inference.optimise import Frame
from bayesgen.inference.progress import bar
from bayesgen.inference.settings import NUTS, chains_of
from bayesgen.programs import jit

STEPS_ON_ROWS, STEPS_ON_STATISTICS = 25, 250  # between two looks at the keyboard (and at the progress bar)
WIDEST_START = 1.0  # of the chains, in posterior standard deviations
STATISTICS = ("diverging", "energy", "acceptance_rate", "step_size", "n_steps", "tree_depth", "lp")


def _kernel(problem, frame: Frame, first: ParamInfo, settings: tuple, key):
    """NumPyro's sampler of z and its first state, from a place whose density and slope are known."""
    warmup, target_accept, depth = settings

    def potential(z):
        return -target.log_density(problem, frame(z))

    init, step = hmc(potential, algo="NUTS")
    state = init(first, num_warmup=warmup, target_accept_prob=target_accept, max_tree_depth=depth, rng_key=key)
    return state, step


@jit(static_argnames=("warmup", "depth"), compiler_options=target.ONCE)
def _begin(problem, frame, first, keys, target_accept, warmup, depth):
    return jax.vmap(lambda place, key: _kernel(problem, frame, place, (warmup, target_accept, depth), key)[0])(first, keys)


@jit(static_argnames=("warmup", "depth", "most"))
def _advance(problem, frame, states, target_accept, steps, warmup, depth, most):
    """All chains by `steps` steps, at most `most`: (states, places and statistics of each step, (chains, most, ...))."""

    def chain(state):
        # the state that this makes is dropped: it is called for the step alone
        place = ParamInfo(state.z, state.potential_energy, state.z_grad)
        _, step = _kernel(problem, frame, place, (warmup, target_accept, depth), jax.random.key(0))
        return collect(step, _seen, state, steps, most)

    return jax.vmap(chain)(states)


def _seen(state) -> tuple:
    """What is kept of a step: the place, and its statistics."""
    return (
        state.z,
        state.diverging,
        state.energy,
        state.accept_prob,
        state.adapt_state.step_size,
        state.num_steps,
        -state.potential_energy,
    )


@jit(compiler_options=target.ONCE)
def _parameters(problem, frame, z):
    return target.constrained.__wrapped__(problem, jax.vmap(frame)(z))


def run(problem, key: jax.Array, num_draws: int, settings: NUTS) -> Chains:
    """num_draws draws of the parameters, in chains of equal length."""
    chains = chains_of(settings, num_draws)
    key_start, key_place, key_chains = jax.random.split(key, 3)
    frame = optimise.frame(problem, key_start)
    first = _places(problem, frame, key_place, chains)
    options = {"warmup": settings.warmup, "depth": settings.max_tree_depth}
    accept = float(settings.target_accept)
    states = _begin(problem, frame, first, jax.random.split(key_chains, chains), accept, **options)
    on_rows = isinstance(problem.data, target.Rows)
    most, length = STEPS_ON_ROWS if on_rows else STEPS_ON_STATISTICS, num_draws // chains
    kept = []
    with bar(settings.warmup + length, "NUTS", on_rows and settings.progress) as advanced:
        for steps, keep in pieces(settings.warmup, length, most):
            states, trace = jax.block_until_ready(_advance(problem, frame, states, accept, steps, **options, most=most))
            if keep:
                kept.append([np.asarray(leaf)[:, :steps] for leaf in trace])
            advanced(steps)
    places, *statistics, lp = (np.concatenate(parts, axis=1) for parts in zip(*kept, strict=True))
    flat = _parameters(problem, frame, places.reshape(-1, places.shape[-1]))
    draws = {name: np.asarray(value).reshape(chains, -1, *value.shape[1:]) for name, value in flat.items()}
    depth = np.log2(statistics[-1]).astype(int) + 1
    names = dict(zip(STATISTICS, [*statistics, depth, lp], strict=True))
    return Chains(draws, names, diagnose(draws, names))


def _places(problem, frame: Frame, key, chains: int) -> ParamInfo:
    """Where the chains start: scattered about the centre, as far out as the density is finite."""
    noise = np.asarray(jax.random.normal(key, (chains, len(frame.centre))))
    width = WIDEST_START if np.ndim(frame.root) == 2 else 0.1
    while True:
        found = [optimise.slope(problem, np.asarray(frame(z)), {"prior": True, "jacobian": True}) for z in width * noise]
        if width < 1e-6 or all(np.isfinite(value) and np.isfinite(slope).all() for value, slope in found):
            break
        width /= 4
    slopes = np.array([slope for _, slope in found])
    return ParamInfo(width * noise, np.array([value for value, _ in found]), frame.back(slopes))
