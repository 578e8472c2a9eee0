"""What every generative classifier shares: checks, labels, columns, fitting, and growing or shrinking the data.

An estimator states its family in `_family()`, or its blocks in `_blocks_of()`; everything else is here, in `fitted` and
in `uses`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from bayesgen import programs, tables
from bayesgen.estimators import checks, engine_checks, fit_checks, stream_checks
from bayesgen.estimators.blas import one_blas_thread
from bayesgen.families.base import Family, Labels
from bayesgen.joint import Block, ClassPrior, Joint, JointStats

Plan = tuple[tuple[str, tuple[int, ...] | None, Family], ...]
FITTED = {
    "_plan",
    "_prior_joint",
    "_density",
    "_plain",
    "_stats",
    "_posterior",
    "_sampled",
    "_working",
    "_draws",
    "_rows",
    "_index",
    "_schema",
    "_label_schema",
    "_key_data",
    "_paths",
    "_transduced",
}


def float64(method):
    """Run a public method in double precision and JAX's standard rules, whatever the caller's JAX configuration."""

    @functools.wraps(method)
    def wrapped(*args, **kwargs):
        programs.make_room()
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


def _keeps_statistics(estimator) -> bool:
    """Whether the fit is a function of sufficient statistics that were kept."""
    stats = getattr(estimator, "_stats", ())
    if stats and () in stats.blocks:
        raise AttributeError(
            "It was fitted on rows without label, or by a family or on rows (full covariance, missing cells) that have no "
            "sums which more could be added to or taken from: fit all the rows at once."
        )
    return estimator._refits_from_statistics() and stats is not None


class GenerativeBase(ClassifierMixin, BaseEstimator):
    """Reads tables and labels, keeps the statistics of blocks of columns, and takes in or gives up rows."""

    _learns_unlabelled = True  # whether rows without label are of use
    _stats: Any  # JointStats of the rows so far; None for known parameters

    def _family(self) -> Family:
        """The family of an estimator with one block, from the constructor arguments."""
        raise NotImplementedError

    def _blocks_of(self, X, y) -> Plan:
        """(name, columns or None for all, family) of each block; may look at the training table."""
        family = self._family()
        return ((type(family).__name__.lower(), None, family),)

    def _joint(self, num_classes: int, num_features: int) -> Joint:
        """The joint model, its priors not yet resolved."""
        sizes = self._schema.sizes()
        blocks = []
        for name, columns, family in self._plan:
            mine = sizes if columns is None else tuple(sizes[j] for j in columns)
            engine_checks.contract(family, len(mine), num_classes)
            checks.family_fits(family, len(mine))
            blocks.append(Block(name, family.with_sizes(mine), columns))
        return Joint(self._class_prior(num_classes), tuple(blocks), num_classes, num_features)

    def _refits_from_statistics(self) -> bool:
        return True

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "params_")

    def __getstate__(self):
        # A stored model must not carry the training rows; only leaving one out and ArviZ's data need them.
        return {key: value for key, value in super().__getstate__().items() if key not in ("_rows", "_index")}

    # -- reading
    def _read(self, X, *, reset: bool = False, y=None):
        """The table as numbers: float64 (n, d), or csr. reset: learn what the columns are."""
        owner, frame = type(self).__name__, hasattr(X, "columns")
        checks.known_frame(X, owner)
        if reset:
            x = self._open(X, y, owner)
        elif frame:
            validate_data(self, X, reset=False, skip_check_array=True)
            checks.same_columns(self._schema, X)
        checks.refuse_sparse(X, self._plan, owner)
        if not reset:
            x = self._schema.read(X, owner=owner, handle_unknown=self.handle_unknown)
        if reset or not frame:
            validate_data(self, X if frame else x, reset=reset, skip_check_array=True)
        checks.refuse_missing_counts(x, self._plan, self._schema)
        return x

    def _open(self, X, y, owner: str):
        """Decide on the blocks, learn the columns' categories, and read the table."""
        if isinstance(y, str):
            raise ValueError(f"y={y!r} is a name, not the labels: give X.drop(columns={y!r}) and X[{y!r}].")
        if hasattr(X, "columns") and not len(X):
            check_array(np.empty(X.shape), estimator=owner)  # refuses it in scikit-learn's words
        if hasattr(X, "columns") and y is not None:
            tables.refuse_target_among_columns(X, y)
        self._plan = self._blocks_of(X, y)
        checks.refuse_sparse(X, self._plan, owner)
        kinds = self._kinds()
        if kinds == "number" and not tables.is_sparse(X):
            x = tables.read_table(X, owner=owner)
            self._schema = tables.Schema.of(X if hasattr(X, "columns") or isinstance(X, np.ndarray) else x)
            return x
        self._schema = tables.Schema.of(X, kinds, owner=owner)
        return self._schema.read(X, owner=owner)

    def _kinds(self):
        """What the cells of the columns are: one word for all, or one for each."""
        if len(self._plan) == 1 and self._plan[0][1] is None:
            return self._plan[0][2].kind
        kinds = {j: family.kind for _, columns, family in self._plan for j in columns}
        return tuple(kinds[j] for j in sorted(kinds))

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
        x = self._read(X, reset=reset, y=y)
        values, missing = self._read_labels(y)
        check_consistent_length(x, values)
        if not reset or not self._learns_unlabelled:
            checks.refuse_missing_labels(missing, self)
        if reset:
            checks.some_labels(missing)
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
            Missing cells (NaN, None, pd.NA) are integrated out exactly: left out where columns are independent, by EM
            (mle, map) or Gibbs sampling (posterior) where they are not. Multinomial counts refuse them. Counts and binary
            columns may come as a scipy.sparse matrix.
        y : array-like (n,)
            Class labels: strings, numbers, booleans or categories. Rows without label (NaN, None, pd.NA, or what
            `unlabelled` names) are learnt from too, as mixtures of the classes; `transduction_` has the labels found.
        sample_weight : array-like (n,), optional
            Whole weights are the same as repeated rows.

        Returns
        -------
        self
        """
        self._check_arguments()
        return self._first_fit(X, y, None, sample_weight)

    def _first_fit(self, X, y, classes, sample_weight, *, more: bool = False):
        self._unfit()
        try:
            x, labels = self._read_training(X, y, sample_weight, classes, reset=True)
            self._remember(y)
            if more:
                checks.refuse_missing_labels(~labels.known, self)
            stats = self._statistics(x, labels)
            if more:
                stream_checks.additive(stats, self)
            learn = self._learn_or_wait if more else self._learn
            learn(stats, x, labels)
            if not labels.complete:
                self._found_labels(x, labels)
        except BaseException:
            # A refused or interrupted fit leaves an unfitted estimator, not a mixture of the old fit and the new.
            self._unfit()
            raise
        self._rows = (x, labels) if classes is None else None
        self._index = getattr(X, "index", None) if tables.is_frame(X) else None
        return self

    def _found_labels(self, x, labels: Labels) -> None:
        """Say which classes rows without label are of."""

    def _remember(self, y) -> None:
        """What the training labels looked like, and this fit's own random key."""
        self._label_schema = tables.LabelSchema.of(y)
        key = as_key(self.random_state)
        self._key_data, self._key_kind = np.asarray(jax.random.key_data(key)), str(jax.random.key_impl(key))

    def _unfit(self) -> None:
        for name in [n for n in vars(self) if n.endswith("_") or n in FITTED]:
            delattr(self, name)

    def _check_arguments(self) -> None:
        """Refuse constructor arguments that make no sense."""
        raise NotImplementedError

    def _class_prior(self, num_classes: int) -> ClassPrior:
        return ClassPrior()

    def _statistics(self, x, labels: Labels) -> JointStats:
        joint = self._joint(len(self.classes_), self.n_features_in_)
        for block in joint.blocks:
            engine_checks.trainable_rows(block, x, self)
        with one_blas_thread, np.errstate(over="ignore", invalid="ignore", under="ignore"):
            stats = joint.stats(x, labels)
        fit_checks.representable(joint, stats, self._schema)
        return stats

    def _learn(self, stats: JointStats, x=None, labels=None) -> None:
        """Estimate from the statistics and set the fitted attributes."""
        raise NotImplementedError

    # -- more rows, fewer rows
    @available_if(_keeps_statistics)
    @float64
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Learn from more rows; exactly the fit of all the rows seen so far.

        What the first call decided stays: classes, columns, and the families that MixedNB found. Categories may grow. Where
        the first pieces have too few rows for the method (a class without rows, under "mle") they are kept, with a warning,
        and the estimator is fitted as soon as further pieces allow it.

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
        if hasattr(self, "_stats"):
            self._next_piece(X, y, classes, sample_weight)
        else:
            self._first_fit(X, y, classes, sample_weight, more=True)
        stream_checks.say_what_is_missing(self)
        return self

    def _next_piece(self, X, y, classes, sample_weight) -> None:
        stream_checks.unchanged_settings(self)
        if classes is not None and not np.array_equal(self._announced(classes), self.classes_):
            raise ValueError(f"classes={list(classes)} differ from those of the first call: {self.classes_.tolist()}.")
        before = self._schema, self._stats
        try:
            self._grow(X)
            x, labels = self._read_training(X, y, sample_weight, reset=False)
            joint = self._joint(len(self.classes_), self.n_features_in_)
            new = self._statistics(x, labels)
            stream_checks.additive(new, self)
            self._learn_or_wait(joint.merge(self._stats, new))
        except BaseException:
            self._schema, self._stats = before
            raise

    def _learn_or_wait(self, stats: JointStats, x=None, labels=None) -> None:
        """Estimate; or, before the first estimate, keep the statistics of too few rows until there are more."""
        self._missing = ""
        try:
            self._learn(stats, x, labels)
        except fit_checks.TooFewRows as reason:
            if hasattr(self, "params_"):
                raise
            self._stats, self._settings, self._missing = stats, self.get_params(), str(reason)

    def _grow(self, X) -> None:
        """Take in the categories that come with more rows (those of a category dtype are fixed)."""
        if "category" not in self._schema.kinds:
            return
        if hasattr(X, "columns"):
            validate_data(self, X, reset=False, skip_check_array=True)
        schema, places = self._schema.grown(X, owner=type(self).__name__)
        self._stats = _recoded(self._stats, self._plan, places, schema.sizes())
        self._schema = schema

    @available_if(_keeps_statistics)
    @float64
    def merge(self, other):
        """A new estimator, fitted to the rows of this one and of `other`: exactly the fit of their union.

        Both must be of the same kind, with the same settings and columns; the classes may differ.
        """
        check_is_fitted(self)
        stream_checks.mergeable(self, other)
        classes = np.unique(np.concatenate([self.classes_, other.classes_]))
        new = self._empty_copy(classes)
        new._schema, mine, theirs = self._schema.union(other._schema)
        joint, sizes = new._joint(len(classes), self.n_features_in_), new._schema.sizes()
        a = _recoded(_spread(self, classes), self._plan, mine, sizes)
        new._learn(joint.merge(a, _recoded(_spread(other, classes), self._plan, theirs, sizes)))
        return new

    @available_if(_keeps_statistics)
    @float64
    def forget(self, X, y, sample_weight=None):
        """A new estimator, fitted to the rows of this one without those given: exactly the fit that never saw them.

        Rows that were never fitted cannot be noticed, unless they leave a negative weight or scatter. A category that only
        the forgotten rows had is unknown again, unless a category dtype names it. Classes stay, also without rows.
        """
        check_is_fitted(self)
        x, labels = self._read_training(X, y, sample_weight, reset=False)
        gone = self._statistics(x, labels)
        stream_checks.additive(gone, self)
        stream_checks.removable(self, gone)
        new = self._empty_copy(self.classes_)
        left = self._prior_joint.remove(self._stats, gone)
        new._schema, places = self._schema.without(self._emptied(left, gone))
        new._learn(_recoded(left, self._plan, places, new._schema.sizes()))
        return new

    def _emptied(self, left: JointStats, gone: JointStats) -> dict[int, np.ndarray]:
        """By column: which of its categories had cells among those gone, and have none left."""
        found: dict[int, np.ndarray] = {}
        for block, rest, less in zip(self._prior_joint.blocks, left.blocks, gone.blocks, strict=True):
            if block.family.kind == "category":
                pairs = zip(block.family.cells(rest), block.family.cells(less), strict=True)
                found |= {block.column(j): (mine == 0) & (theirs > 0) for j, (mine, theirs) in enumerate(pairs)}
        return found

    def _empty_copy(self, classes: np.ndarray):
        """A clone with this estimator's columns and key, to be given other statistics."""
        new = clone(self)
        for name in ("n_features_in_", "feature_names_in_", "_plan", "_schema", "_label_schema", "_key_data", "_key_kind"):
            if hasattr(self, name):
                setattr(new, name, getattr(self, name))
        new.classes_ = classes
        return new


def _recoded(stats: JointStats, plan: Plan, places: list, sizes: tuple[int, ...]) -> JointStats:
    """Statistics over other lists of categories; places[j] are the new codes of column j's old ones, −1: dropped."""
    blocks = []
    for (_, columns, family), part in zip(plan, stats.blocks, strict=True):
        mine = range(len(sizes)) if columns is None else columns
        blocks.append(family.recode(part, [places[j] for j in mine], tuple(sizes[j] for j in mine)))
    return stats._replace(blocks=tuple(blocks))


def on_host(tree: Any) -> Any:
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
