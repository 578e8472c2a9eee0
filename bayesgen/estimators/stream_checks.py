"""Errors about rows that come in pieces, models to be merged, and rows to be forgotten."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayesgen.estimators.checks import column, counting_blocks, gaussian_blocks, label
from bayesgen.moments import Moments, negative_direction


def say_what_is_missing(estimator) -> None:
    """After a piece of a stream: why there is no fit yet."""
    if not hasattr(estimator, "params_"):
        warnings.warn(
            f"Not fitted yet: {estimator._missing} What the rows so far say is kept until there are more, by partial_fit.",
            stacklevel=4,
        )


def unchanged_settings(estimator) -> None:
    now = estimator.get_params()
    for name, before in estimator._settings.items():
        if name not in ("random_state", "num_draws") and not _same(before, now[name]):
            raise ValueError(f"{name} was {before!r} at the first call and is {now[name]!r} now: fit anew.")


def mergeable(estimator, other) -> None:
    if type(other) is not type(estimator):
        raise ValueError(f"Cannot merge {type(estimator).__name__} with {type(other).__name__}: both must be of one kind.")
    check_is_fitted(other)
    if other._stats is None:
        raise ValueError("The other estimator was made from parameters: it has no rows to merge.")
    if other._stats.blocks and all(part == () for part in other._stats.blocks) and hasattr(other, "_transduced"):
        raise ValueError(
            "Cannot merge: the other was fitted on rows without label. What such a row adds depends on all the other rows: "
            "give all the rows to one fit."
        )
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
