"""CoordinatedBolt's counting: when a batch is complete, and how a loss is told.

Storm holds tuples un-acked until a batch is complete. Here the same is seen from outside: `finish_batch` runs once or
never, every target is told how much it was sent, and what is not complete fails the attempt at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.kit.tuple_runs import Keeping, Ran, RowsSpout, graph_of, ran, run_spec, run_tuples
from txtopo.spouts import TransactionalSpout
from txtopo.testing import TopologyHarness
from txtopo.topology.batch_committer import BatchCommitter
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Tally, Topology
from txtopo.topology.streams import Stream
from txtopo.topology.tuple_bolts import BasicBolt, BatchBolt, FailedException
from txtopo.tuples.edge_checks import judge
from txtopo.tuples.engine import Engine
from txtopo.tuples.message import Kind, Message, TaskReport

# ------------------------------------------------------------------------------------------------------------ in the en


class Emitting(BasicBolt):
    """Emits what it gets; a tuple `bad` fails."""

    outputs = ["word string"]

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["word"] == "bad":
            raise FailedException("on purpose")
        collector.emit([tup["word"]])


class Counting(BatchBolt):
    """Storm's counting batch bolt: emits how many tuples its task got, also none."""

    outputs = ["task int", "n bigint"]
    finishes: list[tuple[str, int]] = []

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.context, self.n = collector, context, 0

    def execute(self, tup: Any) -> None:
        self.n += 1

    def finish_batch(self) -> None:
        Counting.finishes.append((str(self.context.attempt), self.context.task_index))
        self.collector.emit((self.context.task_index, self.n))


def rows_of(message: Message) -> list[dict[str, Any]]:
    """The rows of a message with some."""
    return list(message.body.to_pylist()) if message.body is not None else []


@pytest.fixture(autouse=True)
def no_finishes() -> None:
    Counting.finishes = []


def counted(tasks: int = 2, grouping: str = "global") -> Topology:
    """words -> emit -> count -> keep."""
    builder = TopologyBuilder("counted")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("emit", Emitting(), parallelism_hint=2).shuffle_grouping("words")
    declarer = builder.set_bolt("count", Counting(), parallelism_hint=tasks)
    getattr(declarer, f"{grouping}_grouping")("emit")
    builder.set_committer_bolt("keep", Keeping()).global_grouping("count")
    return builder.build()


def test_every_task_behind_is_told_its_own_count_zero_included() -> None:
    """CB-01, CB-06: all tuples go to the first of two tasks: it is told 3, the other 0, and both finish."""
    seen = run_tuples(counted(), {"words": [[("a",), ("b",), ("c",)]]})

    assert seen.rows("keep") == [(0, 3), (1, 0)]
    assert sorted(Counting.finishes) == [("3:1", 0), ("3:1", 1)]
    assert seen.edges == {"words -> emit": (3, 3), "emit -> count": (3, 3), "count -> keep": (2, 2)}


def test_every_source_task_reports_to_every_task() -> None:
    """CB-06: one report an edge and pair of tasks, so that none waits for a word that nobody says."""
    topology = counted(tasks=3)
    engine = Engine(graph_of(topology))

    sent = list(engine.source(0, run_spec({"words": 1}), "words", 0, iter([]), Tally(), lambda report: None))

    assert [(message.target, message.kind, message.rows) for message in sent] == [
        (1, Kind.REPORT, 0),
        (2, Kind.REPORT, 0),
    ]


def test_attempts_and_batches_are_independent() -> None:
    """BB-01: 3 tuples of attempt 1:1, one of 2:1, one of 1:2, interleaved in one wave: (3), (1), (1), each its own
    instance.
    """
    sizes = [3, 1, 1]
    runs = [run_spec({"words": 1}) for _ in sizes]

    def emitted(run_index: int, name: str, part: int, tally: Tally) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"word": ["x"] * sizes[run_index]})

    engine = Engine(graph_of(counted(tasks=1)))
    messages = engine.run_local(runs, emitted, lambda report: None)

    results = [message for message in messages if message.kind == Kind.RESULT]
    assert [(message.run, row["n"]) for message in results for row in rows_of(message)] == [(0, 3), (1, 1), (2, 1)]


@pytest.mark.parametrize("bad", ["first", "last"])
def test_a_failing_bolt_keeps_everything_behind_it_from_finishing(bad: str) -> None:
    """CB-03, CB-07, TB-05: a batch failure upstream: no task behind finishes the batch, and the caller sees the failure
    of the bolt that raised.
    """
    words = [("bad",), ("a",)] if bad == "first" else [("a",), ("b",), ("bad",)]

    seen = run_tuples(counted(), {"words": [words]})

    assert seen.failure is not None
    assert seen.failure.component == "emit"
    assert "FailedException: on purpose; on word='bad'" in seen.failure.message
    assert Counting.finishes == []


class Refusing(Counting):
    """Fails in finish_batch, in one task."""

    def finish_batch(self) -> None:
        if self.context.task_index == 1:
            raise FailedException("not today")
        super().finish_batch()


def test_a_failure_in_finish_batch_fails_the_attempt() -> None:
    """CB-07: finish raises a batch failure: nothing is committed, the caller sees the failure."""
    builder = TopologyBuilder("refused")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("count", Refusing(), parallelism_hint=2).shuffle_grouping("words")
    builder.set_committer_bolt("keep", Keeping()).global_grouping("count")

    seen = run_tuples(builder.build(), {"words": [[("a",)]]})

    assert seen.failure is not None
    assert seen.failure.component == "count"
    assert seen.failure.message.startswith(__file__)
    assert seen.failure.message.endswith("FailedException: not today")


class Squared(BasicBolt):
    """n -> n*n tuples."""

    outputs = ["request string", "one int"]

    def execute(self, tup: Any, collector: Any) -> None:
        for _ in range(int(tup["request"]) ** 2):
            collector.emit((tup["request"], 1))


class Partial(BatchBolt):
    """Partial sums by request, in finish."""

    outputs = ["request string", "n bigint"]

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.sums = collector, dict[str, int]()

    def execute(self, tup: Any) -> None:
        self.sums[tup[0]] = self.sums.get(tup[0], 0) + tup[1]

    def finish_batch(self) -> None:
        for item in self.sums.items():
            self.collector.emit(item)


class Answer(Partial):
    """One number a task, also where no tuple came."""

    outputs = ["n bigint"]

    def execute(self, tup: Any) -> None:
        self.sums[""] = self.sums.get("", 0) + tup[-1]

    def finish_batch(self) -> None:
        self.collector.emit((self.sums.get("", 0),))


@pytest.mark.parametrize(("request_", "answer"), [("2", 4), ("10", 100), ("1", 1), ("0", 0)])
def test_a_chain_of_partial_sums_answers_each_request(request_: str, answer: int) -> None:
    """CB-08: n -> n*n tuples (p3) -> partial count in finish (p3, shuffle) -> sum in finish (1): each request is a
    batch, and "0" is answered "0", since tasks finish that got no tuple.
    """
    builder = TopologyBuilder("chain")
    builder.set_spout("requests", RowsSpout("request string"))
    builder.set_bolt("square", Squared(), parallelism_hint=3).shuffle_grouping("requests")
    builder.set_bolt("partial", Answer(), parallelism_hint=3).shuffle_grouping("square")
    builder.set_bolt("sum", Answer()).global_grouping("partial")
    builder.set_committer_bolt("keep", Keeping()).global_grouping("sum")

    seen = run_tuples(builder.build(), {"requests": [[(request_,)]]})

    assert seen.rows("keep") == [(answer,)]
    assert seen.edges["square -> partial"] == (answer, answer)
    assert seen.edges["partial -> sum"] == (3, 3)


def test_partial_sums_of_several_keys_meet_by_key() -> None:
    """The same chain with requests that share a batch, grouped by request: a key without tuples is in no row, since
    nobody ever heard of it.
    """
    builder = TopologyBuilder("chain")
    builder.set_spout("requests", RowsSpout("request string"))
    builder.set_bolt("square", Squared(), parallelism_hint=3).shuffle_grouping("requests")
    builder.set_bolt("partial", Partial(), parallelism_hint=3).shuffle_grouping("square")
    builder.set_bolt("sum", Partial(), parallelism_hint=3).fields_grouping("partial", "request")
    builder.set_committer_bolt("keep", Keeping()).global_grouping("sum")

    seen = run_tuples(builder.build(), {"requests": [[("2",), ("10",)], [("1",), ("0",)]]})

    assert sorted(seen.rows("keep")) == [("1", 1), ("10", 100), ("2", 4)]
    assert seen.edges["square -> partial"] == (105, 105)


def test_tasks_without_any_tuple_still_finish() -> None:
    """CB-08: a pass-through chain of 2 bolts, then a finisher with more tasks than tuples: every one of them is done."""  # noqa: E501
    seen = run_tuples(counted(tasks=5, grouping="shuffle"), {"words": [[("a",)]]})

    assert sorted(task for task, _ in seen.rows("keep")) == [0, 1, 2, 3, 4]
    assert sorted(n for _, n in seen.rows("keep")) == [0, 0, 0, 0, 1]


# ---------------------------------------------------------------------------------------------- what happens to message


def broken_on_the_way(change: Any) -> Ran:
    """The run of `counted`, with the messages between `emit` and `count` changed."""
    topology = counted(tasks=1)
    graph, run = graph_of(topology), run_spec({"words": 1})
    engine = Engine(graph)
    reports: list[TaskReport] = []
    words = pa.record_batch({"word": ["a", "b", "c"]})
    messages = list(engine.source(0, run, "words", 0, iter([words]), Tally(read=3), reports.append))
    for level in range(1, graph.levels + 1):
        if level == 2:
            messages = change(messages)
        messages = list(engine.level([run], iter(sorted(messages, key=lambda m: m[:6])), level, reports.append))
    return ran(graph, run, reports, messages)


def _without(kind: Kind) -> Any:
    def change(messages: Sequence[Message]) -> list[Message]:
        gone = next(message for message in messages if message.kind == kind and message.target == 3)
        return [message for message in messages if message is not gone]

    return change


def _dropped_row(messages: Sequence[Message]) -> list[Message]:
    at = next(at for at, message in enumerate(messages) if message.kind == Kind.DATA)
    short = messages[at]._replace(body=messages[at].body.slice(1))  # type: ignore[union-attr]
    return [*messages[:at], short, *messages[at + 1 :]]


def _doubled(messages: Sequence[Message]) -> list[Message]:
    found = next(message for message in messages if message.kind == Kind.DATA)
    return [*messages, found]


def _stale(messages: Sequence[Message]) -> list[Message]:
    found = next(message for message in messages if message.kind == Kind.DATA)
    return [*messages, found._replace(source=-99)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_without(Kind.DATA), "emit -> count: task 1 sent 2 tuples, 0 arrived"),
        (_dropped_row, "emit -> count: task 1 sent 2 tuples, 1 arrived"),
        (_doubled, "emit -> count: task 1 sent 2 tuples, 4 arrived"),
        (_without(Kind.REPORT), "emit -> count: task 1 did not report how many tuples it sent; 2 arrived"),
        (_stale, "2 tuples came over emit -> count from task -99, which does not belong to this attempt"),
    ],
    ids=["message", "row", "twice", "report", "stale"],
)
def test_what_is_lost_doubled_or_stale_fails_the_attempt_at_once(change: Any, told: str) -> None:
    """TB-02 and Q 15: a dropped row, a duplicated row, a lost coordination row, a stale attempt's rows: the source task
    and both counts are named.
    """
    seen = broken_on_the_way(change)

    assert seen.failure is not None
    assert (seen.failure.component, seen.failure.message) == ("count", told)
    assert Counting.finishes == []


def test_nothing_changed_on_the_way_is_no_failure() -> None:
    """The test above fails for what it changes, and for nothing else."""
    assert broken_on_the_way(list).rows("keep") == [(0, 3)]


def test_a_report_that_came_twice_changes_nothing() -> None:
    """Q 14: an extra report does not finish a batch twice."""

    def change(messages: Sequence[Message]) -> list[Message]:
        return [*messages, *[message for message in messages if message.kind == Kind.REPORT]]

    assert broken_on_the_way(change).rows("keep") == [(0, 3)]
    assert len(Counting.finishes) == 1


class TwoStreams(BasicBolt):
    """Every word on one stream, its length on another."""

    outputs = ["word string", Stream("n int", name="lengths")]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["word"]])
        collector.emit([len(tup["word"])], stream="lengths")


class Meeting(BatchBolt):
    """Counts by where tuples come from."""

    outputs = ["source string", "n int"]

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.counts = collector, dict[str, int]()

    def execute(self, tup: Any) -> None:
        key = f"{tup.component}:{tup.stream}:{tup.task}:{','.join(tup.fields.names)}"
        self.counts[key] = self.counts.get(key, 0) + 1

    def finish_batch(self) -> None:
        for item in self.counts.items():
            self.collector.emit(item)


def test_a_diamond_with_several_streams_is_counted_edge_by_edge() -> None:
    """Q 16, Q 17: two paths from one spout and two streams of one bolt meet in a bolt, which finishes once."""
    builder = TopologyBuilder("diamond")
    builder.set_spout("words", RowsSpout("word string"))
    builder.set_bolt("two", TwoStreams()).shuffle_grouping("words")
    meeting = builder.set_bolt("meet", Meeting())
    meeting.global_grouping("words").global_grouping("two").global_grouping("two", stream="lengths")
    builder.set_committer_bolt("keep", Keeping()).global_grouping("meet")

    seen = run_tuples(builder.build(), {"words": [[("a",), ("b",)]]})

    counts: Mapping[str, int] = dict(seen.rows("keep"))
    assert counts == {"words:default:-1:word": 2, "two:default:1:word": 2, "two:lengths:1:n": 2}
    assert seen.edges["two:lengths -> meet"] == (2, 2)


class Turns(BatchCommitter):
    """Sums in its executor half, and notes what its halves do."""

    result = ("n bigint",)
    noted: list[tuple[str, int, int]] = []

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.collector, self.txid, self.sum = collector, attempt.txid, 0

    def execute(self, tup: Any) -> None:
        self.sum += tup[0]

    def finish_batch(self) -> None:
        self.noted.append(("finished", self.txid, self.sum))
        self.collector.emit((self.sum,))

    def commit(self, transaction: Any, rows: Any, collector: Any) -> None:
        self.noted.append(("committed", transaction.attempt.txid, sum(row["n"] for row in rows)))


class TwoBatches(TransactionalSpout):
    """1 and 2, then 30 and 40."""

    outputs = ("n bigint",)

    def __init__(self) -> None:
        self.planned = 0

    def is_ready(self) -> bool:
        return self.planned < 2

    def initialize_transaction(self, txid: int, previous: Any) -> Any:
        self.planned += 1
        return [[1, 2], [30, 40]][txid - 1]

    def emit_batch(self, attempt: Any, metadata: Any) -> Any:
        return [(n,) for n in metadata]


def test_committers_wait_for_their_turn_with_all_rows_there() -> None:
    """CB-04, TB-04: a committer's executor half finishes when its reports are complete, whoever's turn it is; its
    driver half waits for its turn.
    """
    Turns.noted.clear()
    builder = TopologyBuilder("turns")
    builder.set_spout("numbers", TwoBatches())
    builder.set_committer_bolt("turns", Turns()).shuffle_grouping("numbers")

    with TopologyHarness(builder.build(), by_hand=True, spout_pending_max=2) as harness:
        harness.run()
        harness.release_processing(2)
        early = list(Turns.noted)
        harness.release_processing(1)
        harness.release_commit(1)
        harness.release_commit(2)
        end = harness.run()

    assert sorted(early) == [("finished", 1, 3), ("finished", 2, 70)]
    assert Turns.noted[2:] == [("committed", 1, 3), ("committed", 2, 70)]
    assert end is not None and end.kind == "finished"


class HandOn(BasicBolt):
    """Hands its tuple on."""

    outputs = ["word string"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(tup.values)


@pytest.mark.parametrize("acking", ["batch", "off"])
def test_an_edge_whose_two_sides_do_not_agree_fails_the_attempt(acking: Any) -> None:
    """What goes into edge_count has been compared: each side counted for itself, and without counting nobody asks."""
    builder = TopologyBuilder("edges", acking=acking)
    builder.set_spout("source", RowsSpout("word string"))
    builder.set_bolt("hand", HandOn()).shuffle_grouping("source")
    builder.set_committer_bolt("keep", Keeping()).shuffle_grouping("hand")
    found = run_tuples(builder.build(), {"source": [[["a"], ["b"]]]})
    told = [
        dataclasses.replace(report, received=((1, 1),)) if report.component == "keep" else report
        for report in found.reports
    ]

    failure = judge(found.graph, run_spec({"source": 1}), told)

    assert judge(found.graph, run_spec({"source": 1}), found.reports) is None
    if acking == "off":
        assert failure is None
    else:
        assert failure is not None and failure.message == "hand -> keep: 2 tuples were sent and 1 received"
