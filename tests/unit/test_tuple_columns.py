"""Emitted values against declared fields: what fits, what does not, and that nothing is changed without a word."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from txtopo.core.fields import parse_fields
from txtopo.errors import BatchDataError
from txtopo.tuples.columns import Columns

COLUMNS = Columns(
    "bolt", "default",
    parse_fields("n int, f double, d date, t timestamp, p decimal(5,2), s string not null, b boolean, y binary"),
)  # fmt: skip
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
        ("b", 1, "field b: 1 (int) is no boolean"),
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
