"""What `commit_batch` refuses before it asks the database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from txtopo.committers.commit import commit_batch
from txtopo.committers.memory import MemoryLedger, MemoryPostgres
from txtopo.committers.memory_session import MemoryLedgerSession
from txtopo.core.values import Aborted, EdgeCount
from txtopo.errors import Halted
from txtopo.testing.ledger_driver import TOPOLOGY, Driver, claim_for, committer


def leading(store: MemoryPostgres) -> Driver:
    """A driver that has taken the lead."""
    ledger = MemoryLedger(store, TOPOLOGY)
    driver = Driver(ledger, ledger.claim_fence(claim_for()), (committer(),))
    ledger.prepare_targets(driver.lead, driver.committers)
    return driver


def test_results_of_another_batch_are_not_committed_as_this_one() -> None:
    """I9: what is applied belongs to the attempt that the ledger row names."""
    store = MemoryPostgres()
    driver = leading(store)
    plan = driver.ready(1)
    driver.ready(2)

    with pytest.raises(Halted, match="not of batch 1"):
        commit_batch(driver.ledger, driver.lead, plan, driver.processed(2), driver.committers)

    assert store.topologies[TOPOLOGY].fence.last_txid == 0


def test_a_fence_ahead_of_its_ledger_halts() -> None:
    """R5: a skip needs the row that says what was committed."""
    store = MemoryPostgres()
    driver = leading(store)
    plan = driver.ready(1)
    driver.commit(plan)
    del store.topologies[TOPOLOGY].ledger[1]

    with pytest.raises(Halted, match="no row of it"):
        driver.commit(plan)


@pytest.mark.parametrize("wrong", [{"counted": 5}, {"results": 4}, {"written": 2}, {"ignored": 1}])
def test_numbers_that_the_apply_statement_returned_are_compared(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    """I6, P4: arrived = counted and results = written + ignored, or nothing is committed; a retry may give others."""
    store = MemoryPostgres()
    driver = leading(store)
    plan = driver.ready(1)
    apply = MemoryLedgerSession.apply
    monkeypatch.setattr(MemoryLedgerSession, "apply", lambda self, *values: replace(apply(self, *values), **wrong))

    outcome = driver.commit(plan)

    assert isinstance(outcome, Aborted)
    assert outcome.failure.kind == "data"
    assert store.topologies[TOPOLOGY].fence.last_txid == 0


def test_the_counts_of_the_edges_are_kept_with_the_batch() -> None:
    """I6: the audit reads what every edge sent and received."""
    store = MemoryPostgres()
    driver = leading(store)
    edges = (EdgeCount(edge="spout -> by_route", sent=6, received=6),)

    driver.commit(driver.ready(1), edges=edges)

    assert store.topologies[TOPOLOGY].ledger[1].edges == edges
