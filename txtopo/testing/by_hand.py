"""Work queues for tests that control the progress of a topology: work is done immediately, but an attempt or a commit
ends only when the test releases it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from txtopo.core.events import AttemptEnded, CommitEnded
from txtopo.core.limits import SOURCE_AWAY_MAX_S
from txtopo.core.values import Aborted, Failed, Failure
from txtopo.driver.work_queues import Work, WorkQueue
from txtopo.testing.simulated import SimulatedClock

IDLE_AFTER_S = 2.0
"""Simulated seconds without work after which the run counts as idle."""
BACKOFF_S = 31.0
"""Simulated seconds to wait for a batch that is to be retried: a little more than the longest backoff."""
SOURCE_S = SOURCE_AWAY_MAX_S + 2 * BACKOFF_S
"""Simulated seconds to wait for a source that fails before the run halts."""


Ended = TypeVar("Ended")


class Idle(BaseException):
    """Nothing is left to do except what is held. Ends the runner's loop, which can be started again."""


class HandWorkQueues:
    """All work queues in one thread. Events that end a held phase wait until they are released."""

    def __init__(
        self, clock: SimulatedClock, idle_after: Callable[[], float], works_max: int, in_turn: Callable[[], int | None]
    ) -> None:
        """Create the queues. `in_turn` returns the txid that a piece of work commits, None if it only looks up the
        outcome of a commit. `idle_after` returns for how many seconds without work something may still happen by
        itself. After `works_max` pieces of work the run counts as endless.
        """
        self.clock = clock
        self.works = 0
        """Number of pieces of work since the test last looked."""
        self._works_max = works_max
        self._in_turn = in_turn
        self.refused: dict[int, Failure] = {}
        """By txid, commits that will fail once, without any effect."""
        self.inbox = _HandInbox(self, idle_after)
        self._waiting: deque[tuple[WorkQueue, Work]] = deque()

    def submit(self, queue: WorkQueue, work: Work) -> None:
        self._waiting.append((queue, work))

    def finish(self, queue: WorkQueue) -> None:
        while any(other is queue for other, _ in self._waiting):
            self.work_once()

    def work_once(self) -> WorkQueue | None:
        """Do one piece of work; returns its queue, None if there is none."""
        if not self._waiting:
            return None
        self.works += 1
        if self.works > self._works_max:
            raise RuntimeError(
                f"no end after {self._works_max} pieces of work: hold the phases of an endless input (by_hand=True), "
                f"or allow more (works_max=)"
            )
        queue, work = self._waiting.popleft()
        txid = self._in_turn() if queue is WorkQueue.COMMIT and self.refused else None
        if txid is not None and txid in self.refused:
            self.inbox.put(CommitEnded(outcomes=(Aborted(txid=txid, failure=self.refused.pop(txid)),)))
        else:
            work()
        return queue


class _HandInbox:
    def __init__(self, queues: HandWorkQueues, idle_after: Callable[[], float]) -> None:
        self._queues = queues
        self._idle_after = idle_after
        self._items: deque[Any] = deque()
        self._idle_s = 0.0
        self.holds = False
        """True if phases are held until the test releases them."""
        self.processing: dict[int, AttemptEnded] = {}
        """Attempts whose processing is done and held, by txid."""
        self.commits: dict[int, CommitEnded] = {}
        """Commits that are done and held, by txid."""

    def put(self, item: Any) -> None:
        if isinstance(item, BaseException):
            raise item
        match item:
            case AttemptEnded(outcome=outcome) if self.holds:
                self.processing[outcome.attempt.txid] = item
            case CommitEnded(outcomes=(outcome,)) if self.holds and not isinstance(outcome, Aborted):
                self.commits[outcome.txid] = item
            case _:
                self._items.append(item)

    def get(self, wait_s: float) -> Any | None:
        while not self._items:
            queue = self._queues.work_once()
            if queue is None:
                self._wait(wait_s)
                return None
            if queue not in (WorkQueue.BOOKS, WorkQueue.PLAN, WorkQueue.CLEAN, WorkQueue.PROGRESS, WorkQueue.LOOK):
                self._idle_s = 0.0
        return self._items.popleft()

    def get_another(self) -> Any | None:
        return self._items.popleft() if self._items else None

    def awake(self) -> None:
        """Something was released: idle time starts from now."""
        self._idle_s = 0.0

    def _wait(self, wait_s: float) -> None:
        if self._idle_s >= self._idle_after():
            raise Idle
        self._queues.clock.wait(wait_s)
        self._idle_s += wait_s

    def release_processing(self, txid: int) -> None:
        """Let the processing end with its result. Raises KeyError if it is not held."""
        self._items.append(_released("processing", self.processing, txid))
        self.awake()

    def fail_processing(self, txid: int, failure: Failure) -> None:
        """Let the processing end in a failure instead. Raises KeyError if it is not held."""
        held = _released("processing", self.processing, txid)
        self._items.append(AttemptEnded(outcome=Failed(attempt=held.outcome.attempt, failure=failure)))
        self.awake()

    def release_commit(self, txid: int) -> None:
        """Let the result of the commit arrive. Raises KeyError if it is not held."""
        self._items.append(_released("commit", self.commits, txid))
        self.awake()


def _released(phase: str, held: dict[int, Ended], txid: int) -> Ended:
    """Remove and return what is held of a batch; the KeyError for another batch says what is held."""
    if txid not in held:
        known = f"held is that of {', '.join(map(str, sorted(held)))}" if held else "none is held (by_hand=True, run())"
        raise KeyError(f"the {phase} of batch {txid} is not held: {known}")
    return held.pop(txid)
