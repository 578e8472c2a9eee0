"""The Bernoulli family: binary columns, independent within the class.

    f(x | y=k) = Π_j θ_kj^x_j (1 − θ_kj)^(1 − x_j),    θ_kj ~ Beta(1 + α, 1 + α)

With n1 ones among n observed cells: mle n1/n, map (n1 + α)/(n + 2α) (Laplace, Lidstone), posterior
Beta(1 + α + n1, 1 + α + n − n1), predictive Bernoulli with its mean (1 + α + n1)/(2 + 2α + n).
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import xlog1py, xlogy
from scipy import sparse

from bayesgen.families.base import Labels, Params
from bayesgen.families.counts import Counting, Counts, Shares, indicator, row_sums, seen, sparse_logs
from bayesgen.moments import namespace
from bayesgen.special import dot_logs


class Bernoulli(Counting):
    """Binary columns.

    Parameters
    ----------
    alpha : float or array (p,)
        Added to the count of ones and to that of zeros: 1 is Laplace smoothing, 0 none.

    Examples
    --------
    >>> import numpy as np
    >>> family = Bernoulli(alpha=1.0)
    >>> stats = family.stats(np.array([[1.0], [1.0], [np.nan]]), Labels(np.array([0, 0, 0]), 1))
    >>> family.mle(stats)["prob"].tolist(), family.map(stats)["prob"].tolist()
    ([[1.0]], [[0.75]])
    """

    dims: ClassVar[dict[str, list[str]]] = {"prob": ["class", "feature"]}
    kind: ClassVar[str] = "binary"

    def shapes(self) -> tuple:
        """Parameters of the Beta law of θ: the prior's, or with `counts` the posterior's."""
        ones, zeros = (0.0, 0.0) if self.counts is None else (self.counts.total, self.counts.weight - self.counts.total)
        return 1.0 + self.alpha + ones, 1.0 + self.alpha + zeros

    def model(self, num_classes: int, num_features: int) -> Params:
        a, b = (jnp.broadcast_to(v, (num_classes, num_features)) for v in self.shapes())
        with numpyro.plate("class", num_classes):
            return {"prob": numpyro.sample("prob", dist.Beta(a, b).to_event(1))}

    def distribution(self, params: Params):
        return dist.Bernoulli(probs=params["prob"]).to_event(1)

    def log_prob(self, params: Params, x, cells=None):
        ones, observed = seen(x, cells)
        return dot_logs(ones, jnp.log(params["prob"])) + dot_logs(observed - ones, jnp.log1p(-params["prob"]))

    def cell_log_prob(self, params: Params, x):
        ones, observed = (v[:, None, :] for v in seen(x, None))
        return xlogy(ones, params["prob"]) + xlog1py(observed - ones, -params["prob"])

    def sample(self, key, params: Params, y):
        return (jax.random.uniform(key, (y.shape[0], params["prob"].shape[1])) < params["prob"][y]).astype(float)

    def fill(self, params: Params, x, share, cells=None):
        """Missing cells at their mode: 1 where its probability, averaged over the classes, is above ½."""
        return jnp.where(jnp.isnan(x), (share @ params["prob"] > 0.5).astype(x.dtype), x)

    # -- statistics
    def sums(self, x, r):
        ones, observed = seen(x, None)
        return Counts(r.T @ observed, r.T @ ones, jnp.zeros(r.shape[1]))

    def host_sums(self, x, labels: Labels | Shares):
        rows = indicator(labels)
        if sparse.issparse(x):
            total = (rows @ x).toarray()
        else:
            missing = np.isnan(x)
            total = rows @ np.where(missing, 0.0, x)
        weight = np.repeat(labels.counts()[:, None], x.shape[1], axis=1)
        if not sparse.issparse(x) and missing.any():
            # summed as the ones are, so that cells that are all ones have a share of exactly 1
            weight = rows @ (~missing).astype(float)
        return Counts(weight, total, np.zeros(labels.num_classes))

    def cannot_be_negative(self, stats: Counts) -> tuple:
        return stats.total, stats.weight - stats.total

    def log_likelihood(self, params: Params, stats: Counts):
        return jnp.sum(xlogy(stats.total, params["prob"]) + xlog1py(stats.weight - stats.total, -params["prob"]))

    # -- estimates
    def mle(self, stats: Counts) -> Params:
        # statistics that were taken off others may be a rounding away from each other
        return {"prob": namespace(stats.total).minimum(stats.total / stats.weight, 1.0)}

    def map(self, stats: Counts) -> Params:
        return self.mle(stats._replace(total=stats.total + self.alpha, weight=stats.weight + 2 * self.alpha))

    def predictive(self) -> Params:
        a, b = self.shapes()
        return {"prob": a / (a + b)}

    def host_draws(self, rng, num, num_classes, num_features):
        return {"prob": rng.beta(*self.shapes(), size=(num, num_classes, num_features))}

    expectation = predictive
    centre = predictive

    # -- sparse rows
    def linear(self, params: Params) -> tuple[np.ndarray, np.ndarray]:
        """(W, c) with log f(x | k) = x W_kᵀ + c_k."""
        with np.errstate(divide="ignore"):
            absent = np.log1p(-params["prob"])
            return np.log(params["prob"]) - absent, absent.sum(1)

    def log_prob_sparse(self, params: Params, x, *, constants: bool = True):
        prob = params["prob"]
        certain = prob == 1  # a column that was always 1: its absence is impossible
        with np.errstate(divide="ignore"):
            absent = np.where(certain, 0.0, np.log1p(-np.where(certain, 0.0, prob)))
            table = sparse_logs(x, np.log(prob) - absent) + absent.sum(1)
        if certain.any():
            table[x @ certain.T.astype(float) < certain.sum(1)] = -np.inf
        return table

    def present(self, params: Params, x):
        with np.errstate(divide="ignore", invalid="ignore"):
            here, absent = np.log(params["prob"])[:, x.indices].T, np.log1p(-params["prob"])
            # what is absent: all columns, less those present
            gone = row_sums(np.nan_to_num(absent[:, x.indices].T, neginf=0.0), x.indptr)
            rest = np.nan_to_num(absent, neginf=0.0).sum(1) - gone
            certain = np.isneginf(absent)
            if certain.any():
                rest[x @ certain.T.astype(float) < certain.sum(1)] = -np.inf
        return here, rest, "(absent)"
