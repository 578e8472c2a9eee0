"""compare: fitted models side by side, by what they say of rows that they have not seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from bayesgen import scores
from bayesgen.scores import Scores

SUMS = ("loo_joint", "loo_conditional", "psis_joint", "psis_conditional", "waic_joint", "waic_conditional")
MEANS = ("accuracy", "brier")
NUMBERS = ("log_evidence", "log_likelihood", "num_parameters", "aic", "bic")
SCORES = (*SUMS, "log_evidence", "log_likelihood", "aic", "bic", *MEANS)
SMALLER_IS_BETTER = ("aic", "bic", "brier")
# what "auto" looks for: a score that all the models have
JOINT_FIRST = ("loo_joint", "psis_joint", "log_evidence", "bic", "loo_conditional", "psis_conditional", "brier")
CONDITIONAL = ("loo_conditional", "psis_conditional", "waic_conditional", *MEANS)


def compare(models: Mapping, by: str = "auto", *, sampled: bool = True) -> pd.DataFrame:
    """Fitted models side by side, the best first.

    The scores are log densities of rows that the model has not seen: of whole rows (joint, Σ log p(x_i, y_i | D without i)),
    or of their labels given the cells (conditional, Σ log p(y_i | x_i, D without i)), which is what classifying is about.
    Columns that no model has are left out:

    - `loo_joint`, `loo_conditional`: exact leave-one-out scores of conjugate families, by any method. The prior's numbers
      are kept, except RDA's, which are made of the rows and are made again without the row.
    - `psis_joint`, `psis_conditional`: the same from posterior draws, by Pareto-smoothed importance sampling, with `_p`, the
      effective number of parameters, and `_bad_k`, the share of rows whose Pareto k is above 0.7: there the estimate is not
      to be trusted (rows whose importance weights differ by less than a tenth are not counted). `waic_joint`,
      `waic_conditional`: the widely applicable information criterion, on the same scale. All keep the prior's numbers
      (RDA's too, which flatters it); draws of engine="svi" and "laplace" are taken as they are.
    - `log_evidence`: exact log p(X, y), with a proper prior.
    - `log_likelihood`, `num_parameters`, `aic`, `bic`: of method="mle"; the likelihood is that of x and y together, class
      probabilities that are estimated count.
    - `accuracy`, `brier` (Σ_k (p_k − 1[y = k])², averaged over the rows; smaller is better): by leave-one-out, exactly where
      possible, else by importance sampling.

    `_se` are standard errors, rows being independent. `difference` is the distance to the best model in the score that sorts
    the table, `difference_se` its standard error, from the differences row by row.

    Rows without label count with log p(x_i | D without i) in joint scores, and not at all in the others.

    Joint scores of models of different columns cannot be compared, nor can densities and masses (a Gaussian and a Poisson of
    the same column); "auto" then sorts by conditional scores, and the others are refused.

    Parameters
    ----------
    models : dict {name: fitted classifier}
        All fitted to the same rows and labels.
    by : str, default "auto"
        The column that sorts the table. "auto" takes the first of loo_joint, psis_joint, log_evidence, bic, loo_conditional,
        psis_conditional, brier that all the models have.
    sampled : bool, default True
        Whether to compute PSIS-LOO and WAIC, which take time for many rows.

    Returns
    -------
    DataFrame, one row for each model; first the column that sorts it and the differences.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayesgen import LDA, QDA, compare
    >>> X, y = load_iris(return_X_y=True)
    >>> table = compare({"one covariance": LDA().fit(X, y), "three": QDA().fit(X, y)})
    >>> table[["loo_joint", "difference", "difference_se", "accuracy"]].round(1)
                    loo_joint  difference  difference_se  accuracy
    three              -238.4         0.0            0.0       1.0
    one covariance     -291.2       -52.8           12.6       1.0
    """
    found = _scored(models, sampled)
    _same_rows(found)
    table = pd.DataFrame([_line(mine) for mine in found.values()], index=list(found))
    table = table[[name for name in _columns() if name in table and table[name].notna().any()]]
    by = _sorting_column(by, table, _not_comparable(found))
    table = table.sort_values(by, ascending=by in SMALLER_IS_BETTER, kind="stable", na_position="last")
    table = _with_differences(table, by, found)
    table.attrs["by"] = by
    return table


def _scored(models: Mapping, sampled: bool) -> dict[str, Scores]:
    if not isinstance(models, Mapping) or not models:
        raise ValueError(
            f"compare takes a dict of fitted models, for example compare({{'LDA': lda, 'QDA': qda}}); got {models!r:.80}."
        )
    found = {}
    for name, model in models.items():
        if isinstance(model, type) or not hasattr(model, "_evaluation"):
            what = model.__name__ if isinstance(model, type) else type(model).__name__
            raise ValueError(
                f"Model {name!r} is a {what}: compare needs fitted classifiers of this package that have a density (of a "
                "pipeline or a search, its last step or best_estimator_)."
            )
        try:
            check_is_fitted(model)
        except NotFittedError:
            raise NotFittedError(f"Model {name!r}, a {type(model).__name__}, is not fitted: call fit first.") from None
        found[name] = model._evaluation(sampled)
        if not found[name].rows and not found[name].numbers:
            raise ValueError(f"Model {name!r} keeps neither rows nor statistics of a fit: there is nothing to score it by.")
    return found


# -- whether they can be compared
def _same_rows(found: dict[str, Scores]) -> None:
    """All the models must have seen the same labels, with the same weights."""
    (first, a), others = _first(found, lambda mine: mine.codes is not None)
    for name, b in others:
        problem = None
        if not np.array_equal(a.classes, b.classes):
            problem = f"classes {a.classes.tolist()} and {b.classes.tolist()}"
        elif a.codes is not None and b.codes is not None and len(a.codes) != len(b.codes):
            problem = f"{len(a.codes)} and {len(b.codes)} rows"
        elif a.codes is not None and b.codes is not None and not np.array_equal(a.codes, b.codes):
            problem = f"other labels, first in row {int(np.argmax(a.codes != b.codes))}"
        elif a.codes is not None and b.codes is not None and not np.array_equal(a.weights(), b.weights()):
            problem = "other weights of the rows"
        elif not np.allclose(a.counts, b.counts, rtol=1e-9):
            problem = f"{a.counts.sum():g} and {b.counts.sum():g} rows, or other labels"
        if problem:
            raise ValueError(f"Models {first!r} and {name!r} were not fitted to the same rows: {problem}.")


def _not_comparable(found: dict[str, Scores]) -> str:
    """Why joint scores cannot be compared, "" if they can."""
    densities = {name: mine for name, mine in found.items() if mine.measure is not None}
    if len(densities) < 2:
        return ""
    (first, a), others = _first(densities, lambda mine: mine.x is not None)
    for name, b in others:
        mine, theirs = a.measure or (), b.measure or ()
        if len(mine) != len(theirs):
            return f"{first!r} has {len(mine)} columns and {name!r} has {len(theirs)}"
        other = next((j for j in range(len(mine)) if mine[j] != theirs[j]), None)
        if other is not None:
            return f"column {other} has a {mine[other]} in {first!r} and a {theirs[other]} in {name!r}"
        if a.x is not None and b.x is not None and not _same_table(a.x, b.x):
            return f"{first!r} and {name!r} have columns of other values"
    return ""


def _first(found: dict[str, Scores], wanted: Callable) -> tuple[tuple[str, Scores], list[tuple[str, Scores]]]:
    """The first model of which something is known, or the first; and the others."""
    name = next((name for name, mine in found.items() if wanted(mine)), next(iter(found)))
    return (name, found[name]), [pair for pair in found.items() if pair[0] != name]


def _same_table(a, b) -> bool:
    if sparse.issparse(a) or sparse.issparse(b):
        return (sparse.csr_array(a) != sparse.csr_array(b)).nnz == 0
    return np.array_equal(a, b, equal_nan=True)


# -- the table
def _columns() -> list[str]:
    names = [column for name in SUMS for column in (name, f"{name}_se", f"{name}_p", f"{name}_bad_k")]
    return [*names, *NUMBERS, *(column for name in MEANS for column in (name, f"{name}_se"))]


def _line(mine: Scores) -> dict[str, float]:
    """One model's scores."""
    line = dict(mine.numbers)
    for name in (*SUMS, *MEANS):
        if name not in mine.rows:
            continue
        weight = mine.weights_of(name)
        scale = 1.0 if name in SUMS else 1 / weight.sum()
        line[name] = scale * scores.total(mine.rows[name], weight)
        line[f"{name}_se"] = scale * scores.standard_error(mine.rows[name], weight)
        if f"{name}_p" in mine.rows:
            line[f"{name}_p"] = scores.total(mine.rows[f"{name}_p"], weight)
        if f"{name}_bad_k" in mine.rows:
            line[f"{name}_bad_k"] = scores.total(mine.rows[f"{name}_bad_k"], weight) / weight.sum()
    return line


def _sorting_column(by: str, table: pd.DataFrame, problem: str) -> str:
    known = [name for name in SCORES if name in table]
    if by == "auto":
        allowed = [name for name in JOINT_FIRST if name in known and (not problem or name in CONDITIONAL)]
        shared = [name for name in allowed if table[name].notna().all()]
        if not shared:
            raise ValueError(f"The models have no score in common to sort by. Give by=, one of {known}.")
        return shared[0]
    if by not in known:
        raise ValueError(f"by={by!r}: must be 'auto' or one of {known}.")
    if problem and by not in CONDITIONAL:
        raise ValueError(
            f"by={by!r}: joint scores of these models cannot be compared, {problem}. Use by='auto', or one of "
            f"{[name for name in known if name in CONDITIONAL]}."
        )
    return by


def _with_differences(table: pd.DataFrame, by: str, found: dict[str, Scores]) -> pd.DataFrame:
    """The sorting column first, then the differences to the best in it."""
    best = found[table.index[0]]
    with np.errstate(invalid="ignore"):
        table.insert(0, "difference", table[by].to_numpy() - table[by].iloc[0])
    table.iloc[0, 0] = 0.0
    if by in best.rows:
        weight = best.weights_of(by)
        scale = 1.0 if by in SUMS else 1 / weight.sum()
        missing = np.full(len(weight), np.nan)
        with np.errstate(invalid="ignore"):
            rows = [found[name].rows.get(by, missing) - best.rows[by] for name in table.index]
        table.insert(1, "difference_se", [scale * scores.standard_error(row, weight) for row in rows])
    front = [name for name in (by, f"{by}_se", "difference", "difference_se") if name in table]
    return table[front + [name for name in table if name not in front]]
