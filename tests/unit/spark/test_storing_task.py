"""Rows of tuple topologies are taken out of their messages and stored, without Spark and without a server (R10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from txtopo import AppendCommitter, CountCommitter, TopologyBuilder
from txtopo.core.values import CommitterResult
from txtopo.errors import BatchDataError, InvariantBroken
from txtopo.ports import StagingTable
from txtopo.spark.tuples.staged_tuples import RowsOfCommitters, StagedTuples, without_stored
from txtopo.spark.tuples.storing_task import StoredRows, StoringMessages
from txtopo.spouts import TextSpout
from txtopo.topology.components import Topology
from txtopo.tuples.graph import TaskGraph, build_graph, sinks_of
from txtopo.tuples.message import DRIVER, Kind, Message
from txtopo.tuples.wire import decode, encode


class Kept:
    """Keeps the rows that a task stores."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, list[Any]]] = []

    def store(self, part: int, task_attempt: int, tables: Iterator[pa.Table]) -> int:
        rows = [tuple(row.values()) for table in tables for row in table.to_pylist()]
        self.calls.append((part, task_attempt, rows))
        return len(rows)


def topology(grouping: str = "fields", tasks: int = 2) -> Topology:
    """Lines are stored, and counted by their text."""
    builder = TopologyBuilder("lines")
    builder.set_spout("lines", TextSpout("/nowhere/*.txt"))
    builder.set_committer_bolt("rows", AppendCommitter("rows"), parallelism_hint=2).shuffle_grouping("lines")
    counts = builder.set_committer_bolt("counts", CountCommitter("counts", ["line"]), parallelism_hint=tasks)
    counts.fields_grouping("lines", ["line"]) if grouping == "fields" else counts.shuffle_grouping("lines")
    return builder.build()


def graph_of(of: Topology) -> TaskGraph:
    return build_graph(of, sinks_of(of), ackers=0)


def result(source: int, seq: int, texts: Sequence[str], number: int = 0) -> Message:
    batch = pa.record_batch([pa.array(texts, pa.string())], names=["line"])
    return Message(0, DRIVER, source, Kind.RESULT, number, seq, batch.num_rows, batch)


def end(source: int, seq: int, rows: int) -> Message:
    return Message(0, DRIVER, source, Kind.END, 0, seq, rows)


def test_rows_of_one_committer_are_stored_and_all_else_is_passed_on() -> None:
    """The messages stay, so that none of them can be lost; only the rows are gone, and their number is said last."""
    of = topology()
    [one, two], [three, _] = (graph_of(of).nodes[name].tasks for name in ("rows", "counts"))
    other = Message(0, DRIVER, three, Kind.RESULT, 1, 0, 1, pa.record_batch([pa.array([1])], names=["count"]))
    sent = [result(one, 0, ["a", "b"]), result(one, 1, ["c"]), end(one, 2, 3), result(two, 0, ["d"]), other]
    kept = Kept()
    task = StoringMessages(stored={0: StoredRows(of.committers[0], kept)}, tasks={one: 0, two: 0})

    [*batches] = task.passed(encode(sent, 7), 3, 99)

    assert {number for batch in batches for number in batch.column("order").to_pylist()} == {7}
    got = list(decode(batches))
    said = Message(0, DRIVER, 99, Kind.STORED, 0, 3, 4)
    assert [message[:7] for message in without_stored(got)] == [message[:7] for message in sent]
    assert [message for message in got if message.kind == Kind.STORED] == [said]
    assert [message.source for message in got if message.body is not None] == [three]
    assert kept.calls == [(3, 99, [("a",), ("b",), ("c",), ("d",)])]


def test_messages_of_other_orders_keep_their_order() -> None:
    """The driver finds rows of another batch by it, also if they are stored."""
    of = topology()
    one = graph_of(of).nodes["rows"].tasks[0]
    kept = Kept()
    task = StoringMessages(stored={0: StoredRows(of.committers[0], kept)}, tasks={one: 0})
    mixed = [*encode([result(one, 0, ["a"])], 7), *encode([result(one, 1, ["b"])], 8)]

    orders = [number for batch in task.passed(iter(mixed), 0, 1) for number in batch.column("order").to_pylist()]

    assert orders == [7, 7, 8, 8]


def test_a_key_that_cannot_be_stored_fails_the_task() -> None:
    """As in the driver: tasks check the rows that they store."""
    of = topology()
    number, task = 1, graph_of(of).nodes["counts"].tasks[0]
    body = pa.record_batch([pa.array(["x" * 3000]), pa.array([1])], names=["k0", "count"])
    sent = [Message(0, DRIVER, task, Kind.RESULT, number, 0, 1, body)]
    storing = StoringMessages(stored={number: StoredRows(of.committers[1], Kept())}, tasks={task: number})

    with pytest.raises(BatchDataError, match="key line has 3,000 bytes"):
        list(storing.passed(encode(sent), 0, 1))


def test_counts_of_tasks_that_share_keys_are_not_stored() -> None:
    """Two rows of one key would be merged as two: refused with what to change."""
    stored = StagedTuples(graph_of(topology()))
    assert stored.why_not("counts") is None
    assert sorted(set(stored.tasks.values())) == [0, 1]

    shuffled = StagedTuples(graph_of(topology("shuffle")))
    assert "use fields_grouping by line" in str(shuffled.why_not("counts"))
    assert set(shuffled.tasks.values()) == {0}
    assert StagedTuples(graph_of(topology("shuffle", tasks=1))).why_not("counts") is None


def test_the_largest_result_decides() -> None:
    """Rows of one committer, not of all together; ends and other messages do not count."""
    rows = RowsOfCommitters({5: 0, 6: 0, 7: 1})
    [first] = encode([result(5, 0, ["a", "b"]), end(5, 1, 9), result(7, 0, ["x"], 1), result(8, 0, ["y"] * 9, 2)])
    assert rows(first) == 2
    [more] = encode([result(6, 0, ["c", "d"])])
    assert rows(more) == 4
    assert rows.above(3) == {0} and rows.above(4) == frozenset()


def test_rows_that_tasks_sent_and_did_not_store_stop_the_batch() -> None:
    """What was stored is compared with what the committers' tasks said that they sent."""
    of = topology()
    stored = StagedTuples(graph_of(of))
    one = graph_of(of).nodes["rows"].tasks[0]
    tables = {0: StagingTable("t", Kept())}
    empty = [
        CommitterResult(committer=name, arrived=3, rows=pa.table({}), row_count=0, bytes=0)
        for name in ("rows", "counts")
    ]
    without = [result(one, 0, ["a", "b"])._replace(body=None)]
    said = Message(0, DRIVER, 31, Kind.STORED, 0, 2, 2)

    [rows, counts] = stored.placed(empty, [*without, said], tables, 1)
    assert (rows.row_count, counts.staged) == (2, None)
    assert rows.staged is not None and [(part.part, part.task_attempt) for part in rows.staged.parts] == [(2, 31)]
    for wrong in ([said], without, [*without, said, said._replace(source=32)]):
        with pytest.raises(InvariantBroken):
            stored.placed(empty, wrong, tables, 1)
