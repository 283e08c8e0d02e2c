"""Copies of a reusable plan: each serves one order at a time, so that the signatures of its tasks show whose rows came
back.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from txtopo.spark.jobs import JobContext, Run, over_nothing


class Copy(Protocol):
    """A compiled plan."""

    @property
    def copy(self) -> int:
        """Its number, unique in this process."""


C = TypeVar("C", bound=Copy)

MADE_AT_START = 2
"""Maximum number of copies that are made before the first batch. To make one takes CPU."""
WAIT_S_MAX = 2.0
"""Seconds that a thread waits for a copy, if there are as many as cores; then one is made for it. So many jobs keep the
cores busy, and to make a copy would take their CPU; but a job that stands still must not stop the others.
"""


@dataclass(slots=True)
class _Shared(Generic[C]):
    """A copy that runs over nothing, for several threads."""

    copy: C
    order: int
    users: int = 0
    open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


class Copies(Generic[C]):
    """The copies of one plan: as many as there are cores, or more if threads wait for them. Thread-safe."""

    def __init__(
        self, jobs: JobContext, first: C, make: Callable[[Sequence[Run]], C | None], *, cores: int | None = None
    ) -> None:
        """`make` compiles a further copy for a thread that waits: on behalf of these runs, but not for them alone. It
        returns None if the bolts made another plan this time. `cores`: None for those of the session.
        """
        self.first = first
        """For code that reads the plan."""
        self._jobs = jobs
        self._make = make
        self._cores: int = jobs.spark.sparkContext.defaultParallelism if cores is None else cores
        self._changed = threading.Condition()
        self._free = [first]
        self._count = 1
        self._sharing = threading.Lock()
        self._shared: list[_Shared[C]] = []

    def prepare(self) -> None:
        """Make copies at the start, as many as cores can use but at most MADE_AT_START."""
        with contextlib.ExitStack() as stack:
            for _ in range(min(self._cores, MADE_AT_START)):
                stack.enter_context(self.taken())

    @contextlib.contextmanager
    def taken(self, runs: Sequence[Run] = ()) -> Iterator[C | None]:
        """Yield a copy for the body alone, or None. Raises CancelledError, and what bolts raise when they are called
        for a further copy.
        """
        copy = self._take()
        try:
            if copy is None:
                copy = self._make(runs)
            yield copy
        finally:
            with self._changed:
                if copy is not None:
                    self._free.append(copy)
                else:
                    self._count -= 1
                self._changed.notify()

    def _take(self) -> C | None:
        """Return a free copy, after waiting for it; None if the caller should make one, which counts already."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._free) or self._count < self._cores, WAIT_S_MAX)
            if self._free:
                return self._free.pop()
            self._count += 1
            return None

    @contextlib.contextmanager
    def over_nothing(self) -> Iterator[C | None]:
        """Yield a copy to run over no rows; threads that do so at the same time share those that are free."""
        with self._sharing:
            shared = self._share()
            if shared is not None:
                shared.users += 1
        try:
            if shared is None:
                yield None
                return
            with over_nothing(self._jobs, None, shared.order):
                yield shared.copy
        finally:
            with self._sharing:
                if shared is not None:
                    shared.users -= 1
                    if not shared.users:
                        self._shared.remove(shared)
                        shared.open.close()

    def _share(self) -> _Shared[C] | None:
        with self._changed:
            has_free = bool(self._free)
        if self._shared and not has_free:
            return min(self._shared, key=lambda shared: shared.users)
        signatures = self._jobs.reports.signatures
        with contextlib.ExitStack() as stack:
            copy = stack.enter_context(self.taken())
            if copy is None:
                return None
            number = stack.enter_context(signatures.order("the start"))
            stack.enter_context(signatures.held(copy.copy, number))
            self._shared.append(_Shared(copy, number, open=stack.pop_all()))
        return self._shared[-1]
