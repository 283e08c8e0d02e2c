"""Topologies at their edges: nothing to do, very many tasks, strange keys, streams read in several ways, bolts that
speak too late.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tests.kit.tuple_runs import Keeping, RowsSpout, graph_of, ran, run_spec, run_tuples
from txtopo.committers.count_committer import CountCommitter
from txtopo.errors import TopologyError
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Tally, Topology
from txtopo.topology.streams import Stream, Tuple
from txtopo.topology.tuple_bolts import ArrowBolt, BasicBolt, BatchBolt, RichBolt, TupleBolt
from txtopo.tuples.engine import Engine
from txtopo.tuples.graph import build_graph
from txtopo.tuples.message import TaskReport

WORD: Sequence[str] = ("word string",)


class Pass(BasicBolt):
    """Hands everything on."""

    outputs: ClassVar[Sequence[Any]] = WORD

    def execute(self, tup: Tuple, collector: Any) -> None:
        collector.emit(tup.values)


class Got(BatchBolt):
    """Tells at the end what its task got, in order, also nothing."""

    outputs: ClassVar[Sequence[Any]] = ("task int", "got string")

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.index, self.got = collector, context.task_index, list[str]()

    def execute(self, tup: Tuple) -> None:
        self.got.append(f"{tup.stream[0]}:{tup[0]}" if tup.stream != "default" else str(tup[0]))

    def finish_batch(self) -> None:
        self.collector.emit((self.index, " ".join(self.got)))


def spouts(**fields: str) -> TopologyBuilder:
    builder = TopologyBuilder("edges")
    for name, declared in fields.items():
        builder.set_spout(name, RowsSpout(declared))
    return builder


def kept(builder: TopologyBuilder, *sources: str) -> Topology:
    """With a committer behind each source."""
    for source in sources:
        builder.set_committer_bolt(f"{source}_kept", Keeping()).global_grouping(source)
    return builder.build()


def words(*parts: Sequence[Any]) -> dict[str, Any]:
    return {"words": [[(word,) for word in part] for part in parts]}


# ----------------------------------------------------------------------------------------------------------------------


def chain(tasks: int = 3) -> Topology:
    builder = spouts(words="word string")
    builder.set_bolt("one", Pass(), parallelism_hint=tasks).shuffle_grouping("words")
    builder.set_bolt("two", Pass(), parallelism_hint=tasks).fields_grouping("one", ["word"])
    builder.set_bolt("got", Got(), parallelism_hint=tasks).all_grouping("two")
    builder.set_committer_bolt("counted", CountCommitter("t", ["task"], count="n"), parallelism_hint=2).fields_grouping(
        "got", "task"
    )
    return kept(builder, "two", "got")


@pytest.mark.parametrize("parts", [[[]], [[], [], []]], ids=["one part", "three parts"])
def test_a_batch_without_tuples_finishes_on_every_level(parts: Any) -> None:
    """CB-08: tasks without any tuple still finish: every task of every level is heard of, and every committer has its
    result.
    """
    seen = run_tuples(chain(), words(*parts))

    assert seen.failure is None
    assert seen.edges == {
        "words -> one": (0, 0),
        "one -> two": (0, 0),
        "two -> got": (0, 0),
        "two -> two_kept": (0, 0),
        "got -> counted": (3, 3),
        "got -> got_kept": (3, 3),
    }
    assert (seen.rows("two_kept"), seen.rows("got_kept")) == ([], [(0, ""), (1, ""), (2, "")])
    assert {(report.component, report.index) for report in seen.reports} >= {("one", 2), ("two", 2), ("got", 2)}


def test_all_tasks_get_what_fields_grouped_tasks_emit() -> None:
    """GR-02: an all-grouping behind a fields-grouping: every task gets every tuple, in the same order."""
    seen = run_tuples(chain(), words(["a", "b", "c", "a"], ["b", "d"]))

    got = [text for _, text in sorted(seen.rows("got_kept"))]
    assert len(set(got)) == 1
    assert sorted(got[0].split()) == ["a", "a", "b", "b", "c", "d"]
    assert seen.edges["two -> got"] == (18, 18)


def test_a_spout_that_is_idle_does_not_hold_the_others_up() -> None:
    """Several spouts share the txid: the idle one has a part without tuples, and its readers finish."""
    builder = spouts(words="word string", others="word string")
    got = builder.set_bolt("got", Got(), parallelism_hint=2)
    got.fields_grouping("words", ["word"]).fields_grouping("others", ["word"])

    seen = run_tuples(kept(builder, "got"), {**words(["a", "b"]), "others": [[]]})

    assert seen.failure is None
    assert seen.edges == {"words -> got": (2, 2), "others -> got": (0, 0), "got -> got_kept": (2, 2)}
    assert sorted("".join(text for _, text in seen.rows("got_kept")).replace(" ", "")) == ["a", "b"]


def test_an_empty_record_batch_is_nothing() -> None:
    """A source may give batches without rows, before, between and after others; tuples keep their numbers."""
    topology = chain(tasks=1)
    graph, run = graph_of(topology), run_spec({"words": 1})
    reports: list[TaskReport] = []

    def emitted(run_index: int, name: str, part: int, tally: Tally) -> Iterator[pa.RecordBatch]:
        for rows in ([], ["a"], [], ["b", "c"], []):
            tally.read += len(rows)
            yield pa.record_batch({"word": pa.array(rows, pa.string())})

    messages = list(Engine(graph).run_local([run], emitted, reports.append))

    assert ran(graph, run, reports, messages).rows("two_kept") == [("a",), ("b",), ("c",)]


# ----------------------------------------------------------------------------------------------------------------------


def test_three_hundred_tasks() -> None:
    """More tasks than tuples on every level: each reports to each, none waits."""
    seen = run_tuples(chain(tasks=300), words(["a", "b"]))

    assert seen.failure is None
    assert len(seen.rows("got_kept")) == 300
    assert {tuple(sorted(text.split())) for _, text in seen.rows("got_kept")} == {("a", "b")}
    assert seen.edges["two -> got"] == (600, 600)


# ----------------------------------------------------------------------------------------------------------------------


KEYS: dict[str, tuple[str, Sequence[Any]]] = {
    "text": ("k string", ["é", "e\u0301", "", None, "日本", "🦒", "a\u0000b", "a" * 3000]),
    "decimal": (
        "k decimal(38,2)",
        [Decimal("0.10"), Decimal("-1.00"), None, Decimal("9" * 30 + ".00"), Decimal("0.01")],
    ),
    "day": ("k date", [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None, datetime.date(1970, 1, 1)]),
    "bigint": ("k bigint", [0, -1, 2**63 - 1, -(2**63), None]),
    "double": ("k double", [0.0, 1e308, -1e-308, None, float("inf")]),
    "bool": ("k boolean", [True, False, None]),
}


class Keyed(BatchBolt):
    """Which keys its task got, as Python writes them."""

    outputs: ClassVar[Sequence[Any]] = ("task int", "k string", "n int")

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.index, self.counts = collector, context.task_index, dict[str, int]()

    def execute(self, tup: Tuple) -> None:
        key = repr(tup["k"])
        self.counts[key] = self.counts.get(key, 0) + 1

    def finish_batch(self) -> None:
        for key, n in self.counts.items():
            self.collector.emit((self.index, key, n))


@pytest.mark.parametrize("kind", KEYS)
def test_equal_keys_of_two_sources_meet_in_one_task_whatever_they_are(kind: str) -> None:
    """GR-07: determinism is mandatory; NULL is a key like any other; what only looks alike stays apart."""
    fields, keys = KEYS[kind]
    builder = spouts(left=fields, right=fields)
    keyed = builder.set_bolt("keyed", Keyed(), parallelism_hint=4)
    keyed.fields_grouping("left", ["k"]).fields_grouping("right", ["k"])
    rows = [(key,) for key in keys]

    seen = run_tuples(kept(builder, "keyed"), {"left": [rows, rows[::-1]], "right": [rows]})

    found = seen.rows("keyed_kept")
    assert sorted(key for _, key, _ in found) == sorted(repr(key) for key in keys), "each key in one task alone"
    assert {n for _, _, n in found} == {3}


# --------------------------------------------------------------------------------------------------------- streams read


class Forking(BasicBolt):
    """Each word on two streams with other fields."""

    outputs: ClassVar[Sequence[Any]] = ("word string", Stream("size int, word string", name="sizes"))

    def execute(self, tup: Tuple, collector: Any) -> None:
        collector.emit(tup.values)
        collector.emit((len(tup[0]), tup[0]), stream="sizes")


def test_a_bolt_reads_two_streams_of_one_bolt_in_two_ways() -> None:
    """Each subscription is an edge of its own: counted apart, nothing doubled (STORM.md mistake 10)."""
    builder = spouts(words="word string")
    builder.set_bolt("fork", Forking(), parallelism_hint=2).shuffle_grouping("words")
    got = builder.set_bolt("got", Got(), parallelism_hint=2)
    got.all_grouping("fork").global_grouping("fork", stream="sizes")

    seen = run_tuples(kept(builder, "got"), words(["a", "bb", "ccc"]))

    assert seen.edges["fork -> got"] == (6, 6)
    assert seen.edges["fork:sizes -> got"] == (3, 3)
    texts = dict(seen.rows("got_kept"))
    assert sorted(texts[0].split()) == ["a", "bb", "ccc", "s:1", "s:2", "s:3"]
    assert sorted(texts[1].split()) == ["a", "bb", "ccc"]


def test_one_stream_cannot_be_read_in_two_ways_by_one_bolt() -> None:
    """STORM.md mistake 10: several groupings on one stream would double its tuples: refused when it is written."""
    builder = spouts(words="word string")
    declarer = builder.set_bolt("got", Got()).shuffle_grouping("words")

    with pytest.raises(TopologyError, match="reads 'words' twice"):
        declarer.all_grouping("words")


def test_a_bolt_that_drops_everything_leaves_its_readers_complete() -> None:
    """A diamond with a dead arm: the join gets the other arm's tuples and finishes."""

    class Drop(Pass):
        def execute(self, tup: Tuple, collector: Any) -> None:
            pass

    builder = spouts(words="word string")
    builder.set_bolt("alive", Pass(), parallelism_hint=2).shuffle_grouping("words")
    builder.set_bolt("dead", Drop(), parallelism_hint=2).shuffle_grouping("words")
    builder.set_bolt("got", Got()).shuffle_grouping("alive").shuffle_grouping("dead")

    seen = run_tuples(kept(builder, "got"), words(["a", "b"]))

    assert seen.failure is None
    assert seen.edges["dead -> got"] == (0, 0)
    assert sorted(seen.rows("got_kept")[0][1].split()) == ["a", "b"]


# --------------------------------------------------------------------------------------------------------------- bolts


class LateRich(RichBolt):
    """Emits only when all have come."""

    outputs: ClassVar[Sequence[Any]] = WORD

    def prepare(self, config: Any, context: Any, collector: Any) -> None:
        self.collector, self.held = collector, list[Tuple]()

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)

    def finish_batch(self) -> None:
        for tup in reversed(self.held):
            self.collector.emit(tup.values, anchors=[tup])
            self.collector.ack(tup)


class LateArrow(ArrowBolt):
    """The same, for record batches."""

    outputs: ClassVar[Sequence[Any]] = WORD

    def prepare(self, config: Any, context: Any) -> None:
        self.held: list[pa.RecordBatch] = []

    def execute(self, batch: pa.RecordBatch, collector: Any) -> None:
        self.held.append(batch)

    def finish_batch(self, collector: Any) -> None:
        for batch in self.held:
            collector.emit_batch(batch)


@pytest.mark.parametrize("bolt", [LateRich(), LateArrow()], ids=lambda bolt: type(bolt).__name__)
@pytest.mark.parametrize("acking", ["batch", "tuple"])
def test_a_bolt_may_emit_in_finish_batch_alone(bolt: TupleBolt, acking: Any) -> None:
    """The last moment to emit, ack or fail; every tuple is counted and, where it is tracked, complete."""
    builder = TopologyBuilder("edges", acking=acking)
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("late", bolt, parallelism_hint=2).shuffle_grouping("words")
    seen = run_tuples(kept(builder, "late"), words(["a", "b", "c"]))

    assert seen.failure is None
    assert sorted(seen.rows("late_kept")) == [("a",), ("b",), ("c",)]
    assert seen.acks is None or seen.acks.complete


class TooLate(BatchBolt):
    """Emits when its batch is over."""

    outputs: ClassVar[Sequence[Any]] = WORD

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        pass

    def finish_batch(self) -> None:
        self.collector.emit(("in time",))

    def cleanup(self) -> None:
        self.collector.emit(("too late",))


def test_what_is_emitted_after_the_end_of_the_batch_is_never_half_counted() -> None:
    """An emit in `cleanup` would be lost and counted by nobody: the attempt fails and says what to do."""
    builder = spouts(words="word string")
    builder.set_bolt("late", TooLate()).shuffle_grouping("words")

    seen = run_tuples(kept(builder, "late"), words(["a"]))

    assert seen.failure is not None
    assert seen.failure.component == "late"
    assert seen.failure.message == "TooLate emitted in cleanup, when its batch was over: emit in finish_batch"


STOLEN: list[Any] = []


class Thief(Pass):
    """Uses the collector of an attempt that is over."""

    def execute(self, tup: Tuple, collector: Any) -> None:
        STOLEN.append(collector)
        STOLEN[0].emit(tup.values)


def test_a_collector_that_is_kept_over_attempts_puts_nothing_into_the_next() -> None:
    """BB-01: attempts are independent: what goes through an old collector is not in the new attempt's results."""
    STOLEN.clear()
    builder = spouts(words="word string")
    builder.set_bolt("thief", Thief()).shuffle_grouping("words")
    topology = kept(builder, "thief")

    first, second = (run_tuples(topology, words([word])) for word in ("a", "b"))

    assert first.rows("thief_kept") == [("a",)]
    assert second.failure is not None or second.rows("thief_kept") == []


class Reusing(BatchBolt):
    """Emits one list again and again, and changes it in between; speaks already in `prepare`."""

    outputs: ClassVar[Sequence[Any]] = ("word string", "n int")

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.row = collector, ["first", 0]
        collector.emit(self.row)

    def execute(self, tup: Tuple) -> None:
        self.row[0] = tup["word"]
        self.row[1] += 1  # type: ignore[operator]
        self.collector.emit(self.row)

    def finish_batch(self) -> None:
        self.row[0] = "last"
        self.collector.emit(self.row)


@pytest.mark.parametrize("acking", ["batch", "tuple"])
def test_a_row_that_is_changed_after_it_was_emitted_was_emitted_as_it_was(acking: Any) -> None:
    """An emit is over when it returns; one in `prepare` counts like any other, and belongs to no tuple."""
    builder = TopologyBuilder("edges", acking=acking)
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("reusing", Reusing()).shuffle_grouping("words")

    seen = run_tuples(kept(builder, "reusing"), words(["a", "b"]))

    assert seen.failure is None
    assert seen.rows("reusing_kept") == [("first", 0), ("a", 1), ("b", 2), ("last", 2)]
    assert seen.acks is None or seen.acks.complete


class Spoiling(BasicBolt):
    """Changes the values that it got, as far as it can."""

    outputs: ClassVar[Sequence[Any]] = WORD

    def execute(self, tup: Tuple, collector: Any) -> None:
        word = tup["word"]
        tup.values = ("spoilt",)
        collector.emit([word])


def test_what_a_bolt_does_to_its_tuple_no_other_reader_sees() -> None:
    """Every reader of a stream has its own tuples."""
    builder = spouts(words="word string")
    builder.set_bolt("spoiling", Spoiling(), parallelism_hint=2).all_grouping("words")
    builder.set_bolt("got", Got(), parallelism_hint=2).all_grouping("words")

    seen = run_tuples(kept(builder, "spoiling", "got"), words(["a", "b"]))

    assert sorted(seen.rows("spoiling_kept")) == [("a",), ("a",), ("b",), ("b",)]
    assert seen.rows("got_kept") == [(0, "a b"), (1, "a b")]


class Sink(Pass):
    """Emits nothing and fails on `bad`."""

    outputs: ClassVar[Sequence[Any]] = ()

    def execute(self, tup: Tuple, collector: Any) -> None:
        if tup["word"] == "bad":
            raise LookupError("a sink too")


def test_a_bolt_that_nobody_reads_fails_the_batch_like_any_other() -> None:
    """A bolt without outputs runs in every attempt: its failure is one of the batch."""
    builder = spouts(words="word string")
    builder.set_bolt("sink", Sink()).shuffle_grouping("words")
    topology = kept(builder, "words")
    graph = build_graph(topology, ["words_kept", "sink"], ackers=0)
    run, reports = run_spec({"words": 1}), list[TaskReport]()

    def emitted(*_: Any) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"word": ["a", "bad"]})

    messages = list(Engine(graph).run_local([run], emitted, reports.append))
    failure = ran(graph, run, reports, messages).failure

    assert failure is not None
    assert (failure.component, "LookupError: a sink too" in failure.message) == ("sink", True)


def test_a_chain_of_forty_bolts() -> None:
    """Every level is one more step; nothing is lost or reordered on the way through single tasks."""
    builder, source = spouts(words="word string"), "words"
    for at in range(40):
        builder.set_bolt(f"step{at}", Pass()).shuffle_grouping(source)
        source = f"step{at}"

    seen = run_tuples(kept(builder, source), words(["a", "b", "c"]))

    assert seen.rows("step39_kept") == [("a",), ("b",), ("c",)]
    assert set(seen.edges.values()) == {(3, 3)}
    assert len(seen.edges) == 41
