"""What the laws are asked of: a family made ready on data, likely parameters, and rows drawn at them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import constraints
from scipy.optimize import minimize
from scipy.special import expit

from bayesgen.families.base import Conjugate, Family, Labels, Params
from bayesgen.families.contract import check_contract
from bayesgen.inference import target
from bayesgen.laws.quadrature import Lines, stretch
from bayesgen.programs import jit

ROWS = 60  # of the data that are made
DRAWS = 4000  # rows drawn under each class
DRAWN = 2048  # parameters drawn from the posterior
STARTS, CLIMBS = 64, 3  # where the search for likely parameters starts, and how many of the best it follows
BATCH = 4096  # rows in one call of log_prob: one shape, one compilation
MOST_VALUES = 200_000  # of a column of whole numbers


# -- the family's methods, compiled once for each family and form of the parameters
# Most programs run once or twice: they are compiled in a third of the time, without optimisation.
quick = partial(jit, compiler_options={"xla_backend_optimization_level": 0})


@jit
def _log_prob(family, params, x):
    return family.log_prob(params, x)


@quick
def _sample(family, key, salt, params, y):
    return family.sample(jax.random.fold_in(key, salt), params, y).astype(float)


@quick(static_argnames=("num", "shape"))
def draw_sites(family, key, salt, num, shape):
    """`num` draws of `model`: (sites, parameters as densities need them), each with a leading axis."""

    def one(key):
        with handlers.trace() as trace, handlers.seed(rng_seed=key):
            params = family.model(*shape)
        sites = {n: s["value"] for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
        return sites, family.working(params)

    return jax.vmap(one)(jax.random.split(jax.random.fold_in(key, salt), num))


@quick
def tables(family, params, x):
    """log_prob (S, n, K) for each of several parameters (leading axis)."""
    return jax.lax.map(lambda p: family.log_prob(p, x), params)


@quick
def updated(family, stats):
    """(the family at its posterior, the parameters of its predictive)."""
    posterior = family.update(stats)
    return posterior, posterior.predictive()


@quick
def _prior_coordinates(problem, key):
    """Unconstrained coordinates of draws from the prior, (STARTS, size)."""

    def one(key):
        with handlers.trace() as trace, handlers.seed(rng_seed=key):
            problem.family.model(problem.num_classes, problem.num_features)
        return target.coordinates(problem, {n: s["value"] for n, s in trace.items() if s["type"] == "sample"})

    return jnp.clip(jnp.nan_to_num(jax.vmap(one)(jax.random.split(key, STARTS))), -1e150, 1e150)


@quick
def _point(problem, flat):
    """(−log p(u, D), its slope, parameters as densities need them) at coordinates u."""

    def depth(u):
        here = target.evaluate(problem, target.unflatten(problem, u))
        return -(here.log_prior + here.log_jacobian + here.log_likelihood), problem.working(here.params)

    (value, params), slope = jax.value_and_grad(depth, has_aux=True)(flat)
    return value, slope, params


def on_host(tree):
    """The same with NumPy arrays, which are indexed without compiling anything."""
    return jax.tree_util.tree_map(np.asarray, tree)


def pick(tree, i: int):
    """The i-th of the draws in a tree of arrays with a leading axis."""
    return jax.tree_util.tree_map(lambda leaf: leaf[i], tree)


# -- supports
@dataclasses.dataclass(frozen=True)
class Support:
    """Where the density of each class and column lives."""

    low: np.ndarray  # (K, p)
    high: np.ndarray
    discrete: bool
    total: int | None = None  # rows are counts with this sum
    unknown: str = ""  # why nothing can be integrated
    moving: bool = False  # whether it depends on the parameters
    angles: bool = False  # cells are angles, whose mean is not an integral of x

    def holds(self, x: np.ndarray) -> bool:
        """Whether every cell lies in the support of every class."""
        whole = not self.discrete or np.all(x == np.rint(x))
        return bool(whole and np.all(x[:, None, :] >= self.low) and np.all(x[:, None, :] <= self.high))


def support_of(family: Family, params: Params, shape: tuple[int, int]) -> tuple[Support, bool]:
    """(support, whether the columns are independent) of the family's distribution; params may be abstract."""
    found: list[tuple] = []

    def look(params):
        found.append((family.distribution(params).support, bool(family.separable(params))))
        return 0

    jax.eval_shape(look, params)
    moving = any(isinstance(bound, jax.core.Tracer) for bound in _ends(found[0][0]))
    if moving and not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in params.values()):
        look(params)
    support = _bounds(found[-1][0], getattr(family, "sizes", None), shape)
    return dataclasses.replace(support, moving=moving), found[-1][1]


def _base(constraint):
    while isinstance(constraint, constraints.independent):
        constraint = constraint.base_constraint
    return constraint


def _ends(constraint) -> tuple[Any, Any]:
    base = _base(constraint)
    return getattr(base, "lower_bound", -np.inf), getattr(base, "upper_bound", np.inf)


def _bounds(constraint, sizes, shape: tuple[int, int]) -> Support:
    if sizes is not None:
        return Support(np.zeros(shape), np.broadcast_to(np.asarray(sizes, float) - 1, shape), True)
    base = _base(constraint)
    discrete = bool(base is not None and base.is_discrete)
    if isinstance(base, constraints.multinomial):
        total = int(np.max(base.upper_bound))
        return Support(np.zeros(shape), np.full(shape, float(total)), True, total)
    if base is not None and base.event_dim > 0:
        return Support(np.full(shape, -np.inf), np.full(shape, np.inf), discrete, unknown=f"rows live on {base}")
    if isinstance(base, type(constraints.boolean)):
        return Support(np.zeros(shape), np.ones(shape), True)
    # a bound that depends on parameters without numbers may be anywhere
    ends = zip(_ends(base), (-np.inf, np.inf), strict=True)
    low, high = (any_end if isinstance(end, jax.core.Tracer) else np.asarray(end, float) for end, any_end in ends)
    angles = isinstance(base, type(constraints.circular))
    return Support(np.broadcast_to(low, shape), np.broadcast_to(high, shape), discrete, angles=angles)


def log_table(family: Family, params: Params, rows: np.ndarray) -> np.ndarray:
    """`log_prob` (n, K), in batches of one size."""
    count = -(-len(rows) // BATCH)
    padded = np.concatenate([rows, np.repeat(rows[:1], count * BATCH - len(rows), 0)])
    parts = [np.asarray(_log_prob(family, params, part)) for part in np.split(padded, count)]
    return np.concatenate(parts)[: len(rows)]


# -- parameters
class Density:
    """A family at given parameters: its log density on the host, its support, rows drawn from it."""

    def __init__(self, name: str, family: Family, params: Params, shape: tuple[int, int], key: jax.Array, salt: int):
        self.name, self.family, self.params, self.shape = name, family, params, shape
        self.support, independent = support_of(family, params, shape)
        self.separable = independent and self.support.total is None
        self.key, self.salt = key, salt

    def logs(self, rows: np.ndarray) -> np.ndarray:
        """Log density (n, K)."""
        return log_table(self.family, self.params, rows)

    @cached_property
    def draws(self) -> np.ndarray:
        """Rows drawn under each class, (K, n, p)."""
        y = np.repeat(np.arange(self.shape[0]), DRAWS)
        return np.asarray(_sample(self.family, self.key, self.salt, self.params, y)).reshape(self.shape[0], DRAWS, -1)

    @cached_property
    def marginals(self) -> bool:
        """Whether missing cells beside observed ones are integrated out."""
        if not self.family.takes_missing or self.support.total is not None:
            return False
        rows = self.draws[0, : self.shape[1]].copy()
        np.fill_diagonal(rows, np.nan)
        return self.shape[1] == 1 or not np.isnan(self.logs(rows)).all()

    # -- along a column
    def lines(self, k: int, j: int, rows: np.ndarray) -> Lines:
        """The density along column j, the other cells as in rows (all with the same cells missing)."""
        centre, scale = self._spot(k, j, rows)
        return Lines(self, k, j, rows, centre, scale)

    def _spot(self, k: int, j: int, rows: np.ndarray) -> tuple[Any, float]:
        """Where the mass of column j lies given the observed cells, roughly: by a regression on the draws."""
        low, high = self.support.low[k], self.support.high[k]
        u = stretch(self.draws[k], low, high)
        others = [i for i in np.flatnonzero(~np.isnan(rows[0])) if i != j]
        if self.separable or not others:
            left, centre, right = np.quantile(u[:, j], [0.16, 0.5, 0.84])
            return centre, max((right - left) / 2, 1e-6 * abs(centre), 1e-300)
        tame = np.clip(u, *np.quantile(u, [0.01, 0.99], axis=0))
        middle = np.median(tame, 0)
        design = np.column_stack([np.ones(len(tame)), (tame - middle)[:, others]])
        slope, *_ = np.linalg.lstsq(design, tame[:, j], rcond=None)
        scale = np.std(tame[:, j] - design @ slope)
        here = stretch(rows, low, high)[:, others] - middle[others]
        return slope[0] + here @ slope[1:], max(scale, 1e-6 * np.abs(slope[0]), 1e-300)

    def values(self, k: int, j: int) -> np.ndarray:
        """The whole numbers that column j can be, the far tail left out; empty if they are too many."""
        low, high = self.support.low[k, j], self.support.high[k, j]
        if np.isfinite(low) and np.isfinite(high):
            return np.arange(low, high + 1) if high - low < MOST_VALUES else np.zeros(0)
        column = self.draws[k, :, j]
        reach = 10 * (column.max() - column.min() + 10)
        first, last = max(low, column.min() - reach), min(high, column.max() + reach)
        return np.arange(first, last + 1) if last - first < MOST_VALUES else np.zeros(0)

    def table(self, k: int, j: int, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Density of class k with each of the values in column j, (B, V)."""
        filled = np.repeat(rows, len(values), 0)
        filled[:, j] = np.tile(values, len(rows))
        return np.exp(self.logs(filled)[:, k]).reshape(len(rows), len(values))


# -- the case
@dataclasses.dataclass
class Case:
    """A family ready for its laws, on data x (n, p) with class codes y."""

    given: Family  # as the user gave it
    family: Any  # a Family, with what it takes from the data filled in
    x: np.ndarray
    y: np.ndarray
    shape: tuple[int, int]  # (K, p)
    key: jax.Array

    @property
    def labels(self) -> Labels:
        return Labels(self.y, self.shape[0])

    @property
    def closed(self) -> bool:
        return isinstance(self.family, Conjugate) and self.family.closed_form

    @cached_property
    def stats(self) -> Any:
        """Sufficient statistics of the data (families with a closed form)."""
        return self.family.stats(self.x, self.labels)

    @cached_property
    def posterior(self) -> tuple[Any, Params]:
        """(the family at its posterior, the parameters of its predictive), of the data."""
        return on_host(updated(self.family, self.stats))

    @cached_property
    def draws(self) -> tuple[Params, Params]:
        """(sites, parameters) with a leading axis, drawn from the posterior (families with a closed form)."""
        return on_host(draw_sites(self.posterior[0], self.key, 0, DRAWN, self.shape))

    @cached_property
    def densities(self) -> list[Density]:
        """The family at two parameters: a posterior draw and the predictive where they are known, else likely ones."""
        if self.closed:
            named = [("a posterior draw", pick(self.draws[1], 0)), ("the predictive", self.posterior[1])]
        else:
            named = [(f"likely parameters {i + 1}", params) for i, params in enumerate(self._likely())]
        return [Density(name, self.family, p, self.shape, self.key, i) for i, (name, p) in enumerate(named, 1)]

    def _likely(self) -> list[Params]:
        """The parameters at the mode of p(u, D), u the unconstrained coordinates, and a draw from around it."""
        problem = target.Problem(self.family, target.Rows.of(self.x, self.labels), *self.shape)
        rng = np.random.default_rng(0)
        flats = rng.uniform(-2, 2, (STARTS, target.dimension(problem)))
        heights = [_depth(flat, problem)[0] for flat in flats]
        if not np.isfinite(min(heights)):  # parameters of another order of magnitude: ask the prior
            flats = np.asarray(_prior_coordinates(problem, self.key))
            heights = [_depth(flat, problem)[0] for flat in flats]
        if not np.isfinite(min(heights)):
            raise ValueError(f"{type(self.family).__name__}: the rows have no finite density under any draw of the prior.")
        done = min((_descend(problem, flats[i]) for i in np.argsort(heights)[:CLIMBS]), key=lambda found: found.fun)
        curvature = done.hess_inv.todense() + 1e-12 * np.eye(len(done.x))
        for shrink in (1.0, 0.1, 0.01, 0.0):  # the curvature that was met on the way up may mislead
            near = done.x + shrink * np.linalg.cholesky(curvature) @ rng.normal(size=len(done.x))
            if _depth(near, problem)[0] < done.fun + 5 * len(near):
                break
        return [on_host(_point(problem, flat)[2]) for flat in (done.x, near)]


def _depth(flat: np.ndarray, problem) -> tuple[float, np.ndarray]:
    """−log p(u, D) and its slope."""
    value, slope, _ = on_host(_point(problem, flat))
    fine = np.isfinite(value) and np.isfinite(slope).all()
    return (float(value), slope) if fine else (np.inf, np.zeros_like(flat))


def _descend(problem, start: np.ndarray):
    return minimize(_depth, start, (problem,), jac=True, method="L-BFGS-B", options={"maxiter": 100})


def make_case(family: Family, num_classes: int, num_features: int | None, data, key: jax.Array) -> Case:
    """The family, resolved on the data given or on rows made for it."""
    if data is not None:
        x, y = np.asarray(data[0], float), np.unique(np.asarray(data[1]), return_inverse=True)[1]
        if x.ndim != 2 or len(x) != len(y) or not np.isfinite(x).all():
            raise ValueError(
                f"data: x has shape {x.shape} and there are {len(y)} labels; (n, p) finite cells and n are needed."
            )
        return _ready(family, x, y, (int(y.max()) + 1, x.shape[1]), key)
    shape = (num_classes, _columns(family, num_classes) if num_features is None else num_features)
    if family.kind == "category" and getattr(family, "sizes", None) is None:
        family = family.with_sizes(tuple(3 - j % 2 for j in range(shape[1])))
    problem = None
    for x, y in _tables(family, shape, key):
        try:
            case = _ready(family, x, y, shape, key)
            abstract = draw_sites.eval_shape(case.family, key, 0, 1, shape)[1]
            params = {n: jax.ShapeDtypeStruct(v.shape[1:], v.dtype) for n, v in abstract.items()}
            if support_of(case.family, params, shape)[0].holds(x) and (case.closed or case.densities):
                return case
        except (ValueError, TypeError) as error:  # rows that are not for this family, unless none is
            problem = problem or error
    if problem is not None:
        raise problem
    raise ValueError(f"{type(family).__name__} takes none of the rows that were made for it: give some, as data=(x, y).")


def _ready(family: Family, x, y, shape: tuple[int, int], key) -> Case:
    resolved = family.resolve(x, Labels(y, shape[0]))
    check_contract(resolved, *shape)
    return Case(family, resolved, x, y, shape, key)


def _columns(family: Family, num_classes: int) -> int:
    """Two columns, or those that the family is made for: its lists of categories, or a single column."""
    sizes = getattr(family, "sizes", None)
    if sizes is not None or _waits(family):
        return 2 if sizes is None else len(sizes)
    try:
        check_contract(family, num_classes, 2)
        return 2
    except ValueError as error:
        try:
            check_contract(family, num_classes, 1)
        except (TypeError, ValueError):
            raise error from None
        return 1


def _waits(family: Family) -> bool:
    """Whether the family may take numbers from the data, so that its methods need not run before."""
    return type(family).resolve is not Family.resolve


def _tables(family: Family, shape: tuple[int, int], key) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of the family's kind, in several ranges where the kind leaves them open."""
    rng = np.random.default_rng(0)
    k, p = shape
    y = rng.permutation(np.arange(ROWS) % k)
    if family.kind == "number":
        mix = np.eye(p) + 0.8 * np.tri(p, p, -1)
        z = rng.normal(size=(ROWS, p)) @ mix.T + rng.normal(size=(k, p))[y]
        yield from ((rows, y) for rows in (z, np.exp(z / 2), expit(z)))
    if family.kind in ("number", "count"):
        total, share = getattr(family, "total", None), rng.dirichlet(np.full(p, 4.0), k)[y]
        rows = rng.poisson(rng.gamma(4.0, 1.0, (k, p))[y]) if total is None else rng.multinomial(int(total), share)
        yield rows.astype(float), y
    sizes = getattr(family, "sizes", None) or (2,) * p
    turn = np.argsort(np.argsort(y, kind="stable"))  # every category in every class
    yield np.stack([(turn + rng.integers(0, 2, ROWS)) % size for size in sizes], 1).astype(float), y
    if not _waits(family):
        _, params = on_host(draw_sites(family, key, 0, 1, shape))
        yield np.asarray(_sample(family, key, 0, pick(params, 0), y)), y
