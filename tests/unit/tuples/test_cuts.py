"""Record batches are cut by their rows alone: the same cuts, however the rows came."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from txtopo.tuples.cuts import BYTES_MAX, ROWS_MAX, cut

SCHEMA = pa.schema(
    [("s", pa.string()), ("b", pa.binary()), ("n", pa.int32()), ("f", pa.bool_()), ("d", pa.decimal128(38, 2))]
)
ROWS = st.lists(
    st.tuples(
        st.none() | st.text(max_size=12),
        st.none() | st.binary(max_size=9),
        st.none() | st.integers(-9, 9),
        st.none() | st.booleans(),
        st.none() | st.just(Decimal("1.50")),
    ),
    max_size=30,
)


def batch_of(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    return pa.RecordBatch.from_arrays(
        [pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def pieces(rows: list[tuple[Any, ...]], places: list[int]) -> list[pa.RecordBatch]:
    """The rows as Spark may send them: slices of one batch, and batches with separate values, also empty ones."""
    whole = batch_of(rows)
    ends = sorted(place % (len(rows) + 1) for place in places)
    found = []
    for number, (first, last) in enumerate(zip([0, *ends], [*ends, len(rows)], strict=True)):
        found.append(whole.slice(first, last - first) if number % 2 else batch_of(rows[first:last]))
    return found


@settings(deadline=None)
@given(ROWS, st.lists(st.integers(0, 30), max_size=6), st.integers(1, 7), st.integers(1, 150))
def test_the_same_rows_are_cut_in_the_same_way_however_they_came(
    rows: list[tuple[Any, ...]], places: list[int], rows_max: int, bytes_max: int
) -> None:
    once = list(cut([batch_of(rows)], rows_max=rows_max, bytes_max=bytes_max))
    again = list(cut(pieces(rows, places), rows_max=rows_max, bytes_max=bytes_max))

    assert [one.to_pylist() for one in again] == [one.to_pylist() for one in once]
    assert [row for one in once for row in one.to_pylist()] == batch_of(rows).to_pylist()
    assert all(0 < one.num_rows <= rows_max for one in once)


def test_a_batch_ends_with_its_rows_or_with_the_row_that_fills_it() -> None:
    schema = pa.schema([("s", pa.string())])
    small = pa.RecordBatch.from_pydict({"s": ["x"] * (ROWS_MAX + 3)}, schema=schema)
    large = pa.RecordBatch.from_pydict({"s": ["x" * (BYTES_MAX // 2), "y" * BYTES_MAX, "z"]}, schema=schema)

    assert [one.num_rows for one in cut([small])] == [ROWS_MAX, 3]
    assert [one.num_rows for one in cut([large])] == [2, 1]
    assert not list(cut([]))
