"""Failures of bolts at their edges: what is refused leaves nothing behind, what Python cannot hold is a failing tuple,
and searches end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tests.kit.list_spout import ListSpout
from tests.kit.tuple_runs import Keeping, RowsSpout, graph_of, ran, run_spec, run_tuples
from txtopo.core.fields import Fields
from txtopo.core.values import Failed, Failure, Outcome, Processed, TransactionAttempt
from txtopo.errors import BatchDataError
from txtopo.ports import Assignment
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology
from txtopo.topology.streams import Stream, Tuple
from txtopo.topology.tuple_bolts import BasicBolt, CustomStreamGrouping, RichBolt, TupleBolt
from txtopo.tuples import rich_and_arrow_runners
from txtopo.tuples.engine import Engine
from txtopo.tuples.message import TaskReport, TupleFailure
from txtopo.tuples.tracing import Again, Tracing


def topology(bolt: TupleBolt, fields: str = "word string", *, direct: bool = False, acking: Any = "batch") -> Topology:
    """source -> bolt -> keep."""
    builder = TopologyBuilder("failing", acking=acking)
    builder.set_spout("source", RowsSpout(fields))
    builder.set_bolt("bolt", bolt).shuffle_grouping("source")
    keep = builder.set_committer_bolt("keep", Keeping(), parallelism_hint=2)
    keep.direct_grouping("bolt") if direct else keep.shuffle_grouping("bolt")
    return builder.build()


class Stubborn(RichBolt):
    """Names tasks, swallows what is refused, and goes on."""

    outputs: ClassVar[Sequence[Any]] = [Stream("word string", direct=True)]

    def prepare(self, config: Any, context: Any, collector: Any) -> None:
        self.collector = collector
        self.first, self.second = context.tasks["keep"]

    def execute(self, tup: Tuple) -> None:
        if tup[0] == "bad":
            with pytest.raises(BatchDataError, match="2 values"):
                self.collector.emit_direct(self.first, ["a", "b"], anchors=[tup])
        else:
            self.collector.emit_direct(self.second, tup.values, anchors=[tup])
        self.collector.ack(tup)


def test_a_row_that_was_refused_does_not_leave_its_task_to_the_next_row() -> None:
    """The task that `emit_direct` names belongs to its row, whatever became of the row before."""
    found = run_tuples(topology(Stubborn(), direct=True), {"source": [[["bad"], ["good"], ["better"]]]})

    assert found.failure is None
    assert found.rows("keep") == [("good",), ("better",)]
    arrived = [report.received for report in found.reports if report.component == "keep"]
    assert arrived == [((1, 0),), ((1, 2),)]


class FailsAll(RichBolt):
    """Fails every tuple."""

    outputs: ClassVar[Sequence[Any]] = ["word string"]

    def prepare(self, config: Any, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        self.collector.fail(tup)


def test_failures_that_nobody_keeps_are_not_put_into_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bolt may fail a million tuples; each `fail` is cheap once there is no room to note it."""
    told: list[str] = []
    monkeypatch.setattr(rich_and_arrow_runners, "user_frame", told.append)

    found = run_tuples(topology(FailsAll()), {"source": [[[str(number)] for number in range(50)]]})

    assert found.failure is not None and "FailsAll failed the tuple word='0'" in found.failure.message
    assert len(told) == 1


class Pass(BasicBolt):
    """Emits nothing."""

    outputs: ClassVar[Sequence[Any]] = ["at timestamp"]

    def execute(self, tup: Tuple, collector: Any) -> None:
        """Reads its tuple."""


@pytest.mark.parametrize("acking", ["batch", "tuple"])
def test_a_value_that_python_cannot_hold_fails_its_tuple_and_no_task(acking: Any) -> None:
    """A day in the year 12000 is a good timestamp for Spark and for Arrow: the tuple is named, and the task lives."""
    built = topology(Pass(), "at timestamp", acking=acking)
    graph, run = graph_of(built), run_spec({"source": 1})
    reports: list[TaskReport] = []
    kind = built.spouts[0].spout.fields
    good = int(datetime(2024, 1, 1).timestamp()) * 1_000_000
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])

    def emitted(*_: object) -> Any:
        yield pa.record_batch([pa.array([good, 1 << 62, good], pa.int64()).cast(schema.field(0).type)], schema=schema)

    messages = list(Engine(graph).run_local([run], emitted, reports.append))

    found = ran(graph, run, reports, messages)
    assert kind.names == ("at",)
    assert found.failure is not None and found.failure.component == "bolt"
    assert [root & 0xFF for roots in found.roots for root in roots] == [1]


def test_a_search_ends_where_a_bolt_fails_on_what_was_left_out() -> None:
    """Every loop has an end: a source that does not give the same tuples again cannot be searched."""
    failure = Failure(kind="data", component="bolt", message="boom")
    attempt = TransactionAttempt(1, 0)
    runs: list[Mapping[str, Any]] = []

    def rerun(again: Again) -> tuple[Failed, Sequence[TupleFailure]]:
        runs.append(again.excluded)
        assert len(runs) < 5, "no end"
        return Failed(attempt=attempt, failure=failure), [TupleFailure(failure=failure, roots=(7,))]

    builder = TopologyBuilder("failing")
    builder.set_spout("source", ListSpout("word string"))
    builder.set_committer_bolt("keep", Keeping()).shuffle_grouping("source")
    assignment = Assignment(attempt=attempt, metadata={"source": {"parts": [[["a"]]]}}, dead_letter_max=10)
    tracing = Tracing(
        builder.build(), lambda root: ("source", 0, root), assignment, {"source": [{"rows": [["a"]]}]}, rerun
    )

    outcome = tracing.explained(failure, [TupleFailure(failure=failure, roots=(7,))])

    assert outcome == Failed(attempt=attempt, failure=failure)
    assert runs == [{"source": {0: frozenset({7})}}]


class Unready(CustomStreamGrouping):
    """Cannot be prepared."""

    def prepare(self, source: str, stream: str, fields: Fields, targets: Sequence[int]) -> None:
        raise ValueError(f"no place for {source}")

    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        raise NotImplementedError


class Hand(BasicBolt):
    """Hands its tuple on."""

    outputs: ClassVar[Sequence[Any]] = ["word string"]

    def execute(self, tup: Tuple, collector: Any) -> None:
        collector.emit(tup.values)


@pytest.mark.parametrize("at", ["source", "hand"])
def test_a_grouping_that_cannot_be_prepared_fails_the_attempt_and_no_task(at: str) -> None:
    """An exception of the user's code is never a failed task, which Spark would try four times: it names the component
    and the line.
    """
    builder = TopologyBuilder("failing")
    builder.set_spout("source", RowsSpout("word string"))
    hand, keep = builder.set_bolt("hand", Hand(), parallelism_hint=2), builder.set_committer_bolt("keep", Keeping())
    hand.custom_grouping("source", Unready()) if at == "source" else hand.shuffle_grouping("source")
    keep.custom_grouping("hand", Unready()) if at == "hand" else keep.shuffle_grouping("hand")

    found = run_tuples(builder.build(), {"source": [[["a"], ["b"]]]})

    assert found.failure is not None and found.failure.component == at
    assert re.search(rf"{__name__.rpartition('.')[2]}.py:[0-9]+: ValueError: no place for {at}", found.failure.message)
    assert {report.component for report in found.reports if report.failures} == {at}


BOOM = Failure(kind="data", component="bolt", message="boom", detail="a trace")
ATTEMPT = TransactionAttempt(1, 0)


def searched(
    causes: Sequence[TupleFailure], *ends: tuple[Outcome, Sequence[TupleFailure]]
) -> tuple[Outcome, list[Again]]:
    """What becomes of a batch with dead letters whose first run failed with BOOM, and the reruns, which end like this."""  # noqa: E501
    runs: list[Again] = []

    def rerun(again: Again) -> tuple[Outcome, Sequence[TupleFailure]]:
        runs.append(again)
        return ends[len(runs) - 1]

    builder = TopologyBuilder("failing")
    builder.set_spout("source", ListSpout("word string"))
    builder.set_committer_bolt("keep", Keeping()).shuffle_grouping("source")
    assignment = Assignment(attempt=ATTEMPT, metadata={"source": {"parts": [[["a"]]]}}, dead_letter_max=10)
    parts = {"source": [{"rows": [["a"]]}]}
    tracing = Tracing(builder.build(), lambda root: ("source", 0, root), assignment, parts, rerun)
    return tracing.explained(BOOM, causes), runs


def test_a_disk_that_is_away_during_the_search_is_no_dead_letter_and_ends_it() -> None:
    """Infrastructure errors never quarantine: the attempt fails as such, and is tried again when the disk is back."""
    away = Failed(attempt=ATTEMPT, failure=Failure(kind="infrastructure", component="source", message="away"))

    outcome, runs = searched([TupleFailure(failure=BOOM, roots=(0,))], (away, [TupleFailure(failure=away.failure)]))

    assert outcome == away
    assert len(runs) == 1


def test_a_failure_that_goes_away_by_itself_takes_no_record_out_and_commits_nothing() -> None:
    """A bolt that fails once and not again is not deterministic: the attempt fails, and the next one has its say."""
    done = Processed(attempt=ATTEMPT, code_hash=b"", read=1, results=())

    outcome, runs = searched([TupleFailure(failure=BOOM)], (done, []))

    assert outcome == Failed(attempt=ATTEMPT, failure=BOOM)
    assert [again.traced for again in runs] == [True]
