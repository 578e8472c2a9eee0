"""Expectation-maximisation: mle and map where labels are missing, or cells of columns that depend on each other.

    E   the statistics of the rows, expected given the parameters: a row without label counts p(y=k | x_obs, θ) towards class
        k, and missing cells enter by their mean and covariance given the observed ones
    M   the closed form of mle or map on these statistics

A step never lowers log p(x_obs, y_obs | θ), to which map adds log p(θ). EM steps are slow where much is missing, so the
search looks ahead: it extrapolates the statistics of the last steps (Anderson's acceleration), and goes on from there if
that does not lower the objective either, and by an EM step otherwise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from bayesgen.families.base import Params, log_prior
from bayesgen.inference import exact
from bayesgen.inference.incomplete import GivenClass, Incomplete, Unlabelled, padded, sparse_part
from bayesgen.inference.progress import bar
from bayesgen.inference.settings import EM
from bayesgen.joint import JointStats
from bayesgen.programs import jit

FALL = 1e-7  # relative: an EM step that lowers the objective by more than this has lost its digits
WARM, MEMORY = 2, 10  # EM steps before the first extrapolation, and places that it looks back to
MOST_NUMBERS = 2**25  # that these hold together: of wide tables there are fewer


class Found(NamedTuple):
    """Where the search ended: parameters of the joint, the statistics expected there, and the objective on the way."""

    params: Params
    stats: JointStats
    n_iter: int
    converged: bool
    path: np.ndarray


class Collapsed(Exception):
    """The objective is not finite at parameters that an EM step led to, or lower: some covariance is (nearly) singular."""

    def __init__(self, params: Params):
        super().__init__("a step led to parameters without a density")
        self.params = params


# -- the E step, by batches of rows
@jit
def _given_class(family, params, x, weight, cells):
    """Expected statistics of rows of one class (class axes of length 1), and Σ w log f(x_obs)."""
    stats, logs = family.e_step(params, x, weight[:, None], cells)
    return stats, jnp.sum(jnp.where(weight > 0, weight * logs[:, 0], 0.0))


@jit
def _without_label(joint, params, x, weight, cells):
    """Expected statistics of rows without label, and Σ w log Σ_k p(x_obs, y=k)."""
    table = joint.log_joint(params, x, cells)
    total = logsumexp(table, -1)
    share = jnp.exp(table - total[:, None]) * weight[:, None]
    pairs = zip(joint.blocks, cells, strict=True)
    parts = [b.family.expected_stats(joint.params_of(b, params), b.take(x), share, part) for b, part in pairs]
    return JointStats(share.sum(0), tuple(parts)), jnp.sum(jnp.where(weight > 0, weight * total, 0.0))


@jit
def _of_statistics(joint, params, stats):
    """The log likelihood of labelled rows with nothing to fill in."""
    counted = (stats.labels > 0) & (params["class_probs"] > 0)  # given probabilities may be 0, and then say nothing
    total = jnp.sum(jnp.where(counted, stats.labels * jnp.log(params["class_probs"]), 0.0))
    for block, part in zip(joint.blocks, stats.blocks, strict=True):
        total = total + block.family.log_likelihood(joint.params_of(block, params), part)
    return total


@jit
def _log_prior(joint, params):
    """log p(θ) in the stated parametrisation, up to a constant."""
    prior, probs = joint.class_prior, params["class_probs"]
    total = (
        jnp.zeros(()) if prior.fixed is not None else jnp.sum(jnp.where(probs > 0, prior.smoothing * jnp.log(probs), 0.0))
    )
    for block in joint.blocks:
        size = joint.num_classes, block.num_features(joint.num_features)
        total = total + log_prior(block.family, block.family.sites(joint.params_of(block, params)), *size)
    return total


class _Place(NamedTuple):
    """A point of the search: parameters, the statistics expected there, the objective, and where an EM step leads."""

    params: Params
    stats: JointStats
    value: float
    next: Params
    step: np.ndarray  # how far that is, in units of the parameters


class _Search:
    """The steps of EM on one table."""

    def __init__(self, data: Incomplete, method: str):
        self.data, self.method = data, method
        self.bare = data.joint.bare()
        size = sum(np.size(leaf) for leaf in jax.tree_util.tree_leaves(data.known))
        self.memory = int(np.clip(MOST_NUMBERS // (4 * size), WARM, MEMORY))
        # a ridge is not part of the objective, and steps with it need not raise it
        self.rises = not any(np.any(getattr(b.family, "ridge", 0.0)) for b in data.joint.blocks)

    def at(self, params: Params) -> _Place:
        """The E step."""
        value = float(exact.run(_of_statistics, self.bare, params, self.data.known))
        stats = self.data.known
        for rows in self.data.gaps:
            part, log_likelihood = self._rows_of_class(rows, params)
            stats, value = self._with_part(stats, rows, part), value + log_likelihood
        for batch in self.data.unlabelled:
            part, log_likelihood = self._rows_without_label(batch, params)
            stats, value = self.bare.merge(stats, part), value + log_likelihood
        if self.method == "map":
            value += float(_log_prior(self.data.joint, params))
        then = self.best(stats)
        return _Place(params, stats, value, then, self.change(params, then))

    def _rows_of_class(self, rows: GivenClass, params: Params) -> tuple[Any, float]:
        block = self.bare.blocks[rows.block]
        mine = block.family.of_class(self.bare.params_of(block, params), rows.code)
        part, value = _given_class(block.family, mine, rows.x, rows.weight, rows.cells)
        return jax.tree_util.tree_map(np.asarray, part), float(value)

    def _with_part(self, stats: JointStats, rows: GivenClass, part) -> JointStats:
        """The statistics with those of rows of one class in one block added."""
        family = self.bare.blocks[rows.block].family
        old, k = stats.blocks[rows.block], rows.code
        new = family.merge(jax.tree_util.tree_map(lambda leaf: leaf[k : k + 1], old), part)

        def placed(leaf, value):
            leaf = np.array(leaf)
            leaf[k] = value[0]
            return leaf

        blocks = list(stats.blocks)
        blocks[rows.block] = jax.tree_util.tree_map(placed, old, new)
        return stats._replace(blocks=tuple(blocks))

    def _rows_without_label(self, batch: Unlabelled, params: Params) -> tuple[JointStats, float]:
        if batch.cells is None:
            return sparse_part(self.bare, params, self.data.x[batch.rows], self.data.weight[batch.rows])
        x, weight = self.data.x[batch.rows], self.data.weight[batch.rows]
        rows = padded(x, batch.size), padded(weight, batch.size)
        part, value = _without_label(self.bare, params, *rows, batch.cells)
        return jax.tree_util.tree_map(np.asarray, part), float(value)

    def best(self, stats: JointStats) -> Params:
        """The M step."""
        params = exact.run(exact.point, self.data.joint, stats, self.method)
        return {name: np.asarray(value) for name, value in params.items()}

    def step(self, here: _Place) -> _Place:
        there = self.at(here.next)
        fallen = self.rises and there.value < here.value - FALL * max(1.0, abs(here.value))
        if not np.isfinite(there.value) or not np.isfinite(there.step).all() or fallen:
            raise Collapsed(there.params)
        return there

    # -- how far
    def change(self, before: Params, after: Params) -> np.ndarray:
        """How far all the parameters moved, in units of their own."""
        parts = [np.ravel(after["class_probs"] - before["class_probs"])]
        for block in self.bare.blocks:
            moved = block.family.change(*(self.bare.params_of(block, params) for params in (before, after)))
            parts += [np.ravel(value) for value in moved.values()]
        return np.concatenate(parts)

    def settled(self, before: _Place, after: _Place, tol: float) -> bool:
        risen = abs(after.value - before.value) <= tol * abs(after.value)
        pairs = [(block.family, self.bare.params_of(block, after.params)) for block in self.bare.blocks]
        floor = max(float(family.resolution(params)) for family, params in pairs)
        return bool(risen and np.max(np.abs(after.step), initial=0.0) <= max(tol, floor))

    def ahead(self, memory: list[_Place]) -> _Place | None:
        """Beyond what EM steps have reached; None where that cannot be looked for."""
        if not self.rises or len(memory) <= WARM or not all(np.isfinite(place.step).all() for place in memory):
            return None
        with np.errstate(all="ignore"):  # statistics of no rows at all lead nowhere, and are noticed by that
            return self.at(self.extrapolated(memory))

    def extrapolated(self, memory: list[_Place]) -> Params:
        """The parameters of the mixture of remembered statistics whose step is shortest, as far as steps are linear in them.

        Anderson's acceleration: minimise |Σ_i a_i f_i|, f_i the step at place i, Σ_i a_i = 1.
        """
        steps = np.array([place.step for place in memory])
        last = memory[-1]
        apart = steps[:-1] - steps[-1]
        size = np.linalg.norm(apart, axis=1, keepdims=True)
        size = np.where(size > 0, size, 1.0)
        share = np.linalg.lstsq((apart / size).T, -steps[-1], rcond=1e-8)[0] / size[:, 0]

        def mixed(newest, *others):
            return newest + sum(a * (other - newest) for a, other in zip(share, others, strict=True))

        return self.best(jax.tree_util.tree_map(mixed, last.stats, *(place.stats for place in memory[:-1])))


def run(data: Incomplete, params: Params, method: str, settings: EM) -> Found:
    """The mle or map of a joint, from parameters to begin with."""
    search = _Search(data, method)
    here = search.at(params)
    path, memory, done = [here.value], [here], False
    with bar(settings.max_iter, "EM", settings.progress) as advanced:
        while not done and len(path) <= settings.max_iter:
            there = search.ahead(memory)
            if there is not None and not there.value >= here.value:
                there, memory = None, memory[-1:]
            if there is None:
                there = search.step(here)
            done = search.settled(here, there, settings.tol)
            here, memory = there, [*memory[-search.memory :], there]
            path.append(here.value)
            advanced(1)
    return Found(here.next, here.stats, len(path) - 1, done, np.array(path))
