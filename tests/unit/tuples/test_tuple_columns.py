"""Emitted values against declared fields: what fits, what does not, and that nothing is changed without a word."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from txtopo.core.fields import parse_fields
from txtopo.errors import BatchDataError
from txtopo.tuples.columns import Columns, Refused, cast_column

COLUMNS = Columns(
    "bolt",
    "default",
    parse_fields("n int, f double, d date, t timestamp, p decimal(5,2), s string not null, b boolean, y binary"),
)
SMALL = Columns("bolt", "default", parse_fields("r float, l timestamp_ntz"))
GOOD = (1, 1.5, date(2013, 1, 1), datetime(2013, 1, 1, tzinfo=UTC), Decimal("1.2"), "x", True, b"\xff")


def with_value(field: str, value: Any) -> list[Any]:
    """A good row with one other value."""
    row = list(GOOD)
    row["nfdtpsby".index(field)] = value
    return row


def test_good_values_come_out_as_they_went_in() -> None:
    """NULL fits wherever it is not forbidden."""
    assert tuple(COLUMNS.row(GOOD).to_pylist()[0].values()) == GOOD
    nothing = [None, None, None, None, None, "", None, None]
    assert list(COLUMNS.row(nothing).to_pylist()[0].values()) == nothing


@pytest.mark.parametrize("field, value", [("n", np.int64(3)), ("f", 3), ("f", np.float32(0.5)), ("p", 7)])
def test_numbers_of_other_kinds_fit_where_they_lose_nothing(field: str, value: Any) -> None:
    """numpy's numbers are numbers."""
    assert COLUMNS.row(with_value(field, value)).column(field)[0].as_py() == value


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("n", 1.5, "field n: 1.5 (float) is no int"),
        ("n", 1.0, "field n: 1.0 (float) is no int"),
        ("n", Decimal("1.5"), "field n: 1.5 (Decimal) is no int"),
        ("n", True, "field n: True (bool) is no int"),
        ("n", "1", "field n: '1' (str) is no int"),
        ("n", 2**31, "field n: 2147483648 (int) is no int"),
        ("n", 2**70, "is no int"),
        ("f", "x", "field f: 'x' (str) is no double"),
        ("d", datetime(2013, 1, 1), "field d: 2013-01-01 00:00:00 (datetime) is no date"),
        ("d", 1, "field d: 1 (int) is no date"),
        ("t", 1, "field t: 1 (int) is no timestamp"),
        ("t", date(2013, 1, 1), "field t: 2013-01-01 (date) is no timestamp"),
        ("p", Decimal("1.234"), "field p: 1.234 (Decimal) is no decimal(5,2)"),
        ("p", 1.5, "field p: 1.5 (float) is no decimal(5,2)"),
        ("s", None, "field s: NULL, but it is declared NOT NULL"),
        ("s", 5, "field s: 5 (int) is no string"),
        ("s", "\ud800", "is no string"),
        ("s", b"x", "field s: b'x' (bytes) is no string"),
        ("b", 1, "field b: 1 (int) is no boolean"),
        ("f", True, "field f: True (bool) is no double"),
        ("y", "x", "field y: 'x' (str) is no binary"),
        ("t", pd.Timestamp(1, tz="UTC"), "(Timestamp) is no timestamp"),
    ],
)
def test_a_value_that_does_not_fit_is_named(field: str, value: Any, told: str) -> None:
    """Component, stream, field and value; and no digit, no time of day is cut off in silence."""
    with pytest.raises(BatchDataError) as raised:
        COLUMNS.batch([[good, found] for good, found in zip(GOOD, with_value(field, value), strict=True)])

    assert raised.value.component == "bolt"
    assert str(raised.value).startswith("bolt, stream default: ")
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ([1], "emitted 1 values (1); it declares 8 fields (n, f, d, t, p, s, b, y)"),
        ("abcdefgh", "emitted 'abcdefgh' (str); a list or tuple of 8 values is wanted"),
        (bytearray(b"abcdefgh"), "(bytearray); a list or tuple of 8 values is wanted"),
        (b"abcdefgh", "(bytes); a list or tuple of 8 values is wanted"),
        (None, "emitted NULL (NoneType); a list or tuple of 8 values is wanted"),
        (dict.fromkeys("nfdtpsby"), "(dict); a list or tuple of 8 values is wanted"),
    ],
)
def test_what_is_no_row_of_that_width_is_refused(row: Any, told: str) -> None:
    """A text of eight letters is no row of eight values."""
    with pytest.raises(BatchDataError) as raised:
        COLUMNS.row(row)

    assert told in str(raised.value)


@pytest.mark.parametrize(
    "row",
    [
        (1e300, None),
        (-1e39, None),
        (None, datetime(2013, 1, 1, tzinfo=UTC)),
        (None, pd.Timestamp(1)),
    ],
)
def test_a_value_that_would_become_another_is_refused(row: Any) -> None:
    """A float that would become infinite, a point in time that would lose its zone, nanoseconds."""
    with pytest.raises(BatchDataError, match=r"is no (float|timestamp_ntz)$"):
        SMALL.row(row)


@pytest.mark.parametrize(
    "texts",
    [["", "a", b"b"], ["a", "", None, b"b"], [b""], ["", bytearray(b"b")], ["a"] * 20_000 + [memoryview(b"b")]],
    ids=["at the end", "behind NULL", "empty", "bytearray", "behind many"],
)
def test_every_value_of_a_text_field_is_looked_at(texts: list[Any]) -> None:
    """Arrow reads bytes as text."""
    with pytest.raises(BatchDataError, match=r"field s: .* is no string"):
        Columns("bolt", "default", parse_fields("s string")).batch([texts])


class Text(str):
    """Texts of which each is equal to every other."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)

    def __hash__(self) -> int:
        return 0


def test_texts_of_a_class_of_their_own_fit() -> None:
    texts = [Text("a"), Text(""), "b", "\U0001f600"]

    found = Columns("bolt", "default", parse_fields("s string")).batch([texts])

    assert found.column(0).to_pylist() == ["a", "", "b", "\U0001f600"]


def test_what_is_infinite_stays_so() -> None:
    """It is a value of a float like any other."""
    local = datetime(2013, 1, 1, 12)
    assert list(SMALL.row((float("-inf"), local)).to_pylist()[0].values()) == [float("-inf"), local]
    assert list(SMALL.row((3.4e38, pd.Timestamp(local))).to_pylist()[0].values())[1] == local


@pytest.mark.parametrize(
    ("column", "to", "found"),
    [
        (pa.array([1, None]), pa.int32(), [1, None]),
        (pa.array([3]), pa.decimal128(5, 2), [Decimal("3.00")]),
        (pa.array([3]), pa.float64(), [3.0]),
        (pa.array([0.5]), pa.float32(), [0.5]),
        (pa.array([float("inf")]), pa.float32(), [float("inf")]),
        (pa.array(["x"], pa.large_string()), pa.string(), ["x"]),
        (pa.array(["x"]).dictionary_encode(), pa.string(), ["x"]),
        (pa.array([None]), pa.string(), [None]),
        (pa.array([1_000], pa.timestamp("ns")), pa.timestamp("us"), [datetime(1970, 1, 1, 0, 0, 0, 1)]),
    ],
)
def test_columns_held_in_another_way_are_cast(column: pa.Array, to: pa.DataType, found: list[Any]) -> None:
    """Numbers of another width, dictionaries, other units of time."""
    assert cast_column(column, to).to_pylist() == found


@pytest.mark.parametrize(
    ("column", "to"),
    [
        (pa.array(["12"]), pa.int32()),
        (pa.array([7]), pa.bool_()),
        (pa.array([12]), pa.string()),
        (pa.array([1.0]), pa.int64()),
        (pa.array([1.005]), pa.decimal128(5, 2)),
        (pa.array([1.5]), pa.string()),
        (pa.array([5]), pa.timestamp("us", "UTC")),
        (pa.array([5], pa.timestamp("us", "UTC")), pa.date32()),
        (pa.array([5], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([b"x"]), pa.string()),
        (pa.array([2**40]), pa.int32()),
        (pa.array([12345]), pa.decimal128(5, 2)),
        (pa.array([1e300]), pa.float32()),
    ],
)
def test_columns_of_another_kind_are_refused(column: pa.Array, to: pa.DataType) -> None:
    """Arrow casts most of them, to other values than they were."""
    with pytest.raises(ValueError, match=r"."):
        cast_column(column, to)


def test_what_a_traced_run_refuses_no_bolt_swallows() -> None:
    """An ordinary run raises it after the bolt returned, where no `except` of its own sees it; width and kind both
    raise at once.
    """
    with pytest.raises(Refused, match=r"field n: 1\.5"):
        COLUMNS.check(with_value("n", 1.5))
    assert not issubclass(Refused, Exception)
    with pytest.raises(BatchDataError, match="it declares 8 fields"):
        COLUMNS.check([1])
