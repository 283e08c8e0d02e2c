"""What an error means for a commit run: before COMMIT was sent, by COMMIT itself, and after its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.ledger_driver import TOPOLOGY, Driver, claim_for, committer, rejected_row
from txtopo.committers.memory.memory_ledger import MemoryLedger, MemoryPostgres
from txtopo.committers.memory.memory_session import MemoryLedgerSession
from txtopo.committers.postgres.run_session import PostgresRunSession
from txtopo.core.values import Committed, EdgeCount, Lead, RunEnded, RunFailed, Unknown
from txtopo.errors import (
    BatchDataError,
    ConfigurationError,
    Fenced,
    Halted,
    InvariantBroken,
    LeadLost,
    Patience,
    PostgresUnavailable,
    RunRefused,
)

STATEMENTS = [
    "prepare_run",
    "prepare_kept",
    "append_run",
    "apply_run",
    "finish_run",
]


def leading(store: MemoryPostgres) -> Driver:
    """A driver that has taken the lead."""
    ledger = MemoryLedger(store, TOPOLOGY)
    driver = Driver(ledger, ledger.claim_fence(claim_for()), (committer(),))
    ledger.prepare_targets(driver.lead, driver.committers)
    return driver


def raising(error: BaseException) -> Callable[..., Any]:
    """A statement that fails."""

    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize(
    "error",
    [
        BatchDataError("does not fit", component="by_route"),
        Halted("the ledger refuses"),
        InvariantBroken("a bug"),
        ConfigurationError("permission denied"),
        TypeError("a bug in code"),
        PostgresUnavailable("deadlock (SQLSTATE 40P01)"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_is_raised_before_commit_is_nobodys_fault(
    monkeypatch: pytest.MonkeyPatch, statement: str, error: Exception
) -> None:
    """R25: rolled back, with its message; only a store's failure has a patience. Without a right no run can succeed."""
    store = MemoryPostgres()
    driver = leading(store)
    plans = driver.ready_run()
    monkeypatch.setattr(MemoryLedgerSession, statement, raising(error))

    ended = driver.commit_run(plans)

    patience: Patience | None = "store" if isinstance(error, PostgresUnavailable) else None
    off = str(error) if isinstance(error, ConfigurationError) else None
    assert ended == RunFailed(first=1, last=3, message=str(error), patience=patience, off=off)
    assert store.topologies[TOPOLOGY].fence.last_txid == 0
    assert store.topologies[TOPOLOGY].holder is None


def test_what_needs_no_lock_is_done_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """R21: under the lock values are only sent."""
    driver = leading(MemoryPostgres())
    plans = driver.ready_run()
    called: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        original = getattr(MemoryLedgerSession, name)

        def note(*arguments: Any) -> Any:
            called.append(name)
            return original(*arguments)

        return note

    for name in ("lock_fence", *STATEMENTS, "commit"):
        monkeypatch.setattr(MemoryLedgerSession, name, noting(name))

    assert isinstance(driver.commit_run(plans), RunEnded)
    assert called == ["prepare_run", "prepare_kept", "lock_fence", "append_run", "apply_run", "finish_run", "commit"]


def test_what_is_kept_is_spelled_without_a_connection() -> None:
    """R21: all of a run, ascending, with the txid of each row; without rows there is no statement."""
    nothing: Any = None
    session = PostgresRunSession(nothing, leading(MemoryPostgres()).lead, nothing, nothing)
    edge = EdgeCount(edge="a>b", sent=1, received=1)

    session.prepare_kept({3: (edge,), 2: (edge,)}, {2: (rejected_row(9, raw=b"x"),), 3: ()}, {2: (), 3: ()})

    kept = session._kept
    assert kept is not None
    assert (kept[1]["edge_txids"], kept[1]["rejected_txids"], kept[1]["rejected_raws"]) == (
        "{2,3}",
        "{2}",
        '{"\\\\x78"}',
    )
    assert ("txtopo.edge_count" in kept[0], "txtopo.rejected_row" in kept[0], "dead_letter" in kept[0]) == (
        True,
        True,
        False,
    )
    session.prepare_kept({2: ()}, {2: ()}, {2: ()})
    assert session._kept is None


def test_a_table_that_stops_being_plain_is_found_though_it_refused_the_sum_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R20, R25: a trigger on the target may raise before `finish_run` looks at the table."""
    store = MemoryPostgres()
    driver = leading(store)
    plans = driver.ready_run()
    monkeypatch.setattr(MemoryLedgerSession, "apply_run", raising(BatchDataError("too large", component="by_route")))
    monkeypatch.setattr(MemoryLedger, "single_commits", lambda *_: "table t has a trigger")

    ended = driver.commit_run(plans)

    assert isinstance(ended, RunFailed)
    assert (ended.message, ended.off) == ("too large", "table t has a trigger")


@pytest.mark.parametrize("error", [Fenced("epoch 2"), LeadLost("session"), KeyboardInterrupt()])
@pytest.mark.parametrize("statement", ["lock_fence", *STATEMENTS, "commit"])
def test_a_lost_lead_and_the_end_of_the_process_are_no_fall_back(
    monkeypatch: pytest.MonkeyPatch, statement: str, error: BaseException
) -> None:
    """R25, R29: this driver stops."""
    driver = leading(MemoryPostgres())
    plans = driver.ready_run()
    monkeypatch.setattr(MemoryLedgerSession, statement, raising(error))

    with pytest.raises(type(error)):
        driver.commit_run(plans)


@pytest.mark.parametrize(
    "error",
    [
        PostgresUnavailable("refused", definite=True),
        BatchDataError("a deferred constraint", component="by_route"),
        Halted("the ledger refuses"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_commit_that_the_server_refused_did_not_happen(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """R7: an outcome that was seen."""
    driver = leading(MemoryPostgres())
    plans = driver.ready_run()
    monkeypatch.setattr(MemoryLedgerSession, "commit", raising(error))

    assert isinstance(driver.commit_run(plans), RunFailed)


def test_a_commit_without_an_answer_is_unknown_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """R26."""
    driver = leading(MemoryPostgres())
    plans = driver.ready_run()
    monkeypatch.setattr(MemoryLedgerSession, "commit", raising(PostgresUnavailable("cut", definite=False)))

    ended = driver.commit_run(plans)

    assert ended == RunEnded(outcomes=tuple(Unknown(txid=txid, message="postgres: cut") for txid in (1, 2, 3)))


@pytest.mark.parametrize("error", [TypeError("a bug in code"), InvariantBroken("a bug")])
def test_an_error_that_does_not_say_whether_it_was_committed_is_never_taken_for_a_refusal(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """I16: with the batches back in the machine an order could skip one that is committed. The driver ends instead."""
    driver = leading(MemoryPostgres())
    plans = driver.ready_run()
    commit = MemoryLedgerSession.commit

    def committed(session: MemoryLedgerSession) -> None:
        commit(session)
        raise error

    monkeypatch.setattr(MemoryLedgerSession, "commit", committed)

    with pytest.raises(type(error)):
        driver.commit_run(plans)


def test_a_session_that_cannot_be_left_changes_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """R7: COMMIT was seen; that the connection broke afterwards says nothing."""
    driver = leading(MemoryPostgres())
    plans = driver.ready_run()
    run_session = MemoryLedger.run_session

    @contextmanager
    def breaking(ledger: MemoryLedger, lead: Lead) -> Iterator[MemoryLedgerSession]:
        with run_session(ledger, lead) as session:
            yield session
        raise PostgresUnavailable("connection broke")

    monkeypatch.setattr(MemoryLedger, "run_session", breaking)

    ended = driver.commit_run(plans)

    assert isinstance(ended, RunEnded)
    assert [type(one) for one in ended.outcomes] == [Committed] * 3


def test_a_refusal_of_the_tables_ends_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """R20."""
    driver = leading(MemoryPostgres())
    plans = driver.ready_run()
    monkeypatch.setattr(MemoryLedgerSession, "finish_run", raising(RunRefused("table t has a CHECK")))

    ended = driver.commit_run(plans)

    assert ended == RunFailed(first=1, last=3, message="table t has a CHECK", off="table t has a CHECK")


@pytest.mark.parametrize("lacking", [1, 2, 3])
def test_a_committer_that_was_not_applied_for_each_batch_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, lacking: int
) -> None:
    """R13: all of its batches, each with its own count."""
    driver = leading(MemoryPostgres())
    plans = driver.ready_run()
    apply_run = MemoryLedgerSession.apply_run

    def applied(session: MemoryLedgerSession, component: Any, results: Any) -> Any:
        return {txid: count for txid, count in apply_run(session, component, results).items() if txid != lacking}

    monkeypatch.setattr(MemoryLedgerSession, "apply_run", applied)

    ended = driver.commit_run(plans)

    assert isinstance(ended, RunFailed)
    assert "was not applied for each" in ended.message


@pytest.mark.parametrize("wrong", [{"counted": 5}, {"results": 4}, {"written": 2}, {"ignored": 1}])
@pytest.mark.parametrize("txid", [1, 2, 3])
def test_numbers_that_the_statement_returned_are_compared_for_each_batch(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], txid: int
) -> None:
    """I6, P4, R22."""
    driver = leading(MemoryPostgres())
    plans = driver.ready_run()
    apply_run = MemoryLedgerSession.apply_run

    def applied(session: MemoryLedgerSession, component: Any, results: Any) -> Any:
        counts = dict(apply_run(session, component, results))
        return {**counts, txid: replace(counts[txid], **wrong)}

    monkeypatch.setattr(MemoryLedgerSession, "apply_run", applied)

    assert isinstance(driver.commit_run(plans), RunFailed)
