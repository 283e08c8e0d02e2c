"""The Spark executor on a real local session: the executor contract, exact sums, whose failure it is, cancelling,
retried tasks.
"""

from __future__ import annotations

import itertools
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.contracts.executor_contract import CODE_HASH, ExecutorContract, plan_batches
from tests.kit.drivers import wait_until
from tests.kit.fix_spark import executors_on, frame_jobs
from tests.kit.list_spout import FIELDS, ListSpout, assignment, list_topology, row
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.values import Failed, Failure, Outcome, Processed, TransactionAttempt
from txtopo.errors import BatchDataError, ConfigurationError, DriverFull, TopologyError
from txtopo.ports import Assignment, Executor
from txtopo.spark import jobs as jobs_module
from txtopo.spark.executor import SparkExecutor
from txtopo.spark.frames import frame_jobs as frame_jobs_module
from txtopo.spark.session.ship_modules import package_version
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology
from txtopo.topology.spark_types import RowsPromise

pytestmark = pytest.mark.spark


@pytest.fixture
def started(spark_session: SparkSession) -> Iterator[Callable[..., SparkExecutor]]:
    """Makes started executors on the shared session, closed at the end."""
    with executors_on(spark_session) as make:
        yield make


class TestSparkExecutor(ExecutorContract):
    """The contract, from spout to committer."""

    @pytest.fixture(autouse=True)
    def _session(self, spark_session: SparkSession) -> Iterator[None]:
        self.spark = spark_session
        self.made: list[Executor] = []
        yield
        for executor in self.made:
            executor.close()

    def make_executor(self, topology: Topology) -> Executor:
        self.made.append(SparkExecutor(topology, CODE_HASH, session=self.spark))
        return self.made[-1]

    def test_spark_and_the_process_itself_give_equal_tables(self, tmp_path: Path) -> None:
        """The in-process executor stands in for Spark: same rows, same types, same order, same counts."""
        for number in range(3):
            lines = [f"shop{at % 5},2024-01-{at % 9 + 1:02},{at}.5,{at}" for at in range(100 + number)]
            lines += [",,,", ",,,many", "too,few"]
            (tmp_path / f"{number}.csv").write_text("shop,day,price,amount\n" + "\n".join(lines) + "\n")
        topology = self.topology(tmp_path)
        wave = [
            Assignment(attempt=TransactionAttempt(txid, 0), metadata=found)
            for txid, found in enumerate(plan_batches(topology), 1)
        ]
        spark = self.make_executor(topology)
        spark.start()

        pairs = list(zip(spark.process(wave), InProcessExecutor(topology, CODE_HASH).process(wave), strict=True))

        assert len(pairs) == 3
        for ours, theirs in pairs:
            assert isinstance(ours, Processed) and isinstance(theirs, Processed)
            assert ours.results[0].rows.equals(theirs.results[0].rows)
            assert (ours.read, ours.rejected, ours.edges) == (theirs.read, theirs.rejected, theirs.edges)
            assert len(ours.rejected_rows) == 2 and ours.rejected_rows == theirs.rejected_rows


def only(outcomes: Sequence[Outcome]) -> Outcome:
    (outcome,) = outcomes
    return outcome


def failure(outcomes: Sequence[Outcome]) -> Failure:
    outcome = only(outcomes)
    assert isinstance(outcome, Failed), outcome
    return outcome.failure


def rows_of(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    outcome = only(outcomes)
    assert isinstance(outcome, Processed), outcome
    rows: list[dict[str, Any]] = outcome.results[0].rows.to_pylist()
    return rows


def test_a_worker_that_a_spout_filled_fails_no_batch_and_a_full_driver_judges_none(
    started: Callable[..., SparkExecutor], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A task is tried again in a fresh worker. Where the driver has no memory for results it ends, and is no failure of
    the batch.
    """
    executor = started(list_topology(lambda frame: frame))
    txids = itertools.count(1)
    while not (tmp_path / "full").exists():  # Spark has several workers, and takes another one each time
        assert rows_of(executor.process([assignment(next(txids), [f"leak {tmp_path}", row("a")])]))

    def full(_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(jobs_module, "collect_batches", full)
    monkeypatch.setattr(frame_jobs_module, "collect_batches", full)
    with pytest.raises(DriverFull, match="this driver is out of memory"):
        executor.process([assignment(next(txids), [row("a")])])
    with pytest.raises(DriverFull):
        executor.try_over_nothing()


def test_many_batches_at_once_on_one_plan_keep_their_own_rows(started: Callable[..., SparkExecutor]) -> None:
    """One plan serves all batches of one part; K threads at once must not see each other's."""
    executor = started(list_topology(lambda frame: frame.filter("amount >= 0"), rows="same"))
    reusable = frame_jobs(executor).reusable
    assert reusable is not None
    assert reusable.needed == {"source": ["name", "amount"]}

    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda txid: executor.process([assignment(txid, [row(f"n{txid}", txid)] * txid)]), range(1, 25))
        )

    for txid, outcomes in enumerate(found, 1):
        assert rows_of(outcomes) == [{"name": f"n{txid}", "n": txid, "sum_amount": Decimal(txid * txid)}]
    assert len(executor._reports) == 0, "reports of finished attempts are not kept"


def test_a_plan_with_an_exchange_is_never_used_twice(started: Callable[..., SparkExecutor]) -> None:
    """An exchange keeps its files: a second batch on the same plan would get the first one's rows."""
    executor = started(list_topology(lambda frame: frame.repartition(2, "name")))
    assert frame_jobs(executor).reusable is None

    found = [rows_of(executor.process([assignment(txid, [row(f"n{txid}")])])) for txid in (1, 2)]

    assert [rows[0]["name"] for rows in found] == ["n1", "n2"]


def _not_shipped() -> types.ModuleType:
    """A module that this process has and no worker."""
    module = types.ModuleType("not_shipped")
    source = """
from txtopo.bolts import BasicBolt

def same(batches):
    yield from batches

class Same(BasicBolt):
    outputs = ["name string", "amount int"]

    def execute(self, tup, collector):
        collector.emit((tup["name"], tup["amount"]))
"""
    exec(compile(source, "not_shipped.py", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("kind", ["reusable", "with an exchange", "tuples behind frames"])
def test_code_that_the_workers_lack_is_found_at_the_start_whatever_the_plan(
    started: Callable[..., SparkExecutor], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A file that was not shipped is found before any batch: else each batch would fail over it, one after the other."""  # noqa: E501
    lost = _not_shipped()
    monkeypatch.setitem(sys.modules, lost.__name__, lost)
    builder = TopologyBuilder("lists")
    builder.set_spout("lists", ListSpout())

    def bolt(frame: DataFrame) -> DataFrame:
        if kind == "tuples behind frames":
            return frame.select("name", "amount").repartition(2)
        spread = frame.repartition(2, "name") if kind == "with an exchange" else frame
        return spread.select("name", "amount").mapInArrow(lost.same, "name string, amount int")

    builder.set_bolt("bolt", bolt, inputs="lists", fields="name string, amount int")
    if kind == "tuples behind frames":
        builder.set_bolt("tuples", lost.Same()).shuffle_grouping("bolt")
    last = "tuples" if kind == "tuples behind frames" else "bolt"
    builder.set_committer_bolt("c", CountCommitter(table="t", keys=["name"], count="n")).fields_grouping(last, ["name"])

    with pytest.raises(ConfigurationError, match=r"No module named 'not_shipped'.*; name the file or zip.*--py-files"):
        started(builder.build())


@pytest.mark.parametrize(
    "bolt",
    [
        lambda frame: frame.withColumn("name", F.current_timestamp().cast("string")),
        lambda frame: frame.filter(F.col("amount") >= frame.collect()[0][1] if frame.count() else F.lit(True)),
        lambda frame: frame.crossJoin(frame.groupBy().agg(F.max("amount").alias("m"))).drop("m"),
    ],
    ids=["current time", "runs a job", "looks at all rows"],
)
def test_a_bolt_that_depends_on_more_than_its_row_is_planned_for_each_batch(
    started: Callable[..., SparkExecutor], bolt: Any
) -> None:
    executor = started(list_topology(bolt))

    assert frame_jobs(executor).reusable is None
    assert sum(found["n"] for found in rows_of(executor.process([assignment(1, [row("a", 5), row("b", 7)])]))) > 0


def test_sums_of_large_integers_are_exact_beyond_64_bits(started: Callable[..., SparkExecutor]) -> None:
    """Sums are exact: never wrapped, never NULL."""
    executor = started(list_topology(sums=("amount", "big", "price")))
    big, price = 2**63 - 1, "9" * 35 + ".99"

    rows = rows_of(
        executor.process(
            [
                assignment(
                    1,
                    [row("a", 2**31 - 1, big, price)] * 3,
                    [row("a", 2**31 - 1, big, price)] * 2,
                    [row(None, None, None, None)],
                )
            ]
        )
    )

    assert rows == [
        {
            "name": "a",
            "n": 5,
            "sum_amount": Decimal(5 * (2**31 - 1)),
            "sum_big": Decimal(5 * big),
            "sum_price": Decimal("4" + "9" * 35 + ".95"),
        },
        {"name": None, "n": 1, "sum_amount": Decimal(0), "sum_big": Decimal(0), "sum_price": Decimal("0.00")},
    ]


@pytest.mark.parametrize("parts", [1, 3])
def test_a_sum_beyond_38_digits_is_a_failure_of_the_data(started: Callable[..., SparkExecutor], parts: int) -> None:
    executor = started(list_topology(sums=("price",)))

    found = failure(executor.process([assignment(1, *[[row("a", price="9" * 36 + ".99")] * 2] * parts)]))

    assert found.kind == "data" and found.component == "counter"


def test_an_overflow_in_a_bolt_is_a_failure_of_the_data_that_names_the_users_line(
    started: Callable[..., SparkExecutor],
) -> None:
    """ANSI: an overflow is an error, never a wrapped number."""

    def overflow(frame: DataFrame) -> DataFrame:
        return frame.withColumn("amount", F.col("amount") + F.lit(2**31 - 1))

    executor = started(list_topology(overflow))

    found = failure(executor.process([assignment(1, [row("a", 5)])]))

    assert (found.kind, found.component) == ("data", "bolt1")
    assert "OVERFLOW" in found.message
    assert found.message.startswith(f"{__file__}:"), found.message


@pytest.mark.filterwarnings("ignore:Cannot infer the eval type:UserWarning")
def test_a_udf_that_raises_fails_one_attempt_with_the_users_file_and_line(
    started: Callable[..., SparkExecutor],
) -> None:
    """Whose error it is: the user's own file and line first."""

    def clean(name: str) -> str:
        if name == "bad":
            raise ValueError(f"no such name: {name}")
        return name

    line = clean.__code__.co_firstlineno + 2
    executor = started(list_topology(lambda frame: frame.withColumn("name", F.udf(clean)("name"))))

    found = failure(executor.process([assignment(1, [row("good"), row("bad")])]))

    assert (found.kind, found.component) == ("data", "bolt1")
    assert found.message.startswith(f"{__file__}:{line}: ValueError: no such name: bad; on ")
    assert found.detail is not None and "Traceback" in found.detail
    assert len(rows_of(executor.process([assignment(1, [row("good")], attempt=1)]))) == 1


def test_a_bolt_that_raises_while_it_is_built_is_named_with_file_and_line(
    started: Callable[..., SparkExecutor],
) -> None:
    def broken(frame: DataFrame) -> DataFrame:
        return frame.filter("nosuch > 1")

    with pytest.raises(BatchDataError, match=r"UNRESOLVED_COLUMN") as caught:
        started(list_topology(broken))

    assert str(caught.value).startswith(f"{__file__}:{broken.__code__.co_firstlineno + 1}: ")
    assert caught.value.component == "bolt1"


@pytest.mark.parametrize(
    ("bolt", "message"),
    [
        (
            lambda frame: frame.withColumn("amount", F.col("amount").cast("bigint")),
            "bolt bolt1 declares field amount as int, but returns bigint",
        ),
        (
            lambda frame: frame.drop("price"),
            r"bolt bolt1 declares field price decimal\(38,2\), but returns only name, amount, big",
        ),
        (lambda frame: frame.count(), "bolt bolt1 returned int, not a DataFrame"),
    ],
)
def test_fields_that_a_bolt_declares_are_compared_with_what_it_returns(
    started: Callable[..., SparkExecutor], bolt: Any, message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        started(list_topology(bolt))


@pytest.mark.parametrize(
    ("instruction", "kind", "words"),
    [
        ("bad", "data", "not a number"),
        ("value-error", "data", "ValueError: emitter bug"),
        ("os-error", "infrastructure", "disk is away"),
    ],
)
def test_an_emitter_that_fails_is_no_task_failure(
    started: Callable[..., SparkExecutor], instruction: str, kind: str, words: str
) -> None:
    """An exception in user code inside a task is not a task failure: one attempt finds the bad record."""
    executor = started(list_topology())

    found = failure(executor.process([assignment(1, [row("a")], [instruction], [row("b")])]))

    assert (found.kind, found.component) == (kind, "source")
    assert words in found.message
    if instruction == "bad":
        assert (found.position, found.detail) == ("a.csv:7", "raw")


@pytest.mark.parametrize("parts", [1, 3])
def test_a_task_that_died_and_was_tried_again_counts_once(started: Callable[..., SparkExecutor], parts: int) -> None:
    """No number in the ledger may be inflated by a retried task (K2, K4)."""
    executor = started(list_topology())

    outcome = only(executor.process([assignment(1, ["die", row("a"), row("b")], *[[row("a")]] * (parts - 1))]))

    assert isinstance(outcome, Processed), outcome
    assert outcome.read == outcome.results[0].arrived == parts + 1


def test_a_worker_that_dies_each_time_is_a_suspect(started: Callable[..., SparkExecutor]) -> None:
    """Without a verdict the attempt runs alone next time, so that a crash in native code is no endless loop."""
    executor = started(list_topology())

    assert failure(executor.process([assignment(1, ["die-always", row("a")])])).kind == "suspect"
    assert len(rows_of(executor.process([assignment(2, [row("a")])]))) == 1


def test_two_committers_read_the_same_batch_and_reports_agree(started: Callable[..., SparkExecutor]) -> None:
    builder = TopologyBuilder("fan")
    builder.set_spout("source", ListSpout())
    for name, key in (("by_name", "name"), ("by_amount", "amount")):
        builder.set_committer_bolt(name, CountCommitter(name, [key], count="n")).fields_grouping("source", [key])
    executor = started(builder.build())

    outcome = only(executor.process([assignment(1, [row("a", 1), row("b", 1), row("c", 2)])]))

    assert isinstance(outcome, Processed)
    assert [(result.committer, result.arrived, result.row_count) for result in outcome.results] == [
        ("by_name", 3, 3),
        ("by_amount", 3, 2),
    ]
    assert outcome.read == 3


def test_a_part_read_twice_with_different_outcomes_fails_the_attempt(
    started: Callable[..., SparkExecutor], tmp_path: Path
) -> None:
    """A rerun that says something else fails the attempt (docs/protocol.md)."""
    builder = TopologyBuilder("fan")
    builder.set_spout("source", ListSpout())
    for name in ("first", "second"):
        # Committers of one stream would read it once.
        builder.set_bolt(f"for_{name}", lambda frame: frame.select("*"), inputs="source", fields=FIELDS)
        builder.set_committer_bolt(name, CountCommitter(name, ["name"], count="n")).fields_grouping(
            f"for_{name}", ["name"]
        )
    executor = started(builder.build())

    found = failure(executor.process([assignment(1, [f"differ {tmp_path / 'grows'}", row("a")])]))

    assert found.kind == "data"
    assert "part 1 was read twice with different outcomes: 2 read" in found.message


def test_a_bolt_that_stops_reading_is_found_and_not_retried_for_ever(started: Callable[..., SparkExecutor]) -> None:
    executor = started(list_topology(lambda frame: frame.limit(2)))

    found = failure(executor.process([assignment(1, [row("a")] * 5)]))

    assert found.kind == "suspect"
    assert "part 1 of 1 gave no report: bolt1 does not read all of it, as limit() does" in found.message


@pytest.mark.parametrize("parts", [1, 3])
def test_what_no_committer_can_get_a_row_of_is_read_and_counted_all_the_same(
    started: Callable[..., SparkExecutor], parts: int
) -> None:
    """Spark leaves a spout out of the plan behind a filter that is never true: its records are still the batch's, and a
    bad one still fails it.
    """
    executor = started(list_topology(lambda frame: frame.where("false"), rows="fewer"))

    outcome = only(executor.process([assignment(1, *[[row("a")] * 5] * parts)]))
    bad = failure(executor.process([assignment(2, [row("a"), "bad"])]))

    assert isinstance(outcome, Processed), outcome
    assert (outcome.read, outcome.results[0].arrived, outcome.results[0].row_count) == (5 * parts, 0, 0)
    assert (bad.kind, bad.position) == ("data", "a.csv:7")


@pytest.mark.parametrize(("rows", "ok"), [("any", True), ("fewer", True), ("same", False)])
def test_a_bolt_that_promises_the_number_of_its_rows_is_held_to_it(
    started: Callable[..., SparkExecutor], rows: RowsPromise, ok: bool
) -> None:
    executor = started(list_topology(lambda frame: frame.filter("amount > 1"), rows=rows))

    outcome = only(executor.process([assignment(1, [row("a", 1), row("a", 2)])]))

    assert isinstance(outcome, Processed) is ok
    if isinstance(outcome, Failed):
        assert "2 tuples left spout source and 1 arrived at committer counter" in outcome.failure.message


def test_tasks_that_run_other_code_fail_the_attempt_naming_the_host(
    started: Callable[..., SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: an attempt commits only if its code hash is the leader's; another one fails the attempt naming the host."""
    executor = started(list_topology())
    monkeypatch.setattr(frame_jobs_module, "package_version", lambda: "other")

    found = failure(executor.process([assignment(1, [row("a")])]))

    assert (
        found.kind == "data" and f"has another txtopo installed ({package_version()} instead of other)" in found.message
    )
    monkeypatch.undo()
    object.__setattr__(frame_jobs(executor)._context, "code_hash", b"other")
    assert "ran other code of the topology" in failure(executor.process([assignment(2, [row("a")])])).message


def test_cancelling_ends_one_attempt_soon_and_leaves_the_others_alone(
    started: Callable[..., SparkExecutor], tmp_path: Path
) -> None:
    """`cancel` from another thread: the attempt's `process` returns soon; zombies go on for a while (K1) and change
    nothing.
    """
    executor = started(list_topology())
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(executor.process, [assignment(1, [f"wait {tmp_path}", row("a")])])
        wait_until(lambda: any(tmp_path.glob("pid-*")), "the start of the task")
        other = pool.submit(executor.process, [assignment(2, [row("b")])])

        executor.cancel(TransactionAttempt(1, 0))
        cancelled = failure(waiting.result(30))  # its task waits for twice as long
        (tmp_path / "go").touch()

        assert (cancelled.kind, cancelled.message) == ("infrastructure", "cancelled")
        assert len(rows_of(other.result(60))) == 1
    assert len(rows_of(executor.process([assignment(1, [row("a")], attempt=1)]))) == 1


def test_progress_grows_when_a_part_is_done(started: Callable[..., SparkExecutor], tmp_path: Path) -> None:
    executor = started(list_topology())
    attempt = TransactionAttempt(1, 0)
    done = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(executor.process, [assignment(1, [row("a")], [f"wait {tmp_path}", row("a")])])
        running.add_done_callback(lambda _: done.set())

        wait_until(lambda: executor.progress(attempt) > 0, "progress")
        (tmp_path / "go").touch()

        assert len(rows_of(running.result(30))) == 1
    assert done.is_set() and executor.progress(attempt) == 0


def test_nothing_of_an_attempt_is_left_on_the_thread_that_ran_it(started: Callable[..., SparkExecutor]) -> None:
    """Worker threads are reused: tags and properties of an attempt are taken off again."""
    executor = started(list_topology())
    executor.process([assignment(1, [row("a")])])

    context = executor.spark.sparkContext
    assert not context.getJobTags()
    assert context.getLocalProperty("txtopo.order") is None
    assert context.getLocalProperty("spark.job.description") is None


def test_an_order_too_large_for_a_property_travels_in_the_plan(
    started: Callable[..., SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = started(list_topology())
    monkeypatch.setattr(jobs_module, "ORDER_BYTES_MAX", 10)

    assert rows_of(executor.process([assignment(1, [row("a")] * 3)]))[0]["n"] == 3


def test_results_beyond_the_limit_halt_with_their_size(
    started: Callable[..., SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_jobs_module, "RESULTS_BYTES_MAX", 100)
    executor = started(list_topology())

    found = failure(executor.process([assignment(1, [row(f"n{at}") for at in range(100)])]))

    assert found.kind == "data" and found.message.startswith("results exceed ")


@pytest.mark.parametrize("partitions", [2, 17])
def test_rows_are_counted_apart_from_groups_whatever_the_number_of_partitions(
    started: Callable[..., SparkExecutor], partitions: int
) -> None:
    """`arrived` has a place of its own: few partitions tell their bounds with every group, many in rows of their own."""  # noqa: E501
    executor = started(list_topology(lambda frame: frame.repartition(partitions), rows="same"))
    parts = [[[f"n{at % 3}", at, at, None] for at in range(start, start + 20)] for start in (0, 20)]

    (outcome,) = executor.process([assignment(1, *parts)])

    assert isinstance(outcome, Processed), outcome
    assert (outcome.read, outcome.results[0].arrived) == (40, 40)
    assert sum(outcome.results[0].rows.column("n").to_pylist()) == 40
