"""Laplace's approximation: u ~ N(mode, inverse of minus the Hessian), over unconstrained coordinates.

The mode is that of log p(u, D), with the Jacobian, so it is not the map. It covers this one mode.
"""

from __future__ import annotations

import jax
import numpy as np

from bayesgen.inference import optimise, target
from bayesgen.inference.chains import Chains
from bayesgen.inference.settings import Laplace


class NoCurvature(Exception):
    """The density has no strict maximum to be approximated at, or too many coordinates for a Hessian."""


def run(problem, key: jax.Array, num_draws: int, settings: Laplace) -> Chains:
    """Independent draws of the parameters, as one chain."""
    key_start, key_draws = jax.random.split(key)
    best = optimise.maximise(problem, target.starts(problem, key_start, optimise.RESTARTS), prior=True, jacobian=True)
    if best.curvature is None:
        raise NoCurvature(f"{len(best.flat)} coordinates are too many for a matrix of second derivatives")
    if not (best.strict and best.converged):
        raise NoCurvature("the search found no strict and smooth maximum of the posterior density")
    if not _smooth(problem, best):
        raise NoCurvature("the posterior density has a kink or a flat top: its curvature says nothing of its width")
    root = best.curvature.root()
    noise = np.asarray(jax.random.normal(key_draws, (num_draws, len(best.flat))))
    draws = target.constrained(problem, best.flat + noise @ root.T)
    found = {"converged": best.converged, "n_iter": best.n_iter}
    return Chains({name: np.asarray(value)[None] for name, value in draws.items()}, {}, found)


def _smooth(problem, best: optimise.Optimum) -> bool:
    """Whether the log density falls by something like a half, as far along each coordinate as its curvature says."""
    assert best.curvature is not None
    options = {"prior": True, "jacobian": True}
    falls = [
        np.mean([optimise.slope(problem, best.flat + side * move, options)[0] + best.value for side in (-1, 1)])
        for move in np.diag(best.curvature.widths)
    ]
    return bool(np.all((np.array(falls) > 0.1) & (np.array(falls) < 10.0)))
