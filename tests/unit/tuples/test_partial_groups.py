"""Groups that tasks make of tuples: added up they are what the tuples are, whatever the values, in bounded memory."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.nasty_values import FIELDS, KEYS, nasty_batch, uneven
from txtopo.core.fields import parse_fields
from txtopo.topology.partial_counts import TUPLES, PartialCount
from txtopo.tuples import partial_groups
from txtopo.tuples.partial_groups import PartialGroups

ALL_KEYS = parse_fields(KEYS).names
SUMS = ("s_tiny", "s_small", "s_int", "s_big", "s_decimal")


def plain(table: pa.Table | pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Rows of values whose equality is that of their bytes: Python calls True and 1 equal, and 1.1 and 1.10."""
    columns = [column.cast(pa.binary()) if pa.types.is_string(column.type) else column for column in table.columns]
    return list(zip(*[map(repr, column.to_pylist()) for column in columns], strict=True))


Totals = dict[tuple[Any, ...], list[Fraction]]
"""By key: sums and the number of tuples, exact however many digits they have."""


def added_up(groups: Iterable[pa.RecordBatch], keys: int) -> Totals:
    found: Totals = {}
    for batch in groups:
        rows = zip(*[column.to_pylist() for column in batch.columns[keys:]], strict=True)
        _add(found, plain(batch.select(range(keys))), rows)
    return found


def expected(batch: pa.RecordBatch, partial: PartialCount) -> Totals:
    found: Totals = {}
    columns = [[value or 0 for value in batch.column(name).to_pylist()] for name in partial.sums]
    _add(found, plain(batch.select(list(partial.keys))), zip(*columns, [1] * batch.num_rows, strict=True))
    return found


def _add(found: Totals, keys: Iterable[tuple[Any, ...]], rows: Iterable[tuple[Any, ...]]) -> None:
    for key, row in zip(keys, rows, strict=True):
        total = found.setdefault(key, [Fraction(0)] * len(row))
        for place, value in enumerate(row):
            total[place] += Fraction(value)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(0, 700),
    variety=st.integers(2, 20),
    keys=st.lists(st.sampled_from(ALL_KEYS), min_size=1, max_size=3, unique=True),
    block=st.sampled_from([1, 7, 8192]),
    held=st.sampled_from([1, 20, 65_536]),
)
def test_groups_of_any_values_add_up_to_their_tuples(
    seed: int, rows: int, variety: int, keys: list[str], block: int, held: int
) -> None:
    """Promise: a group in a task has equal values of every key, to the bit, and its number of tuples and sums are
    exact; however the tuples come and wherever memory ends.
    """
    batch = nasty_batch(FIELDS, rows, seed, variety=variety)
    partial = PartialCount(keys=tuple(keys), sums=SUMS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial_groups, "BLOCK_ROWS", block)
        patch.setattr(partial_groups, "GROUPED_ROWS_MIN", 1)
        patch.setattr(partial_groups, "SLICE_ROWS", 50)
        patch.setattr(partial_groups, "HELD_ROWS_MAX", held)
        groups = list(PartialGroups(partial, parse_fields(FIELDS)).of(uneven(batch)))

    assert added_up(groups, len(keys)) == expected(batch, partial)


def counted(batches: Iterable[pa.RecordBatch], fields: str = "name string, n bigint") -> list[pa.RecordBatch]:
    partial = PartialCount(keys=("name",), sums=("n",))
    return list(PartialGroups(partial, parse_fields(fields)).of(iter(batches)))


def named(names: Iterable[str | None]) -> pa.RecordBatch:
    column = pa.array(list(names), pa.string())
    return pa.RecordBatch.from_arrays([column, pa.array([2**62] * len(column), pa.int64())], names=["name", "n"])


def test_few_keys_leave_as_one_group_each() -> None:
    groups = counted([named(itertools.islice(itertools.cycle("abc"), 30_000))] * 4)

    assert [batch.num_rows for batch in groups] == [3]
    assert groups[0].column("$s0").to_pylist() == [Decimal(40_000) * 2**62] * 3, "no sum of 64 bits wraps around"


def test_with_many_different_keys_grouping_is_given_up_after_the_first_block() -> None:
    """Promise: what does not become fewer costs no more than before. The first block is grouped, all others leave as
    they came, one group for each tuple.
    """
    made: list[int] = []

    class Counting(PartialGroups):
        def _grouped(self, groups: pa.Table) -> pa.Table:
            made.append(groups.num_rows)
            return super()._grouped(groups)

    batches = [named(f"{batch} {at // 2 if batch else at}" for at in range(10_000)) for batch in range(5)]

    groups = Counting(PartialCount(keys=("name",), sums=()), parse_fields("name string, n bigint")).of(iter(batches))

    assert sum(batch.num_rows for batch in groups) == 50_000
    assert made == [10_000]


def test_few_tuples_are_not_grouped() -> None:
    (groups,) = counted([named("abcab")])

    assert Counter(groups.column("$k0").to_pylist()) == Counter("abcab")
    assert groups.column(TUPLES).to_pylist() == [1] * 5


def test_memory_is_bounded_where_keys_keep_changing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: groups that are held are sent when there are too many; a group never has more tuples than its sums have
    room for.
    """
    monkeypatch.setattr(partial_groups, "HELD_ROWS_MAX", 10_000)
    taken = 0

    def changing() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for batch in range(20):
            taken += 1
            yield named(f"{batch} {at // 4}" for at in range(10_000))

    groups = PartialGroups(PartialCount(keys=("name",), sums=()), parse_fields("name string, n bigint")).of(changing())

    assert next(groups).num_rows <= 12_500
    assert taken == 5, "the first groups leave long before the last tuples come"
    monkeypatch.setattr(partial_groups, "TUPLES_MAX", 25_000)
    assert [batch.column(TUPLES).to_pylist() for batch in counted([named("a" * 10_000)] * 5)] == [
        [20_000],
        [20_000],
        [10_000],
    ]


def test_wide_keys_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_groups, "HELD_BYTES_MAX", 50_000)

    groups = counted([named(["x" * 100_000] * 3)] * 2)

    assert sum(batch.num_rows for batch in groups) == 6


def test_text_that_is_no_utf8_is_grouped_by_its_bytes() -> None:
    """The batch fails later, with the words for such a value: here it must not be changed."""
    text = pa.array([b"\xff", b"\xff\xfe", b"\xff"] * 200).view(pa.string())
    batch = pa.RecordBatch.from_arrays([text, pa.array([1] * 600)], names=["name", "n"])

    (groups,) = counted([batch])

    assert groups.column("$k0").cast(pa.binary()).to_pylist() == [b"\xff", b"\xff\xfe"]
    assert groups.column(TUPLES).to_pylist() == [400, 200]
