"""Actions that a function over DataFrames runs while it is called, on a real local session: at the start over no rows,
then over its batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.contracts.executor_contract import CODE_HASH
from tests.kit.fix_spark import executors_on
from tests.kit.list_spout import FIELDS, ListSpout, assignment, list_topology, row
from tests.kit.tuple_topologies import Keep
from txtopo.core.values import Failed, Processed
from txtopo.errors import BatchDataError
from txtopo.spark import jobs as jobs_module
from txtopo.spark.executor import SparkExecutor
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology

pytestmark = pytest.mark.spark

NO_BATCH = "a job of no batch: a bolt ran an action in a separate thread; start it with pyspark.InheritableThread"


@pytest.fixture
def started(spark_session: SparkSession) -> Iterator[Callable[[Topology], SparkExecutor]]:
    with executors_on(spark_session) as make:
        yield make


def count_in_a_thread(frame: DataFrame) -> DataFrame:
    with ThreadPoolExecutor(1) as pool:
        return frame.withColumn("amount", F.lit(pool.submit(frame.count).result()).cast("int"))


def count_in_an_inheritable_thread(frame: DataFrame) -> DataFrame:
    counts: list[int] = []
    thread = InheritableThread(target=lambda: counts.append(frame.count()))
    thread.start()
    thread.join()
    return frame.withColumn("amount", F.lit(counts[0]).cast("int"))


def in_front_of_tuples(bolt: Callable[[DataFrame], DataFrame]) -> Topology:
    builder = TopologyBuilder("tuples")
    builder.set_spout("source", ListSpout())
    builder.set_bolt("bolt1", bolt, inputs="source", fields=FIELDS)
    builder.set_committer_bolt("kept", Keep()).shuffle_grouping("bolt1")
    return builder.build()


@pytest.mark.parametrize("topology_of", [list_topology, in_front_of_tuples])
def test_an_action_in_a_thread_of_the_bolts_own_is_refused_at_the_start(
    spark_session: SparkSession, topology_of: Callable[[Callable[[DataFrame], DataFrame]], Topology]
) -> None:
    """It carries no batch, and must not pass for one over an empty batch."""
    executor = SparkExecutor(topology_of(count_in_a_thread), CODE_HASH, session=spark_session)

    with pytest.raises(BatchDataError) as caught:
        executor.start()

    assert NO_BATCH in str(caught.value) and caught.value.component == "bolt1"


@pytest.mark.parametrize("order_bytes_max", [10**6, 10], ids=["with the job", "inside the plan"])
def test_an_action_in_a_thread_of_the_bolts_own_fails_its_batch(
    started: Callable[[Topology], SparkExecutor], monkeypatch: pytest.MonkeyPatch, order_bytes_max: int
) -> None:
    """Also where only some calls do it, and wherever the order of the batch travels."""
    monkeypatch.setattr(jobs_module, "ORDER_BYTES_MAX", order_bytes_max)
    armed = threading.Event()

    def bolt1(frame: DataFrame) -> DataFrame:
        return count_in_a_thread(frame) if armed.is_set() else count_in_an_inheritable_thread(frame)

    executor = started(list_topology(bolt1))
    armed.set()

    (failed,) = executor.process([assignment(1, [row("a"), row("b")])])

    assert isinstance(failed, Failed)
    assert NO_BATCH in failed.failure.message
    assert (failed.failure.kind, failed.failure.component) == ("data", "bolt1")


def test_an_action_in_a_thread_that_inherits_sees_its_batch(started: Callable[[Topology], SparkExecutor]) -> None:
    executor = started(list_topology(count_in_an_inheritable_thread))

    (outcome,) = executor.process([assignment(1, [row("a"), row("b"), row("b")])])

    assert isinstance(outcome, Processed)
    assert [found["sum_amount"] for found in outcome.results[0].rows.to_pylist()] == [3, 6]
    assert executor.spark.sparkContext.getLocalProperty("txtopo.order") is None


@pytest.mark.parametrize("topology_of", [list_topology, in_front_of_tuples])
def test_a_bolt_that_cannot_be_called_over_no_rows_is_told_so(
    spark_session: SparkSession, topology_of: Callable[[Callable[[DataFrame], DataFrame]], Topology]
) -> None:
    """At the start bolts are called over no rows, where `first()` is None: the message says that, not only what it led
    to.
    """

    def bolt1(frame: DataFrame) -> DataFrame:
        first = frame.first()
        return frame.withColumn("name", F.lit(first["name"]))  # type: ignore[index]

    executor = SparkExecutor(topology_of(bolt1), CODE_HASH, session=spark_session)

    with pytest.raises(BatchDataError) as caught:
        executor.start()

    assert "'NoneType' object is not subscriptable (at the start bolts are called over no rows)" in str(caught.value)
    assert caught.value.component == "bolt1"
