"""One column at a time: cells to float64 numbers and back, and which family a column asks for.

A number stays a number, a category becomes its code 0..C-1, a missing cell NaN. The errors name the cell.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.utils import check_array

from bayesgen.labels import NotANumber, held, is_frame, listed

SLICE = 16_384  # rows at a time: temporaries stay small
KINDS = ("number", "count", "binary", "category")
NUMBER_ADVICE = "Encode it as a number, drop the column, or mark the cell missing (NaN)."
BINARY_ADVICE = "Binary cells are False, True, 0, 1 or missing: give binarize=threshold, or use a categorical family."


def is_sparse(X) -> bool:
    """Whether X is a scipy sparse matrix or array, of any format. A data frame with sparse columns is not."""
    return scipy.sparse.issparse(X)


def take(X, j: int):
    """Column j of a data frame or an array."""
    return X.iloc[:, j] if is_frame(X) else X[:, j]


def where(columns, j: int) -> str:
    """How messages call column j."""
    return f"column {j}" if columns is None else f"column {columns[j : j + 1].tolist()[0]!r}"


def as_cells(X, owner: str | None = None) -> np.ndarray:
    """An array-like as an array (n, d) in which numbers stay numbers beside text; masked cells become None."""
    if np.ma.isMA(X):
        mask, X = np.ma.getmaskarray(X), np.array(np.ma.getdata(X), dtype=object)
        X[mask] = None
    if isinstance(X, list | tuple):
        cells = np.asarray(X)
        if cells.dtype.kind in "US":  # all text, or numbers that NumPy has made text
            objects = np.asarray(X, dtype=object)
            cells = cells if all(isinstance(cell, str | bytes) for cell in objects.flat) else objects
        X = cells
    return check_array(X, dtype=None, ensure_all_finite=False, estimator=owner)


# ---- numbers, counts and binary cells


def numbers(cells: np.ndarray, columns, what: str = "Input X", kinds=None) -> np.ndarray:
    """Objects or strings, (n, d), as floats; the error names the first cell that is no number."""
    cells = np.where(pd.isna(cells), np.nan, cells.astype(object))
    walk = cells.flat
    try:
        return np.fromiter(map(_number, walk), np.float64, cells.size).reshape(cells.shape)
    except (TypeError, ValueError, OverflowError) as error:
        i, j = divmod(walk.index - 1, cells.shape[1])
        advice = BINARY_ADVICE if kinds is not None and kinds[j : j + 1] == ("binary",) else NUMBER_ADVICE
        raise NotANumber(
            f"{what} has a cell that is not a number: {where(columns, j)}, row {i} is {cells[i, j]!r:.60} "
            f"({error}). {advice}"
        ) from error


def _number(cell) -> float:
    if isinstance(cell, np.datetime64 | np.timedelta64):  # float() would count nanoseconds
        raise TypeError("a date or a duration")
    return float(cell)


def refuse_infinite(values: np.ndarray, columns, what: str = "Input X") -> None:
    """A ValueError that names the first infinite cell of (n, d) values."""
    for start in range(0, len(values), SLICE):
        part = values[start : start + SLICE]
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(part.sum()) or not np.isinf(part).any():  # a finite sum has finite terms
                continue
        i, j = np.argwhere(np.isinf(part))[0]
        count = sum(np.isinf(values[k : k + SLICE]).sum() for k in range(start, len(values), SLICE))
        raise ValueError(
            f"{what} contains infinity in {count} cell(s), first in {where(columns, j)}, row {start + i} "
            f"({part[i, j]}). Replace it by a finite number or mark it missing (NaN)."
        )


def read_frame(X, kinds=None) -> np.ndarray:
    """A frame of numbers, (n, d) floats."""
    refuse_repeated(X)
    if all(dtype.kind in "biuf" for dtype in X.dtypes):
        return X.to_numpy(dtype=np.float64, na_value=np.nan)
    if X.shape[1] > 1:
        one = (lambda j: None) if kinds is None else (lambda j: kinds[j : j + 1])
        return np.hstack([read_frame(X.iloc[:, [j]], one(j)) for j in range(X.shape[1])])
    return numbers(X.to_numpy(dtype=object), X.columns, kinds=kinds)


def refuse_repeated(X) -> None:
    """A ValueError that names the repeated columns of a frame."""
    if not X.columns.is_unique:
        repeated = X.columns[X.columns.duplicated()].unique().tolist()
        raise ValueError(f"Input X has repeated column names: {listed(repeated)}. Rename or drop them.")


def read_array(X, kinds=None):
    """What check_array can turn into floats; it also says what is wrong with the shape or the type."""
    if np.ma.isMA(X):
        return X.astype(np.float64).filled(np.nan)
    X = np.asarray(X) if isinstance(X, list | tuple) else X
    kind = getattr(getattr(X, "dtype", None), "kind", "?")
    if kind in "mM":
        raise NotANumber(f"Input X has dtype {X.dtype}: make numbers of it (days since a fixed date, say).")
    return numbers(X, None, kinds=kinds) if kind in "OUS" and X.ndim == 2 else X


def _negative(values: np.ndarray) -> np.ndarray:
    return values < 0


def _not_binary(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return (values * values != values) & (values == values)  # NaN is missing, not wrong


WRONG = {"count": _negative, "binary": _not_binary}


def refuse_wrong_kinds(values: np.ndarray, kinds, columns, owner: str) -> None:
    """A ValueError that names the first negative count or the first binary cell that is not 0 or 1, in (n, d) values."""
    for kind, wrong in WRONG.items():
        at = [j for j, own in enumerate(kinds) if own == kind]
        for start in range(0, len(values) if at else 0, SLICE):
            part = values[start : start + SLICE]
            bad = wrong(part if len(at) == part.shape[1] else part[:, at])
            if bad.any():
                i, j = np.argwhere(bad)[0]
                raise _wrong_cell(kind, where(columns, at[j]), start + i, part[i, at[j]], owner)


def _wrong_cell(kind: str, place: str, row: int, value: float, owner: str) -> ValueError:
    if kind == "binary":
        return ValueError(
            f"Cells that are not binary in data passed to {owner}: {place}, row {row} is {value}. {BINARY_ADVICE}"
        )
    return ValueError(
        f"Negative values in data passed to {owner}: {place}, row {row} is {value}. Counts are at least 0: mark the cell "
        "missing (NaN), or use a family for numbers (gaussian)."
    )


def refuse_sparse_categories(kinds) -> None:
    """Categories are not read from sparse matrices: a missing entry would have to be one."""
    if "category" in kinds:
        raise NotANumber("Categories cannot be read from a sparse matrix: give a dense table, X.toarray().")


def read_sparse(X, kinds, owner: str):
    """A scipy sparse matrix as csr of float64 without duplicates and explicit zeros: X itself where X is one."""
    refuse_sparse_categories(kinds)
    values = check_array(X, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False, estimator=owner)
    if not values.has_canonical_format:  # duplicates, or only unsorted
        summed = values.copy()
        summed.sum_duplicates()
        values = values if summed.nnz == values.nnz else summed
    if not values.data.all():
        values = values.copy()
        values.eliminate_zeros()
    _refuse_wrong_stored(values, kinds, owner)
    return values


def _refuse_wrong_stored(values, kinds, owner: str) -> None:
    """What `refuse_infinite` and `refuse_wrong_kinds` say of dense values, for the stored ones, and no NaN."""

    def place(k: int) -> tuple[str, int]:
        return where(None, values.indices[k]), int(np.searchsorted(values.indptr, k, side="right")) - 1

    bad = np.flatnonzero(~np.isfinite(values.data))
    if len(bad):
        column, row = place(bad[0])
        raise ValueError(
            f"Input X is sparse and contains NaN or infinity, first in {column}, row {row} ({values.data[bad[0]]}). Missing "
            "cells in a sparse matrix are not supported: give a dense table, X.toarray()."
        )
    for kind in set(kinds) & WRONG.keys():
        bad = np.flatnonzero(WRONG[kind](values.data))
        bad = bad[np.asarray(kinds)[values.indices[bad]] == kind] if len(bad) else bad
        if len(bad):
            raise _wrong_cell(kind, *place(bad[0]), values.data[bad[0]], owner)


# ---- writing


def base(dtype) -> np.dtype:
    """The NumPy dtype of a column's numbers; float64 for a dtype that is not one of numbers."""
    if not isinstance(dtype, np.dtype):
        dtype = np.dtype(getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", float)))
    return dtype if dtype.kind in "biufO" else np.dtype(float)


def base_of_cells(cells) -> np.dtype:
    """`base` for counts and binary cells among objects: what the observed ones are, so that True stays True."""
    dtype = np.asarray([cell for cell in cells if not pd.isna(cell)]).dtype
    return dtype if dtype.kind in "biu" else np.dtype(object)


def cast(values: np.ndarray, dtype: np.dtype, label: str) -> np.ndarray:
    """Floats in a dtype of `base`, within its range, as an array that may be written to."""
    if dtype.kind in "biu" and np.isnan(values).any():
        raise ValueError(f"NaN cannot be written as {dtype}: the values for {label} are not all numbers.")
    if dtype.kind == "b":
        return values >= 0.5
    if dtype.kind in "iu":
        low, high = float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)
        if high > np.iinfo(dtype).max:  # 2**63 - 1 is not a float64; the float above it would wrap round
            high = np.nextafter(high, 0.0)
        return np.clip(np.rint(values), low, high).astype(dtype)
    if dtype.kind == "f" and dtype.itemsize < 8:
        values = np.clip(values, -np.finfo(dtype).max, np.finfo(dtype).max)
    return np.require(values, dtype, "W")


def _holds(dtype: np.dtype, cells: np.ndarray) -> bool:
    """Whether observed cells are the same in an integer or boolean dtype."""
    try:  # the detour by float64 that `cast` takes would cut Python's long integers
        same = cells.astype(dtype) if cells.dtype == object else cast(cells, dtype, "X")
    except (TypeError, ValueError, OverflowError):
        return False
    return np.array_equal(same, cells)


def fill(cells: np.ndarray, missing: np.ndarray, filled: np.ndarray, trained: np.dtype, label: str) -> np.ndarray:
    """A copy of the cells, numbers, with the missing ones taken from `filled`; see `Schema.fill`."""
    if not missing.any():
        return np.array(cells)
    dtype = cells.dtype if cells.dtype.kind in "fO" else np.dtype(float)
    whole = trained.kind in "biu"
    new = cast(filled[missing], trained if whole else dtype, label)
    if whole and _holds(trained, cells[~missing]):
        out = np.empty(cells.shape, trained)
        out[~missing] = cells[~missing]
    else:
        out = np.array(cells, dtype)
    out[missing] = new
    return out


def fill_column(column, values: np.ndarray, filled: np.ndarray, trained, inner: np.dtype, label: str):
    """`fill` for a column of a frame: `values` are its numbers, `trained` and `inner` its dtype and base in training."""
    own, missing = column.dtype, np.isnan(values)
    if own.kind in "biu":  # nullable, or nothing would be missing
        cells = column.array.copy()
        cells[missing] = cast(filled[missing], base(own), label)
        return cells
    cells = column.to_numpy() if isinstance(own, np.dtype) and own.kind in "fO" else values
    out = fill(cells, missing, filled, inner, label)
    dtype = trained if out.dtype.kind in "biu" else own
    if own == np.dtype(object) and trained == np.dtype(object):
        return pd.Series(out, column.index, object)
    return pd.array(out, dtype=dtype) if dtype.kind in "biuf" else out


def fill_categories(column, missing: np.ndarray, filled: np.ndarray, categories: pd.Index, trained, label: str):
    """`fill_column` for categories, in a Series or an array: `filled` are codes."""
    if np.isnan(filled[missing]).any():
        raise ValueError(f"NaN is no category: the values for {label} are not all categories.")
    new = categories.take(filled[missing].astype(np.intp)).astype(object).to_numpy()
    own = column.dtype
    if isinstance(own, pd.CategoricalDtype):
        lacking = [value for value in dict.fromkeys(new.tolist()) if value not in own.categories]
        out = column.array.add_categories(lacking)
        out[missing] = new
        return out
    cells = np.asarray(column, dtype=object).copy()  # a Series may give a view, whatever np.array promises
    cells[missing] = new
    # a column with gaps may have lost its dtype of whole numbers
    lost = missing.all() or (isinstance(own, np.dtype) and own.kind in "fO" and base(trained).kind in "biu")
    options = (held(cells, dtype) for dtype in ([trained, own] if lost else [own, trained]))
    best = next((out for out in options if out is not None), cells)
    return pd.Series(best, column.index, object) if best.dtype == object and hasattr(column, "index") else best


def joined(parts: list, dtype: np.dtype | None = None) -> np.ndarray:
    """Columns side by side: in `dtype` if that is of objects or common to them, as objects where text meets numbers."""
    kinds = {part.dtype.kind for part in parts}
    common = np.result_type(*parts) if len(kinds) == 1 or not kinds & set("OUSmM") else np.dtype(object)
    if dtype is not None and dtype.newbyteorder("=") in (common, np.dtype(object)):
        common = dtype  # in its own byte order
    out = np.empty((len(parts[0]), len(parts)), common)
    for j, part in enumerate(parts):
        out[:, j] = part
    return out


# ---- families


def guess_family(column, codes: np.ndarray, num_classes: int, *, name: str | None = None) -> str:
    """The family that a column asks for.

    Categories, text and objects are "categorical", booleans "bernoulli", floats "gaussian". Non-negative integers are
    "categorical" with at most 10 distinct values; with more, "poisson" if Σ_k n_k var_k <= 4 Σ_k n_k mean_k within the
    classes, else "gaussian". Integers with a negative one among them are "gaussian".

    Parameters
    ----------
    column : Series or ndarray of shape (n,)
        The objects of an array count as what the observed ones are; a Series of objects is categorical.
    codes : ndarray of shape (n,)
        Class codes; rows with a negative one are left out of variance and mean.
    num_classes : int
    name : str, optional
        How messages call the column.

    Examples
    --------
    >>> guess_family(np.arange(20) % 12, np.zeros(20, int), 1)
    'poisson'
    >>> guess_family(pd.Series(["a", "b"]), np.array([0, 1]), 2)
    'categorical'
    """
    name = repr(column.name) if name is None and isinstance(column, pd.Series) else name
    column = column.sparse.to_dense() if isinstance(column.dtype, pd.SparseDtype) else column
    seen = ~np.asarray(pd.isna(column))
    objects = isinstance(column, np.ndarray) and column.dtype == object
    observed = pd.Series(column[seen], dtype=object).infer_objects() if objects else column[seen]
    kind = observed.dtype.kind
    if kind in "mMc" or isinstance(observed.dtype, pd.PeriodDtype | pd.IntervalDtype):
        raise ValueError(
            f"{name or 'The column'} has dtype {observed.dtype}, which no family describes: make numbers of it (days since "
            "a fixed date, say) or categories (astype('category')), or drop it."
        )
    if kind in "iu":
        return _guess_integers(np.asarray(observed, np.float64), codes[seen], num_classes)
    return {"b": "bernoulli", "f": "gaussian"}.get(kind, "categorical")


def _guess_integers(values: np.ndarray, codes: np.ndarray, num_classes: int) -> str:
    if not len(values) or values.min() < 0:
        return "gaussian"
    if len(pd.unique(values)) <= 10:
        return "categorical"
    values, codes = values[codes >= 0], codes[codes >= 0]
    counts, sums = (np.bincount(codes, weights, num_classes) for weights in (None, values))
    means = sums / np.maximum(counts, 1)
    return "poisson" if np.sum((values - means[codes]) ** 2) <= 4 * values.sum() else "gaussian"


def auto_families(X, codes: np.ndarray, num_classes: int, skip=()) -> list[str]:
    """`guess_family` for every column of a data frame or an array, "" for those at the positions in `skip`.

    Examples
    --------
    >>> auto_families([["a", 1.5, True], ["b", 2.5, None]], np.array([0, 1]), 2)
    ['categorical', 'gaussian', 'bernoulli']
    """
    names = X.columns if is_frame(X) else None
    cells = X if is_frame(X) else as_cells(X)

    def guess(j: int) -> str:
        return "" if j in skip else guess_family(take(cells, j), codes, num_classes, name=where(names, j))

    return [guess(j) for j in range(cells.shape[1])]


def refuse_target_among_columns(X, y) -> None:
    """A ValueError if a column of the frame X is the target y: of its name and equal, or of text and equal.

    Examples
    --------
    >>> X = pd.DataFrame({"mass": [1.0, 2.0], "species": ["a", "b"]})
    >>> refuse_target_among_columns(X, ["a", "b"])
    Traceback (most recent call last):
    ...
    ValueError: The target 'species' is among the columns of X: drop it (X.drop(columns='species')).
    """
    if not is_frame(X) or y is None:
        return
    target = y if isinstance(y, np.ndarray) or hasattr(y, "iloc") else np.asarray(y, dtype=object)
    target = take(target, 0) if target.ndim == 2 and target.shape[1] == 1 else target
    own = getattr(target, "name", None)
    if target.shape != (len(X),):
        return
    for j, (name, dtype) in enumerate(zip(X.columns.tolist(), X.dtypes, strict=True)):
        named = own is not None and name == own
        if (named or dtype.kind not in "biufc") and _same_cells(X.iloc[:, j], target):
            raise ValueError(f"The target {name!r} is among the columns of X: drop it (X.drop(columns={name!r})).")


def _same_cells(column: pd.Series, target) -> bool:
    """Whether all the cells are equal, missing ones too, and some are not missing: a few first, then all."""
    for rows in (slice(0, 64), slice(64, None)):
        a, b = (np.asarray(getattr(cells, "iloc", cells)[rows], dtype=object) for cells in (column, target))
        seen = ~pd.isna(a)
        if not (np.array_equal(seen, ~pd.isna(b)) and np.array_equal(a[seen], b[seen])):
            return False
    return bool(column.notna().any())
