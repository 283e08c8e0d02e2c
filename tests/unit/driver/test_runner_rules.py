"""The runner on memory stores: what is durable before a row is emitted, and how a leadership ends (R3, R7, R9, R15,
R16, Z5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.applications import orders_topology
from tests.kit.orders import FIELDS, write_orders
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.committers.memory.memory_ledger import MemoryLedger
from txtopo.committers.memory.memory_session import MemoryLedgerSession
from txtopo.coordinators.memory import MemorySession
from txtopo.coordinators.topology_nodes import TopologyCoordinator
from txtopo.core import limits
from txtopo.core.events import End
from txtopo.core.plan import Plan
from txtopo.core.state import Rules, State
from txtopo.core.values import CommitOutcome, Failed, Failure, Lead, Order, Outcome, TransactionAttempt, Unknown
from txtopo.driver.planner import Planner
from txtopo.driver.runner import Runner
from txtopo.driver.work_queues import Work, WorkQueue
from txtopo.errors import BatchDataError, ConfigurationError
from txtopo.ports import Assignment, Executor, MirrorEntry, Tell, tell_nobody
from txtopo.spouts.file_coordinator import FileCoordinator
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.testing.simulated import SerialWorkQueues, SimulatedDriver, SimulatedStores
from txtopo.topology.components import Topology

LONG_S = 300.0
"""A simulated run that lasts longer has missed what should have ended it."""
FILES = 3
ONE_BY_ONE = Rules(workers=3, run_txids_max=1)
"""No commit runs."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_orders(tmp_path / "orders", FILES, rows=5)
    return tmp_path / "orders"


def making(act: Callable[[Sequence[Assignment]], Sequence[Outcome] | None]) -> Callable[[Topology, bytes], Executor]:
    """An executor that lets the test act first; the test may give the outcomes itself."""

    class Acting(InProcessExecutor):
        def process(self, wave: Sequence[Assignment], tell: Tell = tell_nobody) -> Sequence[Outcome]:
            outcomes = act(wave)
            if outcomes is None:
                return super().process(wave, tell)
            for outcome in outcomes:
                tell(outcome)
            return outcomes

    return Acting


def fail_first(wave: Sequence[Assignment]) -> Sequence[Outcome] | None:
    """Every batch's attempt 0 fails for a reason that passes."""
    if any(assignment.attempt.attempt for assignment in wave):
        return None
    failure = Failure(kind="infrastructure", message="a disk was away")
    return [Failed(attempt=assignment.attempt, failure=failure) for assignment in wave]


def within(stores: SimulatedStores, watch: Callable[[State], None]) -> Callable[[State], None]:
    """Watch a run, and fail the test instead of waiting for ever."""
    begin = stores.clock.now

    def watched(state: State) -> None:
        assert stores.clock.now - begin < LONG_S, "nothing ended this run"
        watch(state)

    return watched


def waiting_driver(folder: Path, stores: SimulatedStores) -> SimulatedDriver:
    """One that commits what is there and then waits for new files."""
    return SimulatedDriver(topology=orders_topology(folder), stores=stores, once=False)


def test_plan_and_attempt_are_durable_in_both_stores_before_a_row_is_emitted(folder: Path) -> None:
    """I8, R3: whoever takes over knows of every attempt that ever emitted, and no attempt id is used twice."""
    stores = SimulatedStores()
    emitted: list[TransactionAttempt] = []

    def look(wave: Sequence[Assignment]) -> Sequence[Outcome] | None:
        view = TopologyCoordinator(MemorySession(stores.zookeeper), "orders").read()
        for assignment in wave:
            txid, attempt = assignment.attempt.txid, assignment.attempt.attempt
            assert txid in view.plans
            assert view.attempts[txid] == attempt
            assert stores.postgres.topologies["orders"].attempts[(txid, attempt)].state == "begun"
            emitted.append(assignment.attempt)
        return fail_first(wave)

    end = SimulatedDriver(topology=orders_topology(folder), stores=stores, make_executor=making(look)).run()

    assert end.kind == "finished"
    assert sorted(emitted) == [TransactionAttempt(txid, attempt) for txid in range(1, FILES + 1) for attempt in (0, 1)]
    attempts = stores.postgres.topologies["orders"].attempts
    assert {attempts[(txid, 0)].state for txid in range(1, FILES + 1)} == {"failed"}
    assert {attempts[(txid, 1)].state for txid in range(1, FILES + 1)} == {"applied"}


@pytest.mark.parametrize("store", ["postgres", "zookeeper"])
def test_nothing_is_emitted_while_a_store_cannot_remember_the_attempt(folder: Path, store: str) -> None:
    """I8: an attempt that nobody remembers must not run."""
    stores = SimulatedStores()
    away_until: list[float] = []

    def look(wave: Sequence[Assignment]) -> Sequence[Outcome] | None:
        assert not stores.postgres.unavailable and not stores.zookeeper.unavailable, "emitted without a begin"
        return fail_first(wave)

    def act(state: State) -> None:
        if not away_until and any(attempt.attempt == 1 for attempt in state.running):
            away_until.append(stores.clock.now + 3.0)
        getattr(stores, store).unavailable = bool(away_until) and stores.clock.now < away_until[0]

    driver = SimulatedDriver(topology=orders_topology(folder), stores=stores, make_executor=making(look))
    driver.watch = within(stores, act)

    assert driver.run().kind == "finished"
    assert away_until
    attempts = stores.postgres.topologies["orders"].attempts
    assert max(attempt for _, attempt in attempts) > 1  # the id that may be remembered somewhere was not used again


def test_a_lost_session_ends_the_leadership_of_a_driver_that_has_nothing_to_do(folder: Path) -> None:
    """Z5: LOST is a step-down, also when no write would find it out; and who lost the lead writes nothing more (R15)."""  # noqa: E501
    stores = SimulatedStores()
    driver = waiting_driver(folder, stores)

    def act(state: State) -> None:
        if state.last_txid == FILES and driver.session is not None:
            stores.zookeeper.expire(driver.session)

    driver.watch = within(stores, act)
    end = driver.run()

    assert (end.kind, "session is lost" in end.reason) == ("lead_lost", True)
    assert stores.postgres.topologies["orders"].life["state"] == "running"


def test_a_suspended_session_is_noticed_and_so_is_its_return(folder: Path) -> None:
    """Z5: while it is suspended nothing is planned; a return without a loss goes on."""
    stores = SimulatedStores()
    driver = waiting_driver(folder, stores)
    steps: list[str] = []

    def act(state: State) -> None:
        assert driver.session is not None
        if state.last_txid == FILES and not steps:
            steps.append("suspended")
            stores.zookeeper.suspend(driver.session)
        elif steps == ["suspended"] and state.suspended_since is not None:
            steps.append("noticed")
            stores.zookeeper.resume(driver.session)
        elif steps == ["suspended", "noticed"] and state.suspended_since is None:
            steps.append("returned")
            write_orders(folder, 1, rows=5, first=FILES + 1)
        elif len(steps) == 3 and state.last_txid == FILES + 1:
            steps.append("went on")
            stores.postgres.ask("orders", "stop")

    driver.watch = within(stores, act)

    assert driver.run().kind == "stopped"
    assert steps == ["suspended", "noticed", "returned", "went on"]


def test_a_leader_with_nothing_to_do_notices_that_postgres_is_away_and_gives_up(folder: Path) -> None:
    """R16: a driver that reaches Postgres may then lead."""
    stores = SimulatedStores()
    driver = waiting_driver(folder, stores)
    since: list[float] = []

    def act(state: State) -> None:
        if state.last_txid == FILES and not since:
            since.append(stores.clock.now)
            stores.postgres.unavailable = True

    driver.watch = within(stores, act)
    end = driver.run()

    assert (end.kind, "Postgres has been away" in end.reason) == ("lead_lost", True)
    assert 30 <= stores.clock.now - since[0] < 40


def test_a_leader_that_is_replaced_ends_as_fenced(folder: Path) -> None:
    """R4: another epoch in the fence ends the leadership with the next thing that is written, the heartbeat at the
    latest.
    """
    stores = SimulatedStores()
    driver = waiting_driver(folder, stores)

    def act(state: State) -> None:
        rows = stores.postgres.topologies["orders"]
        if state.last_txid == FILES and rows.fence.epoch == 1:
            rows.fence = replace(rows.fence, epoch=2)

    driver.watch = within(stores, act)

    assert driver.run().kind == "fenced"
    assert stores.postgres.topologies["orders"].life["state"] == "running"


def test_a_stop_at_once_cancels_what_runs_and_writes_it_down(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R15: no attempt stays open behind a driver that could still tell; otherwise the next leader takes it for a
    suspect.
    """
    stores = SimulatedStores()
    runners: list[Runner] = []
    run = Runner.run

    def remembered(self: Runner, state: State, orders: Sequence[Order] = ()) -> End:
        runners.append(self)
        return run(self, state, orders)

    monkeypatch.setattr(Runner, "run", remembered)
    cancelled: list[TransactionAttempt] = []
    monkeypatch.setattr(InProcessExecutor, "cancel", lambda self, attempt: cancelled.append(attempt))
    began: list[TransactionAttempt] = []

    def act(wave: Sequence[Assignment]) -> Sequence[Outcome] | None:
        began.append(wave[0].attempt)
        runners[0].stop(at_once=True, reason="interrupted")
        return None

    end = SimulatedDriver(
        topology=orders_topology(folder), stores=stores, make_executor=making(act), rules=Rules(workers=1)
    ).run()

    assert end.kind == "stopped"
    rows = stores.postgres.topologies["orders"]
    assert rows.attempts[(began[0].txid, began[0].attempt)].state == "cancelled"
    assert rows.life["state"] == "stopped"
    assert rows.fence.last_txid == 0


def test_trouble_with_the_source_passes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K8: a share that is away for a moment is infrastructure: it is tried again and never ends the run."""
    ready = FileCoordinator.is_ready
    troubles = [OSError("stale file handle"), OSError("stale file handle")]

    def is_ready(self: FileCoordinator) -> bool:
        if troubles:
            raise troubles.pop()
        return ready(self)

    monkeypatch.setattr(FileCoordinator, "is_ready", is_ready)
    stores = SimulatedStores()
    driver = SimulatedDriver(topology=orders_topology(folder), stores=stores)
    driver.watch = within(stores, lambda state: None)

    assert driver.run().kind == "finished"
    assert stores.postgres.topologies["orders"].fence.last_txid == FILES


def test_the_counter_in_zookeeper_follows_the_commits(folder: Path) -> None:
    """R8, R11: the mark is what a restored Postgres is found out by."""
    stores = SimulatedStores()

    assert SimulatedDriver(topology=orders_topology(folder), stores=stores).run().kind == "finished"

    view = TopologyCoordinator(MemorySession(stores.zookeeper), "orders").read()
    assert (view.mark, dict(view.attempts)) == (FILES, {})


def test_a_question_without_an_answer_is_asked_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R7: unknown stays unknown, and nothing else is committed meanwhile."""
    stores = SimulatedStores()
    stores.postgres.fail_next_commit("lost")
    resolve = MemoryLedger.resolve
    asked: list[int] = []

    def ask(self: MemoryLedger, lead: Lead, plans: Sequence[tuple[int, bytes]]) -> Sequence[CommitOutcome]:
        [(txid, _)] = plans
        asked.append(txid)
        assert stores.postgres.topologies["orders"].fence.last_txid == 1
        return [Unknown(txid=txid, message="no answer")] if len(asked) < 3 else resolve(self, lead, plans)

    monkeypatch.setattr(MemoryLedger, "resolve", ask)

    assert SimulatedDriver(topology=orders_topology(folder), stores=stores, rules=ONE_BY_ONE).run().kind == "finished"
    assert asked == [1, 1, 1]


def test_a_plan_is_mirrored_before_its_batch_is_committed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R9: with the inputs that it consumes, by the entry that the planner makes."""
    mirrored: list[int] = []
    entry = Planner.mirror_entry

    def remembered(self: Planner, plan: Plan) -> MirrorEntry:
        mirrored.append(plan.txid)
        return entry(self, plan)

    monkeypatch.setattr(Planner, "mirror_entry", remembered)
    stores = SimulatedStores()

    assert SimulatedDriver(topology=orders_topology(folder), stores=stores).run().kind == "finished"

    rows = stores.postgres.topologies["orders"]
    assert mirrored == sorted(rows.plans) == [1, 2, 3]
    assert sorted(txid for _, txid in rows.sources.values()) == [1, 2, 3]


def test_a_batch_that_an_open_order_skips_never_runs(folder: Path) -> None:
    """Orders found at takeover are taken in before anything is processed: the batch may be one that ends its process."""  # noqa: E501
    stores = SimulatedStores()
    began: list[TransactionAttempt] = []

    def poisoned(attempt: TransactionAttempt) -> None:
        began.append(attempt)
        if attempt.txid == 1:
            raise BatchDataError("poison", component="bolt")

    def driver() -> SimulatedDriver:
        return SimulatedDriver(
            topology=orders_topology(folder),
            stores=stores,
            rules=Rules(attempts_max=1),
            make_executor=lambda topology, code: InProcessExecutor(topology, code, faults=poisoned),
        )

    assert driver().run().kind == "halted"
    began.clear()
    stores.postgres.ask("orders", "skip", (1,), "poison")

    driver().run()

    assert [attempt for attempt in began if attempt.txid == 1] == []


def test_an_executor_that_never_answers_ends_the_run_and_holds_up_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K11: a JVM that stands still answers no call; heartbeats and orders go on beside it, and the end is noted."""

    class Mute(SerialWorkQueues):
        def submit(self, queue: WorkQueue, work: Work) -> None:
            if queue is not WorkQueue.PROGRESS:
                super().submit(queue, work)

    monkeypatch.setattr("txtopo.testing.simulated.SerialWorkQueues", Mute)
    stores = SimulatedStores()
    driver = waiting_driver(folder, stores)
    order: list[int] = []

    def act(state: State) -> None:
        if not order and stores.clock.now - begin > limits.EXECUTOR_SILENT_MAX_S / 2:
            order.append(stores.postgres.ask("orders", "retry"))

    driver.watch = within(stores, act)
    begin = stores.clock.now
    end = driver.run()

    assert stores.postgres.orders[order[0]][1].state != "open", "heard of with a heartbeat"

    assert (end.kind, end.reason.partition(" for ")[0]) == ("executor_lost", "the executor has not answered")
    assert limits.EXECUTOR_SILENT_MAX_S <= stores.clock.now - begin < limits.EXECUTOR_SILENT_MAX_S + 10
    assert stores.postgres.topologies["orders"].life["state"] == "stopped"
    assert stores.postgres.topologies["orders"].life["reason"] == end.reason


def test_a_driver_that_was_paused_does_not_hold_it_against_its_executor(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that was under way when the driver fell asleep for an hour comes a moment after it woke."""

    class Sleepy(SerialWorkQueues):
        def submit(self, queue: WorkQueue, work: Work) -> None:
            super().submit(queue, work)
            if queue is WorkQueue.PROGRESS:
                self.clock.wait(3600)

    monkeypatch.setattr("txtopo.testing.simulated.SerialWorkQueues", Sleepy)
    stores = SimulatedStores()
    driver = waiting_driver(folder, stores)

    def act(state: State) -> None:
        if state.last_txid == FILES:
            stores.postgres.ask("orders", "stop")

    driver.watch = act

    assert driver.run().kind == "stopped"


@pytest.mark.parametrize("taken", ["heartbeat", "begin_attempts", "mirror", "resolve"])
def test_a_right_that_is_taken_away_in_mid_run_halts(folder: Path, monkeypatch: pytest.MonkeyPatch, taken: str) -> None:
    """W2: no batch is at fault, and something was started: exit 1, not 2. Where the end cannot be noted either, the
    driver says so.
    """

    def refused(*_: object, **__: object) -> None:
        raise ConfigurationError(
            "permission denied for table topology (SQLSTATE 42501); grant the role the missing privilege"
        )

    stores = SimulatedStores()
    monkeypatch.setattr(MemoryLedger, taken, refused)
    monkeypatch.setattr(MemoryLedger, "note_end", refused)
    if taken == "resolve":
        stores.postgres.fail_next_commit("aborted")
    driver = SimulatedDriver(topology=orders_topology(folder), stores=stores)

    end = driver.run()

    assert (end.kind, "permission denied for table topology" in end.reason) == ("halted", True)
    assert any("the end of the run could not be noted: permission denied" in line for line in driver.said)


def test_a_fault_that_hits_every_batch_leaves_out_two_and_halts_also_behind_a_new_leader(folder: Path) -> None:
    """W7, over all of it: what was left out, and why, is found in the store by whoever leads next."""
    stores = SimulatedStores()

    def fail(wave: Sequence[Assignment]) -> Sequence[Outcome]:
        return [
            Failed(
                attempt=one.attempt,
                failure=Failure(
                    kind="data",
                    message=f"ValueError: {one.attempt}",
                    component="b",
                    cause="ValueError in b at app.py:7",
                ),
            )
            for one in wave
        ]

    def lead(**rules: Any) -> End:
        settings = Rules(workers=3, attempts_max=1, on_poison="quarantine_batch", **rules)
        topology = orders_topology(folder)
        return SimulatedDriver(topology=topology, stores=stores, rules=settings, make_executor=making(fail)).run()

    ends = [lead(), lead()]
    ledger = stores.postgres.topologies["orders"].ledger
    states = [row.state for txid, row in sorted(ledger.items()) if txid]
    last = lead(quarantined_in_row_max=99)

    assert [(end.kind, end.txid) for end in ends] == [("halted", 3)] * 2
    assert all(
        "number 3 in a row after 1, 2" in end.reason and "ValueError in b at app.py:7" in end.reason for end in ends
    )
    assert states == ["quarantined", "quarantined"]
    assert last.kind == "finished"


def test_a_commit_that_fails_over_no_rows_leaves_no_batch_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W4, over all of it: each committer is tried, not the first alone."""
    builder = TopologyBuilder("orders")
    builder.set_spout("files", FileSpout(str(folder), FIELDS, settled_s=0.05))
    for name in ("first", "second"):
        builder.set_committer_bolt(name, CountCommitter(table=name, keys=["shop"], count="n")).shuffle_grouping("files")
    apply = MemoryLedgerSession.apply

    def refusing(session: Any, committer: Any, *more: Any) -> Any:
        if committer.name == "second":
            raise BatchDataError("a rule of the table refuses it", component="second")
        return apply(session, committer, *more)

    monkeypatch.setattr(MemoryLedgerSession, "apply", refusing)
    stores, rules = SimulatedStores(), replace(ONE_BY_ONE, attempts_max=1, on_poison="quarantine_batch")
    end = SimulatedDriver(topology=builder.build(), stores=stores, rules=rules).run()

    assert (end.kind, end.txid) == ("halted", 1)
    assert (
        "no batch is at fault: a rule of the table refuses it (the same commit of rows that are known to" in end.reason
    )
    assert list(stores.postgres.topologies["orders"].ledger) == [0]


def test_what_fails_over_no_rows_leaves_no_batch_out(folder: Path) -> None:
    """W4, over all of it."""
    stores = SimulatedStores()

    class Broken(InProcessExecutor):
        def process(self, wave: Sequence[Assignment], tell: Tell = tell_nobody) -> Sequence[Outcome]:
            failure = Failure(kind="data", message="ModuleNotFoundError: No module named 'helper'")
            outcomes = [Failed(attempt=one.attempt, failure=failure) for one in wave]
            for outcome in outcomes:
                tell(outcome)
            return outcomes

        def try_over_nothing(self) -> Failure | None:
            return Failure(kind="data", message="ModuleNotFoundError: No module named 'helper'")

    rules = Rules(workers=3, attempts_max=1, on_poison="quarantine_batch")
    end = SimulatedDriver(topology=orders_topology(folder), stores=stores, rules=rules, make_executor=Broken).run()

    assert (end.kind, end.txid, "no batch is at fault" in end.reason) == ("halted", 1, True)
    assert list(stores.postgres.topologies["orders"].ledger) == [0]
