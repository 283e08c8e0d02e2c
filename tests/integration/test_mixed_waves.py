"""Batches of a topology that mixes functions over DataFrames and tuple bolts share a job, and each has what it has
alone: rows, record batches, counts, failures.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.kit.fix_spark import executors_on
from tests.kit.list_spout import assignment
from tests.kit.mixed_topologies import WORD, averaged, clean, hidden_field, row_by_row, short, shout
from tests.kit.tuple_topologies import Keep, framed, mixed
from txtopo.core.plan import Metadata
from txtopo.core.values import Failed, Outcome, Processed, TransactionAttempt
from txtopo.ports import Assignment
from txtopo.spark.executor import SparkExecutor, wave_refusal
from txtopo.spark.tuples.tuple_jobs import TupleJobs
from txtopo.spouts.file_spout import FileSpout
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Spout, SpoutContext, Topology

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def started(spark_session: SparkSession) -> Iterator[Callable[[Topology], SparkExecutor]]:
    """Makes started executors on the shared session."""
    with executors_on(spark_session) as make:
        yield make


@pytest.fixture(scope="module")
def shared_executor(started: Callable[[Topology], SparkExecutor]) -> SparkExecutor:
    """Runs `row_by_row`; its first wave has been compared."""
    executor = started(row_by_row())
    assert executor.one_by_one is None
    processed(executor.process([assignment(txid, [["a b", 1]], [["c", 9]]) for txid in (901, 902)]))
    assert executor.waves_proven
    return executor


@pytest.fixture
def goes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs each go of jobs was for."""
    counts: list[int] = []
    again = TupleJobs.run_again

    def noting(self: TupleJobs, runs: Any, *args: Any, **options: Any) -> Any:
        counts.append(len(runs))
        return again(self, runs, *args, **options)

    monkeypatch.setattr(TupleJobs, "run_again", noting)
    return counts


def processed(outcomes: Sequence[Outcome]) -> list[Processed]:
    found = [outcome for outcome in outcomes if isinstance(outcome, Processed)]
    assert len(found) == len(outcomes), [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    return found


def same(one: Processed, other: Processed) -> bool:
    """Equal in all that is committed, down to types and the order of rows."""
    for name in ("attempt", "read", "rejected", "rejected_rows", "dead_letters", "edges", "code_hash"):
        assert getattr(one, name) == getattr(other, name), name
    for ours, theirs in zip(one.results, other.results, strict=True):
        assert (ours.committer, ours.arrived) == (theirs.committer, theirs.arrived)
        assert ours.rows.equals(theirs.rows), (ours.committer, ours.rows.to_pylist(), theirs.rows.to_pylist())
    return True


def random_part(draw: random.Random) -> list[Any]:
    words = ["a", "b", "word", "longer one", "ü ö", ""]
    return [[" ".join(draw.choices(words, k=3)), draw.randint(0, 9)] for _ in range(draw.choice([0, 1, 3, 20]))]


@pytest.fixture(scope="module")
def compared(shared_executor: SparkExecutor) -> tuple[list[Processed], list[Processed]]:
    """Outcomes of batches in a wave, and of each alone. The numbers of parts are below and above the number of Spark's
    tasks; batches 6 and 7 fill a record batch of Spark together.
    """
    draw = random.Random(4711)
    wave = [assignment(txid, *(random_part(draw) for _ in range(parts))) for txid, parts in enumerate((1, 2, 11, 5), 1)]
    wave.append(assignment(5, []))
    wave += [assignment(txid, [[f"w{txid}-{at}", 9] for at in range(4000 * txid)]) for txid in (6, 7)]
    scheduler = shared_executor.spark.sparkContext._jsc.sc().dagScheduler()
    numbers = [scheduler.numTotalJobs()]
    together = processed(shared_executor.process(wave))
    numbers.append(scheduler.numTotalJobs())
    alone = processed(shared_executor.process(wave[:1]))
    numbers.append(scheduler.numTotalJobs())
    alone += processed([shared_executor.process([again])[0] for again in wave[1:]])
    assert numbers[1] - numbers[0] == numbers[2] - numbers[1], "a wave takes as many jobs as a batch"
    return together, alone


def test_a_wave_of_a_mixed_topology_is_one_job_and_gives_each_batch_what_it_has_alone(
    compared: tuple[list[Processed], list[Processed]],
) -> None:
    together, alone = compared

    assert all(same(one, other) for one, other in zip(together, alone, strict=True))
    assert [outcome.read > 0 for outcome in together] == [True, True, True, True, False, True, True]
    assert all(result.row_count for result in together[2].results), "a committer that gets nothing shows nothing"


def test_record_batches_are_cut_for_each_batch_of_a_wave_by_itself(
    compared: tuple[list[Processed], list[Processed]],
) -> None:
    """Spark cuts the rows of a partition whichever batch they belong to; an ArrowBolt sees nothing of it."""
    for txid, outcome, by_itself in zip((6, 7), compared[0][-2:], compared[1][-2:], strict=True):
        shapes = outcome.results[1].rows.to_pylist()
        assert shapes == by_itself.results[1].rows.to_pylist()
        assert sum(shape["rows"] for shape in shapes) == 4000 * txid
        assert all(shape[place].startswith(f"W{txid}-") for shape in shapes for place in ("first", "last"))


def test_a_bad_tuple_fails_its_batch_alone_and_its_neighbour_is_processed(shared_executor: SparkExecutor) -> None:
    """W6: in a wave only a batch alone has a kind of failure."""
    good, bad = shared_executor.process([assignment(1, [["good", 9]]), assignment(2, [["good", 1]], [["bad one", -1]])])

    assert isinstance(good, Processed) and good.results[2].rows.to_pylist() == [{"word": "GOOD", "amount": 9}]
    assert isinstance(bad, Failed) and bad.failure.kind == "data" and "no such amount: -1" in bad.failure.message


@pytest.mark.parametrize(
    ("acking", "condition"), [("tuple", "amount < 8"), ("batch", "false")], ids=["tracked", "no row passes"]
)
def test_a_first_wave_proves_itself(
    started: Callable[[Topology], SparkExecutor], goes: list[int], acking: str, condition: str
) -> None:
    """Roots, trees and acks are those of each batch. What Spark removes from the plan still has its source tasks."""
    executor = started(short("proving", lambda frame: clean(frame).filter(condition), acking=acking))
    wave = [assignment(txid, [[f"w{txid} x y", 7]] * txid, [["z", 9]]) for txid in (1, 2)]

    found = processed(executor.process(wave))

    assert executor.waves_proven, executor.one_by_one
    assert goes == [2, 1, 1] and [outcome.read for outcome in found] == [2, 3]


def averages(frame: Any) -> Any:
    return frame.groupBy("text").agg(F.max("amount").alias("amount"))


def counting(frame: Any) -> Any:
    return frame.filter(f"amount >= {min(0, frame.count())}")


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        (lambda: row_by_row(first=averages), "bolt clean depends on other rows: Aggregate"),
        (lambda: row_by_row(first=counting), "bolt clean runs a Spark job while it is called"),
        (lambda: mixed(), "bolt both reads several streams"),
        (lambda: framed(), "spout numbers returns a DataFrame that does not show the batch of a row"),
        (lambda: row_by_row(loud=averaged), "bolt loud depends on other rows: Aggregate"),
        (lambda: hidden_field(), "spout source has a field that is called $run"),
        (lambda: row_by_row(), None),
    ],
)
def test_what_cannot_share_a_job_is_named(
    spark_session: SparkSession, topology: Callable[[], Topology], words: str | None
) -> None:
    assert wave_refusal(topology(), spark_session) == words


def test_a_function_that_later_looks_at_other_rows_ends_waves(spark_session: SparkSession, goes: list[int]) -> None:
    """Each wave is planned for itself, so each call of the function is looked at; what counts is each batch alone."""
    armed: list[bool] = []
    told: list[str] = []

    def sorts_later(frame: Any) -> Any:
        return clean(frame).orderBy("amount") if armed else clean(frame)

    executor = SparkExecutor(short("later", sorts_later), b"code", session=spark_session, say=told.append)
    executor.start()
    try:
        processed(executor.process([assignment(txid, [["a", 1]]) for txid in (1, 2)]))
        armed.append(True)
        processed(executor.process([assignment(txid, [["a", 1]]) for txid in (3, 4)]))
    finally:
        executor.close()

    assert executor.one_by_one == "bolt clean depends on other rows: Sort"
    assert len(told) == 1
    assert told[0].startswith(f"batches are processed one by one from now on: {executor.one_by_one}; what is committed")
    assert goes == [2, 1, 1, 2, 1, 1]


def test_a_mixed_topology_without_code_over_rows_compares_nothing(
    started: Callable[[Topology], SparkExecutor], goes: list[int], tmp_path: Path
) -> None:
    """Functions that consist of Spark's own expressions, and a committer that only defines `commit`."""
    builder = TopologyBuilder("own_code")
    builder.set_spout("lines", FileSpout(tmp_path, "word string, amount int", settled_s=0))
    builder.set_bolt("loud", shout, inputs="lines", fields=WORD)
    builder.set_committer_bolt("kept", Keep()).shuffle_grouping("loud")
    executor = started(builder.build())
    assert executor.one_by_one is None and executor.waves_proven

    (tmp_path / "a.csv").write_text("word,amount\na,1\nb,2\n")
    metadata = planned(executor._topology.spouts[0].spout)
    wave = [Assignment(attempt=TransactionAttempt(txid, 0), metadata={"lines": metadata}) for txid in (1, 2)]
    found = processed(executor.process(wave))

    assert goes == [2]
    assert [outcome.results[0].rows.to_pylist() for outcome in found] == [[{"word": "A", "amount": 1}]] * 2


def planned(spout: Spout) -> Metadata:
    context = SpoutContext(
        topology="t", spout="lines", consumed={}, once=False, monotonic=lambda: 0.0, say=lambda words: None
    )
    coordinator = spout.open_coordinator(context)
    assert [coordinator.is_ready() for _ in range(2)][1]
    return coordinator.initialize_transaction(1, None)
