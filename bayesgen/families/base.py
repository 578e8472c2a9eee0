"""What a density family is: settings and prior numbers in a frozen dataclass that JAX sees as a pytree.

A family spans all K classes, so that classes can share parameters. A user writes two methods, `model` (the prior,
as NumPyro sample statements) and `distribution` (the class-conditional density); the rest has defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to

from bayesgen.families.cells import cell_logs, centre, column_law, is_discrete, peaks, row_logs
from bayesgen.families.modes import mixture_mode
from bayesgen.linalg import Cells, Shared
from bayesgen.programs import tracing

Params = dict[str, Any]
BATCH_ROWS = 16_384


def static(default: Any = dataclasses.MISSING) -> Any:
    """A field of a family that is structure, not a number: changing it compiles anew."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclasses.dataclass(frozen=True)
class Labels:
    """Hard labels as weights: row i counts `weight[i]` (1 if None) towards class `codes[i]`, −1 for a missing label.

    Stands for the (n, K) array `one_hot(codes) * weight` without building it.
    """

    codes: np.ndarray
    num_classes: int
    weight: np.ndarray | None = None

    @property
    def known(self) -> np.ndarray:
        """Which rows have a label."""
        return self.codes >= 0

    @property
    def complete(self) -> bool:
        """Whether all the rows have one."""
        return bool(np.all(self.codes >= 0))

    def weights(self) -> np.ndarray:
        """The weight of each row."""
        return np.ones(len(self.codes)) if self.weight is None else np.asarray(self.weight, float)

    def part(self, rows) -> Labels:
        """The labels of some rows: a mask, a slice or positions."""
        return Labels(self.codes[rows], self.num_classes, None if self.weight is None else self.weight[rows])

    def batches(self) -> Iterator[tuple[slice, Labels]]:
        """The same in pieces of at most BATCH_ROWS rows."""
        for start in range(0, len(self.codes), BATCH_ROWS):
            rows = slice(start, start + BATCH_ROWS)
            yield rows, self.part(rows)

    def segments(self) -> Iterator[tuple[int, np.ndarray, np.ndarray | None]]:
        """(class, row indices, weights) of each class that has rows."""
        order = np.argsort(self.codes, kind="stable")
        bounds = np.searchsorted(self.codes[order], np.arange(self.num_classes + 1))
        for k in np.flatnonzero(np.diff(bounds)):
            rows = order[bounds[k] : bounds[k + 1]]
            yield int(k), rows, None if self.weight is None else self.weight[rows]

    def counts(self) -> np.ndarray:
        """Total weight of each class."""
        return np.bincount(self.codes, self.weight, self.num_classes).astype(float)


class Part(NamedTuple):
    """A part of a family: its own family, parameters, columns of the rows and cells, which columns (None: all), and what is
    put before the names of its parameters."""

    family: Any
    params: Params
    x: jax.Array
    cells: Any
    columns: Any
    prefix: str = ""


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
class Family:
    """A class-conditional density for a block of columns, with its prior.

    Subclasses become frozen dataclasses and JAX pytrees: fields are leaves, fields declared with `static()` are
    structure. Parameters of all classes live in one dict, name -> array with a leading class axis.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> class Exponential(Family):
    ...     prior_rate: float = 1.0
    ...     def model(self, num_classes, num_features):
    ...         with numpyro.plate("class", num_classes):
    ...             prior = dist.Gamma(2.0, self.prior_rate).expand([num_features]).to_event(1)
    ...             return {"rate": numpyro.sample("rate", prior)}
    ...     def distribution(self, params):
    ...         return dist.Exponential(params["rate"]).to_event(1)
    >>> params = {"rate": jnp.array([[1.0], [2.0]])}
    >>> Exponential().log_prob(params, jnp.array([[0.5], [jnp.nan]])).round(3).tolist()
    [[-0.5, -0.3070000112056732], [0.0, 0.0]]
    """

    # names of the axes of the public parameters, for ArviZ: "class", "feature", "feature_b", "category" have coordinates
    dims: ClassVar[dict[str, list[str]]] = {}
    kind: ClassVar[str] = "number"  # what a cell is: "number", "count", "binary" or "category" (codes 0, 1, ...)
    domain: ClassVar[str] = "numbers"  # what cells may be, in words
    support: ClassVar[Any] = None  # the same as a NumPyro constraint of single cells, where parameters do not matter
    takes_missing: ClassVar[bool] = True  # whether rows may have missing cells
    takes_sparse: ClassVar[bool] = False  # whether rows may come as a scipy.sparse matrix

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, eq=False)(cls)
        fields = dataclasses.fields(cls)
        structure = [f.name for f in fields if f.metadata.get("static")]
        leaves = [f.name for f in fields if not f.metadata.get("static")]
        jax.tree_util.register_dataclass(cls, data_fields=leaves, meta_fields=structure)

    # -- what a user writes
    def model(self, num_classes: int, num_features: int) -> Params:
        """Sample the parameters of all classes: the prior, stated once."""
        raise NotImplementedError(f"{type(self).__name__} must define model(num_classes, num_features)")

    def distribution(self, params: Params) -> dist.Distribution:
        """The density of one row under each class: batch shape (K,), event shape (p,)."""
        raise NotImplementedError(f"{type(self).__name__} must define distribution(params)")

    @property
    def closed_form(self) -> bool:
        """Whether mle, map and posterior are known in closed form."""
        return False

    # -- what follows from it
    def resolve(self, x: np.ndarray, r: Labels | np.ndarray) -> Family:
        """A copy with everything that is taken from the data filled in."""
        return self

    def log_prob(self, params: Params, x: jax.Array, cells: Cells | None = None) -> jax.Array:
        """Log density (n, K) of each row under each class, missing (NaN) cells integrated out; −inf outside the support.

        NaN for rows of which some cells are missing, where the columns depend on each other and the family does not say
        how (see `integrates_missing`).
        """
        if isinstance(cells, Shared):
            x = jnp.where(jnp.asarray(cells.observed), x, jnp.nan)
        if self.separable(params):
            return jnp.sum(self.cell_log_prob(params, x), -1)
        return row_logs(self.distribution(params), x)

    def separable(self, params: Params) -> bool:
        """Whether columns are independent within the class, so that the log density is a sum over them."""
        return column_law(self.distribution(params)) is not None

    def cell_log_prob(self, params: Params, x: jax.Array) -> jax.Array:
        """Each column's part of the log density, (n, K, p), 0 for missing cells (where the family is separable)."""
        law = column_law(self.distribution(params))
        assert law is not None, "asked of separable families only"
        return cell_logs(law.support, law.log_prob, jnp.broadcast_to(x[:, None, :], (len(x), *law.batch_shape)))

    def integrates_missing(self, params: Params) -> bool:
        """Whether rows of which some cells are missing have a density."""
        if not self.takes_missing:
            return False
        stated = type(self).log_prob is not Family.log_prob
        return stated or self.separable(params) or self.distribution(params).event_shape == (1,)

    def outside(self, x: np.ndarray) -> np.ndarray:
        """Which cells (n, p) can never be, whatever the parameters; missing ones can."""
        if self.support is None:
            return np.zeros(np.shape(x), bool)
        with np.errstate(invalid="ignore"):
            return ~np.asarray(self.support(x)) & ~np.isnan(x)

    def sample(self, key: jax.Array, params: Params, y: jax.Array) -> jax.Array:
        """One row (n, p) for each class label in y (n,), of floats."""
        rows = self.distribution(params).sample(key, (y.shape[0],))
        return rows[jnp.arange(y.shape[0]), y].astype(float)

    def condition(self, params: Params, x: jax.Array, cells: Cells | None = None) -> jax.Array:
        """Each row with its missing cells at their mean given the others and the class: (n, K, p).

        Where the mean does not exist, at the median; NaN where the distribution has no median either.
        """
        density = self._independent(params)
        try:
            middle = centre(density)
        except NotImplementedError:
            raise TypeError(f"{type(self).__name__}: its distribution has no mean; define condition.") from None
        return jnp.where(jnp.isnan(x)[:, None, :], middle, x[:, None, :])

    def complete(self, key: jax.Array, params: Params, x: jax.Array, y: jax.Array, cells: Cells | None = None) -> jax.Array:
        """Each row with its missing cells drawn given the others and its class y (n,)."""
        self._independent(params)
        return jnp.where(jnp.isnan(x), self.sample(key, params, y), x)

    def fills_mode(self, params: Params) -> bool:
        """Whether `fill` gives the mode, as discrete families do, and not the mean, which is linear in the shares."""
        return is_discrete(self.distribution(params))

    def fill(self, params: Params, x: jax.Array, share: jax.Array, cells: Cells | None = None) -> jax.Array:
        """Each row with its missing cells at their mean (discrete families: mode), classes mixed by share (n, K)."""
        if self.fills_mode(params):
            return self._fill_modes(params, x, share)
        # a class without a share has no say, even where its mean does not exist
        means = jnp.where(share[:, :, None] > 0, self.condition(params, x, cells), 0.0)
        return jnp.einsum("nk,nkd->nd", share, means)

    def _fill_modes(self, params: Params, x: jax.Array, share: jax.Array) -> jax.Array:
        density, separable = self._independent(params), self.separable(params)

        def height(value):
            logs = self.cell_log_prob(params, value) if separable else self.log_prob(params, value)[:, :, None]
            return jnp.einsum("nk,nkp->np", share, jnp.exp(logs))

        return jnp.where(jnp.isnan(x), mixture_mode(height, peaks(density), x.shape), x)

    def parts(self, params: Params, x: jax.Array, cells: Cells | None = None) -> list[Part]:
        """The independent parts of the family, of which each fills its columns in its own way."""
        return [Part(self, params, x, cells, None)]

    def width(self, num_features: int) -> int:
        """Numbers per row and class that `fill` works on."""
        return num_features

    def with_sizes(self, sizes: tuple[int, ...]) -> Family:
        """A copy that knows how many categories each column has (families of categories)."""
        return self

    def recode(self, stats, places: list[np.ndarray], sizes: tuple[int, ...]):
        """The statistics over other lists of categories (families of categories): new codes, −1 for what is dropped."""
        return stats

    def _independent(self, params: Params) -> dist.Distribution:
        density = self.distribution(params)
        if density.event_shape != (1,) and not self.separable(params):
            raise TypeError(f"{type(self).__name__}: columns are not independent; define condition and complete.")
        return density

    def public(self, params: Params) -> Params:
        """The parameters as users see them; leading axes of draws are kept."""
        return params

    def working(self, params: Params) -> Params:
        """The sites of `model` in the form that densities are computed from."""
        return params

    def bare(self) -> Family:
        """A copy without the numbers that densities do not need, so that another prior compiles nothing anew."""
        return self

    def groups(self, missing: np.ndarray) -> Iterator[tuple[np.ndarray | None, Cells | None]]:
        """How rows with missing cells are best split into batches: (row indices or None for all, cells)."""
        yield None, None


class Conjugate(Family):
    """A family with sufficient statistics and a prior of the same form as its posterior.

    `stats` is one pass over the rows; everything else is a function of the statistics.
    """

    def stats(self, x, r):
        """Sufficient statistics, always per class, of rows x with weights r: `Labels` or an (n, K) array."""
        raise NotImplementedError

    def resolve_stats(self, stats) -> Conjugate:
        """`resolve`, from the statistics alone."""
        return self

    @property
    def closed_form(self) -> bool:
        return True

    @property
    def drops_missing(self) -> bool:
        """Whether the statistics are exact with missing cells."""
        return True

    def resolve(self, x, r):
        return self.resolve_stats(self.stats(x, r))

    def expected_stats(self, params: Params, x: jax.Array, r: jax.Array, cells: Cells | None = None):
        """`stats` of rows with weights r (n, K), expected over their missing cells given the parameters."""
        return self.e_step(params, x, r, cells)[0]

    def e_step(self, params: Params, x: jax.Array, r: jax.Array, cells: Cells | None = None) -> tuple[Any, jax.Array]:
        """(`expected_stats`, `log_prob`): what EM asks of rows, from one look at them."""
        return self.stats(x, r), self.log_prob(params, x, cells)

    def of_class(self, params: Params, k: int) -> Params:
        """The parameters of one class, with a class axis of length 1."""
        return {name: value[k : k + 1] for name, value in params.items()}

    def apart(self, k: int) -> Conjugate | None:
        """The family of class k alone, where classes share nothing; None where they do, or it does not say."""
        return None

    def begin(self, stats) -> Params:
        """Parameters to begin a search from: smooth, so that nothing is impossible at the start."""
        return self.map(stats)

    def weak(self, x, r) -> Conjugate:
        """The same family with a prior that lets searches begin from few rows."""
        return self

    def change(self, before: Params, after: Params) -> Params:
        """How far parameters moved, in units that mean the same whatever the columns' units."""
        return {name: after[name] - before[name] for name in after}

    def resolution(self, params: Params) -> jax.Array:
        """The smallest change, in the units of `change`, that rounding lets through."""
        return jnp.zeros(())

    def scaled(self, factor: np.ndarray) -> Conjugate:
        """The family of the columns divided by `factor` (p,); itself where units are of no account."""
        return self

    def unscaled(self, params: Params, factor: np.ndarray) -> Params:
        """Parameters of the scaled columns, with any leading axes, as those of the columns."""
        return params

    def merge(self, a, b):
        """Statistics of the union of the rows behind a and b."""
        raise NotImplementedError

    def remove(self, a, b):
        """Statistics of the rows behind a without those behind b."""
        raise NotImplementedError

    def log_likelihood(self, params: Params, stats) -> jax.Array:
        """Σ_i log f(x_i | y_i, params), from the statistics."""
        raise NotImplementedError

    def mle(self, stats) -> Params:
        """The maximum of the likelihood."""
        raise NotImplementedError

    def map(self, stats) -> Params:
        """The mode of the joint posterior density in the parametrisation of `model`."""
        raise NotImplementedError

    def update(self, stats) -> Conjugate:
        """The same family with the posterior's numbers: its `model` draws the posterior."""
        raise NotImplementedError

    def predictive(self) -> Params:
        """Parameters with which `log_prob`, `sample`, `distribution` are those of a new row, θ integrated out."""
        raise NotImplementedError

    def expectation(self) -> Params:
        """Mean of the (public) parameters under this family's prior numbers."""
        raise NotImplementedError

    def has_evidence(self) -> bool:
        """Whether the prior is proper, so that the rows have a marginal density."""
        return True

    def log_evidence(self, stats, num_classes: int, num_features: int) -> jax.Array:
        """log p(x | y) = log p(θ) + log p(x | y, θ) − log p(θ | x, y), which holds at every θ: here at `centre`."""
        posterior = self.update(stats)
        theta = posterior.centre()
        shape = (num_classes, num_features)
        prior = log_prior(self, theta, *shape) - log_prior(posterior, theta, *shape)
        return prior + self.log_likelihood(theta, stats)

    def centre(self) -> Params:
        """A point of high density under `model`, in its sites."""
        raise NotImplementedError

    def sites(self, params: Params) -> Params:
        """Public parameters in the parametrisation of `model`."""
        return params

    def draw(self, key: jax.Array, num_classes: int, num_features: int) -> Params:
        """One draw of the parameters from `model`."""
        with tracing:
            return self.working(handlers.seed(self.model, key)(num_classes, num_features))

    def resample(self, key: jax.Array, params: Params, stats, num_classes: int, num_features: int) -> Params:
        """A draw of the (working) parameters given the statistics of complete rows: a Gibbs step from `params`."""
        return self.update(stats).draw(key, num_classes, num_features)

    def refresh(self, key: jax.Array, params: Params, unseen: tuple) -> Params:
        """Parameters of columns that a class has no cell of, `unseen` (K, p), drawn from the prior given the others."""
        return params

    def estimate(self, stats, method: str) -> Params:
        """The parameters of the fitted density: mle, map, or the posterior's predictive."""
        return self.update(stats).predictive() if method == "posterior" else getattr(self, method)(stats)

    def without(self, rest) -> Conjugate:
        """The family of a fit to the statistics that are left when a row is out: the prior's numbers stay."""
        return self

    def left_out(self, stats, x: jax.Array, y: jax.Array, weight: jax.Array, method: str) -> jax.Array:
        """Log density (n, K) of each row by the fit without it: from the statistics less the row's own."""

        def one(row, code, w):
            r = w * jax.nn.one_hot(code[None], len(jax.tree_util.tree_leaves(stats)[0]))
            rest = self.remove(stats, self.stats(row[None], r))
            return self.log_prob(self.without(rest).estimate(rest, method), row[None])[0]

        return jax.vmap(one)(x, y, weight)


def log_prior(family: Family, theta: Params, num_classes: int, num_features: int) -> jax.Array:
    """Log density of the sites `theta` under the family's `model`."""
    with tracing:
        trace = handlers.trace(handlers.substitute(family.model, theta)).get_trace(num_classes, num_features)
    sites = [site for site in trace.values() if site["type"] == "sample"]
    return sum((jnp.sum(site["fn"].log_prob(site["value"])) for site in sites), jnp.zeros(()))


def free_parameters(family: Family, num_classes: int, num_features: int) -> int:
    """How many real numbers the parameters of `model` are worth: the dimension of their unconstrained space."""
    free: list[int] = []

    def count(key):
        with tracing:
            trace = handlers.trace(handlers.seed(family.model, key)).get_trace(num_classes, num_features)
        for site in trace.values():
            if site["type"] == "sample" and not site["is_observed"]:
                free.append(int(np.prod(biject_to(site["fn"].support).inverse_shape(jnp.shape(site["value"])))))

    jax.eval_shape(count, jax.random.key(0))  # shapes are enough
    return sum(free)
