"""Both give the same result on the same topology: in this process and on real Spark, batch by batch and in waves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.contracts.executor_contract import CODE_HASH
from tests.kit.list_spout import assignment
from tests.kit.tuple_topologies import Keep, PlacedRows
from tests.kit.zoo import everything, zoo
from tests.unit.testing.test_harness import FIELDS, csv, sifted
from tests.unit.testing.test_transactional_topology import play, started
from txtopo import CountCommitter, TopologyBuilder
from txtopo.core.values import Failed, Failure, Outcome, Processed
from txtopo.errors import Halted
from txtopo.ports import Executor
from txtopo.spark.executor import SparkExecutor
from txtopo.testing import TopologyHarness
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.components import Topology
from txtopo.topology.streams import Tuple
from txtopo.topology.tuple_bolts import FailedException, RichBolt

pytestmark = pytest.mark.spark

TEXTS: Sequence[Sequence[tuple[str | None, int | None]]] = (
    [("a bb a cherry", 1), ("dog dog éléphant", 2), ("a", None), ("x bad y", 3), ("q", 1)],
    [("a tiger", 5), (None, 6), ("bb a", 2), ("dog", 1)],
    [("lonely giraffe a bb", None)],
)
"""Three batches: of three parts, of two with a text that a bolt fails on, and of one."""


@pytest.mark.parametrize("acking", ["batch", "tuple"])
def test_both_give_the_same_result_on_the_same_topology(spark_session: SparkSession, acking: str) -> None:
    """Every kind of bolt, grouping and committer over an opaque spout, distributed and in one task: every emission with
    its task, every edge, table, statement, failure and dead letter is the same.
    """
    bad = int(acking == "batch")
    texts = TEXTS if bad else [[(text and text.replace("bad", "good"), n) for text, n in part] for part in TEXTS]
    topology = zoo(*texts, acking=acking)
    seen = []
    for session in (None, spark_session):
        with TopologyHarness(topology, session=session, on_poison="dead_letter_rows", attempts_max=1) as harness:
            harness.run()
            seen.append(everything(harness))

    here, spark = seen
    assert {name: shown for name, shown in spark.items() if shown != here[name]} == {}
    assert [(batch.txid, batch.read, batch.dead_lettered) for batch in here["batches"]] == [
        (1, 5, 0),
        (2, 4, bad),
        (3, 1, 0),
    ]
    assert {name for name, shown in here.items() if not shown} == (set() if bad else {"dead letters"}), (
        "what nothing emits shows nothing"
    )
    assert len({emission.task for emission in here["by_all:default"]}) == 3


def test_the_run_of_storms_transactional_topology_on_spark(spark_session: SparkSession) -> None:
    """TT-01 to TT-07 once more, each phase processed by Spark and released by hand."""
    with started(session=spark_session) as harness:
        play(harness)


# ----------------------------------------------------------------------------------------------------------------------


class Acting(RichBolt):
    """Does with each tuple what its text says; passes every text on."""

    outputs: ClassVar[Sequence[str]] = ("text string", "amount int")

    def prepare(self, config: Any, context: Any, collector: Any) -> None:
        self.collector, self.held = collector, list[Tuple]()

    def execute(self, tup: Tuple) -> None:
        collector, values = self.collector, tup.values
        match tup["text"]:
            case "hold":
                self.held.append(tup)
                return
            case "join":
                collector.emit(values, anchors=[*self.held, tup])
            case "unanchored" | "unanchored lost":
                collector.emit(values)
            case "itself":
                collector.emit(values, anchors=[tup, tup])
            case "many":
                for _ in range(3):
                    collector.emit(values, anchors=[tup])
            case "fail":
                collector.fail(tup)
                return
            case "raise":
                raise FailedException("on purpose")
            case _:
                collector.emit(values, anchors=[tup])
        if tup["text"] != "forget":
            collector.ack(tup)
        if tup["text"] == "twice":
            collector.ack(tup)

    def finish_batch(self) -> None:
        for tup in self.held:
            self.collector.ack(tup)


class Last(RichBolt):
    """Acks what comes, but loses what is to be lost here."""

    outputs: ClassVar[Sequence[str]] = ("text string",)

    def prepare(self, config: Any, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        if tup["amount"] == 2:
            self.collector.fail(tup)
        elif tup["amount"] != 1:
            self.collector.emit([tup["text"]], anchors=[tup])
            self.collector.ack(tup)


def acted() -> Topology:
    """rows -> act -> last -> kept, every tuple tracked."""
    builder = TopologyBuilder("acted", acking="tuple")
    builder.set_spout("source", PlacedRows())
    builder.set_bolt("act", Acting()).global_grouping("source")
    builder.set_bolt("last", Last(), parallelism_hint=2).fields_grouping("act", ["text"])
    builder.set_committer_bolt("kept", Keep()).global_grouping("last")
    return builder.build()


CASES: dict[str, tuple[Sequence[Sequence[Any]], str | None]] = {
    "all are acked": ([["a", 0], ["hold", 0], ["many", 0], ["itself", 0], ["join", 0]], None),
    "nothing comes": ([], None),
    "one is neither acked nor failed": ([["a", 0], ["forget", 0], ["b", 0]], "neither acked nor failed|part-1.txt:2"),
    "one is failed by hand": ([["a", 0], ["b", 0], ["fail", 0]], "failed|part-1.txt:3"),
    "one is acked twice": ([["twice", 0], ["b", 0]], "acked twice|part-1.txt:1"),
    "one of three copies is not acked further down": ([["a", 0], ["many", 1]], "neither acked nor failed|part-1.txt:2"),
    "of two anchors the first is named": (
        [["a", 0], ["hold", 0], ["join", 1]],
        "neither acked nor failed|part-1.txt:2",
    ),
    "of two anchors that fail the first is named": ([["hold", 0], ["join", 2]], "failed|part-1.txt:1"),
    "one that is anchored twice on the same tuple is lost": (
        [["a", 0], ["itself", 1]],
        "neither acked nor failed|part-1.txt:2",
    ),
    "an unanchored one is lost, and belongs to no tree": (
        [["unanchored lost", 1], ["b", 0]],
        "neither acked nor failed|",
    ),
    "an unanchored one fails, and with it the batch alone": ([["unanchored", 2], ["b", 0]], "failed|"),
    "one raises": ([["a", 0], ["raise", 0]], "FailedException: on purpose|part-1.txt:2"),
}
"""Rows of part 1, and what the failure says of them: words and position."""
SPREAD = ("all are acked", "one is neither acked nor failed", "of two anchors that fail the first is named")
"""Those that are also run over several tasks."""


@pytest.fixture(scope="module")
def acking(spark_session: SparkSession) -> Iterator[Sequence[Executor]]:
    """In this process, and on Spark."""
    executors: list[Executor] = [
        InProcessExecutor(acted(), CODE_HASH),
        SparkExecutor(acted(), CODE_HASH, session=spark_session),
    ]
    for executor in executors:
        executor.start()
    yield executors
    for executor in executors:
        executor.close()


def shown(outcome: Outcome) -> Any:
    """What must be the same everywhere."""
    if isinstance(outcome, Failed):
        failure: Failure = outcome.failure
        return failure.kind, failure.component, failure.position, failure.message
    assert isinstance(outcome, Processed)
    return [result.rows.to_pylist() for result in outcome.results], outcome.edges, outcome.read


@pytest.mark.parametrize("spread", [False, True], ids=["one task", "distributed"])
def test_tuples_that_are_not_acked_fail_their_batch_and_are_named(acking: Sequence[Executor], spread: bool) -> None:
    """AK-01, AK-02, AK-08 as batches: an incomplete root names its source tuple, as does one that failed; all anchors
    count; no anchor is no tree.
    """
    cases = {name: case for name, case in CASES.items() if not spread or name in SPREAD}
    others: list[Any] = [[["z", 0]]] if spread else []
    wave = [assignment(txid, list(rows), *others) for txid, (rows, _) in enumerate(cases.values(), 1)]

    here, spark = ([shown(outcome) for outcome in executor.process(wave)] for executor in acking)

    for case, ours, theirs in zip(cases.items(), here, spark, strict=True):
        name, (_, expected) = case
        assert theirs == ours, name
        told, _, position = (expected or "").partition("|")
        if expected is None:
            assert isinstance(theirs[0], list), (name, theirs)
        else:
            assert theirs[0] == "data" and told in theirs[3] and theirs[2] == (position or None), (name, theirs)


def test_without_ackers_nothing_is_tracked(spark_session: SparkSession) -> None:
    """AK-08 (i): with ackers=0 no tree is waited for: what is never acked commits. A tuple that is failed by hand fails
    its batch, as with acking by batch.
    """
    executor = SparkExecutor(acted(), CODE_HASH, session=spark_session, ackers=0)
    executor.start()

    lost, failed = executor.process(
        [assignment(1, [["forget", 0], ["a", 1], ["twice", 0]]), assignment(2, [["fail", 0]])]
    )

    executor.close()
    assert isinstance(lost, Processed), lost
    assert isinstance(failed, Failed) and failed.failure.position == "part-1.txt:1", failed


# ----------------------------------------------------------------------------------------------------------------------


def small_files(folder: Path, bad: str) -> Any:
    """30 of them; one has a record that a bolt fails on, some have one that does not parse."""
    contents = [
        "".join(f"w{(at * line) % 7},{line}\n" for line in range(at % 5))
        + ("oops\n" if at % 4 == 1 else "")
        + (bad if at == 1 else "")
        for at in range(30)
    ]
    return csv(folder, *contents)


def ledger(harness: TopologyHarness, name: str) -> Any:
    """Everything that a run leaves; attempts and times aside."""
    rows = harness.stores.postgres.topologies[name].ledger
    return (
        {
            txid: (row.state, row.digest, row.read, row.rejected, row.dead_lettered, row.counts, row.edges)
            for txid, row in rows.items()
            if txid
        },
        harness.table("counts"),
        harness.rejects,
        harness.dead_letters,
        harness.stores.postgres.contributions,
    )


def by_frames(spout: Any) -> Topology:
    """rows -> upper (a function on DataFrames) -> counts."""
    builder = TopologyBuilder("sifted")
    builder.set_spout("rows", spout)
    builder.set_bolt("upper", _upper, inputs="rows", fields=FIELDS, rows="same")
    counts = CountCommitter("counts", ["word"], count="n", sums={"amount": "total"})
    builder.set_committer_bolt("counts", counts).fields_grouping("upper", ["word"])
    return builder.build()


def _upper(rows: DataFrame) -> DataFrame:
    return rows.withColumn("word", F.upper("word"))


@pytest.mark.parametrize("kind", ["tuples", "frames"])
def test_waves_on_and_off_leave_the_same(spark_session: SparkSession, tmp_path: Path, kind: str) -> None:
    """The same input, waves on and off, gives the same ledger (attempts and times aside), table and rejects."""
    spout = small_files(tmp_path, "bad,-1\n" if kind == "tuples" else "")
    topology = sifted(spout) if kind == "tuples" else by_frames(spout)
    scheduler = spark_session.sparkContext._jsc.sc().dagScheduler()
    seen, jobs = [], []
    for waves in (False, True):
        settings: dict[str, Any] = {
            "waves": waves,
            "capture": False,
            "on_poison": "dead_letter_rows",
            "attempts_max": 1,
        }
        with TopologyHarness(topology, session=spark_session, **settings) as harness:
            before = scheduler.numTotalJobs()
            harness.run()
            jobs.append(scheduler.numTotalJobs() - before)
            seen.append(ledger(harness, "sifted"))

    assert seen[0] == seen[1]
    assert len(seen[0][0]) == 30
    assert jobs[1] < jobs[0] - 10, f"jobs batch by batch and in waves: {jobs}"
    assert len(seen[0][2]) == 8, "rejects"
    assert len(seen[0][3]) == (1 if kind == "tuples" else 0)


def test_a_halt_on_spark_says_what_it_says_here(spark_session: SparkSession, tmp_path: Path) -> None:
    """A bad tuple halts the topology after one attempt, with the same words."""
    spout = csv(tmp_path, "a,1\n", "b,2\nzzz,-5\n")
    told = []
    for session in (None, spark_session):
        with TopologyHarness(sifted(spout), session=session, attempts_max=1) as harness:
            with pytest.raises(Halted) as halted:
                harness.run()
            told.append((halted.value.txid, str(halted.value), [batch.txid for batch in harness.batches]))

    assert told[0] == told[1]
    assert f"{tmp_path / '01.csv'}:3" in told[0][1]
