"""Improper priors as NumPyro distributions: limits that a posterior can be proper under, though no draw exists.

NumPyro's ImproperUniform cannot be traced; these can. A "draw" is a fixed point of the support, which is what
initialisation and shape inference need.
"""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints


class Flat(dist.Distribution):
    """A density of 1 everywhere: the limit of a normal prior of no strength. A draw is the point `loc`."""

    arg_constraints: ClassVar = {"loc": constraints.real_vector}
    support = constraints.real_vector
    pytree_data_fields = ("loc",)

    def __init__(self, loc, *, validate_args=None):
        self.loc = jnp.asarray(loc)
        super().__init__(self.loc.shape[:-1], self.loc.shape[-1:], validate_args=validate_args)

    def sample(self, key, sample_shape=()):
        return jnp.broadcast_to(self.loc, sample_shape + self.shape())

    def log_prob(self, value):
        return jnp.zeros(jnp.broadcast_shapes(jnp.shape(value)[:-1], self.batch_shape))


class _Improper(dist.Distribution):
    """Shared by the improper limits of the precision priors: a density known up to a constant. A draw is the unit."""

    pytree_data_fields = ("df", "scale")

    def sample(self, key, sample_shape=()):
        unit = jnp.eye(self.event_shape[-1]) if self.event_shape else jnp.ones(())
        return jnp.broadcast_to(unit, sample_shape + self.shape())


class ImproperWishart(_Improper):
    """|Λ|^((ν−d−1)/2) exp(−½ tr ΨΛ), for ν and Ψ that do not give a proper Wishart."""

    arg_constraints: ClassVar = {"df": constraints.real, "scale": constraints.independent(constraints.real, 2)}
    support = constraints.positive_definite

    def __init__(self, df, scale, *, validate_args=None):
        self.scale = jnp.asarray(scale)
        shape = jnp.broadcast_shapes(jnp.shape(df), self.scale.shape[:-2])
        self.df = jnp.broadcast_to(df, shape)
        super().__init__(shape, self.scale.shape[-2:], validate_args=validate_args)

    def log_prob(self, value):
        _, logdet = jnp.linalg.slogdet(value)
        power = (self.df - value.shape[-1] - 1) / 2
        return power * logdet - 0.5 * jnp.sum(self.scale * value, (-1, -2))


class ImproperGamma(_Improper):
    """λ^(ν/2−1) exp(−½ Ψλ), for ν and Ψ that do not give a proper Gamma."""

    arg_constraints: ClassVar = {"df": constraints.real, "scale": constraints.real}
    support = constraints.positive

    def __init__(self, df, scale, *, validate_args=None):
        shape = jnp.broadcast_shapes(jnp.shape(df), jnp.shape(scale))
        self.df, self.scale = jnp.broadcast_to(df, shape), jnp.broadcast_to(scale, shape)
        super().__init__(shape, (), validate_args=validate_args)

    def log_prob(self, value):
        return (self.df / 2 - 1) * jnp.log(value) - 0.5 * self.scale * value
