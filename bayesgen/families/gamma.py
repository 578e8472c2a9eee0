"""The gamma family: positive columns, independent within the class.

    f(x | y=k) = Π_j (a/m)^a x_j^(a − 1) exp(−a x_j/m) / Γ(a),    m = m_kj the mean, a = a_kj the concentration
    log m_kj ~ N(l_j, s_j²),   a_kj ~ Gamma(c_j, rate b_j)

1/a is the squared coefficient of variation. As the concentration grows the logarithm of x becomes normal with
precision a.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from numpyro.distributions import constraints

from bayesgen.families.base import Labels, Params
from bayesgen.families.cells import cell_logs
from bayesgen.families.columnwise import Columnwise, log_mean_prior, scales
from bayesgen.linalg import LOG_2PI
from bayesgen.moments import namespace
from bayesgen.special import STIRLING_FROM, _stirling_rest


class GammaPrior(NamedTuple):
    """Prior numbers of `Gamma`, each a number or one per column; None: from the data.

    Parameters
    ----------
    log_mean, log_mean_sd : float or array (p,)
        l and s: the normal law of the logarithm of the mean.
    shape, rate : float or array (p,)
        c and b: the Gamma law of the concentration.
    """

    log_mean: Any = None
    log_mean_sd: Any = None
    shape: Any = None
    rate: Any = None


class Gamma(Columnwise):
    """Positive columns with gamma densities.

    The parameters are `concentration` a and `rate` a/m; map is the mode in the logarithm of the mean and the
    concentration. Cells are filled with their mean.

    Parameters
    ----------
    prior : "auto" or GammaPrior
        log m ~ N(log_mean, log_mean_sd²), a ~ Gamma(shape, rate). "auto" is weak: l_j is the logarithm of the column's
        mean, s_j ten coefficients of variation of the column, at most 3; the concentration has one pseudo-row, as the
        precision of a Gaussian: shape 3/2 and rate 1/(2 a_j), a_j the squared mean over the pooled within-class variance.

    Examples
    --------
    >>> import numpy as np
    >>> family = Gamma().resolve(np.array([[1.0], [3.0], [2.0]]), Labels(np.array([0, 0, 1]), 2))
    >>> {name: value.round(3).tolist() for name, value in family.prior._asdict().items()}
    {'log_mean': [0.693], 'log_mean_sd': [3.0], 'shape': [1.5], 'rate': [0.083]}
    >>> params = {"log_mean": jnp.zeros((1, 1)), "concentration": jnp.ones((1, 1))}  # an exponential law
    >>> np.asarray(family.log_prob(params, jnp.array([[2.0], [-1.0], [jnp.nan]])), float).round(3).tolist()
    [[-2.0], [-inf], [0.0]]
    """

    dims: ClassVar[dict[str, list[str]]] = {"concentration": ["class", "feature"], "rate": ["class", "feature"]}
    domain: ClassVar[str] = "positive numbers"
    support: ClassVar[Any] = constraints.positive
    Prior: ClassVar[Any] = GammaPrior
    real: ClassVar[tuple[str, ...]] = ("log_mean",)

    def automatic(self, x: np.ndarray, r: Labels | np.ndarray) -> GammaPrior:
        known = scales(np.where(x > 0, x, np.nan), r)
        mean = np.where(known.weight > 0, known.mean, 1.0)
        shape = np.full(x.shape[1], 1.5)
        return GammaPrior(*log_mean_prior(mean, known.total), shape, known.within / (2 * mean**2))

    def model(self, num_classes: int, num_features: int) -> Params:
        prior = self.numbers(num_features)
        with numpyro.plate("class", num_classes):
            log_mean = numpyro.sample("log_mean", dist.Normal(prior.log_mean, prior.log_mean_sd).to_event(1))
            concentration = numpyro.sample("concentration", dist.Gamma(prior.shape, prior.rate).to_event(1))
        return {"log_mean": log_mean, "concentration": concentration}

    def distribution(self, params: Params) -> dist.Distribution:
        return dist.Gamma(**self.public(params)).to_event(1)

    def public(self, params: Params) -> Params:
        concentration, log_mean = params["concentration"], params["log_mean"]
        return {"concentration": concentration, "rate": concentration * namespace(log_mean).exp(-log_mean)}

    def cell_log_prob(self, params: Params, x: jax.Array) -> jax.Array:
        """In terms of x/m, which keeps its digits where the concentration is large and the terms would cancel."""
        a, centre = params["concentration"], params["log_mean"]

        def log_prob(value):
            delta = jnp.log(value) - centre
            return _log_peak(a) + a * (delta - jnp.expm1(delta)) - jnp.log(value)

        return cell_logs(constraints.positive, log_prob, x[:, None, :])


def _log_peak(a: jax.Array) -> jax.Array:
    """a ln a − a − ln Γ(a), by Stirling's series where a is large."""
    large = a >= STIRLING_FROM
    big, small = jnp.where(large, a, STIRLING_FROM), jnp.where(large, 1.0, a)
    series = 0.5 * (jnp.log(big) - LOG_2PI) - _stirling_rest(big)
    return jnp.where(large, series, small * jnp.log(small) - small - gammaln(small))
