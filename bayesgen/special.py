"""Small functions of counts that keep their digits: rising factorials, and products with logarithms of zero."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special as jax_special
from scipy import special as host_special

Array = Any  # numpy on the host, jax inside jit

TABLE = 4096  # factorials below are looked up
STIRLING_FROM = 32.0  # from here on the series below is exact to the last bits


def _stirling_rest(z: Array) -> Array:
    """ln Γ(z) − {(z − ½) ln z − z + ½ ln 2π}, for z ≥ STIRLING_FROM."""
    w = 1 / (z * z)
    return (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w / 1680))) / z


def log_rising(a: Array, x: Array) -> Array:
    """ln Γ(a + x) − ln Γ(a), also where a is so large that the difference of the two would lose its digits.

    Examples
    --------
    >>> float(log_rising(np.float64(1e12), np.float64(2.0))) - 2 * float(np.log(1e12)) < 1e-11
    True
    """
    traced = isinstance(a, jax.Array) or isinstance(x, jax.Array)
    xp, gammaln = (jnp, jax_special.gammaln) if traced else (np, host_special.gammaln)
    large = a >= STIRLING_FROM
    big, small = xp.where(large, a, STIRLING_FROM), xp.where(large, 1.0, a)
    series = (big - 0.5) * xp.log1p(x / big) + x * xp.log(big + x) - x + _stirling_rest(big + x) - _stirling_rest(big)
    return xp.where(large, series, gammaln(small + x) - gammaln(small))


def log_factorial(x: np.ndarray) -> np.ndarray:
    """ln x! on the host; from a table where x are small whole numbers, which is what counts mostly are."""
    if not x.size or not 0 <= (most := x.max()) < TABLE:
        return host_special.gammaln(x + 1)
    whole = x.astype(np.int32)
    if not np.array_equal(whole, x):
        return host_special.gammaln(x + 1)
    return host_special.gammaln(np.arange(1.0, most + 2))[whole]


def dot_logs(x: jax.Array, logs: jax.Array) -> jax.Array:
    """Σ_j x_j logs_kj, (n, K), with 0 · (−∞) = 0: an impossible event that did not happen costs nothing."""
    impossible = jnp.isneginf(logs)

    def with_zeros():
        sums = x @ jnp.where(impossible, 0.0, logs).T
        return jnp.where((x > 0).astype(x.dtype) @ impossible.astype(x.dtype).T > 0, -jnp.inf, sums)

    return jax.lax.cond(jnp.any(impossible), with_zeros, lambda: x @ logs.T)


def log_coefficient(x: jax.Array) -> jax.Array:
    """Logarithm of the multinomial coefficient N!/Π x_j! of each row, (n,)."""
    return jax_special.gammaln(x.sum(-1) + 1) - jax_special.gammaln(x + 1).sum(-1)
