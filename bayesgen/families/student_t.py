"""The Student-t family: columns of numbers with outliers, independent within the class.

    f(x | y=k) = Π_j t(x_j; ν_kj, μ_kj, σ_kj),    λ = 1/σ²
    ν_kj ~ Gamma(c_j, rate d_j),   μ_kj ~ N(m_j, s_j²),   λ_kj ~ Gamma(a_j, rate b_j)

with t(x; ν, μ, σ) = Γ((ν + 1)/2) / (Γ(ν/2) √(νπ) σ) · (1 + ((x − μ)/σ)²/ν)^(−(ν + 1)/2).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesgen.families.base import Labels, Params
from bayesgen.families.cells import cell_logs
from bayesgen.families.columnwise import WIDE, Columnwise, robust_scales, scales
from bayesgen.special import log_rising

LOG_PI = float(np.log(np.pi))
HUGE = 1e8  # from here on 1 + t² is t²


class StudentTPrior(NamedTuple):
    """Prior numbers of `StudentT`, each a number or one per column; None: from the data (df: 2 and 0.1).

    Parameters
    ----------
    loc, loc_sd : float or array (p,)
        m and s: the normal law of μ.
    shape, rate : float or array (p,)
        a and b: the Gamma law of 1/σ².
    df_shape, df_rate : float or array (p,)
        c and d: the Gamma law of ν.
    """

    loc: Any = None
    loc_sd: Any = None
    shape: Any = None
    rate: Any = None
    df_shape: Any = None
    df_rate: Any = None


class StudentT(Columnwise):
    """Columns with Student-t densities: outliers cost little.

    The parameters are `df` ν, `loc` μ and `scale` σ; map is the mode in ν, μ and 1/σ². Cells are filled with μ, the
    median: with ν ≤ 1 there is no mean.

    Parameters
    ----------
    prior : "auto" or StudentTPrior
        ν ~ Gamma(df_shape, df_rate), μ ~ N(loc, loc_sd²), 1/σ² ~ Gamma(shape, rate). "auto" is weak: ν ~ Gamma(2, 0.1);
        m_j is the column's median and s_j ten of its standard deviations; 1/σ² has one pseudo-row, as the precision of a
        Gaussian: shape 3/2 and rate w_j²/2, w_j the standard deviation within the classes by the median of the absolute
        deviations, which outliers do not inflate.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[1.0], [2.0], [3.0], [900.0]])
    >>> family = StudentT().resolve(x, Labels(np.zeros(4, int), 1))
    >>> family.prior.loc.tolist(), family.prior.rate.round(3).tolist()
    ([2.0], [1.099])
    >>> params = {"df": jnp.ones((1, 1)), "loc": jnp.zeros((1, 1)), "precision": jnp.ones((1, 1))}  # a Cauchy law
    >>> np.asarray(family.log_prob(params, jnp.array([[0.0], [jnp.nan]])), float).round(3).tolist()
    [[-1.145], [0.0]]
    """

    dims: ClassVar[dict[str, list[str]]] = {name: ["class", "feature"] for name in ("df", "loc", "scale")}
    Prior: ClassVar[Any] = StudentTPrior
    real: ClassVar[tuple[str, ...]] = ("loc",)

    def automatic(self, x: np.ndarray, r: Labels | np.ndarray) -> StudentTPrior:
        middle, width = robust_scales(x, r)
        one = np.ones(x.shape[1])
        return StudentTPrior(
            middle, WIDE * np.sqrt(scales(x, r).total), 1.5 * one, width**2 / 2, df_shape=2.0 * one, df_rate=0.1 * one
        )

    def model(self, num_classes: int, num_features: int) -> Params:
        prior = self.numbers(num_features)
        with numpyro.plate("class", num_classes):
            return {
                "df": numpyro.sample("df", dist.Gamma(prior.df_shape, prior.df_rate).to_event(1)),
                "loc": numpyro.sample("loc", dist.Normal(prior.loc, prior.loc_sd).to_event(1)),
                "precision": numpyro.sample("precision", dist.Gamma(prior.shape, prior.rate).to_event(1)),
            }

    def distribution(self, params: Params) -> dist.Distribution:
        return dist.StudentT(**self.public(params)).to_event(1)

    def public(self, params: Params) -> Params:
        return {"df": params["df"], "loc": params["loc"], "scale": 1 / params["precision"] ** 0.5}

    def cell_log_prob(self, params: Params, x: jax.Array) -> jax.Array:
        """With the ratio of gamma functions by its series: far tails and large ν keep their digits."""
        df, precision = params["df"], params["precision"]
        peak = log_rising(df / 2, 0.5) + 0.5 * (jnp.log(precision) - jnp.log(df) - LOG_PI)

        def log_prob(value):
            away = (value - params["loc"]) * jnp.sqrt(precision / df)
            return peak - 0.5 * (df + 1) * _log1p_square(away)

        return cell_logs(constraints.real, log_prob, x[:, None, :])

    def condition(self, params: Params, x: jax.Array, cells=None) -> jax.Array:
        return jnp.where(jnp.isnan(x)[:, None, :], params["loc"], x[:, None, :])


def _log1p_square(t: jax.Array) -> jax.Array:
    """ln(1 + t²), also where t² is no longer a number."""
    far = jnp.abs(t) > HUGE
    return jnp.where(far, 2 * jnp.log(jnp.where(far, jnp.abs(t), 1.0)), jnp.log1p(jnp.where(far, 0.0, t) ** 2))
