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
DIFFERENCE = 1e-5  # step of the differences that make the Hessian
MOST_KINKS = 64  # coordinates up to which a search without slopes is tried


class Optimum(NamedTuple):
    """Where the search ended."""

    flat: np.ndarray
    value: float  # log density
    gradient: np.ndarray
    curvature: tuple[np.ndarray, np.ndarray] | None  # eigenvalues and vectors of minus the Hessian
    n_iter: int
    converged: bool

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


def slope(problem, flat: np.ndarray, options: dict) -> tuple[float, np.ndarray]:
    """Minus the log density and its gradient."""
    value, gradient = _slope(problem, flat, **options)
    return float(value), np.asarray(gradient, float)


def curvature(problem, flat: np.ndarray, steps: np.ndarray, options: dict) -> np.ndarray:
    """Minus the Hessian by central differences of the gradient, coordinate j moved by steps[j].

    The gradient is exact and already compiled; second derivatives by JAX would compile for seconds to save milliseconds.
    """
    rows = []
    for j, step in enumerate(steps):
        move = np.zeros_like(flat)
        move[j] = step
        rows.append((slope(problem, flat + move, options)[1] - slope(problem, flat - move, options)[1]) / (2 * step))
    hessian = np.array(rows)
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
    done = _polish(problem, *best, options)
    return done if done.converged or not 0 < len(done.flat) <= MOST_KINKS else _without_slopes(problem, done, options)


class NoStart(Exception):
    """The density is not finite wherever the search starts; says which part."""


class _Reach:
    """Minus the log density where it is finite, and more than anything seen elsewhere: line searches turn back."""

    def __init__(self, problem, options: dict):
        self.problem, self.options, self.worst = problem, options, -np.inf

    def __call__(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = slope(self.problem, u, self.options)
        if np.isfinite(value) and np.isfinite(gradient).all():
            self.worst = max(self.worst, value)
            return value, gradient
        return self.worst + 1e3 * (1 + abs(self.worst)), np.zeros_like(u)


def _descend(problem, start: np.ndarray, options: dict) -> tuple[np.ndarray, float, int] | None:
    """L-BFGS from one start: (coordinates, minus log density, iterations), None if the density is not finite there."""
    value, gradient = slope(problem, start, options)
    if not (np.isfinite(value) and np.isfinite(gradient).all()):
        return None
    limits = {"maxiter": MAX_ITER, "maxfun": 4 * MAX_ITER, "ftol": 1e-14, "gtol": 1e-8, "maxcor": 20}
    done = minimize(_Reach(problem, options), start, jac=True, method="L-BFGS-B", options=limits)
    return done.x, float(done.fun), int(done.nit)


def _polish(problem, flat: np.ndarray, value: float, steps: int, options: dict) -> Optimum:
    """Newton's method with halved steps, to the last digits."""
    gradient = slope(problem, flat, options)[1]
    if not 0 < len(flat) <= MOST_CURVATURE:
        close = bool(np.max(np.abs(gradient), initial=0.0) < CLOSE_GRADIENT * max(1.0, abs(value) * 1e-3))
        return Optimum(flat, -value, gradient, None, steps, close)
    for _ in range(NEWTON_STEPS):
        small = DIFFERENCE * np.maximum(1.0, np.abs(flat))
        values, vectors = np.linalg.eigh(np.nan_to_num(curvature(problem, flat, small, options)))
        along = vectors.T @ gradient
        with np.errstate(over="ignore", invalid="ignore"):  # a density that rises for ever
            step, gain = vectors @ (along / _positive(values)), 0.5 * float(np.sum(along**2 / _positive(values)))
        if gain < CLOSE * 1e-5:
            break
        moved = _step(problem, flat, value, step, options)
        if moved is None:
            break
        flat, value, gradient = moved
        steps += 1
    return Optimum(flat, -value, gradient, (values, vectors), steps, bool(gain < CLOSE))


def _step(problem, flat, value, step, options):
    """The first of ever shorter steps that does not go up."""
    for halvings in range(12):
        there = flat - step * 0.5**halvings
        f, g = slope(problem, there, options)
        if np.isfinite(there).all() and np.isfinite(f) and np.isfinite(g).all() and f <= value + 1e-13 * abs(value):
            return there, f, g
    return None


def _without_slopes(problem, best: Optimum, options: dict) -> Optimum:
    """Powell's method, for densities with kinks (Laplace's, say), where slopes do not vanish at the top."""
    reach = _Reach(problem, options)
    reach.worst = -best.value
    limits = {"xtol": 1e-10, "ftol": 1e-14, "maxiter": 200}
    with np.errstate(over="ignore", invalid="ignore"):  # line searches that run far out
        done = minimize(lambda u: reach(u)[0], best.flat, method="Powell", options=limits)
        again = minimize(lambda u: reach(u)[0], done.x, method="Powell", options=limits)
    flat, value = (again.x, float(again.fun)) if again.fun <= -best.value else (best.flat, -best.value)
    close = bool(again.success and done.fun - again.fun < CLOSE * 1e2) and _is_top(problem, flat, value, options)
    return best._replace(flat=flat, value=-value, n_iter=best.n_iter + int(done.nit + again.nit), converged=close)


def _is_top(problem, flat: np.ndarray, value: float, options: dict) -> bool:
    """Whether a small step along any coordinate leads down, or at most nowhere; the edge of what is finite is no top."""
    for j, step in enumerate(1e-4 * np.maximum(1.0, np.abs(flat))):
        move = np.zeros_like(flat)
        move[j] = step
        sides = [slope(problem, flat + side * move, options)[0] for side in (-1, 1)]
        if not np.isfinite(sides).all() or min(sides) < value - CLOSE * (1 + abs(value)):
            return False
    return True


def _where_not_finite(problem, start: np.ndarray) -> str:
    """Which part of the density is not finite at a start."""
    point = target.evaluate(problem, target.unflatten(problem, jnp.asarray(start)))
    if not np.isfinite(point.log_prior):
        return f"the prior's log density is {float(point.log_prior):g}"
    if not np.isfinite(point.log_likelihood):
        return f"the log likelihood is {float(point.log_likelihood):g}"
    return "its gradient is not finite"


# -- the shape of the density about its mode
def frame(problem, best: Optimum) -> np.ndarray | None:
    """L with u = mode + L z of about unit scale and no correlation; None where coordinates are too many.

    The curvature is taken at the distance of a standard deviation, not at the very top, so that kinks and flat tops do
    not mislead it.
    """
    if best.curvature is None:
        return None
    options = {"prior": True, "jacobian": True}
    values, vectors = best.curvature
    diagonal = np.einsum("ij,j,ij->i", vectors, values, vectors)
    widths = np.array([_width(problem, best, j, diagonal[j], options) for j in range(len(best.flat))])
    hessian = np.nan_to_num(curvature(problem, best.flat, widths, options)) * widths * widths[:, None]
    values, vectors = np.linalg.eigh(hessian)
    return widths[:, None] * (vectors / np.sqrt(np.clip(np.abs(values), 1e-2, 1e4)))


def _width(problem, best: Optimum, j: int, bend: float, options: dict) -> float:
    """How far coordinate j moves, the others still, until the log density has fallen by about a half."""
    move = np.zeros_like(best.flat)
    move[j] = 1.0
    width = 1 / np.sqrt(bend) if bend > 0 else 1.0
    for _ in range(60):
        sides = [slope(problem, best.flat + side * width * move, options)[0] + best.value for side in (-1, 1)]
        fall = np.mean(sides) if np.isfinite(sides).all() else np.inf
        if 0.2 <= fall <= 1.25:
            break
        width *= 0.5 if fall > 1.25 else min(2.0, np.sqrt(0.5 / max(fall, 1e-3)))
    return width
