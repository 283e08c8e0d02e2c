"""Results are tied to their batch, on a real local session: jobs with another batch's order, frames and results of
another, each refused; and what is not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.kit.fix_spark import executors_on, frame_jobs
from tests.kit.list_spout import FIELDS, ListSpout, assignment, list_topology, row
from tests.kit.tuple_topologies import FrameRows, diamond
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.values import Failed, Outcome, Processed, TransactionAttempt
from txtopo.errors import ConfigurationError
from txtopo.ports import Assignment
from txtopo.spark import jobs as jobs_module
from txtopo.spark.executor import SparkExecutor
from txtopo.spark.frames import frame_jobs as frame_jobs_module
from txtopo.spark.session.spark_session import check_settings
from txtopo.spark.signatures import ORDER_PROPERTY
from txtopo.spark.tuples import tuple_jobs as tuple_jobs_module
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]
Change = Callable[[Any], object]
"""Done to the thread's SparkContext right before a job."""


@pytest.fixture(scope="module")
def started(spark_session: SparkSession) -> Iterator[Callable[[Topology], SparkExecutor]]:
    with executors_on(spark_session) as make:
        yield make


def blocks(frame: DataFrame) -> DataFrame:
    """A bolt that no column could be carried through."""
    return frame.mapInArrow(lambda batches: batches, frame.schema)


def two_committers(bolt: Callable[[DataFrame], DataFrame], *spouts: str) -> Topology:
    """Both count by name, each downstream of its own bolt, so that each has a job. Further spouts are united with the
    first.
    """
    builder = TopologyBuilder("twice")
    for spout in ("source", *spouts):
        builder.set_spout(spout, ListSpout())

    def united(**frames: DataFrame) -> DataFrame:
        first, *others = frames.values()
        for other in others:
            first = first.unionByName(other)
        return bolt(first)

    inputs = ["source", *spouts] if spouts else "source"
    for name, source in (("first", "bolt1"), ("second", "bolt2")):
        builder.set_bolt(source, united if spouts else bolt, inputs=inputs, fields=FIELDS)
        builder.set_committer_bolt(name, CountCommitter(name, ["name"], count="n")).fields_grouping(source, ["name"])
    return builder.build()


@pytest.fixture(scope="module")
def reusable(started: Callable[[Topology], SparkExecutor]) -> SparkExecutor:
    executor = started(two_committers(blocks))
    assert frame_jobs(executor).reusable is not None
    return executor


class Disturbed:
    """Changes the property of a thread, or what it gets, at jobs that results are collected from."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, executor: SparkExecutor) -> None:
        self._context: Any = executor.spark.sparkContext
        self._numbers = threading.local()
        self.orders: list[str] = []
        self.change: Callable[[int], object] = lambda number: None
        self.answer: Callable[[int, list[Any]], list[Any]] = lambda number, batches: batches
        collect = jobs_module.collect_batches

        def collected(frame: Any) -> list[Any]:
            number = self._numbers.number = getattr(self._numbers, "number", 0) + 1
            self.orders.append(self.order)
            self.change(number)
            return self.answer(number, collect(frame))

        for module in (frame_jobs_module, tuple_jobs_module):
            monkeypatch.setattr(module, "collect_batches", collected)

    @property
    def order(self) -> Any:
        return self._context.getLocalProperty(ORDER_PROPERTY)

    @order.setter
    def order(self, order: str | None) -> None:
        self._context.setLocalProperty(ORDER_PROPERTY, order)

    def swap_orders(self) -> None:
        """Two threads take each other's order for their first job."""
        swap = Swap()

        def change(number: int) -> None:
            if number == 1:
                self.order = swap.other(self.order)

        self.change = change


class Swap:
    """Two threads give each other what they have."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2, timeout=60)
        self._given: dict[int, Any] = {}

    def other(self, mine: Any) -> Any:
        me = threading.get_ident()
        self._given[me] = mine
        self._barrier.wait()
        (found,) = [given for thread, given in self._given.items() if thread != me]
        return found


def at_once(executor: SparkExecutor, *waves: Sequence[Assignment]) -> list[list[Outcome]]:
    with ThreadPoolExecutor(len(waves)) as pool:
        return [list(found) for found in pool.map(executor.process, waves)]


def batch(txid: int, parts: int = 1, *, attempt: int = 0, spouts: Sequence[str] = ("source",)) -> Assignment:
    """Of the same size for all txids."""
    rows = [row(f"n{txid}")] * 3
    return Assignment(
        attempt=TransactionAttempt(txid, attempt), metadata={name: {"parts": [rows] * parts} for name in spouts}
    )


def counts(outcome: Outcome) -> list[tuple[str, int]]:
    assert isinstance(outcome, Processed), outcome
    return [(found["name"], found["n"]) for result in outcome.results for found in result.rows.to_pylist()]


def check_refused(outcome: Outcome, *words: str) -> None:
    assert isinstance(outcome, Failed), outcome
    assert outcome.failure.kind == "suspect", outcome.failure
    for word in (*words, "threads are not pinned, a job was started in a separate thread"):
        assert word in outcome.failure.message, outcome.failure


@pytest.mark.parametrize("parts", [1, 2], ids=["reusable plan", "plan of one attempt"])
def test_batches_that_got_each_others_order_are_both_refused(
    reusable: SparkExecutor, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    """Of equal size, so that no number tells: each job reports what the other batch owes, and its rows are the other's."""  # noqa: E501
    Disturbed(monkeypatch, reusable).swap_orders()

    (first,), (second,) = at_once(reusable, [batch(1, parts)], [batch(2, parts)])

    for outcome in (first, second):
        check_refused(outcome, "a task of batch ", "ran with the order of batch ", "batch 1", "batch 2")


def test_waves_that_got_each_others_order_count_for_nothing(
    started: Callable[[Topology], SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their batches run alone, and are right."""
    executor = started(list_topology(lambda frame: frame.filter("amount > 0"), name="waves"))
    executor.process([batch(101), batch(102)])
    disturbed = Disturbed(monkeypatch, executor)
    disturbed.swap_orders()

    waves = at_once(executor, [batch(1), batch(2)], [batch(3), batch(4)])

    assert [counts(outcome) for wave in waves for outcome in wave] == [[(f"n{txid}", 3)] for txid in (1, 2, 3, 4)]
    assert len(disturbed.orders) == 6, "two waves, and each batch alone"
    assert executor.one_by_one is None


@pytest.mark.parametrize("parts", [1, 2], ids=["one task", "distributed"])
def test_tuples_that_came_with_another_order_are_refused(
    started: Callable[[Topology], SparkExecutor], monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    executor = started(diamond(f"tuples{parts}"))
    Disturbed(monkeypatch, executor).swap_orders()
    content = [[["a b", 1], ["c", 2]]] * parts

    (first,), (second,) = at_once(executor, [assignment(1, *content)], [assignment(2, *content)])

    for outcome in (first, second):
        check_refused(outcome, "ran with the order of batch ")


@pytest.mark.parametrize("other", ["another batch", "an earlier attempt", "nothing"])
def test_a_second_committers_job_with_another_order_is_refused(
    reusable: SparkExecutor, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """The first job's reports are complete by then: only the signatures of the second tell."""
    disturbed = Disturbed(monkeypatch, reusable)
    reusable.process([batch(9 if other == "another batch" else 1)])
    order = "0 nothing" if other == "nothing" else disturbed.orders[-1]
    seen = len(disturbed.orders)

    def change(_: int) -> None:
        if len(disturbed.orders) == seen + 2:
            disturbed.order = order

    disturbed.change = change

    (outcome,) = reusable.process([batch(1, attempt=1)])

    words = {
        "another batch": "an earlier job of batch 9",
        "an earlier attempt": "an earlier job of batch 1",
        "nothing": "no batch",
    }
    check_refused(outcome, f"a task of batch 1 ran with the order of {words[other]}")


def test_a_second_committers_job_with_no_order_fails_its_batch(
    reusable: SparkExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturbed = Disturbed(monkeypatch, reusable)

    def change(_: int) -> None:
        if len(disturbed.orders) == 2:
            disturbed.order = None

    disturbed.change = change

    (outcome,) = reusable.process([batch(1)])

    assert isinstance(outcome, Failed) and "a job of no batch" in outcome.failure.message


def test_an_order_in_which_a_spout_is_idle_is_refused_for_another(
    started: Callable[[Topology], SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It owes no report of that spout, so that none is missed."""
    executor = started(two_committers(blocks, "beside"))
    disturbed = Disturbed(monkeypatch, executor)
    assert counts(executor.process([batch(7)])[0]) == [("n7", 3)] * 2, "a spout may be idle"
    idle, seen = disturbed.orders[-1], len(disturbed.orders)

    def change(_: int) -> None:
        if len(disturbed.orders) == seen + 2:
            disturbed.order = idle

    disturbed.change = change

    (outcome,) = executor.process([batch(1, spouts=["source", "beside"])])

    check_refused(outcome, "a task of batch 1 ran with the order of an earlier job of batch 7")


def test_a_dataframe_that_was_made_for_another_batch_is_refused(
    started: Callable[[Topology], SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = TopologyBuilder("given")
    builder.set_spout("numbers", FrameRows())
    builder.set_committer_bolt("words", CountCommitter("given", ["word"])).fields_grouping("numbers", ["word"])
    executor = started(builder.build())
    jobs = frame_jobs(executor)
    split, given = jobs.split, []

    def other(assigned: Assignment, run: Any) -> Any:
        work = split(assigned, run)
        given.append(work.given)  # type: ignore[attr-defined]
        return replace(work, given=given[0])  # type: ignore[call-arg]

    monkeypatch.setattr(jobs, "split", other)
    first, second = (
        executor.process([Assignment(attempt=TransactionAttempt(txid, 0), metadata={"numbers": {"count": 6}})])[0]
        for txid in (1, 2)
    )

    assert isinstance(first, Processed), first
    check_refused(second, "a task of batch 2 read rows that were made for batch 1")


def test_results_that_two_threads_took_for_their_own_are_refused(
    reusable: SparkExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturbed, swap = Disturbed(monkeypatch, reusable), Swap()
    disturbed.answer = lambda number, batches: swap.other(batches) if number == 1 else batches

    (first,), (second,) = at_once(reusable, [batch(1)], [batch(2)])

    for outcome in (first, second):
        check_refused(outcome)


def test_tuples_that_two_threads_took_for_their_own_are_refused(
    started: Callable[[Topology], SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = started(diamond("swapped"))
    disturbed, swap = Disturbed(monkeypatch, executor), Swap()
    disturbed.answer = lambda number, batches: swap.other(batches) if number == 1 else batches

    (first,), (second,) = at_once(executor, [assignment(1, [["a b", 1]])], [assignment(2, [["a b", 1]])])

    for outcome in (first, second):
        check_refused(outcome)


def runs_a_job(frame: DataFrame) -> DataFrame:
    return frame.limit(frame.count() + 1) if frame.count() > 9 else frame


def persists_and_reads_twice(frame: DataFrame) -> DataFrame:
    kept = frame.persist()
    return kept.join(kept.groupBy("name").count().drop("count"), "name").select(*frame.columns)


@pytest.mark.parametrize("bolt", [blocks, runs_a_job, persists_and_reads_twice])
def test_what_only_repeats_signatures_is_believed(
    started: Callable[[Topology], SparkExecutor], spark_session: SparkSession, bolt: Any
) -> None:
    """Jobs of a bolt's own, rows that it keeps, stages that adaptive execution plans; an order of 600 KiB; a batch
    without rows; several at once.
    """
    spark_session.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        executor = started(two_committers(bolt))
        rows = [row(f"{number:03}" + "x" * 2_000) for number in range(300)]
        large = Assignment(attempt=TransactionAttempt(3, 0), metadata={"source": {"parts": [[*rows, row("n3")]]}})
        found = at_once(executor, [batch(1)], [batch(2, 2)], [large], [assignment(4, [])])
    finally:
        spark_session.conf.set("spark.sql.adaptive.enabled", "false")

    assert [counts(outcome) for (outcome,) in found[:2]] == [[("n1", 3)] * 2, [("n2", 6)] * 2]
    assert [len(counts(outcome)) for (outcome,) in found[2:]] == [2 * 301, 0]


def test_a_session_whose_threads_are_not_pinned_is_refused(
    spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_session.sparkContext, "_gateway", object())

    with pytest.raises(ConfigurationError, match=r"threads are not pinned.*unset PYSPARK_PIN_THREAD"):
        check_settings(spark_session)


UNPINNED = """
    import os, sys
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    from py4j.java_gateway import JavaGateway
    from tests.integration.test_signatures import batch, blocks, counts, two_committers
    from txtopo.core.values import Processed
    from txtopo.errors import ConfigurationError
    from txtopo.local.java import java_environment
    from txtopo.spark.session import spark_session as session
    from txtopo.spark.executor import SparkExecutor

    os.environ.update(java_environment())
    options = session.SessionOptions(app_name="unpinned", log_folder=Path(sys.argv[1]), master="local[2]")
    stopped = []
    stop, session.stop_session = session.stop_session, lambda: stopped.append(1)  # what is refused is looked at further
    try:
        session.start_session(options)
    except ConfigurationError as error:
        print("unset PYSPARK_PIN_THREAD" in str(error), stopped == [1])
    session.ClientServer = JavaGateway  # as if nobody looked
    executor = SparkExecutor(two_committers(blocks), b"code", session=session.running_session())
    executor.start()
    with ThreadPoolExecutor(8) as pool:
        outcomes = [found for (found,) in pool.map(lambda txid: executor.process([batch(txid)]), range(1, 17))]
    right = [counts(one) == [(f"n{one.attempt.txid}", 3)] * 2 for one in outcomes if isinstance(one, Processed)]
    print(all(right), len(right) < len(outcomes))
    executor.close()
    stop()
"""


@pytest.mark.slow
def test_unpinned_threads_are_refused_and_were_they_not_no_wrong_row_would_be_believed(tmp_path: Path) -> None:
    """Eight batches at once of equal size, two committers each, on a JVM that serves any Python thread with any of its
    own.
    """
    (tmp_path / "driver.py").write_text(textwrap.dedent(UNPINNED))

    done = subprocess.run(
        [sys.executable, str(tmp_path / "driver.py"), str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PIN_THREAD": "false"},
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True", "True", "True"]
