"""Scores of a fitted model on its own rows: leave-one-out by importance sampling (PSIS), WAIC, and sums with their errors.

A row's score is its log predictive density without itself. Given draws θ_s of the posterior and ℓ_is = log p(row i | θ_s),

    PSIS-LOO    log Σ_s w_is exp ℓ_is,   w_is ∝ 1/exp ℓ_is, the largest smoothed by a Pareto law
    WAIC        log mean_s exp ℓ_is − var_s ℓ_is

(Vehtari, Gelman and Gabry, 2017). Both estimate Σ_i log p(row i | D without i) for ℓ = log p(x, y | θ), and
Σ_i log p(y_i | x_i, D without i) for ℓ = log p(y | x, θ): a posterior that has seen x_i but not y_i is what is left when the
conditional factor is divided out.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy.special import logsumexp

# Pareto shapes above BAD_K: the importance weights of a row are not to be trusted; unless they are all but equal, when the
# shape of their tail is of no account.
BAD_K, EVEN = 0.7, 0.1


@dataclasses.dataclass
class Scores:
    """What is known of one model: scores by row (n,), numbers of the whole table, and what the rows were."""

    classes: np.ndarray
    counts: np.ndarray  # weight of each class
    measure: tuple[str, ...] | None  # what the density of each column is with respect to; None: there is no p(x)
    x: Any = None  # the rows, None where they were not kept
    codes: Any = None
    weight: Any = None
    rows: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)

    def weights(self) -> np.ndarray:
        """How often each row counts."""
        return np.ones(len(self.codes)) if self.weight is None else self.weight

    def weights_of(self, name: str) -> np.ndarray:
        """The same for one score, which rows without label may not have."""
        return np.where(np.isnan(self.rows[name]), 0.0, self.weights()) if name in ("accuracy", "brier") else self.weights()


def total(values: np.ndarray, weight: np.ndarray) -> float:
    """Σ_i w_i v_i; rows of no weight do not count, whatever their value."""
    return float(np.sum(np.where(weight > 0, weight * np.where(weight > 0, values, 0.0), 0.0)))


def standard_error(values: np.ndarray, weight: np.ndarray) -> float:
    """Of the total: √(n var) with var = Σ w_i (v_i − v̄)²/(n − 1), n = Σ w_i, rows being independent."""
    n = weight.sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total(values, weight) / n
        return float(np.sqrt(n / (n - 1) * total((values - mean) ** 2, weight))) if n > 1 else np.nan


def smoothed(log_ratio: np.ndarray, efficiency: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Pareto-smoothed importance weights of rows (n, S): their logarithms, which sum to 1 by row, and Pareto's k (n,)."""
    import arviz

    logs, shape = np.full(log_ratio.shape, -np.log(log_ratio.shape[1])), np.zeros(len(log_ratio))
    uneven = np.ptp(log_ratio, axis=1) > 1e-12  # equal weights have no tail to fit
    if not uneven.any():
        return logs, shape
    if hasattr(arviz, "psislw"):  # before ArviZ 1.0; it takes log ratios, the later one log likelihoods
        logs[uneven], shape[uneven] = arviz.psislw(log_ratio[uneven], efficiency)
        return logs, shape
    import xarray

    table = xarray.DataArray(-log_ratio[uneven], dims=("row", "sample"))
    weights, shapes = table.azstats.psislw(r_eff=efficiency, dim="sample")
    logs[uneven], shape[uneven] = weights.transpose("row", "sample").values, shapes.values
    return logs, shape


def psis(log_lik: np.ndarray, leaving: np.ndarray, efficiency: float = 1.0) -> dict[str, np.ndarray]:
    """By row of log_lik (n, S): elpd, p (effective parameters), bad (whether not to be trusted), and the log weights.

    leaving (n,): how much of a row's likelihood goes with it; 1, or less for rows of less weight.
    """
    log_ratio = -leaving[:, None] * log_lik
    with np.errstate(invalid="ignore"):  # draws under which a row is impossible
        logs, shape = smoothed(log_ratio, efficiency)
        elpd = logsumexp(logs + log_lik, axis=1)
        lppd = logsumexp(log_lik, axis=1) - np.log(log_lik.shape[1])
        bad = ~(shape <= BAD_K) & ~(np.ptp(log_ratio, axis=1) <= EVEN)
    return {"elpd": elpd, "p": lppd - elpd, "bad": bad, "logs": logs}


def waic(log_lik: np.ndarray, leaving: np.ndarray) -> dict[str, np.ndarray]:
    """By row of log_lik (n, S): elpd and p."""
    num = log_lik.shape[1]
    p = leaving * (log_lik.var(axis=1, ddof=1) if num > 1 else np.full(len(log_lik), np.nan))
    return {"elpd": logsumexp(log_lik, axis=1) - np.log(num) - p, "p": p}


def from_draws(own: np.ndarray, shares: np.ndarray, codes: np.ndarray, leaving: np.ndarray, efficiency: float) -> dict:
    """All that the draws say of some rows: scores by row, and log p(k | x_i, D without i) under "shares".

    own (n, S): log p(x_i, y_i | θ_s); shares (n, S, K): log p(k | x_i, θ_s).
    """
    out: dict[str, np.ndarray] = {}
    given = np.where(
        codes[:, None] >= 0, shares[np.arange(len(codes)), :, codes], 0.0
    )  # of no label there is nothing to say
    for kind, log_lik in (("joint", own), ("conditional", given)):
        found, rough = psis(log_lik, leaving, efficiency), waic(log_lik, leaving)
        out |= {f"psis_{kind}": found["elpd"], f"psis_{kind}_p": found["p"], f"psis_{kind}_bad_k": found["bad"]}
        out |= {f"waic_{kind}": rough["elpd"], f"waic_{kind}_p": rough["p"]}
        if kind == "conditional":  # the posterior without y_i, which has seen x_i
            out["shares"] = logsumexp(found["logs"][:, :, None] + shares, axis=1)
    return out


def hits(log_shares: np.ndarray, codes: np.ndarray) -> dict[str, np.ndarray]:
    """By row, from log p(k | x_i, D without i), (n, K): whether the most probable class is right, and Brier's score.

    NaN for rows without label.
    """
    share = np.exp(log_shares)
    truth = np.arange(share.shape[1]) == codes[:, None]
    right = (share.argmax(1) == codes).astype(float)
    known = codes >= 0
    return {
        "accuracy": np.where(known, right, np.nan),
        "brier": np.where(known, np.sum((share - truth) ** 2, axis=1), np.nan),
    }
