"""Every error that a user's data or arguments can cause: what is wrong, where, and what to do."""

from __future__ import annotations

import numbers
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bayesgen import predict, tables
from bayesgen.families.counts import Counting
from bayesgen.families.gaussian import Gaussian


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


def one_label(name: str, value) -> None:
    if value is not None and (np.ndim(value) > 0 or isinstance(value, set | dict)):
        raise ValueError(f"{name}={value!r:.60}: must be one label, the one that stands for a missing one, or None.")


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


def same_columns(schema, X) -> None:
    """Names that are not strings, which scikit-learn does not compare."""
    if schema.columns is not None and list(schema.columns) != list(X.columns):
        raise ValueError(
            f"The columns differ from those of fit: {list(X.columns)[:10]} given, {list(schema.columns)[:10]} expected, in "
            "this order."
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
