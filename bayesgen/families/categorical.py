"""The categorical family: columns of categories, independent within the class.

    f(x | y=k) = Π_j θ_kj[x_j],    θ_kj ~ Dirichlet(1 + α, ..., 1 + α) over the c_j categories of column j

With n_c cells of category c among n: mle n_c/n, map (n_c + α)/(n + α c_j), posterior Dirichlet(1 + α + n_c),
predictive categorical with its mean.

Cells are codes 0, 1, ... The probabilities of all the columns are kept end to end, (K, T) with T = Σ c_j (see
`ragged`); users see them as (K, p, C), 0 where a column has fewer than C categories.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import xlogy

from bayesgen.families.base import Labels, Params, static
from bayesgen.families.counts import Counting, Counts, Shares
from bayesgen.linalg import Shared
from bayesgen.ragged import RaggedDirichlet, cumulative, layout, padded, spread, totals


class Categorical(Counting):
    """Columns of categories.

    Parameters
    ----------
    alpha : float
        Added to the count of every category: 1 is Laplace smoothing, 0 none.
    sizes : tuple of int, optional
        How many categories each column has; classifiers take it from the table.

    Examples
    --------
    >>> import numpy as np
    >>> family = Categorical(alpha=1.0, sizes=(3,))
    >>> stats = family.stats(np.array([[0.0], [0.0], [2.0]]), Labels(np.array([0, 0, 0]), 1))
    >>> family.map(stats)["prob"].round(3).tolist()
    [[0.5, 0.167, 0.333]]
    """

    sizes: Any = static(default=None)
    dims: ClassVar[dict[str, list[str]]] = {"prob": ["class", "feature", "category"]}
    kind: ClassVar[str] = "category"
    takes_sparse: ClassVar[bool] = False

    # -- sizes
    def with_sizes(self, sizes: tuple[int, ...]) -> Categorical:
        return dataclasses.replace(self, sizes=tuple(int(c) for c in sizes))

    def resolve(self, x, r):
        most = np.nanmax(np.asarray(x), axis=0, initial=0)
        return self if self.sizes is not None else self.with_sizes(tuple(most + 1))

    def width(self, num_features: int) -> int:
        return sum(self.sizes)

    def recode(self, stats: Counts, places: list[np.ndarray], sizes: tuple[int, ...]) -> Counts:
        """The statistics over other lists of categories: places[j] are the new codes of column j's old ones.

        −1: an old category without cells that is dropped.
        """
        total = np.zeros((len(stats.total), sum(sizes)))
        starts, _ = layout(tuple(sizes))
        place = np.concatenate([np.where(p < 0, -1, s + p) for s, p in zip(starts, places, strict=True)])
        total[:, place[place >= 0]] = np.asarray(stats.total)[:, place >= 0]
        return stats._replace(total=total)

    def cells(self, stats: Counts) -> list[np.ndarray]:
        """The weight of each category's cells over all the classes, per column."""
        return np.split(np.asarray(stats.total).sum(0), layout(self.sizes)[0][1:])

    # -- the model
    def concentration(self):
        """Parameters of the Dirichlet laws, end to end: the prior's, or with `counts` the posterior's."""
        return 1.0 + self.alpha + (0.0 if self.counts is None else self.counts.total)

    def model(self, num_classes: int, num_features: int) -> Params:
        concentration = jnp.broadcast_to(self.concentration(), (num_classes, sum(self.sizes)))
        with numpyro.plate("class", num_classes):
            return {"prob": numpyro.sample("prob", RaggedDirichlet(concentration, self.sizes))}

    def distribution(self, params: Params):
        starts, _ = layout(self.sizes)
        place = np.arange(max(self.sizes))
        real = place < np.asarray(self.sizes)[:, None]
        table = jnp.where(real, params["prob"][..., np.where(real, starts[:, None] + place, 0)], 0.0)
        return dist.Categorical(probs=table).to_event(1)

    def public(self, params: Params) -> Params:
        return {"prob": padded(params["prob"], self.sizes)}

    # -- densities
    def _places(self, x, cells=None):
        """The place of each cell's category in the vector of length T; T for missing cells."""
        missing = jnp.isnan(x)
        if isinstance(cells, Shared):
            missing = missing | ~jnp.asarray(cells.observed)
        return jnp.where(missing, sum(self.sizes), jnp.where(missing, 0.0, x).astype(jnp.int32) + layout(self.sizes)[0])

    def _logs(self, params: Params):
        """Log probabilities (T + 1, K), the last row 0, for missing cells.

        A row to look up, not a mask over what was looked up: the loop vectoriser of some jaxlib releases (0.9.2) dies of
        a division by zero on certain sums of masked values. Places first: the K numbers of a category are read together.
        """
        logs = jnp.log(params["prob"]).T
        return jnp.concatenate([logs, jnp.zeros((1, logs.shape[1]), logs.dtype)])

    def log_prob(self, params: Params, x, cells=None):
        return jnp.sum(self._logs(params)[self._places(x, cells)], 1)

    def cell_log_prob(self, params: Params, x):
        return jnp.moveaxis(self._logs(params)[self._places(x)], 1, 2)

    def sample(self, key, params: Params, y):
        """By the inverse distribution function, with a binary search in each column."""
        prob, sizes = params["prob"], self.sizes
        starts, column = layout(sizes)
        last = starts + np.asarray(sizes, np.int32) - 1
        ends = cumulative(prob, sizes)
        ends = ends / spread(ends[:, last], sizes)
        # rounding may leave an impossible category a sliver: it belongs to the possible one before it
        possible = jax.lax.cummax(jnp.where(prob > 0, jnp.arange(len(column)), 0), axis=1)
        u, row = jax.random.uniform(key, (y.shape[0], len(sizes))), y[:, None]

        def halve(_, bounds):
            low, high = bounds
            middle = (low + high) // 2
            beyond = ends[row, middle] <= u
            return jnp.where(beyond, middle + 1, low), jnp.where(beyond, high, middle)

        bounds = jnp.broadcast_to(starts, u.shape), jnp.broadcast_to(last, u.shape)
        spot, _ = jax.lax.fori_loop(0, (max(sizes) - 1).bit_length(), halve, bounds)
        return (possible[row, spot] - starts).astype(float)

    def fill(self, params: Params, x, share, cells=None):
        """Missing cells at their mode: the category of largest probability, averaged over the classes."""
        _, column = layout(self.sizes)
        mixed = (share @ params["prob"]).T
        best = jax.ops.segment_max(mixed, column, len(self.sizes), indices_are_sorted=True)
        code = jnp.arange(len(column)) - layout(self.sizes)[0][column]
        first = jnp.where(mixed >= best[column], code[:, None], len(column))
        mode = jax.ops.segment_min(first, column, len(self.sizes), indices_are_sorted=True).T
        return jnp.where(jnp.isnan(x), mode.astype(x.dtype), x)

    # -- statistics
    def sums(self, x, r):
        weight = jnp.broadcast_to(r.T[:, :, None], (r.shape[1], *x.shape))  # (K, n, p)
        total = jnp.zeros((r.shape[1], sum(self.sizes) + 1)).at[:, self._places(x)].add(weight)[:, :-1]
        return Counts(totals(total, self.sizes), total, jnp.zeros(r.shape[1]))

    def host_sums(self, x, labels: Labels | Shares):
        assert isinstance(labels, Labels), "categories are never sparse"
        k = labels.num_classes
        total, starts = np.zeros((k, sum(self.sizes))), layout(self.sizes)[0]
        for j, size in enumerate(self.sizes):
            observed = ~np.isnan(x[:, j])
            place = labels.codes[observed] * size + x[observed, j].astype(int)
            weight = None if labels.weight is None else labels.weight[observed]
            total[:, starts[j] : starts[j] + size] = np.bincount(place, weight, k * size).reshape(k, size)
        return Counts(totals(total, self.sizes), total, np.zeros(k))

    def log_likelihood(self, params: Params, stats: Counts):
        return jnp.sum(xlogy(stats.total, params["prob"]))

    # -- estimates
    def _normalised(self, values):
        return {"prob": values / spread(totals(values, self.sizes), self.sizes)}

    def mle(self, stats: Counts) -> Params:
        return self._normalised(stats.total)

    def map(self, stats: Counts) -> Params:
        return self._normalised(stats.total + self.alpha)

    def predictive(self) -> Params:
        return self._normalised(self.concentration())

    def host_draws(self, rng, num, num_classes, num_features):
        return self._normalised(rng.standard_gamma(self.concentration(), size=(num, num_classes, sum(self.sizes))))

    expectation = predictive
    centre = predictive
