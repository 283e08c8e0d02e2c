"""The roots of the tuples of a batch: runs of neighbours say the same as a list for each row."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txtopo.tuples import roots as roots_module
from txtopo.tuples.roots import COLUMN, Roots, packed, unpacked
from txtopo.tuples.wire import pack, unpack


@pytest.fixture(autouse=True, params=[0, 1_000], ids=["packed", "plain"])
def packing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways in which few rows may travel."""
    with patch.object(roots_module, "PACKED_ROWS_MIN", request.param):
        yield


by_row = st.lists(st.lists(st.integers(0, 5) | st.integers(0, 2**60), max_size=3), max_size=30)


def told(roots: Roots) -> list[list[int]]:
    """By row."""
    assert [list(roots.of_row(at)) for at in range(len(roots))] == roots.rows
    return roots.rows


@given(rows=by_row)
def test_runs_keep_what_each_row_has(rows: list[list[int]]) -> None:
    """By rows, one row, and through a message."""
    roots = Roots.of_rows(rows)
    column = roots.column

    assert told(roots) == rows
    assert len(column) == len(rows)
    assert told(Roots.of_column(column)) == rows


@given(rows=by_row, data=st.data())
def test_a_slice_has_the_roots_of_its_rows(rows: list[list[int]], data: st.DataObject) -> None:
    """Also of a slice, and sent in a message."""
    first = data.draw(st.integers(0, len(rows)))
    count = data.draw(st.integers(0, len(rows) - first))
    once = Roots.of_rows(rows).slice(first, count)
    again = data.draw(st.integers(0, count))

    assert told(once) == rows[first : first + count]
    assert told(once.slice(again, count - again)) == rows[first + again : first + count]
    assert told(Roots.of_column(once.column)) == rows[first : first + count]


@given(rows=by_row, data=st.data())
def test_rows_are_taken_in_any_order(rows: list[list[int]], data: st.DataObject) -> None:
    """As a grouping by fields does, and anchors of an Arrow bolt."""
    numbers = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=40)) if rows else []

    taken = Roots.of_rows(rows).take(np.array(numbers, dtype=np.int64))

    assert told(taken) == [rows[at] for at in numbers]


@given(rows=by_row, data=st.data())
def test_a_row_is_repeated_for_each_that_comes_of_it(rows: list[list[int]], data: st.DataObject) -> None:
    """What a tuple emits has its roots."""
    counts = [data.draw(st.integers(0, 3)) for _ in rows]

    repeated = Roots.of_rows(rows).repeated(np.array(counts, dtype=np.int64))

    assert told(repeated) == [found for found, count in zip(rows, counts, strict=True) for _ in range(count)]


def test_single_roots_and_none() -> None:
    """Of a spout's tuples, and of what is emitted at the end of a batch."""
    assert told(Roots.single(np.array([5, 6, 9]))) == [[5], [6], [9]]
    assert told(Roots.none(3)) == [[], [], []]
    assert told(Roots.none(0)) == []


@given(numbers=st.lists(st.integers(0, 20) | st.integers(0, 2**60), max_size=40))
def test_stretches_are_the_numbers_again(numbers: list[int]) -> None:
    """Whatever their order."""
    assert unpacked(*packed(np.array(numbers, dtype=np.int64))).tolist() == numbers


@pytest.mark.parametrize("each", [1, 8])
def test_neighbours_in_the_source_cost_a_message_next_to_nothing(each: int) -> None:
    """A line of the source is 4 bytes, however many tuples come of it; straight from the source nothing."""
    roots = Roots.single(np.arange(10_000)).repeated(np.full(10_000, each))

    body = pa.RecordBatch.from_arrays([roots.column], names=[COLUMN])

    assert len(pack(body) or b"") < (2_000 if each == 1 else 10_000 * 4 + 2_000)
    received = unpack(pack(body))
    assert received is not None
    assert len(Roots.of_column(received.column(0))) == 10_000 * each


@pytest.mark.parametrize("lists", [[[1], [1], [2], [3]], [[1], [2, 5], [3], [4]], [[1], [], [3], [4]]])
def test_a_message_that_lost_rows_at_its_end_has_the_roots_of_those_that_are_left(lists: list[list[int]]) -> None:
    """Its count is wrong, and that is told; nothing else may break over it."""
    body = pa.RecordBatch.from_arrays([Roots.of_rows(lists).column], names=[COLUMN])

    received = unpack(pack(body.slice(0, 3)))

    assert received is not None
    assert told(Roots.of_column(received.column(0))) == lists[:3]
    assert told(Roots.of_column(body.slice(1, 2).column(0))) == lists[1:3]
