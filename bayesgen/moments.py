"""Weight, mean and centred scatter of rows: what a Gaussian needs to know of them. No sum of raw squares anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = Any  # numpy on the host, jax inside jit


class Moments(NamedTuple):
    """Total weight, weighted mean and centred scatter of the rows of each class."""

    weight: Array
    mean: Array
    scatter: Array


def namespace(array: Array):
    """numpy for host arrays (no dispatch cost, always float64), jax.numpy for traced ones."""
    return jnp if isinstance(array, jax.Array) else np


def subtract(a: Array, b: Array) -> Array:
    """Weights a − b, exactly 0 where nothing but rounding is left."""
    n = a - b
    return namespace(n).where(n <= 1e-12 * a, 0.0, n)


def centred(x: np.ndarray, weight: np.ndarray | None, gram: Callable) -> tuple[Array, Array, Array]:
    """Moments of the rows of one class by the corrected two-pass algorithm; gram(δ, weight) makes the scatter."""
    n = float(len(x)) if weight is None else float(weight.sum())
    if n == 0:
        return 0.0, np.zeros(x.shape[1]), 0.0 * gram(x[:0], None)
    mean = x.mean(0) if weight is None else weight @ x / n
    delta = x - mean
    shift = delta.mean(0) if weight is None else weight @ delta / n
    delta -= shift
    return n, mean + shift, gram(delta, weight)


def centred_cells(x: np.ndarray, weight: np.ndarray | None) -> tuple[Array, Array, Array]:
    """The same column by column, from the observed cells: weight, mean and sum of squares, each (d,)."""
    missing = np.isnan(x)
    if not missing.any():
        n, mean, scatter = centred(x, weight, _sum_of_squares)
        return np.full(x.shape[1], n), mean, scatter
    cell = np.where(missing, 0.0, 1.0 if weight is None else weight[:, None])
    n = cell.sum(0)
    safe = np.where(n > 0, n, 1.0)
    mean = (cell * np.where(missing, 0.0, x)).sum(0) / safe
    delta = np.where(missing, 0.0, x - mean)
    shift = (cell * delta).sum(0) / safe
    return n, mean + shift, np.maximum((cell * delta**2).sum(0) - n * shift**2, 0.0)


def _sum_of_squares(delta: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    return np.einsum("ij,ij->j", delta, delta) if weight is None else weight @ delta**2


def rank(matrix: np.ndarray) -> int:
    """Numerical rank of a scatter, columns first brought to a common scale (so that units do not count)."""
    scale = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    eigenvalues = np.linalg.eigvalsh(matrix / scale[:, None] / scale[None, :])
    return int(np.sum(eigenvalues > len(matrix) * 1e-14))


def negative_direction(scatter: np.ndarray, scale: np.ndarray, tolerance: float) -> tuple[int, int] | None:
    """(class, column) of a scatter that is negative: no scatter of any rows. None where there is none.

    scatter (K, d) by column, or (K, d, d): then in any direction, and the column is the one with most part in it. Columns
    are in units of the square root of scale (K, d); down to −tolerance all is rounding.
    """
    own = scatter if scatter.ndim == 2 else np.diagonal(scatter, axis1=1, axis2=2)
    bad = np.argwhere(own < -tolerance * scale)
    if len(bad):
        return int(bad[0, 0]), int(bad[0, 1])
    unit = np.sqrt(np.where(scale > 0, scale, 1.0))
    for k in range(len(scatter)) if scatter.ndim == 3 else ():
        matrix = scatter[k] / unit[k][:, None] / unit[k]
        try:
            np.linalg.cholesky(matrix + tolerance * np.eye(len(matrix)))
        except np.linalg.LinAlgError:
            return k, int(np.abs(np.linalg.eigh(matrix)[1][:, 0]).argmax())
    return None
