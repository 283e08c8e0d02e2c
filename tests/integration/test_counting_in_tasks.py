"""Tuples that are counted in the tasks of their spout, on a real local session: the results are those of tuples that
Spark counts one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.kit.fix_spark import executors_on, frame_jobs
from tests.kit.nasty_values import FIELDS, KEYS, NastySpout, near_twins
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.fields import parse_fields
from txtopo.core.plan import Metadata
from txtopo.core.values import Failed, Outcome, Processed, TransactionAttempt
from txtopo.ports import Assignment
from txtopo.spark.executor import SparkExecutor
from txtopo.spark.frames import frame_plan
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Tally, Topology

pytestmark = pytest.mark.spark
ALL_KEYS = parse_fields(KEYS).names
SUMS = {name: f"sum_{name[2:]}" for name in ("s_int", "s_big", "s_decimal")}
Start = Callable[..., SparkExecutor]


@pytest.fixture
def started(spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    with executors_on(spark_session) as make:

        def start(topology: Topology, *, in_tasks: bool) -> SparkExecutor:
            with pytest.MonkeyPatch.context() as patch:
                if not in_tasks:
                    patch.setattr(frame_plan, "counted_in_spout", lambda topology, spout: "")
                return make(topology)

        yield start


def nasty_topology(spout: type[NastySpout] = NastySpout) -> Topology:
    builder = TopologyBuilder("nasty")
    builder.set_spout("source", spout(FIELDS))
    builder.set_committer_bolt("counter", CountCommitter("counts", ALL_KEYS, count="n", sums=SUMS), "source")
    return builder.build()


def batch_of(txid: int, *rows: int) -> Assignment:
    """A batch with parts of so many rows."""
    parts = [{"rows": count, "seed": 100 * txid + at} for at, count in enumerate(rows)]
    return Assignment(attempt=TransactionAttempt(txid, 0), metadata={"source": {"parts": parts}})


def processed(outcomes: Sequence[Outcome]) -> list[Processed]:
    assert all(isinstance(outcome, Processed) for outcome in outcomes), outcomes
    return [outcome for outcome in outcomes if isinstance(outcome, Processed)]


def test_any_values_give_the_same_results_as_tuples_that_are_counted_one_by_one(started: Start) -> None:
    """Promise: keys of every type, NULL, empty, with blanks, composed or not, in other zones, at the ends of their
    range; sums of every type; of a spout and of a DataFrame; in one part, in several, in waves: results, arrived and
    edges are equal to the bit.
    """
    wave = [batch_of(1, 2000), batch_of(2, 1500, 0, 10, 300)]
    grouping, plain = started(nasty_topology(), in_tasks=True), started(nasty_topology(), in_tasks=False)
    for executor, in_tasks in ((grouping, True), (plain, False)):
        plan = frame_jobs(executor).reusable
        assert plan is not None
        assert ["$n" in leaf.columns for leaf in plan.compiled.leaves] == [in_tasks]

    # A first wave is run batch by batch, too, and compared by the executor.
    found, expected = processed(grouping.process(wave)), processed(plain.process(wave))
    frame = processed(started(nasty_topology(NastyFrames), in_tasks=True).process(wave[:1]))

    assert grouping.one_by_one is None
    for mine, theirs in zip([*found, *frame], [*expected, expected[0]], strict=True):
        assert (mine.read, mine.edges) == (theirs.read, theirs.edges)
        (one,), (other,) = mine.results, theirs.results
        assert one.rows.equals(other.rows)
        assert one.arrived == other.arrived == mine.read
        assert 50 < one.row_count < 200


class NastyFrames(NastySpout):
    """Gives the same rows as a DataFrame of several partitions."""

    emits_frame = True

    def frame(self, spark: Any, metadata: Metadata) -> Any:
        (part,) = metadata["parts"]
        rows = near_twins(self.ddl, part["rows"], part["seed"])
        return spark.createDataFrame(pa.Table.from_batches([rows])).repartition(2)


class Miscounting(NastySpout):
    """Says that it read one record more than it emits, or one less."""

    def emit_part(self, metadata: Metadata, part: Any, tally: Tally) -> Iterator[pa.RecordBatch]:
        yield from super().emit_part(metadata, part, tally)
        tally.read += part["seed"]


@pytest.mark.parametrize("wrong", [1, -1])
def test_groups_that_do_not_add_up_to_what_the_tasks_read_fail_the_batch(started: Start, wrong: int) -> None:
    """Promise: what arrived has a source of its own. The tuples that a spout reports are compared with the groups."""
    builder = TopologyBuilder("miscounting")
    builder.set_spout("source", Miscounting("k_int int"))
    builder.set_committer_bolt("counter", CountCommitter("counts", ["k_int"]), "source")
    part = {"rows": 500, "seed": wrong}

    (outcome,) = started(builder.build(), in_tasks=True).process(
        [Assignment(attempt=TransactionAttempt(1, 0), metadata={"source": {"parts": [part]}})]
    )

    assert isinstance(outcome, Failed)
    assert outcome.failure.message == (
        f"{500 + wrong} tuples left spout source and 500 arrived at committer counter; as many were expected"
    )
