"""Copies of a reusable plan: each serves one order at a time, so that the signatures of its tasks show whose rows came
back.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from txtopo.spark.jobs import JobContext, Run, over_nothing


class Copy(Protocol):
    """A compiled plan."""

    @property
    def copy(self) -> int:
        """Its number, unique in this process."""


C = TypeVar("C", bound=Copy)


class Copies(Generic[C]):
    """The copies of one plan: as many as the threads that used it at the same time. Thread-safe."""

    def __init__(self, jobs: JobContext, first: C, make: Callable[[Sequence[Run]], C | None]) -> None:
        """`make` compiles a further copy for a thread that waits: on behalf of these runs, but not for them alone. It
        returns None if the bolts made another plan this time.
        """
        self.first = first
        """For code that reads the plan."""
        self._jobs = jobs
        self._make = make
        self._lock = threading.Lock()
        self._free = [first]
        self._sharing = threading.Lock()
        self._shared: tuple[C, int] | None = None
        self._sharers = 0
        self._open = contextlib.ExitStack()

    @contextlib.contextmanager
    def taken(self, runs: Sequence[Run] = ()) -> Iterator[C | None]:
        """Yield a copy for the body alone, or None. Raises CancelledError, and what bolts raise when they are called
        for a further copy.
        """
        with self._lock:
            found = self._free.pop() if self._free else None
        copy = found if found is not None else self._make(runs)
        try:
            yield copy
        finally:
            if copy is not None:
                with self._lock:
                    self._free.append(copy)

    @contextlib.contextmanager
    def over_nothing(self) -> Iterator[C | None]:
        """Yield a copy to run over no rows; threads that do so at the same time share one."""
        with self._sharing:
            if self._shared is None:
                self._share()
            self._sharers += 1
            shared = self._shared
        try:
            if shared is None:
                yield None
                return
            with over_nothing(self._jobs, None, shared[1]):
                yield shared[0]
        finally:
            with self._sharing:
                self._sharers -= 1
                if not self._sharers:
                    self._shared = None
                    self._open.close()

    def _share(self) -> None:
        signatures = self._jobs.reports.signatures
        with contextlib.ExitStack() as stack:
            copy = stack.enter_context(self.taken())
            if copy is not None:
                number = stack.enter_context(signatures.order("the start"))
                stack.enter_context(signatures.held(copy.copy, number))
                self._shared = copy, number
            self._open = stack.pop_all()
