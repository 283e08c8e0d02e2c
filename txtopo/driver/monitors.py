"""What a leader asks of the world while nothing happens: heartbeat, progress, its place in the queue, locks. Each in a
lane, and none waits for another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from txtopo.core import limits
from txtopo.core.events import Event, ExecutorGone, LockSeen, PostgresSilent
from txtopo.core.health import Health, health_of
from txtopo.core.state import State
from txtopo.core.values import TransactionAttempt
from txtopo.driver.unanswered import Question
from txtopo.driver.work_queues import WorkQueue
from txtopo.errors import PostgresUnavailable, ZooKeeperUnavailable
from txtopo.ports import Candidacy, Executor, Ledger

PROGRESS_EVERY_S = 2.0
"""How often the executor is asked for progress."""
HEARTBEAT_OVERDUE_S = 5.0
"""Without an answer for so long Postgres counts as away. Longer than the wait for a lock, which is an answer."""
LOCK_LOOK_S = 1.0
"""A commit that takes longer may wait for a lock. Shorter than the wait for a lock, so that its holder is seen."""
Submit = Callable[[WorkQueue, Callable[[], Event | None]], None]


class Monitors:
    """The questions of one leadership. `look` from the loop only; answers come in their lanes."""

    def __init__(
        self,
        executor: Executor,
        candidacy: Candidacy,
        ledger: Ledger,
        submit: Submit,
        beat: Callable[[Health, int], Event],
    ) -> None:
        """`submit` does work in a lane, and what it returns becomes an event; `beat` writes the heartbeat."""
        self.progress: Mapping[TransactionAttempt, int] = {}
        """Of the attempts that ran when the executor answered last."""
        self._executor = executor
        self._candidacy = candidacy
        self._ledger = ledger
        self._submit = submit
        self._beat = beat
        self._beating = Question(limits.HEARTBEAT_EVERY_S)
        self._moving = Question(PROGRESS_EVERY_S)
        self._standing = Question(limits.HEARTBEAT_EVERY_S)
        self._locked = Question(limits.HEARTBEAT_EVERY_S)
        self._commit_seen: tuple[tuple[int, int] | None, float] = None, 0.0
        """The try at a commit that is under way, and when it was seen first."""

    def look(self, state: State, now: float) -> list[Event]:
        """Ask what is due at `now`, and report what has not been answered for too long."""
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
            # R16: a server that is stopped, or a network that swallows everything, breaks no connection: no call would
            # come back with an error.
            return [PostgresSilent(message=f"no answer from Postgres for {self._beating.silent_s:.0f} s")]
        return []

    def _look_after_executor(self, state: State, now: float) -> list[Event]:
        """K11: a JVM that is suspended answers no call."""
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
        with suppress(ZooKeeperUnavailable):  # told by the state of the session
            self._candidacy.check_place()
        self._standing.answered()

    def _find_holder(self) -> Event | None:
        try:
            return LockSeen(words=self._ledger.waits_for())
        except PostgresUnavailable:
            return None  # told by the commit itself
        finally:
            self._locked.answered()
