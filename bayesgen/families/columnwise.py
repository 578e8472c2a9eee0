"""What the ready-made families of independent columns share: a prior of a few numbers per column, from the data if need be.

Numbers that are taken from the data are weak and follow the column's scale. They rest on the labelled rows and the
observed cells, with their weights, and no column makes them degenerate: constant columns, columns of zeros and columns
without a cell have a proper prior too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from bayesgen.families.base import Family, Labels
from bayesgen.families.gaussian import Gaussian, column_scales

WIDE = 10.0  # prior standard deviation of a location, in standard deviations of the column
MOST_LOG_SD = 3.0  # that of the logarithm of a mean: no more than this
NORMAL_SD = 1.4826  # standard deviation of a normal law over its median absolute deviation


class Columnwise(Family):
    """A family of independent columns. Its `prior` is "auto" or an instance of `Prior`, with None for what is "auto"."""

    prior: Any = "auto"
    Prior: ClassVar[Any]  # the NamedTuple of the prior's numbers
    real: ClassVar[tuple[str, ...]] = ()  # those that may be negative or 0

    def automatic(self, x: np.ndarray, r: Labels | np.ndarray) -> Any:
        """The prior's numbers from the data, each (p,)."""
        raise NotImplementedError

    def resolve(self, x: np.ndarray, r: Labels | np.ndarray) -> Columnwise:
        return dataclasses.replace(self, prior=self._filled(np.asarray(x, float), r))

    def _filled(self, x: np.ndarray, r: Labels | np.ndarray) -> Any:
        given = self.Prior() if isinstance(self.prior, str) and self.prior == "auto" else self.prior
        if not isinstance(given, self.Prior):
            name = self.Prior.__name__
            raise TypeError(f"{type(self).__name__}(prior={self.prior!r:.60}): give 'auto' or {name}(...).")
        pairs = zip(given, self.automatic(x, r), strict=True)
        return self.Prior(
            *(auto if own is None else self._stated(own, i, x.shape[1]) for i, (own, auto) in enumerate(pairs))
        )

    def _stated(self, value, i: int, p: int) -> np.ndarray:
        """A number of the prior that the user gave, by column."""
        name = self.Prior._fields[i]
        numbers, where = np.asarray(value, float), f"{self.Prior.__name__}({name}=...)"
        if numbers.shape not in ((), (p,)):
            raise ValueError(f"{where} has shape {numbers.shape}, but there are {p} columns: give a number or {p} of them.")
        if not np.isfinite(numbers).all() or (name not in self.real and not (numbers > 0).all()):
            raise ValueError(f"{where}: {numbers.tolist()} must be finite" + ("." if name in self.real else " and above 0."))
        return np.broadcast_to(numbers, (p,)).copy()

    def numbers(self, num_features: int) -> Any:
        """The prior's numbers, each (p,). What no data have been asked for is as for columns without a cell."""
        given = self.prior
        if not isinstance(given, self.Prior) or any(value is None for value in given):
            given = self._filled(np.empty((0, num_features)), Labels(np.empty(0, int), 1))
        return self.Prior(*(jnp.broadcast_to(value, (num_features,)) for value in given))

    def bare(self) -> Columnwise:
        return dataclasses.replace(self, prior=None)


class Scales(NamedTuple):
    """Of each column: the weight of its observed cells, their mean, and the variances within the classes and in all."""

    weight: np.ndarray
    mean: np.ndarray
    within: np.ndarray
    total: np.ndarray


def scales(x: np.ndarray, r: Labels | np.ndarray) -> Scales:
    """Scales of the columns of x (n, p); variances are never 0 (see `column_scales`).

    Examples
    --------
    >>> got = scales(np.array([[1.0], [3.0], [7.0], [np.nan]]), Labels(np.array([0, 0, 1, 1]), 2))
    >>> got.mean.round(3).tolist(), got.within.round(3).tolist()
    ([3.667], [0.667])
    """
    columns = Gaussian("diag")
    moments = columns.stats(x, r)
    mean, within = column_scales(columns.covariance, moments)
    weight = np.asarray(moments.weight).sum(0)
    spread = (np.asarray(moments.weight) * (np.asarray(moments.mean) - mean) ** 2).sum(0)
    return Scales(weight, mean, within, within + spread / np.where(weight > 0, weight, 1.0))


def log_mean_prior(mean: np.ndarray, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and standard deviation of the prior of a positive mean's logarithm."""
    return np.log(mean), np.minimum(WIDE * np.sqrt(total) / mean, MOST_LOG_SD)


def robust_scales(x: np.ndarray, r: Labels | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Median of each column, and the standard deviation within the classes that its median absolute deviation suggests.

    The standard deviation itself where half of the cells are at the medians of their classes.
    """
    known = scales(x, r)
    middle, width = known.mean.copy(), np.sqrt(known.within)
    for j in np.flatnonzero(known.weight > 0):
        cells = list(_cells(x[:, j], r))
        middle[j] = _median(*(np.concatenate(part) for part in zip(*cells, strict=True)))
        away = [(np.abs(value - _median(value, weight)), weight) for value, weight in cells]
        half = _median(*(np.concatenate(part) for part in zip(*away, strict=True)))
        width[j] = NORMAL_SD * half if half > 1e-12 * abs(middle[j]) else width[j]
    return middle, width


def _cells(column: np.ndarray, r: Labels | np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(values, weights) of the observed cells of each class that has some."""
    whole = slice(None)
    parts = [part[1:] for part in r.segments()] if isinstance(r, Labels) else [(whole, w) for w in np.asarray(r).T]
    for rows, weight in parts:
        value = column[rows]
        weight = np.ones(len(value)) if weight is None else np.asarray(weight, float)
        seen = ~np.isnan(value) & (weight > 0)
        if seen.any():
            yield value[seen], weight[seen]


def _median(values: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)])
