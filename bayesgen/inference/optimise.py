"""The mode of a density by L-BFGS, then Newton's method: maximum likelihood and map where no formula is known.

The search runs over unconstrained coordinates u. Without the Jacobian its maximum is the mode of the density in the
stated parametrisation, since θ(u) runs through all of it; with the Jacobian it is the mode over u, where Laplace's
approximation is centred.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from bayesgen.inference import target
from bayesgen.programs import jit

RESTARTS = 4
MAX_ITER = 2000
NEWTON_STEPS = 30
MOST_CURVATURE = 600  # coordinates up to which the Hessian is used
CLOSE = 1e-9  # converged: Newton's step would gain less than this, in units of log density
CLOSE_GRADIENT = 1e-4  # the same where there is no Hessian: the largest slope


class Optimum(NamedTuple):
    """Where the search ended."""

    flat: np.ndarray
    value: float  # log density
    gradient: np.ndarray
    curvature: tuple[np.ndarray, np.ndarray] | None  # eigenvalues and vectors of minus the Hessian
    n_iter: int
    converged: bool

    def root(self) -> np.ndarray | None:
        """L with LLᵀ the inverse of minus the Hessian, eigenvalues that are not positive replaced by small ones."""
        if self.curvature is None:
            return None
        values, vectors = self.curvature
        return vectors / np.sqrt(_positive(values))

    @property
    def strict(self) -> bool:
        """Whether the density falls in every direction from here."""
        return self.curvature is not None and bool(self.curvature[0][0] > 1e-12 * self.curvature[0][-1])


def _positive(values: np.ndarray) -> np.ndarray:
    size = np.abs(values)
    return np.maximum(size, 1e-10 * max(size.max(initial=0.0), 1e-300))


@jit(static_argnames=("prior", "jacobian"))
def _slope(problem, flat, prior: bool, jacobian: bool):
    return jax.value_and_grad(lambda u: -target.log_density(problem, u, prior=prior, jacobian=jacobian))(flat)


@jit(static_argnames=("prior", "jacobian"))
def _curvature(problem, flat, prior: bool, jacobian: bool):
    def gradient(u):
        return jax.grad(lambda v: -target.log_density(problem, v, prior=prior, jacobian=jacobian))(u)

    # one column after the other: all at once would hold a table of rows for each
    hessian = jax.lax.map(lambda e: jax.jvp(gradient, (flat,), (e,))[1], jnp.eye(len(flat)), batch_size=16)
    return (hessian + hessian.T) / 2


def maximise(problem, starts: np.ndarray, *, prior: bool, jacobian: bool) -> Optimum:
    """The best of the maxima found from each start."""
    options = {"prior": prior, "jacobian": jacobian}
    best = None
    for start in starts:
        found = _descend(problem, start, options)
        if found is not None and (best is None or found[1] < best[1]):
            best = found
    if best is None:
        raise NoStart(_where_not_finite(problem, starts[0]))
    return _polish(problem, *best, options)


class NoStart(Exception):
    """The density is not finite wherever the search starts; says which part."""


def _descend(problem, start: np.ndarray, options: dict) -> tuple[np.ndarray, float, int] | None:
    """L-BFGS from one start: (coordinates, minus log density, iterations), None if the density is not finite there."""
    value, slope = _slope(problem, start, **options)
    if not (np.isfinite(value) and np.isfinite(slope).all()):
        return None
    worst = float(value)

    def function(u):
        nonlocal worst
        f, g = (np.asarray(v, float) for v in _slope(problem, u, **options))
        if np.isfinite(f) and np.isfinite(g).all():
            worst = max(worst, float(f))
            return float(f), g
        # beyond the density's reach: higher than anything seen, so that the line search turns back
        return worst + 1e3 * (1 + abs(worst)), np.zeros_like(u)

    limits = {"maxiter": MAX_ITER, "maxfun": 4 * MAX_ITER, "ftol": 1e-14, "gtol": 1e-8, "maxcor": 20}
    done = minimize(function, start, jac=True, method="L-BFGS-B", options=limits)
    return done.x, float(done.fun), int(done.nit)


def _polish(problem, flat: np.ndarray, value: float, steps: int, options: dict) -> Optimum:
    """Newton's method with halved steps, to the last digits."""
    slope = np.asarray(_slope(problem, flat, **options)[1])
    if not 0 < len(flat) <= MOST_CURVATURE:
        close = bool(np.max(np.abs(slope), initial=0.0) < CLOSE_GRADIENT * max(1.0, abs(value) * 1e-3))
        return Optimum(flat, -value, slope, None, steps, close)
    for _ in range(NEWTON_STEPS):
        values, vectors = np.linalg.eigh(np.asarray(_curvature(problem, flat, **options)))
        along = vectors.T @ slope
        step, gain = vectors @ (along / _positive(values)), 0.5 * float(np.sum(along**2 / _positive(values)))
        if gain < CLOSE * 1e-5:
            break
        moved = _step(problem, flat, value, step, options)
        if moved is None:
            break
        flat, value, slope = moved
        steps += 1
    return Optimum(flat, -value, slope, (values, vectors), steps, bool(gain < CLOSE))


def _step(problem, flat, value, step, options):
    """The first of ever shorter steps that does not go up."""
    for halvings in range(12):
        there = flat - step * 0.5**halvings
        f, g = (np.asarray(v, float) for v in _slope(problem, there, **options))
        if np.isfinite(f) and np.isfinite(g).all() and f <= value + 1e-13 * abs(value):
            return there, float(f), g
    return None


def _where_not_finite(problem, start: np.ndarray) -> str:
    """Which part of the density is not finite at a start."""
    point = target.evaluate(problem, target.unflatten(problem, jnp.asarray(start)))
    if not np.isfinite(point.log_prior):
        return f"the prior's log density is {float(point.log_prior):g}"
    if not np.isfinite(point.log_likelihood):
        return f"the log likelihood is {float(point.log_likelihood):g}"
    return "its gradient is not finite"
