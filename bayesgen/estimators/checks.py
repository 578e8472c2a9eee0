"""Every error that a user's data or arguments can cause: what is wrong, where, and what to do."""

from __future__ import annotations

import dataclasses
import functools
import numbers
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from bayesgen import predict, tables
from bayesgen.families.counts import Counting
from bayesgen.families.gaussian import Gaussian
from bayesgen.families.poisson import Poisson
from bayesgen.moments import Moments, negative_direction


class TooFewRows(ValueError):
    """The method is not defined for these rows; it may be when there are more of them."""


def mended_by_more_rows(check):
    """What this check finds wrong more rows may put right."""

    @functools.wraps(check)
    def wrapped(*args, **kwargs):
        try:
            return check(*args, **kwargs)
        except ValueError as error:
            raise TooFewRows(*error.args) from None

    return wrapped


def say_what_is_missing(estimator) -> None:
    """After a piece of a stream: why there is no fit yet."""
    if not hasattr(estimator, "params_"):
        warnings.warn(
            f"Not fitted yet: {estimator._missing} What the rows so far say is kept until there are more, by partial_fit.",
            stacklevel=4,
        )


def gaussian_blocks(joint, stats):
    """(block, statistics) of the blocks that the rules on covariances speak of."""
    pairs = zip(joint.blocks, stats.blocks, strict=True)
    return [(block, part) for block, part in pairs if isinstance(block.family, Gaussian) and part != ()]


def counting_blocks(joint, stats):
    """(block, statistics) of the discrete blocks."""
    pairs = zip(joint.blocks, stats.blocks, strict=True)
    return [(block, part) for block, part in pairs if isinstance(block.family, Counting) and part != ()]


def label(estimator, k: int) -> str:
    """A class as the user wrote it."""
    return repr(estimator.classes_[k : k + 1].tolist()[0])


def column(schema, j: int) -> str:
    """A column as the user knows it: by name, or by position."""
    return f"column {j}" if schema.columns is None else f"column {schema.columns[j]!r}"


def choice(name: str, value, allowed: tuple, why: str = "") -> None:
    if not isinstance(value, str) or value not in allowed:
        options = " or ".join(repr(a) for a in allowed)
        raise ValueError(f"{name}={value!r}: must be {options}" + (f" ({why})." if why else "."))


def number(name: str, value, low: float = -np.inf, high: float = np.inf) -> None:
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not low <= value <= high or not np.isfinite(value):
        limits = f"a number in [{low:g}, {high:g}]" if high < np.inf else f"a finite number, at least {low:g}"
        raise ValueError(f"{name}={value!r}: must be {limits if low > -np.inf else 'a finite number'}.")


def whole(name: str, value, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < low:
        raise ValueError(f"{name}={value!r}: must be a whole number, at least {low}.")


def class_probabilities(priors, num_classes: int) -> np.ndarray:
    """`priors=` as an array (K,)."""
    if isinstance(priors, str):
        choice("priors", priors, ("uniform",))
        return np.full(num_classes, 1 / num_classes)
    try:
        values = np.asarray(priors, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"priors={priors!r}: give one probability per class, or 'uniform'.") from error
    if values.shape != (num_classes,):
        raise ValueError(
            f"priors has shape {values.shape} but there are {num_classes} classes: give one probability per class, "
            "in the order of classes_."
        )
    if not np.all(np.isfinite(values)) or values.min() < 0:
        raise ValueError(f"priors={values.tolist()}: probabilities must not be negative.")
    if abs(values.sum() - 1) > 1e-6:
        raise ValueError(f"priors={values.tolist()} sum to {values.sum():g}, not to 1: divide them by their sum.")
    return values / values.sum()


def rows_of_some_class(table: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Which rows can say how frequent the classes are, given their log densities (n, K) and weights."""
    if not (table < np.inf).all():
        raise FloatingPointError("Densities are undefined: the fitted parameters are degenerate, or cells too extreme.")
    counted = weight > 0
    nowhere = counted & np.isneginf(table).all(1)
    if not (counted & ~nowhere).any():
        raise ValueError(
            f"None of the {len(table)} row(s) has a weight above 0 and a density above 0 under some class: nothing says how "
            "frequent the classes are."
        )
    if nowhere.any():
        warnings.warn(
            f"{int(nowhere.sum())} row(s) have density 0 under every class (first: row {int(np.argmax(nowhere))}), and are "
            "left out.",
            stacklevel=4,
        )
    return counted & ~nowhere


def priors_found(found) -> None:
    if not found.converged:
        warnings.warn(
            f"The search for the class probabilities did not converge in {found.n_iter} steps: they are near the most "
            "likely ones, and may be off in the last digits.",
            ConvergenceWarning,
            stacklevel=4,
        )


def cost_matrix(costs, classes: np.ndarray) -> np.ndarray:
    size = len(classes)
    try:
        values = np.asarray(costs, dtype=float)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (size, size) or not np.all(np.isfinite(values)):
        raise ValueError(
            f"costs must be a finite ({size}, {size}) array, costs[i, j] the cost of predicting classes_[j] when the truth "
            f"is classes_[i]; got shape {values.shape}."
        )
    return values


def refuse_missing_labels(missing: np.ndarray, estimator) -> None:
    """Where rows without label are of no use."""
    if missing.any():
        why = (
            "What such a row adds depends on all the other rows, so that partial_fit and forget cannot be exact: give all "
            "the rows to one fit, or drop these."
            if estimator._learns_unlabelled
            else f"{type(estimator).__name__} has no density that could say which class they are of: drop them."
        )
        raise ValueError(f"{_unlabelled(missing)}. {why}")


def _unlabelled(missing: np.ndarray) -> str:
    return f"{int(missing.sum())} of {len(missing)} rows have no label (first: row {int(np.argmax(missing))})"


def some_labels(missing: np.ndarray) -> None:
    if len(missing) and missing.all():
        raise ValueError(
            f"None of the {len(missing)} rows has a label: nothing says what the classes are. Label some rows of each "
            "class; for one class of everything (an outlier model), give every row the same label."
        )


def complement(logs: np.ndarray, estimator) -> None:
    """Without smoothing a word that no other class has makes the weights infinite."""
    bad = np.argwhere(~np.isfinite(logs))
    if len(bad):
        k, j = bad[0]
        raise ValueError(
            f"{column(estimator._schema, int(j))} does not occur outside class {label(estimator, k)}: its weight is "
            "infinite without smoothing. Use alpha above 0."
        )


def known_frame(X, owner: str) -> None:
    """Frames of other libraries: their columns, categories and gaps are not read."""
    if hasattr(X, "columns") and not tables.is_frame(X):
        kind = f"{type(X).__module__.split('.')[0]}.{type(X).__name__}"
        raise TypeError(f"X is a {kind}, which {owner} does not read: give a pandas data frame, X.to_pandas(), or an array.")


def refuse_sparse(X, plan, owner: str) -> None:
    """A sparse matrix, where some family needs all the cells."""
    if not tables.is_sparse(X):
        return
    for _, _, family in plan:
        if not family.takes_sparse:
            raise tables.NotANumber(
                f"Sparse data was passed to {owner}, but a {type(family).__name__} block needs a dense table: give "
                "X.toarray(). BernoulliNB, MultinomialNB, ComplementNB and PoissonNB take sparse matrices as they are."
            )


def refuse_missing_counts(x, plan, schema) -> None:
    """Multinomial counts with gaps: the row's total is part of the density, so the others have no density alone."""
    if tables.is_sparse(x):
        return
    for _, columns, family in plan:
        part = x if columns is None else x[:, list(columns)]
        if not family.takes_missing and predict.has_missing(part):
            i, j = np.argwhere(np.isnan(part))[0]
            raise ValueError(
                f"Input X contains NaN: {column(schema, int(j) if columns is None else columns[j])}, row {i}. Multinomial "
                "counts cannot have missing cells, because a row's total is part of its density. Drop the row, write 0 if "
                "nothing was counted, or take PoissonNB, whose columns are independent."
            )


def family_fits(family, d: int) -> None:
    """Whether the numbers of a family have the shapes that d columns need."""
    if isinstance(family, Gaussian):
        prior_fits(family, d)
    for name in ("alpha", "beta"):
        shape = np.shape(getattr(family, name, 0.0))
        if isinstance(family, Counting) and shape not in ((), (d,)):
            raise ValueError(f"{name} has shape {shape}, but there are {d} columns: give a number or {d} of them.")


def smoothing(name: str, value, *, vector: bool = True) -> None:
    """alpha and beta: not negative, finite; one number, or one per column."""
    value = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number(name, value, low=0.0)
        return
    try:
        values = np.asarray(value, float)
    except (TypeError, ValueError):
        values = np.empty(0)
    if not vector or values.ndim != 1 or not values.size or not np.isfinite(values).all() or values.min() < 0:
        raise ValueError(f"{name}={value!r}: must be a number at least 0" + (", or one for each column." if vector else "."))


def few_enough_draws(estimator, numbers_per_draw: int, most: int) -> None:
    if numbers_per_draw * estimator.num_draws > most:
        gigabytes = 8e-9 * numbers_per_draw * estimator.num_draws
        raise MemoryError(
            f"draws_ would take {gigabytes:.0f} GB: {estimator.num_draws} draws of {numbers_per_draw} numbers. Set "
            f"num_draws to {max(1, most // numbers_per_draw)} or fewer. Intervals and predict_proba_draws work piece by "
            "piece and do not need the memory."
        )


@mended_by_more_rows
def statistics(joint, stats, estimator, *, needs_counts: bool = True) -> None:
    """Whether the method is defined for these counts."""
    labels = np.asarray(stats.labels)
    if not labels.sum() > np.finfo(float).tiny:
        raise ValueError("No rows are left, or all their weights are 0: there is nothing to fit.")
    if estimator.method == "mle" and (labels <= 0).any():
        k = int(np.argmin(labels))
        raise ValueError(
            f"Class {label(estimator, k)} has no rows (or only rows of weight 0): method='mle' cannot estimate it. Use "
            "method='map'."
        )
    for block, part in gaussian_blocks(joint, stats):
        _gaussian_counts(block, part, estimator)
    for block, part in counting_blocks(joint, stats) if needs_counts else ():
        _discrete_counts(block, part, estimator)


def _discrete_counts(block, stats, estimator) -> None:
    """Without smoothing a class needs at least one observed cell in every column."""
    family = block.family
    number = "beta" if isinstance(family, Poisson) else "alpha"
    prior = np.min(getattr(family, number)) > 0
    always = estimator.method == "posterior" and number == "alpha"  # Beta(1, 1) and Dirichlet(1) are proper
    if always or (prior and estimator.method != "mle"):
        return
    weight = np.asarray(stats.weight)
    remedy = f"Use method='map' with {number} above 0."
    if weight.ndim == 1 and (np.asarray(stats.total).sum(1) <= 0).any():
        k = int(np.argmin(np.asarray(stats.total).sum(1)))
        raise ValueError(f"All the counts of class {label(estimator, k)} are 0: their shares are undefined. {remedy}")
    if weight.ndim == 2 and (weight <= 0).any():
        k, j = np.argwhere(weight <= 0)[0]
        raise ValueError(
            f"Class {label(estimator, k)} has no observed cell in {column(estimator._schema, block.column(j))}: "
            f"method={estimator.method!r} cannot estimate it without a prior. {remedy}"
        )


def _gaussian_counts(block, stats, estimator) -> None:
    family = block.family
    structure = family.covariance
    weight = np.asarray(structure.cells(stats).weight)
    if estimator.method == "mle":
        _mle_counts(block, weight, estimator)
    elif family.prior.flat and (weight <= 0).any():
        k, j = np.argwhere(weight <= 0)[0]
        raise ValueError(
            f"Class {label(estimator, k)} has no observed cell in {column(estimator._schema, block.column(j))}, and the "
            "prior has strength 0: the mean of the class is undefined. Use prior='auto' (not RDA), or drop the class."
        )
    elif not family.prior.proper:
        _posterior_is_proper(family, stats, estimator)


def _mle_counts(block, weight: np.ndarray, estimator) -> None:
    family = block.family
    lost = 1.0 if family.unbiased else 0.0
    free = (weight - lost).sum(0) if family.tied else (weight - lost).min(0)
    where = np.argwhere(weight <= 0)
    if len(where):
        k, j = where[0]
        raise ValueError(
            f"Class {label(estimator, k)} has no observed cell in {column(estimator._schema, block.column(j))}: "
            "method='mle' cannot estimate it. Use method='map'."
        )
    if (free <= 0).any():
        k = int(np.argmin(weight.min(1)))
        raise ValueError(
            f"Class {label(estimator, k)} has {weight[k].min():g} row(s): unbiased=True divides by n_k - 1 (n - K for a "
            "tied covariance). Use unbiased=False with method='map', or more rows."
        )


def _remedy(estimator) -> str:
    return "Use prior='auto', or more rows." if hasattr(estimator, "prior") else "Use alpha < 1 and gamma < 1, or more rows."


def _posterior_is_proper(family, stats, estimator) -> None:
    d = stats.mean.shape[-1]
    updated = family.update(stats).prior
    df, scale = np.asarray(updated.df), np.asarray(updated.scale)
    weight = np.asarray(family.covariance.cells(stats).weight).min(1)
    if family.tied:
        if not family.covariance.proper(df, scale, d):
            raise ValueError(
                f"The prior is improper and {weight.sum():g} rows in {len(weight)} classes do not make the posterior of the "
                f"shared covariance of {d} columns proper. {_remedy(estimator)}"
            )
        return
    for k in range(len(weight)):
        if not family.covariance.proper(df[k], scale[k], d):
            raise ValueError(
                f"The prior is improper and class {label(estimator, k)} has {weight[k]:g} row(s), too few (or too "
                f"degenerate) to make the posterior of {d} columns proper. {_remedy(estimator)}"
            )


@mended_by_more_rows
def estimates(joint, stats, params, estimator) -> None:
    """Whether the point estimate is a density: every covariance positive definite."""
    for block, part in gaussian_blocks(joint, stats):
        family = block.family
        mine = joint.params_of(block, params)
        if estimator.method == "map":
            _mode_exists(family, part, mine, estimator)
        if estimator.method == "map" and family.prior.proper:
            continue
        found = family.covariance.deficits(np.asarray(mine[family.covariance.key]), np.asarray(mine["mean"]))
        if found:
            raise ValueError(_singular(block, part, found[0], estimator))


def _mode_exists(family, stats, params, estimator) -> None:
    """A prior with few degrees of freedom may have no mode although its posterior is proper."""
    k, d = params["mean"].shape
    variances = np.diagonal(family.covariance.matrices(np.asarray(params[family.covariance.key]), k, d), axis1=1, axis2=2)
    bad = ~(np.isfinite(variances) & (variances >= 0)).all(1)
    if bad.any():
        k = int(np.argmax(bad))
        rows = np.asarray(family.covariance.cells(stats).weight)[k].min()
        raise ValueError(
            f"Class {label(estimator, k)} has {rows:g} row(s), too few for this prior: its posterior has no mode. Use "
            "method='posterior', a prior with more degrees of freedom (df), or prior='auto'."
        )


def representable(joint, stats, schema) -> None:
    """Moments that overflow or underflow are no moments, and sums of counts beyond 2^53 lose some of them."""
    for _, part in counting_blocks(joint, stats):
        if not (np.max(part.total, initial=0.0) < 2.0**53 and np.all(np.isfinite(part.weight))):
            raise ValueError("The counts (or the weights) are too large for double precision: their sum is beyond 2^53.")
    for block, part in gaussian_blocks(joint, stats):
        weight, mean, scatter = (np.asarray(leaf) for leaf in block.family.covariance.cells(part))
        large = ~np.isfinite(weight) | ~np.isfinite(mean) | ~(scatter < 1e290)
        small = (np.abs(mean) < 1e-140) & (mean != 0) & (scatter < 1e-280)
        bad = np.argwhere(large | small)
        if len(bad):
            size = "large" if large.any() else "small"
            raise ValueError(
                f"The cells of {column(schema, block.column(bad[0, 1]))} (or the weights) are too {size} for double "
                "precision: their squares cannot be represented. Rescale the column."
            )


def same_columns(schema, X) -> None:
    """Names that are not strings, which scikit-learn does not compare."""
    if schema.columns is not None and list(schema.columns) != list(X.columns):
        raise ValueError(
            f"The columns differ from those of fit: {list(X.columns)[:10]} given, {list(schema.columns)[:10]} expected, in "
            "this order."
        )


def unchanged_settings(estimator) -> None:
    now = estimator.get_params()
    for name, before in estimator._settings.items():
        if name not in ("random_state", "num_draws") and not _same(before, now[name]):
            raise ValueError(f"{name} was {before!r} at the first call and is {now[name]!r} now: fit anew.")


def finite_covariances(estimator) -> None:
    """Under "posterior" the mean of Σ may not exist though the predictive does."""
    if not np.isfinite(estimator.covariances_).all():
        raise ValueError(
            "The posterior mean of a covariance does not exist: there are too few rows for this prior. Use prior='auto' or "
            "more rows; predict_proba and the other uses of the predictive are defined."
        )


def _singular(block, stats, deficit: tuple[int, int, list[int]], estimator) -> str:
    k, rank, columns = deficit
    family = block.family
    counts = np.asarray(family.covariance.cells(stats).weight).max(1)
    who = "The pooled covariance" if family.tied else f"The covariance of class {label(estimator, k)}"
    rows = f"{counts.sum():g} rows in {len(counts)} class(es)" if family.tied else f"{counts[k]:g} row(s)"
    names = ", ".join(column(estimator._schema, block.column(j)) for j in columns[:5]) + (
        ", ..." if len(columns) > 5 else ""
    )
    constant = f" Constant: {names}." if columns else ""
    return (
        f"{who} is singular: rank {rank}, but there are {block.num_features(estimator.n_features_in_)} columns; it comes "
        f"from {rows}.{constant} "
        f"method={estimator.method!r} is not defined here. {singular_remedy(estimator, columns)}"
    )


def singular_remedy(estimator, constant: list[int]) -> str:
    if hasattr(estimator, "ridge"):
        return "Use method='map' (a weak prior), ridge=..., or RDA."
    return "Use method='map' (a weak prior)" + (", or drop what is constant." if constant else ", or more rows.")


def mergeable(estimator, other) -> None:
    if type(other) is not type(estimator):
        raise ValueError(f"Cannot merge {type(estimator).__name__} with {type(other).__name__}: both must be of one kind.")
    check_is_fitted(other)
    if other._stats is None:
        raise ValueError("The other estimator was made from parameters: it has no rows to merge.")
    additive(other._stats, other, "Cannot merge: the other was fitted on rows with missing cells")
    mine, theirs = estimator.get_params(), other.get_params()
    for name in mine:
        if name not in ("random_state", "num_draws") and not _same(mine[name], theirs[name]):
            raise ValueError(f"Cannot merge: {name}={mine[name]!r} here, {theirs[name]!r} in the other.")
    names, theirs_ = (None if e._schema.columns is None else list(e._schema.columns) for e in (estimator, other))
    if (estimator.classes_.dtype.kind in "OUS") != (other.classes_.dtype.kind in "OUS"):
        raise ValueError("Cannot merge: the labels of one are text, of the other numbers.")
    if estimator.n_features_in_ != other.n_features_in_ or names != theirs_:
        raise ValueError("Cannot merge: the two were fitted on different columns.")
    for (a, columns, _), (b, columns_, _) in zip(estimator._plan, other._plan, strict=False):
        if (a, columns) != (b, columns_) or len(estimator._plan) != len(other._plan):
            raise ValueError(
                f"Cannot merge: the columns have other families, {a} over {columns} here, {b} over {columns_} in the other. "
                "State the family of each column when you construct them."
            )


def _same(a: Any, b: Any) -> bool:
    if dataclasses.is_dataclass(a) and type(a) is type(b):
        return all(_same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    try:
        return np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True)
    except TypeError:  # text and objects know no NaN
        return np.array_equal(np.asarray(a), np.asarray(b))


def additive(stats, estimator, what: str = "Input X contains NaN") -> None:
    """Whether the statistics can be added to others, or taken off: those of a full covariance and rows with gaps cannot."""
    for (name, _, _), part in zip(estimator._plan, stats.blocks, strict=True):
        if part == ():
            raise ValueError(
                f"{what}, in columns of the {name} block, which have a full covariance. What a row with gaps adds to it "
                "depends on all the other rows: there are no sums that more could be added to or taken from, and "
                "partial_fit, merge and forget cannot be exact. Such rows are learnt in one fit only: give all the rows to "
                "fit. Or use covariance='diag' or 'spherical', or GaussianNB, which are exact with missing cells."
            )


def removable(estimator, gone) -> None:
    """Refuse to forget more than was learnt."""
    left = np.asarray(estimator._stats.labels - gone.labels)
    if (left < -1e-9 * np.maximum(estimator._stats.labels, 1)).any():
        k = int(np.argmin(left))
        raise ValueError(
            f"Class {label(estimator, k)} was fitted on {estimator._stats.labels[k]:g} row(s), fewer than the "
            f"{gone.labels[k]:g} to forget: these rows were not all in the fit."
        )
    joint = estimator._prior_joint
    pairs = zip(gaussian_blocks(joint, estimator._stats), gaussian_blocks(joint, gone), strict=True)
    for (block, have), (_, less) in pairs:
        _moments_removable(block, have, less, estimator)
    for (block, have), (_, less) in zip(counting_blocks(joint, estimator._stats), counting_blocks(joint, gone), strict=True):
        _counts_removable(block, have, less, estimator)


def _moments_removable(block, have, less, estimator) -> None:
    structure = block.family.covariance
    rest = block.family.remove(have, less)
    before, gone = (Moments(*map(np.asarray, structure.cells(moments))) for moments in (have, less))
    few = np.argwhere(gone.weight > before.weight + 1e-9 * np.maximum(before.weight, 1))
    if len(few):
        k, j = few[0]
        raise ValueError(
            f"Class {label(estimator, k)} was fitted on {before.weight[k, j]:g} observed cell(s) of "
            f"{column(estimator._schema, block.column(j))}, fewer than the {gone.weight[k, j]:g} to forget: these rows were "
            "not all in the fit."
        )
    scale = before.scatter + before.weight * (1e-8 * np.abs(before.mean)) ** 2
    found = negative_direction(np.asarray(rest.scatter), scale, 1e-7)
    if found is not None:
        k, j = found
        raise ValueError(
            f"Forgetting leaves a negative scatter in class {label(estimator, k)}, "
            f"{column(estimator._schema, block.column(j))}: these rows were not all in the fit."
        )


def _counts_removable(block, have, less, estimator) -> None:
    for before, gone in zip(block.family.cannot_be_negative(have), block.family.cannot_be_negative(less), strict=True):
        bad = np.argwhere(gone > before + 1e-9 * np.maximum(before, 1))
        if not len(bad):
            continue
        k, place = bad[0]
        sizes = getattr(block.family, "sizes", None)
        j = place if sizes is None else np.repeat(np.arange(len(sizes)), sizes)[place]
        raise ValueError(
            f"Forgetting leaves a negative count in class {label(estimator, k)}, "
            f"{column(estimator._schema, block.column(j))}: these rows were not all in the fit."
        )


def has_prior(estimator) -> None:
    if estimator._stats is None:
        raise ValueError("This classifier was made from parameters: it has no prior, and so no model to sample them from.")


def reference_class(reference, classes: np.ndarray) -> int:
    """`reference=` of explain as a position in classes."""
    if len(classes) < 2:
        raise ValueError("explain compares classes, but this classifier has only one.")
    if reference is None:
        return 0
    found = np.flatnonzero([bool(name == reference) for name in classes.tolist()])
    if len(found) != 1:
        raise ValueError(f"reference={reference!r} is none of the classes: {classes.tolist()[:10]}.")
    return int(found[0])


def names_of_features(given, schema, d: int) -> list:
    """`feature_names=`, or the table's own names."""
    if given is None:
        return schema.labels if schema.columns is None else schema.columns.tolist()
    names = list(given)
    if len(names) != d:
        raise ValueError(f"feature_names has {len(names)} names for {d} columns.")
    return names


def given_counts(fixed: np.ndarray, plan, schema) -> None:
    """Cells of a multinomial block cannot be fixed one by one."""
    for _, columns, family in plan:
        mine = np.arange(len(fixed)) if columns is None else np.asarray(columns)
        if not family.takes_missing and not np.isnan(fixed[mine]).all():
            j = int(mine[~np.isnan(fixed[mine])][0])
            raise ValueError(f"given has {column(schema, j)}, a multinomial count: the counts of a row are drawn together.")


def dense_model(X) -> None:
    if tables.is_sparse(X):
        raise TypeError("The NumPyro model takes dense rows: give X.toarray() (of a few rows).")


def model_shapes(x, y, num_rows, d: int) -> None:
    if x is None and y is None and num_rows is None:
        raise ValueError("model needs rows X (with labels y), or num_rows to sample.")
    if x is not None and (np.ndim(x) != 2 or np.shape(x)[1] != d):
        raise ValueError(f"X has shape {np.shape(x)}; expected (n, {d}).")
    if y is not None and (np.ndim(y) != 1 or (x is not None and len(y) != len(x))):
        raise ValueError(f"y must have one label per row: shape {np.shape(y)}, X has shape {np.shape(x)}.")


def training_rows(estimator, what: str = "loo_predict_proba"):
    """The rows of the last `fit`, still as they were."""
    rows = getattr(estimator, "_rows", None)
    if rows is None:
        raise ValueError(
            f"{what} needs the training rows, which are kept by fit only (not by partial_fit, merge, forget, "
            "from_parameters, or in a stored or copied model)."
        )
    again = estimator._prior_joint.stats(*rows)
    for a, b in zip(again.blocks, estimator._stats.blocks, strict=True):
        if not all(np.array_equal(x, y) for x, y in zip(a, b, strict=True)):
            raise ValueError(f"The array given to fit was changed since: fit again before {what}.")
    return rows


def can_leave_one_out(estimator) -> None:
    """Under mle every class must stay estimable without one row."""
    counts = np.asarray(estimator._stats.labels)
    if estimator._method == "mle" and (counts < 2).any():
        _refuse_to_leave_one_out(estimator, int(np.argmin(counts)))
    for block, _ in gaussian_blocks(estimator._prior_joint, estimator._stats):
        structure, tied = block.family.covariance, block.family.tied
        least = 2 if tied else structure.least_rows(block.num_features(estimator.n_features_in_)) + 1
        if estimator._method == "mle" and (counts < least).any():
            _refuse_to_leave_one_out(estimator, int(np.argmin(counts)))


def left_out(estimator, table: np.ndarray, labels) -> None:
    """A refit without some row may be singular although the counts allow it."""
    undefined = np.isnan(table).any(1)
    if undefined.any():
        _refuse_to_leave_one_out(estimator, int(labels.codes[np.argmax(undefined)]))


def _refuse_to_leave_one_out(estimator, k: int) -> None:
    raise ValueError(
        f"Class {label(estimator, k)} has {estimator._stats.labels[k]:g} row(s): without one of them "
        f"method={estimator._method!r} is not defined. Use method='map' or 'posterior' with a prior, or more rows."
    )


def normal_wishart(prior) -> None:
    """`prior=`: "auto", or numbers that make sense; their shapes are checked against the columns when they are used."""
    if isinstance(prior, str):
        choice("prior", prior, ("auto",), "or a NormalWishart(mean, strength, df, scale)")
        return
    if not all(hasattr(prior, name) for name in ("mean", "strength", "df", "scale")):
        raise ValueError(f"prior={prior!r}: must be 'auto' or a NormalWishart(mean, strength, df, scale).")
    for name in ("strength", "df"):
        number(f"prior.{name}", np.asarray(getattr(prior, name)).item(), low=0.0)
    if not all(np.all(np.isfinite(np.asarray(getattr(prior, name), float))) for name in ("mean", "scale")):
        raise ValueError("prior.mean and prior.scale must be finite.")


def prior_fits(family, d: int) -> None:
    """Whether a stated prior has the shapes that d columns and the covariance structure need."""
    prior = family.prior
    if not hasattr(prior, "scale"):
        return
    mean, scale = np.shape(prior.mean), np.asarray(prior.scale, float)
    if mean not in ((), (d,)):
        raise ValueError(f"prior.mean has shape {mean}, but there are {d} columns: give a number or {d} of them.")
    allowed = family.covariance.scale_shapes(d)
    if scale.shape not in allowed:
        raise ValueError(
            f"prior.scale has shape {scale.shape}, but there are {d} columns: give one of the shapes {allowed}."
        )
    smallest = scale.min() if scale.ndim < 2 else np.linalg.eigvalsh((scale + scale.T) / 2).min()
    if smallest < -1e-10 * np.abs(scale).max() or (scale.ndim == 2 and not np.allclose(scale, scale.T)):
        raise ValueError("prior.scale must be symmetric and positive definite (or 0 for the improper limit).")
