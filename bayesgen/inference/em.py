"""Expectation-maximisation: mle and map where labels are missing, or cells of columns that depend on each other.

    E   the statistics of the rows, expected given the parameters: a row without label counts p(y=k | x_obs, θ) towards class
        k, and missing cells enter by their mean and covariance given the observed ones
    M   the closed form of mle or map on these statistics

A step never lowers log p(x_obs, y_obs | θ), to which map adds log p(θ). EM steps are slow where much is missing, so the
search looks ahead: it extrapolates the statistics of the last steps (Anderson's acceleration), and goes on from there if
that does not lower the objective either, and by an EM step otherwise.
"""

from __future__ import annotations

import itertools
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
def _given_class(family, params, so_far, x, weight, cells):
    """Statistics and Σ w log f(x_obs) so far, with those of rows of one class added (class axes of length 1)."""
    stats, value = so_far
    part, logs = family.e_step(params, x, weight[:, None], cells)
    return family.merge(stats, part), value + jnp.sum(jnp.where(weight > 0, weight * logs[:, 0], 0.0))


@jit
def _without_label(joint, params, x, weight, cells):
    """Expected statistics of rows without label, and Σ w log Σ_k p(x_obs, y=k)."""
    table = joint.log_joint(params, x, cells)
    total = logsumexp(table, -1)
    share = jnp.exp(table - total[:, None]) * weight[:, None]
    pairs = zip(joint.blocks, cells, strict=True)
    parts = [b.family.expected_stats(joint.params_of(b, params), b.take(x), share, part) for b, part in pairs]
    return JointStats(share.sum(0), tuple(parts)), jnp.sum(jnp.where(weight > 0, weight * total, 0.0))


def _of_statistics(joint, params, stats):
    """The log likelihood of labelled rows with nothing to fill in."""
    counted = (stats.labels > 0) & (params["class_probs"] > 0)  # given probabilities may be 0, and then say nothing
    total = jnp.sum(jnp.where(counted, stats.labels * jnp.log(params["class_probs"]), 0.0))
    for block, part in zip(joint.blocks, stats.blocks, strict=True):
        total = total + block.family.log_likelihood(joint.params_of(block, params), part)
    return total


def _log_prior(joint, params):
    """log p(θ) in the stated parametrisation, up to a constant."""
    prior, probs = joint.class_prior, params["class_probs"]
    total = jnp.zeros(())
    if prior.fixed is None:
        total = jnp.sum(jnp.where(probs > 0, prior.smoothing * jnp.log(probs), 0.0))
    for block in joint.blocks:
        size = joint.num_classes, block.num_features(joint.num_features)
        total = total + log_prior(block.family, block.family.sites(joint.params_of(block, params)), *size)
    return total


def _moved(joint, before, after):
    """How far all the parameters moved, in units of their own, and the smallest step that rounding lets through."""
    parts, floors = [jnp.ravel(after["class_probs"] - before["class_probs"])], [jnp.zeros(())]
    for block in joint.blocks:
        old, new = (joint.params_of(block, params) for params in (before, after))
        parts += [jnp.ravel(value) for value in block.family.change(old, new).values()]
        floors.append(jnp.asarray(block.family.resolution(new), float))
    return jnp.concatenate(parts), jnp.max(jnp.stack(floors))


@jit(static_argnames="method")
def _conclude(joint, params, known, stats, method: str):
    """What the E step comes to: the part of the objective that no row had to be gone through for, and the M step."""
    value = _of_statistics(joint, params, known)
    if method == "map":
        value = value + _log_prior(joint, params)
    then = exact.point.__wrapped__(joint, stats, method)
    return value, then, *_moved(joint, params, then)


class _Place(NamedTuple):
    """A point of the search: parameters, the statistics expected there, the objective, and where an EM step leads."""

    params: Params
    stats: JointStats
    value: float
    next: Params
    step: np.ndarray  # how far that is, in units of the parameters
    floor: float  # the smallest step that rounding lets through


class _Search:
    """The steps of EM on one table."""

    def __init__(self, data: Incomplete, method: str):
        self.data, self.method = data, method
        self.first: dict[tuple[int, int], tuple] = {}
        self.bare = data.joint.bare()
        size = sum(np.size(leaf) for leaf in jax.tree_util.tree_leaves(data.known))
        self.memory = int(np.clip(MOST_NUMBERS // (4 * size), WARM, MEMORY))
        # a ridge is not part of the objective, and steps with it need not raise it
        self.rises = not any(np.any(getattr(b.family, "ridge", 0.0)) for b in data.joint.blocks)

    def at(self, params: Params) -> _Place:
        """The E step, and where the M step leads."""
        stats, value = self._labelled(params)
        for batch in self.data.unlabelled:
            part, log_likelihood = self._rows_without_label(batch, params)
            stats, value = self.bare.merge(stats, part), value + log_likelihood
        more, then, step, floor = exact.run(_conclude, self.data.joint, params, self.data.known, stats, self.method)
        then = {name: np.asarray(v) for name, v in then.items()}
        return _Place(params, stats, value + float(more), then, np.asarray(step), float(floor))

    def _labelled(self, params: Params) -> tuple[JointStats, float]:
        """Statistics and log likelihood of the labelled rows with gaps, added to the statistics of the others.

        Nothing is waited for between batches: they are handed over while the one before is worked on.
        """
        groups = {
            key: list(rows) for key, rows in itertools.groupby(self.data.gaps, key=lambda rows: (rows.block, rows.code))
        }
        found = {key: self._of_class(*key, rows, params) for key, rows in groups.items()}
        blocks = [jax.tree_util.tree_map(np.array, part) for part in self.data.known.blocks]
        for (b, k), (part, _) in found.items():
            for leaf, new in zip(*map(jax.tree_util.tree_leaves, (blocks[b], part)), strict=True):
                leaf[k] = np.asarray(new)[0]
        return self.data.known._replace(blocks=tuple(blocks)), float(sum(value for _, value in found.values()))

    def _of_class(self, b: int, k: int, batches: list[GivenClass], params: Params) -> tuple[Any, Any]:
        block = self.bare.blocks[b]
        mine = jax.device_put(block.family.of_class(self.bare.params_of(block, params), k))
        so_far = self._beginning(b, k)
        for rows in batches:
            so_far = _given_class(block.family, mine, so_far, rows.x, rows.weight, rows.cells)
        return so_far

    def _beginning(self, b: int, k: int) -> tuple[Any, Any]:
        """The statistics of class k in block b that are known, where the programs need them."""
        if (b, k) not in self.first:
            known = jax.tree_util.tree_map(lambda leaf: leaf[k : k + 1], self.data.known.blocks[b])
            self.first[b, k] = jax.device_put((known, np.zeros(())))
        return self.first[b, k]

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

    def settled(self, before: _Place, after: _Place, tol: float) -> bool:
        """Whether neither the objective nor any parameter moves any more."""
        risen = abs(after.value - before.value) <= tol * abs(after.value)
        return bool(risen and np.max(np.abs(after.step), initial=0.0) <= max(tol, after.floor))

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
