"""The multinomial family: counts of p kinds of events in one row, words in a text say.

    f(x | y=k) = N!/Π x_j! · Π_j θ_kj^x_j,  N = Σ_j x_j,    θ_k ~ Dirichlet(1 + α, ..., 1 + α)

It is the density of the row given its total N, of which the model says nothing. With n_j events of kind j among n:
mle n_j/n, map (n_j + α)/(n + α p), posterior Dirichlet(1 + α + n_j), predictive Dirichlet-multinomial.
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
from scipy import sparse

from bayesgen.families.base import Labels, Params
from bayesgen.families.counts import Counting, Counts, Shares, indicator, row_sums, row_totals, sparse_logs
from bayesgen.special import dot_logs, log_coefficient, log_factorial, log_rising

CHUNK = 2**21  # stored cells x classes at a time
EVENTS_PER_KIND = 4  # with more, rows are sampled kind by kind


class Multinomial(Counting):
    """Counts of several kinds of events in one row. Fractions are accepted, as weights.

    Parameters
    ----------
    alpha : float or array (p,)
        Added to the count of every kind: 1 is Laplace smoothing, 0 none.
    total : float, optional
        The total of sampled rows; by default the average total of the training rows, rounded.

    Examples
    --------
    >>> import numpy as np
    >>> family = Multinomial(alpha=1.0)
    >>> stats = family.stats(np.array([[2.0, 1.0, 0.0], [1.0, 0.0, 0.0]]), Labels(np.array([0, 0]), 1))
    >>> family.mle(stats)["prob"].tolist(), family.map(stats)["prob"].round(3).tolist()
    ([[0.75, 0.25, 0.0]], [[0.571, 0.286, 0.143]])
    """

    total: Any = None
    dims: ClassVar[dict[str, list[str]]] = {"prob": ["class", "feature"]}
    kind: ClassVar[str] = "count"
    takes_missing: ClassVar[bool] = False

    def resolve_stats(self, stats: Counts) -> Multinomial:
        if self.total is not None:
            return self
        events, rows = float(np.sum(stats.total)), float(np.sum(stats.weight))
        return dataclasses.replace(self, total=float(np.rint(events / rows)) if rows > 0 else 0.0)

    def concentration(self):
        """Parameters of the Dirichlet law: the prior's, or with `counts` the posterior's."""
        return 1.0 + self.alpha + (0.0 if self.counts is None else self.counts.total)

    def model(self, num_classes: int, num_features: int) -> Params:
        concentration = jnp.broadcast_to(self.concentration(), (num_classes, num_features))
        with numpyro.plate("class", num_classes):
            return {"prob": numpyro.sample("prob", dist.Dirichlet(concentration))}

    def distribution(self, params: Params):
        """Of rows with the total `total`."""
        total = int(self.total)
        if "concentration" in params:
            return dist.DirichletMultinomial(params["concentration"], total, total_count_max=total)
        return dist.MultinomialProbs(params["prob"], total, total_count_max=total)

    def log_prob(self, params: Params, x, cells=None):
        # a row without any count has density 1; with only some of them, none (NaN)
        x = jnp.where(jnp.isnan(x).all(-1, keepdims=True), 0.0, x)
        coefficient = log_coefficient(x)[:, None]
        if "concentration" in params:
            a = params["concentration"]
            parts = jnp.sum(log_rising(a, x[:, None, :]), -1)
            return coefficient + parts - log_rising(a.sum(1), x.sum(1)[:, None])
        return coefficient + dot_logs(x, jnp.log(params["prob"]))

    def cell_log_prob(self, params: Params, x):
        """Each column's part of the log density, less the coefficient, which is the same for all the classes.

        Under a predictive the part of the row's total goes to the columns in proportion to their counts.
        """
        x = x[:, None, :]
        if "concentration" not in params:
            return xlogy(x, params["prob"])
        a, total = params["concentration"], x.sum(-1, keepdims=True)
        share = x / jnp.where(total > 0, total, 1.0)
        return log_rising(a, x) - share * log_rising(a.sum(1)[:, None], total)

    def sample(self, key, params: Params, y):
        """Rows of total `total`."""
        key, use = jax.random.split(key)
        known = "concentration" not in params
        prob = params["prob"][y] if known else jax.random.dirichlet(use, params["concentration"][y])
        total = jnp.asarray(self.total, float)
        many = total > EVENTS_PER_KIND * prob.shape[1]
        return jax.lax.cond(many, _kind_by_kind, _event_by_event, key, prob, total)

    def fill(self, params: Params, x, share, cells=None):
        return x

    # -- statistics
    def sums(self, x, r):
        return Counts(r.sum(0), r.T @ x, r.T @ log_coefficient(x))

    def host_sums(self, x, labels: Labels | Shares):
        rows = indicator(labels)
        if sparse.issparse(x):
            total, constant = (rows @ x).toarray(), self._coefficient(x)
        else:
            total, constant = rows @ x, log_factorial(x.sum(1)) - log_factorial(x).sum(1)
        return Counts(labels.counts(), total, rows @ constant)

    def _coefficient(self, x: sparse.csr_array) -> np.ndarray:
        """Log multinomial coefficient of sparse rows, (n,)."""
        totals = np.asarray(x.sum(1)).ravel()
        return log_factorial(totals) - row_totals(log_factorial(x.data), x)

    def log_likelihood(self, params: Params, stats: Counts):
        return jnp.sum(xlogy(stats.total, params["prob"])) + jnp.sum(stats.constant)

    # -- estimates
    def mle(self, stats: Counts) -> Params:
        return {"prob": stats.total / stats.total.sum(1, keepdims=True)}

    def map(self, stats: Counts) -> Params:
        return self.mle(stats._replace(total=stats.total + self.alpha))

    def predictive(self) -> Params:
        return {"concentration": self.concentration()}

    def expectation(self) -> Params:
        a = self.concentration()
        return {"prob": a / a.sum(1, keepdims=True)}

    def host_draws(self, rng, num, num_classes, num_features):
        gammas = rng.standard_gamma(self.concentration(), size=(num, num_classes, num_features))
        gammas /= gammas.sum(-1, keepdims=True)
        return {"prob": gammas}

    centre = expectation

    # -- sparse rows
    def linear(self, params: Params) -> tuple[np.ndarray, np.ndarray]:
        """(W, c) with log f(x | k) = x W_kᵀ + c_k + the coefficient, of a point estimate."""
        with np.errstate(divide="ignore"):
            return np.log(params["prob"]), np.zeros(len(params["prob"]))

    def log_prob_sparse(self, params: Params, x, *, constants: bool = True):
        coefficient = self._coefficient(x)[:, None] if constants else 0.0
        if "concentration" not in params:
            return sparse_logs(x, self.linear(params)[0]) + coefficient
        step = max(1, CHUNK // (len(params["concentration"]) * max(1, x.nnz // max(1, x.shape[0]))))
        parts = [self._predictive_rows(params, x[i : i + step]) for i in range(0, x.shape[0], step)]
        return np.concatenate(parts) + coefficient

    def _predictive_rows(self, params: Params, x) -> np.ndarray:
        a = params["concentration"]
        parts = row_sums(log_rising(a[:, x.indices].T, x.data[:, None]), x.indptr)
        return parts - log_rising(a.sum(1), np.asarray(x.sum(1)).reshape(-1, 1))

    def present(self, params: Params, x):
        count = x.data[:, None]
        if "concentration" not in params:
            with np.errstate(divide="ignore"):
                return count * np.log(params["prob"])[:, x.indices].T, None, ""
        a, total = params["concentration"], np.asarray(x.sum(1)).reshape(-1, 1)
        by_total = np.repeat(log_rising(a.sum(1), total) / np.where(total > 0, total, 1.0), np.diff(x.indptr), axis=0)
        return log_rising(a[:, x.indices].T, count) - count * by_total, None, ""


def _event_by_event(key, prob, total):
    """Multinomial rows for few events: each by the inverse distribution function."""
    ends = jnp.cumsum(prob, 1)
    ends = ends / ends[:, -1:]
    rows = jnp.arange(len(prob))

    def event(i, x):
        u = jax.random.uniform(jax.random.fold_in(key, i), rows.shape)
        kind = jax.vmap(lambda line, value: jnp.searchsorted(line, value, side="right"))(ends, u)
        return x.at[rows, kind].add(1.0)

    return jax.lax.fori_loop(0, total.astype(int), event, jnp.zeros_like(prob))


def _kind_by_kind(key, prob, total):
    """Multinomial rows for many events: the count of each kind is binomial given those before it."""
    rest = jnp.flip(jnp.cumsum(jnp.flip(prob, 1), 1), 1)

    def kind(left, this):
        i, share = this
        count = jax.random.binomial(jax.random.fold_in(key, i), left, jnp.clip(share, 0.0, 1.0))
        count = jnp.where(share >= 1, left, jnp.clip(count, 0.0, left))
        return left - count, count

    share = jnp.where(rest > 0, prob / jnp.where(rest > 0, rest, 1.0), 0.0).T
    _, counts = jax.lax.scan(kind, jnp.full(len(prob), total), (jnp.arange(prob.shape[1]), share))
    return counts.T
