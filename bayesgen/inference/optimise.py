"""The mode of a density by L-BFGS, then Newton's method: maximum likelihood and map where no formula is known.

The search runs over unconstrained coordinates u. Without the Jacobian its maximum is the mode of the density in the
stated parametrisation, since θ(u) runs through all of it; with the Jacobian it is the mode over u, where Laplace's
approximation is centred.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
FAR = 20.0  # prior scales: a top without slopes that lies further off is taken for an escape to infinity
MOST_KINKS = 64  # coordinates up to which a search without slopes is tried


class Optimum(NamedTuple):
    """Where the search ended."""

    flat: np.ndarray
    value: float  # log density
    gradient: np.ndarray  # in units of `scale`
    curvature: Curvature | None
    scale: np.ndarray  # of the coordinates, as the search was told
    n_iter: int
    converged: bool

    @property
    def strict(self) -> bool:
        """Whether the density falls in every direction from here."""
        return self.curvature is not None and bool(self.curvature.values[0] > 1e-8)


class Curvature(NamedTuple):
    """Minus the Hessian, W⁻¹ V diag(values) Vᵀ W⁻¹: widths W bring its diagonal to ±1, so that units do not count."""

    widths: np.ndarray
    values: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, hessian: np.ndarray) -> Curvature:
        bend = np.abs(np.diagonal(hessian))
        widths = 1 / np.sqrt(np.where(bend > 0, bend, max(bend.max(initial=0.0), 1.0)))
        return cls(widths, *np.linalg.eigh(hessian * widths * widths[:, None]))

    def root(self) -> np.ndarray:
        """L with LLᵀ the inverse of the matrix, its eigenvalues made positive."""
        return self.widths[:, None] * (self.vectors / np.sqrt(np.maximum(np.abs(self.values), 1e-10)))


@jit(static_argnames=("prior", "jacobian"))
def _slope(problem, flat, prior: bool, jacobian: bool):
    return jax.value_and_grad(lambda u: -target.log_density(problem, u, prior=prior, jacobian=jacobian))(flat)


def slope(problem, flat: np.ndarray, options: dict) -> tuple[float, np.ndarray]:
    """Minus the log density and its gradient."""
    value, gradient = _slope(problem, flat, **options)
    return float(value), np.asarray(gradient, float)


class _Surface:
    """Minus the log density over v = u/scale; more than anything seen where it is not finite: line searches turn back."""

    def __init__(self, problem, scale: np.ndarray, options: dict):
        self.problem, self.scale, self.options, self.worst = problem, scale, options, -np.inf

    def at(self, v: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = slope(self.problem, v * self.scale, self.options)
        return value, gradient * self.scale

    def __call__(self, v: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self.at(v)
        if np.isfinite(value) and np.isfinite(gradient).all():
            self.worst = max(self.worst, value)
            return value, gradient
        return self.worst + 1e3 * (1 + abs(self.worst)), np.zeros_like(v)

    def curvature(self, v: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Minus the Hessian by central differences of the gradient, coordinate j moved by steps[j].

        The gradient is exact and already compiled; second derivatives by JAX would compile for seconds to save
        milliseconds.
        """
        rows = []
        for j, step in enumerate(steps):
            move = np.zeros_like(v)
            move[j] = step
            rows.append((self.at(v + move)[1] - self.at(v - move)[1]) / (2 * step))
        hessian = np.nan_to_num(np.array(rows))
        return (hessian + hessian.T) / 2


def maximise(problem, starts: target.Starts, *, prior: bool, jacobian: bool) -> Optimum:
    """The best of the maxima found from each start."""
    surface = _Surface(problem, starts.scale, {"prior": prior, "jacobian": jacobian})
    best = None
    for start in starts.places:
        found = _descend(surface, start / starts.scale)
        if found is not None and (best is None or found[1] < best[1]):
            best = found
    if best is None:
        raise NoStart(_where_not_finite(problem, starts.places[0]))
    done = _polish(surface, *best)
    if done.converged or not 0 < len(starts.scale) <= MOST_KINKS:
        return done
    done = _without_slopes(surface, done)
    far = np.abs(done.flat - starts.places[0]) > FAR * starts.scale
    return done._replace(converged=done.converged and not far.any())


class NoStart(Exception):
    """The density is not finite wherever the search starts; says which part."""


def _descend(surface: _Surface, start: np.ndarray) -> tuple[np.ndarray, float, int] | None:
    """L-BFGS from one start: (coordinates, minus log density, iterations), None if the density is not finite there."""
    value, gradient = surface.at(start)
    if not (np.isfinite(value) and np.isfinite(gradient).all()):
        return None
    limits = {"maxiter": MAX_ITER, "maxfun": 4 * MAX_ITER, "ftol": 1e-14, "gtol": 1e-8, "maxcor": 20}
    done = minimize(surface, start, jac=True, method="L-BFGS-B", options=limits)
    return done.x, float(done.fun), int(done.nit)


def _polish(surface: _Surface, v: np.ndarray, value: float, steps: int) -> Optimum:
    """Newton's method with halved steps, to the last digits."""
    gradient = surface.at(v)[1]
    if not 0 < len(v) <= MOST_CURVATURE:
        close = bool(np.max(np.abs(gradient), initial=0.0) < CLOSE_GRADIENT * max(1.0, abs(value) * 1e-3))
        return Optimum(v * surface.scale, -value, gradient, None, surface.scale, steps, close)
    small = DIFFERENCE * np.maximum(1.0, np.abs(v))
    for _ in range(NEWTON_STEPS):
        bent = Curvature.of(surface.curvature(v, small))
        small = np.minimum(1e-3 * bent.widths, small)  # a small part of a standard deviation
        with np.errstate(over="ignore", invalid="ignore"):  # a density that rises for ever
            along = bent.root().T @ gradient
            step, gain = bent.root() @ along, 0.5 * float(np.sum(along**2))
        if gain < CLOSE * 1e-5:
            break
        moved = _step(surface, v, value, step)
        if moved is None:
            break
        v, value, gradient = moved
        steps += 1
    bent = bent._replace(widths=bent.widths * surface.scale)
    return Optimum(v * surface.scale, -value, gradient, bent, surface.scale, steps, bool(gain < CLOSE))


def _step(surface: _Surface, v, value, step):
    """The first of ever shorter steps that does not go up."""
    for halvings in range(12):
        there = v - step * 0.5**halvings
        if not np.isfinite(there).all():
            continue
        f, g = surface.at(there)
        if np.isfinite(f) and np.isfinite(g).all() and f <= value + 1e-13 * abs(value):
            return there, f, g
    return None


def _without_slopes(surface: _Surface, best: Optimum) -> Optimum:
    """Powell's method, for densities with kinks (Laplace's, say), where slopes do not vanish at the top."""
    surface.worst = -best.value
    limits = {"xtol": 1e-10, "ftol": 1e-14, "maxiter": 200}
    with np.errstate(over="ignore", invalid="ignore"):  # line searches that run far out
        done = minimize(lambda v: surface(v)[0], best.flat / surface.scale, method="Powell", options=limits)
        again = minimize(lambda v: surface(v)[0], done.x, method="Powell", options=limits)
    v, value = (again.x, float(again.fun)) if again.fun <= -best.value else (best.flat / surface.scale, -best.value)
    close = bool(again.success and done.fun - again.fun < CLOSE * 1e2) and _is_top(surface, v, value)
    n_iter = best.n_iter + int(done.nit + again.nit)
    return best._replace(flat=v * surface.scale, value=-value, n_iter=n_iter, converged=close)


def _is_top(surface: _Surface, v: np.ndarray, value: float) -> bool:
    """Whether a small step along any coordinate leads down, or at most nowhere; the edge of what is finite is no top."""
    for j, step in enumerate(1e-4 * np.maximum(1.0, np.abs(v))):
        move = np.zeros_like(v)
        move[j] = step
        sides = [surface.at(v + side * move)[0] for side in (-1, 1)]
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
class Frame(NamedTuple):
    """The coordinates z of a sampler, of about unit scale: u = centre + root z, root a matrix or one number for each."""

    centre: Any
    root: Any

    def __call__(self, z):
        return self.centre + (self.root * z if jnp.ndim(self.root) == 1 else self.root @ z)

    def back(self, gradient: np.ndarray) -> np.ndarray:
        """Gradients (..., D) over u as gradients over z."""
        return gradient * self.root if np.ndim(self.root) == 1 else gradient @ self.root

    def log_det(self) -> float:
        """log |det root|."""
        return float(np.sum(np.log(self.root)) if np.ndim(self.root) == 1 else np.linalg.slogdet(self.root)[1])


def frame(problem, key: jax.Array) -> Frame:
    """A frame about the mode of log p(u, D), as wide as the density is there.

    The curvature is taken at the distance of a standard deviation, not at the very top, so that kinks and flat tops do
    not mislead it. A density without a strict maximum (that of a hierarchy is often unbounded where its scale is 0) says
    nothing there: then the frame is about the middle of the prior, with its scales.
    """
    starts = target.starts(problem, key, RESTARTS)
    best = maximise(problem, starts, prior=True, jacobian=True)
    if best.curvature is None:  # too many coordinates for a matrix
        return Frame(best.flat if best.converged else starts.places[0], starts.scale)
    if not (best.strict and best.converged):
        kinked = best.converged and np.isfinite(best.value)
        return _wide_frame(problem, best) if kinked else Frame(starts.places[0], starts.scale)
    return _wide_frame(problem, best)


def _wide_frame(problem, best: Optimum) -> Frame:
    surface = _Surface(problem, np.ones_like(best.flat), {"prior": True, "jacobian": True})
    bent = best.curvature
    assert bent is not None
    diagonal = np.einsum("ij,j,ij->i", bent.vectors, bent.values, bent.vectors) / bent.widths**2
    widths = np.array([_width(surface, best, j, diagonal[j]) for j in range(len(best.flat))])
    hessian = surface.curvature(best.flat, widths) * widths * widths[:, None]
    values, vectors = np.linalg.eigh(hessian)
    return Frame(best.flat, widths[:, None] * (vectors / np.sqrt(np.clip(np.abs(values), 1e-2, 1e4))))


def _width(surface: _Surface, best: Optimum, j: int, bend: float) -> float:
    """How far coordinate j moves, the others still, until the log density has fallen by about a half."""
    move = np.zeros_like(best.flat)
    move[j] = 1.0
    width = 1 / np.sqrt(bend) if bend > 0 else best.scale[j]
    for _ in range(60):
        sides = [surface.at(best.flat + side * width * move)[0] + best.value for side in (-1, 1)]
        fall = np.mean(sides) if np.isfinite(sides).all() else np.inf
        if 0.2 <= fall <= 1.25:
            break
        width *= 0.5 if fall > 1.25 else min(2.0, np.sqrt(0.5 / max(fall, 1e-3)))
    return float(width)
