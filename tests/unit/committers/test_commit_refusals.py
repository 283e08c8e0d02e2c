"""What `commit_batch` refuses before it asks the database."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.ledger_driver import TOPOLOGY, Driver, claim_for, committer, rejected_row
from txtopo.committers.memory.memory_ledger import MemoryLedger, MemoryPostgres
from txtopo.committers.memory.memory_session import MemoryLedgerSession
from txtopo.committers.postgres.storable_text import storable, storable_json, storable_or_none
from txtopo.committers.protocol.commit import commit_batch, failure_of
from txtopo.core.values import Aborted, EdgeCount, Failure
from txtopo.errors import BatchDataError, Halted, Patience, PostgresUnavailable


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
        commit_batch(driver.ledger, driver.lead, plan, driver.processed(2), driver.topology)

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


def test_a_rejected_record_that_was_not_handed_over_fails_the_batch_before_the_database_is_asked() -> None:
    """I6: a record that is counted as rejected is kept, or nobody can tell what it was."""
    store = MemoryPostgres()
    driver = leading(store)
    plan = driver.ready(1)
    store.unavailable = True

    outcome = driver.commit(plan, rejected=2, rejected_rows=(rejected_row(2),))

    assert isinstance(outcome, Aborted)
    assert (outcome.failure.kind, outcome.failure.message) == (
        "data",
        "attempt 1:0 rejected 2 records, but returned 1 of them",
    )


def test_a_redo_that_nobody_ordered_is_not_in_the_action_log() -> None:
    """The log says who did what; a plan without an order has nobody to name."""
    store = MemoryPostgres()
    driver = leading(store)
    driver.commit(driver.ready(1))

    driver.commit(driver.redo(2, 1))
    driver.commit(driver.redo(3, 1))

    assert [row.state for row in store.topologies[TOPOLOGY].ledger.values()] == [
        "genesis",
        "applied",
        "applied",
        "quarantined",
    ]
    assert store.actions == []


def test_a_quarantine_while_postgres_is_away_is_tried_again() -> None:
    """Infrastructure errors are aborts of their own kind, also for a quarantine."""
    store = MemoryPostgres()
    driver = leading(store)
    plan = driver.ready(1)
    store.unavailable = True

    outcome = driver.quarantine(plan)

    assert isinstance(outcome, Aborted)
    assert outcome.failure.kind == "infrastructure"


@pytest.mark.parametrize("patience", ["lock", "time", "once"])
def test_how_long_trouble_of_the_store_may_last_is_told_with_it(
    monkeypatch: pytest.MonkeyPatch, patience: Patience
) -> None:
    """W5: a lock is waited for without end, a statement that takes too long is not."""

    def away(*_: Any) -> None:
        raise PostgresUnavailable("no", patience=patience)

    driver = leading(MemoryPostgres())
    plan = driver.ready(1)
    monkeypatch.setattr(MemoryLedgerSession, "lock_fence", away)

    outcome = driver.commit(plan)

    assert isinstance(outcome, Aborted)
    assert (outcome.failure.kind, outcome.patience) == ("infrastructure", patience)


def test_a_failure_says_all_that_its_error_said() -> None:
    """W7: the cause decides whether several in a row have one; the position leads to the record."""
    error = BatchDataError("no", component="c", position="/a.csv:7", detail="Key (a)=(1)", cause="c 23505 key")

    assert failure_of(error) == Failure(
        kind="data", message="no", component="c", position="/a.csv:7", detail="Key (a)=(1)", cause="c 23505 key"
    )


def test_numbers_that_a_recount_would_not_find_are_not_taken_back() -> None:
    """The ledger knows how many rows a batch brought: fewer to take back would leave some behind for ever."""
    store = MemoryPostgres()
    driver = leading(store)
    driver.commit(driver.ready(1))
    before = dict(store.tables["public.flights_count"])
    store.contributions["public.flights_count"].pop()

    outcome = driver.commit(driver.redo(2, 1))

    assert isinstance(outcome, Aborted)
    assert "batch 1 recorded 3 contributions, but 2 exist" in outcome.failure.message
    assert store.tables["public.flights_count"] == before


def test_what_postgres_cannot_hold_becomes_readable_at_any_depth() -> None:
    """P14: NUL and lone surrogates, in keys and values."""
    assert storable("a\0b\udc00é") == "a\\0b\\udc00é"
    assert storable_or_none(None) is None
    assert json.loads(storable_json({"k\0": [("\ud800",), {"n": None, "m": 1.5}]})) == {
        "k\\0": [["\\ud800"], {"n": None, "m": 1.5}]
    }
