"""The suite compiles with few optimisations; users do not. Fully optimised programs must give the same numbers."""

import subprocess
import sys

import numpy as np
from conftest import normal_settings

SCRIPT = """
import sys
import numpy as np
from bayesgen import QDA, CategoricalNB, GaussianNB, GenerativeClassifier, PoissonNB

rng = np.random.default_rng(0)
y = rng.integers(0, 3, 300)
numbers = rng.normal(size=(300, 5)) + y[:, None]
counts = rng.poisson(2.0 + y[:, None], (300, 7)).astype(float)
gaps = numbers.copy()
gaps[rng.random(gaps.shape) < 0.3] = np.nan
holes = np.where(rng.random(counts.shape) < 0.3, np.nan, counts)
out = []
for method in ("map", "posterior"):
    for clf, x, more in (
        (QDA(method=method), numbers, gaps),
        (GaussianNB(method=method), gaps, gaps),
        (CategoricalNB(method=method, handle_unknown="missing"), holes, holes),
        (PoissonNB(method=method), holes, holes),
    ):
        clf.fit(x, y)
        out += [clf.log_joint(more).ravel(), clf.predict_proba(more).ravel(), np.nan_to_num(clf.impute(more)).ravel()]
own = GenerativeClassifier([(slice(None), "lognormal")]).fit(np.exp(gaps), y)
out.append(own.predict_proba(np.exp(gaps)).ravel())
np.save(sys.argv[1], np.concatenate(out))
"""


def test_optimised_programs_give_the_same_numbers(tmp_path):
    found = {}
    for name, environment in (("users", normal_settings()), ("suite", None)):
        path = tmp_path / f"{name}.npy"
        done = subprocess.run([sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr[-2000:]
        found[name] = np.load(path)
    np.testing.assert_allclose(found["users"], found["suite"], rtol=1e-8, atol=1e-8)
