"""Work queues: where the runner's actions are performed, by threads in production, by one thread in a simulation."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from enum import Enum
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item")
Work = Callable[[], None]


class WorkQueue(Enum):
    """One kind of work; the work of one queue is done in order, except for WORK, where several run at once."""

    PLAN = "plan"
    WORK = "work"
    MIRROR = "mirror"
    COMMIT = "commit"
    CLEAN = "clean"
    BOOKS = "books"
    CANCEL = "cancel"
    PROGRESS = "progress"
    LOOK = "look"


class Inbox(Protocol[Item]):
    """Events on their way to the loop."""

    def put(self, item: Item) -> None:
        """Add one; never blocks, also safe in a signal handler."""

    def get(self, wait_s: float) -> Item | None:
        """The next one, or None when none came within `wait_s`."""


class WorkQueues(Protocol):
    """Performs work and holds the inbox that its results go to."""

    @property
    def inbox(self) -> Inbox[object]:
        """Where results go."""

    def submit(self, lane: WorkQueue, work: Work) -> None:
        """Do `work` in that lane, later or at once. Never blocks."""

    def finish(self, lane: WorkQueue) -> None:
        """Wait until what was submitted to this lane is done, at most FINISH_S."""


FINISH_S = 10.0


class ThreadInbox(Generic[Item]):
    """An inbox between threads. A SimpleQueue, because its `put` is safe in a signal handler."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._last: Item | None = None

    def end(self, item: Item) -> None:
        """From now on there is nothing but this. Needs no memory, unlike `put`."""
        self._last = item

    def put(self, item: Item) -> None:
        self._queue.put(item)

    def get(self, wait_s: float) -> Item | None:
        if self._last is not None:
            return self._last
        try:
            return self._queue.get(timeout=wait_s)
        except queue.Empty:
            return self._last


class ThreadWorkQueues:
    """Daemon threads: one for each lane, `workers` for WORK and more when workers were given up but have not come
    back.
    """

    def __init__(self, workers: int, spare: int) -> None:
        self.inbox: ThreadInbox[object] = ThreadInbox()
        self._queues: dict[WorkQueue, queue.SimpleQueue[Work | None]] = {
            lane: queue.SimpleQueue() for lane in WorkQueue
        }
        self._threads: list[threading.Thread] = []
        for lane in WorkQueue:
            for number in range(workers + spare if lane is WorkQueue.WORK else 1):
                thread = threading.Thread(
                    target=self._serve, args=(lane,), name=f"txtopo-{lane.value}-{number}", daemon=True
                )
                thread.start()
                self._threads.append(thread)

    def submit(self, lane: WorkQueue, work: Work) -> None:
        self._queues[lane].put(work)

    def finish(self, lane: WorkQueue) -> None:
        done = threading.Event()
        self._queues[lane].put(done.set)
        done.wait(FINISH_S)

    def close(self) -> None:
        """End the threads once their present work is done; does not wait for them."""
        for thread in self._threads:
            self._queues[WorkQueue(thread.name.split("-")[1])].put(None)

    def _serve(self, lane: WorkQueue) -> None:
        while (work := self._queues[lane].get()) is not None:
            try:
                work()
            except BaseException as error:
                # The thread ends, and what is submitted to it later is never done: the loop must not wait for that.
                self.inbox.end(error)
                return
