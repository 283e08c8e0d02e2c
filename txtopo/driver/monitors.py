"""What a leader checks regularly: heartbeat, progress, its place in the queue, locks. Each check runs in a separate
work queue, and none waits for another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from txtopo.core import limits
from txtopo.core.events import Event, ExecutorGone, LockSeen, PostgresSilent
from txtopo.core.health import Health, health_of
from txtopo.core.state import State
from txtopo.core.values import TransactionAttempt
from txtopo.driver.unanswered import AnswerTimer
from txtopo.driver.work_queues import WorkQueue
from txtopo.errors import PostgresUnavailable, ZooKeeperUnavailable
from txtopo.ports import Candidacy, Executor, Ledger

PROGRESS_EVERY_S = 2.0
"""Seconds between two questions to the executor about progress."""
HEARTBEAT_OVERDUE_S = 5.0
"""Seconds without an answer after which Postgres counts as unavailable. Longer than the lock timeout, which is an
answer.
"""
LOCK_LOOK_S = 1.0
"""Seconds after which a commit may be waiting for a lock. Shorter than the lock timeout, so that the holder is still
visible.
"""
Submit = Callable[[WorkQueue, Callable[[], Event | None]], None]


class Monitors:
    """The checks of one leadership. Call `look` from the loop only; answers arrive in their work queues."""

    def __init__(
        self,
        executor: Executor,
        candidacy: Candidacy,
        ledger: Ledger,
        submit: Submit,
        beat: Callable[[Health, int], Event],
    ) -> None:
        """`submit` performs work in a work queue and turns its result into an event; `beat` writes the heartbeat."""
        self.progress: Mapping[TransactionAttempt, int] = {}
        """Progress of the attempts that ran when the executor last answered."""
        self._executor = executor
        self._candidacy = candidacy
        self._ledger = ledger
        self._submit = submit
        self._beat = beat
        self._beating = AnswerTimer(limits.HEARTBEAT_EVERY_S)
        self._moving = AnswerTimer(PROGRESS_EVERY_S)
        self._standing = AnswerTimer(limits.HEARTBEAT_EVERY_S)
        self._locked = AnswerTimer(limits.HEARTBEAT_EVERY_S)
        self._commit_seen: tuple[tuple[int, int] | None, float] = None, 0.0
        """The attempt at a commit that is in progress, and when it was first seen."""

    def look(self, state: State, now: float) -> list[Event]:
        """Start the checks that are due at `now` (monotonic seconds). Returns events for answers that are overdue."""
        if self._standing.look(now) == "ask":
            self._submit(WorkQueue.CLEAN, self._check_place)
        self._look_for_holder(state, now)
        return [*self._look_after_postgres(state, now), *self._look_after_executor(state, now)]

    def _look_after_postgres(self, state: State, now: float) -> list[Event]:
        asked = self._beating.look(now)
        if asked == "ask":
            health, planned = health_of(state, now), state.planned_txid
            self._submit(WorkQueue.BOOKS, lambda: self._heartbeat(health, planned))
        elif asked == "late" and self._beating.silent_s > HEARTBEAT_OVERDUE_S:
            # R16: a server that is stopped, or a network that drops every packet, does not break the connection: no
            # call would return with an error.
            return [PostgresSilent(message=f"no answer from Postgres for {self._beating.silent_s:.0f} s")]
        return []

    def _look_after_executor(self, state: State, now: float) -> list[Event]:
        """Check the JVM: one that is suspended answers no call (K11)."""
        asked, silent_s = self._moving.look(now), self._moving.silent_s
        if asked == "ask":
            running = state.running
            self._submit(WorkQueue.PROGRESS, lambda: self._take_progress(running))
        elif asked == "late" and silent_s > limits.EXECUTOR_SILENT_MAX_S:
            words = f"the executor has not answered for {silent_s:.0f} s; start `txtopo run` again"
            return [ExecutorGone(message=words)]
        return []

    def _look_for_holder(self, state: State, now: float) -> None:
        trying = (state.last_txid, state.commit_failures) if state.committing else None
        if trying != self._commit_seen[0]:
            self._commit_seen = trying, now
        if trying and now - self._commit_seen[1] > LOCK_LOOK_S and self._locked.look(now) == "ask":
            self._submit(WorkQueue.LOOK, self._find_holder)

    def _heartbeat(self, health: Health, planned_txid: int) -> Event:
        try:
            return self._beat(health, planned_txid)
        finally:
            self._beating.answered()

    def _take_progress(self, running: Collection[TransactionAttempt]) -> None:
        self.progress = {attempt: self._executor.progress(attempt) for attempt in running}
        self._moving.answered()

    def _check_place(self) -> None:
        with suppress(ZooKeeperUnavailable):  # the state of the session reports it
            self._candidacy.check_place()
        self._standing.answered()

    def _find_holder(self) -> Event | None:
        try:
            return LockSeen(words=self._ledger.waits_for())
        except PostgresUnavailable:
            return None  # the commit itself reports it
        finally:
            self._locked.answered()
