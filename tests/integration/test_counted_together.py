"""Committers that read one stream are counted by one job, on a real local session: the results are those of a job for
each, and so are the failures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.kit.fix_spark import executors_on
from tests.kit.list_spout import FIELDS, ListSpout, assignment, row
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.plan import Metadata
from txtopo.core.values import Failed, Outcome, Processed, RejectedRow
from txtopo.spark.executor import SparkExecutor
from txtopo.spark.frames import aggregate
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Tally, Topology

pytestmark = pytest.mark.spark
HUGE = "9" * 35
"""Ten times this fits 38 digits, of which 2 are decimals; twelve times does not."""
COMMITTERS: dict[str, tuple[list[str], dict[str, str]]] = {
    "names": (["name"], {"amount": "amount_sum", "big": "big_sum"}),
    "amounts": (["amount", "name"], {}),
    "bigs": (["big"], {"amount": "amount_sum", "price": "price_sum"}),
}
ROWS = [
    [row("a", 1, 2**40), row(None, 2, None), row("", None, 2**40), row("a", 1, None)],
    [],
    [row("a", None, None)] * 3,
]


class Rejecting(ListSpout):
    """Rejects one record of each part."""

    rejected_max = 1.0

    def emit_part(self, metadata: Metadata, part: Any, tally: Tally) -> Iterator[pa.RecordBatch]:
        tally.read += 1
        tally.rejects.append(RejectedRow(path="a.csv", line=2, reason="no number", raw=b"x", raw_bytes=1))
        yield from super().emit_part(metadata, part, tally)


def same(frame: DataFrame) -> DataFrame:
    return frame.select("*")


def topology(*names: str, bolt: str | None = None, spout: type[ListSpout] = Rejecting) -> Topology:
    """These committers downstream of the spout itself, of one bolt for all of them, or of one bolt for each."""
    builder = TopologyBuilder("together")
    builder.set_spout("source", spout())
    for name in names:
        keys, sums = COMMITTERS[name]
        stream = {None: "source", "one": "passed", "each": f"passed_{name}"}[bolt]
        if stream != "source" and (bolt == "each" or name == names[0]):
            builder.set_bolt(stream, same, inputs="source", fields=FIELDS, rows="same")
        builder.set_committer_bolt(name, CountCommitter(name, keys, count="n", sums=sums), stream)
    return builder.build()


@pytest.fixture(scope="module")
def started(spark_session: SparkSession) -> Iterator[Callable[[Topology], SparkExecutor]]:
    with executors_on(spark_session) as make:
        yield make


class Jobs:
    """Counts Spark jobs, and reports of parts that were read."""

    def __init__(self, executor: SparkExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
        self._scheduler: Any = executor.spark.sparkContext._jsc.sc().dagScheduler()
        self._read = 0
        receive = executor._reports.receive

        def counting(reports: Sequence[Any]) -> None:
            self._read += sum(hasattr(report, "part") for report in reports)
            receive(reports)

        monkeypatch.setattr(executor._reports, "receive", counting)
        self._before = self._now()

    def _now(self) -> tuple[int, int]:
        return int(self._scheduler.numTotalJobs()), self._read

    def since(self) -> tuple[int, int]:
        """Jobs and parts read since the last call."""
        before, self._before = self._before, self._now()
        return self._before[0] - before[0], self._before[1] - before[1]


def proven(executor: SparkExecutor) -> SparkExecutor:
    processed(executor.process([assignment(901, []), assignment(902, [])]))
    return executor


def processed(outcomes: Sequence[Outcome]) -> list[Processed]:
    assert all(isinstance(outcome, Processed) for outcome in outcomes), outcomes
    return [outcome for outcome in outcomes if isinstance(outcome, Processed)]


def test_several_committers_of_a_stream_read_it_once_and_count_as_each_alone(
    started: Callable[[Topology], SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: one job for each stream that committers read, for a batch and for a wave, whose parts are read once;
    keys of different types and number, NULL among them; an empty batch; rejected records are counted once.
    """
    wave = [assignment(txid, rows) for txid, rows in enumerate(ROWS, 1)]
    found: dict[str | None, list[Processed]] = {}
    for bolt, jobs in (("each", len(COMMITTERS)), ("one", 1), (None, 1)):
        executor = proven(started(topology(*COMMITTERS, bolt=bolt)))
        counter = Jobs(executor, monkeypatch)
        found[bolt] = processed(executor.process(wave))
        assert counter.since() == (jobs, len(wave) * jobs), "jobs and reads of the wave"
        found[bolt] += processed(executor.process([assignment(9, *ROWS)]))
        assert counter.since() == (jobs, len(ROWS) * jobs), "jobs and reads of a batch of several parts"

    for bolt in ("one", None):
        for one, other in zip(found[bolt], found["each"], strict=True):
            assert (one.read, one.rejected, one.rejected_rows) == (other.read, other.rejected, other.rejected_rows)
            assert [edge.received for edge in one.edges] == ([] if bolt else [one.read - one.rejected] * 3)
            for name, mine, theirs in zip(COMMITTERS, one.results, other.results, strict=True):
                assert (mine.committer, mine.arrived, mine.row_count) == (name, theirs.arrived, theirs.row_count)
                assert mine.rows.equals(theirs.rows) and mine.rows.schema.equals(theirs.rows.schema)
                assert mine.arrived == one.read - one.rejected == sum(mine.rows.column("n").to_pylist())


@pytest.mark.parametrize("bolt", [None, "one"])
def test_a_row_that_is_lost_for_one_of_them_alone_is_missed(
    started: Callable[[Topology], SparkExecutor], monkeypatch: pytest.MonkeyPatch, bolt: str | None
) -> None:
    """Promise: what arrived is counted apart from the groups, for each committer: by the tasks of the spout, or by
    numbers that rows have before they are repeated for each committer.
    """
    repeated = aggregate._repeated

    def losing(rows: DataFrame, slots: Any) -> DataFrame:
        found = repeated(rows, slots)
        return found.where(~((F.col("$committer") == 1) & F.col("_k0").eqNullSafe(F.lit("b"))))

    monkeypatch.setattr(aggregate, "_repeated", losing)
    executor = started(topology("names", "amounts", bolt=bolt, spout=ListSpout))

    (outcome,) = executor.process([assignment(1, [row("a"), row("b"), row("a")])])

    if bolt is None:
        assert isinstance(outcome, Failed)
        assert "3 tuples left spout source and 2 arrived at committer amounts" in outcome.failure.message
    else:
        # The commit compares both numbers.
        assert isinstance(outcome, Processed)
        counted = [sum(result.rows.column("n").to_pylist()) for result in outcome.results]
        assert [one.arrived for one in outcome.results] == [3, 3] and counted == [3, 2]


def sums_of(*keys: list[str], fields: Sequence[str] = ("price",)) -> Topology:
    builder = TopologyBuilder("sums")
    builder.set_spout("source", ListSpout())
    for at, own in enumerate(keys):
        sums = {field: f"sum_{field}" for field in fields} if own != ["amount"] else {}
        builder.set_committer_bolt(f"c{at}", CountCommitter(f"t{at}", own, count="n", sums=sums), "source")
    return builder.build()


def test_a_sum_that_overflows_is_the_failure_of_its_committer_alone(
    started: Callable[[Topology], SparkExecutor],
) -> None:
    """Promise: a failure is named with the committer that it belongs to; a committer that does not sum a field does not
    fail for it, however few groups it has; the other batches of the wave are processed.
    """
    rows = [row(name, 1, 0, HUGE) for name in ("a", "b") for _ in range(6)]
    fitting = started(sums_of(["name"], ["amount"]))
    (outcome,) = fitting.process([assignment(1, rows)])
    assert isinstance(outcome, Processed), "the sums of 12 such rows would not fit, and nobody asked for them"

    executor = proven(started(sums_of(["name"], ["amount"], ["big"])))
    good, bad = [assignment(txid, [row("a", 1, 0, HUGE)]) for txid in (1, 2, 4)], assignment(3, rows)
    first, second, failed, last = executor.process([*good[:2], bad, good[2]])

    assert [type(one) for one in (first, second, last)] == [Processed] * 3
    assert isinstance(failed, Failed)
    assert (failed.failure.kind, failed.failure.component) == ("data", "c2")


def test_results_that_are_too_large_together_alone_are_not_are_fetched_one_after_the_other(
    started: Callable[[Topology], SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: that committers share a job makes no batch fail that would not fail otherwise."""
    executor = started(sums_of(["name"], ["name", "big"], fields=()))
    rows = [row(f"name {at * 7919:x}", 1, at) for at in range(2000)]
    configuration: Any = executor.spark.sparkContext._jsc.sc().conf()
    counter = Jobs(executor, monkeypatch)
    before = configuration.get("spark.driver.maxResultSize")
    try:
        configuration.set("spark.driver.maxResultSize", "120k")
        (outcome,) = executor.process([assignment(1, rows)])
    finally:
        configuration.set("spark.driver.maxResultSize", before)

    assert isinstance(outcome, Processed), outcome
    assert [result.row_count for result in outcome.results] == [2000, 2000]
    assert counter.since()[0] == 3, "together, then each alone"
