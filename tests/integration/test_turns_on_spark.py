"""Two batches whose plans are built at once, on a real local session: each is committed with its own rows, and none
waits for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.contracts.executor_contract import CODE_HASH
from tests.kit.drivers import wait_until
from tests.kit.fix_spark import executors_on
from tests.kit.list_spout import FIELDS, ListSpout, assignment, list_topology, row
from tests.kit.tuple_topologies import Keep
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.values import Failed, Outcome, Processed, TransactionAttempt
from txtopo.errors import BatchDataError
from txtopo.ports import Assignment
from txtopo.spark.executor import SparkExecutor
from txtopo.spark.frames import plan_lock
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology

pytestmark = pytest.mark.spark


class NamedSpout(ListSpout):
    """Gives one row, with the name in its metadata, as a DataFrame."""

    emits_frame = True

    def frame(self, spark: SparkSession, metadata: Mapping[str, Any]) -> DataFrame:
        columns = [f"'{metadata['name']}' name", "1 amount", "0L big", "cast(0 as decimal(38,2)) price"]
        return spark.range(1).selectExpr(*columns)


def named_topology(bolt: Callable[[DataFrame], DataFrame]) -> Topology:
    builder = TopologyBuilder("named")
    builder.set_spout("source", NamedSpout())
    builder.set_bolt("bolt1", bolt, inputs="source", fields=FIELDS, rows="same")
    committer = CountCommitter("counts", ["name"], count="n")
    builder.set_committer_bolt("counter", committer).fields_grouping("bolt1", ["name"])
    return builder.build()


def named(txid: int) -> Assignment:
    return Assignment(attempt=TransactionAttempt(txid, 0), metadata={"source": {"name": f"batch {txid}"}})


@pytest.fixture
def started(spark_session: SparkSession) -> Iterator[Callable[[Topology], SparkExecutor]]:
    with executors_on(spark_session) as make:
        yield make


class Views:
    """A bolt that names its input and reads it by that name. Once `armed`, its first call lingers in between as long as
    the test wants.
    """

    def __init__(self) -> None:
        self.armed = threading.Event()
        self.lingers = threading.Event()
        self.overtaken = threading.Event()
        self.linger: Callable[[], object] = lambda: None

    def __call__(self, incoming: DataFrame) -> DataFrame:
        incoming.createOrReplaceTempView("incoming")
        if self.armed.is_set():
            if not self.lingers.is_set():
                self.lingers.set()
                self.linger()
            else:
                self.overtaken.set()
        return incoming.sparkSession.sql("select distinct * from incoming")


def view_topology(kind: str, views: Views) -> Topology:
    """Behind a DataFrame spout; behind one that emits in tasks; in front of a committer that gets tuples."""

    def bolt1(incoming: DataFrame) -> DataFrame:
        return views(incoming)

    if kind == "DataFrame":
        return named_topology(bolt1)
    if kind == "tasks":
        return list_topology(bolt1)
    builder = TopologyBuilder("tuples")
    builder.set_spout("source", ListSpout())
    builder.set_bolt("bolt1", bolt1, inputs="source", fields=FIELDS)
    builder.set_committer_bolt("kept", Keep()).shuffle_grouping("bolt1")
    return builder.build()


def waits(executor: SparkExecutor, txid: int) -> bool:
    """Does this batch look again and again whether it is in turn? Before its first task there is no other progress than
    to have begun.
    """
    return executor.progress(TransactionAttempt(txid, 0)) > 3


def names_of(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, Processed), outcome
    return sorted(found["name"] for found in outcome.results[0].rows.to_pylist())


@pytest.mark.parametrize("kind", ["DataFrame", "tasks", "tuples"])
def test_batches_whose_bolt_uses_one_view_name_are_committed_with_their_own_rows(
    started: Callable[[Topology], SparkExecutor], kind: str
) -> None:
    """They share a session, and so the names in it: a second call does not begin before the first has read what it
    named.
    """
    views = Views()
    executor = started(view_topology(kind, views))
    first, second = named(1), named(2)
    if kind != "DataFrame":
        first, second = assignment(1, [row("a")], [row("b")], [row("c")]), assignment(2, [row("d")], [row("e")])
    views.linger = lambda: wait_until(
        lambda: views.overtaken.is_set() or waits(executor, 2), "a second batch at the bolt"
    )
    views.armed.set()

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(executor.process, [first])
        assert views.lingers.wait(60)
        other = pool.submit(executor.process, [second])
        found = names_of(one.result(90)[0]), names_of(other.result(90)[0])

    assert found == ((["batch 1"], ["batch 2"]) if kind == "DataFrame" else (["a", "b", "c"], ["d", "e"]))


def test_a_bolt_that_reads_what_an_earlier_call_was_given_is_named(spark_session: SparkSession) -> None:
    """Rows of another batch never pass for a bolt's own, whichever way they come."""
    kept: list[DataFrame] = []

    def keeps(frame: DataFrame) -> DataFrame:
        kept.append(frame)
        return kept[0]

    executor = SparkExecutor(list_topology(lambda d: d, keeps), CODE_HASH, session=spark_session)

    with pytest.raises(BatchDataError, match="reads tuples of another plan") as caught:
        executor.start()

    assert caught.value.component == "bolt2"


def checkpointed(frame: DataFrame) -> DataFrame:
    return frame.localCheckpoint()


def cached(frame: DataFrame) -> DataFrame:
    return frame.sparkSession.createDataFrame(frame.rdd.cache(), frame.schema)


@pytest.mark.parametrize("keep", [checkpointed, cached])
def test_a_bolt_that_reads_rows_that_an_earlier_call_kept_is_named(
    spark_session: SparkSession, started: Callable[[Topology], SparkExecutor], keep: Callable[[DataFrame], DataFrame]
) -> None:
    """No task on a leaf signs for rows that lie somewhere. What a batch or a script keeps for itself is fine."""
    kept: list[DataFrame] = []
    armed = threading.Event()

    def looks_up(frame: DataFrame, table: DataFrame) -> DataFrame:
        return frame.join(table, "name").select(*frame.columns)

    def keeps(frame: DataFrame) -> DataFrame:
        own = keep(frame)
        kept.append(own)
        return kept[0].union(own) if armed.is_set() else own

    table = keep(spark_session.createDataFrame([("a",), ("b",)], "name string"))
    executor = started(list_topology(keeps, lambda frame: looks_up(frame, table), rows="same"))
    (good,) = executor.process([assignment(1, [row("a"), row("b")])])
    armed.set()
    (bad,) = executor.process([assignment(2, [row("a"), row("b")])])

    assert names_of(good) == ["a", "b"]
    assert isinstance(bad, Failed) and bad.failure.kind == "data"
    assert "reads rows that an earlier call checkpointed or cached" in bad.failure.message
    assert bad.failure.component == "bolt1"


@pytest.mark.parametrize("given_up_s", [0.0, 3600.0], ids=["its call goes on", "its call ends with its action"])
def test_a_call_that_is_given_up_holds_up_no_other_batch(
    started: Callable[[Topology], SparkExecutor], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given_up_s: float
) -> None:
    """Who waits goes on: an action inside the call is cancelled with its batch, and from a call that hangs in Python
    the turn is taken.
    """
    monkeypatch.setattr(plan_lock, "GIVEN_UP_S", given_up_s)
    armed, hangs, release = threading.Event(), threading.Event(), threading.Event()

    def hanging(frame: DataFrame) -> DataFrame:
        if armed.is_set() and not hangs.is_set():
            hangs.set()
            if given_up_s:
                frame.count()  # its first task waits for a file that does not come
            release.wait(90)
        return frame.distinct()

    executor = started(list_topology(hanging))
    armed.set()
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(executor.process, [assignment(1, [f"wait {tmp_path}", row("a")], [row("a")])])
        assert hangs.wait(60)
        other = pool.submit(executor.process, [assignment(2, [row("b")], [row("b")])])
        wait_until(lambda: waits(executor, 2), "a batch that waits, with progress")

        executor.cancel(TransactionAttempt(1, 0))
        processed = other.result(90)[0]
        release.set()
        (tmp_path / "go").touch()
        (failed,) = one.result(90)

    assert names_of(processed) == ["b"]
    assert isinstance(failed, Failed) and failed.failure.message == "cancelled"


def test_a_batch_that_waits_for_its_turn_can_be_given_up(started: Callable[[Topology], SparkExecutor]) -> None:
    views, release = Views(), threading.Event()
    executor = started(view_topology("tasks", views))
    views.linger = lambda: release.wait(90)
    views.armed.set()
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(executor.process, [assignment(1, [row("a")], [row("b")])])
        assert views.lingers.wait(60)
        other = pool.submit(executor.process, [assignment(2, [row("c")], [row("d")])])
        wait_until(lambda: waits(executor, 2), "a batch that waits")

        executor.cancel(TransactionAttempt(2, 0))
        (failed,) = other.result(90)
        release.set()
        (processed,) = one.result(90)

    assert isinstance(failed, Failed) and failed.failure.message == "cancelled"
    assert names_of(processed) == ["a", "b"]
