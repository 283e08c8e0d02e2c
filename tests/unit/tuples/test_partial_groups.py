"""Groups that tasks make of tuples: added up they are what the tuples are, whatever the values, in bounded memory."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.nasty_values import FIELDS, KEYS, nasty_batch, uneven
from txtopo.core.fields import parse_fields
from txtopo.topology.committer_bolt import AggregateKind
from txtopo.topology.partial_counts import TUPLES, PartialCount
from txtopo.tuples import partial_groups
from txtopo.tuples.partial_groups import PartialGroups

ALL_KEYS = parse_fields(KEYS).names
SUMS = ("s_tiny", "s_small", "s_int", "s_big", "s_decimal")
AGGREGATES: tuple[tuple[AggregateKind, str], ...] = (
    *(("sum", name) for name in SUMS),
    *((kind, name) for kind in ("count", "min", "max") for name in (*SUMS, *ALL_KEYS)),
)


def plain(table: pa.Table | pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Rows of values whose equality is that of their bytes: Python calls True and 1 equal, and 1.1 and 1.10."""
    columns = [column.cast(pa.binary()) if pa.types.is_string(column.type) else column for column in table.columns]
    return list(zip(*[map(repr, column.to_pylist()) for column in columns], strict=True))


Totals = dict[tuple[Any, ...], list[Any]]
"""By key: aggregates and the number of tuples, exact however many digits they have."""


def folded(groups: Iterable[pa.RecordBatch], keys: int, folds: Sequence[str]) -> Totals:
    found: Totals = {}
    for batch in groups:
        columns = [_values(column, fold) for column, fold in zip(batch.columns[keys:], folds, strict=True)]
        _add(found, plain(batch.select(range(keys))), zip(*columns, strict=True), folds)
    return found


def expected(batch: pa.RecordBatch, partial: PartialCount) -> Totals:
    found: Totals = {}
    columns: list[list[Any]] = []
    for kind, name in partial.aggregates:
        if kind == "count":
            columns.append([int(value is not None) for value in batch.column(name).to_pylist()])
        else:
            columns.append(_values(batch.column(name), "add" if kind == "sum" else kind))
    rows = zip(*columns, [1] * batch.num_rows, strict=True)
    _add(found, plain(batch.select(list(partial.keys))), rows, partial.folds)
    return found


def _values(column: pa.Array, fold: str) -> list[Any]:
    # The order of texts is that of their bytes.
    by_bytes = pa.types.is_string(column.type) and fold != "add"
    return list((column.cast(pa.binary()) if by_bytes else column).to_pylist())


def _add(found: Totals, keys: Iterable[tuple[Any, ...]], rows: Iterable[tuple[Any, ...]], folds: Sequence[str]) -> None:
    for key, row in zip(keys, rows, strict=True):
        total = found.setdefault(key, [Fraction(0) if fold == "add" else None for fold in folds])
        for place, (fold, value) in enumerate(zip(folds, row, strict=True)):
            if fold == "add":
                total[place] += Fraction(value or 0)
            elif value is not None:
                known = [one for one in (total[place], value) if one is not None]
                total[place] = min(known) if fold == "min" else max(known)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(0, 700),
    variety=st.integers(2, 20),
    keys=st.lists(st.sampled_from(ALL_KEYS), min_size=1, max_size=3, unique=True),
    aggregates=st.sampled_from([AGGREGATES, ()]),
    block=st.sampled_from([1, 7, 8192]),
    held=st.sampled_from([1, 20, 65_536]),
)
def test_groups_of_any_values_add_up_to_their_tuples(
    seed: int,
    rows: int,
    variety: int,
    keys: list[str],
    aggregates: tuple[tuple[AggregateKind, str], ...],
    block: int,
    held: int,
) -> None:
    """Promise: a group in a task has equal values of every key, to the bit, and its number of tuples and sums are
    exact; however the tuples come and wherever memory ends.
    """
    batch = nasty_batch(FIELDS, rows, seed, variety=variety)
    partial = PartialCount(keys=tuple(keys), aggregates=aggregates)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial_groups, "BLOCK_ROWS", block)
        patch.setattr(partial_groups, "GROUPED_ROWS_MIN", 1)
        patch.setattr(partial_groups, "SLICE_ROWS", 50)
        patch.setattr(partial_groups, "HELD_ROWS_MAX", held)
        patch.setattr(partial_groups, "PAUSE_BLOCKS", 1)
        groups = list(PartialGroups(partial, parse_fields(FIELDS)).of(uneven(batch)))

    assert folded(groups, len(keys), partial.folds) == expected(batch, partial)


def counted(batches: Iterable[pa.RecordBatch], fields: str = "name string, n bigint") -> list[pa.RecordBatch]:
    partial = PartialCount(keys=("name",), aggregates=(("sum", "n"),))
    return list(PartialGroups(partial, parse_fields(fields)).of(iter(batches)))


def named(names: Iterable[str | None]) -> pa.RecordBatch:
    column = pa.array(list(names), pa.string())
    return pa.RecordBatch.from_arrays([column, pa.array([2**62] * len(column), pa.int64())], names=["name", "n"])


class Counting(PartialGroups):
    """Notes how many rows are grouped each time."""

    def __init__(self, *, share: int = 1) -> None:
        super().__init__(PartialCount(keys=("name",)), parse_fields("name string, n bigint"), share=share)
        self.made: list[int] = []

    def _grouped_block(self, block: pa.Table) -> pa.Table:
        self.made.append(block.num_rows)
        return super()._grouped_block(block)

    def _grouped(self, groups: pa.Table) -> pa.Table:
        self.made.append(groups.num_rows)
        return super()._grouped(groups)


@pytest.mark.parametrize("name", ALL_KEYS)
def test_one_key_without_aggregates_is_counted_as_with_them(name: str) -> None:
    """Promise: the shorter way of counting makes the same groups, NULL among them."""
    batch = nasty_batch(FIELDS, 2000, 7)
    shorter = PartialGroups(PartialCount(keys=(name,)), parse_fields(FIELDS)).of(uneven(batch))
    longer = PartialGroups(PartialCount(keys=(name,), aggregates=(("sum", "s_int"),)), parse_fields(FIELDS)).of(
        uneven(batch)
    )

    found, expected = pa.Table.from_batches(shorter), pa.Table.from_batches(longer).select(["$k0", TUPLES])

    assert found.schema.equals(expected.schema)
    assert found.column("$k0").null_count == 1
    assert sorted(plain(found)) == sorted(plain(expected))


def test_few_keys_leave_as_one_group_each() -> None:
    groups = counted([named(itertools.islice(itertools.cycle("abc"), 30_000))] * 4)

    assert [batch.num_rows for batch in groups] == [3]
    assert groups[0].column("$v0").to_pylist() == [Decimal(40_000) * 2**62] * 3, "no sum of 64 bits wraps around"


def test_with_many_different_keys_grouping_is_given_up_after_the_first_block() -> None:
    """Promise: what does not become fewer costs no more than before. The first block is grouped, all others leave as
    they came, one group for each tuple.
    """
    batches = [named(f"{batch} {at // 2 if batch else at}" for at in range(10_000)) for batch in range(5)]

    groups = Counting()

    assert sum(batch.num_rows for batch in groups.of(iter(batches))) == 50_000
    assert groups.made == [10_000]


def test_grouping_is_tried_again_after_more_and_more_tuples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: one block with many different keys does not end the grouping of its part, and tries cost ever less."""
    monkeypatch.setattr(partial_groups, "BLOCK_ROWS", 300)
    groups = Counting()
    different = (named(f"{block} {at}" for at in range(300)) for block in range(1 + 32 + 1 + 64))
    same = [named(["a"] * 300)] * 20

    found = [batch.num_rows for batch in groups.of(itertools.chain(different, same))]

    assert groups.made[:2] == [300, 300], "of 98 blocks"
    assert found == [300] * 98 + [1]

    unlucky = itertools.chain([named(map(str, range(300)))], [named(["a"] * 300)] * 132)
    assert [batch.num_rows for batch in Counting().of(unlucky)] == [300] * 33 + [1]


def test_many_committer_tasks_that_share_the_memory_get_groups_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: only tuples that are wide themselves are not grouped; a small share makes small blocks."""
    monkeypatch.setattr(partial_groups, "HELD_BYTES_MAX", 1_600_000)
    groups = Counting(share=16)
    tuples = [named(itertools.islice(itertools.cycle("abc"), 30_000))] * 4

    assert [batch.num_rows for batch in groups.of(iter(tuples))] == [3]

    groups = Counting(share=16_000)
    assert [batch.num_rows for batch in groups.of(iter([named("abcabcabc")] * 2))] == [9, 9]
    assert groups.made == [], "blocks of a few tuples cost more than they save"


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

    groups = PartialGroups(PartialCount(keys=("name",)), parse_fields("name string, n bigint")).of(changing())

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


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=5),
    aggregates=st.sampled_from([AGGREGATES, ()]),
    block=st.sampled_from([1, 7, 100, 8192]),
    held=st.sampled_from([1, 20, 65_536]),
    small=st.sampled_from([1, 256]),
)
def test_groups_of_several_numbers_are_those_of_each_alone(
    seed: int,
    sizes: list[int],
    aggregates: tuple[tuple[AggregateKind, str], ...],
    block: int,
    held: int,
    small: int,
) -> None:
    """Promise: batches of a wave are grouped together, and no tuple of one is in a group of another."""
    partial = PartialCount(keys=(ALL_KEYS[0],), aggregates=aggregates)
    batches = [nasty_batch(FIELDS, rows, seed + at, variety=3) for at, rows in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial_groups, "BLOCK_ROWS", block)
        patch.setattr(partial_groups, "GROUPED_ROWS_MIN", small)
        patch.setattr(partial_groups, "HELD_ROWS_MAX", held)
        patch.setattr(partial_groups, "PAUSE_BLOCKS", 1)
        groups = PartialGroups(partial, parse_fields(FIELDS), apart="$run")
        found = [one for at, batch in enumerate(batches) for one in groups.of_number(uneven(batch), at)]
        found += groups.end()

    for at, batch in enumerate(batches):
        own = [one.filter(pc.equal(one.column("$run"), at)).drop_columns(["$run"]) for one in found]
        assert folded(own, len(partial.keys), partial.folds) == expected(batch, partial)


def test_small_batches_are_grouped_together_and_an_error_stays_with_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: one grouping for many small batches; what waits of one that fails does not wait for the next one."""
    monkeypatch.setattr(partial_groups, "GROUPED_ROWS_MIN", 1)
    made: list[int] = []
    plain = PartialGroups._grouped

    def noted(self: PartialGroups, table: pa.Table) -> pa.Table:
        made.append(table.num_rows)
        return plain(self, table)

    monkeypatch.setattr(PartialGroups, "_grouped", noted)
    groups = PartialGroups(PartialCount(keys=("name",)), parse_fields("name string, n bigint"), apart="$run")

    def failing() -> Iterator[pa.RecordBatch]:
        yield named("bbb")
        raise ValueError("a record that cannot be read")

    found = list(groups.of_number(iter([named("aab")]), 0))
    with pytest.raises(ValueError, match="cannot be read"):
        found += groups.of_number(failing(), 1)
    found += groups.of_number(iter([named("ab"), named("a")]), 2)
    found += groups.end()

    rows = [tuple(row.values()) for batch in found for row in batch.to_pylist()]
    assert sorted(rows) == [("a", 2, 0), ("a", 2, 2), ("b", 1, 0), ("b", 1, 2)]
    assert (len(found), made) == (1, [6])
