"""What every generative classifier shares: checks, labels, columns, fitting, and growing or shrinking the data.

An estimator states its joint model in `_joint()`; everything else is here and in `uses`.
"""

from __future__ import annotations

import copy
import functools
import threading
from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_consistent_length
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from threadpoolctl import ThreadpoolController

from bayesgen import predict, tables
from bayesgen.estimators import checks
from bayesgen.families.base import Labels
from bayesgen.inference import exact
from bayesgen.joint import ClassPrior, Joint, JointStats

METHODS = ("mle", "map", "posterior")
FITTED = {
    "_prior_joint",
    "_density",
    "_stats",
    "_posterior",
    "_working",
    "_draws",
    "_rows",
    "_schema",
    "_label_schema",
    "_key_data",
}


def float64(method):
    """Run a public method in double precision and JAX's standard rules, whatever the caller's JAX configuration."""

    @functools.wraps(method)
    def wrapped(*args, **kwargs):
        with jax.enable_x64(True), jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            return method(*args, **kwargs)

    return wrapped


def as_key(random_state) -> jax.Array:
    """A JAX key from an int, a NumPy Generator or RandomState, a JAX key, or None (NumPy's global state)."""
    if (
        isinstance(random_state, jax.Array)
        and random_state.ndim == 0
        and jax.numpy.issubdtype(random_state.dtype, np.integer)
    ):
        random_state = int(random_state)
    if isinstance(random_state, jax.Array):
        return _one_key(random_state)
    if isinstance(random_state, np.random.Generator):
        return jax.random.key(int(random_state.integers(2**31)))
    if isinstance(random_state, np.random.RandomState) or random_state is None:
        source = np.random.mtrand._rand if random_state is None else random_state
        return jax.random.key(int(source.randint(2**31 - 1)))
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if not whole or not 0 <= random_state < 2**63:
        raise ValueError(
            f"random_state={random_state!r}: give an int (not negative, below 2**63), a numpy Generator or RandomState, "
            "a JAX key, or None."
        )
    return jax.random.key(int(random_state))


def _one_key(key: jax.Array) -> jax.Array:
    if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.shape == ():
            return key
    elif key.shape == (2,) and key.dtype == np.uint32:
        return jax.random.wrap_key_data(key)
    raise ValueError(f"random_state is a JAX array of shape {key.shape}, not one key: give jax.random.key(seed).")


class _OneBlasThread:
    """Hold BLAS to one thread; safe to enter from several threads, restored when the last one leaves."""

    def __init__(self):
        self._lock, self._inside, self._pools, self._limit = threading.Lock(), 0, None, None

    def __enter__(self):
        with self._lock:
            if self._inside == 0:
                self._pools = self._pools or ThreadpoolController()
                self._limit = self._pools.limit(limits=1, user_api="blas")
                self._limit.__enter__()
            self._inside += 1

    def __exit__(self, *exception):
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.__exit__(*exception)


# Many small products on several BLAS threads stall each other on busy cores, up to tenfold.
one_blas_thread = _OneBlasThread()


def _keeps_statistics(estimator) -> bool:
    """Whether the fit is a function of sufficient statistics that were kept."""
    return estimator._refits_from_statistics() and getattr(estimator, "_stats", ()) is not None


class GenerativeBase(ClassifierMixin, BaseEstimator):
    """Common parent of the generative classifiers."""

    def _joint(self, num_classes: int, num_features: int) -> Joint:
        """The joint model that the constructor arguments describe, its priors not yet resolved."""
        raise NotImplementedError

    def _refits_from_statistics(self) -> bool:
        return True

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def __getstate__(self):
        # A stored model must not carry the training rows; only loo_predict_proba needs them.
        return {key: value for key, value in super().__getstate__().items() if key != "_rows"}

    # -- reading
    def _read(self, X, *, reset: bool = False) -> np.ndarray:
        x = tables.read_table(X, owner=type(self).__name__)
        validate_data(self, X if hasattr(X, "columns") else x, reset=reset, skip_check_array=True)
        if not reset and hasattr(X, "columns"):
            checks.same_columns(self._schema, X)
        return x

    def _read_labels(self, y) -> tuple[np.ndarray, np.ndarray]:
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        return tables.read_labels(y, unlabelled=self.unlabelled)

    def _codes(self, y, n: int) -> np.ndarray:
        """Class codes of labels given at predict time, −1 where missing; y None: all missing."""
        if y is None:
            return np.full(n, -1)
        values, missing = self._read_labels(y)
        if len(values) != n:
            raise ValueError(f"y has {len(values)} labels for {n} rows.")
        return tables.encode(values, missing, self.classes_)

    def _read_training(self, X, y, sample_weight, classes=None, *, reset: bool) -> tuple[np.ndarray, Labels]:
        x = self._read(X, reset=reset)
        values, missing = self._read_labels(y)
        check_consistent_length(x, values)
        checks.refuse_missing_labels(missing)
        if reset:
            self.classes_ = tables.unique_labels(values, missing) if classes is None else self._announced(classes)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
        return x, Labels(tables.encode(values, missing, self.classes_), len(self.classes_), weight)

    def _announced(self, classes) -> np.ndarray:
        """`classes=` of partial_fit, sorted."""
        return tables.unique_labels(*tables.read_labels(classes))

    # -- fitting
    @float64
    def fit(self, X, y, sample_weight=None):
        """Fit the joint model.

        Parameters
        ----------
        X : array or data frame (n, d)
            Missing cells (NaN, None, pd.NA) are accepted by diagonal and spherical covariances, and refused by full ones.
        y : array-like (n,)
            Class labels: strings, numbers, booleans or categories.
        sample_weight : array-like (n,), optional
            Whole weights are the same as repeated rows.

        Returns
        -------
        self
        """
        self._check_arguments()
        return self._first_fit(X, y, None, sample_weight)

    def _first_fit(self, X, y, classes, sample_weight):
        self._unfit()
        try:
            x, labels = self._read_training(X, y, sample_weight, classes, reset=True)
            self._remember(X, x, y)
            self._learn(self._statistics(x, labels), x, labels)
        except BaseException:
            # A refused or interrupted fit leaves an unfitted estimator, not a mixture of the old fit and the new.
            self._unfit()
            raise
        self._rows = (x, labels) if classes is None else None
        return self

    def _remember(self, X, x: np.ndarray, y) -> None:
        """What the training table looked like, and this fit's own random key."""
        self._schema = tables.Schema.of(X if hasattr(X, "columns") or isinstance(X, np.ndarray) else x)
        self._label_schema = tables.LabelSchema.of(y)
        key = as_key(self.random_state)
        self._key_data, self._key_kind = np.asarray(jax.random.key_data(key)), str(jax.random.key_impl(key))

    def _unfit(self) -> None:
        for name in [n for n in vars(self) if n.endswith("_") or n in FITTED]:
            delattr(self, name)

    def _check_arguments(self) -> None:
        checks.choice("method", self.method, METHODS)
        checks.choice("engine", self.engine, ("auto", "exact"), "the posterior of this family is exact in closed form")
        checks.choice("handle_unknown", self.handle_unknown, ("error", "missing"))
        checks.number("class_smoothing", self.class_smoothing, low=0.0)
        checks.whole("num_draws", self.num_draws, low=1)

    def _class_prior(self, num_classes: int) -> ClassPrior:
        if self.priors is None:
            return ClassPrior(float(self.class_smoothing))
        return ClassPrior(0.0, checks.class_probabilities(self.priors, num_classes))

    def _statistics(self, x: np.ndarray, labels: Labels) -> JointStats:
        joint = self._joint(len(self.classes_), self.n_features_in_)
        if not all(block.family.drops_missing for block in joint.blocks):
            checks.refuse_missing_cells(x, self._schema)
        with one_blas_thread, np.errstate(over="ignore", invalid="ignore", under="ignore"):
            stats = joint.stats(x, labels)
        checks.representable(joint, stats, self._schema)
        return stats

    def _resolved(self, stats: JointStats, x, labels) -> Joint:
        """The joint with every number that is taken from the data filled in."""
        return self._joint(len(self.classes_), self.n_features_in_).resolve_stats(stats)

    def _learn(self, stats: JointStats, x=None, labels=None) -> None:
        """Estimate from the statistics and set the fitted attributes."""
        joint = self._resolved(stats, x, labels)
        checks.statistics(joint, stats, self)
        if self.method == "posterior":
            posterior = exact.update(joint, stats)
            params = exact.expectation(posterior, stats.labels)
            working = exact.predictive(posterior, stats.labels)
        else:
            posterior, params = None, exact.point(joint, stats, self.method)
            checks.estimates(joint, stats, params, self)
            working = params
        self._set_fitted(joint, stats, _on_host(posterior), _on_host(params), _on_host(working))

    def _set_fitted(self, joint, stats, posterior, params, working) -> None:
        self._prior_joint, self._density, self._stats, self._posterior = joint, joint.bare(), stats, posterior
        self.params_, self._working = params, working
        self._draws: dict[str, np.ndarray] | None = None
        self.engine_, self._method, self._settings = "exact", self.method, self.get_params()
        self.priors_ = params["class_probs"]
        self._rows = None

    # -- fitted attributes
    @property
    def prior_(self):
        """The prior's numbers, as they were resolved; by block where there are several (None for method="mle")."""
        self._check_fitted_attribute()
        if self._method == "mle":
            return None
        priors = {block.name: getattr(block.family, "prior", block.family) for block in self._prior_joint.blocks}
        return priors if len(priors) > 1 else next(iter(priors.values()))

    @property
    def draws_(self) -> dict[str, np.ndarray]:
        """Draws of the parameters, leading axis S = num_draws under "posterior", 1 otherwise."""
        self._check_fitted_attribute()
        if self._draws is None:
            if self._posterior is None:
                self._draws = {key: value[None] for key, value in self.params_.items()}
            else:
                self._draws = self._draw(self._use_key("draws"), self.num_draws)
        return self._draws

    @float64
    def _draw(self, key, num: int) -> dict[str, np.ndarray]:
        return _on_host(exact.draws(self._posterior, self._stats.labels, key, num))

    @property
    def log_evidence_(self) -> float:
        """log p(X, y), the parameters integrated out (a proper prior; not for method="mle")."""
        self._check_fitted_attribute()
        known = self._method != "mle" and self._stats is not None
        if not known or not all(block.family.has_evidence() for block in self._prior_joint.blocks):
            raise AttributeError(
                f"{type(self).__name__} has no log_evidence_ here: it needs method='map' or 'posterior' and a proper prior."
            )
        with jax.enable_x64(True):
            return float(exact.log_evidence(self._prior_joint, self._stats))

    def _check_fitted_attribute(self) -> None:
        if not hasattr(self, "params_"):
            raise AttributeError(f"This {type(self).__name__} is not fitted yet: call fit first.")

    def _use_key(self, use: str, random_state=None) -> jax.Array:
        """The key of one use: the caller's random_state, or the fitted object's own, split by the use's name."""
        if random_state is not None:
            key = as_key(random_state)
        else:
            key = jax.random.wrap_key_data(jax.numpy.asarray(self._key_data), impl=self._key_kind)
        return jax.random.fold_in(key, sum(use.encode()))

    # -- more rows, fewer rows
    @available_if(_keeps_statistics)
    @float64
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Learn from more rows; exactly the fit of all the rows seen so far.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        classes : array-like, optional
            All the classes that may come, at the first call; by default those in y. Others are refused later.

        Returns
        -------
        self
        """
        self._check_arguments()
        if not hasattr(self, "params_"):
            return self._first_fit(X, y, classes, sample_weight)
        checks.unchanged_settings(self)
        if classes is not None and not np.array_equal(self._announced(classes), self.classes_):
            raise ValueError(f"classes={list(classes)} differ from those of the first call: {self.classes_.tolist()}.")
        x, labels = self._read_training(X, y, sample_weight, reset=False)
        self._learn(self._prior_joint.merge(self._stats, self._statistics(x, labels)))
        return self

    @available_if(_keeps_statistics)
    @float64
    def merge(self, other):
        """A new estimator, fitted to the rows of this one and of `other`: exactly the fit of their union.

        Both must be of the same kind, with the same settings and columns; the classes may differ.
        """
        check_is_fitted(self)
        checks.mergeable(self, other)
        classes = np.unique(np.concatenate([self.classes_, other.classes_]))
        new = self._empty_copy(classes)
        joint = new._joint(len(classes), self.n_features_in_)
        new._learn(joint.merge(_spread(self, classes), _spread(other, classes)))
        return new

    @available_if(_keeps_statistics)
    @float64
    def forget(self, X, y, sample_weight=None):
        """A new estimator, fitted to the rows of this one without those given: exactly the fit that never saw them.

        Rows that were never fitted cannot be noticed, unless they leave a negative weight or scatter.
        """
        check_is_fitted(self)
        x, labels = self._read_training(X, y, sample_weight, reset=False)
        gone = self._statistics(x, labels)
        checks.removable(self, gone)
        new = self._empty_copy(self.classes_)
        new._learn(self._prior_joint.remove(self._stats, gone))
        return new

    def _empty_copy(self, classes: np.ndarray):
        """A clone with this estimator's columns and key, to be given other statistics."""
        new = clone(self)
        for name in ("n_features_in_", "feature_names_in_", "_schema", "_label_schema", "_key_data", "_key_kind"):
            if hasattr(self, name):
                setattr(new, name, getattr(self, name))
        new.classes_ = classes
        return new

    def with_priors(self, priors):
        """A copy with other class probabilities (in the order of `classes_`, or "uniform"); nothing is refitted.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesgen import LDA
        >>> clf = LDA().fit(np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 0, 1])
        >>> clf.with_priors("uniform").priors_
        array([0.5, 0.5])
        """
        check_is_fitted(self)
        new = copy.copy(self)
        new._rows = getattr(self, "_rows", None)
        new.priors = priors
        fixed = ClassPrior(0.0, checks.class_probabilities(priors, len(self.classes_)))
        new._prior_joint = _replace(self._prior_joint, class_prior=fixed)
        new._posterior = None if self._posterior is None else _replace(self._posterior, class_prior=fixed)
        new.params_ = self.params_ | {"class_probs": fixed.fixed}
        new._working = self._working | {"class_probs": fixed.fixed}
        new.priors_, new._draws, new._settings = fixed.fixed, None, new.get_params()
        return new

    @float64
    def loo_predict_proba(self) -> np.ndarray:
        """Class probabilities (n, K) of each training row by the model without that row, without refitting.

        The class probabilities are re-estimated as a refit would (given `priors` stay); the prior's numbers are kept. Of a
        row of weight w > 1 one copy is left out, as whole weights are repeated rows.
        """
        check_is_fitted(self)
        x, labels = checks.training_rows(self)
        checks.can_leave_one_out(self)
        table = predict.leave_one_out(self._prior_joint, self._stats, x, labels, self._method)
        checks.left_out(self, table, labels)
        return np.exp(table)


def _replace(joint: Joint, **changes) -> Joint:
    new = copy.copy(joint)
    for name, value in changes.items():
        object.__setattr__(new, name, value)
    return new


def _on_host(tree: Any) -> Any:
    """NumPy leaves: they mean the same inside and outside a double-precision context."""
    return jax.tree_util.tree_map(np.asarray, tree)


def _spread(estimator: GenerativeBase, classes: np.ndarray) -> JointStats:
    """The estimator's statistics over a longer list of classes, zero for those it does not have."""
    where = np.searchsorted(classes, estimator.classes_)

    def widen(leaf):
        out = np.zeros((len(classes), *np.shape(leaf)[1:]))
        out[where] = leaf
        return out

    return jax.tree_util.tree_map(widen, estimator._stats)
