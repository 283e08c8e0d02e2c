"""Runs of a topology of tuples as a whole: what is missing of results or reports, and messages over the wire."""

from __future__ import annotations

import errno
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.kit.tuple_runs import Keeping, RowsSpout, batches_of, graph_of, run_spec, run_tuples
from tests.unit.tuples.test_tuple_engine import Doubling, Upper, built, words
from tests.unit.tuples.test_tuple_streams import Sized
from txtopo.core.values import RejectedRow
from txtopo.errors import BatchDataError
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Tally
from txtopo.topology.tuple_bolts import BasicBolt
from txtopo.tuples import wire
from txtopo.tuples.edge_checks import judge
from txtopo.tuples.engine import Engine
from txtopo.tuples.graph import build_graph
from txtopo.tuples.message import Kind, TaskReport
from txtopo.tuples.results import merge

ROOT = Path(__file__).parents[3]


def test_what_is_missing_of_the_results_is_an_error() -> None:
    """A committer task whose last word or rows did not come: never fewer rows in silence."""
    seen = run_tuples(built(Upper()), words("a"))
    run = run_spec({"words": 1})

    for gone in range(len(seen.messages)):
        left = [message for at, message in enumerate(seen.messages) if at != gone]
        with pytest.raises(BatchDataError, match="task 2 of keep"):
            merge(seen.graph, run, left)
    with pytest.raises(BatchDataError, match="task 2 of keep"):
        merge(seen.graph, run, [*seen.messages, *seen.messages])
    with pytest.raises(BatchDataError, match="task 2 of keep said 2 times that it is done"):
        merge(seen.graph, run, [*seen.messages, *(m for m in seen.messages if m.kind == Kind.END)])


def test_reports_that_are_missing_or_differ_fail_the_run() -> None:
    """K3: a task that ran twice must say the same twice; one that said nothing is a suspect."""
    seen = run_tuples(built(Upper()), words("a"))
    run = run_spec({"words": 1})
    reports = list(seen.reports)

    assert judge(seen.graph, run, [*reports, *reports]) is None
    for report in reports:
        missing = judge(seen.graph, run, [other for other in reports if other is not report])
        assert missing is not None
        assert (missing.kind, missing.component) == ("suspect", report.component)
        other = TaskReport(run=report.run, component=report.component, index=report.index, read=77)
        conflict = judge(seen.graph, run, [*reports, other])
        assert conflict is not None
        assert "ran twice with different outcomes" in conflict.message


def spout_run(batches: Iterator[pa.RecordBatch], tally: Tally) -> TaskReport:
    """The report of a source task over these batches."""
    reports: list[TaskReport] = []
    engine = Engine(graph_of(built(Upper())))
    list(engine.source(0, run_spec({"words": 1}), "words", 0, batches, tally, reports.append))
    return reports[0]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EIO, "disk"), "infrastructure"),
        (OSError("disk"), "data"),
        (BatchDataError("odd line", component="spout", position="f:3"), "data"),
        (ValueError("x"), "data"),
    ],
)
def test_a_spout_that_raises_is_a_failure_in_its_report(error: Exception, kind: str) -> None:
    """What cannot be read at this moment is no fault of the data; what it says of a place is kept, under the spout's
    name.
    """
    tally = Tally(read=9, rejects=[RejectedRow(path="f", line=2, reason="odd", raw=b"x", raw_bytes=1)])

    def raising() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"word": ["a"]})
        raise error

    report = spout_run(raising(), tally)

    assert (report.read, report.emitted, len(report.rejects)) == (9, 1, 1)
    assert (report.failures[0].failure.kind, report.failures[0].failure.component) == (kind, "words")
    assert report.failures[0].failure.position == getattr(error, "position", None)


def test_the_same_messages_give_the_same_output_in_every_process() -> None:
    """Purity: nothing depends on the process, on chance, or on the order of a set."""
    code = "from tests.unit.tuples.test_tuple_runs import digest; print(digest())"

    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
        for seed in ("1", "2")
    }

    assert seen == {digest() + "\n"}


def digest() -> str:
    """All that leaves a wave of two runs with tracked tuples, as one hash."""
    from hashlib import sha256

    builder = TopologyBuilder("pure", acking="tuple")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("double", Doubling(), parallelism_hint=3).fields_grouping("words", "word")
    builder.set_bolt("partial", Upper(), parallelism_hint=2).partial_key_grouping("double", "word")
    builder.set_committer_bolt("keep", Keeping(), parallelism_hint=2).fields_grouping("partial", "word")
    topology = builder.build()
    found = [[(str(at % 17),) for at in range(first, first + 50)] for first in (0, 50)]
    fields = topology.fields_of("words")
    assert fields is not None

    def emitted(run_index: int, name: str, part: int, tally: Tally) -> Iterator[pa.RecordBatch]:
        return batches_of(fields, found[part], 7)

    reports: list[TaskReport] = []
    engine = pickle.loads(pickle.dumps(Engine(graph_of(topology))))
    messages = list(engine.run_local([run_spec({"words": 2})] * 2, emitted, reports.append))
    body = b"".join(wire.pack(message.body) or b"" for message in messages)
    return sha256(repr([message[:7] for message in messages]).encode() + repr(reports).encode() + body).hexdigest()


def test_messages_survive_the_wire_and_those_of_later_levels_pass_unread() -> None:
    """A message is one row; a level passes on what is addressed to later ones, as bytes."""
    topology = built(Doubling(), before=Upper(), tasks=2)
    engine, run = Engine(graph_of(topology)), run_spec({"words": 1})
    sent = list(
        engine.source(0, run, "words", 0, iter([pa.record_batch({"word": ["a", "b"]})]), Tally(), lambda report: None)
    )

    rows = list(wire.encode(iter(sent)))
    back = list(wire.decode(rows))
    passed = list(engine.level([run], wire.decode(rows, packed=True), 3, lambda report: None))

    assert back == sent
    assert [wire.unpack(message.body) for message in passed] == [message.body for message in sent]
    assert all(isinstance(message.body, bytes) for message in passed if message.kind == Kind.DATA)
    assert list(wire.decode(wire.encode(iter(passed)))) == sent
    assert rows[0].schema == wire.SCHEMA


def test_a_level_by_level_run_over_the_wire_is_the_local_run() -> None:
    """The same engine runs everywhere: what Spark moves between levels gives what one process gives."""
    topology = built(Doubling(), before=Upper(), tasks=3, acking="tuple")
    graph, run = graph_of(topology), run_spec({"words": 1})
    engine = Engine(graph)
    local = run_tuples(topology, words("a", "b", "c"))

    batch = pa.record_batch({"word": ["a", "b", "c"]})
    messages = list(engine.source(0, run, "words", 0, iter([batch]), Tally(read=3), lambda report: None))
    for level in range(1, graph.levels + 1):
        moved = sorted(wire.decode(wire.encode(iter(messages)), packed=True), key=lambda message: message[:6])
        messages = list(engine.level([run], iter(moved), level, lambda report: None))

    assert [message[:7] for message in sorted(messages, key=lambda m: m[:6])] == [
        message[:7] for message in local.messages
    ]
    assert merge(graph, run, messages) == (list(local.results.values()), local.acks)


def test_a_bolt_that_emits_very_much_from_one_tuple_sends_it_in_pieces() -> None:
    """A tuple may name a file whose lines are all emitted: no more than some thousands are held."""

    class Many(BasicBolt):
        outputs = ["word string"]

        def execute(self, tup: Any, collector: Any) -> None:
            for _ in range(150_000):
                collector.emit([tup[0]])

    topology = built(Many())
    engine, run = Engine(graph_of(topology)), run_spec({"words": 1})
    sent = engine.source(0, run, "words", 0, iter([pa.record_batch({"word": ["a"]})]), Tally(), lambda report: None)
    emitted = list(engine.level([run], iter(sorted(sent, key=lambda m: m[:6])), 1, lambda report: None))

    assert len({message[:6] for message in emitted}) == len(emitted), "messages must have an order"
    data = [message.rows for message in emitted if message.kind == Kind.DATA]
    assert sum(data) == 150_000
    assert max(data) < 70_000


class Growing(BasicBolt):
    """Emits each word with how often its task has had it so far; without `words`, how many tuples it has had."""

    outputs = ["word string", "n bigint"]

    def __init__(self, words: bool) -> None:
        self.words = words
        self.counts: dict[str, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        key = tup[0] if self.words else ""
        self.counts[key] = self.counts.get(key, 0) + 1
        collector.emit((tup[0], self.counts[key]))


def test_word_counts_global_counts_and_all_groupings_together() -> None:
    """GR-02: {(nathan,1),(nathan,2),(bob,1),(joey,1)}; a global counter 1,2,3,4; a global aggregate of the counter
    1,2,3,4; six tasks once each.
    """
    builder = TopologyBuilder("basic")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("counter", Growing(words=True), parallelism_hint=4).fields_grouping("words", "word")
    builder.set_bolt("total", Growing(words=False)).global_grouping("words")
    builder.set_bolt("aggregate", Growing(words=False)).global_grouping("counter")
    for name in ("counter", "total", "aggregate"):
        builder.set_committer_bolt(f"{name}_kept", Keeping()).global_grouping(name)
    builder.set_bolt("every", Sized(), parallelism_hint=6).all_grouping("words")
    builder.set_committer_bolt("every_kept", Keeping()).global_grouping("every")

    seen = run_tuples(builder.build(), words("nathan", "bob", "joey", "nathan"))

    assert sorted(seen.rows("counter_kept")) == [("bob", 1), ("joey", 1), ("nathan", 1), ("nathan", 2)]
    assert [n for _, n in seen.rows("total_kept")] == [1, 2, 3, 4]
    assert [n for _, n in seen.rows("aggregate_kept")] == [1, 2, 3, 4]
    assert sorted(seen.rows("every_kept")) == [(at, "nathan bob joey nathan") for at in range(6)]
    assert seen.edges["words -> every"] == (24, 24)


def test_receivers_take_in_tuples_for_a_dataframe_bolt() -> None:
    """A DataFrame bolt behind a tuple bolt: receiver tasks check that all is there and hand the rows over, edge by
    edge.
    """
    builder = TopologyBuilder("received")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("upper", Upper(), parallelism_hint=2).shuffle_grouping("words")
    builder.set_bolt("frame", lambda df: df, "upper", fields="word string")
    builder.set_committer_bolt("keep", Keeping()).shuffle_grouping("frame")
    topology = builder.build()
    graph = build_graph(topology, ["frame"], ackers=0)
    run, reports = run_spec({"words": 1}), list[TaskReport]()

    def emitted(run_index: int, name: str, part: int, tally: Tally) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"word": ["a", "b", "c"]})

    messages = list(Engine(graph).run_local([run], emitted, reports.append))

    (edge,) = graph.nodes["frame"].inputs
    received = [m for m in messages if m.kind == Kind.RESULT and m.edge == edge.number and m.body is not None]
    assert sorted(row["word"] for m in received if m.body is not None for row in m.body.to_pylist()) == ["A", "B", "C"]
    assert sum(message.rows for message in messages if message.kind == Kind.END) == 3
    assert judge(graph, run, reports) is None
