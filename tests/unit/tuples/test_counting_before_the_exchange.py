"""Tuples on their way to a counting committer go in groups: results, counts of edges and what is found of a loss are
those of tuples that are sent one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.kit.nasty_values import FIELDS, KEYS, near_twins
from tests.kit.tuple_runs import Ran, RowsSpout, graph_of, ran, run_spec, run_tuples
from txtopo import CountCommitter, TopologyBuilder
from txtopo.bolts import ArrowBolt
from txtopo.core.fields import parse_fields
from txtopo.topology.components import Tally, Topology
from txtopo.topology.partial_counts import PartialCount, counted_upstream
from txtopo.tuples import graph as graphs
from txtopo.tuples.engine import Engine
from txtopo.tuples.message import DRIVER, Kind, Message, TaskReport
from txtopo.tuples.partial_groups import PartialGroups

ALL_KEYS = parse_fields(KEYS).names
SUMS = {name: f"sum_{name}" for name in ("s_tiny", "s_int", "s_big", "s_decimal")}


class Passing(ArrowBolt):
    outputs = (FIELDS,)

    def execute(self, batch: pa.RecordBatch, collector: Any) -> None:
        collector.emit_batch(batch)


def nasty_topology(grouping: str) -> Topology:
    """Two committers: one reads the spout, one a bolt, each with three tasks."""
    builder = TopologyBuilder("nasty")
    builder.set_spout("source", RowsSpout(FIELDS))
    builder.set_bolt("passing", Passing(), parallelism_hint=2).shuffle_grouping("source")
    for name in ("source", "passing"):
        committer = CountCommitter(f"by_{name}", ALL_KEYS, count="n", sums=SUMS)
        declared = builder.set_committer_bolt(f"from_{name}", committer, parallelism_hint=3)
        if grouping == "fields":
            declared.fields_grouping(name, ["k_string", "s_int"])
        else:
            declared.shuffle_grouping(name)
    return builder.build()


PARTS = [
    [list(row.values()) for row in near_twins(FIELDS, rows, seed).to_pylist()]
    for seed, rows in enumerate((1500, 30, 0))
]


@pytest.mark.parametrize("grouping", ["fields", "shuffle"])
def test_groups_give_what_tuples_give(grouping: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: keys and sums of every type, by any grouping: results, arrived and counts of edges are equal."""
    topology = nasty_topology(grouping)

    grouped = run_tuples(topology, {"source": PARTS})
    monkeypatch.setattr(graphs, "counted_before", lambda committer, fields: "")
    plain = run_tuples(topology, {"source": PARTS})

    assert (grouped.failure, plain.failure) == (None, None)
    assert grouped.edges == plain.edges
    for name, result in grouped.results.items():
        assert result.rows.equals(plain.results[name].rows), name
        assert result.arrived == plain.results[name].arrived == 1530


def words_topology() -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("words", RowsSpout("word string, n int"))
    builder.set_committer_bolt("count", CountCommitter("c", ["word"], sums={"n": "total"})).shuffle_grouping("words")
    return builder.build()


def sent(change: Any = None, *, rows: int = 2000, ackers: int = 0, **more: Any) -> tuple[list[Message], Ran]:
    """The messages of a spout with two words, and the run with these messages changed on their way."""
    graph, run = graph_of(words_topology(), ackers=ackers), run_spec({"words": 1}, **more)
    engine, reports = Engine(graph), list[TaskReport]()
    words = pa.record_batch({"word": ["a", "b"] * (rows // 2), "n": pa.array([1] * rows, pa.int32())})
    messages = list(engine.source(0, run, "words", 0, iter([words]), Tally(read=rows), reports.append))
    moved = messages if change is None else change(messages)
    for level in range(1, graph.levels + 1):
        moved = list(engine.level([run], iter(sorted(moved, key=lambda m: m[:6])), level, reports.append))
    return messages, ran(graph, run, reports, [message for message in moved if message.target == DRIVER])


def data_of(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.kind == Kind.DATA]


def test_groups_are_sent_instead_of_tuples() -> None:
    (message,) = data_of(sent()[0])

    assert (message.rows, message.body.num_rows) == (2000, 2)  # type: ignore[union-attr]
    topology = nasty_topology("shuffle")
    assert counted_upstream(topology, topology.committers[0], tracked=True) == "every tuple is tracked"
    assert counted_upstream(topology, topology.committers[0], tracked=False) == PartialCount(
        ALL_KEYS, tuple(("sum", name) for name in SUMS)
    )


@pytest.mark.parametrize("more", [{"traced": True}, {"ackers": 1}], ids=["traced", "with ackers"])
def test_tuples_that_are_tracked_are_sent_one_by_one(more: Any) -> None:
    """Each belongs to a tuple tree; a traced run has to name the tuple at fault."""
    messages, seen = sent(**more)

    assert seen.failure is None
    assert sum(message.body.num_rows for message in data_of(messages)) == 2000  # type: ignore[union-attr]
    assert seen.rows("count") == [("a", 1000, 1000), ("b", 1000, 1000)]


def without_a_group(messages: Sequence[Message]) -> list[Message]:
    return [
        message._replace(body=message.body.slice(1)) if message.kind == Kind.DATA else message  # type: ignore[union-attr]
        for message in messages
    ]


def with_another_number(messages: Sequence[Message]) -> list[Message]:
    def changed(body: Any) -> pa.RecordBatch:
        return body.set_column(2, "$n", pa.array([1000, 999]))

    return [
        message._replace(body=changed(message.body)) if message.kind == Kind.DATA else message for message in messages
    ]


@pytest.mark.parametrize(
    ("change", "arrived"),
    [
        (without_a_group, 1000),
        (with_another_number, 1999),
        (lambda messages: [message for message in messages if message.kind != Kind.DATA], 0),
        (lambda messages: [*messages, *data_of(messages)], 4000),
    ],
    ids=["a group", "a number", "a message", "twice"],
)
def test_groups_that_are_lost_doubled_or_changed_fail_the_attempt_at_once(change: Any, arrived: int) -> None:
    """Promise: the sending task counts tuples, the receiving task counts what the groups say; both must agree."""
    _, seen = sent(change)

    assert seen.failure is not None
    assert seen.failure.message == f"words -> count: task -1 sent 2000 tuples, {arrived} arrived"


def test_tuples_that_are_lost_while_they_are_grouped_fail_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent is not a sum over the groups."""
    monkeypatch.setattr(PartialGroups, "end", lambda self: iter(()))

    _, seen = sent(rows=10_000)

    assert seen.failure is not None
    assert seen.failure.message == "words -> count: task -1 sent 10000 tuples, 0 arrived"
