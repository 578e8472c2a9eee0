"""The negative binomial family: columns of counts that vary more than a Poisson law, independent within the class.

    f(x | y=k) = Π_j Γ(c + x_j)/(Γ(c) x_j!) (c/(c + m))^c (m/(c + m))^x_j,    m = m_kj the mean, c = c_kj the concentration
    log m_kj ~ N(l_j, s_j²),   c_kj ~ Gamma(a_j, rate b_j)

The variance is m + m²/c: as the concentration grows the law becomes Poisson.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.nn import softplus
from jax.scipy.special import gammaln
from numpyro.distributions import constraints

from bayesgen.families.base import Labels, Params
from bayesgen.families.cells import cell_logs
from bayesgen.families.columnwise import Columnwise, log_mean_prior, scales
from bayesgen.moments import namespace
from bayesgen.special import log_rising


class NegativeBinomialPrior(NamedTuple):
    """Prior numbers of `NegativeBinomial`, each a number or one per column; None: from the data.

    Parameters
    ----------
    log_mean, log_mean_sd : float or array (p,)
        l and s: the normal law of the logarithm of the mean.
    shape, rate : float or array (p,)
        a and b: the Gamma law of the concentration.
    """

    log_mean: Any = None
    log_mean_sd: Any = None
    shape: Any = None
    rate: Any = None


class NegativeBinomial(Columnwise):
    """Columns of counts, overdispersed.

    The parameters are `mean` m and `concentration` c; map is the mode in the logarithm of the mean and the
    concentration. Cells are filled with their mode.

    Parameters
    ----------
    prior : "auto" or NegativeBinomialPrior
        log m ~ N(log_mean, log_mean_sd²), c ~ Gamma(shape, rate). "auto" is weak: l_j is the logarithm of the column's
        mean (of half a count in all, where the column is 0), s_j ten coefficients of variation of the column, at most 3;
        shape 3/2 and rate 1/(2 c_j), with c_j from the pooled within-class variance v: m²/(v − m), but at least 1 and at
        most 100 m, where the law is nearly Poisson.

    Examples
    --------
    >>> import numpy as np
    >>> family = NegativeBinomial().resolve(np.array([[0.0], [8.0], [4.0]]), Labels(np.array([0, 0, 1]), 2))
    >>> {name: value.round(3).tolist() for name, value in family.prior._asdict().items()}
    {'log_mean': [1.386], 'log_mean_sd': [3.0], 'shape': [1.5], 'rate': [0.208]}
    >>> params = {"log_mean": jnp.zeros((1, 1)), "concentration": jnp.ones((1, 1))}  # a geometric law
    >>> np.asarray(family.log_prob(params, jnp.array([[1.0], [0.5], [jnp.nan]])), float).round(3).tolist()
    [[-1.386], [-inf], [0.0]]
    """

    dims: ClassVar[dict[str, list[str]]] = {"mean": ["class", "feature"], "concentration": ["class", "feature"]}
    kind: ClassVar[str] = "count"
    domain: ClassVar[str] = "whole numbers, at least 0"
    support: ClassVar[Any] = constraints.nonnegative_integer
    Prior: ClassVar[Any] = NegativeBinomialPrior
    real: ClassVar[tuple[str, ...]] = ("log_mean",)

    def automatic(self, x: np.ndarray, r: Labels | np.ndarray) -> NegativeBinomialPrior:
        known = scales(x, r)
        nothing = np.where(known.weight > 0, 0.5 / np.where(known.weight > 0, known.weight, 1.0), 1.0)
        mean = np.where(known.mean > 0, known.mean, nothing)
        most = np.maximum(mean**2 / np.maximum(known.within - mean, 0.01 * mean), 1.0)
        shape = np.full(x.shape[1], 1.5)
        return NegativeBinomialPrior(*log_mean_prior(mean, known.total), shape, 1 / (2 * most))

    def model(self, num_classes: int, num_features: int) -> Params:
        prior = self.numbers(num_features)
        with numpyro.plate("class", num_classes):
            log_mean = numpyro.sample("log_mean", dist.Normal(prior.log_mean, prior.log_mean_sd).to_event(1))
            concentration = numpyro.sample("concentration", dist.Gamma(prior.shape, prior.rate).to_event(1))
        return {"log_mean": log_mean, "concentration": concentration}

    def distribution(self, params: Params) -> dist.Distribution:
        return dist.NegativeBinomial2(**self.public(params)).to_event(1)

    def public(self, params: Params) -> Params:
        log_mean = params["log_mean"]
        return {"mean": namespace(log_mean).exp(log_mean), "concentration": params["concentration"]}

    def cell_log_prob(self, params: Params, x: jax.Array) -> jax.Array:
        """With the rising factorial by its series: the limit of large concentrations keeps its digits."""
        c, excess = params["concentration"], params["log_mean"] - jnp.log(params["concentration"])

        def log_prob(count):
            base = log_rising(c, count) - gammaln(count + 1)
            return base - c * softplus(excess) - count * softplus(-excess)

        return cell_logs(constraints.nonnegative_integer, log_prob, x[:, None, :])
