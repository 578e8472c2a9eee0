"""Closed forms: maximum likelihood, MAP and the exact posterior of conjugate families, from the statistics."""

from __future__ import annotations

from functools import partial

import jax

from bayesgen.families.base import Params
from bayesgen.joint import Joint, JointStats


@partial(jax.jit, static_argnames="method")
def point(joint: Joint, stats: JointStats, method: str) -> Params:
    """The mle or map, as one flat dict of parameters."""
    pairs = zip(joint.blocks, stats.blocks, strict=True)
    parts = [getattr(block.family, method)(s) for block, s in pairs]
    return joint.gather(joint.class_prior.estimate(stats.labels, method), parts)


@jax.jit
def update(joint: Joint, stats: JointStats) -> Joint:
    """The same joint with every family at its posterior numbers."""
    pairs = zip(joint.blocks, stats.blocks, strict=True)
    return joint.with_families([block.family.update(s) for block, s in pairs])


@jax.jit
def predictive(posterior: Joint, weight) -> Params:
    """Parameters of the posterior predictive: Student-t densities and Dirichlet-mean class probabilities."""
    probs = posterior.class_prior.estimate(weight, "posterior")
    return posterior.gather(probs, [block.family.predictive() for block in posterior.blocks])


@jax.jit
def expectation(posterior: Joint, weight) -> Params:
    """Posterior means of the parameters."""
    probs = posterior.class_prior.estimate(weight, "posterior")
    return posterior.gather(probs, [block.family.expectation() for block in posterior.blocks])


# Compiling this takes seconds when optimised, running it milliseconds: the work is in LAPACK.
@partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
def _draws(posterior: Joint, weight, keys: jax.Array) -> Params:
    """One draw for each key, with a leading axis."""

    def one(key):
        keys = jax.random.split(key, len(posterior.blocks) + 1)
        probs = posterior.class_prior.draw(keys[0], weight)
        sizes = [(posterior.num_classes, b.num_features(posterior.num_features)) for b in posterior.blocks]
        pairs = zip(posterior.blocks, keys[1:], sizes, strict=True)
        return posterior.gather(probs, [block.family.draw(use, *size) for block, use, size in pairs])

    return jax.vmap(one)(keys)


def draws(posterior: Joint, weight, key: jax.Array, num_draws: int, piece: int | None = None, start: int = 0) -> Params:
    """`num_draws` independent draws of the parameters, or of them those from `start` on, at most `piece` (a power of two).

    The next power of two is drawn, to compile less.
    """
    padded = 1 << (num_draws - 1).bit_length()
    keys = jax.random.split(key, padded)[start : start + min(piece or padded, padded)]
    return {name: value[: num_draws - start] for name, value in _draws(posterior, weight, keys).items()}


@jax.jit
def log_evidence(joint: Joint, stats: JointStats) -> jax.Array:
    """log p(x, y), parameters integrated out: the labels' evidence and each block's."""
    total = joint.class_prior.log_evidence(stats.labels)
    for block, s in zip(joint.blocks, stats.blocks, strict=True):
        total = total + block.family.log_evidence(s, joint.num_classes, block.num_features(joint.num_features))
    return total
