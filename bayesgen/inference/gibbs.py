"""Gibbs sampling by data augmentation, for families that are conjugate given complete rows with labels.

    θ_u | θ                 parameters of columns that a class has no cell of, given the others: from the prior, by the
                            family's `refresh` (filled-in cells alone would hold on to each other)
    y | x_obs, θ            for rows without label: p(y=k | x_obs, θ)
    x_mis | x_obs, y, θ     by the family's `complete`, where its statistics are not exact with missing cells
    θ | completed rows      by the family's `resample`: a draw of its closed-form posterior (or, where means are pooled, a
                            sweep over the parameters that are conjugate given the others); class probabilities too

Only rows with something to fill in are gone through at every sweep; the statistics of the others are computed once. A row
of weight w stands for w rows, each with cells and a label of its own.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from bayesgen.families.base import Labels, Params
from bayesgen.inference.chains import Chains, collect, diagnose, pieces
from bayesgen.inference.incomplete import begin
from bayesgen.inference.progress import bar
from bayesgen.inference.settings import Gibbs, chains_of
from bayesgen.inference.target import Rows
from bayesgen.joint import Block, ClassPrior, Joint, JointStats
from bayesgen.linalg import Scattered, Shared
from bayesgen.programs import jit

MOST = 25  # sweeps between two looks at the keyboard
CHUNK_CELLS, LEAST_CHUNK = 2**20, 64  # numbers in the missing blocks of the rows that are completed at once


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["joint", "stats", "rows", "first"],
    meta_fields=["widths", "unseen", "labelled", "chunk"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class Augmented:
    """A joint, the statistics of its complete rows, and the rows with something to fill in (None: there are none)."""

    joint: Joint
    stats: JointStats
    rows: Rows | None
    first: Params | None  # parameters that the first labels are drawn from, where some are missing
    widths: tuple[int, ...]  # of each block: missing cells of a row that are to be drawn, at most
    unseen: tuple  # of each block: which columns (K, p) a class has no cell of, None where there are none
    labelled: bool  # whether all the rows have a label
    chunk: int  # rows that are completed at once

    @classmethod
    def of(cls, joint: Joint, x: np.ndarray, labels: Labels) -> Augmented:
        """Rows without label go apart, and rows with gaps where the statistics are not exact with them."""
        widths = tuple(_width(block, x) for block in joint.blocks)
        gaps = [np.isnan(b.take_host(x)).any(1) for b, w in zip(joint.blocks, widths, strict=True) if w]
        open_ = np.logical_or.reduce([~labels.known, *gaps])
        whole = joint.stats(x[~open_], labels.part(~open_))
        if not open_.any():
            return cls(joint, whole, None, None, widths, (None,) * len(widths), True, 0)
        again = np.repeat(np.flatnonzero(open_), labels.weights()[open_].astype(int))
        rows = Rows.of(x[again], Labels(labels.codes[again], labels.num_classes))
        first = None if labels.complete else begin(joint, x, labels)
        room = CHUNK_CELLS // (joint.num_classes * max(max(widths) ** 2, joint.num_features))
        chunk = min(max(LEAST_CHUNK, 1 << max(room, 1).bit_length() - 1), len(rows.codes))
        unseen = tuple(_unseen(block, x, labels) if w else None for block, w in zip(joint.blocks, widths, strict=True))
        return cls(joint, whole, rows, first, widths, unseen, labels.complete, chunk)

    @classmethod
    def of_family(cls, family, x: np.ndarray, labels: Labels) -> Augmented:
        """The same for one family and all the columns."""
        return cls.of(Joint(ClassPrior(), (Block("x", family),), labels.num_classes, x.shape[1]), x, labels)

    @property
    def exact(self) -> bool:
        """Whether draws are independent: nothing to fill in, and closed forms everywhere."""
        return self.rows is None and all(block.family.closed_form for block in self.joint.blocks)

    def sweep(self, key, params: Params) -> Params:
        """Labels and cells given the parameters, then parameters given them."""
        key_unseen, key_rows, key_params = jax.random.split(key, 3)
        params = self._refreshed(key_unseen, params)
        return self._parameters(key_params, params, self._completed(key_rows, params))

    def _refreshed(self, key, params: Params) -> Params:
        for i, (block, unseen) in enumerate(zip(self.joint.blocks, self.unseen, strict=True)):
            if unseen is not None:
                mine = block.family.refresh(jax.random.fold_in(key, i), self.joint.params_of(block, params), unseen)
                params = params | {self.joint.prefix(block) + name: value for name, value in mine.items()}
        return params

    def _parameters(self, key, params: Params | None, stats: JointStats) -> Params:
        joint = self.joint
        keys = jax.random.split(key, len(joint.blocks) + 1)
        parts = []
        for block, part, use in zip(joint.blocks, stats.blocks, keys[1:], strict=True):
            mine = None if params is None else joint.params_of(block, params)
            size = joint.num_classes, block.num_features(joint.num_features)
            parts.append(block.family.resample(use, mine, part, *size))
        return joint.gather(joint.class_prior.draw(keys[0], stats.labels), parts)

    def _completed(self, key, params: Params) -> JointStats:
        """The statistics with those of the filled-in rows, some rows after the others."""
        if self.rows is None:
            return self.stats
        split = [
            jnp.reshape(v, (-1, self.chunk, *jnp.shape(v)[1:])) for v in (self.rows.x, self.rows.codes, self.rows.weight)
        ]
        keys = jax.random.split(key, len(split[0]))

        def add(stats, batch):
            use, x, codes, weight = batch
            key_labels, key_cells = jax.random.split(use)
            y = codes if self.labelled else self._labels(key_labels, params, x, codes)
            return self._with(stats, self._filled(key_cells, params, x, y), y, weight), None

        return jax.lax.scan(add, jax.tree_util.tree_map(jnp.asarray, self.stats), (keys, *split))[0]

    def _labels(self, key, params: Params, x, codes):
        assert self.rows is not None
        complete = tuple(Shared(np.ones(b.num_features(x.shape[1]), bool)) for b in self.joint.blocks)
        table = self.joint.log_joint(params, x, complete if self.rows.complete else None)
        return jnp.where(codes >= 0, codes, jax.random.categorical(key, table))

    def _filled(self, key, params: Params, x, y) -> list:
        """The columns of each block, with the cells drawn that its statistics need."""
        out = []
        for block, width in zip(self.joint.blocks, self.widths, strict=True):
            key, use = jax.random.split(key)
            mine, rows = self.joint.params_of(block, params), block.take(x)
            out.append(block.family.complete(use, mine, rows, y, Scattered(width)) if width else rows)
        return out

    def _with(self, stats: JointStats, filled: list, y, weight) -> JointStats:
        r = jax.nn.one_hot(y, self.joint.num_classes) * weight[:, None]
        triples = zip(self.joint.blocks, stats.blocks, filled, strict=True)
        parts = tuple(b.family.merge(part, b.family.stats(rows, r)) for b, part, rows in triples)
        return JointStats(stats.labels + r.sum(0), parts)

    def start(self, key) -> Params:
        """Parameters to start from: those of the rows with missing cells at their columns' means."""
        if self.rows is None:
            return self._parameters(key, None, self.stats)
        key_labels, key_params = jax.random.split(key)
        x, y = jnp.asarray(self.rows.x), self.rows.codes
        if self.first is not None:
            y = self._labels(key_labels, self.first, x, y)
        centre = jnp.nan_to_num(jnp.nanmean(x, 0))
        pairs = zip(self.joint.blocks, self.widths, strict=True)
        full = [block.take(jnp.where(jnp.isnan(x), centre, x) if width else x) for block, width in pairs]
        return self._parameters(key_params, None, self._with(self.stats, full, y, self.rows.weight))


def _width(block: Block, x: np.ndarray) -> int:
    """Missing cells of a row that have to be drawn, at most; the next power of two."""
    if block.family.drops_missing:
        return 0
    most = int(np.isnan(block.take_host(x)).sum(1).max(initial=0))
    return min(1 << (most - 1).bit_length(), block.num_features(x.shape[1])) if most else 0


def _unseen(block: Block, x: np.ndarray, labels: Labels) -> tuple | None:
    """Which columns each class has no cell of, as far as labels tell; None where every class has some of each."""
    seen = ~np.isnan(block.take_host(x))
    anywhere = seen[~labels.known].any(0)
    table = np.array([seen[labels.codes == k].any(0) | anywhere for k in range(labels.num_classes)])
    return None if table.all() else tuple(map(tuple, (~table).tolist()))


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
    """num_draws draws of the parameters of the joint, in chains of equal length."""
    chains = chains_of(settings, num_draws)
    length, kept = num_draws // chains, []
    params = _begin(problem, jax.random.split(key, chains))
    # with nothing to fill in, of a closed form, every draw is independent: nothing to warm up
    warmup, thin = (0, 1) if problem.exact else (settings.warmup, settings.thin)
    with bar(warmup + length * thin, "Gibbs", problem.rows is not None and settings.progress) as advanced:
        for i, (steps, keep) in enumerate(pieces(warmup, length, MOST)):
            keys = jax.random.split(jax.random.fold_in(key, i + 1), chains)
            sweeps = thin if keep else 1
            params, trace = jax.block_until_ready(_advance(problem, params, keys, steps, sweeps, most=MOST))
            if keep:
                kept.append({name: np.asarray(value)[:, :steps] for name, value in trace.items()})
            advanced(steps * sweeps)
    # class probabilities are known in closed form where all the labels are: their draws are of no use
    names = [name for name in kept[0] if not (problem.labelled and name == "class_probs")]
    draws = {name: np.concatenate([part[name] for part in kept], axis=1) for name in names}
    return Chains(draws, {}, {} if problem.exact else diagnose(draws, {}))
