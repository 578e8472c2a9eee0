"""Tables and labels: what is read, what is refused and in which words, what is written back."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
import warnings
from datetime import date

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.exceptions import DataConversionWarning

from bayesgen.tables import LabelSchema, Schema, encode, read_labels, read_table, unique_labels

NAN = np.nan


def read(X):
    return read_table(X, owner="LDA")


def same(a, b):
    """Equal values, NaN included, and equal dtypes."""
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# ---- reading tables


def test_float64_c_contiguous_is_not_copied():
    X = np.arange(12.0).reshape(4, 3)
    X.flags.writeable = False
    assert read(X) is X


def test_frame_on_a_c_contiguous_array_is_not_copied():
    X = np.arange(12.0).reshape(4, 3)
    assert np.shares_memory(read(pd.DataFrame(X, copy=False)), X)


def test_no_large_temporaries():
    X = np.ones((1_000_000, 20))
    X[::7, 3] = NAN
    tracemalloc.start()
    read(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i1", "u1", "i8", "u8", "?", "O"])
def test_arrays_of_every_numeric_dtype(dtype):
    X = np.array([[1, 0], [0, 1], [1, 1]]).astype(dtype)
    same(read(X), X.astype(np.float64))


@pytest.mark.parametrize(
    "view",
    [np.asfortranarray, lambda X: X[::2, ::-1], lambda X: X.T, lambda X: X[:, 1:]],
    ids=["F", "strided", "T", "part"],
)
def test_any_memory_layout(view):
    X = view(np.arange(20.0).reshape(5, 4))
    values = read(X)
    assert values.flags.c_contiguous
    same(values, np.array(X))


@pytest.mark.parametrize("hole", [None, NAN, np.float32(NAN), pd.NA, pd.NaT, np.datetime64("NaT", "D")], ids=repr)
def test_every_kind_of_missing_cell(hole):
    expected = np.array([[1.0, NAN], [2.0, 3.0]])
    cells = np.empty((2, 2), dtype=object)
    cells[:] = [[1, hole], [2.0, True]]
    cells[1, 1] = 3
    same(read(cells), expected)
    same(read(pd.DataFrame(cells)), expected)
    if hole is not pd.NaT:
        same(read(pd.DataFrame({"a": [1, 2], "b": pd.Series([hole, 3], dtype=object)})), expected)


def test_lists():
    same(read([[1, 2], [3, 4]]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    same(read([[1, None], [pd.NA, 4]]), np.array([[1.0, NAN], [NAN, 4.0]]))
    same(read(((1.5, NAN),)), np.array([[1.5, NAN]]))


def test_masked_cells_are_missing():
    X = np.ma.masked_equal(np.array([[1, 99], [99, 4]]), 99)
    same(read(X), np.array([[1.0, NAN], [NAN, 4.0]]))


def mixed_frame():
    return pd.DataFrame(
        {
            "float": [1.5, NAN, 2.5],
            "single": np.array([1, 2, NAN], dtype="f4"),
            "int": [1, 2, 3],
            "byte": np.array([0, 128, 255], dtype="u1"),
            "bool": [True, False, True],
            "Int64": pd.array([1, None, 3], dtype="Int64"),
            "Float32": pd.array([1.5, None, 3], dtype="Float32"),
            "boolean": pd.array([True, None, False], dtype="boolean"),
            "object": pd.Series([pd.NA, 2, None], dtype=object),
        }
    )


MIXED = np.array(
    [
        [1.5, 1, 1, 0, 1, 1, 1.5, 1, NAN],
        [NAN, 2, 2, 128, 0, NAN, NAN, NAN, 2],
        [2.5, NAN, 3, 255, 1, 3, 3, 0, NAN],
    ]
)


def test_frame_of_mixed_dtypes():
    frame = mixed_frame()
    same(read(frame), MIXED)
    same(read(frame.drop(columns="object")), MIXED[:, :-1])
    assert read(frame).flags.c_contiguous


def test_numeric_strings_and_categories_are_read_as_scikit_learn_does():
    same(read([["1", "2.5"]]), np.array([[1.0, 2.5]]))
    frame = pd.DataFrame({"a": ["1", None], "b": pd.Categorical([3, None]), "c": pd.array(["4", "5"], dtype="string")})
    same(read(frame), np.array([[1.0, 3.0, 4.0], [NAN, NAN, 5.0]]))


def test_odd_frames():
    columns = pd.MultiIndex.from_product([["a", "b"], [1, 2]])
    same(read(pd.DataFrame(np.ones((2, 4)), columns=columns, index=[7, 7])), np.ones((2, 4)))
    sparse = pd.DataFrame({"a": pd.arrays.SparseArray([0.0, 1.0])})
    same(read(sparse), np.array([[0.0], [1.0]]))


def test_integers_too_long_for_float64_are_rounded_not_refused():
    same(read(np.array([[2**70, -(2**63)]], dtype=object)), np.array([[2.0**70, -(2.0**63)]]))


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.empty((0, 3)), r"0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required by LDA"),
        (np.empty((3, 0)), r"0 feature\(s\) \(shape=\(3, 0\)\)"),
        (np.empty((0, 3), dtype=object), r"0 sample\(s\)"),
        (pd.DataFrame({"a": []}), r"0 sample\(s\)"),
        (pd.DataFrame(index=[1, 2]), r"0 feature\(s\)"),
        (pd.DataFrame({"a": pd.Series([], dtype=object), "b": []}), r"0 sample\(s\)"),
        (np.arange(3.0), "Reshape your data"),
        ([1, 2], "Reshape your data"),
        (np.array([1, None], dtype=object), "Reshape your data"),
        (3.0, "Expected 2D array, got scalar"),
        (pd.Series([1.0, 2.0]), "Expected a 2-dimensional container"),
        (np.ones((2, 2, 2)), "dim 3"),
        (np.ones((2, 2)) * 1j, "Complex data not supported"),
        ([[1, 2], [3]], "inhomogeneous"),
    ],
)
def test_wrong_shapes_and_types_in_scikit_learns_words(X, words):
    with pytest.raises(ValueError, match=words):
        read(X)


@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csc_matrix])
def test_sparse_is_refused(kind):
    with pytest.raises(TypeError, match="[Ss]parse"):
        read(kind(np.eye(3)))


def test_a_dict_in_a_cell_is_the_type_error_of_scikit_learn():
    X = np.ones((3, 2), dtype=object)
    X[1, 0] = {"foo": "bar"}
    with pytest.raises(TypeError, match="argument must be .* string.* number") as caught:
        read(X)
    assert "column 0, row 1 is {'foo': 'bar'}" in str(caught.value)


@pytest.mark.parametrize(
    "cell",
    [
        "red",
        date(2020, 1, 2),
        pd.Timestamp("2020"),
        pd.Timedelta("1h"),
        np.datetime64(1, "ns"),
        1j,
        10**400,
        [1, 2],
    ],
)
def test_cells_that_are_not_numbers_are_named(cell):
    column = pd.Series([1.0, None, 0, 0], dtype=object)
    column[2] = cell
    frame = pd.DataFrame({"mass": [1.0, 2, 3, 4], "hue": column})
    tables = [(frame, "'hue'"), (frame.to_numpy(), "1")]
    if not isinstance(cell, list):  # NumPy takes a list within a list for a third dimension
        tables.append((frame.to_numpy().tolist(), "1"))
    for X, name in tables:
        with pytest.raises(ValueError) as caught:
            read(X)
        message = str(caught.value)
        assert f"column {name}, row 2 is {repr(cell)[:60]}" in message
        assert "Encode it" in message and "NaN" in message


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["x", "red"], dtype="category").iloc[[1]],
        pd.Series(["red"]),
        pd.Series(["red"], dtype="string"),
        pd.Series(["red"], dtype=object),
    ],
    ids=["category", "str", "string", "object"],
)
def test_text_columns_are_named(column):
    with pytest.raises(ValueError, match="column 'size', row 0 is 'red'"):
        read(pd.DataFrame({"mass": [1.0], "size": column.reset_index(drop=True)}))


@pytest.mark.parametrize("tz", [None, "UTC"])
def test_date_columns_are_refused_by_name(tz):
    frame = pd.DataFrame({"mass": [1.0, 2.0], "when": pd.to_datetime([None, "2020-01-02"]).tz_localize(tz)})
    with pytest.raises(ValueError, match=r"column 'when', row 1 is Timestamp\('2020-01-02"):
        read(frame)
    with pytest.raises(ValueError, match="column 'for', row 0"):
        read(pd.DataFrame({"for": pd.to_timedelta([3], unit="D")}))
    with pytest.raises(ValueError, match="column 'year', row 0"):
        read(pd.DataFrame({"year": pd.PeriodIndex(["2020"], freq="Y")}))


@pytest.mark.parametrize("dtype", ["M8[D]", "M8[ns]", "m8[s]"])
def test_date_arrays_are_refused(dtype):
    with pytest.raises(ValueError, match="datetime64|timedelta64"):
        read(np.zeros((2, 2), dtype=dtype))


def test_repeated_column_names():
    with pytest.raises(ValueError, match="repeated column names: 'b', 3"):
        read(pd.DataFrame(np.ones((2, 6)), columns=["b", "b", "a", 3, 3, "b"]))


def test_infinite_cells_are_named():
    X = np.zeros((40_000, 3))
    X[17, 1], X[30_000, 0], X[39_999, 2] = -np.inf, np.inf, np.inf
    X[5, 0] = NAN
    with pytest.raises(ValueError) as caught:
        read(X)
    assert "contains infinity in 3 cell(s), first in column 1, row 17 (-inf)" in str(caught.value)
    assert "Replace it" in str(caught.value) and "NaN" in str(caught.value)
    with pytest.raises(ValueError, match=r"in 2 cell\(s\), first in column 'mass', row 29000"):
        read(pd.DataFrame(X[1000:], columns=["mass", "a", "b"]))


def test_infinity_from_any_road():
    for X in ([[1, np.inf]], [["inf"]], np.array([[None, -np.inf]]), pd.DataFrame({"a": [np.inf, NAN]})):
        with pytest.raises(ValueError, match="infinity"):
            read(X)
    both = np.array([[np.inf, -np.inf, NAN]])
    with pytest.raises(ValueError, match="2 cell"):
        read(both)


def test_large_finite_cells_are_not_infinite():
    X = np.full((10, 2), 1e308)
    assert read(X) is X


# ---- the schema of a table


def test_schema_remembers_container_names_and_dtypes():
    frame = mixed_frame()
    frame.columns.name = "part"
    schema = Schema.of(frame)
    assert schema.container == "frame"
    assert schema.dtypes == tuple(frame.dtypes)
    assert schema.labels[:2] == ["float", "single"] and schema.name(1) == "single"
    frame.columns.name = "changed"
    assert schema.columns.name == "part"
    array = Schema.of(np.ones((2, 3), dtype="f4"))
    assert (array.container, array.columns, array.dtypes) == ("array", None, (np.dtype("f4"),) * 3)
    assert array.labels == ["column 0", "column 1", "column 2"]
    assert Schema.of([[1, 2]]).dtypes == (np.dtype(float),) * 2


def test_schema_can_be_copied_and_pickled():
    schema = Schema.of(mixed_frame())
    for twin in (copy.deepcopy(schema), pickle.loads(pickle.dumps(schema))):
        assert twin.dtypes == schema.dtypes and twin.columns.equals(schema.columns)
    with pytest.raises(AttributeError):
        schema.container = "array"


def test_schema_names_of_any_kind():
    columns = pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["x", "y"])
    schema = Schema.of(pd.DataFrame(np.ones((1, 2)), columns=columns))
    assert schema.labels == ["('a', 1)", "('b', 2)"]
    written = schema.write(np.zeros((3, 2)))
    assert written.columns.equals(columns) and written.columns.names == ["x", "y"]
    assert Schema.of(pd.DataFrame(np.ones((1, 2)))).labels == ["0", "1"]


def test_write_frame():
    frame = mixed_frame()
    frame.columns.name = "part"
    values = np.tile([[0.5], [1.5], [-3.0], [300.0]], 9)
    written = Schema.of(frame).write(values, index=list("wxyz"))
    assert list(written.index) == list("wxyz")
    assert written.columns.name == "part"
    assert list(written.dtypes) == list(frame.dtypes)
    assert written["float"].tolist() == written["single"].tolist() == [0.5, 1.5, -3.0, 300.0]
    assert written["int"].tolist() == written["Int64"].tolist() == [0, 2, -3, 300]
    assert written["byte"].tolist() == [0, 2, 0, 255]
    assert written["bool"].tolist() == written["boolean"].tolist() == [True, True, False, True]
    assert all(type(cell) is float for cell in written["object"])
    assert list(Schema.of(frame).write(values).index) == [0, 1, 2, 3]


def test_write_columns_that_are_not_of_numbers_as_floats():
    frame = pd.DataFrame({"a": pd.Categorical([3, None]), "b": pd.array(["1", "2"], dtype="string")})
    written = Schema.of(frame).write(np.array([[1.5, 2.5]]))
    assert list(written.dtypes) == [np.dtype(float)] * 2 and written.iloc[0].tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("f8", [0.5, 2.5, -7, 300]),
        ("f4", [0.5, 2.5, -7, 300]),
        ("i8", [0, 2, -7, 300]),
        ("i1", [0, 2, -7, 127]),
        ("u1", [0, 2, 0, 255]),
        ("?", [1, 1, 0, 1]),
        ("O", [0.5, 2.5, -7.0, 300.0]),
    ],
)
def test_write_array(dtype, expected):
    written = Schema.of(np.zeros((1, 4)).astype(dtype)).write(np.array([[0.5, 2.5, -7, 300]]))
    same(written, np.array([expected]).astype(dtype))


@pytest.mark.parametrize("dtype", ["i8", "u8", "i4", "i1"])
def test_write_clips_to_the_range_of_the_dtype(dtype):
    written = Schema.of(np.zeros((1, 2), dtype=dtype)).write(np.array([[-1e300, 1e300]]))
    info = np.iinfo(dtype)
    assert int(written[0, 0]) == info.min
    assert info.max - 2048 <= int(written[0, 1]) <= info.max
    nullable = pd.DataFrame({"a": pd.array([1], dtype="Int64"), "b": pd.array([1], dtype="UInt8")})
    assert Schema.of(nullable).write(np.array([[1e30, -5.0]])).iloc[0].tolist()[1] == 0


def test_write_keeps_narrow_floats_finite():
    for dtype in ("f2", "f4"):
        assert np.isfinite(Schema.of(np.zeros((1, 1), dtype=dtype)).write(np.array([[-1e300]]))).all()


def test_write_gives_an_array_that_may_be_written_to():
    values = np.ones((2, 2))
    values.flags.writeable = False
    written = Schema.of(values).write(values)
    written[0, 0] = 5
    assert values[0, 0] == 1
    frame = Schema.of(pd.DataFrame(values)).write(values)
    frame.iloc[0, 0] = 5
    assert values[0, 0] == 1


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "Int64", "boolean"])
def test_write_refuses_nan_for_whole_numbers(dtype):
    schema = Schema.of(pd.DataFrame({"a": [1.0], "eggs": pd.array([1], dtype=dtype)}))
    with pytest.raises(ValueError, match="NaN.*eggs"):
        schema.write(np.array([[NAN, NAN]]))
    assert schema.write(np.array([[NAN, 1.0]])).isna().iloc[0].tolist() == [True, False]
    with pytest.raises(ValueError, match="NaN"):
        Schema.of(np.ones((1, 1), dtype=int)).write(np.array([[NAN]]))


def test_write_no_rows():
    assert Schema.of(mixed_frame()).write(np.empty((0, 9))).shape == (0, 9)


# ---- filling


def test_fill_frame():
    frame = mixed_frame().set_index(pd.Index(["r", "r", "s"]))
    frame.columns.name = "part"
    before = frame.copy()
    filled = Schema.of(frame).fill(frame, np.full((3, 9), 2.75))
    pd.testing.assert_frame_equal(frame, before)
    assert list(filled.index) == ["r", "r", "s"] and filled.columns.name == "part"
    assert list(filled.dtypes) == list(frame.dtypes)
    expected = np.where(np.isnan(MIXED), 2.75, MIXED)
    expected[1, 5], expected[1, 7] = 3, 1
    same(read(filled), expected)


def test_fill_never_shares_memory():
    X = np.array([[1.0, 2.0], [3.0, 4.0]])
    for table in (X, X.astype("f4"), X.astype(int), X.astype(object), np.asfortranarray(X)):
        out = Schema.of(table).fill(table, X)
        assert type(out) is np.ndarray and not np.shares_memory(out, table)
        same(out, table)
    holes = np.where(X == 2, NAN, X)
    for table in (X, holes):
        frame = pd.DataFrame(table, copy=False)
        out = Schema.of(frame).fill(frame, X)
        assert not np.shares_memory(out.to_numpy(), table)
        out.iloc[0, 0] = 99.0
        assert frame.iloc[0, 0] == 1.0


def test_fill_leaves_the_bits_of_observed_cells():
    X = np.array([[-0.0, NAN, 5e-324], [0.1 + 0.2, 1e308, NAN]])
    out = Schema.of(X).fill(X, np.full(X.shape, 7.0))
    observed = ~np.isnan(X)
    assert out[observed].tobytes() == X[observed].tobytes()
    assert (out[~observed] == 7).all()
    read_only = X.copy()
    read_only.flags.writeable = False
    assert Schema.of(X).fill(read_only[:, ::-1], np.full(X.shape, 7.0)).flags.writeable


@pytest.mark.parametrize("trained", ["int64", "uint8", "Int64", "UInt16"])
def test_fill_integer_columns(trained):
    schema = Schema.of(pd.DataFrame({"eggs": pd.array([1, 2], dtype=trained)}))
    out = schema.fill(pd.DataFrame({"eggs": [7.0, NAN, NAN]}), np.array([[0.0], [2.5], [-1e9]]))
    assert out["eggs"].dtype == trained
    low = 0 if "u" in trained.lower() else -(10**9)
    assert out["eggs"].tolist() == [7, 2, low]
    out = schema.fill(pd.DataFrame({"eggs": [7.25, NAN]}), np.array([[0.0], [2.6]]))
    assert out["eggs"].dtype == float and out["eggs"].tolist() == [7.25, 3.0]
    out = schema.fill(pd.DataFrame({"eggs": np.array([1e19, NAN], dtype="f4")}), np.array([[0.0], [2.6]]))
    assert out["eggs"].dtype == "f4" and out["eggs"].tolist() == [np.float32(1e19), 3.0]
    untouched = pd.DataFrame({"eggs": [7.0, 8.0]})
    pd.testing.assert_frame_equal(schema.fill(untouched, np.zeros((2, 1))), untouched)


@pytest.mark.parametrize("trained", ["bool", "boolean"])
def test_fill_boolean_columns(trained):
    schema = Schema.of(pd.DataFrame({"ill": pd.array([True, False], dtype=trained)}))
    for cells in ([1.0, NAN, NAN], pd.Series([True, None, None], dtype=object)):
        out = schema.fill(pd.DataFrame({"ill": cells}), np.array([[0.0], [0.5], [0.49]]))
        assert out["ill"].dtype == trained and out["ill"].tolist() == [True, True, False]
    out = schema.fill(pd.DataFrame({"ill": [2.0, NAN]}), np.array([[0.0], [0.7]]))
    assert out["ill"].dtype == float and out["ill"].tolist() == [2.0, 1.0]


def test_fill_keeps_nullable_dtypes():
    frame = pd.DataFrame(
        {"a": pd.array([2**62 + 1, None], dtype="Int64"), "b": pd.array([0.1, None], dtype="Float32")}
        | {"c": pd.array([True, None], dtype="boolean")}
    )
    schema = Schema.of(pd.DataFrame({"a": [1], "b": [1.0], "c": [True]}))
    out = schema.fill(frame, np.array([[0, 0, 0], [1.5, 0.25, 0.2]]))
    assert list(out.dtypes) == list(frame.dtypes)
    assert out.iloc[0].tolist() == frame.iloc[0].tolist()  # 2**62 + 1 is not a float64
    assert out.iloc[1].tolist() == [2, 0.25, False]
    assert Schema.of(frame).fill(pd.DataFrame({"a": [NAN], "b": [1], "c": [1]}), np.ones((1, 3)))["a"].dtype == "Int64"


def test_fill_object_columns():
    long = 2**62 + 1
    frame = pd.DataFrame({"a": pd.Series([long, None, pd.NA], dtype=object)})
    out = Schema.of(frame).fill(frame, np.array([[0.0], [1.5], [2.5]]))
    assert out["a"].dtype == object and out["a"].tolist() == [long, 1.5, 2.5]
    out = Schema.of(pd.DataFrame({"a": [1, 2]})).fill(frame, np.array([[0.0], [1.5], [2.5]]))
    assert out["a"].dtype == "int64" and out["a"].tolist() == [long, 2, 2]
    longer = pd.DataFrame({"a": pd.Series([2**70, None], dtype=object)})
    out = Schema.of(pd.DataFrame({"a": [1, 2]})).fill(longer, np.array([[0.0], [1.5]]))
    assert out["a"].dtype == object and out["a"].tolist() == [2**70, 2]


def test_fill_text_and_categories_of_numbers():
    frame = pd.DataFrame({"a": pd.array(["1.5", None], dtype="string"), "b": pd.Categorical([3, None])})
    out = Schema.of(frame).fill(frame, np.array([[0.0, 0.0], [2.5, 3.5]]))
    assert out.to_numpy().tolist() == [[1.5, 3.0], [2.5, 3.5]]


def test_fill_keeps_multiindex_columns_and_attrs():
    columns = pd.MultiIndex.from_product([["a"], [1, 2]], names=["x", "y"])
    frame = pd.DataFrame([[1.0, NAN], [NAN, 4.0]], columns=columns, index=[5, 5])
    out = Schema.of(frame).fill(frame, np.array([[0, 2.0], [3.0, 0]]))
    assert out.columns.equals(columns) and out.columns.names == ["x", "y"] and list(out.index) == [5, 5]
    assert out.to_numpy().tolist() == [[1, 2], [3, 4]]


def test_fill_arrays():
    filled = np.array([[9.0, 2.5]])
    for cells in ([[1, None]], [[1.0, NAN]], np.array([[1.0, NAN]]), np.array([[1, pd.NA]], dtype=object)):
        same(Schema.of(np.ones((1, 2), dtype="i2")).fill(cells, filled), np.array([[1, 2]], dtype="i2"))
    same(Schema.of(np.ones((1, 2), dtype=int)).fill(np.array([[1.5, NAN]]), filled), np.array([[1.5, 2.0]]))
    same(Schema.of(np.ones((1, 2), dtype=bool)).fill(np.array([[1.0, NAN]]), filled), np.array([[True, True]]))
    single = np.array([[0.1, NAN]], dtype="f4")
    same(Schema.of(np.ones((1, 2))).fill(single, filled), np.array([[0.1, 2.5]], dtype="f4"))
    same(Schema.of([[1, 2]]).fill([[1, None]], filled), np.array([[1.0, 2.5]]))
    cells = np.array([[2**62 + 1, None]], dtype=object)
    assert Schema.of(cells).fill(cells, filled).tolist() == [[2**62 + 1, 2.5]]
    masked = np.ma.masked_equal(np.array([[1, 99]]), 99)
    same(Schema.of(masked).fill(masked, filled), np.array([[1, 2]]))


def test_fill_across_containers():
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 4]})
    same(Schema.of(frame).fill(np.array([[1.0, NAN]]), np.array([[0, 2.6]])), np.array([[1, 3]]))
    out = Schema.of(frame.to_numpy()).fill(pd.DataFrame({"a": [1.0, 2], "b": [3, NAN]}), np.full((2, 2), 2.6))
    assert out["b"].dtype == "int64" and out["b"].tolist() == [3, 3] and out["a"].dtype == float


def test_fill_refuses_nan_for_whole_numbers():
    with pytest.raises(ValueError, match="NaN.*eggs"):
        Schema.of(pd.DataFrame({"eggs": [1]})).fill(pd.DataFrame({"eggs": [NAN]}), np.array([[NAN]]))


# ---- given cells

GIVEN = Schema.of(pd.DataFrame({"mass": [1.0], "eggs": [1], "ill": [True]}))


@pytest.mark.parametrize(
    "given",
    [
        {"eggs": 2, "mass": 1.5},
        {"eggs": np.int8(2), "mass": np.float32(1.5), "ill": None},
        {"eggs": 2, "mass": 1.5, "ill": pd.NA},
        pd.Series({"eggs": 2, "mass": 1.5}),
        pd.Series({"eggs": 2, "mass": 1.5, "ill": pd.NaT}, dtype=object),
        pd.DataFrame({"eggs": [2], "mass": 1.5}, index=["row"]),
        pd.DataFrame({"eggs": pd.array([2], dtype="Int64"), "ill": pd.array([None], dtype="boolean"), "mass": 1.5}),
    ],
)
def test_given_by_name(given):
    same(GIVEN.read_given(given), np.array([1.5, 2.0, NAN]))


def test_given_nothing_and_given_truth():
    same(GIVEN.read_given({}), np.full(3, NAN))
    same(GIVEN.read_given({"ill": True}), np.array([NAN, NAN, 1.0]))


def test_given_by_position_for_arrays():
    schema = Schema.of(np.ones((2, 3)))
    same(schema.read_given({2: 5, 0: NAN}), np.array([NAN, NAN, 5.0]))
    same(schema.read_given({np.int64(1): 5}), np.array([NAN, 5.0, NAN]))
    same(schema.read_given(pd.Series([1.0, 2.0])), np.array([1.0, 2.0, NAN]))
    for given in ({3: 1.0}, {-1: 1.0}, {"mass": 1.0}):
        with pytest.raises(ValueError, match="unknown columns.*Known: 0, 1, 2"):
            schema.read_given(given)
    same(Schema.of(pd.DataFrame(np.ones((1, 2)), columns=[7, 8])).read_given({8: 2}), np.array([NAN, 2.0]))


def test_given_multiindex():
    columns = pd.MultiIndex.from_product([["a"], [1, 2]])
    frame = pd.DataFrame([[1.0, NAN]], columns=columns)
    same(Schema.of(frame).read_given({("a", 2): 3}), np.array([NAN, 3.0]))
    same(Schema.of(frame).read_given(frame), np.array([1.0, NAN]))
    same(Schema.of(frame).read_given(frame.iloc[0]), np.array([1.0, NAN]))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"weight": 1, 0: 2}, "unknown columns: 'weight', 0. Known: 'mass', 'eggs', 'ill'"),
        (pd.DataFrame({"mass": [1.0, 2.0]}), "one row"),
        (pd.DataFrame({"mass": []}), "one row"),
        ([1.0, 2.0, 3.0], "dict, a Series or a data frame"),
        (5.0, "dict, a Series or a data frame"),
        ({"mass": "heavy"}, "given .*column 'mass'.*'heavy'"),
        ({"mass": [1.0, 2.0]}, "given .*column 'mass'"),
        ({"mass": np.ones(2)}, "given .*column 'mass'"),
        ({"mass": pd.Timestamp("2020")}, "given .*column 'mass'"),
        ({"eggs": -np.inf}, "given .*infinity.*column 'eggs'.*-inf"),
        (pd.Series([1.0, 2.0], index=["mass", "mass"]), "repeated.*'mass'"),
    ],
)
def test_given_refused(given, words):
    with pytest.raises(ValueError, match=words):
        GIVEN.read_given(given)


def test_given_lists_ten_columns_at_most():
    with pytest.raises(ValueError, match=r"Known: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \.\.\. \(50 in all\)\.$"):
        Schema.of(np.ones((1, 50))).read_given({"a": 1})


# ---- labels


def check_labels(y, labels, missing=(), kind=None, unlabelled=None):
    """The present labels, their dtype's kind, and the places of the missing ones."""
    values, holes = read_labels(y, unlabelled=unlabelled)
    assert values.shape == holes.shape == (len(labels) + len(missing),)
    assert holes.dtype == bool and np.flatnonzero(holes).tolist() == list(missing)
    assert values[~holes].tolist() == labels
    assert kind is None or values.dtype.kind == kind
    return values, holes


@pytest.mark.parametrize(
    ("y", "labels", "missing", "kind"),
    [
        ([2, 0, 1], [2, 0, 1], [], "i"),
        (["b", "a"], ["b", "a"], [], "U"),
        (("b", "a"), ["b", "a"], [], "U"),
        ([True, False], [True, False], [], "b"),
        ([1, None, 2], [1, 2], [1], "i"),
        ([1, pd.NA], [1], [1], "i"),
        ([True, None], [True], [1], "b"),
        ([1.0, NAN, 2.0], [1.0, 2.0], [1], "f"),
        ([1, NAN], [1.0], [1], "f"),
        (["a", None], ["a"], [1], "O"),
        (["a", NAN], ["a"], [1], "O"),
        ([None, NAN, pd.NA], [], [0, 1, 2], None),
        (np.array([3, 1], dtype="u1"), [3, 1], [], "u"),
        (np.array([3, 1], dtype=object), [3, 1], [], "i"),
        (np.array([2, None, 1.5 * 2], dtype=object), [2.0, 3.0], [1], "f"),
        (np.array(["x", "y"], dtype=object), ["x", "y"], [], "O"),
        (np.ma.masked_equal(np.array([1, 9, 2]), 9), [1, 2], [1], "i"),
        (np.array([1, 0, 2, 0, 3])[::2], [1, 2, 3], [], "i"),
        (pd.Series([2, 1]), [2, 1], [], "i"),
        (pd.Series(["b", None]), ["b"], [1], "O"),
        (pd.Series(["b", "a"], dtype="string"), ["b", "a"], [], "O"),
        (pd.Series(["b", None], dtype="category"), ["b"], [1], "O"),
        (pd.Series([7, None, 5], dtype="category"), [7, 5], [1], None),
        (pd.Series(pd.Categorical([None, 5], categories=[4, 5])), [5], [0], "i"),
        (pd.Series(pd.Categorical([None, None])), [], [0, 1], None),
        (pd.Series([2, 1], dtype="Int64"), [2, 1], [], "i"),
        (pd.Series([2, None], dtype="Int64"), [2], [1], "i"),
        (pd.Series([True, None], dtype="boolean"), [True], [1], "b"),
        (pd.Series([2.0, None], dtype="Float64"), [2.0], [1], "f"),
        (pd.Index([2, 1]), [2, 1], [], "i"),
        (pd.Categorical(["b", "a"]), ["b", "a"], [], "O"),
        ([], [], [], None),
    ],
)
def test_labels(y, labels, missing, kind):
    check_labels(y, labels, missing, kind)


@pytest.mark.parametrize(
    ("y", "unlabelled", "labels", "missing", "kind"),
    [
        ([1, -1, 0], -1, [1, 0], [1], "i"),
        (pd.Series([1, -1, None], dtype="Int64"), -1, [1], [1, 2], "i"),
        (pd.Series([1, pd.NA, -1], dtype=object), -1, [1], [1, 2], "i"),
        ([1.0, -1.0, NAN], -1, [1.0], [1, 2], "f"),
        (["a", "?"], "?", ["a"], [1], "U"),
        (["a", "?", None], "?", ["a"], [1, 2], "O"),
        (pd.Series(["a", "?"]), "?", ["a"], [1], "O"),
        (pd.Series(["a", "?"], dtype="category"), "?", ["a"], [1], "O"),
        ([1, 2, "?"], "?", [1, 2], [2], "i"),
        ([0, 1], "?", [0, 1], [], "i"),
        (["a", "b"], -1, ["a", "b"], [], "U"),
        (pd.Series(["a", "b"]), -1, ["a", "b"], [], "O"),
        ([True, False], "?", [True, False], [], "b"),
        ([0, 1], NAN, [0, 1], [], "i"),
        ([0, 1], pd.NA, [0, 1], [], "i"),
        (["a", None], pd.NA, ["a"], [1], "O"),
    ],
)
def test_unlabelled(y, unlabelled, labels, missing, kind):
    check_labels(y, labels, missing, kind, unlabelled)


def test_labels_are_not_changed():
    y = np.array([1, None, 2], dtype=object)
    read_labels(y, unlabelled=2)
    assert y.tolist() == [1, None, 2]
    y = np.array([1.0, NAN])
    y.flags.writeable = False
    read_labels(y)


@pytest.mark.parametrize(
    "y",
    [np.array([[1], [2]]), [[1], [2]], pd.DataFrame({"y": [1, 2]}), pd.DataFrame({"y": ["1", None]})],
    ids=repr,
)
def test_a_column_of_labels_warns(y):
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        values, _ = read_labels(y)
    assert values.shape == (2,)
    assert values[0] in (1, "1")


@pytest.mark.parametrize(
    "y",
    [np.ones((2, 2)), [[1, 2], [3, 4]], [["a", "b"]], pd.DataFrame({"a": [1], "b": [2]}), None, 3, "abc"],
    ids=repr,
)
def test_labels_of_the_wrong_shape(y):
    with pytest.raises(ValueError, match="y should be a 1d array"):
        read_labels(y)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([0.5, 1.5, NAN], "Unknown label type: continuous"),
        (np.array([0.5, None], dtype=object), "Unknown label type: continuous"),
        (pd.Series([0.5, None], dtype="Float64"), "Unknown label type: continuous"),
        ([0.0, np.inf], "y contains infinity"),
        (np.array([1j, 2]), "Complex data not supported"),
        ([date(2020, 1, 1)], "Unknown label type"),
    ],
)
def test_labels_that_are_not_classes(y, words):
    with pytest.raises(ValueError, match=words):
        read_labels(y)


def test_unique_labels():
    def classes(y, **how):
        return unique_labels(*read_labels(y, **how))

    same(classes([2, 0, 2, -1], unlabelled=-1), np.array([0, 2]))
    same(classes(np.array([2, 1], dtype="u1")), np.array([1, 2], dtype="u1"))
    same(classes(pd.Series([3, None, 1], dtype="Int64")), np.array([1, 3]))
    same(classes([1.0, NAN, 0.0]), np.array([0.0, 1.0]))
    same(classes([True, False, None]), np.array([False, True]))
    same(classes(["long name", "b", "b"]), np.array(["b", "long name"]))
    same(classes(pd.Series(["long name", "b", None])), np.array(["b", "long name"]))
    assert len(classes([None, None])) == 0


def test_labels_without_an_order():
    for y in (["a", 1], [1, "a", None], pd.Series([1, "a"], dtype=object)):
        with pytest.raises(ValueError, match="mix types.*('int', 'str'|'str', 'int')"):
            unique_labels(*read_labels(y))


@pytest.mark.parametrize("y", [[3, 1, 3], ["c", "a", "c"], [3.0, 1.0, 3.0], [True, False, True]], ids=repr)
def test_encode(y):
    for labels in (y, np.array(y, dtype=object), pd.Series(y), pd.Series(y, dtype="category")):
        values, missing = read_labels(labels)
        codes = encode(values, missing, unique_labels(values, missing))
        assert codes.tolist() == [1, 0, 1] and codes.dtype.kind == "i"
    values, missing = read_labels([*y, None])
    assert encode(values, missing, np.unique(y)).tolist() == [1, 0, 1, -1]


def test_encode_mixed_dtypes_of_the_same_labels():
    classes = np.array(["a", "b"])
    assert encode(*read_labels(pd.Series(["b", None, "a"])), classes).tolist() == [1, -1, 0]
    assert encode(*read_labels(["b", "a"]), classes.astype(object)).tolist() == [1, 0]
    assert encode(*read_labels([1.0, 0.0]), np.array([0, 1])).tolist() == [1, 0]
    assert encode(*read_labels([None, None]), np.array([])).tolist() == [-1, -1]
    assert encode(*read_labels([None, None]), classes).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("y", "classes", "words"),
    [
        ([0, 5, 1, 9, 5, -3], np.array([0, 1]), "5, 9, -3. Known: 0, 1"),
        (["a", "z"], np.array(["a", "b"]), "'z'. Known: 'a', 'b'"),
        (["1"], np.array([1]), "'1'. Known: 1"),
        ([1], np.array(["1"]), "1. Known: '1'"),
        ([0.5 + 0.5], np.array([]), "1.0. Known: "),
        (list(range(30)), np.array([40]), r"9, \.\.\. \(30 in all\)"),
    ],
)
def test_encode_names_unknown_labels(y, classes, words):
    with pytest.raises(ValueError, match=f"not among the classes: .*{words}"):
        encode(*read_labels(y), classes)


# ---- the schema of labels


@pytest.mark.parametrize(
    "y",
    [
        pd.Series(["b", "a", "b"], name="species"),
        pd.Series(["b", "a", None], name="species", dtype="string"),
        pd.Series(pd.Categorical(["b", "a", "b"], categories=["c", "b", "a"], ordered=True), name=("x", 1)),
        pd.Series([3, None, 1], dtype="Int8"),
        pd.Series([3, 2, 1], dtype="uint8", name=0),
        pd.Series([True, False, True]),
        pd.Series([True, None, False], dtype="boolean"),
        pd.Series([1.0, NAN, 2.0]),
        pd.Series([1, None, 2], dtype=object),
    ],
    ids=lambda y: str(y.dtype),
)
def test_label_series_come_back(y):
    values, missing = read_labels(y)
    classes = unique_labels(values, missing)
    schema = LabelSchema.of(y)
    index = pd.Index(np.flatnonzero(~missing))
    written = schema.write(classes[encode(values, missing, classes)[~missing]], index=index)
    pd.testing.assert_series_equal(written, y[~missing], check_index_type=False)
    assert (schema.container, schema.name) == ("series", y.name)


def test_label_arrays_come_back():
    same(LabelSchema.of(np.array([1, 2], dtype="i1")).write(np.array([2, 1])), np.array([2, 1], dtype="i1"))
    same(LabelSchema.of(np.array(["a", "b"])).write(np.array(["long", "b"])), np.array(["long", "b"]))
    same(LabelSchema.of(["a", None]).write(np.array(["a"])), np.array(["a"]))
    same(LabelSchema.of([1, 2]).write(np.array([2])), np.array([2]))
    objects = LabelSchema.of(np.array(["a", 1], dtype=object)).write(np.array(["a"]))
    assert objects.dtype == object and objects.tolist() == ["a"]
    assert LabelSchema.of(np.ones((3, 1))).container == "array"


def test_a_one_column_frame_of_labels_counts_as_a_series():
    schema = LabelSchema.of(pd.DataFrame({"species": ["a", "b"]}))
    written = schema.write(np.array(["b"]), index=[9])
    assert (written.name, written.index.tolist(), written.tolist()) == ("species", [9], ["b"])
