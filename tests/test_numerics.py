"""Awkward tables: far from the origin, wild scales, few rows, constant and collinear columns; and how much is compiled."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from conftest import make_rows, normal_settings
from sklearn.base import clone
from sklearn.datasets import load_iris

from bayesgen import LDA, QDA, RDA, GaussianNB, NormalWishart
from bayesgen import predict as kernels
from bayesgen.inference import exact

# Tables of few shapes: most of the time of these tests is compilation.
X, y = load_iris(return_X_y=True)
CASES = [
    (LDA(), "map"),
    (LDA(), "posterior"),
    (QDA(), "map"),
    (QDA(), "posterior"),
    (RDA(), "map"),
    (GaussianNB(), "posterior"),
    (LDA(covariance="spherical"), "map"),
    (QDA(covariance="spherical"), "posterior"),
]


@pytest.fixture(params=CASES, ids=lambda p: f"{p[0]}-{p[1]}")
def clf(request):
    return clone(request.param[0]).set_params(method=request.param[1], num_draws=20, random_state=0)


def is_sound(clf, x):
    proba = clf.predict_proba(x)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(1), 1.0, rtol=1e-9)
    assert np.isfinite(clf.score_samples(x)).all()
    assert np.isfinite(clf.predict_proba_draws(x[:5])).all()
    assert np.isfinite(np.asarray(clf.sample(5)[0], float)).all()
    gaps = np.array(x[:5], float)
    gaps[:, 0] = np.nan
    assert np.isfinite(clf.impute(gaps)).all() and np.isfinite(clf.predict_proba(gaps)).all()


def test_mean_1e8_and_sd_1(clf):
    rng = np.random.default_rng(0)
    noise = np.round(rng.normal(size=(150, 4)) * 1024) / 1024
    labels = rng.integers(0, 3, 150)
    noise += 2 * labels[:, None]
    near, far = clone(clf).fit(noise, labels), clone(clf).fit(noise + 1e8, labels)
    np.testing.assert_allclose(far.covariances_, near.covariances_, rtol=0, atol=1e-6)
    np.testing.assert_allclose(far.predict_proba(noise + 1e8), near.predict_proba(noise), rtol=1e-4, atol=1e-5)
    is_sound(far, noise + 1e8)


def test_column_scales_from_1e_12_to_1e12(clf):
    scales = np.array([1e-12, 1e-4, 1e4, 1e12])
    is_sound(clf.fit(X * scales, y), X * scales)


@pytest.mark.parametrize("method", ["map", "posterior"])
@pytest.mark.parametrize("kind", [LDA(), QDA(), GaussianNB(), GaussianNB(shared_variance=True)], ids=str)
def test_units_do_not_matter(kind, method):
    kind = clone(kind).set_params(method=method)
    scales = np.array([1e-12, 1.0, 1e12, 1e3])
    a, b = clone(kind).fit(X, y).predict_proba(X), clone(kind).fit(X * scales, y).predict_proba(X * scales)
    np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-12)


def test_fewer_rows_than_columns(clf):
    x, labels = make_rows(2, n=6, d=4, k=3)  # 1, 2 and 3 of the classes: singular within them, and pooled
    is_sound(clf.fit(x, labels), x)


def test_one_row_in_a_class(clf):
    x, labels = np.vstack([X[:60], X[140:141]]), np.append(y[:60], 2)
    is_sound(clf.fit(x, labels), x)


def test_constant_and_collinear_columns(clf):
    a, b, c = X[::3, :3].T
    for columns in ((a, b, a + b, np.full(50, 7.0)), (np.zeros(50), c, np.full(50, 1e8), c - a)):
        x = np.column_stack(columns)
        is_sound(clone(clf).fit(x, y[::3]), x)


def test_a_column_constant_within_one_class(clf):
    x = X.copy()
    x[y == 1, 2] = 4.0
    is_sound(clf.fit(x, y), x)


def test_a_single_row(clf):
    if isinstance(clf, RDA):
        pytest.skip("one row has no spread to shrink towards; the error is tested elsewhere")
    is_sound(clf.fit(X[:1], y[:1]), X[:3])


# -- how much is compiled
def test_at_most_nine_compilations_of_predict():
    rng = np.random.default_rng(0)
    clf = QDA().fit(rng.normal(size=(50, 3)), np.arange(50) % 2)
    kernels._proba.clear_cache()
    for n in np.unique(np.geomspace(1, 60_000, 60).astype(int)):
        clf.predict_proba(rng.normal(size=(n, 3)))
    assert kernels._proba._cache_size() <= 9


def test_no_compilation_at_a_second_fit_or_a_new_prior():
    def sizes():
        functions = (kernels._proba, exact.point, exact.update, exact.predictive, exact.expectation)
        return [f._cache_size() for f in functions]

    for method in ("mle", "map", "posterior"):
        kind = QDA(method=method)
        clone(kind).fit(X, y).predict_proba(X)
        before = sizes()
        clone(kind).fit(X[::2] * 3, y[::2]).predict_proba(X[:140])
        for strength in (0.5, 3):
            prior = NormalWishart(0.0, strength, 9.0, np.diag([1.0, 2, 3, 4]))
            clone(kind).set_params(prior=prior).fit(X, y).predict_proba(X)
        clone(kind).set_params(priors="uniform").fit(X, y).predict_proba(X)
        after = sizes()
        assert after[0] == before[0]
        # fixed class probabilities are another model: at most one more program in each estimate
        assert all(a - b <= 1 for a, b in zip(after[1:], before[1:], strict=True))


def test_missing_cells_compile_a_bounded_number_of_programs():
    rng = np.random.default_rng(0)
    clf = QDA().fit(rng.normal(size=(80, 6)), np.arange(80) % 2)
    kernels._proba.clear_cache()
    for n in (10, 100, 333, 1000, 3000, 9000):
        table = rng.normal(size=(n, 6))
        table[rng.random(table.shape) < 0.3] = np.nan
        clf.predict_proba(table)
    assert kernels._proba._cache_size() <= 9 + 4 * 4


# -- nothing hangs
STRESS = """
    import numpy as np
    from bayesgen import LDA, QDA, predict
    rng = np.random.default_rng(0)
    n, d = 20_000, 6
    x, y = rng.normal(size=(n, d)), rng.integers(0, 3, n)
    gaps = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    for kind in (LDA, QDA):
        for method in ("map", "posterior"):
            clf = kind(method=method, num_draws=3, random_state=0).fit(x[:500], y[:500])
            for use in {uses}:
                for i in range({times}):
                    if use == "complete":
                        clf.impute(gaps, draws=1)
                    elif use == "loo":
                        clf.loo_predict_proba()
                    elif use == "outliers":
                        clf.outlier_pvalues(gaps[:2000], draws=500)
                    else:
                        getattr(clf, use)(gaps)
    print("done")
"""


def run_stress(uses, times, timeout):
    code = textwrap.dedent(STRESS).format(uses=uses, times=times)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=normal_settings())
    assert done.returncode == 0 and "done" in done.stdout, done.stderr[-2000:]


def test_batches_of_factorisations_do_not_hang():
    run_stress(("impute", "loo"), 2, 300)


@pytest.mark.slow
@pytest.mark.parametrize(
    "use", ["predict_proba", "score_samples", "impute", "complete", "predict_proba_draws", "loo", "outliers"]
)
def test_batches_of_factorisations_do_not_hang_in_200_calls(use):
    run_stress((use,), 200, 3600)
