"""Defects that were found by use, kept from coming back."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from conftest import make_rows
from numpyro.infer.util import initialize_model, log_density

from bayesgen import LDA, QDA, GaussianNB, NormalWishart
from bayesgen.estimators.base import one_blas_thread

X, y = make_rows(0, 60, 2, 3)


def test_forgetting_a_class_of_fractional_weights_leaves_nothing_of_it():
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.1, 1, 60)
    for _ in range(5):
        rows = rng.permutation(np.flatnonzero(y == 0))
        left = QDA().fit(X, y, sample_weight=weight).forget(X[rows], y[rows], sample_weight=weight[rows])
        assert left.priors_[0] == 0.0
        np.testing.assert_allclose(left.predict_proba(X).sum(1), 1.0)


def test_forgetting_everything_is_refused():
    for clf in (LDA(), QDA(method="posterior"), GaussianNB()):
        with pytest.raises(ValueError, match="No rows are left"):
            clf.fit(X, y).forget(X, y)


def test_labels_mean_the_same_inside_and_outside_jit():
    clf = QDA().fit(X, y + 1)
    theta = {
        "class_probs": jnp.ones(3) / 3,
        "mean": jnp.zeros((3, 2)),
        "precision": jnp.stack([jnp.eye(2) * (k + 1) for k in range(3)]),
    }
    outside = log_density(clf.model, (X, y + 1), {}, theta)[0]
    inside = jax.jit(lambda labels: log_density(clf.model, (X, labels), {}, theta)[0])(y + 1)
    np.testing.assert_allclose(outside, inside, rtol=1e-5)


def test_model_checks_shapes():
    clf = QDA().fit(X, y)
    for rows, labels, message in [
        (jnp.asarray(X[:, :1]), y, "expected"),
        (X[:1], y, "one label per row"),
        (X, y[:5], "one label per row"),
    ]:
        with pytest.raises(ValueError, match=message):
            clf.model(rows, labels)
    with pytest.raises(ValueError, match="num_rows"):
        clf.model()


def test_one_fitted_object_serves_both_precisions():
    clf = GaussianNB().fit(X, y)
    for double in (False, True):
        with jax.enable_x64(double):
            start = initialize_model(jax.random.key(0), clf.model, model_args=(X, y))
            slope = jax.jit(jax.grad(start.potential_fn))(start.param_info.z)
            assert slope["mean"].dtype == (jnp.float64 if double else jnp.float32)
            assert all(jnp.isfinite(leaf).all() for leaf in jax.tree_util.tree_leaves(slope))


def test_a_prior_without_a_mode_is_refused():
    cases = [
        (GaussianNB(prior=NormalWishart(0, 0.0, 0.5, 1.0)), X[[0, 30, 59]], None),
        (GaussianNB(prior=NormalWishart(0, 1.0, 0.0, 1.0)), X[[0, 30, 59]], None),
        (QDA(prior=NormalWishart(0, 0.0, 1.5, 1.0)), X[[0, 30, 59]], None),
        (QDA(prior=NormalWishart(0, 1.0, 1.5, 1.0)), X, (y > 0) * 1.0),
    ]
    for clf, rows, weight in cases:
        labels = y if weight is not None else np.arange(3)
        with pytest.raises(ValueError, match="no mode|improper"):
            clf.fit(rows, labels, sample_weight=weight)


def test_labels_of_later_classes():
    a = QDA().fit(X, pd.Series(list("aab" * 20), dtype="category"))
    b = QDA().fit(X, pd.Series(list("bcc" * 20), dtype="category"))
    assert list(a.merge(b).sample(2, y="c")[1]) == ["c", "c"]
    clf = QDA().partial_fit(X[y < 2], y[y < 2].astype("uint8"), classes=[0, 1, 300])
    assert clf.partial_fit(X[y == 2], np.full((y == 2).sum(), 300)).sample(2, y=300)[1].tolist() == [300, 300]
    with pytest.raises(ValueError, match="text"):
        QDA().fit(X, y).merge(QDA().fit(X, y.astype(str)))


@pytest.mark.parametrize("factor", [1e160, 1e-200])
@pytest.mark.parametrize("clf", [LDA(), QDA(), GaussianNB()], ids=str)
def test_magnitudes_beyond_double_precision_are_refused(clf, factor):
    with pytest.raises(ValueError, match=r"column \d.*Rescale"):
        clf.fit(X * factor, y)


def test_complete_rows_are_not_factorised_to_impute():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(300, 60))
    clf = LDA().fit(wide, np.arange(300) % 2)
    np.testing.assert_array_equal(clf.impute(wide), wide)
    one = wide.copy()
    one[:, 0] = np.nan
    np.testing.assert_allclose(clf.impute(one)[:3], clf.impute(one[:3]), rtol=1e-9)


def test_a_refused_first_piece_leaves_an_unfitted_estimator():
    clf = QDA()
    with pytest.raises(ValueError, match="no label"):
        clf.partial_fit(X, np.where(y == 0, np.nan, y))
    assert not hasattr(clf, "classes_")
    clf.partial_fit(X, y)
    with pytest.raises(ValueError, match="covariance was 'full' at the first call"):
        clf.set_params(covariance="diag").partial_fit(X, y)
    with pytest.raises(ValueError, match="method='foo'"):
        clf.set_params(method="foo").partial_fit(X, y)


def test_blas_threads_are_restored_when_the_last_one_leaves():
    one_blas_thread.__enter__()
    inner = threading.Thread(target=one_blas_thread.__enter__)
    inner.start()
    inner.join()
    one_blas_thread.__exit__(None, None, None)
    assert all(pool["num_threads"] == 1 for pool in one_blas_thread._pools.info() if pool["user_api"] == "blas")
    one_blas_thread.__exit__(None, None, None)
    assert one_blas_thread._inside == 0


def test_integer_column_names_are_checked():
    clf = LDA().fit(pd.DataFrame(X, columns=[1, 2]), y)
    with pytest.raises(ValueError, match="columns differ"):
        clf.predict(pd.DataFrame(X, columns=[2, 1]))


def test_posterior_mean_covariances_that_do_not_exist():
    rows = np.r_[np.flatnonzero(y == 1)[:4], np.flatnonzero(y == 2)[:4]]
    clf = QDA(method="posterior", prior=NormalWishart(0.0, 0.0, 0.0, 0.0)).fit(
        X[rows][[0, 1, 2, 4, 5, 6]], y[rows][[0, 1, 2, 4, 5, 6]]
    )
    assert np.isfinite(clf.predict_proba(X)).all()
    for use in (clf.mahalanobis, clf.discriminants):
        with pytest.raises(ValueError, match="does not exist"):
            use(X)


def test_discriminants_far_away_are_finite():
    assert np.isfinite(LDA().fit(X, y).discriminants([[1e200, 0.0]])).all()


def test_kinds_of_seeds():
    for seed in (jax.random.key(0, impl="rbg"), jnp.int32(4)):
        assert QDA(random_state=seed).fit(X, y).sample(2)[0].shape == (2, 2)
    for seed in (jax.random.split(jax.random.key(0), 3), 2**70, -1):
        with pytest.raises(ValueError, match="random_state"):
            QDA(random_state=seed).fit(X, y)


def test_known_parameters_are_checked():
    with pytest.raises(ValueError, match="means must be finite"):
        LDA.from_parameters([0, 1], "uniform", [[0.0], [np.nan]], [[1.0]])
    with pytest.raises(ValueError, match="means must be finite"):
        LDA.from_parameters([0, 1], "uniform", [0.0, 1.0], [[1.0]])
    with pytest.raises(ValueError, match="2 names for 1 columns"):
        LDA.from_parameters([0, 1], "uniform", [[0.0], [1.0]], [[1.0]], feature_names=["a", "b"])
    assert not hasattr(LDA.from_parameters([0, 1], "uniform", [[0.0], [1.0]], [[1.0]]), "log_evidence_")


def test_strict_callers_are_served():
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        clf = LDA(method="posterior", num_draws=5, random_state=0).fit(X, y)
        assert np.isfinite(clf.predict_proba(X)).all() and clf.sample(2)[0].shape == (2, 2)


def test_equal_settings_merge():
    priors = pd.Series([0.2, 0.3, 0.5])
    a = QDA(unlabelled=np.nan, priors=priors).fit(X, y)
    assert a.merge(QDA(unlabelled=np.nan, priors=priors.copy()).fit(X, y)).priors_.tolist() == [0.2, 0.3, 0.5]


def test_one_copy_of_a_weighted_row_is_left_out():
    weight = np.where(np.arange(60) % 3 == 0, 2, 1)
    repeated = np.repeat(np.arange(60), weight)
    a = QDA().fit(X, y, sample_weight=weight).loo_predict_proba()
    b = QDA().fit(X[repeated], y[repeated]).loo_predict_proba()
    np.testing.assert_allclose(a[repeated], b, rtol=1e-8)


def test_settings_changed_after_the_fit_change_nothing():
    clf = QDA().fit(X, y)
    before = clf.loo_predict_proba()
    clf.set_params(method="mle")
    np.testing.assert_array_equal(clf.loo_predict_proba(), before)
    assert clf.prior_ is not None


def test_other_class_probabilities_stay_when_rows_are_added():
    clf = QDA().fit(X, y).with_priors([0.2, 0.3, 0.5])
    more = clf.partial_fit(X, y)
    np.testing.assert_allclose(more.priors_, [0.2, 0.3, 0.5])
    np.testing.assert_allclose(
        more.log_joint(X), QDA(priors=[0.2, 0.3, 0.5]).fit(np.tile(X, (2, 1)), np.tile(y, 2)).log_joint(X)
    )
