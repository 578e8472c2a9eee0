"""A family averaged over draws of its parameters: the predictive density of a posterior that was sampled.

    f(x | y=k) = (1/S) Σ_s f(x | y=k, θ_s)

Parameters carry a leading draw axis (S, ...). Draws are gone through one after the other: memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesgen.families.base import Family, Params, static

ROWS_AT_ONCE = 64  # that carry parameters (or draws times classes) of their own


class Averaged(Family):
    """The average of `family` over draws of its parameters.

    Examples
    --------
    >>> from bayesgen.families import Bernoulli
    >>> draws = {"prob": jnp.array([[[0.2]], [[0.4]]])}
    >>> print(jnp.exp(Averaged(Bernoulli()).log_prob(draws, jnp.array([[1.0]]))).round(3))
    [[0.3]]
    """

    family: Any = None
    shared: tuple = static(default=())  # names of parameters that all the classes share: they have no class axis

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.family.kind

    @property
    def takes_missing(self) -> bool:  # type: ignore[override]
        return self.family.takes_missing

    def integrates_missing(self, params: Params) -> bool:
        return self.family.integrates_missing(_one(params, 0))

    def bare(self) -> Family:
        return Averaged(self.family.bare(), self.shared)

    def public(self, params: Params) -> Params:
        return self.family.public(params)

    def groups(self, missing: np.ndarray):
        return self.family.groups(missing)

    def separable(self, params: Params) -> bool:
        return self.family.separable(_one(params, 0))

    # -- densities
    def log_prob(self, params: Params, x, cells=None):
        return self._log_sum(params, x, cells) - jnp.log(_count(params))

    def _log_sum(self, params: Params, x, cells):
        def add(total, theta):
            return jnp.logaddexp(total, self.family.log_prob(theta, x, cells)), None

        first = self.family.log_prob(_one(params, 0), x, cells)
        return jax.lax.scan(add, first, jax.tree_util.tree_map(lambda leaf: leaf[1:], params))[0]

    def cell_log_prob(self, params: Params, x):
        """What each column adds to the log density given those before it.

        Averaged columns are not independent. These parts add up to the row exactly, and where the posterior is
        independent between columns they are the averages of each column for itself.
        """

        def add(total, theta):
            return jnp.logaddexp(total, jnp.cumsum(self.family.cell_log_prob(theta, x), -1)), None

        first = jnp.cumsum(self.family.cell_log_prob(_one(params, 0), x), -1)
        sums, _ = jax.lax.scan(add, first, jax.tree_util.tree_map(lambda leaf: leaf[1:], params))
        sums = sums - jnp.log(_count(params))
        before = jnp.concatenate([jnp.zeros_like(sums[..., :1]), sums[..., :-1]], -1)
        # a column after one of density 0 adds nothing
        return jnp.where(jnp.isneginf(before), 0.0, sums - jnp.where(jnp.isneginf(before), 0.0, before))

    # -- draws
    def sample(self, key, params: Params, y):
        key_pick, key_rows = jax.random.split(key)
        pick = jax.random.randint(key_pick, y.shape, 0, _count(params))
        return _each_row(lambda theta, key, code: self.family.sample(key, theta, code), params, key_rows, pick, y)

    def complete(self, key, params: Params, x, y, cells=None):
        """Parameters given the observed cells of the row, then the others given both."""
        key_pick, key_rows = jax.random.split(key)
        pick = self._pick(key_pick, params, x, y, cells)

        def one(theta, key, code, row):
            return self.family.complete(key, theta, row, code, cells)

        return _each_row(one, params, key_rows, pick, y, x)

    def _pick(self, key, params: Params, x, y, cells):
        """A draw s for each row with probability ∝ f(x_obs | y, θ_s): the largest of log f + Gumbel noise."""

        def better(best, item):
            s, theta, key = item
            own = jnp.take_along_axis(self.family.log_prob(theta, x, cells), y[:, None], 1)[:, 0]
            score = own + jax.random.gumbel(key, own.shape)
            return (jnp.where(score > best[1], s, best[0]), jnp.maximum(score, best[1])), None

        count = _count(params)
        start = jnp.zeros(y.shape, int), jnp.full(y.shape, -jnp.inf)
        return jax.lax.scan(better, start, (jnp.arange(count), params, jax.random.split(key, count)))[0][0]

    # -- filling in
    def fill(self, params: Params, x, share, cells=None):
        """Classes mixed by share, draws by the density of the observed cells under each."""
        total = self._log_sum(params, x, cells)
        if self.family.fills_mode(_one(params, 0)):
            return self._fill_mode(params, x, share, total)

        def add(filled, theta):
            weight = _share(self.family.log_prob(theta, x, cells), total, _count(params))
            return filled + self.family.fill(theta, x, share * weight, cells), None

        return jax.lax.scan(add, jnp.zeros_like(x), params)[0]

    def _fill_mode(self, params: Params, x, share, total):
        """The mode of a mixture over draws and classes: every pair of them is a class of its own."""
        count, k = _count(params), share.shape[-1]
        flat = {name: _merge_axes(leaf, k, shared=name in self.shared) for name, leaf in params.items()}

        def row(item):
            x, share, total = item
            logs = jax.lax.map(lambda theta: self.family.log_prob(theta, x[None])[0], params)
            weight = share * _share(logs, total, count)
            return self.family.fill(flat, x[None], weight.reshape(1, -1))[0]

        return jax.lax.map(row, (x, share, total), batch_size=ROWS_AT_ONCE)


def _count(params: Params) -> int:
    return jax.tree_util.tree_leaves(params)[0].shape[0]


def _one(params: Params, s: int) -> Params:
    return jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf)[s], params)


def _share(logs, total, count: int):
    """exp(logs − total): the weight of a draw; equal weights where no draw gives the row any density."""
    return jnp.where(jnp.isneginf(total), 1.0 / count, jnp.exp(logs - jnp.where(jnp.isneginf(total), 0.0, total)))


def _merge_axes(leaf, num_classes: int, *, shared: bool):
    """(S, K, ...) -> (S·K, ...); parameters that classes share, (S, ...), are repeated."""
    if shared:
        return jnp.repeat(leaf, num_classes, axis=0)
    return leaf.reshape(-1, *leaf.shape[2:])


def _each_row(function: Callable, params: Params, key, pick, y, *more):
    """function(θ_s, key, y, ...) row by row, each with its own draw s."""

    def one(item):
        s, key, code, *rest = item
        return function(_one(params, s), key, code[None], *(value[None] for value in rest))[0]

    keys = jax.random.split(key, len(y))
    return jax.lax.map(one, (pick, keys, y, *more), batch_size=ROWS_AT_ONCE)
