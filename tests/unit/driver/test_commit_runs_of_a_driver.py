"""Commit runs of a whole driver on memory stores: what an operator and the spouts learn of them (R25, R28)."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.applications import orders_topology
from tests.kit.orders import write_orders
from txtopo.committers.memory.memory_ledger import MemoryLedger
from txtopo.committers.memory.memory_session import MemoryLedgerSession
from txtopo.committers.protocol.commit_run import commit_run
from txtopo.core.events import End, LogAction
from txtopo.core.limits import RUN_TXIDS_FIRST
from txtopo.core.plan import Plan
from txtopo.core.state import Rules, State
from txtopo.core.values import ActionRecord, Lead, RunEnded, RunFailed
from txtopo.driver import committing
from txtopo.driver.planner import Planner
from txtopo.driver.runner import Runner
from txtopo.driver.spout_coordinators import Settled
from txtopo.driver.work_queues import Work, WorkQueue
from txtopo.errors import ConfigurationError, PostgresUnavailable
from txtopo.testing.simulated import SerialWorkQueues, SimulatedDriver, SimulatedStores

FILES = 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_orders(tmp_path / "orders", FILES, rows=2)
    return tmp_path / "orders"


def failing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run fails by a mistake in its statements."""
    finish_run = MemoryLedgerSession.finish_run
    failed: list[int] = []

    def fail(session: MemoryLedgerSession, totals: dict[int, object]) -> None:
        if not failed:
            failed.extend(totals)
            raise ValueError("a mistake in a run")
        finish_run(session, totals)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryLedgerSession, "finish_run", fail)


def test_a_run_that_failed_is_in_the_action_log_and_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R25: once, with its batches and its cause; every batch is committed by its first attempt."""
    failing_once(monkeypatch)
    stores = SimulatedStores()
    driver = SimulatedDriver(topology=orders_topology(folder), stores=stores)

    assert driver.run().kind == "finished"

    [row] = [row for row in stores.postgres.actions if row.action.command == "run_failed"]
    first, last = row.action.before["first"], row.action.before["last"]
    assert (row.actor, row.reason, row.action.txid) == ("leader", "a mistake in a run", first)
    assert f"the commit run of batches {first} to {last} failed, they are committed one by one" in "\n".join(
        driver.said
    )
    rows = stores.postgres.topologies["orders"]
    assert {attempt for _, attempt in rows.attempts} == {0}
    assert [row.state for txid, row in rows.ledger.items() if txid] == ["applied"] * FILES


def test_an_action_that_could_not_be_logged_is_logged_with_the_next_heartbeat(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R25: durable although Postgres was away when the run failed, as it is likely to be then."""
    failing_once(monkeypatch)
    stores, away = SimulatedStores(), 2
    log_action = MemoryLedger.log_action

    def refusing(ledger: MemoryLedger, lead: Lead, action: ActionRecord) -> None:
        nonlocal away
        away -= 1
        if away >= 0:
            raise PostgresUnavailable("connection refused")
        log_action(ledger, lead, action)

    monkeypatch.setattr(MemoryLedger, "log_action", refusing)
    begin = stores.clock.now

    def watch(state: State) -> None:
        logged = [row for row in stores.postgres.actions if row.action.command == "run_failed"]
        if (logged or stores.clock.now - begin > 60) and state.last_txid == FILES and not stores.postgres.orders:
            stores.postgres.ask("orders", "stop")

    driver = SimulatedDriver(topology=orders_topology(folder), stores=stores, watch=watch, once=False)

    assert driver.run().kind == "stopped"
    assert [row.action.command for row in stores.postgres.actions].count("run_failed") == 1


def test_a_failed_run_is_logged_once_though_the_answer_was_lost(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R25: `status` counts the rows. A later leader's run of the same batches is another one: the epoch tells."""
    failing_once(monkeypatch)
    stores, lost = SimulatedStores(), list[ActionRecord]()
    log_action = MemoryLedger.log_action

    def unanswered(ledger: MemoryLedger, lead: Lead, action: ActionRecord) -> None:
        log_action(ledger, lead, action)
        if not lost:
            lost.append(action)
            raise PostgresUnavailable("connection reset")

    monkeypatch.setattr(MemoryLedger, "log_action", unanswered)

    assert SimulatedDriver(topology=orders_topology(folder), stores=stores).run().kind == "finished"

    assert lost and [row.action for row in stores.postgres.actions] == lost
    assert lost[0].before["epoch"] == stores.postgres.topologies["orders"].fence.epoch


def record_of(reason: str) -> ActionRecord:
    """An action of the leader."""
    return ActionRecord(command="run_failed", txid=1, reason=reason, before={}, after={})


def test_an_action_that_comes_while_the_log_is_written_is_not_left_behind_at_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R25: the work that writes has looked for the last time, and has not ended when the run does."""
    record_end = Runner._record_run_end

    class Racing(deque[ActionRecord]):
        runner: Runner | None = None

        def __bool__(self) -> bool:
            runner, waits = self.runner, len(self) > 0
            if not waits and runner is not None:
                self.runner = None
                runner._perform(LogAction(action=record_of("last")))
            return waits

    def racing(runner: Runner, end: End, planned_txid: int) -> End:
        actions = Racing()
        runner._unlogged, actions.runner = actions, runner
        actions.append(record_of("first"))
        runner._log_soon()
        return record_end(runner, end, planned_txid)

    monkeypatch.setattr(Runner, "_record_run_end", racing)
    stores = SimulatedStores()

    assert SimulatedDriver(topology=orders_topology(folder), stores=stores).run().kind == "finished"

    assert [row.reason for row in stores.postgres.actions] == ["first", "last"]


def test_an_action_that_is_never_logged_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is skipped silently."""
    failing_once(monkeypatch)

    def away(*_: object) -> None:
        raise PostgresUnavailable("connection refused")

    monkeypatch.setattr(MemoryLedger, "log_action", away)
    driver = SimulatedDriver(topology=orders_topology(folder), stores=SimulatedStores())

    assert driver.run().kind == "finished"

    assert "not in the action log: a mistake in a run" in driver.said


def test_an_action_log_that_is_locked_is_no_silence_of_postgres(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R16: another leader would have to wait too."""
    failing_once(monkeypatch)
    stores, locked, away = SimulatedStores(), [1, 2, 3], list[float]()
    log_action = MemoryLedger.log_action

    def waiting(ledger: MemoryLedger, lead: Lead, action: ActionRecord) -> None:
        if locked:
            locked.pop()
            raise PostgresUnavailable("canceling statement due to lock timeout", patience="lock")
        log_action(ledger, lead, action)

    def watch(state: State) -> None:
        away.extend([] if state.postgres_away_since is None else [state.postgres_away_since])
        if not locked and state.last_txid == FILES and not stores.postgres.orders:
            stores.postgres.ask("orders", "stop")

    monkeypatch.setattr(MemoryLedger, "log_action", waiting)
    driver = SimulatedDriver(topology=orders_topology(folder), stores=stores, watch=watch, once=False)

    assert driver.run().kind == "stopped"
    assert [row.action.command for row in stores.postgres.actions] == ["run_failed"]
    assert away == []


def test_however_many_runs_fail_one_piece_of_work_waits_to_log_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that does not answer keeps the queue of the answers to orders no longer than one call."""
    stores, waiting = SimulatedStores(), list[int]()
    record = ActionRecord(command="run_failed", txid=1, reason="r", before={}, after={})
    submit = SerialWorkQueues.submit

    def counted(queues: SerialWorkQueues, queue: WorkQueue, work: Work) -> None:
        if queue is WorkQueue.BOOKS:
            waiting.append(1)
        submit(queues, queue, work)

    def run(runner: Runner, *arguments: Any) -> Any:
        for txid in (1, 2, 3):
            runner._perform(LogAction(action=replace(record, txid=txid)))
        assert waiting == [1]
        return original(runner, *arguments)

    original = Runner.run
    monkeypatch.setattr(Runner, "run", run)
    monkeypatch.setattr(SerialWorkQueues, "submit", counted)

    assert SimulatedDriver(topology=orders_topology(folder), stores=stores).run().kind == "finished"
    assert [row.action.txid for row in stores.postgres.actions] == [1, 2, 3]


def test_runs_to_a_far_store_grow_like_those_to_a_near_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R24: what the machine learns is the time under the lock without the round trips themselves."""
    stores, sizes = SimulatedStores(), set[int]()

    def far(*arguments: Any) -> RunEnded | RunFailed:
        ended = commit_run(*arguments)
        return replace(ended, locked_s=0.4, travel_s=0.375) if isinstance(ended, RunEnded) else ended

    monkeypatch.setattr(committing, "commit_run", far)
    write_orders(folder, 40, rows=1)

    def watch(state: State) -> None:
        sizes.add(state.run_max)

    driver = SimulatedDriver(topology=orders_topology(folder), stores=stores, watch=watch)

    assert driver.run().kind == "finished"
    assert sizes > {RUN_TXIDS_FIRST} and min(sizes) == RUN_TXIDS_FIRST


def test_spouts_are_notified_of_a_run_in_one_piece_of_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R28: ascending, when all of it is in the ledger, and before anything is planned after it."""
    stores = SimulatedStores()
    told: list[tuple[int, int]] = []
    works, at = 0, WorkQueue.LOOK

    def settled(_: Planner, plan: Plan, state: Settled | None) -> None:
        assert at is WorkQueue.PLAN, "the planner has one thread"
        assert stores.postgres.topologies["orders"].ledger[plan.txid].state == state == "applied"
        told.append((works, plan.txid))

    submit = SerialWorkQueues.submit

    def counted(queues: SerialWorkQueues, queue: WorkQueue, work: Work) -> None:
        def counted_work() -> None:
            nonlocal works, at
            works, at = works + 1, queue
            work()

        submit(queues, queue, counted_work)

    runs: list[list[int]] = []
    append_run = MemoryLedgerSession.append_run

    def noted(session: MemoryLedgerSession, entries: list[object]) -> None:
        runs.append([entry.plan.txid for entry in entries])  # type: ignore[attr-defined]
        append_run(session, entries)  # type: ignore[arg-type]

    monkeypatch.setattr(Planner, "wants_settled", property(lambda _: True))
    monkeypatch.setattr(Planner, "settled", settled)
    monkeypatch.setattr(SerialWorkQueues, "submit", counted)
    monkeypatch.setattr(MemoryLedgerSession, "append_run", noted)

    assert SimulatedDriver(topology=orders_topology(folder), stores=stores).run().kind == "finished"

    assert [txid for _, txid in told] == list(range(1, FILES + 1))
    assert runs
    for run in runs:
        assert len({work for work, txid in told if txid in run}) == 1


def test_a_table_that_is_not_plain_has_no_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R20: the leader asks when its tables are prepared; nothing fails, and the operator learns why, also later: each
    reason is in the action log once, however many leaders find it.
    """
    monkeypatch.setattr(MemoryLedgerSession, "append_run", lambda *_: pytest.fail("a run was begun"))
    stores = SimulatedStores()
    why = ["a CHECK", "a CHECK", "a trigger"]

    for number, obstacle in enumerate(why):
        stores.postgres.not_plain["public.order_totals"] = obstacle
        write_orders(folder, 1, first=FILES + 1 + number)
        driver = SimulatedDriver(topology=orders_topology(folder), stores=stores)
        assert driver.run().kind == "finished"
        assert f"batches are committed one by one: table public.order_totals has {obstacle}" in driver.said

    logged = [(row.action.command, row.reason) for row in stores.postgres.actions]
    assert logged == [("single_commits", f"table public.order_totals has {one}") for one in ("a CHECK", "a trigger")]


def test_what_may_not_be_asked_for_runs_stops_no_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R20: single commits need nothing of it."""

    def refused(*_: object) -> str:
        raise ConfigurationError("permission denied for pg_rewrite")

    monkeypatch.setattr(MemoryLedger, "single_commits", refused)
    driver = SimulatedDriver(topology=orders_topology(folder), stores=SimulatedStores())

    assert driver.run().kind == "finished"
    assert "batches are committed one by one: permission denied for pg_rewrite" in driver.said


def test_a_failed_run_that_may_not_be_logged_halts_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R25: single commits write no action, so a role may lack the right to."""
    failing_once(monkeypatch)

    def refused(*_: object) -> None:
        raise ConfigurationError("permission denied for table action")

    monkeypatch.setattr(MemoryLedger, "log_action", refused)
    driver = SimulatedDriver(topology=orders_topology(folder), stores=SimulatedStores())

    assert driver.run().kind == "finished"
    assert "not in the action log: a mistake in a run (permission denied for table action)" in driver.said


def test_a_driver_without_runs_commits_one_by_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness counts on it: a test releases each commit."""
    monkeypatch.setattr(MemoryLedgerSession, "append_run", lambda *_: pytest.fail("a run was begun"))
    rules = Rules(workers=3, run_txids_max=1)

    driver = SimulatedDriver(topology=orders_topology(folder), stores=SimulatedStores(), rules=rules)
    assert driver.run().kind == "finished"
