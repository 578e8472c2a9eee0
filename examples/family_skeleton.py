"""A skeleton for a family of your own: copy this file, rename the class, change what is marked CHANGE, and run it.

It runs as it stands: a Weibull law of lifetimes, columns independent within the class. The page "Your own family" of the
documentation explains every part.
"""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesgen import Family, GenerativeClassifier, check_family


class Lifetime(Family):
    """CHANGE: say what the columns are, and write down density and prior.

    f(x | k) = Π_j Weibull(x_j; shape s_kj, scale m_kj)
    log m_kj ~ N(centre_j, 1.5²),   s_kj ~ LogNormal(0, 0.7)
    """

    # CHANGE: the prior's numbers. Fields are numbers or arrays; "auto" or None waits for `resolve`.
    centre: Any = "auto"
    width: float = 1.5

    # CHANGE: what cells are ("number", "count", "binary", "category"), what they may be, and the axes' names for ArviZ.
    kind: ClassVar[str] = "number"
    support: ClassVar[Any] = constraints.positive
    domain: ClassVar[str] = "positive numbers"
    dims: ClassVar[dict] = {"scale": ["class", "feature"], "shape": ["class", "feature"]}

    # -- required: the prior. All the classes at once, in the plate; the columns are the event (.to_event(1)).
    def model(self, num_classes, num_features):
        with numpyro.plate("class", num_classes):
            log_scale = numpyro.sample("log_scale", dist.Normal(self.centre, self.width).expand([num_features]).to_event(1))
            shape = numpyro.sample("shape", dist.LogNormal(0.0, 0.7).expand([num_features]).to_event(1))
        return {"log_scale": log_scale, "shape": shape}

    # -- required: the density of a row, batch shape (classes,), event shape (columns,). It runs under jax.jit.
    def distribution(self, params):
        return dist.Weibull(jnp.exp(params["log_scale"]), params["shape"]).to_event(1)

    # -- optional: prior numbers from the training rows x (n, p), NaN where missing. r are the labels (r.codes, r.weight).
    def resolve(self, x, r):
        if not isinstance(self.centre, str):  # given by the user
            return self
        return dataclasses.replace(self, centre=np.nanmean(np.log(x), axis=0))

    # -- optional: parameters as users see them. They come as NumPy arrays; keep leading axes, there may be one of draws.
    def public(self, params):
        return {"scale": np.exp(params["log_scale"]), "shape": params["shape"]}

    # -- needed only where columns depend on each other (a distribution that is not made by .to_event(1)) and cells may be
    #    missing. If `cells` has an attribute `observed` (p,), columns that are not observed there count as missing too.
    #
    # def log_prob(self, params, x, cells=None):          -> (n, K), NaN cells integrated out, −inf outside of the support
    # def condition(self, params, x, cells=None):         -> (n, K, p), missing cells at their mean given the others
    # def complete(self, key, params, x, y, cells=None):  -> (n, p), missing cells drawn given the others and the class


if __name__ == "__main__":
    # CHANGE: a table like yours.
    rng = np.random.default_rng(0)
    label = rng.choice(["old model", "new model"], 80)
    rows = np.where((label == "old model")[:, None], [3.0, 40.0], [6.0, 60.0]) * rng.weibull(1.5, (80, 2))
    rows[rng.random(rows.shape) < 0.1] = np.nan

    # Does it obey the laws? The first that is broken is an error that names it.
    print(check_family(Lifetime(), data=(np.nan_to_num(rows, nan=1.0), label))[["law", "checked", "passed"]].to_string())

    # Does it fit, and do what it should?
    clf = GenerativeClassifier([(slice(None), Lifetime())], method="map", random_state=0).fit(rows, label)
    print(f"{clf.engine_}, converged: {clf.converged_}, prior centre {clf.prior_.centre.round(2)}")
    print({name: clf.params_[name].round(1).tolist() for name in ("scale", "shape")})
    print(f"right for {clf.score(rows, label):.0%} of the rows")
