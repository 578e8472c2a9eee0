"""A family of your own: directions of flight, which are angles and not numbers.

Radar sees birds leave at night: in which direction, and how fast. Cranes and thrushes have to be told apart. The table is
made up, with a tenth of the cells missing. Directions are compass angles in radians, from −π to π: 0 is north, ±π south.
The cranes fly south, where the numbers jump from π to −π. A normal law of the numbers would put their mean to the north.

Run it with `python examples/own_family.py`.
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.distributions import constraints
from sklearn.metrics import log_loss

from bayesgen import Family, GenerativeClassifier, check_family


class Directions(Family):
    """Angles with von Mises densities, f(x) = exp(κ cos(x − μ)) / (2π I₀(κ)).

    The parameter is the vector v = κ (cos μ, sin μ) of each class and column, with v ~ N(0, spread² I): no direction is
    preferred, and the average of vectors is a vector, while the average of 179° and −179° is 0°, the wrong way.
    """

    spread: float = 5.0
    support = constraints.circular
    domain = "angles from −π to π"
    dims: ClassVar = {"vector": ["class", "feature", "axis"]}

    def model(self, num_classes, num_features):
        with numpyro.plate("class", num_classes):
            prior = dist.Normal(0.0, self.spread).expand([num_features, 2]).to_event(2)
            return {"vector": numpyro.sample("vector", prior)}

    def distribution(self, params):
        vector = params["vector"]
        angle = jnp.arctan2(vector[..., 1], vector[..., 0])
        return dist.VonMises(angle, jnp.linalg.norm(vector, axis=-1)).to_event(1)


def degrees(angle):
    return np.round(np.degrees(angle)).astype(int)


# First of all: is it a density, do draws follow it, do missing cells drop out?
report = check_family(Directions(), num_features=1)
print(f"check_family: {report['passed'].notna().sum()} checks passed, of the laws {sorted(set(report['law']))}")

rng = np.random.default_rng(0)
n = 240
bird = rng.choice(["crane", "thrush"], n)
crane = bird == "crane"
truth = pd.DataFrame(
    {
        "direction": rng.vonmises(np.where(crane, np.pi, 2.0), np.where(crane, 4.0, 1.5)),
        "speed": rng.normal(np.where(crane, 15.0, 12.0), 3.0),
    }
)
table = truth.mask(rng.random(truth.shape) < 0.1)
train, test = slice(0, 120), slice(120, n)
print(f"{n} birds, {int(table.isna().to_numpy().sum())} of {table.size} cells missing; half of them are held out")

# The mode of the posterior: by search for the directions, by formula for the speeds. method="posterior" takes NUTS for the
# directions and adds intervals; it compiles for longer.
blocks = [(["direction"], Directions()), (["speed"], "gaussian")]
clf = GenerativeClassifier(blocks, method="map", random_state=0).fit(table[train], bird[train])
print(f"\nengines: {clf.engine_}, converged: {clf.converged_}")
vector = clf.params_["directions.vector"][:, 0]
for name, (x, y) in zip(clf.classes_, vector, strict=True):
    print(f"  {name:6s} flies towards {degrees(np.arctan2(y, x)):4d}°, concentration {np.hypot(x, y):.1f}")

# 1. Classify, and compare with a normal law of the numbers.
plain = GenerativeClassifier([(["direction", "speed"], "gaussian")], method="map").fit(table[train], bird[train])
print()
for name, model in {"as directions": clf, "as numbers": plain}.items():
    proba = model.predict_proba(table[test])
    right = np.mean(model.classes_[proba.argmax(1)] == bird[test])
    print(f"{name:14s} right for {right:.0%}, log-loss {log_loss(bird[test], proba):.2f}")

# 2. Fill in. The mean of angles is no good near ±π: take draws, and average them as vectors.
first = int(np.flatnonzero(crane[test])[0]) + 120
row = table.iloc[[first]].assign(direction=np.nan)
drawn = np.concatenate([filled["direction"] for filled in clf.impute(row, y=["crane"], draws=200)])
angle = np.arctan2(np.sin(drawn).mean(), np.cos(drawn).mean())
print(f"\na crane whose direction is missing: about {degrees(angle)}°, in truth {degrees(truth['direction'].iloc[first])}°")

# 3. Generate.
rows, _ = clf.sample(3, y="thrush")
print("synthetic thrushes:", [f"{degrees(d)}° at {s:.1f} m/s" for d, s in rows.to_numpy()])

# 4. Flag: something fast that goes north.
south, north = clf.outlier_pvalues(pd.DataFrame({"direction": [np.pi, 0.0], "speed": [15.0, 30.0]}))
print(f"p-value of a crane-like flight: {south:.2f}; of one to the north at 30 m/s: {north:.4f}")

# 5. What cannot be is refused, with the place.
try:
    clf.fit(table[train].assign(direction=np.degrees(table["direction"][train])), bird[train])
except ValueError as error:
    print(f"\n{error}")
