"""Which row it was: bisection over real jobs with and without a reusable plan, and rejected rows on their way through
the reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.kit.fix_spark import executors_on, frame_jobs
from tests.kit.list_spout import ListSpout, assignment, row
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.plan import Metadata
from txtopo.core.values import Failed, Failure, Processed, RejectedRow, TransactionAttempt
from txtopo.spark import jobs as jobs_module
from txtopo.spark.executor import SparkExecutor
from txtopo.spark.frames.frame_jobs import FrameJobs
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Position, Tally, Topology
from txtopo.topology.spark_types import RowsPromise

if TYPE_CHECKING:
    import pyarrow as pa

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:Cannot infer the eval type:UserWarning")]


class PlacedSpout(ListSpout):
    """Knows the positions of its tuples; a row that is the text `reject` is a record that does not parse, `rejects N`
    are N of them.
    """

    rejected_max = 0.5

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        rows = [values for values in part["rows"] if values != "reject"]
        lines = [at for at, values in enumerate(part["rows"], 2) if values == "reject"]
        path = f"/data/{part['rows'][0][0] if rows else 'none'}.csv"
        tally.rejects += [
            RejectedRow(path=path, line=line, reason="not a number", raw=b"x", raw_bytes=1) for line in lines
        ]
        tally.read += len(lines)
        for at in range(0, len(rows), 3):  # several record batches: a range may begin and end within one
            yield from super().emit_part(metadata, {"rows": rows[at : at + 3]}, tally)

    def locate(self, metadata: Metadata, part: Mapping[str, Any], number: int) -> Position | None:
        lines = [at for at, values in enumerate(part["rows"], 2) if values != "reject"]
        index = metadata["parts"].index(part["rows"])
        return Position(position=f"/data/{index}.csv:{lines[number]}", raw=f"raw {part['rows'][lines[number] - 2]}")


def topology(bolt: Any, rows: RowsPromise = "any") -> Topology:
    """From placed rows through bolts to counts by name."""
    builder = TopologyBuilder("placed")
    builder.set_spout("source", PlacedSpout())
    builder.set_bolt("bolt1", bolt, inputs="source", fields="name string, amount int", rows=rows)
    committer = CountCommitter("counts", ["name"], count="n", sums={"amount": "sum_amount"})
    builder.set_committer_bolt("counter", committer).fields_grouping("bolt1", ["name"])
    return builder.build()


def check_amount(amount: int) -> int:
    if amount < 0:
        raise ValueError(f"no such amount: {amount}")
    return amount


RAISES = f"{__file__}:{check_amount.__code__.co_firstlineno + 2}: ValueError: no such amount: "


def with_udf(frame: DataFrame) -> DataFrame:
    return frame.select("name", F.udf(check_amount, "int")("amount").alias("amount"))


def with_division(frame: DataFrame) -> DataFrame:
    return frame.select("name", (F.lit(10) / (F.col("amount") + 7)).cast("int").alias("amount"))


@pytest.fixture
def started(spark_session: SparkSession) -> Iterator[Callable[[Topology], SparkExecutor]]:
    with executors_on(spark_session, b"code") as make:
        yield make


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Grows with every run of the plan; None stands for the attempt itself, names for those of a search."""
    names: list[str | None] = []
    results = FrameJobs.results

    def noting(self: FrameJobs, *args: Any, name: str | None = None, **options: Any) -> Any:
        names.append(name)
        return results(self, *args, name=name, **options)

    monkeypatch.setattr(FrameJobs, "results", noting)
    return names


def failure(executor: SparkExecutor, *parts: Any, txid: int = 1, attempt: int = 0) -> Failure:
    (outcome,) = executor.process([assignment(txid, *parts, attempt=attempt)])
    assert isinstance(outcome, Failed), outcome
    assert len(executor._reports) == 0, "reports of a search are not kept"
    return outcome.failure


def good(count: int, name: str = "a") -> list[Any]:
    return [row(name, number + 1) for number in range(count)]


@pytest.mark.parametrize(
    ("bolt", "cause", "is_reusable", "parts_before"),
    [(with_division, "[DIVIDE_BY_ZERO]", True, 0), (with_udf, f"{RAISES}-7", False, 2)],
    ids=["one plan for all runs", "a plan for each run, several parts"],
)
def test_the_bad_row_of_a_dataframe_bolt_is_named(
    started: Callable[[Topology], SparkExecutor],
    runs: list[str | None],
    bolt: Any,
    cause: str,
    is_reusable: bool,
    parts_before: int,
) -> None:
    """Component, the user's own line, file and line of the record, the values that the topology reads; at most
    2*log2(n)+2 runs.
    """
    executor = started(topology(bolt))
    assert (frame_jobs(executor).reusable is not None) is is_reusable
    before = [good(5, "x")] * parts_before
    bad = [*good(4), "reject", *good(3), row("AA", -7, big=99), *good(9)]

    found = failure(executor, *before, bad)

    assert (found.kind, found.component) == ("data", "bolt1")
    assert found.position == f"/data/{parts_before}.csv:10"
    assert found.message.startswith(f"{__file__}:") and cause in found.message
    assert found.message.endswith(f"; on /data/{parts_before}.csv:10: name='AA', amount=-7")
    assert found.detail is not None and found.detail.endswith("record: raw ['AA', -7, 99, '0']")
    tuples = 17 + 5 * parts_before
    assert 2 < len(runs) - 1 <= 2 * math.log2(tuples) + 2
    (outcome,) = executor.process([assignment(1, good(4), attempt=1)])
    assert isinstance(outcome, Processed) and outcome.read == 4


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            "split('abc', if(amount < 0, '(', 'b'))[0]",
            "java.util.regex.PatternSyntaxException: Unclosed group near index 1",
        ),
        (
            "if('abc' rlike translate(name, 'A', '('), name, '')",
            "java.util.regex.PatternSyntaxException: Unclosed group near index 2",
        ),
        (
            "format_string(if(amount < 0, '%s %s', '%s'), name)",
            "java.util.MissingFormatArgumentException: Format specifier '%s'",
        ),
        ("cast(size(sequence(1, 2, if(amount < 0, -1, 1))) as string)", "Illegal sequence boundaries: 1 to 2 by -1"),
    ],
)
def test_what_java_raises_over_a_value_names_its_row_too(
    started: Callable[[Topology], SparkExecutor], made: str, told: str
) -> None:
    """Not all of Spark's functions raise errors of Spark's own."""
    executor = started(topology(lambda frame: frame.selectExpr(f"{made} name", "amount")))

    found = failure(executor, [*good(3), row("AA", -7), *good(2)])

    assert (found.kind, found.component, found.position) == ("data", "bolt1", "/data/0.csv:5"), found.message
    assert told in found.message
    assert "awaitResult" not in found.message


@pytest.mark.parametrize(
    ("kind", "made", "told"),
    [
        (
            "string",
            "cast(unhex(if(amount < 0, 'C3', '61')) as string)",
            r"b'\xc3' is no UTF-8 (unexpected end of data)",
        ),
        ("date", "date_add(date'9999-12-31', if(amount < 0, 1, 0))", "10000-01-01 is not between the years 1 and 9999"),
    ],
)
def test_a_key_that_python_cannot_read_is_a_failure_of_its_row(
    started: Callable[[Topology], SparkExecutor], kind: str, made: str, told: str
) -> None:
    """Promise: what the driver cannot read fails its batch, with committer, column and row, and never ends the driver."""  # noqa: E501
    builder = TopologyBuilder("unreadable")
    builder.set_spout("source", PlacedSpout())
    builder.set_bolt("bolt1", lambda d: d.selectExpr(f"{made} key"), inputs="source", fields=f"key {kind}")
    builder.set_committer_bolt("counter", CountCommitter("counts", ["key"])).fields_grouping("bolt1", ["key"])

    found = failure(started(builder.build()), [*good(4), row("AA", -7), *good(2)])

    assert (found.kind, found.component, found.position) == ("data", "counter", "/data/0.csv:6")
    assert found.message == f"committer counter: column key: {told}; on /data/0.csv:6: amount=-7"


def test_an_error_of_sparks_own_names_the_row_too(started: Callable[[Topology], SparkExecutor]) -> None:
    """ANSI: a division by zero, here with one plan for all runs. The first of several bad rows is named."""
    found = failure(started(topology(with_division)), good(6), [*good(2), row("B\nB", -7), *good(2), row("c", -7)])

    assert found.message.startswith(f"{__file__}:")
    assert "[DIVIDE_BY_ZERO]" in found.message
    assert found.message.endswith("on /data/1.csv:4: name='B\\nB', amount=-7")
    assert "\n" not in found.message


def test_the_next_attempt_makes_sure_of_the_same_row_with_one_run(
    started: Callable[[Topology], SparkExecutor], runs: list[str | None]
) -> None:
    executor = started(topology(with_division))
    bad = [*good(4), row("AA", -7), *good(3)]
    first = failure(executor, bad)
    runs.clear()

    second = failure(executor, bad, attempt=1)
    again = len(runs) - 1
    other = failure(executor, [row("BB", -7), *good(1)], attempt=2)

    assert (first.message, first.position) == (second.message, second.position)
    assert again == 1
    assert other.position == "/data/0.csv:2", "another plan under the same txid is searched anew"


def test_rows_that_fail_together_only_are_not_blamed_one_by_one(started: Callable[[Topology], SparkExecutor]) -> None:
    """Overflow of a sum in a bolt: each row is fine."""

    def total(frame: DataFrame) -> DataFrame:
        # An int sum is a bigint; back to int it overflows.
        return frame.groupBy("name").agg(F.sum("amount").cast("int").alias("amount"))

    found = failure(started(topology(total)), [*good(5), row("a", 2**31 - 2), *good(3)])

    assert (found.kind, found.component, found.position) == ("data", "bolt1", None)
    assert found.message.endswith("; no single row does it, only several together")


def test_a_bolt_that_fails_on_nothing_blames_no_row(started: Callable[[Topology], SparkExecutor]) -> None:
    def broken(frame: DataFrame) -> DataFrame:
        made = frame.agg(F.count("*").alias("c"))
        return made.select(F.lit("a").alias("name"), F.assert_true(F.col("c") > 99).cast("int").alias("amount"))

    found = failure(started(topology(broken)), good(4))

    assert found.kind == "data" and found.position is None
    assert found.message.endswith("; it fails without any row of source too")


def test_a_search_ends_when_the_attempt_is_cancelled(
    started: Callable[[Topology], SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelling reaches the runs of a search, which carry the attempt's tag, and no further one starts; the next batch
    works.
    """
    executor = started(topology(with_division))
    results, names = FrameJobs.results, []

    def cancelling(self: FrameJobs, *args: Any, name: str | None = None, **options: Any) -> Any:
        names.append(name)
        if len(names) == 3:
            executor.cancel(TransactionAttempt(1, 0))
        return results(self, *args, name=name, **options)

    monkeypatch.setattr(FrameJobs, "results", cancelling)

    found = failure(executor, [*good(20), row("AA", -7), *good(11)])

    assert (found.kind, found.message) == ("infrastructure", "cancelled")
    assert len(names) == 3
    (outcome,) = executor.process([assignment(2, good(4))])
    assert isinstance(outcome, Processed)


def test_progress_goes_on_growing_while_a_row_is_searched(
    started: Callable[[Topology], SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timeouts go by progress: a search of many runs is no silence."""
    executor = started(topology(with_division))
    results, seen = FrameJobs.results, []

    def noting(self: FrameJobs, *args: Any, **options: Any) -> Any:
        seen.append(executor.progress(TransactionAttempt(1, 0)))
        return results(self, *args, **options)

    monkeypatch.setattr(FrameJobs, "results", noting)

    failure(executor, [*good(4), row("AA", -7), *good(3)])

    assert seen == sorted(seen) and seen[-1] > seen[0]


def test_a_search_that_meets_other_trouble_leaves_the_failure_as_it_was(
    started: Callable[[Topology], SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = started(topology(with_division))
    results = FrameJobs.results

    def losing(self: FrameJobs, *args: Any, name: str | None = None, **options: Any) -> Any:
        if name is not None:
            raise OSError("No space left on device")
        return results(self, *args, name=name, **options)

    monkeypatch.setattr(FrameJobs, "results", losing)

    found = failure(executor, [*good(3), row("AA", -7)])

    assert found.kind == "data" and found.position is None
    assert "[DIVIDE_BY_ZERO]" in found.message and "; the row was not found: " in found.message


def test_an_order_within_the_plan_is_searched_too(
    started: Callable[[Topology], SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders that are too large for a property travel in the plan, which is then made for every run."""
    executor = started(topology(with_division))
    monkeypatch.setattr(jobs_module, "ORDER_BYTES_MAX", 10)

    assert failure(executor, [*good(3), row("AA", -7), *good(3)]).position == "/data/0.csv:5"


def one_column(frame: DataFrame) -> DataFrame:
    return frame.select("name", F.lit(1).alias("amount"))


def test_rejected_rows_come_with_the_batch_by_part_and_in_their_order(
    started: Callable[[Topology], SparkExecutor],
) -> None:
    """Which rows are rejected does not depend on the bolts behind; here one reads a single column. Two committers read
    each part twice: no row comes twice.
    """
    builder = TopologyBuilder("fan")
    builder.set_spout("source", PlacedSpout())
    builder.set_bolt("narrow", one_column, inputs="source", fields="name string, amount int", rows="same")
    for name, source in (("first", "narrow"), ("second", "source")):
        committer = CountCommitter(name, ["name"], count="n")
        builder.set_committer_bolt(name, committer).fields_grouping(source, ["name"])
    executor = started(builder.build())

    (outcome,) = executor.process(
        [assignment(1, [*good(2, "b"), "reject", *good(2), "reject"], good(3, "c"), [row("a"), "reject"])]
    )

    assert isinstance(outcome, Processed), outcome
    places = [(found.spout, found.path, found.line) for found in outcome.rejected_rows]
    assert places == [("source", "/data/b.csv", 4), ("source", "/data/b.csv", 7), ("source", "/data/a.csv", 3)]
    assert (outcome.read, outcome.rejected) == (11, 3)
    assert [result.arrived for result in outcome.results] == [8, 8]
    assert [(edge.sent, edge.received) for edge in outcome.edges] == [(8, 8)]


def test_too_many_rejected_rows_of_the_whole_batch_fail_it(started: Callable[[Topology], SparkExecutor]) -> None:
    """The share is one of the batch, not of a part: here all of one part is too much for it alone."""
    executor = started(topology(one_column, rows="same"))

    (kept,) = executor.process([assignment(1, [row("a"), "reject", "reject", "reject"], good(4))])
    found = failure(executor, [row("a"), "reject", "reject", "reject"], [*good(1), "reject"], txid=2)

    assert isinstance(kept, Processed) and kept.rejected == 3
    assert (found.kind, found.component, found.position) == ("data", "source", "/data/a.csv:3")
    assert "4 of 6 records rejected" in found.message
