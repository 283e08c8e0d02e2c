"""Audits of what commit runs left."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.applications import orders_topology
from tests.kit.audited import Leader, select
from tests.kit.audits import Audited, findings
from tests.kit.orders import write_orders
from txtopo.committers.protocol.commit_run import commit_run
from txtopo.core.events import CommitItem
from txtopo.core.plan import Plan
from txtopo.core.values import Committed, Processed, RunEnded, TransactionAttempt
from txtopo.ports import Assignment, AttemptStart

FILES = 20


class InRuns(Leader):
    """Processes every batch that the source gives, then commits them in runs of eight."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.items: list[CommitItem] = []

    def commit_all(self, size: int = 8) -> None:
        """No run may fail."""
        assert self._ledger.single_commits(self._topology.committers) is None
        for start in range(0, len(self.items), size):
            run = self.items[start : start + size]
            ended = commit_run(self._ledger, self._lead, run, self._topology, lambda: 0.0)
            assert isinstance(ended, RunEnded), ended
            assert [type(one) for one in ended.outcomes] == [Committed] * len(run)
        self.items.clear()

    def _commit(self, plan: Plan, metadata: Mapping[str, Any], attempt: TransactionAttempt) -> None:
        self._ledger.begin_attempts(self._lead, [AttemptStart(attempt=attempt)])
        (outcome,) = self._executor.process([Assignment(attempt=attempt, metadata={self._spout.name: metadata})])
        assert isinstance(outcome, Processed), outcome
        self.items.append(CommitItem(plan=plan, processed=outcome))


@pytest.fixture
def processed(audited: Audited) -> InRuns:
    """Daily files, one with a line that does not parse; nothing is committed yet."""
    write_orders(audited.folder, FILES)
    with audited.file(5).open("a") as out:
        out.write("no/such,price\n")
    leader = InRuns(audited.dsn, orders_topology(audited.folder))
    leader.cut()
    return leader


def test_the_audit_of_runs_says_match_and_no_daily_file_makes_one_fail(audited: Audited, processed: InRuns) -> None:
    """R19, R25: each batch is recounted from its file, each seal is recomputed. Single commits follow runs."""
    with closing(processed):
        processed.commit_all()
    with closing(Leader(audited.dsn, orders_topology(audited.folder))) as leader:
        assert leader.redo(7) == FILES + 1

    code, report = audited.audit()

    assert (code, report["findings"]) == (0, [])
    assert [one["verdict"] for one in report["batches"]] == ["MATCH"] * (FILES + 1)
    together = select(
        audited.dsn, "select count(*), count(distinct xmin::text) from txtopo.ledger where txid between 1 and 20"
    )
    assert together == [(FILES, 3)]


def test_the_audit_finds_results_that_were_exchanged_within_a_run(audited: Audited, processed: InRuns) -> None:
    """No constraint can see that two batches of a run got each other's rows, where every number agrees."""
    second, third = processed.items[1:3]
    processed.items[1:3] = [
        replace(second, processed=replace(second.processed, results=third.processed.results)),
        replace(third, processed=replace(third.processed, results=second.processed.results)),
    ]
    with closing(processed):
        processed.commit_all()

    code, report = audited.audit()

    assert code == 1
    assert {txid for one in findings(report) for txid in one["txids"]} == {2, 3}
