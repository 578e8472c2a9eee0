"""Data frames, categories and missing cells <-> arrays: tables are read once, and written back as they came.

A table becomes a float64 array with NaN for missing cells and codes for categories, or a csr matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array
from sklearn.utils import check_array

from bayesgen import columns as coding
from bayesgen import labels as discrete
from bayesgen.columns import (
    KINDS,
    as_cells,
    auto_families,
    base,
    guess_family,
    is_sparse,
    numbers,
    refuse_infinite,
    refuse_target_among_columns,
    take,
    where,
)
from bayesgen.labels import LabelSchema, NotANumber, encode, is_frame, listed, read_labels, unique_labels

__all__ = [
    "KINDS",
    "LabelSchema",
    "NotANumber",
    "Schema",
    "as_cells",
    "auto_families",
    "encode",
    "guess_family",
    "is_sparse",
    "read_labels",
    "read_table",
    "refuse_target_among_columns",
    "unique_labels",
]


def read_table(X, *, owner: str, kinds=None) -> np.ndarray:
    """Read a table of numbers.

    Parameters
    ----------
    X : array-like or data frame of shape (n, d)
        Numbers; NaN, None, pd.NA, pd.NaT and masked cells are missing.
    owner : str
        The estimator's name, for messages.
    kinds : sequence of str, optional
        The kinds of the columns, for messages.

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
    columns = X.columns if is_frame(X) else None
    values = coding.read_array(X, kinds) if columns is None else coding.read_frame(X, kinds)
    if type(values) is np.ndarray and values.dtype == np.float64 and values.ndim == 2 and values.size:
        values = np.ascontiguousarray(values)  # check_array would cost ten times as much as the rest
    else:
        values = check_array(values, dtype=np.float64, order="C", ensure_all_finite=False, estimator=owner)
    refuse_infinite(values, columns)
    return values


@dataclass(frozen=True, eq=False)
class Schema:
    """What the training table looked like.

    Attributes
    ----------
    container : str
        "frame", "array" or "sparse".
    columns : pandas Index or None
        The names; None for arrays and sparse matrices.
    dtypes : tuple
        The dtypes of the columns (for arrays all the same, for lists of numbers float64).
    kinds : tuple of str
        "number", "count" (at least 0), "binary" (0 or 1) or "category", one per column.
    categories : tuple
        The values of each "category" column in the order of their codes, None for the others.
    from_dtype : tuple of bool
        Whether the categories are those of a pandas category dtype, and so fixed.
    bases : tuple of NumPy dtypes
        In what the numbers of each column are written.
    matrix : type or None
        The class of a sparse matrix.

    Examples
    --------
    >>> X = pd.DataFrame({"mass": [3.5], "eggs": pd.array([None], dtype="Int64"), "sex": ["f"]})
    >>> schema = Schema.of(X, ["number", "count", "category"])
    >>> schema.read(X, owner="MixedNB")
    array([[3.5, nan, 0. ]])
    >>> schema.write(np.array([[3.25, 1.2, 0]]))
       mass  eggs sex
    0  3.25     1   f
    >>> schema.fill(X, np.array([[9.0, 1.75, 0]]))
       mass  eggs sex
    0   3.5     2   f
    >>> schema.read_given({"eggs": 2})
    array([nan,  2., nan])
    """

    container: str
    columns: Any
    dtypes: tuple
    kinds: tuple[str, ...]
    categories: tuple[pd.Index | None, ...]
    from_dtype: tuple[bool, ...]
    bases: tuple[np.dtype, ...]
    matrix: Any = None

    @classmethod
    def of(cls, X, kinds: str | Sequence[str] | None = None, *, owner: str | None = None) -> Schema:
        """The schema of a table: kinds are all "number" unless given, one for all the columns or one for each."""
        if is_sparse(X):
            schema = cls._plain("sparse", None, (X.dtype,) * X.shape[1], kinds, type(X))
            coding.refuse_sparse_categories(schema.kinds)
            return schema
        if is_frame(X):
            return cls._plain("frame", X.columns.copy(), tuple(X.dtypes), kinds)._learned(X)
        cells = X if kinds is None and np.ndim(X) == 2 else as_cells(X, owner)
        dtypes = (_array_dtype(X, cells, kinds),) * np.shape(cells)[1]
        return cls._plain("array", None, dtypes, kinds)._learned(cells)

    @classmethod
    def _plain(cls, container: str, columns, dtypes: tuple, kinds, matrix=None) -> Schema:
        """A schema without categories."""
        width = len(dtypes)
        kinds = (kinds or "number",) * width if kinds is None or isinstance(kinds, str) else tuple(kinds)
        if len(kinds) != width or not set(kinds) <= set(KINDS):
            raise ValueError(
                f"kinds must be {listed(KINDS)}, one for all the {width} columns or one for each: {listed(kinds)}."
            )
        bases = tuple(map(base, dtypes)) if container == "frame" else tuple(map(base, dtypes[:1])) * width
        return cls(container, columns, dtypes, kinds, (None,) * width, (False,) * width, bases, matrix)

    def _learned(self, X) -> Schema:
        """With the categories of "category" columns, and what counts and binary cells in object columns are."""
        if set(self.kinds) <= {"number"}:
            return self
        if is_frame(X):
            coding.refuse_repeated(X)
        categories, bases = list(self.categories), list(self.bases)
        for j, kind in enumerate(self.kinds):
            if kind == "category":
                categories[j] = discrete.learn(take(X, j), where(self.columns, j))
            elif kind != "number" and self.dtypes[j] == np.dtype(object):
                bases[j] = coding.base_of_cells(take(X, j))
        fixed = tuple(
            isinstance(dtype, pd.CategoricalDtype) and c is not None
            for dtype, c in zip(self.dtypes, categories, strict=True)
        )
        return replace(self, categories=tuple(categories), from_dtype=fixed, bases=tuple(bases))

    @classmethod
    def named(cls, width: int, names=None) -> Schema:
        """The schema of float columns: a frame if they have names, an array if not."""
        columns = None if names is None else pd.Index(list(names))
        return cls._plain("array" if names is None else "frame", columns, (np.dtype(float),) * width, None)

    def name(self, j: int) -> str:
        """The name of column j, or "column 3" where there are no names."""
        return f"column {j}" if self.columns is None else str(self.columns[j : j + 1].tolist()[0])

    @property
    def labels(self) -> list[str]:
        """The names of all the columns."""
        return [self.name(j) for j in range(len(self.dtypes))]

    def sizes(self) -> tuple[int, ...]:
        """The number of categories of each column, 0 where it has none."""
        if "category" not in self.kinds:
            return (0,) * len(self.kinds)
        return tuple(0 if categories is None else len(categories) for categories in self.categories)

    def read(self, X, *, owner: str, handle_unknown: str = "error"):
        """A table as numbers: float64 (n, d), C-contiguous, NaN where missing, categories as codes; csr for a sparse X.

        An unknown category is a ValueError, or missing with `handle_unknown="missing"`. X itself may be returned, so do not
        write into it.
        """
        if set(self.kinds) == {"number"} and not is_sparse(X):
            return read_table(X, owner=owner)
        if is_sparse(X):
            self._refuse_width(X, owner)
            return coding.read_sparse(X, self.kinds, owner)
        if "category" in self.kinds:
            values = self._read_coded(X, owner, handle_unknown)
        else:
            values = read_table(X, owner=owner, kinds=self.kinds)
            self._refuse_width(values, owner)
        coding.refuse_wrong_kinds(values, self.kinds, X.columns if is_frame(X) else None, owner)
        return values

    def _refuse_width(self, X, owner: str) -> None:
        if X.shape[1] != len(self.kinds):
            raise ValueError(f"X has {X.shape[1]} features, but {owner} is expecting {len(self.kinds)} features as input.")

    def _read_coded(self, X, owner: str, handle_unknown: str) -> np.ndarray:
        frame = is_frame(X)
        cells = X if frame else as_cells(X, owner)
        if not cells.size:
            check_array(np.empty(cells.shape), estimator=owner)
        self._refuse_width(cells, owner)
        values = self._read_frame_numbers(cells) if frame else self._read_array_numbers(cells)
        names = X.columns if frame else None
        for j, categories in enumerate(self.categories):
            if categories is not None:
                values[:, j] = discrete.encode_column(take(cells, j), categories, where(names, j), handle_unknown)
        refuse_infinite(values, names)
        return values

    def _read_frame_numbers(self, X) -> np.ndarray:
        """All but the categories of a frame."""
        coding.refuse_repeated(X)
        plain = [j for j, kind in enumerate(self.kinds) if kind != "category"]
        values = np.empty(X.shape)
        if plain:
            values[:, plain] = coding.read_frame(X.iloc[:, plain], tuple(self.kinds[j] for j in plain))
        return values

    def _read_array_numbers(self, cells: np.ndarray) -> np.ndarray:
        """All but the categories of an array."""
        if set(self.kinds) == {"category"}:
            return np.empty(cells.shape)
        if cells.dtype.kind in "OUS":
            cells = cells.astype(object)
            cells[:, [kind == "category" for kind in self.kinds]] = np.nan
        return np.array(coding.read_array(cells, self.kinds), np.float64, order="C")

    def write(self, values, index=None):
        """The (n, d) values as a table like the training table; csr values as the sparse matrix that it was.

        Integers are rounded half to even and clipped to the range of the dtype, booleans are value >= 0.5,
        floats keep their width, codes become categories. NaN for an integer or a boolean is a ValueError.
        """
        if self.container == "sparse":
            out = csr_array(values, copy=True)
            out.data = coding.cast(out.data, self.bases[0], "the matrix")
            return self.matrix(out)
        if self.container == "array" and "category" not in self.kinds and len(set(self.bases)) == 1:
            return coding.cast(values, self.bases[0], "the array")
        cells = [self._write_column(values[:, j], j) for j in range(len(self.dtypes))]
        if self.container == "array":
            return coding.joined(cells, self.dtypes[0])
        index = pd.RangeIndex(len(values)) if index is None else pd.DataFrame(index=index).index
        frame = {j: pd.Series(part, index, object) if part.dtype == object else part for j, part in enumerate(cells)}
        plain = {j: self.dtypes[j] for j, kind in enumerate(self.kinds) if kind != "category"}
        numeric = {j: dtype for j, dtype in plain.items() if dtype.kind in "biuf"}
        return pd.DataFrame(frame, index=index).astype(numeric).set_axis(self.columns.copy(), axis=1)

    def _write_column(self, values: np.ndarray, j: int):
        categories = self.categories[j]
        if categories is None:
            return coding.cast(values, self.bases[j], self.name(j))
        return discrete.decode_column(values, categories, self.dtypes[j], self.name(j))

    def fill(self, X, filled: np.ndarray, handle_unknown: str = "error"):
        """A copy of X with its missing cells, and only those, taken from the (n, d) array `filled`.

        A column that was integer or boolean in training has its filled cells rounded, and comes back in that
        dtype if its observed cells allow it. All others keep their own dtype, and so do nullable integers and
        booleans, and columns without missing cells; a category dtype gets the categories that it lacks. A list becomes
        an array. With `handle_unknown="missing"` unknown categories are missing cells.
        """
        if is_sparse(X):
            return X.copy()
        values = self.read(X, owner="impute", handle_unknown=handle_unknown)
        missing = np.isnan(values)
        if not is_frame(X):
            return self._fill_array(X, values, missing, filled)
        out = X.copy()
        for j in np.flatnonzero(missing.any(axis=0)).tolist():
            out.isetitem(j, self._fill_column(X.iloc[:, j], values[:, j], filled[:, j], j))
        return out

    def _fill_column(self, column, values: np.ndarray, filled: np.ndarray, j: int):
        categories = self.categories[j]
        if categories is None:
            return coding.fill_column(column, values, filled, self.dtypes[j], self.bases[j], self.name(j))
        return coding.fill_categories(column, np.isnan(values), filled, categories, self.dtypes[j], self.name(j))

    def _fill_array(self, X, values: np.ndarray, missing: np.ndarray, filled: np.ndarray) -> np.ndarray:
        coded = "category" in self.kinds
        cells = X if isinstance(X, np.ndarray) and not np.ma.isMA(X) else as_cells(X) if coded else values
        if not coded and (cells.dtype != object or set(self.kinds) == {"number"}):
            return coding.fill(cells, missing, filled, np.result_type(*self.bases), "the array")
        if not missing.any():
            return np.array(cells)
        parts = [self._fill_part(cells[:, j], missing[:, j], filled[:, j], j) for j in range(len(self.kinds))]
        regained = cells.dtype == object and any(dtype != np.dtype(object) for dtype in self.dtypes)
        return coding.joined(parts, None if regained else cells.dtype)

    def _fill_part(self, cells: np.ndarray, missing: np.ndarray, filled: np.ndarray, j: int):
        categories = self.categories[j]
        if categories is None:
            return coding.fill(cells, missing, filled, self.bases[j], self.name(j))
        return coding.fill_categories(cells, missing, filled, categories, self.dtypes[j], self.name(j))

    def read_given(self, given) -> np.ndarray:
        """The fixed cells of one row, (d,), with NaN where nothing is given.

        `given` is a dict, a Series or a one-row data frame, keyed by column name (by position for arrays).
        """
        row = self._given_row(given)
        plain = row.copy()
        plain[:, [kind == "category" for kind in self.kinds]] = None
        values = numbers(plain, self.columns, "given", self.kinds)
        refuse_infinite(values, self.columns, "given")
        coding.refuse_wrong_kinds(values, self.kinds, self.columns, "given")
        for j, categories in enumerate(self.categories):
            if categories is not None:
                values[:, j] = discrete.encode_column(row[:, j], categories, where(self.columns, j), what="given")
        return values[0]

    def _given_row(self, given) -> np.ndarray:
        given = given.squeeze(axis=0) if is_frame(given) else given
        if not hasattr(given, "items") or is_frame(given):
            raise ValueError("given must be a dict, a Series or a data frame with one row.")
        names = range(len(self.dtypes)) if self.columns is None else self.columns.tolist()
        place = {name: j for j, name in enumerate(names)}
        if unknown := [name for name in list(given.keys()) if name not in place]:
            raise ValueError(f"given has unknown columns: {listed(unknown)}. Known: {listed(names)}.")
        if len(set(given.keys())) < len(given):
            raise ValueError(f"given has repeated columns: {listed(given.keys())}.")
        row = np.full((1, len(place)), None)
        for name, cell in given.items():
            row[0, place[name]] = cell
        return row

    def grown(self, X, *, owner: str) -> tuple[Schema, list[np.ndarray | None]]:
        """With the categories that more rows bring, unless a dtype fixes them; and the new code of each old one."""
        cells = X if is_frame(X) else as_cells(X, owner)
        self._refuse_width(cells, owner)
        categories = list(self.categories)
        for j, old in enumerate(categories):
            if old is not None and not self.from_dtype[j]:
                codes, values = discrete.factor(take(cells, j), where(self.columns, j))
                categories[j] = discrete.merged(old, values[np.unique(codes[codes >= 0])])
        schema = replace(self, categories=tuple(categories))
        return schema, _codes_in(schema, self)

    def without(self, emptied: dict[int, np.ndarray]) -> tuple[Schema, list[np.ndarray | None]]:
        """Without the categories marked, by column, unless a dtype fixes them; and the new code of each old one.

        A column keeps its categories if none would be left.
        """
        categories = list(self.categories)
        for j, marked in emptied.items():
            old = categories[j]
            if old is not None and not self.from_dtype[j] and not marked.all():
                categories[j] = old[~marked]
        schema = replace(self, categories=tuple(categories))
        return schema, _codes_in(schema, self)

    def union(self, other: Schema) -> tuple[Schema, list[np.ndarray | None], list[np.ndarray | None]]:
        """The schema of both tables together, and the new code of each old one, per column, for this and the other.

        Categories of a category dtype are fixed: both tables must have the same, or the other fewer if it has no such dtype.
        """
        both = [self._union_column(other, j) for j in range(len(self.kinds))]
        categories, dtypes, fixed = (tuple(part) for part in zip(*both, strict=True))
        merged = replace(self, categories=categories, dtypes=dtypes, from_dtype=fixed)
        return merged, _codes_in(merged, self), _codes_in(merged, other)

    def _union_column(self, other: Schema, j: int) -> tuple:
        """Categories, dtype, and whether they come from it."""
        a, b = self.categories[j], other.categories[j]
        if self.kinds[j] != other.kinds[j]:
            raise ValueError(
                f"{where(self.columns, j)} is a {self.kinds[j]} in one table and a {other.kinds[j]} in the other."
            )
        if a is None or b is None:
            return None, self.dtypes[j], False
        if not (self.from_dtype[j] or other.from_dtype[j]):
            return discrete.merged(a, b), self.dtypes[j], False
        mine, theirs = set(a.tolist()), set(b.tolist())
        if not (mine == theirs or (mine < theirs and not self.from_dtype[j]) or (theirs < mine and not other.from_dtype[j])):
            raise ValueError(
                f"The categories of {where(self.columns, j)} differ: {listed(mine ^ theirs, most=5)} in one table only. A "
                "category dtype fixes them: give both tables the same."
            )
        return (a, self.dtypes[j], True) if self.from_dtype[j] else (b, other.dtypes[j], True)


def _array_dtype(X, cells, kinds) -> np.dtype:
    """The dtype of an array; lists of numbers are floats, unless all are discrete."""
    if isinstance(X, np.ndarray):
        return X.dtype
    discrete = kinds is not None and ("category" in kinds or (cells.dtype.kind in "biu" and "number" not in kinds))
    return cells.dtype if discrete else np.dtype(float)


def _codes_in(merged: Schema, old: Schema) -> list[np.ndarray | None]:
    pairs = zip(old.categories, merged.categories, strict=True)
    return [None if a is None or b is None else discrete.translate(a, b).astype(int) for a, b in pairs]
