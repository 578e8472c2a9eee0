"""Data frames and missing cells <-> arrays: tables and labels are read once, and written back as they came.

A table becomes a float64 array with NaN for missing cells, labels become an array and a mask.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

SLICE = 16_384  # rows at a time: temporaries stay small


class NotANumber(TypeError, ValueError):
    """A cell that is not a number: a wrong value to users, a wrong type to scikit-learn's own checks."""


def read_table(X, *, owner: str) -> np.ndarray:
    """Read a table of numbers.

    Parameters
    ----------
    X : array-like or data frame of shape (n, d)
        Numbers; NaN, None, pd.NA, pd.NaT and masked cells are missing.
    owner : str
        The estimator's name, for messages.

    Returns
    -------
    ndarray of shape (n, d)
        float64, C-contiguous, NaN where missing; X itself where X is such an array, so do not write into it.

    Examples
    --------
    >>> read_table([[1, None], [2, 3.5]], owner="LDA")
    array([[1. , nan],
           [2. , 3.5]])
    """
    columns = X.columns if _is_frame(X) else None
    values = _read_array(X) if columns is None else _read_frame(X)
    if type(values) is np.ndarray and values.dtype == np.float64 and values.ndim == 2 and values.size:
        values = np.ascontiguousarray(values)  # check_array would cost ten times as much as the rest
    else:
        values = check_array(values, dtype=np.float64, order="C", ensure_all_finite=False, estimator=owner)
    _refuse_infinite(values, columns)
    return values


def _is_frame(X) -> bool:
    return hasattr(X, "iloc") and X.ndim == 2


def _where(columns, j: int) -> str:
    return f"column {j}" if columns is None else f"column {columns[j : j + 1].tolist()[0]!r}"


def _listed(names, most: int = 10) -> str:
    names = list(names)
    return ", ".join(map(repr, names[:most])) + f", ... ({len(names)} in all)" * (len(names) > most)


def _read_frame(X) -> np.ndarray:
    if not X.columns.is_unique:
        repeated = X.columns[X.columns.duplicated()].unique().tolist()
        raise ValueError(f"Input X has repeated column names: {_listed(repeated)}. Rename or drop them.")
    if all(dtype.kind in "biuf" for dtype in X.dtypes):
        return X.to_numpy(dtype=np.float64, na_value=np.nan)
    if X.shape[1] > 1:
        return np.hstack([_read_frame(X.iloc[:, [j]]) for j in range(X.shape[1])])
    return _numbers(X.to_numpy(dtype=object), X.columns)


def _read_array(X):
    """What check_array can turn into floats; it also says what is wrong with the shape or the type."""
    if np.ma.isMA(X):
        return X.astype(np.float64).filled(np.nan)
    X = np.asarray(X) if isinstance(X, list | tuple) else X
    kind = getattr(getattr(X, "dtype", None), "kind", "?")
    if kind in "mM":
        raise NotANumber(f"Input X has dtype {X.dtype}: make numbers of it (days since a fixed date, say).")
    return _numbers(X, None) if kind in "OUS" and X.ndim == 2 else X


def _numbers(cells: np.ndarray, columns, what: str = "Input X") -> np.ndarray:
    """Objects or strings, (n, d), as floats; the error names the first cell that is no number."""
    cells = np.where(pd.isna(cells), np.nan, cells.astype(object))
    walk = cells.flat
    try:
        return np.fromiter(map(_number, walk), np.float64, cells.size).reshape(cells.shape)
    except (TypeError, ValueError, OverflowError) as error:
        i, j = divmod(walk.index - 1, cells.shape[1])
        raise NotANumber(
            f"{what} has a cell that is not a number: {_where(columns, j)}, row {i} is {cells[i, j]!r:.60} "
            f"({error}). Encode it as a number, drop the column, or mark the cell missing (NaN)."
        ) from error


def _number(cell) -> float:
    if isinstance(cell, np.datetime64 | np.timedelta64):  # float() would count nanoseconds
        raise TypeError("a date or a duration")
    return float(cell)


def _refuse_infinite(values: np.ndarray, columns, what: str = "Input X") -> None:
    for start in range(0, len(values), SLICE):
        part = values[start : start + SLICE]
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(part.sum()) or not np.isinf(part).any():  # a finite sum has finite terms
                continue
        i, j = np.argwhere(np.isinf(part))[0]
        count = sum(np.isinf(values[k : k + SLICE]).sum() for k in range(start, len(values), SLICE))
        raise ValueError(
            f"{what} contains infinity in {count} cell(s), first in {_where(columns, j)}, row {start + i} "
            f"({part[i, j]}). Replace it by a finite number or mark it missing (NaN)."
        )


@dataclass(frozen=True, eq=False)
class Schema:
    """What the training table looked like.

    `container` is "frame" or "array", `columns` the pandas Index of the names (None for arrays), `dtypes` the
    dtypes of the columns (for arrays all the same, for lists float64).

    Examples
    --------
    >>> X = pd.DataFrame({"mass": [3.5], "eggs": pd.array([None], dtype="Int64")})
    >>> schema = Schema.of(X)
    >>> schema.write(np.array([[3.25, -0.2]]))
       mass  eggs
    0  3.25     0
    >>> schema.fill(X, np.array([[9.0, 1.75]]))
       mass  eggs
    0   3.5     2
    >>> schema.read_given({"eggs": 2})
    array([nan,  2.])
    """

    container: str
    columns: Any
    dtypes: tuple

    @classmethod
    def of(cls, X) -> Schema:
        """The schema of a table that `read_table` accepts."""
        if _is_frame(X):
            return cls("frame", X.columns.copy(), tuple(X.dtypes))
        dtype = X.dtype if isinstance(X, np.ndarray) else np.dtype(float)
        return cls("array", None, (dtype,) * np.shape(X)[1])

    @classmethod
    def named(cls, width: int, names=None) -> Schema:
        """The schema of float columns: a frame if they have names, an array if not."""
        columns = None if names is None else pd.Index(list(names))
        return cls("array" if names is None else "frame", columns, (np.dtype(float),) * width)

    def name(self, j: int) -> str:
        """The name of column j, or "column 3" where there are no names."""
        return f"column {j}" if self.columns is None else str(self.columns[j : j + 1].tolist()[0])

    @property
    def labels(self) -> list[str]:
        """The names of all the columns."""
        return [self.name(j) for j in range(len(self.dtypes))]

    def write(self, values: np.ndarray, index=None):
        """The (n, d) values as a table like the training table.

        Integers are rounded half to even and clipped to the range of the dtype, booleans are value >= 0.5,
        floats keep their width. NaN for an integer or a boolean is a ValueError.
        """
        if self.container == "array":
            return _cast(values, _base(self.dtypes[0]), "the array")
        cells = {j: _cast(values[:, j], _base(dtype), self.name(j)) for j, dtype in enumerate(self.dtypes)}
        numeric = {j: dtype for j, dtype in enumerate(self.dtypes) if dtype.kind in "biuf"}
        return pd.DataFrame(cells, index=index).astype(numeric).set_axis(self.columns.copy(), axis=1)

    def fill(self, X, filled: np.ndarray):
        """A copy of X with its missing cells, and only those, taken from the (n, d) array `filled`.

        A column that was integer or boolean in training has its filled cells rounded, and comes back in that
        dtype if its observed cells allow it. All others keep their own dtype, and so do nullable integers and
        booleans, and columns without missing cells. A list becomes an array.
        """
        values = read_table(X, owner="impute")
        missing = np.isnan(values)
        if not _is_frame(X):
            cells = X if isinstance(X, np.ndarray) and not np.ma.isMA(X) else values
            return _fill(cells, missing, filled, np.result_type(*map(_base, self.dtypes)), "the array")
        out = X.copy()
        for j in np.flatnonzero(missing.any(axis=0)).tolist():
            column = _fill_column(X.iloc[:, j], values[:, j], filled[:, j], self.dtypes[j], self.name(j))
            out.isetitem(j, column)
        return out

    def read_given(self, given) -> np.ndarray:
        """The fixed cells of one row, (d,), with NaN where nothing is given.

        `given` is a dict, a Series or a one-row data frame, keyed by column name (by position for arrays).
        """
        given = given.squeeze(axis=0) if _is_frame(given) else given
        if not hasattr(given, "items") or _is_frame(given):
            raise ValueError("given must be a dict, a Series or a data frame with one row.")
        names = range(len(self.dtypes)) if self.columns is None else self.columns.tolist()
        place = {name: j for j, name in enumerate(names)}
        if unknown := [name for name in list(given.keys()) if name not in place]:
            raise ValueError(f"given has unknown columns: {_listed(unknown)}. Known: {_listed(names)}.")
        if len(set(given.keys())) < len(given):
            raise ValueError(f"given has repeated columns: {_listed(given.keys())}.")
        row = np.full((1, len(place)), None)
        for name, cell in given.items():
            row[0, place[name]] = cell
        values = _numbers(row, self.columns, "given")
        _refuse_infinite(values, self.columns, "given")
        return values[0]


def _base(dtype) -> np.dtype:
    """The NumPy dtype of a column's numbers; float64 for a dtype that is not one of numbers."""
    if not isinstance(dtype, np.dtype):
        dtype = np.dtype(getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", float)))
    return dtype if dtype.kind in "biufO" else np.dtype(float)


def _cast(values: np.ndarray, dtype: np.dtype, label: str) -> np.ndarray:
    """Floats in a dtype of `_base`, within its range, as an array that may be written to."""
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
    try:  # the detour by float64 that `_cast` takes would cut Python's long integers
        same = cells.astype(dtype) if cells.dtype == object else _cast(cells, dtype, "X")
    except (TypeError, ValueError, OverflowError):
        return False
    return np.array_equal(same, cells)


def _fill(cells: np.ndarray, missing: np.ndarray, filled: np.ndarray, trained: np.dtype, label: str):
    if not missing.any():
        return np.array(cells)
    dtype = cells.dtype if cells.dtype.kind in "fO" else np.dtype(float)
    whole = trained.kind in "biu"
    new = _cast(filled[missing], trained if whole else dtype, label)
    if whole and _holds(trained, cells[~missing]):
        out = np.empty(cells.shape, trained)
        out[~missing] = cells[~missing]
    else:
        out = np.array(cells, dtype)
    out[missing] = new
    return out


def _fill_column(column, values: np.ndarray, filled: np.ndarray, trained, label: str):
    own, missing = column.dtype, np.isnan(values)
    if own.kind in "biu":  # nullable, or nothing would be missing
        cells = column.array.copy()
        cells[missing] = _cast(filled[missing], _base(own), label)
        return cells
    cells = column.to_numpy() if isinstance(own, np.dtype) and own.kind in "fO" else values
    out = _fill(cells, missing, filled, _base(trained), label)
    dtype = trained if out.dtype.kind in "biu" else own
    return pd.array(out, dtype=dtype) if dtype.kind in "biuf" else out


def read_labels(y, *, unlabelled=None) -> tuple[np.ndarray, np.ndarray]:
    """Read class labels.

    Parameters
    ----------
    y : array-like or Series of shape (n,) or (n, 1)
    unlabelled : optional
        The label that marks a row without label; NaN, None and pd.NA always do.

    Returns
    -------
    values, missing : ndarrays of shape (n,)
        The labels (anything where missing; strings may be objects), and where they are missing.

    Examples
    --------
    >>> read_labels([2, None, 1, -1], unlabelled=-1)
    (array([2, 0, 1, 0]), array([False,  True, False,  True]))
    """
    values, missing = _label_cells(y)
    if unlabelled is not None:
        hits = np.asarray(values[~missing] == unlabelled)
        missing[~missing] = hits if hits.dtype == bool else False  # nothing equals pd.NA
    values = _plain(values, missing) if values.dtype == object else values
    present = values[~missing]
    text = values.dtype == object and any(isinstance(label, str) for label in present)
    if not text and values.dtype.kind not in "biuU":  # these are discrete, and the check sorts all the labels
        with np.errstate(invalid="ignore"):
            check_classification_targets(present)
    return values, missing


def _label_cells(y) -> tuple[np.ndarray, np.ndarray]:
    if hasattr(y, "iloc"):  # extension dtypes and one-column frames by way of objects: integers stay integers
        cells = y.to_numpy() if isinstance(y.dtypes, np.dtype) else y.astype(object).to_numpy()
    else:
        cells = np.array(y, dtype=object) if np.ma.isMA(y) else np.asarray(y)
        if np.ma.isMA(y):
            cells[np.ma.getmaskarray(y)] = pd.NA
        if cells.dtype.kind == "U" and cells is not y and not all(isinstance(v, str) for v in y):
            cells = np.asarray(y, dtype=object)  # otherwise NaN has become "nan"
    if cells.ndim != 1 or cells.dtype.kind == "c":
        cells = column_or_1d(cells, warn=True)
    return cells, pd.isna(cells)


def _plain(values: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Objects that are numbers, in the dtype that NumPy gives the present ones."""
    present = values[~missing].tolist()
    if not all(issubclass(t, int | float | np.number | np.bool_) for t in set(map(type, present))):
        return values
    numbers = np.asarray(present)
    values = np.zeros(len(values), numbers.dtype)
    values[~missing] = numbers
    return values


def unique_labels(values: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """The classes among the labels of `read_labels`, sorted.

    Examples
    --------
    >>> unique_labels(*read_labels(["b", None, "a", "b"]))
    array(['a', 'b'], dtype='<U1')
    """
    labels = set(values[~missing].tolist())
    try:
        return np.asarray(sorted(labels), dtype=None if values.dtype == object else values.dtype)
    except TypeError:
        types = _listed({type(label).__name__ for label in labels})
        raise ValueError(f"The labels mix types without an order: {types}. Make them all strings.") from None


def encode(values: np.ndarray, missing: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The positions of the labels of `read_labels` in the sorted `classes`, -1 where missing.

    Examples
    --------
    >>> encode(*read_labels(["b", None, "a", "b"]), np.array(["a", "b"]))
    array([ 1, -1,  0,  1])
    """
    present = values[~missing]
    if len(classes) and values.dtype.kind in "biuf" and classes.dtype.kind in "biuf":
        found = np.searchsorted(classes, present)
        found[np.take(classes, found, mode="clip") != present] = -1
    else:
        place = {label: k for k, label in enumerate(classes.tolist())}
        found = np.array([place.get(label, -1) for label in present.tolist()], dtype=int)
    if (found < 0).any():
        unknown, known = _listed(dict.fromkeys(present[found < 0].tolist())), _listed(classes.tolist())
        raise ValueError(f"y has labels that are not among the classes: {unknown}. Known: {known}.")
    codes = np.full(len(values), -1)
    codes[~missing] = found
    return codes


@dataclass(frozen=True, eq=False)
class LabelSchema:
    """What the training labels looked like: container ("series" or "array"), name, dtype (None for lists).

    Examples
    --------
    >>> LabelSchema.of(pd.Series([1, 2], name="site", dtype="Int8")).write(np.array([2]))
    0    2
    Name: site, dtype: Int8
    """

    container: str
    name: Hashable
    dtype: Any

    @classmethod
    def of(cls, y) -> LabelSchema:
        """The schema of labels that `read_labels` accepts; a one-column frame counts as a Series."""
        y = y.iloc[:, 0] if _is_frame(y) else y
        if hasattr(y, "iloc"):
            return cls("series", y.name, y.dtype)
        return cls("array", None, y.dtype if isinstance(y, np.ndarray) else None)

    def write(self, labels: np.ndarray, index=None):
        """The labels as a Series or an array like the training labels.

        Labels that its dtype cannot hold (classes that came later) keep their own.
        """
        if self.container == "series":
            known = not hasattr(self.dtype, "categories") or np.isin(labels, self.dtype.categories).all()
            written = pd.Series(labels, index=index, name=self.name, dtype=self.dtype if known else None)
            return written if (written == labels).all() else pd.Series(labels, index=index, name=self.name)
        # a string dtype would cut longer labels
        if self.dtype is None or self.dtype.kind == "U":
            return labels
        cast = labels.astype(self.dtype)
        return cast if np.array_equal(cast, labels) else labels
