"""Whether a method is defined for the statistics of the rows, and what to do where it is not."""

from __future__ import annotations

import functools

import numpy as np

from bayesgen.estimators.checks import column, counting_blocks, gaussian_blocks, label
from bayesgen.families.poisson import Poisson


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
