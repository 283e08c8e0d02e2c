"""Rows that a bolt emits through its collector: which are taken, which are refused in the line that emits them, and how
many wait until they leave.
"""

from __future__ import annotations

from array import array
from collections import UserList
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pytest

from tests.kit.tuple_runs import Keeping, RowsSpout, run_tuples
from txtopo.committers.count_committer import CountCommitter
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology
from txtopo.topology.streams import Tuple
from txtopo.topology.tuple_bolts import BasicBolt
from txtopo.tuples import partial_groups
from txtopo.tuples.buffer import FULL_ROWS, GROUPED_FULL_ROWS
from txtopo.tuples.columns import Columns

WORD: Sequence[str] = ("word string",)


def rows_topology(rows: Sequence[Any], acking: Any = "batch") -> Topology:
    """A bolt that emits these rows for every tuple, and a committer that keeps them."""
    builder = TopologyBuilder("emitting", acking=acking)
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("rows", Rows(rows)).shuffle_grouping("words")
    builder.set_committer_bolt("kept", Keeping()).shuffle_grouping("rows")
    return builder.build()


class Rows(BasicBolt):
    """Emits the given rows for every tuple."""

    outputs: ClassVar[Sequence[Any]] = WORD

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = rows

    def execute(self, tup: Tuple, collector: Any) -> None:
        for row in self.rows:
            collector.emit(row)


class Named(NamedTuple):
    word: str


@pytest.mark.parametrize("acking", ["batch", "tuple"])
def test_a_row_of_one_field_may_be_any_sequence(acking: Any) -> None:
    given = [("a",), ["b"], Named("c"), UserList("d"), array("u", "e")]

    seen = run_tuples(rows_topology(given, acking), {"words": [[["x"]]]})

    assert seen.failure is None
    assert seen.rows("kept") == [("a",), ("b",), ("c",), ("d",), ("e",)]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ((), "emitted 0 values (); it declares 1 fields (word)"),
        ([], "emitted 0 values (); it declares 1 fields (word)"),
        (("a", 2), "emitted 2 values ('a', 2); it declares 1 fields (word)"),
        (["a", "b"], "emitted 2 values ('a', 'b'); it declares 1 fields (word)"),
        ("a", "emitted 'a' (str); a list or tuple of 1 values is wanted"),
        ({"a": 1}, "emitted {'a': 1} (dict); a list or tuple of 1 values is wanted"),
        (None, "emitted NULL (NoneType); a list or tuple of 1 values is wanted"),
    ],
    ids=["empty", "empty list", "two", "list of two", "text", "dict", "None"],
)
def test_a_row_of_another_width_is_refused_where_it_is_emitted(row: Any, told: str) -> None:
    seen = run_tuples(rows_topology([("a",), row]), {"words": [[["x"]]]})

    assert seen.failure is not None
    assert "collector.emit(row)" in (seen.failure.detail or "")
    assert "unpack" not in (seen.failure.detail or "")
    assert f"rows, stream default: {told}" in seen.failure.message


@pytest.mark.parametrize(("counted", "most"), [(True, GROUPED_FULL_ROWS), (False, FULL_ROWS)])
def test_a_tuple_that_emits_without_end_holds_a_bounded_number_of_rows(
    counted: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: rows leave while the tuple is still executed; earlier where they are grouped, and no message is made of
    them.
    """
    made: list[int] = []
    batch = Columns.batch

    def noted(self: Columns, values: Sequence[list[Any]]) -> pa.RecordBatch:
        if self._component == "rows":
            made.append(len(values[0]))
        return batch(self, values)

    monkeypatch.setattr(Columns, "batch", noted)
    builder = TopologyBuilder("emitting")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("rows", Rows([("a",)] * 150_000)).shuffle_grouping("words")
    committer = CountCommitter("c", ["word"]) if counted else Keeping()
    builder.set_committer_bolt("kept", committer).shuffle_grouping("rows")

    seen = run_tuples(builder.build(), {"words": [[["x"]]]})

    assert seen.failure is None
    assert max(made) == most + 1
    assert sum(made) == 150_000
    assert seen.results["kept"].arrived == 150_000


def test_a_task_that_sends_to_one_of_many_tasks_may_hold_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: only tasks that it sends to share the memory for groups; what is held longer is merged more."""
    monkeypatch.setattr(partial_groups, "HELD_ROWS_MAX", 1000)
    made: list[int] = []
    groups_of = partial_groups.PartialGroups._emptied

    def noted(self: partial_groups.PartialGroups) -> Any:
        for batch in groups_of(self):
            made.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(partial_groups.PartialGroups, "_emptied", noted)
    builder = TopologyBuilder("emitting")
    builder.set_spout("words", RowsSpout("word string"))
    rows = [(str(at % 400),) for at in range(100_000)]
    builder.set_bolt("rows", Rows(rows), parallelism_hint=4).global_grouping("words")
    counts = CountCommitter("c", ["word"])
    builder.set_committer_bolt("kept", counts, parallelism_hint=4).local_or_shuffle_grouping("rows")

    seen = run_tuples(builder.build(), {"words": [[["x"]]]})

    assert seen.failure is None
    assert [row[1] for row in seen.rows("kept")] == [250] * 400
    assert made == [400]
