"""Columns that are not plain numbers: categories, binary cells, counts, sparse matrices; read, refused, written back."""

from __future__ import annotations

import copy
import pickle
import time
import warnings
from datetime import date

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from bayesgen.tables import (
    KINDS,
    Schema,
    auto_families,
    guess_family,
    is_sparse,
    refuse_target_among_columns,
)

NAN = np.nan


def read(schema, X, **how):
    return schema.read(X, owner="MixedNB", **how)


def same(a, b):
    """Equal values, NaN included, and equal dtypes."""
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)


def same_objects(a, b):
    """Object arrays with the same values of the same types."""
    assert a.dtype == b.dtype == object and a.shape == b.shape
    assert [(type(x), x) for x in a.flat] == [(type(x), x) for x in b.flat]


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# ---- categories of a frame: one column of each dtype, its values in code order, and its codes

DATES = [date(2020, 1, 1), date(2021, 1, 1)]
YEARS = [pd.Period("2020", freq="Y"), pd.Period("2021", freq="Y")]
SERIES = {
    "str": (pd.Series(["b", "a", None, "b"]), ["a", "b"], [1, 0, NAN, 1]),
    "object": (pd.Series(["b", None, NAN, "a"], dtype=object), ["a", "b"], [1, NAN, NAN, 0]),
    "object of every missing": (pd.Series(["b", pd.NA, pd.NaT, None], dtype=object), ["b"], [0, NAN, NAN, NAN]),
    "object bools": (pd.Series([True, None, False, True], dtype=object), [False, True], [1, NAN, 0, 1]),
    "object mixed": (pd.Series(["x", 3, None, (1, 2)], dtype=object), ["x", 3, (1, 2)], [0, 1, NAN, 2]),
    "object tuples": (pd.Series([(2, 1), (1, 2), None, (2, 1)], dtype=object), [(1, 2), (2, 1)], [1, 0, NAN, 1]),
    "object dates": (pd.Series(DATES[::-1], dtype=object), DATES, [1, 0]),
    "string[python]": (pd.Series(["b", "a", None], dtype="string[python]"), ["a", "b"], [1, 0, NAN]),
    "int64": (pd.Series([30, 10, 30]), [10, 30], [1, 0, 1]),
    "negative int8": (pd.Series([3, -1, 3], dtype="int8"), [-1, 3], [1, 0, 1]),
    "uint64": (pd.Series([2**64 - 1, 5], dtype="uint64"), [5, 2**64 - 1], [1, 0]),
    "large int64": (pd.Series([2**62 + 1, 2**62]), [2**62, 2**62 + 1], [1, 0]),
    "bool": (pd.Series([True, False, True]), [False, True], [1, 0, 1]),
    "float64": (pd.Series([2.5, NAN, 1.0]), [1.0, 2.5], [1, NAN, 0]),
    "float32": (pd.Series([2.5, NAN, 0.1], dtype="float32"), np.array([0.1, 2.5], "f4").tolist(), [1, NAN, 0]),
    "float16": (pd.Series([2.5, NAN, 0.1], dtype="float16"), np.array([0.1, 2.5], "f2").tolist(), [1, NAN, 0]),
    "Int64": (pd.Series([3, None, 1], dtype="Int64"), [1, 3], [1, NAN, 0]),
    "UInt8": (pd.Series([3, None, 1], dtype="UInt8"), [1, 3], [1, NAN, 0]),
    "Float32": (pd.Series([2.5, None, 1.5], dtype="Float32"), [1.5, 2.5], [1, NAN, 0]),
    "boolean": (pd.Series([True, None, False], dtype="boolean"), [False, True], [1, NAN, 0]),
    "category": (pd.Series(pd.Categorical(["b", None, "a"], categories=["c", "b", "a"])), ["c", "b", "a"], [1, NAN, 2]),
    "ordered": (pd.Series(pd.Categorical([2, 1], categories=[3, 2, 1], ordered=True)), [3, 2, 1], [1, 2]),
    "category of bools": (pd.Series(pd.Categorical([True, None, False])), [False, True], [1, NAN, 0]),
    "category of intervals": (pd.cut(pd.Series([1.0, 9.0, NAN]), [0, 5, 10]), [*pd.interval_range(0, 10, 2)], [0, 1, NAN]),
    "datetime": (pd.Series(pd.to_datetime(["2021", None, "2020"])), pd.to_datetime(["2020", "2021"]).tolist(), [1, NAN, 0]),
    "datetime with zone": (
        pd.Series(pd.to_datetime(["2021", None]).tz_localize("UTC")),
        [pd.Timestamp("2021", tz="UTC")],
        [0, NAN],
    ),
    "period": (pd.Series([YEARS[1], pd.NaT, YEARS[0]]), YEARS, [1, NAN, 0]),
    "sparse": (pd.Series(pd.arrays.SparseArray([0, 0, 4])), [0, 4], [0, 0, 1]),
}  # fmt: skip


@pytest.mark.parametrize("name", SERIES)
def test_category_columns_of_every_dtype_come_back(name):
    column, values, codes = SERIES[name]
    frame = pd.DataFrame({"mass": np.arange(len(column)) / 2, "hue": column}).set_index(np.arange(len(column)) // 2)
    schema = Schema.of(frame, ["number", "category"])
    assert schema.categories[0] is None and schema.categories[1].tolist() == values
    assert schema.sizes() == (0, len(values))
    assert schema.from_dtype == (False, isinstance(column.dtype, pd.CategoricalDtype))
    read_back = read(schema, frame)
    assert read_back.flags.c_contiguous
    same(read_back, np.column_stack([np.arange(len(column)) / 2, np.array(codes, dtype=float)]))

    seen = column.notna().to_numpy()
    written = schema.write(read_back[seen], index=frame.index[seen])
    expected = frame[seen]
    if name == "sparse":
        expected = expected.astype({"hue": written["hue"].dtype})
    pd.testing.assert_frame_equal(written, expected)
    assert [type(cell) for cell in written["hue"]] == [type(cell) for cell in expected["hue"]]


@pytest.mark.parametrize("name", SERIES)
def test_fill_gives_the_missing_cells_a_category_and_leaves_the_rest(name):
    column, values, codes = SERIES[name]
    frame = pd.DataFrame({"hue": column}).set_index(np.arange(len(column)) // 2)
    before = frame.copy()
    schema = Schema.of(frame, "category")
    last = float(len(values) - 1)
    filled = schema.fill(frame, np.full((len(column), 1), last))
    pd.testing.assert_frame_equal(frame, before)
    assert filled["hue"].dtype == column.dtype and filled.index.equals(frame.index)
    same(read(schema, filled)[:, 0], np.where(np.isnan(codes), last, codes))
    seen = column.notna().to_numpy()
    assert filled["hue"][seen].tolist() == column[seen].tolist()


def test_missing_codes_are_written_as_missing_where_the_dtype_can():
    for name in ("str", "object", "string[python]", "float64", "Int64", "boolean", "category", "datetime"):
        schema = Schema.of(pd.DataFrame({"hue": SERIES[name][0]}), "category")
        written = schema.write(np.array([[0.0], [NAN]]))["hue"]
        assert written.isna().tolist() == [False, True] and written.dtype == SERIES[name][0].dtype
    for name in ("int64", "bool"):
        schema = Schema.of(pd.DataFrame({"hue": SERIES[name][0]}), "category")
        with pytest.raises(ValueError, match="NaN.*hue"):
            schema.write(np.array([[0.0], [NAN]]))


def test_nan_in_a_nullable_float_is_missing_too():
    cells = pd.arrays.FloatingArray(np.array([NAN, 2.0, 1.0]), np.array([False, False, True]))
    frame = pd.DataFrame({"a": cells})
    schema = Schema.of(frame, "category")
    assert schema.categories[0].tolist() == [2.0]
    same(read(schema, frame), np.array([[NAN], [0.0], [NAN]]))


def test_pyarrow_strings():
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"hue": pd.Series(["b", None, "a"], dtype="string[pyarrow]")})
    schema = Schema.of(frame, "category")
    same(read(schema, frame), np.array([[1.0], [NAN], [0.0]]))
    assert schema.write(np.array([[1.0]]))["hue"].dtype == frame["hue"].dtype


# ---- categories of an array

ARRAYS = {
    "int": (np.array([[3, 1], [5, 1]]), [[3, 5], [1]], [[0, 0], [1, 0]]),
    "int8": (np.array([[-3, 1], [5, 1]], dtype="i1"), [[-3, 5], [1]], [[0, 0], [1, 0]]),
    "big-endian int": (np.array([[300, 1], [5, 1]], dtype=">i4"), [[5, 300], [1]], [[1, 0], [0, 0]]),
    "big-endian float": (np.array([[300, 1.5], [NAN, 1]], dtype=">f8"), [[300], [1, 1.5]], [[0, 1], [NAN, 0]]),
    "bool": (np.array([[True, False], [False, False]]), [[False, True], [False]], [[1, 0], [0, 0]]),
    "float": (np.array([[0.5, NAN], [-1.0, 2.0]]), [[-1, 0.5], [2]], [[1, NAN], [0, 0]]),
    "half": (np.array([[0.5, NAN], [-1.0, 2.0]], dtype="f2"), [[-1, 0.5], [2]], [[1, NAN], [0, 0]]),
    "str": (np.array([["b", "long"], ["a", "x"]]), [["a", "b"], ["long", "x"]], [[1, 0], [0, 1]]),
    "bytes": (np.array([[b"b"], [b"a"]]), [[b"a", b"b"]], [[1], [0]]),
    "object": (np.array([["b", 2], [None, 1]], dtype=object), [["b"], [1, 2]], [[0, 1], [NAN, 0]]),
    "object mixed": (np.array([["b"], [1]], dtype=object), [["b", 1]], [[0], [1]]),
    "days": (np.array([["2021-01-02"], ["2020-01-01"]], dtype="M8[D]"), None, [[1], [0]]),
    "Fortran": (np.asfortranarray([[3, 1], [5, 2]]), [[3, 5], [1, 2]], [[0, 0], [1, 1]]),
    "strided": (np.array([[3, 9, 1], [5, 9, 2]])[:, ::2], [[3, 5], [1, 2]], [[0, 0], [1, 1]]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_category_arrays_of_every_dtype_come_back(name):
    X, values, codes = ARRAYS[name]
    X.flags.writeable = False
    schema = Schema.of(X, "category")
    assert values is None or [c.tolist() for c in schema.categories] == values
    same(read(schema, X), np.array(codes, dtype=float))
    written = schema.write(np.nan_to_num(np.array(codes, dtype=float)))
    assert written.dtype == X.dtype
    seen = ~np.isnan(np.array(codes, dtype=float))
    same(written[seen], X[seen])


def test_category_arrays_keep_strings_whole():
    short, long = np.array([["a"], ["b"]]), np.array([["a long one"]])
    merged, mine, theirs = Schema.of(short, "category").union(Schema.of(long, "category"))
    same(merged.write(np.array([[0.0], [1.0]])), np.array([["a"], ["a long one"]]))
    wide = np.array([["a", "long"]])
    assert Schema.of(wide, "category").write(np.zeros((1, 2))).dtype == wide.dtype
    assert Schema.of(wide[:, :1], "category").write(np.zeros((1, 1))).dtype == wide.dtype


def test_lists_keep_numbers_beside_text():
    X = [["a", 1.5, True], ["b", None, False], ["a", 2, None]]
    schema = Schema.of(X, ["category", "number", "binary"])
    assert schema.container == "array" and schema.categories[0].tolist() == ["a", "b"]
    same(read(schema, X), np.array([[0, 1.5, 1], [1, NAN, 0], [0, 2, NAN]]))
    same_objects(schema.write(np.array([[1.0, 0.25, 1.0]])), np.array([["b", 0.25, True]], dtype=object))
    assert Schema.of([["1"], ["2"]], "category").categories[0].tolist() == ["1", "2"]
    assert Schema.of([["1"], [1]], "category").sizes() == (2,)
    assert Schema.of([["a"], [NAN]], "category").sizes() == (1,)
    same(Schema.of([["a"], ["b"]], "category").write(np.array([[1.0]])), np.array([["b"]]))


def test_lists_of_whole_numbers_are_floats_unless_all_columns_are_discrete():
    assert Schema.of([[1, 2]], ["category", "count"]).write(np.array([[0.0, 1.6]])).tolist() == [[1, 2]]
    assert Schema.of([[1, 2]], ["count", "binary"]).dtypes[0].kind == "i"
    assert Schema.of([[1, 2]], ["number", "count"]).dtypes[0].kind == "f"
    same(Schema.of([[1, 2]]).write(np.array([[0.25, 0.5]])), np.array([[0.25, 0.5]]))


def test_masked_cells_are_missing():
    X = np.ma.masked_equal(np.array([[7, 99], [99, 4]]), 99)
    schema = Schema.of(X, ["category", "count"])
    assert schema.categories[0].tolist() == [7]
    same(read(schema, X), np.array([[0, NAN], [NAN, 4.0]]))
    same(schema.write(np.array([[0.0, 2.6]])), np.array([[7, 3]]))
    same(schema.fill(X, np.array([[0, 1.4], [0, 0]])), np.array([[7, 1], [7, 4]]))


def test_text_arrays_with_numbers():
    X = np.array([["a", "1.5"], ["b", "2"]])
    schema = Schema.of(X, ["category", "number"])
    same(read(schema, X), np.array([[0, 1.5], [1, 2]]))
    same_objects(schema.write(np.array([[1.0, 0.5]])), np.array([["b", 0.5]], dtype=object))
    with pytest.raises(ValueError, match="column 1, row 0 is 'x'"):
        read(schema, np.array([["a", "x"]]))


# ---- the same values in other clothes


@pytest.mark.parametrize(
    "cells",
    [
        np.array([2, 1]),
        np.array([2.0, 1.0]),
        np.array([2, 1], dtype="u1"),
        np.array([2, 1], dtype="f2"),
        np.array([2, True], dtype=object),
        pd.array([2, 1], dtype="Int64"),
        pd.array([2, 1], dtype="Float32"),
        pd.Categorical([2, 1], categories=[2, 1, 0]),
        pd.Categorical([2.0, 1.0], categories=[5.0, 2.0, 1.0]),
        pd.arrays.SparseArray([2, 1]),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "trained", [np.array([1, 2]), np.array([1.0, 2.0]), pd.array([1, 2], dtype="Int8"), pd.Categorical([1, 2])]
)
def test_numbers_are_matched_by_value(trained, cells):
    schema = Schema.of(pd.DataFrame({"a": trained}), "category")
    same(read(schema, pd.DataFrame({"a": cells})), np.array([[1.0], [0.0]]))
    if isinstance(cells, np.ndarray):
        same(read(schema, cells[:, None]), np.array([[1.0], [0.0]]))


@pytest.mark.parametrize(
    "cells",
    [
        np.array(["b", "a"], dtype=object),
        np.array(["b", "a"]),
        pd.array(["b", "a"], dtype="string"),
        pd.Categorical(["b", "a"], categories=["b", "a"]),
        pd.Categorical(["b", "a"], categories=["unused", "a", "b"]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("trained", [["a", "b"], pd.Categorical(["a", "b"]), pd.array(["a", "b"], dtype="string")])
def test_text_is_matched_by_value_never_by_code(trained, cells):
    schema = Schema.of(pd.DataFrame({"a": trained}), "category")
    same(read(schema, pd.DataFrame({"a": cells})), np.array([[1.0], [0.0]]))


def test_booleans_and_numbers_match_text_does_not():
    schema = Schema.of(pd.DataFrame({"a": [True, False]}), "category")
    for cells in ([1, 0], [1.0, 0.0], pd.array([True, False], dtype="boolean"), pd.Series([True, False], dtype=object)):
        same(read(schema, pd.DataFrame({"a": cells})), np.array([[1.0], [0.0]]))
    with pytest.raises(ValueError, match="unknown categories in column 'a': 'False', 'True'|'True', 'False'"):
        read(schema, pd.DataFrame({"a": ["True", "False"]}))
    with pytest.raises(ValueError, match="unknown categories in column 0: '1'"):
        read(Schema.of(np.array([[1]]), "category"), np.array([["1"]]))


def test_large_integers_are_not_rounded():
    schema = Schema.of(np.array([[2**53], [2**53 + 1]]), "category")
    same(read(schema, np.array([[2**53 + 1], [2**53]])), np.array([[1.0], [0.0]]))
    same(schema.write(np.array([[1.0]])), np.array([[2**53 + 1]]))


# ---- unknown values


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["a", "z", "y", "z"], "'z', 'y'"),
        (pd.Categorical(["a", "z", "y"], categories=["z", "y", "a", "not there"]), "'z', 'y'"),
        (pd.array(["z"], dtype="string"), "'z'"),
        (list("cdefghi"), r"'c', 'd', 'e', 'f', 'g', \.\.\. \(7 in all\)"),
        ([1, 2], "1, 2"),
    ],
)
def test_unknown_values_are_named(cells, words):
    schema = Schema.of(pd.DataFrame({"hue": ["a", "b"]}), "category")
    frame = pd.DataFrame({"hue": cells})
    with pytest.raises(ValueError, match=rf"unknown categories in column 'hue': {words}\. Known: 'a', 'b'\.") as caught:
        read(schema, frame)
    assert "handle_unknown='missing'" in str(caught.value)
    codes = read(schema, frame, handle_unknown="missing")
    same(codes[:, 0], np.where(frame["hue"].astype(object) == "a", 0.0, NAN))


def test_unused_unknown_categories_do_no_harm():
    schema = Schema.of(pd.DataFrame({"hue": ["a", "b"]}), "category")
    same(read(schema, pd.DataFrame({"hue": pd.Categorical(["b"], categories=["z", "b"])})), np.array([[1.0]]))


def test_unused_categories_of_the_dtype_are_known():
    schema = Schema.of(pd.DataFrame({"hue": pd.Categorical(["a"], categories=["b", "a"])}), "category")
    same(read(schema, pd.DataFrame({"hue": ["b"]})), np.array([[0.0]]))


def test_a_column_without_values():
    for cells in ([None, None], [NAN, NAN], pd.array([None, None], dtype="Int64"), pd.Categorical([None, None])):
        frame = pd.DataFrame({"a": [1.0, 2.0], "hue": cells})
        with pytest.raises(ValueError, match="column 'hue', its categories are unknown.*category dtype.*drop"):
            Schema.of(frame, ["number", "category"])
    frame = pd.DataFrame({"hue": pd.Categorical([None, None], categories=["a"])})
    schema = Schema.of(frame, "category")
    assert schema.sizes() == (1,)
    same(read(schema, frame), np.full((2, 1), NAN))


def test_all_missing_rows_and_columns_are_read():
    frame = pd.DataFrame({"a": ["x", "y"], "n": [1, 2], "b": [True, False], "m": [1.0, NAN]})
    schema = Schema.of(frame, ["category", "count", "binary", "number"])
    for hole in (None, NAN, pd.NA):
        table = pd.DataFrame(np.full((3, 4), hole, dtype=object), columns=frame.columns)
        same(read(schema, table), np.full((3, 4), NAN))


@pytest.mark.parametrize("cell", [[1, 2], {"a": 1}, {1}, np.ones(2)], ids=repr)
def test_unhashable_cells_are_named(cell):
    column = pd.Series(["a", None, None, "b"], dtype=object)
    column[2] = cell
    frame = pd.DataFrame({"hue": column})
    with pytest.raises(ValueError, match="column 'hue', row 2 is .*unhashable"):
        Schema.of(frame, "category")
    with pytest.raises(ValueError, match="column 'hue', row 2 is "):
        read(Schema.of(frame.iloc[:2], "category"), frame)
    with pytest.raises(ValueError, match="column 0, row 2 is "):
        Schema.of(frame.to_numpy(), "category")


# ---- counts and binary cells


@pytest.mark.parametrize(
    "cells",
    [[0, 3], [0.0, 3.0], pd.array([0, 3], dtype="Int16"), pd.Series([0, 3], dtype=object), np.array([0, 3], dtype="u1")],
    ids=repr,
)
def test_counts_are_read_and_negative_ones_named(cells):
    frame = pd.DataFrame({"a": [1.0, -2.0], "eggs": cells})
    schema = Schema.of(frame, ["number", "count"])
    same(read(schema, frame), np.array([[1.0, 0.0], [-2.0, 3.0]]))
    bad = pd.DataFrame({"a": [1.0, -2.0], "eggs": [4.5, -0.5]})
    with pytest.raises(ValueError, match=r"^Negative values in data passed to MixedNB: column 'eggs', row 1 is -0\.5\."):
        read(schema, bad)
    with pytest.raises(ValueError, match=r"Negative values in data.*column 1, row 1 is -0\.5"):
        read(schema, bad.to_numpy())


def test_a_negative_count_far_down_is_named():
    X = np.zeros((40_000, 3))
    X[5, 2] = NAN
    schema = Schema.of(X, "count")
    assert read(schema, X) is X
    X[33_333, 1] = -1
    with pytest.raises(ValueError, match="column 1, row 33333 is -1.0"):
        read(schema, X)


@pytest.mark.parametrize(
    "cells",
    [
        [1, 0, 1],
        [1.0, 0.0, NAN],
        [True, False, True],
        pd.array([True, None, False], dtype="boolean"),
        pd.array([1, None, 0], dtype="Int8"),
        pd.Series([True, None, 0], dtype=object),
        pd.Categorical([1, None, 0]),
    ],
    ids=repr,
)
def test_binary_cells(cells):
    frame = pd.DataFrame({"ill": cells})
    expected = np.array([[NAN if pd.isna(cell) else float(cell)] for cell in frame["ill"]])
    schema = Schema.of(frame, "binary")
    same(read(schema, frame), expected)
    same(read(schema, frame.to_numpy()), expected)


@pytest.mark.parametrize("cell", [2, 0.5, -1, "yes", 1e308, np.inf])
def test_cells_that_are_not_binary_are_named(cell):
    column = pd.Series([True, None, False], dtype=object)
    schema = Schema.of(pd.DataFrame({"a": [1.0] * 3, "ill": column}), ["number", "binary"])
    column[2] = cell
    frame = pd.DataFrame({"a": [1.0] * 3, "ill": column})
    for X, name in ((frame, "'ill'"), (frame.to_numpy(), "1"), (frame.to_numpy().tolist(), "1")):
        with pytest.raises(ValueError, match=f"column {name}, row 2 ") as caught:
            read(schema, X)
        shown = repr(cell) if isinstance(cell, str) else str(float(cell))
        assert shown in str(caught.value)
        assert cell == np.inf or ("binarize=threshold" in str(caught.value) and "categorical" in str(caught.value))


def test_the_first_wrong_cell_is_looked_for_in_its_own_kind_only():
    X = np.array([[-5.0, 7.0, 0.5, 9.0], [1.0, 0.0, 1.0, NAN]])
    schema = Schema.of(X, ["number", "count", "number", "count"])
    assert read(schema, X) is X
    schema = Schema.of(np.zeros((1, 4)), ["number", "count", "binary", "category"])
    with pytest.raises(ValueError, match="not binary.*column 2, row 0 is 0.5"):
        read(schema, X, handle_unknown="missing")


def test_numbers_beside_categories_keep_their_messages():
    frame = pd.DataFrame({"hue": ["a", "b"], "mass": [1.0, 2.0]})
    schema = Schema.of(frame, ["category", "number"])
    with pytest.raises(ValueError, match=r"contains infinity in 1 cell\(s\), first in column 'mass', row 1 \(inf\)"):
        read(schema, frame.assign(mass=[1.0, np.inf]))
    with pytest.raises(ValueError, match="column 'mass', row 1 is 'x'.*Encode it"):
        read(schema, frame.assign(mass=pd.Series([1.0, "x"], dtype=object)))
    with pytest.raises(ValueError, match="column 'mass', row 0 is Timestamp"):
        read(schema, frame.assign(mass=pd.to_datetime(["2020", "2021"])))
    with pytest.raises(ValueError, match="repeated column names: 'b'"):
        Schema.of(pd.DataFrame([["x", "y"]], columns=["b", "b"]), "category")
    with pytest.raises(ValueError, match="repeated column names: 'b'"):
        read(schema, pd.DataFrame([["a", 1.0]], columns=["b", "b"]))


@pytest.mark.parametrize("kind", ["category", "count", "binary"])
@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.empty((0, 2)), r"0 sample\(s\) \(shape=\(0, 2\)\) while a minimum of 1 is required"),
        (np.empty((3, 0)), r"0 feature\(s\) \(shape=\(3, 0\)\)"),
        (pd.DataFrame({"a": [], "b": []}), r"0 sample\(s\)"),
        (np.arange(3), "Reshape your data"),
        ([1, 2], "Reshape your data"),
        (3.0, "Expected 2D array, got scalar"),
        (np.ones((2, 2, 2)), "dim 3"),
        (np.ones((2, 2)) * 1j, "Complex data not supported"),
        ([[1, 2], [3]], "inhomogeneous"),
        (np.ones((2, 3)), "X has 3 features, but MixedNB is expecting 2 features as input"),
        (pd.DataFrame(np.ones((2, 1))), "X has 1 features, but MixedNB is expecting 2 features as input"),
    ],
)
def test_wrong_shapes_in_scikit_learns_words(kind, X, words):
    schema = Schema.of(np.ones((1, 2)), kind)
    with pytest.raises(ValueError, match=words):
        read(schema, X)


@pytest.mark.parametrize(
    "X", [np.arange(3), np.array(["a", "b"]), 3.0, np.ones((2, 2, 2)), np.empty((0, 2)), np.ones((2, 2)) * 1j]
)
def test_wrong_shapes_are_refused_when_the_schema_is_made(X):
    with pytest.raises(ValueError, match="Reshape|2D array|dim 3|minimum of 1|Complex"):
        Schema.of(X, "category", owner="MixedNB")


def test_complex_columns_are_no_categories():
    with pytest.raises(ValueError, match="Complex data not supported: column 'z'"):
        Schema.of(pd.DataFrame({"z": [1j, 2.0]}), "category")


def test_all_number_tables_take_the_short_path():
    X = np.arange(12.0).reshape(4, 3)
    X.flags.writeable = False
    assert read(Schema.of(X), X) is X
    assert read(Schema.of(X, "number"), X) is X
    assert read(Schema.of(X, "count"), X) is X
    assert read(Schema.of(pd.DataFrame(X)), X) is X


# ---- writing and filling counts and binary cells


@pytest.mark.parametrize(
    ("dtype", "count", "binary"),
    [
        ("int8", [2, 0], [1, 0]),
        ("Int64", [2, 0], [1, 0]),
        ("float32", [1.75, 0.25], [1.0, 0.0]),
        ("Float64", [1.75, 0.25], [1.0, 0.0]),
        ("bool", None, [True, False]),
        ("boolean", None, [True, False]),
    ],
)
def test_counts_and_binary_cells_are_written_as_trained(dtype, count, binary):
    frame = pd.DataFrame({"a": pd.array([1, 0], dtype=dtype)})
    if count is not None:
        written = Schema.of(frame, "count").write(np.array([[1.75], [0.25]]))["a"]
        assert written.dtype == dtype and written.tolist() == count
    written = Schema.of(frame, "binary").write(np.array([[1.0], [0.0]]))["a"]
    assert written.dtype == dtype and written.tolist() == binary


def test_binary_cells_and_counts_among_objects_stay_what_they_are():
    frame = pd.DataFrame({"ill": [True, None, False], "eggs": [3, 4, pd.NA]}, dtype=object)
    kinds = ["binary", "count"]
    for X in (frame, frame.to_numpy()):
        schema = Schema.of(X, kinds)
        written = schema.write(np.array([[1.0, 2.6], [0.0, 4.0]]))
        same_objects(np.asarray(written), np.array([[True, 3], [False, 4]], dtype=object))
        filled = schema.fill(X, np.array([[0, 0], [1, 0], [0, 1.6]], dtype=float))
        same_objects(np.asarray(filled), np.array([[True, 3], [True, 4], [False, 2]], dtype=object))


def test_fill_a_column_of_floats_that_was_boolean_in_training():
    for trained in ("bool", "boolean", "int8"):
        for kind in ("binary", "category"):
            schema = Schema.of(pd.DataFrame({"ill": pd.array([False, True], dtype=trained)}), kind)
            for cells in ([1.0, NAN, 0.0], pd.Series([True, None, False], dtype=object)):
                out = schema.fill(pd.DataFrame({"ill": cells}), np.array([[0.0], [1.0], [1.0]]))
                assert out["ill"].dtype == trained and out["ill"].tolist() == [1, 1, 0]


# ---- filling categories


def test_fill_adds_a_category_that_the_dtype_lacks():
    schema = Schema.of(pd.DataFrame({"hue": ["a", "b", "c"]}), "category")
    own = pd.CategoricalDtype(["b", "a"], ordered=True)
    out = schema.fill(pd.DataFrame({"hue": pd.Series(["a", None, "b"], dtype=own)}), np.array([[0.0], [2.0], [0.0]]))
    assert out["hue"].dtype == pd.CategoricalDtype(["b", "a", "c"], ordered=True)
    assert out["hue"].tolist() == ["a", "c", "b"]


def test_fill_replaces_unknown_categories_that_count_as_missing():
    schema = Schema.of(pd.DataFrame({"hue": ["a", "b"], "n": [1, 2]}), ["category", "category"])
    for hues in (["z", "b"], pd.Categorical(["z", "b"]), pd.Series(["z", "b"], index=[5, 5], dtype=object)):
        frame = pd.DataFrame({"hue": hues, "n": [2, 7]}, index=[5, 5])
        with pytest.raises(ValueError, match="unknown categories in column 'hue': 'z'"):
            schema.fill(frame, np.zeros((2, 2)))
        out = schema.fill(frame, np.zeros((2, 2)), handle_unknown="missing")
        assert out["hue"].tolist() == ["a", "b"] and out["hue"].dtype.kind == frame["hue"].dtype.kind
        assert out["n"].tolist() == [2, 1] and out["n"].dtype == frame["n"].dtype
        assert out.index.tolist() == [5, 5]
    text = np.array([["zz"], ["b"]])
    same(Schema.of(text[1:], "category").fill(text, np.zeros((2, 1)), "missing"), np.array([["b"], ["b"]], dtype="U2"))


def test_fill_a_column_without_a_dtype_of_its_own():
    for trained in (["a", "b"], pd.Categorical(["a", "b"]), pd.array(["a", "b"], dtype="string"), [7, 8], [True, False]):
        frame = pd.DataFrame({"hue": trained})
        schema = Schema.of(frame, "category")
        for hole in (NAN, None):
            gap = pd.DataFrame({"hue": [hole, hole]})
            out = schema.fill(gap, np.array([[1.0], [0.0]]))
            assert out["hue"].dtype == frame["hue"].dtype
            same(read(schema, out), np.array([[1.0], [0.0]]))


def test_fill_keeps_what_a_dtype_cannot_hold_as_objects():
    schema = Schema.of(pd.DataFrame({"a": pd.Series([1, "x"], dtype=object)}), "category")
    out = schema.fill(pd.DataFrame({"a": [1.0, NAN]}), np.array([[0.0], [1.0]]))
    assert out["a"].dtype == object and out["a"].tolist() == [1.0, "x"]


def test_fill_category_arrays():
    schema = Schema.of(np.array([[10, 1], [20, 2]]), "category")
    codes = np.array([[1.0, 0.0]])
    for X in (
        np.array([[NAN, 2.0]]),
        [[None, 2]],
        np.array([[None, 2]], dtype=object),
        np.array([[pd.NA, 2.0]], dtype=object),
    ):
        same(schema.fill(X, codes), np.array([[20, 2]]))
    X = np.array([[10.0, 2.0]])
    out = schema.fill(X, codes)
    same(out, X)
    assert not np.shares_memory(out, X)
    X = np.array([["a", 1.5], [None, NAN], ["b", 2]], dtype=object)
    before = X.copy()
    out = Schema.of(X, ["category", "number"]).fill(X, np.array([[0, 0], [1, 0.25], [0, 0]]))
    same_objects(out, np.array([["a", 1.5], ["b", 0.25], ["b", 2]], dtype=object))
    assert X[1, 0] is None and X.tolist()[0] == before.tolist()[0]
    mixed = np.array([[1.0, 0.5], [NAN, NAN]])
    same(
        Schema.of(np.array([[1.0, 2.0]]), ["category", "number"]).fill(mixed, np.array([[0, 0], [0, 9.0]])),
        np.array([[1.0, 0.5], [1.0, 9.0]]),
    )


def test_fill_refuses_a_missing_code():
    schema = Schema.of(pd.DataFrame({"hue": ["a"]}), "category")
    with pytest.raises(ValueError, match="NaN is no category.*hue"):
        schema.fill(pd.DataFrame({"hue": [None]}), np.array([[NAN]]))


def test_columns_without_gaps_are_left_alone():
    frame = pd.DataFrame({"hue": ["a", "b"], "n": [1.0, 0.0], "gap": pd.Series([1, None], dtype=object)})
    schema = Schema.of(frame.astype({"n": bool}), ["category", "binary", "category"])
    out = schema.fill(frame, np.zeros((2, 3)))
    pd.testing.assert_frame_equal(out[["hue", "n"]], frame[["hue", "n"]])
    assert out["gap"].tolist() == [1, 1] and out["gap"].dtype == object


# ---- given cells


def given_schema():
    frame = pd.DataFrame(
        {"hue": pd.Categorical(["a", "b"]), "eggs": [1, 2], "ill": [True, False], "day": [1, 2], "mass": 0.5}
    )
    return Schema.of(frame, ["category", "count", "binary", "category", "number"])


def test_given_categories():
    schema = given_schema()
    same(schema.read_given({"hue": "b", "mass": 2}), np.array([1, NAN, NAN, NAN, 2]))
    same(schema.read_given({"day": 2.0, "hue": None, "ill": True}), np.array([NAN, NAN, 1, 1, NAN]))
    same(schema.read_given(pd.Series({"day": 2, "hue": pd.NA})), np.array([NAN, NAN, NAN, 1, NAN]))
    row = pd.DataFrame({"hue": pd.Categorical(["b"], categories=["b", "z"]), "day": [1]}, index=["row"])
    same(schema.read_given(row), np.array([1, NAN, NAN, 0, NAN]))
    same(schema.read_given(row[["hue"]]), np.array([1, NAN, NAN, NAN, NAN]))
    same(Schema.of(np.array([["x", "y"]]), "category").read_given({1: "y"}), np.array([NAN, 0]))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"hue": "z"}, "^given has unknown categories in column 'hue': 'z'. Known: 'a', 'b'.$"),
        ({"hue": ["a"]}, "^given .*column 'hue'.*unhashable"),
        ({"hue": np.ones(2)}, "^given .*column 'hue'.*unhashable"),
        ({"eggs": -1}, "Negative values in data passed to given: column 'eggs', row 0 is -1"),
        ({"ill": 2}, "not binary.*given: column 'ill'"),
        ({"ill": "yes"}, "^given .*column 'ill'.*'yes'.*categorical"),
        ({"mass": "x"}, "^given .*column 'mass'.*'x'.*Encode it"),
        ({"weight": 1}, "unknown columns: 'weight'"),
    ],
)
def test_given_refused(given, words):
    with pytest.raises(ValueError, match=words):
        given_schema().read_given(given)


# ---- two tables together


def union(a, b, kinds="category"):
    return Schema.of(a, kinds).union(Schema.of(b, kinds))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (["b", "d"], ["a", "b", "e"]),
        ([3, 1], [2, 3]),
        ([3, 1], [2.5, 3.0]),
        ([True, False], [False]),
        (["x", 3], [(1, 2), "x", "y"]),
        ([(2, 1)], [(1, 5), (2, 1)]),
        (["a"], [1]),
        ([0.5], [0.25]),
        (pd.array(["b"], dtype="string"), pd.array(["a"], dtype="string")),
        (pd.array([4], dtype="Int8"), pd.array([2], dtype="Int8")),
    ],
    ids=repr,
)
def test_union_is_the_schema_of_both_tables(a, b):
    objects = isinstance(a, list) and len({type(cell) for cell in a + list(b)}) > 1
    a, b = (pd.DataFrame({"n": 1.0, "c": pd.Series(cells, dtype=object if objects else None)}) for cells in (a, b))
    merged, mine, theirs = union(a, b, ["number", "category"])
    whole = Schema.of(pd.concat([a, b]), ["number", "category"])
    assert merged.categories[1].tolist() == whole.categories[1].tolist()
    assert merged.sizes() == whole.sizes() and merged.from_dtype == (False, False)
    assert mine[0] is None and theirs[0] is None
    assert mine[1].dtype.kind == theirs[1].dtype.kind == "i"
    for frame, codes in ((a, mine), (b, theirs)):
        old = read(Schema.of(frame, ["number", "category"]), frame)[:, 1].astype(int)
        same(codes[1][old].astype(float), read(merged, frame)[:, 1])
        assert merged.write(read(merged, frame))["c"].tolist() == frame["c"].tolist()


def test_union_of_fixed_categories():
    a = pd.DataFrame({"hue": pd.Categorical(["a"], categories=["b", "a"])})
    b = pd.DataFrame({"hue": pd.Categorical(["a"], categories=["a", "b"])})
    merged, mine, theirs = union(a, b)
    assert merged.categories[0].tolist() == ["b", "a"] and merged.dtypes == (a["hue"].dtype,)
    assert mine[0].tolist() == [0, 1] and theirs[0].tolist() == [1, 0]
    for other in (pd.Categorical(["a"]), pd.Categorical(["a"], categories=["a", "b", "c"])):
        with pytest.raises(ValueError, match="categories of column 'hue' differ: '[bc]'"):
            union(a, pd.DataFrame({"hue": other}))


def test_union_of_fixed_and_observed_categories():
    a = pd.DataFrame({"hue": pd.Categorical(["a"], categories=["b", "a"])})
    for first, second in ((a, pd.DataFrame({"hue": ["a"]})), (pd.DataFrame({"hue": ["a"]}), a)):
        merged, mine, theirs = union(first, second)
        assert merged.categories[0].tolist() == ["b", "a"] and merged.from_dtype == (True,)
        assert merged.write(np.array([[0.0]]))["hue"].dtype == a["hue"].dtype
        assert sorted([mine[0].tolist(), theirs[0].tolist()]) == [[0, 1], [1]]
        with pytest.raises(ValueError, match="categories of column 'hue' differ"):
            union(a, pd.DataFrame({"hue": ["a", "z"]}))


def test_union_of_different_kinds():
    a = pd.DataFrame({"n": [1, 2]})
    with pytest.raises(ValueError, match="column 'n' is a category in one table and a count in the other"):
        Schema.of(a, "category").union(Schema.of(a, "count"))


def test_union_writes_what_the_first_dtype_cannot_hold():
    merged, _, _ = union(pd.DataFrame({"n": np.array([1], dtype="i1")}), pd.DataFrame({"n": [300]}))
    assert merged.write(np.array([[1.0], [0.0]]))["n"].tolist() == [300, 1]


@pytest.mark.parametrize(
    "more",
    [
        ["a", None, "d", "d"],
        pd.Categorical(["d", None, "a"], categories=["unused", "d", "a"]),
        pd.Series(["d", "a"], dtype=object),
        pd.array([None, "a", "d"], dtype="string"),
    ],
    ids=repr,
)
def test_more_rows_bring_categories(more):
    schema = Schema.of(pd.DataFrame({"n": 0.5, "c": ["e", "b", None]}), ["number", "category"])
    frame = pd.DataFrame({"n": 0.5, "c": more})
    grown, places = schema.grown(frame, owner="MixedNB")
    assert grown.categories[1].tolist() == ["a", "b", "d", "e"] and schema.categories[1].tolist() == ["b", "e"]
    assert places[0] is None and places[1].tolist() == [1, 3]
    np.testing.assert_array_equal(np.isnan(read(grown, frame)[:, 1]), frame["c"].isna())
    again, places = grown.grown(pd.DataFrame({"n": 0.5, "c": [None]}), owner="MixedNB")
    assert again.categories[1].tolist() == ["a", "b", "d", "e"] and places[1].tolist() == [0, 1, 2, 3]


def test_more_rows_of_other_tables():
    fixed = Schema.of(pd.DataFrame({"c": pd.Categorical(["a"], categories=["b", "a"])}), "category")
    grown, places = fixed.grown(pd.DataFrame({"c": ["z"]}), owner="MixedNB")
    assert grown.categories[0].tolist() == ["b", "a"] and places[0].tolist() == [0, 1]
    numbers = Schema.of(np.array([[3], [7]]), "category")
    grown, places = numbers.grown([[5], [7]], owner="MixedNB")
    assert grown.categories[0].tolist() == [3, 5, 7] and places[0].tolist() == [0, 2]
    mixed = Schema.of(np.array([["x"], [1]], dtype=object), "category")
    assert mixed.grown(np.array([["a"]]), owner="MixedNB")[0].categories[0].tolist() == ["x", 1, "a"]
    with pytest.raises(ValueError, match="X has 2 features, but MixedNB is expecting 1"):
        numbers.grown(np.ones((2, 2)), owner="MixedNB")


# ---- the schema itself


def test_schema_fields_and_copies():
    frame = pd.DataFrame({"hue": ["a", None], "eggs": [1, 2]})
    schema = Schema.of(frame, ["category", "count"])
    assert schema.kinds == ("category", "count") and set(schema.kinds) <= set(KINDS)
    for twin in (copy.deepcopy(schema), pickle.loads(pickle.dumps(schema))):
        same(read(twin, frame), np.array([[0, 1], [NAN, 2.0]]))
        assert twin.kinds == schema.kinds and twin.categories[0].equals(schema.categories[0])
    assert Schema.of(frame[["eggs"]]).kinds == ("number",)
    named = Schema.named(2, ["a", "b"])
    assert (named.kinds, named.sizes(), named.from_dtype) == (("number",) * 2, (0, 0), (False, False))
    with pytest.raises(ValueError, match="kinds must be"):
        Schema.of(frame, ["category"])
    with pytest.raises(ValueError, match="kinds must be"):
        Schema.of(frame, "categorical")


@pytest.mark.parametrize(
    "names",
    [["größe", "数"], [7, "x"], [("a", 1), "b"], [1.5, date(2020, 1, 1)], pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])],
    ids=repr,
)
def test_names_of_any_kind(names):
    frame = pd.DataFrame([["u", 1.0], [None, NAN]], index=pd.to_datetime(["2020", "2021"]))
    frame.columns = pd.Index(names, tupleize_cols=False) if isinstance(names, list) else names
    frame.isetitem(1, frame.iloc[:, 1].astype(float))
    schema = Schema.of(frame, ["category", "number"])
    same(read(schema, frame), np.array([[0, 1.0], [NAN, NAN]]))
    out = schema.fill(frame, np.array([[0, 0], [0, 2.5]]))
    assert out.columns.equals(frame.columns) and out.index.equals(frame.index)
    assert out.to_numpy().tolist() == [["u", 1.0], ["u", 2.5]]
    written = schema.write(np.array([[0, 0.5]]), index=frame.index[:1])
    assert written.columns.equals(frame.columns) and written.to_numpy().tolist() == [["u", 0.5]]
    first = frame.columns[:1].tolist()[0]
    same(schema.read_given({first: "u"}), np.array([0, NAN]))
    frame.isetitem(0, ["v", "v"])
    with pytest.raises(ValueError) as caught:
        read(schema, frame)
    assert f"column {first!r}: 'v'" in str(caught.value)


# ---- sparse matrices

DENSE = np.array([[0, 2.0, 0], [1, 0, 0], [0, 0, 0], [0, 3, 4]])
FORMATS = [
    getattr(scipy.sparse, f"{name}_{kind}")
    for name in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
    for kind in ("array", "matrix")
]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "?"])
def test_sparse_matrices_of_every_format(kind, dtype):
    dense = DENSE.astype(dtype)
    X = kind(dense)
    assert is_sparse(X)
    for what in ("number", "count"):
        schema = Schema.of(X, what)
        assert (schema.container, schema.columns, schema.kinds) == ("sparse", None, (what,) * 3)
        values = read(schema, X)
        assert values.format == "csr" and values.dtype == np.float64 and values.nnz == 4
        np.testing.assert_array_equal(values.toarray(), dense.astype(float))
        for given in (values, scipy.sparse.csr_matrix(values)):
            written = schema.write(given)
            assert type(written) is kind and written.dtype == X.dtype
            np.testing.assert_array_equal(written.toarray(), dense)
        np.testing.assert_array_equal(X.toarray(), dense)


def test_other_things_are_not_sparse():
    for X in (DENSE, pd.DataFrame({"a": pd.arrays.SparseArray([0.0, 1.0])}), [[1]], None):
        assert not is_sparse(X)


@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
def test_a_clean_csr_is_returned_itself(kind):
    X = kind(DENSE)
    assert read(Schema.of(X), X) is X
    unsorted = kind((np.array([2.0, 1.0]), np.array([2, 0]), np.array([0, 2])), shape=(1, 3))
    assert read(Schema.of(unsorted), unsorted) is unsorted
    assert unsorted.indices.tolist() == [2, 0]


@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_duplicates_and_zeros_leave_x_alone(kind, dtype):
    data, indices, indptr = np.array([1.0, 2.0, 0.0, 5.0], dtype), np.array([1, 1, 0, 2]), np.array([0, 3, 4])
    X = kind((data.copy(), indices.copy(), indptr.copy()), shape=(2, 3))
    values = read(Schema.of(X, "count"), X)
    assert values.nnz == 2 and values.toarray().tolist() == [[0, 3, 0], [0, 0, 5]]
    same(X.data, data)
    assert X.indices.tolist() == indices.tolist() and X.indptr.tolist() == indptr.tolist()
    zeros = kind((np.array([1.0, 0.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))
    assert read(Schema.of(zeros), zeros).nnz == 1 and zeros.nnz == 2


@pytest.mark.parametrize(
    ("cell", "kind", "words"),
    [
        (NAN, "number", r"sparse and contains NaN or infinity, first in column 2, row 1 \(nan\).*X\.toarray\(\)"),
        (-np.inf, "count", r"NaN or infinity, first in column 2, row 1 \(-inf\)"),
        (-2.0, "count", r"Negative values in data passed to MixedNB: column 2, row 1 is -2\.0"),
        (2.0, "binary", r"not binary.*column 2, row 1 is 2\.0.*binarize=threshold"),
    ],
)
def test_wrong_cells_of_sparse_matrices_are_named(cell, kind, words):
    X = scipy.sparse.lil_array((3, 4))
    X[0, 0], X[1, 2] = 1.0, cell
    with pytest.raises(ValueError, match=words):
        read(Schema.of(X, kind), X.tocsc())


def test_kinds_of_sparse_columns_are_checked_each():
    X = scipy.sparse.csr_array([[-1.0, 1.0, 5.0], [0.5, 0.0, 0.5]])
    assert read(Schema.of(X, ["number", "binary", "count"]), X) is X
    with pytest.raises(ValueError, match="column 2, row 0 is 5.0"):
        read(Schema.of(X, ["number", "binary", "binary"]), X)


def test_sparse_refusals():
    X = scipy.sparse.csr_array(DENSE)
    for error in (TypeError, ValueError):
        with pytest.raises(error, match=r"X\.toarray\(\)"):
            Schema.of(X, "category")
        with pytest.raises(error, match=r"X\.toarray\(\)"):
            read(Schema.of(DENSE, "category"), X)
    with pytest.raises(ValueError, match="Complex data not supported"):
        read(Schema.of(X * 1j), X * 1j)
    with pytest.raises(ValueError, match=r"0 sample\(s\).*minimum of 1 is required by MixedNB"):
        read(Schema.of(X), X[:0])
    with pytest.raises(ValueError, match="X has 2 features, but MixedNB is expecting 3"):
        read(Schema.of(X, "count"), X[:, :2])


def test_sparse_and_dense_meet():
    X = scipy.sparse.csr_matrix(DENSE)
    same(read(Schema.of(X, "count"), DENSE), DENSE)
    assert read(Schema.of(DENSE, "count"), X) is X
    filled = Schema.of(X).fill(X, np.ones(DENSE.shape))
    assert type(filled) is type(X) and filled is not X and not np.shares_memory(filled.data, X.data)
    np.testing.assert_array_equal(filled.toarray(), DENSE)
    same(Schema.of(X).read_given({1: 2}), np.array([NAN, 2, NAN]))


def test_wide_sparse_matrices_stay_sparse():
    X = scipy.sparse.coo_array(
        (np.arange(1.0, 51.0), (np.arange(50), np.arange(50) * 7919)), shape=(20_000, 500_000)
    ).tocsr()
    schema = Schema.of(X, "count")
    assert read(schema, X).nnz == X.nnz
    assert schema.write(X).shape == X.shape


# ---- speed


def test_no_loop_over_cells():
    X = np.random.default_rng(0).integers(0, 8, (500_000, 10))
    schema = Schema.of(X, "category")
    times = []
    for _ in range(3):
        start = time.perf_counter()
        values = read(schema, X)
        times.append(time.perf_counter() - start)
    np.testing.assert_array_equal(values, X)
    assert min(times) < 0.5  # a loop takes seconds; a quiet machine 0.06


def test_many_categories():
    cells = np.random.default_rng(0).integers(0, 10_000, 1_000_000) * 10**12 - 10**15
    start = time.perf_counter()
    schema = Schema.of(cells[:, None], "category")
    codes = read(schema, cells[:, None])
    np.testing.assert_array_equal(schema.write(codes)[:, 0], cells)
    assert schema.sizes() == (10_000,)
    assert time.perf_counter() - start < 2  # a loop takes longer; a quiet machine 0.1


# ---- which family

CODES = np.repeat([0, 1], 50)
SPREAD = np.concatenate([np.arange(50), np.arange(50) + 100])  # within classes variance 208, mean 74.5
NARROW = np.concatenate([np.arange(50) % 12, np.arange(50) % 12 + 1000])  # narrow within classes, not overall
FAMILIES = {
    "categorical": [
        pd.Series(["a", "b"] * 50),
        pd.Series(["a", None] * 50, dtype=object),
        pd.Series([1.5, None] * 50, dtype=object),
        pd.Series(["a", None] * 50, dtype="string"),
        pd.Series(pd.Categorical([1.5, None] * 50)),
        pd.cut(pd.Series(np.arange(100)), 3),
        pd.Series(np.arange(100) % 10),
        pd.Series(np.arange(100) % 10 * 1000),
        pd.Series([None, 3] * 50, dtype="Int64"),
        np.array(["a", "b"] * 50),
        np.array(["a", None] * 50, dtype=object),
        np.array([3, None] * 50, dtype=object),
        np.array([True, 2] * 50, dtype=object),
        np.arange(100, dtype="u1") % 3,
        pd.Series(pd.arrays.SparseArray([0, 4] * 50)),
    ],
    "bernoulli": [
        pd.Series([True, False] * 50),
        pd.Series([True, None] * 50, dtype="boolean"),
        np.array([True, False] * 50),
        np.array([True, None] * 50, dtype=object),
        np.array([True, pd.NA] * 50, dtype=object),
    ],
    "gaussian": [
        pd.Series([0.0, 1.0] * 50),
        pd.Series([1.5, None] * 50, dtype="Float32"),
        pd.Series([NAN] * 100),
        np.array([1.0, 2.0] * 50, dtype="f2"),
        np.array([1, 2.5] * 50, dtype=object),
        np.array([1.0, None] * 50, dtype=object),
        pd.Series(np.arange(100) % 3 - 1),
        pd.Series(np.arange(100) - 1),
        pd.Series(SPREAD * 10),
        np.array(SPREAD * 10, dtype=object),
        pd.Series([None] * 100, dtype="Int64"),
    ],
    "poisson": [
        pd.Series(np.arange(100) % 11),
        pd.Series([None, *np.arange(99) % 11], dtype="Int64"),
        pd.Series(SPREAD),
        pd.Series(NARROW),
        np.array(NARROW, dtype="u2"),
        np.array([None, *NARROW[1:].tolist()], dtype=object),
    ],
}


@pytest.mark.parametrize(("family", "column"), [(f, c) for f, cs in FAMILIES.items() for c in cs], ids=repr)
def test_guess_family(family, column):
    assert guess_family(column, CODES, 2) == family


def test_guess_family_at_the_border():
    exact = np.array([0, 8] * 8 + list(range(20, 30)))  # rows without a label do not count
    codes = np.array([0] * 16 + [-1] * 10)
    assert exact[:16].var() == 4 * exact[:16].mean()
    assert guess_family(exact, codes, 1) == "poisson"
    assert guess_family(np.where(exact == 8, 9, exact), codes, 1) == "gaussian"
    assert guess_family(NARROW, np.zeros(100, int), 1) == "gaussian"
    assert guess_family(NARROW, CODES, 3) == "poisson"


@pytest.mark.parametrize(
    "column",
    [
        pd.to_datetime(["2020", None]),
        pd.to_datetime(["2020", None]).tz_localize("UTC"),
        pd.to_timedelta([1, 2], unit="D"),
        pd.PeriodIndex(["2020", "2021"], freq="Y"),
        pd.interval_range(0, 2),
        np.array([1j, 2]),
    ],
    ids=repr,
)
def test_columns_without_a_family_are_named(column):
    frame = pd.DataFrame({"a": [1.0, 2.0], "when": column})
    with pytest.raises(ValueError, match="column 'when' has dtype.*numbers.*drop"):
        auto_families(frame, np.array([0, 1]), 2)
    with pytest.raises(ValueError, match="'when' has dtype"):
        guess_family(frame["when"], np.array([0, 1]), 2)


def test_date_arrays_have_no_family():
    for cells in (np.zeros((2, 1), dtype="M8[D]"), np.array([[pd.Timestamp("2020")], [None]], dtype=object)):
        with pytest.raises(ValueError, match="column 0 has dtype"):
            auto_families(cells, np.array([0, 1]), 2)


def test_auto_families():
    frame = pd.DataFrame({"a": ["x", "y"] * 50, 7: SPREAD, ("t", 1): SPREAD * 10, "b": [True, False] * 50, "f": 0.5})
    expected = ["categorical", "poisson", "gaussian", "bernoulli", "gaussian"]
    assert auto_families(frame, CODES, 2) == expected
    assert auto_families(frame.to_numpy(), CODES, 2) == expected
    assert auto_families(frame.to_numpy().tolist(), CODES, 2) == expected
    assert auto_families(np.array([["a", "1"], ["b", "2"]]), np.array([0, 1]), 2) == ["categorical"] * 2
    assert auto_families([[1, 2.5], [3, 4]], np.array([0, 1]), 2) == ["gaussian"] * 2
    assert auto_families([[1, 2], [3, 4]], np.array([0, 1]), 2) == ["categorical"] * 2


# ---- the target among the columns

TARGET = pd.DataFrame({"mass": [1.0, 2.0, 3.0], "species": ["a", None, "b"], "code": [0, 1, 0]}, index=[4, 5, 6])


@pytest.mark.parametrize(
    "y",
    [
        TARGET["species"],
        TARGET["species"].rename("y"),
        TARGET["species"].astype("category").reset_index(drop=True),
        TARGET[["species"]],
        TARGET["species"].to_numpy(),
        ["a", None, "b"],
        np.array([["a"], [None], ["b"]], dtype=object),
        pd.Series(["a", pd.NA, "b"], dtype="string"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", [None, object, "category", "string"])
def test_the_target_among_the_columns_is_refused(y, dtype):
    X = TARGET if dtype is None else TARGET.astype({"species": dtype})
    with pytest.raises(
        ValueError, match=r"^The target 'species' is among the columns of X: drop it \(X\.drop\(columns='species'\)\)"
    ):
        refuse_target_among_columns(X, y)


def test_a_numeric_target_is_refused_by_name_only():
    for y in (TARGET["code"], TARGET["code"].astype(float), TARGET[["code"]], TARGET["code"].astype("Int64")):
        with pytest.raises(ValueError, match="The target 'code'"):
            refuse_target_among_columns(TARGET, y)
    for y in (TARGET["code"].rename("y"), TARGET["code"].to_numpy(), [0, 1, 0], TARGET["code"].rename(None)):
        refuse_target_among_columns(TARGET, y)


def test_other_targets_are_fine():
    for y in (
        ["a", "a", "b"],
        ["a", None],
        pd.Series(["a", None, "c"], name="species"),
        pd.Series([0, 1, 1], name="code"),
        TARGET[["species", "code"]],
        None,
        "ab",
    ):
        refuse_target_among_columns(TARGET, y)
    refuse_target_among_columns(TARGET.to_numpy(), TARGET["species"])
    refuse_target_among_columns(TARGET.assign(gap=None), [None, None, None])
    late = pd.Series(["a"] * 100)
    refuse_target_among_columns(late.to_frame("x"), late.where(late.index < 99, "b"))
    with pytest.raises(ValueError, match="'x'"):
        refuse_target_among_columns(late.to_frame("x"), late)


def test_targets_of_any_name():
    X = pd.DataFrame([["a", 1], ["b", 2]])
    X.columns = pd.Index([("t", 1), 7], tupleize_cols=False)
    with pytest.raises(ValueError, match=r"The target \('t', 1\) .*columns=\('t', 1\)"):
        refuse_target_among_columns(X, ["a", "b"])
    with pytest.raises(ValueError, match="The target 7 "):
        refuse_target_among_columns(X, pd.Series([1, 2], name=7))
