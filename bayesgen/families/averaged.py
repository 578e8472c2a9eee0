"""A family averaged over draws of its parameters: the predictive density of a posterior that was sampled.

    f(x | y=k) = (1/S) Σ_s f(x | y=k, θ_s)

Where class probabilities π were sampled together with θ, as they are when labels are missing, the average of the joint
density π_k f(x | k, θ) is π̄_k times an average with weights of its own for each class:

    f(x | y=k) = Σ_s ω_sk f(x | y=k, θ_s),    ω_sk = π_sk / Σ_s π_sk

Parameters carry a leading draw axis (S, ...). Draws are gone through one after the other: memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesgen.families.base import Family, Params, Part, static

ROWS_AT_ONCE = 64  # that carry parameters (or draws times classes) of their own
SHARE = "log_share"  # the parameter with log ω, (S, K)


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
        return self.family.integrates_missing(_one(_split(params)[0], 0))

    def bare(self) -> Family:
        return Averaged(self.family.bare(), self.shared)

    def public(self, params: Params) -> Params:
        return self.family.public(_split(params)[0])

    def groups(self, missing: np.ndarray):
        return self.family.groups(missing)

    def separable(self, params: Params) -> bool:
        return self.family.separable(_one(_split(params)[0], 0))

    def width(self, num_features: int) -> int:
        return self.family.width(num_features)

    # -- densities
    def log_prob(self, params: Params, x, cells=None):
        draws, share = _split(params)
        return self._log_sum(draws, share, x, cells)

    def _log_sum(self, draws: Params, share, x, cells):
        def add(total, item):
            theta, log_share = item
            return jnp.logaddexp(total, log_share + self.family.log_prob(theta, x, cells)), None

        first = share[0] + self.family.log_prob(_one(draws, 0), x, cells)
        return jax.lax.scan(add, first, _rest((draws, share)))[0]

    def cell_log_prob(self, params: Params, x):
        """What each column adds to the log density given those before it.

        Averaged columns are not independent. These parts add up to the row exactly, and where the posterior is
        independent between columns they are the averages of each column for itself.
        """
        draws, share = _split(params)

        def sums_of(theta, log_share):
            return jnp.reshape(log_share, (-1, 1)) + jnp.cumsum(self.family.cell_log_prob(theta, x), -1)

        def add(total, item):
            return jnp.logaddexp(total, sums_of(*item)), None

        sums, _ = jax.lax.scan(add, sums_of(_one(draws, 0), share[0]), _rest((draws, share)))
        before = jnp.concatenate([jnp.zeros_like(sums[..., :1]), sums[..., :-1]], -1)
        # a column after one of density 0 adds nothing
        return jnp.where(jnp.isneginf(before), 0.0, sums - jnp.where(jnp.isneginf(before), 0.0, before))

    # -- draws
    def sample(self, key, params: Params, y):
        draws, share = _split(params)
        key_pick, key_rows = jax.random.split(key)
        if share.ndim == 1:
            pick = jax.random.randint(key_pick, y.shape, 0, _count(draws))
        else:
            pick = jax.vmap(jax.random.categorical)(jax.random.split(key_pick, len(y)), share.T[y])
        return _each_row(lambda theta, key, code: self.family.sample(key, theta, code), draws, key_rows, pick, y)

    def complete(self, key, params: Params, x, y, cells=None):
        """Parameters given the observed cells of the row, then the others given both."""
        draws, share = _split(params)
        key_pick, key_rows = jax.random.split(key)
        pick = self._pick(key_pick, draws, share, x, y, cells)

        def one(theta, key, code, row):
            return self.family.complete(key, theta, row, code, cells)

        return _each_row(one, draws, key_rows, pick, y, x)

    def _pick(self, key, draws: Params, share, x, y, cells):
        """A draw s for each row with probability ∝ ω f(x_obs | y, θ_s): the largest of log ω f + Gumbel noise."""

        def better(best, item):
            s, theta, log_share, key = item
            own = jnp.take_along_axis(log_share + self.family.log_prob(theta, x, cells), y[:, None], 1)[:, 0]
            score = own + jax.random.gumbel(key, own.shape)
            return (jnp.where(score > best[1], s, best[0]), jnp.maximum(score, best[1])), None

        count = _count(draws)
        start = jnp.zeros(y.shape, int), jnp.full(y.shape, -jnp.inf)
        return jax.lax.scan(better, start, (jnp.arange(count), draws, share, jax.random.split(key, count)))[0][0]

    # -- filling in
    def fill(self, params: Params, x, share, cells=None):
        """Classes mixed by share, draws by the density of the observed cells under each."""
        draws, log_share = _split(params)
        total = self._log_sum(draws, log_share, x, cells)
        parts = self.family.parts(draws, x, cells)
        if len(parts) == 1 and parts[0].columns is None:
            return self._fill_part(parts[0], draws, log_share, x, share, total, cells)
        for part in parts:
            filled = self._fill_part(part, draws, log_share, x, share, total, cells)
            x = x.at[:, part.columns].set(filled)
        return x

    def _fill_part(self, part: Part, draws: Params, log_share, x, share, total, cells):
        """The columns of one part filled; draws are weighted by what all the columns say."""
        if part.family.fills_mode(_one(part.params, 0)):
            return self._fill_mode(part, draws, log_share, x, share, total, cells)

        def add(filled, item):
            theta, mine, log_ = item
            weight = _share(log_ + self.family.log_prob(theta, x, cells), total, _count(draws))
            return filled + part.family.fill(mine, part.x, share * weight, part.cells), None

        return jax.lax.scan(add, jnp.zeros_like(part.x), (draws, part.params, log_share))[0]

    def _fill_mode(self, part: Part, draws: Params, log_share, x, share, total, cells):
        """The mode of a mixture over draws and classes: every pair of them is a class of its own."""
        count, k = _count(draws), share.shape[-1]
        shared = {name for name in part.params if part.prefix + name in self.shared}
        flat = {name: _merge_axes(leaf, k, shared=name in shared) for name, leaf in part.params.items()}

        def row(item):
            x, mine, share, total = item
            logs = jax.lax.map(lambda one: one[1] + self.family.log_prob(one[0], x[None])[0], (draws, log_share))
            weight = share * _share(logs, total, count)
            return part.family.fill(flat, mine[None], weight.reshape(1, -1))[0]

        return jax.lax.map(row, (x, part.x, share, total), batch_size=ROWS_AT_ONCE)


def _split(params: Params) -> tuple[Params, jax.Array]:
    """(draws, log ω): (S, K), or (S,) where all draws count the same."""
    draws = {name: value for name, value in params.items() if name != SHARE}
    if SHARE in params:
        return draws, jnp.asarray(params[SHARE])
    count = _count(draws)
    return draws, jnp.full(count, -np.log(count))


def _rest(tree):
    return jax.tree_util.tree_map(lambda leaf: leaf[1:], tree)


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
