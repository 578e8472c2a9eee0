"""Class probabilities of rows without labels: the maximum of

    ℓ(π) = Σ_i w_i log Σ_k π_k f(x_i | k),   π_k ≥ 0, Σ_k π_k = 1.

ℓ is concave. EM (Saerens, Latinne and Decaestecker, 2002) takes π_k to the average of p(k | x_i, π); it never goes down,
but where classes overlap it creeps. So a few steps of it are followed by Newton's. Those maximise the quadratic
approximation of ℓ(π) − W Σ_k π_k over π ≥ 0 (W = Σ w; at its maximum Σ π_k = 1), a least-squares problem with
non-negative unknowns, so that classes that are not there get exactly 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.optimize import nnls

EM_STEPS, MAX_STEPS, TOLERANCE = 5, 200, 1e-11
HALVINGS = 30
PULL = 1e-12  # towards the present π, where the rows say nothing: relative to a curvature of 1


class Adapted(NamedTuple):
    """What was found: class probabilities, steps taken, and whether they are the maximum."""

    probs: np.ndarray
    n_iter: int
    converged: bool


def adapt(log_density: np.ndarray, probs: np.ndarray, weight: np.ndarray, max_steps: int = MAX_STEPS) -> Adapted:
    """The most likely class probabilities of rows with log densities (n, K) and weights (n,), from `probs` (K,) onwards.

    Every row needs a positive weight, and a positive density under some class with probs > 0; the other classes stay at 0.
    The measure of convergence is max_k mean_i f(x_i | k)/f(x_i) − 1: by concavity, ℓ/W is at most this far below its
    maximum.

    Examples
    --------
    >>> adapt(np.log([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]]), np.array([0.5, 0.5]), np.ones(4)).probs.round(4)
    array([0.8125, 0.1875])
    """
    possible = probs > 0
    logs = log_density[:, possible]
    # a factor per row moves ℓ by a constant
    density, share = np.exp(logs - logs.max(1, keepdims=True)), weight / weight.sum()
    found = np.zeros(len(probs))
    found[possible], n_iter, converged = _climb(density, share, probs[possible] / probs[possible].sum(), max_steps)
    return Adapted(found, n_iter, converged)


def _climb(density: np.ndarray, share: np.ndarray, probs: np.ndarray, max_steps: int) -> tuple[np.ndarray, int, bool]:
    """Steps upwards from `probs`, of rows that weigh `share` (adding up to 1)."""
    for step in range(max_steps + 1):
        ratio = density / (density @ probs)[:, None]
        gradient = share @ ratio
        if gradient.max() - 1 <= TOLERANCE:
            return probs, step, True
        if step == max_steps:
            break
        probs = probs * gradient if step < EM_STEPS else _newton_step(ratio, share, gradient, probs)
        probs = probs / probs.sum()
    return probs, max_steps, False


def _newton_step(ratio: np.ndarray, share: np.ndarray, gradient: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """Newton's step as far as it goes up; that of EM where it does not."""
    try:
        step = _target(ratio, share, gradient, probs) - probs
    except (LinAlgError, RuntimeError):  # no factor, or least squares that did not end
        return probs * gradient
    slope, change, length = (gradient - 1) @ step, ratio @ step, 1.0
    for _ in range(HALVINGS):
        # the difference itself, which keeps its digits where those of ℓ are equal
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = share @ np.log1p(length * change) - length * step.sum()
        if gain > 0.1 * length * slope > 0:
            return probs + length * step
        length /= 2
    return probs * gradient


def _target(ratio: np.ndarray, share: np.ndarray, gradient: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """argmax over p ≥ 0 of (g − 1)ᵀ(p − π) − ½ (p − π)ᵀ H (p − π), H = Σ_i w_i r_i r_iᵀ, r_i = f(x_i | ·)/f(x_i)."""
    curvature = ratio.T @ (share[:, None] * ratio)
    own = np.diagonal(curvature)
    scale = 1 / np.sqrt(np.maximum(own, 1.0))
    # A class with H_kk < 1 has g_k < 1 and is on its way out: with more curvature it goes as surely, and spoils no digits.
    pull = PULL + np.maximum(1.0 - own, 0.0)
    root = cholesky(curvature * scale[:, None] * scale + np.diag(pull))
    # H π = g, so that the linear part is 2g − 1
    linear = scale * (2 * gradient - 1) + pull * probs / scale
    return scale * nnls(root, solve_triangular(root, linear, trans=1))[0]
