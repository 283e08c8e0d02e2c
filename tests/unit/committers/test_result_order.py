"""The one order in which every attempt gives its rows to a committer of one's own."""

from __future__ import annotations

import itertools
import math
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from txtopo.committers.protocol.result_order import in_order, tuples_of
from txtopo.core.fields import parse_fields
from txtopo.errors import BatchDataError
from txtopo.spouts.arrow_types import arrow_schema


@pytest.mark.parametrize(
    ("ddl", "values"),
    [
        ("a double", [-math.inf, -1.0, -0.0, 0.0, 1.5, math.inf, math.nan, None]),
        ("a float", [-0.0, 0.0]),
        ("a string", ["", "A", "a", "ä", None]),
        ("a binary", [b"", b"\x00", b"a", b"\xff", None]),
        ("a decimal(10,2)", [Decimal("-1.00"), Decimal("0.50"), None]),
        ("a date", [date(1, 1, 1), date(2020, 1, 1), None]),
        ("a boolean", [False, True, None]),
    ],
)
def test_rows_come_in_a_total_order_whatever_order_they_had(ddl: str, values: list[Any]) -> None:
    """Rows are sorted by a total order over the declared types, NULLs last, so that two attempts apply alike."""
    fields = parse_fields(ddl)
    kind = arrow_schema(fields).field(0).type

    found = set()
    for order in itertools.islice(itertools.permutations(values), 200):
        table = pa.table([pa.array(order, kind)], names=["a"])
        found.add(repr([tup.values for tup in tuples_of(table, fields, "c")]))

    assert found == {repr([(value,) for value in values])}


def test_other_columns_are_refused() -> None:
    """The executor hands over the declared columns or nothing."""
    with pytest.raises(BatchDataError, match="got columns b, expected a"):
        in_order(pa.table({"b": [1]}), parse_fields("a bigint"), "c")
