"""Gibbs sampling by data augmentation, for families that are conjugate given complete rows.

    x_mis | x_obs, y, θ     by the family's `complete`
    θ | completed rows      by the family's `resample`: a draw of its closed-form posterior (or, where means are pooled, a
                            sweep over the parameters that are conjugate given the others)

Only rows with missing cells are gone through at every sweep; the statistics of the others are computed once. A row of
weight w stands for w rows, each with cells of its own.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np

from bayesgen.families.base import Labels
from bayesgen.inference.chains import Chains, collect, diagnose, pieces
from bayesgen.inference.progress import bar
from bayesgen.inference.settings import Gibbs, chains_of
from bayesgen.inference.target import Rows
from bayesgen.linalg import Scattered
from bayesgen.programs import jit

MOST = 25  # sweeps between two looks at the keyboard


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["family", "stats", "rows"],
    meta_fields=["width", "num_classes", "num_features"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class Augmented:
    """A block's family, the statistics of its complete rows, and the rows with missing cells (None: there are none)."""

    family: Any
    stats: Any
    rows: Rows | None
    width: int  # missing cells of a row, at most
    num_classes: int
    num_features: int

    @classmethod
    def of(cls, family, x: np.ndarray, labels: Labels) -> Augmented:
        """Rows with gaps go apart, where the statistics are not exact with them."""
        d, k = x.shape[1], labels.num_classes
        gaps = np.isnan(x).any(1) & (not family.drops_missing)
        whole = family.stats(x[~gaps], _part(labels, ~gaps))
        if not gaps.any():
            return cls(family, whole, None, 0, k, d)
        weight = np.ones(len(x)) if labels.weight is None else labels.weight
        again = np.repeat(np.flatnonzero(gaps), weight[gaps].astype(int))
        rows = Rows.of(x[again], Labels(labels.codes[again], k))
        width = min(1 << int(np.isnan(x).sum(1).max() - 1).bit_length(), d)
        return cls(family, whole, rows, width, k, d)

    def sweep(self, key, params):
        """Cells given the parameters, then parameters given the cells."""
        key_cells, key_params = jax.random.split(key)
        stats = self.stats
        if self.rows is not None:
            cells = Scattered(self.width)
            filled = self.family.complete(key_cells, params, self.rows.x, self.rows.codes, cells)
            stats = self._with(filled)
        return self.family.resample(key_params, params, stats, self.num_classes, self.num_features)

    def _with(self, filled):
        r = jax.nn.one_hot(self.rows.codes, self.num_classes) * self.rows.weight[:, None]
        return self.family.merge(self.stats, self.family.stats(filled, r))

    def start(self, key):
        """Parameters to start from: those of the rows with missing cells at their columns' means."""
        stats = self.stats
        if self.rows is not None:
            x = self.rows.x
            centre = jax.numpy.nan_to_num(jax.numpy.nanmean(x, 0))
            stats = self._with(jax.numpy.where(jax.numpy.isnan(x), centre, x))
        return self.family.resample(key, None, stats, self.num_classes, self.num_features)


def _part(labels: Labels, keep: np.ndarray) -> Labels:
    return Labels(labels.codes[keep], labels.num_classes, None if labels.weight is None else labels.weight[keep])


@jit
def _begin(problem: Augmented, keys):
    return jax.vmap(problem.start)(keys)


@jit(static_argnames="most")
def _advance(problem: Augmented, params, keys, steps, thin, most):
    """All chains by `steps` draws of `thin` sweeps each: (parameters, those after each draw, (chains, most, ...))."""

    def chain(params, key):
        def step(state):
            def sweep(_, state):
                params, key = state
                key, use = jax.random.split(key)
                return problem.sweep(use, params), key

            return jax.lax.fori_loop(0, thin, sweep, state)

        (params, _), trace = collect(step, lambda state: state[0], (params, key), steps, most)
        return params, trace

    return jax.vmap(chain)(params, keys)


def run(problem: Augmented, key: jax.Array, num_draws: int, settings: Gibbs) -> Chains:
    """num_draws draws of the parameters, in chains of equal length."""
    chains = chains_of(settings, num_draws)
    length, kept = num_draws // chains, []
    params = _begin(problem, jax.random.split(key, chains))
    # without missing cells, of a closed form, every draw is independent: nothing to warm up
    independent = problem.rows is None and problem.family.closed_form
    warmup, thin = (0, 1) if independent else (settings.warmup, settings.thin)
    with bar(warmup + length * thin, "Gibbs", problem.rows is not None and settings.progress) as advanced:
        for i, (steps, keep) in enumerate(pieces(warmup, length, MOST)):
            keys = jax.random.split(jax.random.fold_in(key, i + 1), chains)
            sweeps = thin if keep else 1
            params, trace = jax.block_until_ready(_advance(problem, params, keys, steps, sweeps, most=MOST))
            if keep:
                kept.append({name: np.asarray(value)[:, :steps] for name, value in trace.items()})
            advanced(steps * sweeps)
    draws = {name: np.concatenate([part[name] for part in kept], axis=1) for name in kept[0]}
    return Chains(draws, {}, {} if independent else diagnose(draws, {}))
