"""The one loop of a leader: passes events to the machine, performs its actions, returns their results as events."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, assert_never

from txtopo.committers.protocol.fault_proof import prove_commit
from txtopo.core import crash_points, limits
from txtopo.core.crash_points import CrashPoint
from txtopo.core.events import (
    Action,
    Answer,
    AttemptEnded,
    AttemptNotBegun,
    Cancel,
    Checkpoint,
    Checkpointed,
    CheckpointFailed,
    Commit,
    CommitQuarantine,
    Cut,
    CutFailed,
    CutRedo,
    End,
    Event,
    ExecutorGone,
    HaltRequired,
    LeadGone,
    LogAction,
    Mirror,
    Mirrored,
    MirrorFailed,
    Moment,
    OrdersSeen,
    PlansCut,
    PostgresAnswered,
    PostgresSilent,
    Process,
    Prove,
    Proven,
    RecordEnd,
    Resolve,
    Say,
    StopWanted,
    Store,
    Tick,
    WavesRefused,
    ZooKeeperSeen,
)
from txtopo.core.health import Health
from txtopo.core.machine import step
from txtopo.core.plan import Plan
from txtopo.core.remedies import RUN_AGAIN
from txtopo.core.short_inputs import in_short
from txtopo.core.state import State
from txtopo.core.values import (
    ActionRecord,
    Failed,
    Failure,
    Lead,
    Order,
    Outcome,
    TransactionAttempt,
)
from txtopo.driver.committing import Committing
from txtopo.driver.leader_services import LeaderServices
from txtopo.driver.monitors import Monitors
from txtopo.driver.planner import Planner
from txtopo.driver.work_queues import Inbox, WorkQueue
from txtopo.errors import (
    ConfigurationError,
    DriverFull,
    ExecutorLost,
    Fenced,
    Halted,
    LeadLost,
    Patience,
    PostgresUnavailable,
    StoreUnavailable,
    TxtopoError,
    ZooKeeperUnavailable,
    is_full,
)
from txtopo.ports import Assignment, AttemptStart, SessionState
from txtopo.topology.user_exceptions import is_of_code
from txtopo.tuples.user_errors import failure_of

TICK_S = 0.1
"""Longest wait for an event in seconds; limits the delay with which a backoff or a timeout is noticed."""


class Runner:
    """Runs one leadership to its end. `run` is called once; `stop` from any thread or signal handler."""

    def __init__(
        self, services: LeaderServices, lead: Lead, planner: Planner, unlogged: Iterable[ActionRecord] = ()
    ) -> None:
        """Create the runner. `unlogged` are actions of taking the lead; the first heartbeat logs them."""
        self._services = services
        self._lead = lead
        self._planner = planner
        self._inbox: Inbox[Any] = services.queues.inbox
        self._next_look = 0.0
        self._looking = Monitors(services.executor, services.candidacy, services.ledger, self._submit, self._heartbeat)
        self._stop_order: int | None = None
        self._one_by_one_reported = False
        self._opaque = False
        self._committing = Committing(services, lead, planner, self._submit)
        self._unlogged: deque[ActionRecord] = deque(unlogged)
        """Actions of this leader that are not in the action log yet."""
        self._is_logging = False
        self._beginning = threading.Lock()
        self._given_up: set[TransactionAttempt] = set()
        """Cancelled attempts of an opaque topology."""
        self._known_orders: set[int] = set()
        """Ids of orders that the machine already knows."""

    def stop(self, *, at_once: bool, reason: str) -> None:
        """End the run: after the batches in processing, or with `at_once` after a commit in progress."""
        self._inbox.put(StopWanted(at_once=at_once, reason=reason))

    def run(self, state: State, orders: Sequence[Order] = ()) -> End:
        """Step the machine until the end; returns how the run ended. The caller then closes everything (R15). Raises
        unexpected errors.

        `orders` are the orders that were open at takeover. The machine receives them before anything is processed, so
        that a batch to skip never runs.
        """
        self._opaque = state.rules.opaque
        if orders:
            self._take_orders(orders)
            self._next_look = self._services.clock.monotonic() + TICK_S
        while state.ended is None:
            events = self._next_events(state)
            moment = Moment(self._services.clock.monotonic(), self._services.chance.random())
            state, actions = step(state, events, moment)
            for action in actions:
                self._perform(action)
            self._services.watch(state)
        for attempt in sorted(state.running):
            self._services.executor.cancel(attempt)  # R15: the jobs end with the lead, whatever ended it
        if self._planner.wants_settled:
            self._services.queues.finish(WorkQueue.PLAN)
        ended = state.ended
        if ended.kind != "lead_lost" or state.postgres_away_since is None:
            # R16: a leader that stops because of Postgres does not wait for it again.
            ended = self._record_run_end(ended, state.planned_txid)
        for left in self._unlogged:
            self._services.say(f"not in the action log: {left.reason}")
        return ended

    def _next_events(self, state: State) -> Sequence[Event]:
        """Wait for an event; return it with those that are there by then."""
        events: list[Event] = [self._next_event(state)]
        while len(events) < limits.EVENTS_MAX and (event := self._inbox.get_another()) is not None:
            if isinstance(event, BaseException):
                raise event
            events.append(event)
        return events

    def _next_event(self, state: State) -> Event:
        now = self._services.clock.monotonic()
        event: Event | BaseException | None = None
        if now < self._next_look:  # every tick the stores are checked, even if events arrive all the time
            event = self._inbox.get(self._next_look - now)
        if event is None:
            self._next_look = self._services.clock.monotonic() + TICK_S
            event = self._look_around(state)
        if isinstance(event, BaseException):
            raise event
        return event

    def _look_around(self, state: State) -> Event:
        """The event of a tick: state of the session, overdue answers, progress, time."""
        now = self._services.clock.monotonic()
        match self._services.session.state():
            case SessionState.LOST:
                return LeadGone(fenced=False, message="the ZooKeeper session is lost")
            case SessionState.SUSPENDED if state.suspended_since is None:
                return ZooKeeperSeen(suspended=True)
            case SessionState.CONNECTED if state.suspended_since is not None:
                return ZooKeeperSeen(suspended=False)
            case _:
                pass
        for event in self._looking.look(state, now):
            self._inbox.put(event)
        return Tick(progress=self._looking.progress)

    # ------------------------------------------------------------------------------------------------------------------

    def _perform(self, action: Action) -> None:
        match action:
            case Cut():
                self._submit(WorkQueue.PLAN, lambda: self._cut(action))
            case CutRedo():
                self._submit(WorkQueue.PLAN, lambda: self._cut_redo(action))
            case Process():
                self._submit(WorkQueue.WORK, lambda: self._process(action))
            case Mirror():
                self._submit(WorkQueue.MIRROR, lambda: self._mirror(action))
            case Commit():
                self._submit(WorkQueue.COMMIT, lambda: self._committing.commit(action))
            case CommitQuarantine():
                self._submit(WorkQueue.COMMIT, lambda: self._committing.quarantine(action))
            case Answer():
                self._submit(WorkQueue.BOOKS, lambda: self._answer(action))
            case LogAction(action=record):
                # R25: the same run of a later leader is another one.
                self._unlogged.append(replace(record, before={**record.before, "epoch": self._lead.epoch}))
                self._log_soon()
            case Resolve():
                self._submit(WorkQueue.COMMIT, lambda: self._committing.resolve(action))
            case Prove():
                self._submit(
                    WorkQueue.COMMIT if action.step == "commit" else WorkQueue.WORK, lambda: self._prove(action)
                )
            case Checkpoint():
                self._submit(WorkQueue.CLEAN, lambda: self._checkpoint(action))
            case RecordEnd():
                self._submit(WorkQueue.BOOKS, lambda: self._record_end(action))
            case Cancel(attempt=attempt):
                if self._opaque:
                    self._given_up.add(attempt)
                self._submit(WorkQueue.CANCEL, lambda: self._services.executor.cancel(attempt))
            case Say(message=message):
                self._services.say(message)
            case End():
                pass
            case _:
                assert_never(action)

    def _submit(self, queue: WorkQueue, work: Callable[[], Event | None]) -> None:
        """Perform `work` in a work queue. Its result, or the event for its error, goes to the inbox."""

        def guarded() -> None:
            try:
                event: Event | BaseException | None = work()
            except Fenced as error:
                event = LeadGone(fenced=True, message=str(error))
            except LeadLost as error:
                event = LeadGone(fenced=False, message=str(error))
            except ExecutorLost as error:
                event = ExecutorGone(message=str(error))
            except Halted as error:
                event = HaltRequired(
                    reason=error.reason,
                    txid=error.txid,
                    next_command=error.next_command,
                    planning=queue is WorkQueue.PLAN,
                )
            except ConfigurationError as error:  # a privilege that was revoked during the run
                event = HaltRequired(reason=str(error), next_command=RUN_AGAIN)
            except BaseException as error:  # the main loop raises it
                event = error if isinstance(error, Exception) or not is_of_code(error) else _ended_by_code(error)
                if is_full(error):
                    event = ExecutorGone(message=str(DriverFull(error)))
            if event is not None:
                self._inbox.put(event)

        self._services.queues.submit(queue, guarded)

    def _cut(self, action: Cut) -> Event:
        try:
            cutting = self._planner.cut(
                action.first_txid,
                action.count,
                last_txid=action.last_txid,
                attempts=action.attempts,
                given_up=action.given_up,
            )
        except (OSError, StoreUnavailable) as error:
            return CutFailed(store=_store_of(error), message=str(error))
        return PlansCut(
            plans=cutting.plans,
            exhausted=cutting.exhausted,
            sizes=cutting.sizes,
            ready_in_s=cutting.ready_in_s,
        )

    def _cut_redo(self, action: CutRedo) -> Event:
        try:
            return self._planner.redo(action)
        except (OSError, StoreUnavailable) as error:
            return CutFailed(store=_store_of(error), message=str(error))

    def _process(self, action: Process) -> Event | None:
        """Record in both stores that the attempts begin, then process them. Each outcome is a separate event."""
        services = self._services
        try:
            begun = self._begin(action)
            if not begun:
                return None
            wave = [
                Assignment(
                    attempt=attempt,
                    metadata=self._planner.metadata(plan),
                    dead_letter_max=services.dead_letter_max if action.dead_letter else 0,
                )
                for attempt, plan in begun
            ]
        except StoreUnavailable as error:
            patience: Patience = getattr(error, "patience", "store")
            store = _store_of(error)
            for attempt, _ in action.attempts:
                self._inbox.put(AttemptNotBegun(attempt=attempt, store=store, message=str(error), patience=patience))
            return None
        first = wave[0].attempt

        def tell(outcome: Outcome) -> None:
            self._given_up.discard(outcome.attempt)
            # Before the outcome: this batch may have killed the JVM, so its attempt must remain without an end, a
            # suspect.
            self._check_executor()
            if outcome.attempt == first:
                crash_points.reach(CrashPoint.PROCESSED, first.txid)
            self._report_one_by_one()
            self._inbox.put(AttemptEnded(outcome=outcome))

        services.executor.process(wave, tell)
        self._report_one_by_one()
        return None

    def _report_one_by_one(self) -> None:
        reason = self._services.executor.one_by_one
        if reason is not None and not self._one_by_one_reported:
            self._one_by_one_reported = True
            self._inbox.put(WavesRefused(reason=reason))

    def _prove(self, action: Prove) -> Event:
        """Test without the batch (W4): its commit, or its processing."""
        services = self._services
        if action.processed is not None:
            failure = prove_commit(services.ledger, self._lead, action.plan, action.processed, services.topology)
        else:
            failure = services.executor.try_over_nothing()
            self._check_executor()
        return Proven(txid=action.plan.txid, failure=failure)

    def _check_executor(self) -> None:
        if self._services.executor.broken is not None:
            # K11: never a second Spark in the same epoch.
            raise ExecutorLost(f"{self._services.executor.broken}; start `txtopo run` again")

    def _begin(self, action: Process) -> Sequence[tuple[TransactionAttempt, Plan]]:
        """Record in both stores that these attempts begin; returns those that may run.

        Opaque batches may be discarded and begun again within moments. An attempt that was discarded while it waited
        for a worker never begins, because a later attempt of its txid may have begun, and ids never decrease.
        """
        with self._beginning if self._opaque else nullcontext():
            late = [attempt for attempt, _ in action.attempts if attempt in self._given_up]
            live = [item for item in action.attempts if item[0] not in late]
            again = {attempt.txid: attempt.attempt for attempt, _ in live if attempt.attempt > 0}
            if again:
                self._services.coordinator.record_attempts(again)
            starts = [
                AttemptStart(attempt=attempt, alone=action.alone, inputs=in_short(plan.metadata))
                for attempt, plan in live
            ]
            self._services.ledger.begin_attempts(self._lead, starts)
        for attempt in late:
            failure = Failure(kind="infrastructure", message="discarded before it began")
            self._inbox.put(AttemptEnded(outcome=Failed(attempt=attempt, failure=failure)))
        self._given_up.difference_update(late)
        if live:
            crash_points.reach(CrashPoint.ATTEMPT_BEGUN, live[0][0].txid)
        return live

    def _mirror(self, action: Mirror) -> Event:
        first, last = action.plans[0].txid, action.plans[-1].txid
        crash_points.reach(CrashPoint.BEFORE_MIRROR, first)
        try:
            self._services.ledger.mirror(self._lead, [self._planner.mirror_entry(plan) for plan in action.plans])
        except PostgresUnavailable as error:
            return MirrorFailed(message=str(error), patience=error.patience)
        crash_points.reach(CrashPoint.MIRRORED, last)
        return Mirrored(txid=last)

    def _log_soon(self) -> None:
        """Append to the action log what is not there yet, in one piece of work however much that is."""
        if self._unlogged and not self._is_logging:
            self._is_logging = True
            self._submit(WorkQueue.BOOKS, self._log_actions)

    def _log_actions(self) -> Event | None:
        """Append to the action log what is not there yet, oldest first. After a failure the next heartbeat tries
        again.
        """
        try:
            while self._unlogged:
                self._services.ledger.log_action(self._lead, self._unlogged[0])
                self._unlogged.popleft()
        except (Halted, ConfigurationError) as error:  # R25: a run that failed halts nothing
            self._services.say(f"not in the action log: {self._unlogged.popleft().reason} ({error})")
        except PostgresUnavailable as error:
            return _of_postgres(error)
        finally:
            self._is_logging = False
        return None

    def _answer(self, action: Answer) -> Event | None:
        try:
            self._services.ledger.answer_order(self._lead, action.order_id, action.state, action.answer, action.action)
        except PostgresUnavailable as error:
            # it stays open: the next heartbeat returns it again, and it is found to be done
            self._known_orders.discard(action.order_id)
            return _of_postgres(error)
        return None

    def _checkpoint(self, action: Checkpoint) -> Event:
        crash_points.reach(CrashPoint.BEFORE_CLEANUP, action.last_txid)
        try:
            self._services.coordinator.checkpoint(action.last_txid, action.keep_from)  # R8
        except ZooKeeperUnavailable as error:
            return CheckpointFailed(message=str(error))
        crash_points.reach(CrashPoint.CLEANED, action.last_txid)
        return Checkpointed(last_txid=action.last_txid, keep_from=action.keep_from)

    def _record_end(self, action: RecordEnd) -> Event | None:
        try:
            self._services.ledger.end_attempt(self._lead, action.attempt, action.state, action.failure)
        except PostgresUnavailable as error:
            # The attempt then has no end and is a suspect for the next leader: careful, not wrong.
            return _of_postgres(error)
        return None

    def _heartbeat(self, health: Health, planned_txid: int) -> Event:
        try:
            orders = self._services.ledger.heartbeat(
                self._lead, health.state, health.problem, planned_txid, {**health.waiting, **self._planner.lag}
            )
        except PostgresUnavailable as error:
            return _of_postgres(error)
        self._take_orders(orders)
        self._log_soon()
        return PostgresAnswered()

    def _take_orders(self, orders: Sequence[Order]) -> None:
        """Pass each order to the machine once. A stop order ends the run like a signal."""
        new = tuple(order for order in orders if order.order_id not in self._known_orders)
        self._known_orders.update(order.order_id for order in new)
        for order in new:
            if order.kind == "stop":
                self._stop_order = order.order_id
                self.stop(at_once=False, reason=f"stop was ordered (order {order.order_id})")
        if new:
            self._inbox.put(OrdersSeen(orders=new))

    def _record_run_end(self, end: End, planned_txid: int) -> End:
        """Record in Postgres how the run ended, if this driver still leads. If a finished run cannot be recorded for
        lack of privileges, it counts as halted: `status` would show another state.
        """
        services = self._services
        # Work that is about to end may have looked for actions before the last one came, and counts until it has ended.
        services.queues.finish(WorkQueue.BOOKS)
        self._log_soon()
        services.queues.finish(WorkQueue.BOOKS)
        if end.kind in ("fenced", "lead_lost", "replan"):
            return end  # another driver leads, or the lead is taken again immediately
        if self._stop_order is not None:
            try:
                services.ledger.answer_order(self._lead, self._stop_order, "done", end.reason)
            except TxtopoError as error:
                services.say(f"the order to stop could not be answered: {error}")
        try:
            kind = "stopped" if end.kind == "executor_lost" else end.kind
            services.ledger.note_end(self._lead, kind, end.reason, end.txid, planned_txid, end.next_command)
        except TxtopoError as error:
            words = f"the end of the run could not be noted: {error}"
            if end.kind == "finished" and isinstance(error, ConfigurationError):
                return End(kind="halted", reason=f"every batch is committed, but {words}", next_command=RUN_AGAIN)
            services.say(words)
        return end


def _of_postgres(error: PostgresUnavailable) -> PostgresAnswered | PostgresSilent:
    """The event for a failure. If another session holds a lock, Postgres is available, and another leader would have to
    wait too.
    """
    return PostgresAnswered() if error.patience == "lock" else PostgresSilent(message=str(error))


def _ended_by_code(error: BaseException) -> HaltRequired:
    """The halt for an exception such as `sys.exit()`, which would end the run with any exit code."""
    failure = failure_of(error, "")
    reason = f"code of the topology raised an exception that ends a process: {failure.message}"
    return HaltRequired(reason=reason, next_command="raise an ordinary exception there, then start `txtopo run` again")


def _store_of(error: OSError | StoreUnavailable) -> Store:
    if isinstance(error, StoreUnavailable):
        return "postgres" if isinstance(error, PostgresUnavailable) else "zookeeper"
    return "source"
