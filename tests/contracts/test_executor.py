"""The executor's contract on the in-process executor, and what only that one promises."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.executor_contract import CODE_HASH, COMMITTER, HEADER, SPOUT, ExecutorContract, plan_batches
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.fields import Fields
from txtopo.core.values import Failed, Outcome, Processed, TransactionAttempt
from txtopo.errors import BatchDataError, TopologyError
from txtopo.ports import Assignment, Executor
from txtopo.spouts.file_spout import FileSpout
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology
from txtopo.topology.streams import Tuple
from txtopo.topology.tuple_bolts import BasicBolt, BasicOutputCollector
from txtopo.tuples import aggregate_batches


class TestInProcessExecutor(ExecutorContract):
    def make_executor(self, topology: Topology) -> Executor:
        return InProcessExecutor(topology, CODE_HASH)

    def test_edges_tell_what_the_spout_sent_and_the_committer_received(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text(f"{HEADER}\na,,1,1\nb,,1,1\n")

        (edge,) = self.one(tmp_path).edges

        assert (edge.edge, edge.sent, edge.received) == (f"{SPOUT} -> {COMMITTER}", 2, 2)

    def test_result_rows_come_in_the_order_of_their_keys(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text(f"{HEADER}\nb,,1,1\n,,1,1\na,2024-01-02,1,1\na,2024-01-01,1,1\n")

        rows = self.one(tmp_path).results[0].rows.to_pylist()

        assert [row["shop"] for row in rows] == ["a", "a", "b", None]
        assert rows[0]["day"] < rows[1]["day"]

    def test_partial_results_are_folded_without_losing_any(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(aggregate_batches, "FOLD_ROWS", 3)
        path = tmp_path / "a.csv"
        path.write_text(f"{HEADER}\n" + "".join(f"shop{number % 5},,{number}.25,{number}\n" for number in range(60)))

        self.check_counts(self.one(tmp_path, part_bytes=20), [path])

    def test_a_cancelled_attempt_ends_soon_and_its_neighbour_goes_on(self, tmp_path: Path) -> None:
        """`cancel` stops an attempt's work if it runs; its `process` returns soon with an infrastructure failure."""
        executor, assignments = self.two_batches(tmp_path)
        first = assignments[0].attempt
        assert isinstance(executor, InProcessExecutor)

        def cancel_first(attempt: TransactionAttempt) -> None:
            if attempt == first:
                executor.cancel(attempt)

        executor._faults = cancel_first

        cancelled, processed = executor.process(assignments)

        assert isinstance(cancelled, Failed) and cancelled.failure.kind == "infrastructure"
        assert isinstance(processed, Processed)

    def test_progress_grows_while_an_attempt_runs(self, tmp_path: Path) -> None:
        executor, assignments = self.two_batches(tmp_path, part_bytes=4)
        seen: list[int] = []
        assert isinstance(executor, InProcessExecutor)
        executor._faults = lambda attempt: seen.append(executor.progress(attempt))

        executor.process(assignments[:1])

        assert seen == sorted(set(seen)) and len(seen) > 1
        assert executor.progress(assignments[0].attempt) == 0

    @pytest.mark.parametrize(
        ("error", "kind", "component"),
        [
            (OSError(errno.EIO, "disk"), "infrastructure", SPOUT),
            (OSError("disk"), "data", SPOUT),
            (OSError(errno.EACCES, "disk"), "halt", SPOUT),
            (BatchDataError("bad", component="spout"), "data", SPOUT),
            (ValueError("bug"), "data", SPOUT),
        ],
    )
    def test_trouble_becomes_an_outcome(
        self, tmp_path: Path, error: Exception, kind: str, component: str | None
    ) -> None:
        """`process` never raises for trouble of a batch."""

        def fail(attempt: TransactionAttempt) -> None:
            raise error

        executor, assignments = self.two_batches(tmp_path, faults=fail)

        outcomes = executor.process(assignments)

        for outcome in outcomes:
            assert isinstance(outcome, Failed)
            assert outcome.failure.kind == kind
            assert outcome.failure.component in (component, SPOUT)

    def test_attempts_run_in_several_threads_at_once(self, tmp_path: Path) -> None:
        together = threading.Barrier(2, timeout=60)

        def meet(attempt: TransactionAttempt) -> None:
            together.wait()

        executor, assignments = self.two_batches(tmp_path, faults=meet)
        outcomes: dict[int, Outcome] = {}

        def work(at: int) -> None:
            outcomes[at] = executor.process([assignments[at]])[0]

        threads = [threading.Thread(target=work, args=(at,)) for at in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

        assert all(isinstance(outcomes[at], Processed) for at in (0, 1))

    def test_a_closed_executor_processes_nothing(self, tmp_path: Path) -> None:
        executor, assignments = self.two_batches(tmp_path)

        executor.close()
        executor.close()

        assert all(isinstance(outcome, Failed) for outcome in executor.process(assignments))

    def test_dataframe_bolts_are_refused(self, tmp_path: Path) -> None:
        builder = TopologyBuilder("contract")
        builder.set_spout(SPOUT, FileSpout(tmp_path, "shop string"))
        builder.set_bolt("clean", lambda sales: sales, inputs=SPOUT, fields="shop string")
        builder.set_committer_bolt(COMMITTER, CountCommitter("t", ["shop"]), inputs="clean")

        with pytest.raises(TopologyError, match="clean"):
            InProcessExecutor(builder.build(), CODE_HASH)

    def two_batches(
        self, folder: Path, faults: Callable[[TransactionAttempt], None] | None = None, part_bytes: int = 1000
    ) -> tuple[Executor, list[Assignment]]:
        for name in "ab":
            (folder / f"{name}.csv").write_text(f"{HEADER}\n{name},,1,1\n{name},,2,1\n")
        topology = self.topology(folder, part_bytes=part_bytes)
        planned = plan_batches(topology)
        assignments = [Assignment(attempt=TransactionAttempt(txid, 0), metadata=planned[txid - 1]) for txid in (1, 2)]
        return InProcessExecutor(topology, CODE_HASH, faults=faults), assignments


class Pass(BasicBolt):
    """Hands everything on."""

    def __init__(self, fields: Fields) -> None:
        self.outputs = [field.ddl for field in fields.items]  # type: ignore[misc]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        collector.emit(tup.values)


class TestInProcessExecutorOfTuples(TestInProcessExecutor):
    """The same contract where a tuple bolt stands before the committer."""

    def topology(self, folder: Path, *arguments: Any, **options: Any) -> Topology:
        plain = super().topology(folder, *arguments, **options)
        (spout,), (committer,) = plain.spouts, plain.committers
        builder = TopologyBuilder(plain.name)
        builder.set_spout(SPOUT, spout.spout)
        builder.set_bolt("passing", Pass(spout.spout.fields), parallelism_hint=2).shuffle_grouping(SPOUT)
        fields = list(committer.bolt.required_fields())
        builder.set_committer_bolt(COMMITTER, committer.bolt, parallelism_hint=2).fields_grouping("passing", fields)
        return builder.build()

    def test_edges_tell_what_the_spout_sent_and_the_committer_received(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text(f"{HEADER}\na,,1,1\nb,,1,1\n")

        assert [(edge.edge, edge.sent, edge.received) for edge in self.one(tmp_path).edges] == [
            (f"{SPOUT} -> passing", 2, 2),
            (f"passing -> {COMMITTER}", 2, 2),
        ]


def test_each_committer_counts_what_its_own_spout_emits(tmp_path: Path) -> None:
    """Several spouts in one topology share the txid; each committer gets the tuples of the component that it reads."""
    builder = TopologyBuilder("contract")
    for name, rows in (("sales", "a\nb\n"), ("returns", "a\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.csv").write_text(f"shop\n{rows}")
        builder.set_spout(name, FileSpout(tmp_path / name, "shop string"))
        builder.set_committer_bolt(f"of_{name}", CountCommitter(name, ["shop"]), inputs=name)
    topology = builder.build()
    metadata: dict[str, Any] = {}
    for item in topology.spouts:
        metadata |= plan_batches(replace(topology, spouts=(item,)))[0]

    (outcome,) = InProcessExecutor(topology, CODE_HASH).process(
        [Assignment(attempt=TransactionAttempt(1, 0), metadata=metadata)]
    )

    assert isinstance(outcome, Processed)
    assert {found.committer: found.arrived for found in outcome.results} == {"of_sales": 2, "of_returns": 1}
    assert outcome.read == 3
