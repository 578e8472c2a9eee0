"""Discrete values <-> codes: class labels, and the categories of a column.

Labels become an array and a mask, then codes; the cells of a category column become codes, floats with NaN for missing.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets


class NotANumber(TypeError, ValueError):
    """A cell that is not a number: a wrong value to users, a wrong type to scikit-learn's own checks."""


def is_frame(X) -> bool:
    """Whether X is a data frame."""
    return hasattr(X, "iloc") and X.ndim == 2


def listed(names, most: int = 10) -> str:
    """The first names, and how many there are."""
    names = list(names)
    return ", ".join(map(repr, names[:most])) + f", ... ({len(names)} in all)" * (len(names) > most)


# ---- class labels


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
        types = listed({type(label).__name__ for label in labels})
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
        unknown, known = listed(dict.fromkeys(present[found < 0].tolist())), listed(classes.tolist())
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
        y = y.iloc[:, 0] if is_frame(y) else y
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


# ---- categories


def factor(cells, place: str, what: str = "Input X") -> tuple[np.ndarray, pd.Index]:
    """Which distinct value each cell has, -1 where missing, and the distinct values.

    Examples
    --------
    >>> factor(np.array(["b", None, "a", "b"], dtype=object), "column 0")
    (array([ 0, -1,  1,  0]), Index(['b', 'a'], dtype='object'))
    """
    array = cells.array if isinstance(cells.dtype, pd.api.extensions.ExtensionDtype) else np.asarray(cells)
    if isinstance(array, pd.Categorical):
        return array.codes, array.categories
    if isinstance(array, pd.arrays.SparseArray):
        array = np.asarray(array)
    elif array.dtype.kind == "f" and not isinstance(array, np.ndarray):  # NaN beside NA would be a value
        array = array.to_numpy(np.float64, na_value=np.nan)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {place} of {what} has dtype {array.dtype}.")
    if isinstance(array, np.ndarray):
        array = np.ascontiguousarray(array, _factored(array.dtype))
        if array.dtype.kind in "biu" and len(array) and array.min() >= 0 and array.max() < max(len(array), 2**16):
            return _factor_small(array)
    try:
        codes, values = pd.factorize(array)
    except TypeError as error:
        raise _unhashable(array, f"{what} has a cell that is no category: {place}", error) from error
    return codes, _index(values)


def _factored(dtype: np.dtype) -> np.dtype:
    """The dtype that pandas can hash: no text of fixed width, no half floats, no foreign byte order."""
    if dtype.kind in "OUS":
        return np.dtype(object)
    return np.dtype(float) if dtype.kind == "f" and dtype.itemsize not in (4, 8) else dtype.newbyteorder("=")


def _factor_small(array: np.ndarray) -> tuple[np.ndarray, pd.Index]:
    """Booleans and small integers by a table of all the numbers up to the largest, which no hash can match."""
    places = array.view(np.uint8) if array.dtype == bool else array
    seen = np.zeros(int(places.max()) + 1, bool)
    seen[places] = True
    return (np.cumsum(seen) - 1)[places], pd.Index(np.flatnonzero(seen).astype(array.dtype))


def _unhashable(array, place: str, error: TypeError) -> Exception:
    for i, cell in enumerate(array):
        try:
            hash(cell)
        except TypeError:
            return NotANumber(
                f"{place}, row {i} is {cell!r:.60} ({error}: the argument must be a string, a number or a tuple). "
                "Encode it, or drop the column."
            )
    return error


def _index(values) -> pd.Index:
    if isinstance(values, np.ndarray) and values.dtype == object:
        return pd.Index(values, dtype=object, tupleize_cols=False)
    return pd.Index(values)


def learn(cells, place: str) -> pd.Index:
    """The categories of a column: those of its category dtype, else its values, sorted if they sort.

    Examples
    --------
    >>> learn(np.array([3, 1, 3]), "column 0")
    Index([1, 3], dtype='int64')
    """
    if isinstance(cells.dtype, pd.CategoricalDtype):
        categories = cells.dtype.categories
    else:
        _, values = factor(cells, place)
        categories = ordered(values)
    if len(categories):
        return categories
    raise ValueError(
        f"Input X has no observed value in {place}, its categories are unknown: give it a category dtype or drop it."
    )


def ordered(values: pd.Index) -> pd.Index:
    """Sorted values; mixed types, which do not sort, as they are."""
    if values.dtype.kind in "biufmM":
        return values.sort_values()
    cells = values.tolist()
    try:
        return values.take(sorted(range(len(cells)), key=cells.__getitem__))
    except TypeError:
        return values


def translate(values: pd.Index, categories: pd.Index) -> np.ndarray:
    """The code of each value, as a float: -1 for an unknown one. Values are compared as Python does: 1 == 1.0 == True.

    Examples
    --------
    >>> translate(pd.Index([2.0, 7.0]), pd.Index([1, 2]))
    array([ 1., -1.])
    """
    if values.equals(categories):
        return np.arange(len(values), dtype=np.float64)
    place = {value: code for code, value in enumerate(categories.tolist())}
    return np.array([place.get(value, -1) for value in values.tolist()], dtype=np.float64)


def encode_column(
    cells, categories: pd.Index, place: str, handle_unknown: str = "error", what: str = "Input X"
) -> np.ndarray:
    """The cells of a column as codes, floats with NaN for missing; an unknown value is refused, or missing.

    Examples
    --------
    >>> encode_column(np.array(["b", None, "a"], dtype=object), pd.Index(["a", "b"]), "column 0")
    array([ 1., nan,  0.])
    """
    codes, values = factor(cells, place, what)
    table = np.append(translate(values, categories), np.nan)  # the last is the place of -1
    encoded = table[codes]
    if (table >= 0).sum() < len(values) and (unknown := encoded < 0).any():
        if handle_unknown == "error":
            news = listed(values[np.unique(codes[unknown])].tolist(), most=5)
            advice = "" if what == "given" else " With handle_unknown='missing' they count as missing cells."
            raise ValueError(
                f"{what} has unknown categories in {place}: {news}. Known: {listed(categories.tolist(), most=5)}.{advice}"
            )
        encoded[unknown] = np.nan
    return encoded


def decode_column(codes: np.ndarray, categories: pd.Index, dtype, label: str):
    """Codes as values, in the dtype of training if it holds all the categories; NaN is missing where that can be."""
    missing = np.isnan(codes)
    places = np.where(missing, -1, codes).astype(np.intp)
    if isinstance(dtype, pd.CategoricalDtype):
        return pd.Categorical.from_codes(places, dtype=dtype)
    cells = categories.astype(object).to_numpy()
    values = held(cells, dtype)
    values = cells if values is None else values
    if not missing.any():
        return values.take(places)
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuUS":
        raise ValueError(f"NaN cannot be written as {values.dtype}: the values for {label} are not all categories.")
    return pd.api.extensions.take(values, places, allow_fill=True)


def held(cells: np.ndarray, dtype):
    """Objects as an array of a dtype, or None where it does not hold them as they are.

    Examples
    --------
    >>> held(np.array([1, 0], dtype=object), np.dtype(bool))
    array([ True, False])
    >>> held(np.array([1.5, 0], dtype=object), np.dtype(int)) is None
    True
    """
    try:
        if not isinstance(dtype, np.dtype):
            inner = getattr(dtype, "numpy_dtype", np.dtype(object))  # nullable booleans refuse 1.0
            out: Any = pd.array(cells.astype(inner) if inner.kind in "biuf" else cells, dtype=dtype)
        elif dtype.kind in "US":  # as long as the longest string
            text = cells.astype(dtype.type)
            out = text.astype(np.result_type(text, dtype))
        else:
            out = cells.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return None
    return out if np.array_equal(pd.Series(out).astype(object), cells) else None


def merged(a: pd.Index, b: pd.Index) -> pd.Index:
    """The categories of two tables together, in the order of `learn`.

    Examples
    --------
    >>> merged(pd.Index([1, 3]), pd.Index([2.5, 3.0]))
    Index([1.0, 2.5, 3.0], dtype='float64')
    """
    values = list(dict.fromkeys(a.tolist() + b.tolist()))
    both = pd.Index(np.fromiter(values, object, len(values)), dtype=object, tupleize_cols=False)
    return ordered(both.astype(a.dtype) if a.dtype == b.dtype else both.infer_objects())
