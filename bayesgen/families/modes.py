"""The mode of a mixture of laws of counts: what a missing cell is filled with.

A mixture of laws of one peak each has its mode between the smallest and the largest of their modes. Where these are near
each other every value between them is tried; where they are far apart the search climbs from each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

EVERY_VALUE = 512  # up to this range of values the mode of a mixture is found by trying every one
MOST_STARTS = 64  # hills that are climbed: of more laws, those at even ranks of their modes
FAR = 2.0**16  # how far the mode of a law without a mean is looked for


class Peaks(NamedTuple):
    """Where to look for the mode of a mixture: the mode and the standard deviation of each of its M laws, by column."""

    modes: Any  # (M, p)
    spread: Any  # (M, p)
    low: Any = 0.0  # ends of the support, () or (p,)
    high: Any = jnp.inf

    def span(self) -> tuple[jax.Array, jax.Array]:
        """The values (p,) between which the mode of the mixture lies: all that there are where they are few."""
        few = jnp.broadcast_to(self.high - self.low <= EVERY_VALUE, self.modes.shape[1:])
        return jnp.where(few, self.low, self.modes.min(0)), jnp.where(few, self.high, self.modes.max(0))


def mixture_mode(height: Callable, peaks: Peaks, shape: tuple[int, ...]) -> jax.Array:
    """The value (n, p) at which the mixture is highest; `height` takes values (n, p) and gives their probabilities.

    Finite ends of the support are tried besides: zero inflation puts a peak there.

    Examples
    --------
    >>> peaks = Peaks(jnp.array([[4.0], [0.0]]), jnp.ones((2, 1)))
    >>> mixture_mode(lambda v: 0.3**v + 0.9 * 0.3 ** jnp.abs(v - 4), peaks, (1, 1)).tolist()
    [[0.0]]
    """
    low, high = peaks.span()
    narrow = jnp.max(high - low) <= EVERY_VALUE
    best = jax.lax.cond(narrow, partial(_best_of_all, height, shape), partial(_best_near, height, shape), peaks)
    ends = jnp.stack([jnp.broadcast_to(end, peaks.modes.shape[1:]) for end in (peaks.low, peaks.high)])
    ends = jnp.where(jnp.isfinite(ends), ends, peaks.modes[0])
    return _climb(height, (best, height(best)), lambda i: jnp.broadcast_to(ends[i], shape), 2)[0]


def peaks_of(log_prob: Callable, mean: jax.Array, variance: jax.Array, low: jax.Array, high: jax.Array) -> Peaks:
    """Peaks of laws of which the mean, the variance and the ends of the support are known, each (K, p)."""
    sd = jnp.sqrt(variance)
    modes = _modes(log_prob, *_bracket(mean, sd, low, high))
    return Peaks(modes, jnp.where(jnp.isfinite(sd), sd, jnp.abs(modes) + 1), low.min(0), high.max(0))


def _bracket(mean, sd, low, high) -> tuple[jax.Array, jax.Array]:
    """Ends between which a law of one peak has its mode, whole and finite.

    It lies within √3 standard deviations of the mean and, above a lower end, within twice the mean's distance from it;
    1 is added for the steps of whole numbers. NaN: nothing is known.
    """
    reach = jnp.sqrt(3.0) * sd + 1
    left = jnp.fmax(low, jnp.floor(mean - reach))
    right = jnp.fmin(jnp.fmin(high, jnp.ceil(mean + reach)), jnp.ceil(2 * mean - low) + 1)
    left = jnp.where(jnp.isfinite(left), left, jnp.where(jnp.isfinite(right), right - FAR, 0.0))
    return left, jnp.where(jnp.isfinite(right), jnp.maximum(right, left), left + FAR)


def _modes(log_prob, left, right) -> jax.Array:
    """The mode of each law between two whole numbers, by bisection: up to it each step of 1 leads upwards."""

    def halve(state):
        left, right = state
        middle = jnp.floor((left + right) / 2)
        rising = log_prob(middle + 1) > log_prob(middle)
        open_ = left < right
        return jnp.where(open_ & rising, middle + 1, left), jnp.where(open_ & ~rising, middle, right)

    return jax.lax.while_loop(lambda state: jnp.any(state[0] < state[1]), halve, (left, right))[0]


def _climb(height, start, candidates, count):
    """The highest of `start` (value, height) and of candidates(0), ..., candidates(count − 1)."""

    def better(i, best):
        value, top = best
        here = candidates(i)
        now = height(here)
        return jnp.where(now > top, here, value), jnp.maximum(now, top)

    return jax.lax.fori_loop(0, count, better, start)


def _best_of_all(height, shape, peaks):
    """By trying every value between the smallest and the largest mode."""
    low, high = peaks.span()
    start = jnp.broadcast_to(low, shape), jnp.full(shape, -1.0)
    count = jnp.max(high - low).astype(int) + 1
    return _climb(height, start, lambda i: jnp.broadcast_to(jnp.minimum(low + i, high), shape), count)[0]


def _starts(peaks: Peaks) -> tuple[jax.Array, jax.Array]:
    """Modes and spreads to climb from: laws of many draws of the same parameters crowd on few hills."""
    count = len(peaks.modes)
    if count <= MOST_STARTS:
        return peaks.modes, peaks.spread
    order = jnp.argsort(peaks.modes, 0)[jnp.linspace(0, count - 1, MOST_STARTS).astype(int)]
    return jnp.take_along_axis(peaks.modes, order, 0), jnp.take_along_axis(peaks.spread, order, 0)


def _best_near(height, shape, peaks):
    """Up the hill from each mode, with finer and finer steps."""
    offset = jnp.arange(-4.0, 5.0)
    modes, spread = _starts(peaks)

    def step(value, size):
        return lambda i: jnp.clip(value + size * offset[i], peaks.low, peaks.high)

    def around(state):
        value, top, size, left = state
        value, top = _climb(height, (value, top), step(value, size), 9)
        return value, top, jnp.maximum(jnp.ceil(size / 4), 1.0), left - 1

    def from_law(k, best):
        size = jnp.broadcast_to(jnp.maximum(jnp.ceil(spread[k] / 4), 1.0), shape)
        value = jnp.broadcast_to(modes[k], shape)
        top = height(value)
        for _ in range(2):  # the hill's top may be more than a standard deviation away
            value, top = _climb(height, (value, top), step(value, size), 9)
        # each round leaves a fourth of the step, and the last has steps of 1
        rounds = jnp.ceil(jnp.log(jnp.max(size)) / jnp.log(4.0)).astype(int) + 2
        value, top, *_ = jax.lax.while_loop(lambda state: state[3] > 0, around, (value, top, size, rounds))
        return jnp.where(top > best[1], value, best[0]), jnp.maximum(top, best[1])

    nothing = jnp.zeros(shape), jnp.full(shape, -1.0)
    return jax.lax.fori_loop(0, len(modes), from_law, nothing)[0]
