"""Numeric integrals along one column of many rows at once: adaptive, on the whole support, with heavy tails.

A support is first stretched to the real line (x = low + eᵘ on a half-line, a logistic curve on an interval), then taken
in the coordinate t of u = centre + scale · sinh t, in which tails of any weight die out exponentially. Panels of t are
halved until the last Legendre coefficients of the integrand on each of them are negligible.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.polynomial import legendre
from scipy.special import expit

ORDER = 12
NODES, WEIGHTS = legendre.leggauss(ORDER)
# from values at the nodes to Legendre coefficients: (2n + 1)/2 · Σ_i w_i P_n(x_i) f(x_i); only the last are looked at
LAST = (legendre.legvander(NODES, ORDER - 1) * WEIGHTS[:, None] * (np.arange(ORDER) + 0.5))[:, -4:]
_HALF = np.array([0.0, 1.0, 2.0, 3.0, 5.0, 9.0, 20.0, 80.0])
EDGES = np.concatenate([-_HALF[:0:-1], _HALF])
PRECISION = 1e-8  # of a panel, as a share of the whole integral
ROUNDS = 40
MOST_POINTS = 2_000_000
NEGLIGIBLE = -1e5  # log density
FAR = 345.0  # eᵘ and its square must stay numbers


class Integrand(Protocol):
    """A batch of functions of one coordinate."""

    def logs(self, problem: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(log of the function, value x whose mean may be asked for) of problem[i] at t[i]."""


class Integrals(NamedTuple):
    """Integrals over the given panels, (B, E − 1), each to be multiplied by exp(shift)."""

    mass: np.ndarray
    moment: np.ndarray  # of x times the function
    shift: np.ndarray  # (B,)
    error: np.ndarray  # (B,), estimated, of the sum of the masses

    @property
    def log_total(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(self.mass.sum(1)) + self.shift


def integrate(function: Integrand, edges: np.ndarray, *, moments: bool = False) -> Integrals:
    """∫ over each panel between consecutive edges (B, E), the columns of `edges` increasing.

    Panels are halved until the masses are precise, and with `moments` those of x too, which may lie elsewhere.
    """
    batch, panels = edges.shape[0], edges.shape[1] - 1
    first, last = edges[:, :-1].ravel(), edges[:, 1:].ravel()
    origin = np.arange(batch * panels)
    done, error, shift = np.zeros((2, batch * panels)), np.zeros(batch), np.zeros(batch)
    for turn in range(ROUNDS):
        half = (last - first) / 2
        t = (first + half)[:, None] + half[:, None] * NODES
        problem = origin // panels
        logs, x = function.logs(np.repeat(problem, ORDER), t.ravel())
        logs, x = np.where(np.isposinf(logs), -np.inf, logs).reshape(t.shape), x.reshape(t.shape)  # a point has no mass
        if turn == 0:
            shift = _highest(logs, batch)
        # where the density is all but zero its logarithm has no digits left to integrate
        height = np.where(shift[problem, None] < NEGLIGIBLE, -np.inf, logs - shift[problem, None])
        value = np.exp(np.minimum(height, FAR)) * half[:, None]
        with np.errstate(over="ignore", invalid="ignore"):  # a mean that is not finite is not asked for
            here = np.stack([value @ WEIGHTS, (value * x) @ WEIGHTS])
            doubt = np.abs(value @ LAST).sum(1)
            rough = np.abs((value * x) @ LAST).sum(1)
        total = np.bincount(problem, here[0], batch) + done[0].reshape(batch, panels).sum(1)
        split = doubt > PRECISION * total[problem]
        if moments:
            size = np.bincount(problem, np.abs(here[1]), batch) + np.abs(done[1]).reshape(batch, panels).sum(1)
            split |= rough > PRECISION * size[problem]
        if turn == ROUNDS - 1 or 2 * ORDER * split.sum() > MOST_POINTS:
            split[:] = False
        for sums, part in zip(done, here, strict=True):
            np.add.at(sums, origin[~split], part[~split])
        error += np.bincount(problem[~split], doubt[~split], batch)
        if not split.any():
            break
        middle = (first + half)[split]
        first, last = np.append(first[split], middle), np.append(middle, last[split])
        origin = np.tile(origin[split], 2)
    mass, moment = done.reshape(2, batch, panels)
    return Integrals(mass, moment, shift, error)


def _highest(logs: np.ndarray, batch: int) -> np.ndarray:
    top = np.where(np.isfinite(logs), logs, -np.inf).reshape(batch, -1).max(1)
    return np.where(np.isfinite(top), top, 0.0)


# -- supports
def stretch(x, low, high):
    """The coordinate u on the real line of a point of the support (low, high)."""
    x, low, high = np.broadcast_arrays(np.asarray(x, float), low, high)
    with np.errstate(invalid="ignore", divide="ignore"):
        left, right = np.log(x - low), np.log(high - x)
        u = np.where(np.isfinite(low), left, np.where(np.isfinite(high), right, x))
        return np.clip(np.where(np.isfinite(low) & np.isfinite(high), left - right, u), -1e300, 1e300)


def shrink(u, low, high):
    """(x, log |dx/du|): back from the real line."""
    u, low, high = np.broadcast_arrays(u, low, high)
    below, above = np.isfinite(low), np.isfinite(high)
    near = np.clip(u, -FAR, FAR)
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.where(below & above, high - low, 1.0)
        # from the nearer end, so that no digits are lost there
        inside = np.where(u < 0, low + size * expit(near), high - size * expit(-near))
        inside = np.clip(inside, np.nextafter(low, high), np.nextafter(high, low))
        x = np.where(below & above, inside, np.where(below, low + np.exp(near), np.where(above, high - np.exp(near), u)))
        logistic = np.log(size) - np.logaddexp(0, near) - np.logaddexp(0, -near)
    return x, np.where(below & above, logistic, np.where(below | above, near, 0.0))


class Lines:
    """The density of class k along column j: each row of `rows` gives the other cells (NaN: integrated out)."""

    def __init__(self, density, k: int, j: int, rows: np.ndarray, centre, scale):
        self.density, self.k, self.j, self.rows = density, k, j, rows
        self.low, self.high = density.support.low[k, j], density.support.high[k, j]
        self.centre, self.scale = np.broadcast_to(centre, len(rows)), np.broadcast_to(scale, len(rows))

    def place(self, problem: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(x, log |dx/dt|) at t."""
        scale = self.scale[problem]
        x, log_slope = shrink(self.centre[problem] + scale * np.sinh(t), self.low, self.high)
        return x, log_slope + np.log(scale) + np.logaddexp(t, -t) - np.log(2)

    def logs(self, problem, t):
        x, log_slope = self.place(problem, t)
        rows = self.rows[problem].copy()
        rows[:, self.j] = x
        return self.density.logs(rows)[:, self.k] + log_slope, x

    def coordinate(self, x: np.ndarray) -> np.ndarray:
        """The coordinate t of values x, one for each row."""
        return np.arcsinh((stretch(x, self.low, self.high) - self.centre) / self.scale)

    def edges(self, shift: float = 0.0) -> np.ndarray:
        """Panels over the whole support, (B, E), the inner edges moved by `shift`."""
        limit = np.full(len(self.rows), EDGES[-1])
        if np.isfinite(self.low) or np.isfinite(self.high):
            limit = np.arcsinh((FAR - np.minimum(np.abs(self.centre), FAR - 1)) / self.scale)
        inner = np.clip(EDGES[1:-1] + shift, -limit[:, None], limit[:, None])
        return np.concatenate([-limit[:, None], inner, limit[:, None]], 1)


# Of three grids at least two have no edge so close to a kink or a jump that it hides between nodes.
SHIFTS = (0.0, 0.21, -0.37)


class Planes:
    """The density of class k along column j, with column `other` integrated out numerically."""

    def __init__(self, lines: Lines, other: int, across, shift: float):
        self.lines, self.other, self.across, self.shift = lines, other, across, shift

    def logs(self, problem, t):
        x, log_slope = self.lines.place(problem, t)
        rows = self.lines.rows[problem].copy()
        rows[:, self.lines.j] = x
        inner = self.across(self.lines.k, self.other, rows)
        return integrate(inner, inner.edges(self.shift)).log_total + log_slope, x
