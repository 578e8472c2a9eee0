"""The Poisson family: columns of counts, independent within the class.

    f(x | y=k) = Π_j λ_kj^x_j exp(−λ_kj) / x_j!,    λ_kj ~ Gamma(1 + α, rate β)

With the sum s of n observed cells: mle s/n, map (s + α)/(n + β), posterior Gamma(1 + α + s, β + n), predictive
Gamma-Poisson (negative binomial).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln, xlogy
from scipy import sparse

from bayesgen.families.base import Labels, Params, static
from bayesgen.families.counts import Counting, Counts, Shares, indicator, row_sums, row_totals, seen, sparse_logs
from bayesgen.families.modes import Peaks, mixture_mode
from bayesgen.improper import ImproperGamma
from bayesgen.special import dot_logs, log_factorial, log_rising

CHUNK = 2**21  # stored cells x classes at a time


class Poisson(Counting):
    """Columns of counts.

    Parameters
    ----------
    alpha, beta : float or array (p,)
        The prior Gamma(1 + α, β) of the rates: as if β rows with α events in all had been seen. β = 0 is improper, and
        accepted where every class has observed cells.

    Examples
    --------
    >>> import numpy as np
    >>> family = Poisson(alpha=1.0, beta=1.0)
    >>> stats = family.stats(np.array([[2.0], [4.0]]), Labels(np.array([0, 0]), 1))
    >>> family.mle(stats)["rate"].tolist(), family.map(stats)["rate"].round(3).tolist()
    ([[3.0]], [[2.333]])
    """

    beta: Any = 1.0
    proper: bool = static(default=True)  # False: β = 0, a flat tail, accepted where the data make the posterior proper
    dims: ClassVar[dict[str, list[str]]] = {"rate": ["class", "feature"]}
    kind: ClassVar[str] = "count"

    def gamma(self) -> tuple:
        """Shape and rate of the Gamma law of λ: the prior's, or with `counts` the posterior's."""
        total, weight = (0.0, 0.0) if self.counts is None else (self.counts.total, self.counts.weight)
        return 1.0 + self.alpha + total, self.beta + weight

    def model(self, num_classes: int, num_features: int) -> Params:
        shape, rate = (jnp.broadcast_to(v, (num_classes, num_features)) for v in self.gamma())
        prior = dist.Gamma(shape, rate) if self.proper or self.counts is not None else ImproperGamma(2 * shape, 2 * rate)
        with numpyro.plate("class", num_classes):
            return {"rate": numpyro.sample("rate", prior.to_event(1))}

    def resolve_stats(self, stats: Counts) -> Poisson:
        return dataclasses.replace(self, proper=bool(np.min(self.beta) > 0))

    def has_evidence(self) -> bool:
        return self.proper

    def distribution(self, params: Params):
        if "shape" in params:
            return dist.GammaPoisson(params["shape"], params["inverse_scale"]).to_event(1)
        return dist.Poisson(params["rate"]).to_event(1)

    def log_prob(self, params: Params, x, cells=None):
        count, observed = seen(x, cells)
        if "shape" in params:
            return jnp.sum(self._predictive_cells(params, count[:, None, :], observed[:, None, :]), -1)
        base = dot_logs(count, jnp.log(params["rate"])) - observed @ params["rate"].T
        return base - jnp.sum(gammaln(count + 1), -1, keepdims=True)

    def cell_log_prob(self, params: Params, x):
        count, observed = (v[:, None, :] for v in seen(x, None))
        if "shape" in params:
            return self._predictive_cells(params, count, observed)
        return xlogy(count, params["rate"]) - observed * params["rate"] - gammaln(count + 1)

    def _predictive_cells(self, params: Params, count, observed):
        a, b = params["shape"], params["inverse_scale"]
        # (b/(b+1))^a and (1/(b+1))^x, in logarithms that keep their digits for large b
        return log_rising(a, count) - gammaln(count + 1) - observed * a * jnp.log1p(1 / b) - count * jnp.log1p(b)

    def sample(self, key, params: Params, y):
        if "shape" in params:
            key, use = jax.random.split(key)
            rate = jax.random.gamma(use, params["shape"][y]) / params["inverse_scale"][y]
        else:
            rate = params["rate"][y]
        return jax.random.poisson(key, rate).astype(float)

    def fill(self, params: Params, x, share, cells=None):
        """Missing cells at the mode of their law, mixed over the classes."""
        if "shape" in params:
            a, b = params["shape"], params["inverse_scale"]
            modes, spread = jnp.floor((a - 1) / b), jnp.sqrt(a * (b + 1)) / b
        else:
            modes, spread = jnp.floor(params["rate"]), jnp.sqrt(params["rate"])

        def height(value):
            return jnp.einsum("nk,nkp->np", share, jnp.exp(self.cell_log_prob(params, value)))

        return jnp.where(jnp.isnan(x), mixture_mode(height, Peaks(modes, spread), x.shape), x)

    # -- statistics
    def sums(self, x, r):
        count, observed = seen(x, None)
        return Counts(r.T @ observed, r.T @ count, -(r.T @ jnp.sum(gammaln(count + 1), -1)))

    def host_sums(self, x, labels: Labels | Shares):
        rows = indicator(labels)
        weight = np.repeat(labels.counts()[:, None], x.shape[1], axis=1)
        if sparse.issparse(x):
            constant = row_totals(log_factorial(x.data), x)
            return Counts(weight, (rows @ x).toarray(), -(rows @ constant))
        missing = np.isnan(x)
        count = np.where(missing, 0.0, x)
        weight = rows @ (~missing).astype(float) if missing.any() else weight
        return Counts(weight, rows @ count, -(rows @ log_factorial(count).sum(1)))

    def cannot_be_negative(self, stats: Counts) -> tuple:
        return stats.total, stats.weight

    def log_likelihood(self, params: Params, stats: Counts):
        return jnp.sum(xlogy(stats.total, params["rate"]) - stats.weight * params["rate"]) + jnp.sum(stats.constant)

    # -- estimates
    def mle(self, stats: Counts) -> Params:
        return {"rate": stats.total / stats.weight}

    def map(self, stats: Counts) -> Params:
        return {"rate": (stats.total + self.alpha) / (stats.weight + self.beta)}

    def begin(self, stats: Counts) -> Params:
        smooth = dataclasses.replace(self, beta=np.where(np.asarray(self.beta) > 0, self.beta, 1.0))
        return super(Poisson, smooth).begin(stats)

    def change(self, before: Params, after: Params) -> Params:
        rate = after["rate"]
        return {"rate": (rate - before["rate"]) / jnp.where(rate > 0, rate, 1.0)}

    def predictive(self) -> Params:
        shape, rate = self.gamma()
        return {"shape": shape, "inverse_scale": rate}

    def expectation(self) -> Params:
        shape, rate = self.gamma()
        return {"rate": shape / rate}

    def host_draws(self, rng, num, num_classes, num_features):
        shape, rate = self.gamma()
        return {"rate": rng.standard_gamma(shape, size=(num, num_classes, num_features)) / rate}

    centre = expectation

    def bare(self):
        return dataclasses.replace(super().bare(), beta=1.0)

    # -- sparse rows
    def linear(self, params: Params) -> tuple[np.ndarray, np.ndarray]:
        """(W, c) with log f(x | k) = x W_kᵀ + c_k − Σ_j ln x_j!, of a point estimate."""
        with np.errstate(divide="ignore"):
            return np.log(params["rate"]), -params["rate"].sum(1)

    def _absent(self, params: Params) -> np.ndarray:
        """Log probability of a count of 0, (K, p)."""
        if "shape" in params:
            return -params["shape"] * np.log1p(1 / params["inverse_scale"])
        return -params["rate"]

    def log_prob_sparse(self, params: Params, x, *, constants: bool = True):
        constant = row_totals(log_factorial(x.data), x)[:, None] if constants else 0.0
        if "shape" not in params:
            weights, base = self.linear(params)
            return sparse_logs(x, weights) + base - constant
        base = self._absent(params).sum(1)
        step = max(1, CHUNK // (len(base) * max(1, x.nnz // max(1, x.shape[0]))))
        parts = [self._present_gain(params, x[i : i + step]) for i in range(0, x.shape[0], step)]
        return np.concatenate(parts) + base - constant

    def _present_gain(self, params: Params, x) -> np.ndarray:
        """What the stored cells add to the probability of nothing but zeros, less their factorials, (n, K)."""
        return row_sums(self._here(params, x) - self._absent(params)[:, x.indices].T, x.indptr)

    def _here(self, params: Params, x) -> np.ndarray:
        """Log probability of each stored cell under each class, less its factorial, (nnz, K)."""
        count = x.data[:, None]
        if "shape" in params:
            a, b = params["shape"][:, x.indices].T, params["inverse_scale"][:, x.indices].T
            return log_rising(a, count) - a * np.log1p(1 / b) - count * np.log1p(b)
        with np.errstate(divide="ignore"):
            rate = params["rate"][:, x.indices].T
            return count * np.log(rate) - rate

    def present(self, params: Params, x):
        absent = self._absent(params)
        rest = absent.sum(1) - row_sums(absent[:, x.indices].T, x.indptr)
        return self._here(params, x) - log_factorial(x.data)[:, None], rest, "(absent)"
