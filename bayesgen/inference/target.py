"""What engines work on: the parameters of one block (or a whole joint), given data, as a density over free coordinates.

A problem is anything with a `model()`: a NumPyro model of parameters whose factor "likelihood" holds the data, and which
returns the parameters. It is a pytree, so that engines compile once per shape. Two densities are asked of it:

    with the Jacobian       log p(u, D), u the unconstrained coordinates: what NUTS, SVI and Laplace need
    without                 log p(θ(u), D): its maximum over u is the map in the stated parametrisation
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.distributions.transforms import biject_to

from bayesgen.families.base import BATCH_ROWS, Conjugate, Family, Labels, Params
from bayesgen.joint import Joint
from bayesgen.linalg import Shared
from bayesgen.programs import jit, tracing

LIKELIHOOD = "likelihood"
PRIOR_DRAWS = 32  # behind the median that a search starts from
ONCE = {"xla_backend_optimization_level": 0}  # of programs that compile longer than they run


@partial(jax.tree_util.register_dataclass, data_fields=["x", "codes", "weight", "count"], meta_fields=["complete"])
@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows with their class codes and weights; those of weight 0 fill up to a power of two, to compile less."""

    x: Any  # (n, p)
    codes: Any  # (n,)
    weight: Any  # (n,)
    count: Any  # how many are rows
    complete: bool

    @classmethod
    def of(cls, x: np.ndarray, labels: Labels) -> Rows:
        n = len(x)
        size = max(64, 1 << max(n - 1, 0).bit_length())
        weight = np.ones(n) if labels.weight is None else np.asarray(labels.weight, float)
        first = np.zeros(size - n, int)  # any row will do
        rows = np.concatenate([np.arange(n), first]) if n else first
        padded = np.asarray(x, float)[rows] if n else np.zeros((size, x.shape[1]))
        codes = np.asarray(labels.codes)[rows] if n else first
        weights = np.append(weight, np.zeros(size - n))
        return cls(padded, codes.astype(np.int32), weights, np.int64(n), not np.isnan(x).any())

    def log_likelihood(self, family: Family, params: Params) -> jax.Array:
        """Σ_i w_i log f(x_i | y_i), in batches whose gradients are computed again rather than kept."""
        cells = Shared(np.ones(self.x.shape[-1], bool)) if self.complete else None

        @jax.checkpoint
        def batch(total, rows):
            x, codes, weight = rows
            own = jnp.take_along_axis(family.log_prob(params, x, cells), codes[:, None], 1)[:, 0]
            return total + jnp.sum(jnp.where(weight > 0, weight * jnp.where(weight > 0, own, 0.0), 0.0)), None

        return self._summed(batch)

    def log_marginal(self, joint: Joint, params: Params) -> jax.Array:
        """Σ_i w_i log p(x_i, y_i), over all the classes where y_i is missing."""
        cells = tuple(Shared(np.ones(b.num_features(joint.num_features), bool)) for b in joint.blocks)

        @jax.checkpoint
        def batch(total, rows):
            x, codes, weight = rows
            table = joint.log_joint(params, x, cells if self.complete else None)
            own = jnp.take_along_axis(table, jnp.maximum(codes, 0)[:, None], 1)[:, 0]
            each = jnp.where(codes >= 0, own, logsumexp(table, -1))
            return total + jnp.sum(jnp.where(weight > 0, weight * jnp.where(weight > 0, each, 0.0), 0.0)), None

        return self._summed(batch)

    def _summed(self, batch) -> jax.Array:
        size = min(BATCH_ROWS, len(self.codes))
        parts = [jnp.reshape(leaf, (-1, size, *jnp.shape(leaf)[1:])) for leaf in (self.x, self.codes, self.weight)]
        return jax.lax.scan(batch, jnp.zeros(()), parts)[0]


@partial(jax.tree_util.register_dataclass, data_fields=["family", "data"], meta_fields=["num_classes", "num_features"])
@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """The parameters of one block given its data: sufficient statistics where the family has them, else `Rows`."""

    family: Any
    data: Any
    num_classes: int
    num_features: int

    def model(self) -> Params:
        params = self.prior()
        numpyro.factor(LIKELIHOOD, self.log_likelihood(params))
        return params

    def prior(self) -> Params:
        """The sample statements alone."""
        return self.family.model(self.num_classes, self.num_features)

    def guess(self) -> Problem | None:
        """The same with the closed form's posterior in the place of the prior, where there is one."""
        known = isinstance(self.family, Conjugate) and self.family.closed_form and not isinstance(self.data, Rows)
        return dataclasses.replace(self, family=_posterior(self)) if known else None

    def log_likelihood(self, params: Params) -> jax.Array:
        if isinstance(self.data, Rows):
            return self.data.log_likelihood(self.family, params)
        return self.family.log_likelihood(params, self.data)

    def working(self, params: Params) -> Params:
        """The parameters in the form that densities are computed from."""
        return self.family.working(params)


@partial(jax.tree_util.register_dataclass, data_fields=["joint", "data"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class Together:
    """The parameters of a whole joint given rows of which some have no label (code −1): they tie the blocks together."""

    joint: Joint
    data: Rows

    def model(self) -> Params:
        params = self.prior()
        numpyro.factor(LIKELIHOOD, self.data.log_marginal(self.joint, params))
        return params

    def prior(self) -> Params:
        """The sample statements alone."""
        return self.joint.gather(*self.joint.parameters())

    def guess(self) -> None:
        return None

    def working(self, params: Params) -> Params:
        """The parameters in the form that densities are computed from."""
        parts = [block.family.working(self.joint.params_of(block, params)) for block in self.joint.blocks]
        return self.joint.gather(params["class_probs"], parts)


class Point(NamedTuple):
    """What the model says at one value of its coordinates."""

    params: Params
    log_prior: jax.Array
    log_likelihood: jax.Array
    log_jacobian: jax.Array


def evaluate(problem, u: Params) -> Point:
    """The model at unconstrained coordinates u, one array per site."""
    jacobian = []

    def place(site):
        if site["type"] != "sample" or site["is_observed"]:
            return None
        transform = biject_to(site["fn"].support)  # looked up here: a support may depend on sites before it
        raw = u[site["name"]]
        value = transform(raw)
        jacobian.append(jnp.sum(transform.log_abs_det_jacobian(raw, value)))
        return value

    # blocked: a caller may itself be a model
    placed = handlers.substitute(substitute_fn=place)
    with tracing, handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0), placed:
        params = problem.model()
    logs = {name: _log_prob(site) for name, site in trace.items() if site["type"] == "sample"}
    likelihood = logs.pop(LIKELIHOOD)
    return Point(params, sum(logs.values(), jnp.zeros(())), likelihood, sum(jacobian, jnp.zeros(())))


def _log_prob(site) -> jax.Array:
    total = jnp.sum(site["fn"].log_prob(site["value"]))
    return total if site["scale"] is None else total * site["scale"]


def _sites(problem, values: Params | None = None) -> dict[str, dict]:
    """The sites of the model that are to be inferred, drawn from the prior or at given values."""
    placed = handlers.substitute(data=values or {})
    with tracing, handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=0), placed:
        problem.model()
    return {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}


_layouts: dict = {}
MOST_LAYOUTS = 256


def shapes(problem) -> dict[str, tuple[int, ...]]:
    """The shape of each site's unconstrained coordinates; remembered, as finding it traces the model."""
    leaves, structure = jax.tree_util.tree_flatten(problem)
    key = structure, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    if key not in _layouts:
        if len(_layouts) >= MOST_LAYOUTS:
            _layouts.clear()
        _layouts[key] = _traced_shapes(problem)
    return _layouts[key]


def _traced_shapes(problem) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}

    def look(p):
        for name, site in _sites(p).items():
            found[name] = tuple(biject_to(site["fn"].support).inverse_shape(jnp.shape(site["value"])))
        return 0

    jax.eval_shape(look, problem)
    return found


def unflatten(problem, flat: jax.Array) -> Params:
    """Coordinates of each site from one vector."""
    out, start = {}, 0
    for name, shape in shapes(problem).items():
        size = int(np.prod(shape))
        out[name] = flat[start : start + size].reshape(shape)
        start += size
    return out


def dimension(problem) -> int:
    return sum(int(np.prod(shape)) for shape in shapes(problem).values())


def log_density(problem, flat: jax.Array, *, prior: bool = True, jacobian: bool = True) -> jax.Array:
    """log p(D | θ), with the prior's density and the Jacobian of the coordinates on request."""
    point = evaluate(problem, unflatten(problem, flat))
    total = point.log_likelihood
    if prior:
        total = total + point.log_prior
    return total + point.log_jacobian if jacobian else total


@jit(compiler_options=ONCE)
def constrained(problem, flats: jax.Array) -> Params:
    """The parameters, as densities need them, at each of several vectors of coordinates (leading axis)."""
    return jax.lax.map(lambda flat: problem.working(evaluate(problem, unflatten(problem, flat)).params), flats)


# -- where to start
def coordinates(problem, values: Params) -> jax.Array:
    """One vector of coordinates from values of the sites."""
    sites = _sites(problem, values)
    parts = [jnp.ravel(biject_to(s["fn"].support).inv(s["value"])) for s in sites.values()]
    return jnp.concatenate(parts) if parts else jnp.zeros(0)


@jit(compiler_options=ONCE)
def _drawn(problem, source, key) -> jax.Array:
    """Coordinates (PRIOR_DRAWS, D) of draws from the prior of `source`."""

    def one(key):
        with tracing, handlers.block(), handlers.trace() as trace, handlers.seed(rng_seed=key):
            source.prior()
        sites = {n: s["value"] for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
        return coordinates(problem, sites)

    return jax.vmap(one)(jax.random.split(key, PRIOR_DRAWS))


class Starts(NamedTuple):
    """Vectors to search from, and how far each coordinate may be expected to move."""

    places: np.ndarray  # (R, D)
    scale: np.ndarray  # (D,)


def starts(problem, key: jax.Array, count: int) -> Starts:
    """From the closed form's posterior where there is one; else from the prior: its median, 0 and at random.

    Scales make the search indifferent to the units of the columns.
    """
    guess = problem.guess()
    known = guess is not None
    drawn = np.asarray(_drawn(problem, guess if known else problem, key))
    drawn = np.where(np.isfinite(drawn), drawn, 0.0)
    middle = np.median(drawn, 0)
    scale = np.median(np.abs(drawn - middle), 0)
    scale = np.where(scale > 1e-300, 1.5 * scale, np.maximum(1.0, np.abs(middle)))
    if known:
        return Starts(middle[None], scale)
    spread = np.asarray(
        jax.random.uniform(jax.random.fold_in(key, 1), (max(count - 2, 0), len(middle)), minval=-2, maxval=2)
    )
    return Starts(np.concatenate([middle[None], np.zeros((1, len(middle))), middle + scale * spread])[:count], scale)


@jit(compiler_options=ONCE)
def _posterior(problem):
    return problem.family.update(problem.data)
