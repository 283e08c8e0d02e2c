"""Tuple topologies on a real local session: the same results distributed, in one task and in this process; faults of
the transport; bad tuples.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.kit.drivers import wait_until
from tests.kit.fix_spark import executors_on
from tests.kit.list_spout import assignment
from tests.kit.tuple_runs import run_tuples
from tests.kit.tuple_topologies import diamond, framed, mixed, tracked
from txtopo.core.values import Failed, Failure, Outcome, Processed, TransactionAttempt
from txtopo.spark import jobs as jobs_module
from txtopo.spark.executor import SparkExecutor
from txtopo.spark.tuples import tuple_jobs as tuple_jobs_module
from txtopo.spark.tuples.tuple_jobs import TupleJobs
from txtopo.spark.tuples.tuple_plan import TupleCompiler
from txtopo.topology.components import Topology
from txtopo.tuples.message import Kind

pytestmark = pytest.mark.spark

PARTS: tuple[list[list[Any]], ...] = (
    [[f"a b w{at % 4}", at] for at in range(10)],
    [[f"c w{at % 3}", at] for at in range(7)],
    [],
)
"""Three parts, one of them empty."""


@pytest.fixture(scope="module")
def started(spark_session: SparkSession) -> Iterator[Callable[[Topology], SparkExecutor]]:
    """Makes started executors on the shared session."""
    with executors_on(spark_session) as make:
        yield make


@pytest.fixture(scope="module")
def plain(started: Callable[[Topology], SparkExecutor]) -> SparkExecutor:
    """Runs the diamond."""
    return started(diamond())


def only(outcomes: Sequence[Outcome]) -> Outcome:
    (outcome,) = outcomes
    return outcome


def processed(outcomes: Sequence[Outcome]) -> Processed:
    outcome = only(outcomes)
    assert isinstance(outcome, Processed), outcome
    return outcome


def failure(outcomes: Sequence[Outcome]) -> Failure:
    outcome = only(outcomes)
    assert isinstance(outcome, Failed), outcome
    return outcome.failure


def rows_of(outcome: Outcome) -> dict[str, list[tuple[Any, ...]]]:
    """Result rows by committer, in their order."""
    assert isinstance(outcome, Processed), outcome
    return {item.committer: [tuple(row.values()) for row in item.rows.to_pylist()] for item in outcome.results}


def check_same_as_here(outcome: Outcome, *parts: Any) -> None:
    """The outcome is what the runtime gives in this process, to the order of rows and every count."""
    here = run_tuples(diamond(), {"source": parts})
    assert here.failure is None
    assert rows_of(outcome) == {name: here.rows(name) for name in ("words", "kept")}
    assert isinstance(outcome, Processed)
    assert {edge.edge: (edge.sent, edge.received) for edge in outcome.edges} == here.edges
    assert [item.arrived for item in outcome.results] == [item.arrived for item in here.results.values()]
    assert outcome.read == sum(map(len, parts))


@pytest.mark.parametrize("count", [1, 3], ids=["one task", "distributed"])
def test_spark_gives_what_the_runtime_gives_in_this_process(plain: SparkExecutor, count: int) -> None:
    """Determinism by construction: the same results, rows in the same order, the same counts, wherever the tasks run."""  # noqa: E501
    outcome = processed(plain.process([assignment(3, *PARTS[:count], attempt=1)]))

    check_same_as_here(outcome, *PARTS[:count])
    assert len(plain._reports) == 0, "reports of finished attempts are not kept"


def test_batches_of_a_wave_share_a_job_and_keep_their_own_rows(plain: SparkExecutor) -> None:
    """Each txid keeps its own metadata, attempt, counts, failure and commit; only the job is shared."""
    contents = [[[f"t{txid} x", txid]] * txid for txid in range(1, 9)]
    plain.process([assignment(txid, [["a", 1]]) for txid in (101, 102)])  # the first wave is proven
    scheduler = plain.spark.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()

    one_task = plain.process([assignment(txid, content) for txid, content in enumerate(contents, 1)])
    spread = plain.process([assignment(txid, content, [["y", 9]]) for txid, content in enumerate(contents[:3], 11)])

    assert scheduler.numTotalJobs() == before + 2
    for txid, outcome in enumerate(one_task, 1):
        assert [(word, int(n)) for word, _, n, _ in rows_of(outcome)["words"]] == [(f"t{txid}", txid), ("x", txid)]
    for txid, outcome in enumerate(spread, 1):
        expected = [(f"t{txid}", txid), ("x", txid), ("y", 1)]
        assert [(word, int(n)) for word, _, n, _ in rows_of(outcome)["words"]] == expected


def test_a_bad_tuple_fails_its_own_batch_alone_and_its_neighbours_go_on(plain: SparkExecutor) -> None:
    """A wave whose job fails is a failure of none of its batches."""
    outcomes = plain.process([assignment(1, [["a", 1]]), assignment(2, [["b", -1]]), assignment(3, [["c", 1]])])

    assert [type(outcome) for outcome in outcomes] == [Processed, Failed, Processed]


@pytest.mark.parametrize("more", [(), PARTS], ids=["one task", "distributed"])
def test_a_bad_tuple_among_ten_thousand_is_named_after_one_attempt(plain: SparkExecutor, more: Any) -> None:
    """The message names the component, `file:line` of the source, the tuple's values and the user's line."""
    part = [["a b", 1]] * 9_000 + [["good bad", -7]] + [["a b", 2]] * 999

    found = failure(plain.process([assignment(1, part, *more)]))

    assert (found.kind, found.component, found.position) == ("data", "large", "part-1.txt:9001")
    assert "tuple_topologies.py:" in found.message and "ValueError: no such amount: -7" in found.message
    assert "word='good', amount=-7" in found.message and found.message.endswith("on part-1.txt:9001")
    assert found.detail is not None and "record: ['good bad', -7]" in found.detail


def test_tuples_that_a_bolt_fails_on_become_dead_letters(plain: SparkExecutor) -> None:
    """With dead letters the batch goes on without them, and says which they are; they are part of `read`."""
    parts = [[["a", 1], ["bad", -1], ["b", 1]], [["worse", -2], ["c", 1]]]

    outcome = processed(plain.process([dataclasses.replace(assignment(1, *parts), dead_letter_max=2)]))

    assert [(row.spout, row.position, row.component, row.raw) for row in outcome.dead_letters] == [
        ("source", "part-1.txt:2", "large", b"['bad', -1]"),
        ("source", "part-2.txt:1", "large", b"['worse', -2]"),
    ]
    assert "ValueError: no such amount: -1" in outcome.dead_letters[0].reason
    assert [row[0] for row in rows_of(outcome)["words"]] == ["a", "b", "c"]
    assert (outcome.read, outcome.edges[0].sent) == (5, 3)


def test_more_dead_letters_than_may_be_fail_the_attempt_and_say_so(plain: SparkExecutor) -> None:
    part = [["bad", -1], ["bad", -2], ["bad", -3], ["a", 1]]

    found = failure(plain.process([dataclasses.replace(assignment(1, part), dead_letter_max=2)]))

    assert found.kind == "data" and "bolts fail on more than 2 records" in found.message
    assert found.position == "part-1.txt:1"


class Disturbed(TupleCompiler):
    """Does something to one message between two levels."""

    fault: str = ""

    def between(self, rows: DataFrame, level: int) -> DataFrame:
        """To the first message with tuples, or to the first report, from part 1 of the source to `split`."""
        if level != 1 or not self.fault:
            return rows
        kind = Kind.REPORT if self.fault == "report lost" else Kind.DATA
        hit = (F.col("kind") == int(kind)) & (F.col("target") == 1) & (F.col("seq") == 0) & (F.col("source") == -1)
        if self.fault in ("lost", "report lost"):
            return rows.filter(~hit)
        copies = F.explode(F.when(hit, F.array(F.lit(False), F.lit(True))).otherwise(F.array(F.lit(False))))
        copied = rows.withColumn("copy", copies)
        if self.fault == "stale":
            stale: Column = F.col("source") - 7
            copied = copied.withColumn("source", F.when(F.col("copy"), stale).otherwise(F.col("source")))
        return copied.drop("copy")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("lost", r"source -> split: task -1 sent 5 tuples, 0 arrived"),
        ("twice", r"source -> split: task -1 sent 5 tuples, 10 arrived"),
        ("report lost", r"source -> split: task -1 did not report how many tuples it sent; 5 arrived"),
        ("stale", r"5 tuples came over source -> split from task -8, which does not belong to this attempt"),
    ],
)
def test_what_happens_to_messages_on_their_way_fails_the_attempt_and_names_source_task_and_counts(
    disturbed: SparkExecutor, monkeypatch: pytest.MonkeyPatch, fault: str, words: str
) -> None:
    """CB-01: a mismatch fails at once and says which source task and both counts, be the row lost, doubled, its report
    lost, or of another attempt.
    """
    monkeypatch.setattr(Disturbed, "fault", fault)

    found = failure(disturbed.process([assignment(1, *PARTS)]))

    assert (found.kind, found.component) == ("data", "split")
    assert words in found.message, found.message


@pytest.fixture(scope="module")
def disturbed(started: Callable[[Topology], SparkExecutor]) -> Iterator[SparkExecutor]:
    """The diamond, with a compiler that disturbs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TupleJobs, "compiler_class", Disturbed)
        yield started(diamond())


@pytest.mark.parametrize("more", [(), PARTS[1:]], ids=["one task", "distributed"])
def test_a_task_that_died_and_was_tried_again_counts_once(plain: SparkExecutor, tmp_path: Path, more: Any) -> None:
    """No number in the ledger may be inflated by a retried task (K2, K4)."""
    part = [*PARTS[0], [f"die-once:{tmp_path / 'died'}", 1]]

    outcome = processed(plain.process([assignment(3, part, *more, attempt=1)]))

    assert (tmp_path / "died").exists()
    check_same_as_here(outcome, part, *more)


def test_a_worker_that_earlier_batches_filled_fails_no_batch(plain: SparkExecutor, tmp_path: Path) -> None:
    """It is ended, and a fresh one judges. A tuple that finds no memory there either is named."""
    txids = itertools.count(1)
    while not (tmp_path / "full").exists():  # Spark has several workers, and takes another one each time
        assert processed(plain.process([assignment(next(txids), [[f"leak:{tmp_path}", 1], ["a", 2]])])).read == 2

    found = failure(plain.process([assignment(next(txids), [["a", 1], ["full", 2]])]))

    assert (found.kind, found.component) == ("data", "split")
    assert "MemoryError; on " in found.message and "full" in found.message


def test_a_worker_that_dies_each_time_is_a_suspect(plain: SparkExecutor) -> None:
    """Without a verdict the attempt runs alone next time, so that a crash in native code is no endless loop."""
    assert failure(plain.process([assignment(1, [["die", 1]])])).kind == "suspect"


def test_cancelling_ends_an_attempt_soon_and_progress_grows_when_a_task_is_done(
    plain: SparkExecutor, tmp_path: Path
) -> None:
    """`cancel` from another thread: the attempt's `process` returns soon."""
    attempt = TransactionAttempt(1, 0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(plain.process, [assignment(1, [[f"wait:{tmp_path}", 1]], [["a", 1]])])
        wait_until(lambda: any(tmp_path.glob("pid-*")), "the start of the task")
        assert plain.progress(attempt) > 0, "the source tasks are done"

        plain.cancel(attempt)
        cancelled = failure(waiting.result(30))
        (tmp_path / "go").touch()

    assert (cancelled.kind, cancelled.message) == ("infrastructure", "cancelled")
    assert plain.progress(attempt) == 0 and not threading.current_thread().daemon


def test_an_order_too_large_for_a_property_travels_in_the_plan(
    plain: SparkExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "ORDER_BYTES_MAX", 10)

    check_same_as_here(processed(plain.process([assignment(3, PARTS[0], attempt=1)])), PARTS[0])


def test_tasks_that_run_other_code_fail_the_attempt_naming_the_host(
    plain: SparkExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: an attempt commits only if its code hash is the leader's; another one fails the attempt naming the host."""
    monkeypatch.setattr(tuple_jobs_module, "package_version", lambda: "other")

    found = failure(plain.process([assignment(1, [["a", 1]])]))

    assert found.kind == "data" and "has another txtopo installed" in found.message


def test_dataframe_bolts_and_tuple_bolts_feed_each_other(started: Callable[[Topology], SparkExecutor]) -> None:
    """A DataFrame's partitions are source tasks; what tuple bolts send to a DataFrame bolt is counted at its border. No
    row is lost or read twice.
    """
    executor = started(mixed())
    assert executor.one_by_one == "bolt both reads several streams"

    full, empty = executor.process([assignment(1, *PARTS), assignment(2, [])])

    counts = {word: (n, int(amount)) for word, n, amount in rows_of(full)["words"]}
    assert (counts["a"], counts["c"]) == ((9, 42), (6, 18))
    assert counts["all c w0"] == (3, 0 + 3 + 6)
    assert len(rows_of(full)["after"]) == 19, "14 words of `clean` texts and 5 whole texts have an amount above 5"
    assert isinstance(full, Processed) and full.read == 17
    edges = {edge.edge: (edge.sent, edge.received) for edge in full.edges}
    assert edges["clean -> split"] == (15, 15) and edges["source -> both"] == (17, 17)
    assert isinstance(empty, Processed) and empty.read == 0 and not rows_of(empty)["words"]


def test_a_dataframe_bolt_among_tuples_is_held_to_the_rows_that_it_promises(
    started: Callable[[Topology], SparkExecutor],
) -> None:
    found = failure(started(mixed("same")).process([assignment(1, PARTS[0])]))

    assert (found.kind, found.component) == ("data", "clean")
    assert "10 tuples of source entered and 9 left bolt clean; as many were expected" in found.message


def test_a_spout_that_gives_a_dataframe_feeds_tuple_bolts_and_may_be_idle(
    started: Callable[[Topology], SparkExecutor],
) -> None:
    """Its partitions are source tasks; a spout that is idle in a batch reports nothing read, and its readers finish all
    the same.
    """
    executor = started(framed())
    both = assignment(1, [["a", 9]])

    full, idle = executor.process(
        [
            dataclasses.replace(both, metadata={**both.metadata, "numbers": {"count": 8}}),
            assignment(2, [["b", 7], ["c", 1]]),
        ]
    )

    assert sorted(rows_of(full)["kept"]) == [("a", 9), ("w0", 6), ("w1", 7)]
    assert rows_of(idle)["kept"] == [("b", 7)]
    assert isinstance(full, Processed) and isinstance(idle, Processed)
    assert (full.read, idle.read) == (9, 2)

    lacking = failure(
        executor.process([dataclasses.replace(both, metadata={**both.metadata, "numbers": {"count": -1}})])
    )
    assert (lacking.kind, lacking.component, lacking.message) == ("data", "numbers", "its DataFrame lacks amount")


def test_a_tuple_that_is_never_acked_or_failed_fails_the_attempt_and_names_its_record(
    started: Callable[[Topology], SparkExecutor],
) -> None:
    """AK: with acking by tuple every root must come back to 0; one that does not names the spout tuple, distributed as
    well as in one task.
    """
    executor = started(tracked())

    spread = failure(executor.process([assignment(1, [["a b", 1], ["c d", 13]], [["e", 2]])]))
    one_task = failure(executor.process([assignment(2, [["a b", 1], ["c d", 1], ["e f", 14]])]))
    done = processed(executor.process([assignment(3, [["a b", 1]], [["e", 2]])]))

    assert (spread.kind, spread.position) == ("data", "part-1.txt:2") and "neither acked nor failed" in spread.message
    assert (one_task.kind, one_task.position) == ("data", "part-1.txt:3"), one_task
    assert sorted(rows_of(done)["kept"]) == [("a", 1), ("b", 1), ("e", 2)]
