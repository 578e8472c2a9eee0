"""The log-normal family: positive columns whose logarithms are normal, independent within the class.

    f(x | y=k) = Π_j N(log x_j; μ_kj, σ_kj²) / x_j,    λ = 1/σ²
    λ_kj ~ Gamma(a_j, b_j),   μ_kj | λ_kj ~ N(m_j, 1/(κ_j λ_kj))

This is Gaussian naive Bayes on log x, with its "auto" prior: a = 3/2, b_j half the pooled within-class variance of
log x_j, m_j its mean, κ = 0.01.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesgen.families.base import Labels, Params
from bayesgen.families.columnwise import Columnwise, scales


class LogNormalPrior(NamedTuple):
    """Prior numbers of `LogNormal`, each a number or one per column; None: from the data.

    Parameters
    ----------
    loc, strength : float or array (p,)
        m and κ: log x is thought to be near m, as if κ rows had said so.
    shape, rate : float or array (p,)
        a and b of the precision of log x.
    """

    loc: Any = None
    strength: Any = None
    shape: Any = None
    rate: Any = None


class LogNormal(Columnwise):
    """Positive columns whose logarithms are normal.

    The parameters are `loc` μ and `scale` σ, the mean and the standard deviation of log x; map is the mode in μ and the
    precision 1/σ². Cells are filled with their mean, exp(μ + σ²/2).

    Parameters
    ----------
    prior : "auto" or LogNormalPrior
        λ ~ Gamma(shape, rate), μ | λ ~ N(loc, 1/(strength λ)). "auto" is that of a diagonal Gaussian on log x: weak, the
        mean worth 0.01 rows and the precision one pseudo-row.

    Examples
    --------
    >>> import numpy as np
    >>> family = LogNormal().resolve(np.exp([[1.0], [3.0], [2.0]]), Labels(np.array([0, 0, 1]), 2))
    >>> {name: value.round(3).tolist() for name, value in family.prior._asdict().items()}
    {'loc': [2.0], 'strength': [0.01], 'shape': [1.5], 'rate': [0.333]}
    >>> params = {"loc": jnp.zeros((1, 1)), "precision": jnp.ones((1, 1))}
    >>> np.asarray(family.log_prob(params, jnp.array([[1.0], [-1.0], [jnp.nan]])), float).round(3).tolist()
    [[-0.919], [-inf], [0.0]]
    """

    dims: ClassVar[dict[str, list[str]]] = {"loc": ["class", "feature"], "scale": ["class", "feature"]}
    domain: ClassVar[str] = "positive numbers"
    support: ClassVar[Any] = constraints.positive
    Prior: ClassVar[Any] = LogNormalPrior
    real: ClassVar[tuple[str, ...]] = ("loc",)

    def automatic(self, x: np.ndarray, r: Labels | np.ndarray) -> LogNormalPrior:
        logs = np.log(np.where(x > 0, x, np.nan))
        known = scales(logs, r)
        one = np.ones(x.shape[1])
        return LogNormalPrior(known.mean, 0.01 * one, 1.5 * one, known.within / 2)

    def model(self, num_classes: int, num_features: int) -> Params:
        prior = self.numbers(num_features)
        with numpyro.plate("class", num_classes):
            precision = numpyro.sample("precision", dist.Gamma(prior.shape, prior.rate).to_event(1))
            sd = 1 / jnp.sqrt(prior.strength * precision)
            return {"loc": numpyro.sample("loc", dist.Normal(prior.loc, sd).to_event(1)), "precision": precision}

    def distribution(self, params: Params) -> dist.Distribution:
        return dist.LogNormal(params["loc"], 1 / jnp.sqrt(params["precision"])).to_event(1)

    def public(self, params: Params) -> Params:
        return {"loc": params["loc"], "scale": 1 / params["precision"] ** 0.5}
