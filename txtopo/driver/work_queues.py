"""Work queues: they perform the runner's actions, with threads in production, with one thread in a simulation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item")
Work = Callable[[], None]


class WorkQueue(Enum):
    """One kind of work. The work of one queue is done in order, except for WORK, where several run at the same time."""

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
    """Events for the loop."""

    def put(self, item: Item) -> None:
        """Add an item. Never blocks; also safe in a signal handler."""

    def get(self, wait_s: float) -> Item | None:
        """Return the next item, or None if none arrived within `wait_s` seconds."""

    def get_another(self) -> Item | None:
        """Return the next item if it is there already, else None."""


class WorkQueues(Protocol):
    """Performs work, and owns the inbox for its results."""

    @property
    def inbox(self) -> Inbox[object]:
        """The inbox for results."""

    def submit(self, queue: WorkQueue, work: Work) -> None:
        """Perform `work` in this queue, now or later. Never blocks."""

    def finish(self, queue: WorkQueue) -> None:
        """Wait until all work submitted to this queue is done, at most FINISH_S seconds."""


FINISH_S = 10.0


class ThreadInbox(Generic[Item]):
    """An inbox between threads. It uses SimpleQueue, whose `put` is safe in a signal handler."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Item] = SimpleQueue()
        self._last: Item | None = None

    def end(self, item: Item) -> None:
        """From now on `get` returns only this item. Needs no memory, unlike `put`."""
        self._last = item

    def put(self, item: Item) -> None:
        self._queue.put(item)

    def get(self, wait_s: float) -> Item | None:
        if self._last is not None:
            return self._last
        try:
            return self._queue.get(timeout=wait_s)
        except Empty:
            return self._last

    def get_another(self) -> Item | None:
        try:
            return None if self._last is not None else self._queue.get_nowait()
        except Empty:
            return None


class ThreadWorkQueues:
    """Daemon threads: one for each queue; for WORK `workers`, and `spare` more for workers that were abandoned but have
    not returned.
    """

    def __init__(self, workers: int, spare: int) -> None:
        self.inbox: ThreadInbox[object] = ThreadInbox()
        self._queues: dict[WorkQueue, SimpleQueue[Work | None]] = {queue: SimpleQueue() for queue in WorkQueue}
        self._threads: list[threading.Thread] = []
        for queue in WorkQueue:
            for number in range(workers + spare if queue is WorkQueue.WORK else 1):
                thread = threading.Thread(
                    target=self._serve, args=(queue,), name=f"txtopo-{queue.value}-{number}", daemon=True
                )
                thread.start()
                self._threads.append(thread)

    def submit(self, queue: WorkQueue, work: Work) -> None:
        self._queues[queue].put(work)

    def finish(self, queue: WorkQueue) -> None:
        done = threading.Event()
        self._queues[queue].put(done.set)
        done.wait(FINISH_S)

    def close(self) -> None:
        """End the threads after their current work. Does not wait for them."""
        for thread in self._threads:
            self._queues[WorkQueue(thread.name.split("-")[1])].put(None)

    def _serve(self, queue: WorkQueue) -> None:
        while (work := self._queues[queue].get()) is not None:
            try:
                work()
            except BaseException as error:
                # The thread ends, and nothing submitted to it later is done: the loop must not wait for that.
                self.inbox.end(error)
                return
