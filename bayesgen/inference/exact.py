"""Closed forms: maximum likelihood, MAP and the exact posterior of conjugate families, from the statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import numpy as np

from bayesgen.families.base import Params
from bayesgen.families.counts import Counting
from bayesgen.joint import Joint, JointStats
from bayesgen.programs import jit


def run(function: Callable, joint: Joint, *args):
    """A function of this module; in plain NumPy where the statistics are counts, which need no compiler.

    The number of columns of a text is another one for every vocabulary: compiling would take longer than fitting.
    """
    counting = all(isinstance(block.family, Counting) for block in joint.blocks)
    return getattr(function, "__wrapped__", function)(joint, *args) if counting else function(joint, *args)


@jit(static_argnames="method")
def point(joint: Joint, stats: JointStats, method: str) -> Params:
    """The mle or map, as one flat dict of parameters."""
    pairs = zip(joint.blocks, stats.blocks, strict=True)
    parts = [getattr(block.family, method)(s) for block, s in pairs]
    return joint.gather(joint.class_prior.estimate(stats.labels, method), parts)


@jit
def update(joint: Joint, stats: JointStats) -> Joint:
    """The same joint with every family at its posterior numbers."""
    pairs = zip(joint.blocks, stats.blocks, strict=True)
    return joint.with_families([block.family.update(s) for block, s in pairs])


@jit
def predictive(posterior: Joint, weight) -> Params:
    """Parameters of the posterior predictive: Student-t densities and Dirichlet-mean class probabilities."""
    probs = posterior.class_prior.estimate(weight, "posterior")
    return posterior.gather(probs, [block.family.predictive() for block in posterior.blocks])


@jit
def expectation(posterior: Joint, weight) -> Params:
    """Posterior means of the parameters."""
    probs = posterior.class_prior.estimate(weight, "posterior")
    return posterior.gather(probs, [block.family.expectation() for block in posterior.blocks])


# Compiling this takes seconds when optimised, running it milliseconds: the work is in LAPACK.
@jit(compiler_options={"xla_backend_optimization_level": 0})
def _draws(posterior: Joint, weight, keys: jax.Array) -> Params:
    """One draw for each key of all but the counting blocks, with a leading axis."""

    def one(key):
        keys = jax.random.split(key, len(posterior.blocks) + 1)
        params = {"class_probs": posterior.class_prior.draw(keys[0], weight)}
        for block, use in zip(posterior.blocks, keys[1:], strict=True):
            if not isinstance(block.family, Counting):
                size = posterior.num_classes, block.num_features(posterior.num_features)
                params |= {posterior.prefix(block) + k: v for k, v in block.family.draw(use, *size).items()}
        return params

    return jax.vmap(one)(keys)


def draws(posterior: Joint, weight, key: jax.Array, num_draws: int, piece: int | None = None) -> Iterator[Params]:
    """`num_draws` independent draws of the parameters, in pieces of at most `piece` (a power of two; None: all at once).

    The next power of two of keys is used, to compile less. Gamma variates of discrete families come from NumPy, which is
    fifty times faster at them; the pieces together are what one piece would be.
    """
    padded = 1 << (num_draws - 1).bit_length()
    keys = jax.random.split(key, padded)
    piece = min(piece or padded, padded)
    seeds = np.random.SeedSequence(np.asarray(jax.random.key_data(key)).ravel().tolist()).spawn(len(posterior.blocks))
    sources = [np.random.default_rng(seed) for seed in seeds]
    for start in range(0, num_draws, piece):
        count = min(piece, num_draws - start)
        params = {k: np.asarray(v)[:count] for k, v in _draws(posterior, weight, keys[start : start + piece]).items()}
        for block, rng in zip(posterior.blocks, sources, strict=True):
            if isinstance(block.family, Counting):
                size = posterior.num_classes, block.num_features(posterior.num_features)
                drawn = block.family.host_draws(rng, count, *size)
                params |= {posterior.prefix(block) + k: v for k, v in drawn.items()}
        yield params


@jit
def log_evidence(joint: Joint, stats: JointStats) -> jax.Array:
    """log p(x, y), parameters integrated out: the labels' evidence and each block's."""
    total = joint.class_prior.log_evidence(stats.labels)
    for block, s in zip(joint.blocks, stats.blocks, strict=True):
        total = total + block.family.log_evidence(s, joint.num_classes, block.num_features(joint.num_features))
    return total
