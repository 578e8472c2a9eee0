"""What samplers share: runs of chains in pieces, their draws, and what to worry about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from bayesgen.families.base import Params


class Chains(NamedTuple):
    """Draws (chains, draws, ...) as densities need them, the sampler's statistics, and what to worry about."""

    draws: Params
    statistics: dict[str, np.ndarray]
    diagnostics: dict[str, Any]


def collect(step: Callable, seen: Callable, state, steps, most: int):
    """`steps` steps from `state`, at most `most`: (state, seen(state) after each, zeros after the last).

    The number of steps is traced, so that pieces of any length share one program.
    """

    def one(i, carry):
        state, trace = carry
        state = step(state)
        return state, jax.tree_util.tree_map(lambda kept, value: kept.at[i].set(value), trace, seen(state))

    shapes = jax.eval_shape(seen, state)
    trace = jax.tree_util.tree_map(lambda leaf: jnp.zeros((most, *leaf.shape), leaf.dtype), shapes)
    return jax.lax.fori_loop(0, steps, one, (state, trace))


def pieces(warmup: int, draws: int, most: int) -> Iterator[tuple[int, bool]]:
    """(steps, whether they are kept) of each call; the last of a phase may be shorter."""
    for total, keep in ((warmup, False), (draws, True)):
        for start in range(0, total, most):
            yield min(most, total - start), keep


def diagnose(draws: Params, statistics: dict[str, np.ndarray]) -> dict[str, Any]:
    """Divergences, the largest split R-hat and the smallest effective sample size, with the parameter that has it."""
    found: dict[str, Any] = {"divergences": int(np.sum(statistics.get("diverging", 0)))}
    found |= {"r_hat": 1.0, "r_hat_of": "", "ess": float(np.size(next(iter(statistics.values()), 0))), "ess_of": ""}
    for name, value in draws.items():
        flat = value.reshape(*value.shape[:2], -1)
        varies = flat.max((0, 1)) > flat.min((0, 1))
        if flat.shape[1] < 4 or not varies.any():
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            r_hat = np.nan_to_num(split_gelman_rubin(flat[..., varies]), nan=np.inf)
            ess = np.nan_to_num(effective_sample_size(flat[..., varies]), nan=0.0)
            ess = np.where(ess < 0, flat.shape[0] * flat.shape[1], ess)  # draws that alternate: no worse than independent
        if r_hat.max() > found["r_hat"]:
            found |= {"r_hat": float(r_hat.max()), "r_hat_of": name}
        if ess.min() < found["ess"] or not found["ess_of"]:
            found |= {"ess": float(ess.min()), "ess_of": name}
    return found
