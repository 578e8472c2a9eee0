"""The joint model p(x, y) = p(y) Π_b f_b(x_b | y): a class prior times independent blocks of columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln, logsumexp
from numpyro import handlers
from numpyro.distributions import constraints
from scipy import sparse

from bayesgen.families.base import Conjugate, Family, Labels, Params
from bayesgen.linalg import Shared
from bayesgen.moments import subtract


class JointStats(NamedTuple):
    """Weight of each class (K,), and each block's sufficient statistics."""

    labels: Any
    blocks: tuple


@partial(jax.tree_util.register_dataclass, data_fields=["smoothing", "fixed"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class ClassPrior:
    """π ~ Dirichlet(1 + smoothing), or fixed class probabilities (K,)."""

    smoothing: Any = 0.0
    fixed: Any = None

    def model(self, num_classes: int):
        if self.fixed is not None:
            return jnp.asarray(self.fixed)
        return numpyro.sample("class_probs", dist.Dirichlet(jnp.full(num_classes, 1.0 + self.smoothing)))

    def estimate(self, weight, method: str):
        """mle n_k/n, map (n_k + a)/(n + aK), posterior mean (n_k + 1 + a)/(n + K(1 + a))."""
        if self.fixed is not None:
            return jnp.asarray(self.fixed)
        count = weight + {"mle": 0.0, "map": self.smoothing, "posterior": 1.0 + self.smoothing}[method]
        return count / count.sum()

    def draw(self, key, weight):
        if self.fixed is not None:
            return jnp.asarray(self.fixed)
        return jax.random.dirichlet(key, weight + 1.0 + self.smoothing)

    def log_evidence(self, weight):
        """log p(y), the class probabilities integrated out."""
        if self.fixed is not None:
            return jnp.sum(jnp.where(weight > 0, weight * jnp.log(self.fixed), 0.0))
        a = jnp.full(weight.shape, 1.0 + self.smoothing)
        return _log_beta(a + weight) - _log_beta(a)


def _log_beta(a):
    return jnp.sum(gammaln(a)) - gammaln(jnp.sum(a))


@partial(jax.tree_util.register_dataclass, data_fields=["family"], meta_fields=["name", "columns"])
@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Some columns of the table and the family of their class-conditional density. `columns` None: all of them."""

    name: str
    family: Any  # a Family; what works on statistics needs a Conjugate one
    columns: tuple[int, ...] | None = None

    def take(self, x):
        return x if self.columns is None else x[..., np.asarray(self.columns, np.int32)]

    def take_host(self, x):
        """The block's columns of a table on the host, which may be sparse."""
        return x if self.columns is None else x[:, list(self.columns)]

    def num_features(self, total: int) -> int:
        return total if self.columns is None else len(self.columns)

    def column(self, j: int) -> int:
        """The table's column behind the block's column j."""
        return int(j) if self.columns is None else self.columns[j]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["class_prior", "blocks"],
    meta_fields=["num_classes", "num_features", "several"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class Joint:
    """Class prior and blocks; a pytree, so that it is an ordinary argument of jitted functions."""

    class_prior: ClassPrior
    blocks: tuple[Block, ...]
    num_classes: int
    num_features: int
    several: bool | None = None  # whether it is, or is a part of, a joint of several blocks; None: count them

    # -- parameters: one flat dict; block names prefix the keys when there are several
    def prefix(self, block: Block) -> str:
        several = len(self.blocks) > 1 if self.several is None else self.several
        return f"{block.name}." if several else ""

    def only(self, names: set[str]) -> Joint:
        """The blocks of these names, with the keys that they have here."""
        kept = tuple(block for block in self.blocks if block.name in names)
        return dataclasses.replace(self, blocks=kept, several=len(self.blocks) > 1)

    def params_of(self, block: Block, params: Params) -> Params:
        prefix = self.prefix(block)
        return {key[len(prefix) :]: params[key] for key in params if key.startswith(prefix) and key != "class_probs"}

    def gather(self, class_probs, parts: list[Params]) -> Params:
        """One flat dict from the class probabilities and each block's parameters."""
        params = {"class_probs": class_probs}
        for block, part in zip(self.blocks, parts, strict=True):
            params |= {self.prefix(block) + key: value for key, value in part.items()}
        return params

    def public(self, params: Params) -> Params:
        """The parameters as users see them."""
        parts = [block.family.public(self.params_of(block, params)) for block in self.blocks]
        return self.gather(params["class_probs"], parts)

    def with_families(self, families: list[Family]) -> Joint:
        pairs = zip(self.blocks, families, strict=True)
        return dataclasses.replace(self, blocks=tuple(dataclasses.replace(b, family=f) for b, f in pairs))

    def bare(self) -> Joint:
        """Structure only: what densities need beside the parameters."""
        return dataclasses.replace(self, class_prior=ClassPrior()).with_families([b.family.bare() for b in self.blocks])

    # -- statistics
    def stats(self, x, labels: Labels) -> JointStats:
        """Statistics of each block; none, (), where the family has none for these rows."""

        if not labels.complete:  # rows without label have no statistics of their own
            return JointStats(labels.part(labels.known).counts(), tuple(() for _ in self.blocks))

        def of(block):
            rows = block.take_host(x)
            return block.family.stats(rows, labels) if has_stats(block.family, rows) else ()

        return JointStats(labels.counts(), tuple(of(block) for block in self.blocks))

    def merge(self, a: JointStats, b: JointStats) -> JointStats:
        return JointStats(a.labels + b.labels, self._pairwise("merge", a, b))

    def remove(self, a: JointStats, b: JointStats) -> JointStats:
        return JointStats(subtract(a.labels, b.labels), self._pairwise("remove", a, b))

    def _pairwise(self, what: str, a: JointStats, b: JointStats) -> tuple:
        triples = zip(self.blocks, a.blocks, b.blocks, strict=True)
        return tuple(getattr(block.family, what)(x, y) for block, x, y in triples)

    def resolve_stats(self, stats: JointStats, x=None, labels: Labels | None = None) -> Joint:
        """Every number that is taken from the data filled in: from the statistics, or the rows where there are none."""

        if labels is not None and not labels.complete:  # those without label have no say in the prior
            x, labels = x[labels.known], labels.part(labels.known)

        def of(block, part):
            return block.family.resolve(block.take_host(x), labels) if part == () else block.family.resolve_stats(part)

        return self.with_families([of(block, part) for block, part in zip(self.blocks, stats.blocks, strict=True)])

    # -- densities
    def log_joint(self, params: Params, x, cells: tuple | None = None):
        """log p(x_obs, y = k), (n, K)."""
        total = jnp.log(params["class_probs"])
        for i, block in enumerate(self.blocks):
            part = None if cells is None else cells[i]
            total = total + block.family.log_prob(self.params_of(block, params), block.take(x), part)
        return total

    def sample_rows(self, key, params: Params, y):
        """A row (n, d) for each class label in y."""
        x = jnp.zeros((y.shape[0], self.num_features))
        for block in self.blocks:
            key, use = jax.random.split(key)
            rows = block.family.sample(use, self.params_of(block, params), y)
            x = rows if block.columns is None else x.at[:, jnp.asarray(block.columns)].set(rows)
        return x

    def fill(self, params: Params, x, share, cells: tuple):
        """Each row with its missing cells at their mean (mode), classes mixed by share (n, K): (n, d)."""
        filled = x
        for block, part in zip(self.blocks, cells, strict=True):
            values = block.family.fill(self.params_of(block, params), block.take(x), share, part)
            filled = values if block.columns is None else filled.at[:, jnp.asarray(block.columns)].set(values)
        return filled

    def complete(self, key, params: Params, x, y, cells: tuple):
        """Each row with its missing cells drawn given the others and its class."""
        filled = x
        for block, part in zip(self.blocks, cells, strict=True):
            key, use = jax.random.split(key)
            values = block.family.complete(use, self.params_of(block, params), block.take(x), y, part)
            filled = values if block.columns is None else filled.at[:, jnp.asarray(block.columns)].set(values)
        return filled

    def groups(self, missing: np.ndarray) -> Iterator[tuple[np.ndarray | None, tuple]]:
        """Batches of rows that every block can serve in one call: (row indices or None for all, cells per block)."""
        yield from self._split(missing, None, ())

    def _split(self, missing, rows, cells):
        if len(cells) == len(self.blocks):
            yield rows, cells
            return
        block = self.blocks[len(cells)]
        table = block.take_host(missing if rows is None else missing[rows])
        for index, part in block.family.groups(table):
            inner = rows if index is None else index if rows is None else rows[index]
            yield from self._split(missing, inner, (*cells, part))

    # -- the NumPyro model
    def model(self, x=None, y=None, num_rows: int | None = None):
        """The joint as a NumPyro model of rows x (n, d) and class codes y (n,), −1 for an unknown class.

        Rows without a class enter through `factor("unlabelled", Σ log Σ_k p(x, y=k))`. y None with x given: all
        unknown. x None: rows are sampled, num_rows of them.
        """
        probs, parts = self.parameters()
        if x is not None and y is None:
            y = np.full(len(x), -1)
        n = num_rows if x is None and y is None else len(x if y is None else y)
        labelled, unknown, code = _labelled(y)
        with numpyro.plate("rows", n):
            code = numpyro.sample("y", _masked(dist.Categorical(probs), labelled), obs=code)
            for block, params in zip(self.blocks, parts, strict=True):
                rows = RowsGivenClass(block.family, params, code, block.num_features(self.num_features))
                value = None if x is None else block.take(x)
                numpyro.sample(self.prefix(block) + "x", _masked(rows, labelled), obs=value)
        if x is not None and unknown is not False:
            total = logsumexp(self.log_joint(self.gather(probs, parts), jnp.asarray(x), _known_complete(self, x)), -1)
            numpyro.factor("unlabelled", jnp.sum(jnp.where(unknown, total, 0.0)))

    def parameters(self) -> tuple[Any, list[Params]]:
        """The sample statements of class probabilities and of each block's parameters."""
        return self.class_prior.model(self.num_classes), [self._block_params(block) for block in self.blocks]

    def _block_params(self, block: Block) -> Params:
        size = (self.num_classes, block.num_features(self.num_features))
        if len(self.blocks) == 1:
            return block.family.model(*size)
        with handlers.scope(prefix=block.name, divider=".", hide_types=["plate"]):
            return block.family.model(*size)


def has_stats(family: Family, x) -> bool:
    """Whether the family has sufficient statistics of these rows, exactly."""
    if not isinstance(family, Conjugate):
        return False
    return family.drops_missing or sparse.issparse(x) or not np.isnan(np.sum(x)) or not np.isnan(x).any()


def _labelled(y):
    """(mask of rows with a class, mask of rows without or False, codes) - decided here when y is known while tracing."""
    if y is None:
        return True, False, None
    if isinstance(y, jax.core.Tracer):
        return y >= 0, y < 0, jnp.maximum(y, 0)
    y = np.asarray(y)
    if (y >= 0).all():
        return True, False, y
    return y >= 0, y < 0, np.maximum(y, 0)


def _masked(density: dist.Distribution, mask) -> dist.Distribution:
    return density if mask is True else density.mask(mask)


def _known_complete(joint: Joint, x) -> tuple | None:
    """The cheap path for rows that are known, while tracing, to have no missing cell."""
    if isinstance(x, jax.core.Tracer) or np.isnan(np.asarray(x)).any():
        return None
    return tuple(Shared(np.ones(b.num_features(joint.num_features), bool)) for b in joint.blocks)


class _Rows(constraints._SingletonConstraint):
    """Any row: missing cells are allowed."""

    event_dim = 1

    def __call__(self, x):
        return jnp.ones(jnp.shape(x)[:-1], bool)

    def feasible_like(self, prototype):
        return jnp.zeros_like(prototype)


class RowsGivenClass(dist.Distribution):
    """x | y for one block: gathers the family's log density (n, K) at each row's class."""

    support = _Rows()
    pytree_data_fields = ("family", "params", "y")

    def __init__(self, family: Family, params: Params, y, num_features: int, *, validate_args=None):
        self.family, self.params, self.y = family, params, y
        super().__init__(jnp.shape(y), (num_features,), validate_args=validate_args)

    def sample(self, key, sample_shape=()):
        y = jnp.broadcast_to(self.y, sample_shape + self.batch_shape)
        rows = self.family.sample(key, self.params, y.reshape(-1))
        return rows.reshape(y.shape + self.event_shape)

    def log_prob(self, value):
        rows = jnp.asarray(value)
        cells = None
        if not isinstance(value, jax.core.Tracer) and not np.isnan(np.asarray(value)).any():
            cells = Shared(np.ones(rows.shape[-1], bool))
        table = self.family.log_prob(self.params, rows, cells)
        return jnp.take_along_axis(table, jnp.asarray(self.y)[:, None], 1)[:, 0]
