"""Lets one thread at a time call the users' functions that build a plan, because they share a session and its catalog
of temporary views.

A bolt may give its input a name (`createOrReplaceTempView`) and read it by that name. If another batch's plan were
built meanwhile, the name, and so the rows, would be that batch's. Only calls exclude each other: Spark plans and runs
their results in parallel.

A call may take long, or never return. A waiting thread shows progress until the call of the holder is abandoned; that
call has a time limit. When it is abandoned, its jobs are cancelled, and if it does not end even then, the lock is taken
from it. What it may still do to the catalog shows in the plan of the next holder (`txtopo.spark.frames.source_nodes`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

from txtopo.spark.jobs import Run, check

GIVEN_UP_S = 15.0
"""Grace period, in seconds, for an abandoned call to end; longer than CANCEL_TRIES_MAX attempts to cancel its jobs
take.
"""
LOOK_AGAIN_S = 0.1
"""Interval, in seconds, at which a waiting thread checks whether its call, or the call of the holder, was abandoned."""


class PlanLock:
    """A lock that passes from thread to thread and can be taken from an abandoned call."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: _Turn | None = None

    @contextlib.contextmanager
    def taken(self, runs: Sequence[Run] = ()) -> Iterator[None]:
        """Acquire the lock and hold it for the body, which builds a plan of these runs; no runs at the start. Raises
        CancelledError.
        """
        turn = _Turn(runs)
        with self._changed:
            while self._holder is not None and not self._holder.is_lost(time.monotonic()):
                check(runs)
                if runs and self._holder.is_timed:
                    runs[0].waited.looks += 1
                self._changed.wait(LOOK_AGAIN_S)
            self._holder = turn
        try:
            check(runs)
            yield
        finally:
            with self._changed:
                if self._holder is turn:
                    self._holder = None
                    self._changed.notify_all()


class _Turn:
    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs
        self._given_up_at: float | None = None

    @property
    def is_timed(self) -> bool:
        """True if the call will be abandoned without progress and has not been yet. Calls at the start are not
        timed.
        """
        return bool(self._runs) and self._given_up_at is None

    def is_lost(self, now: float) -> bool:
        """True if the call was abandoned and its grace period is over."""
        if self._given_up_at is None and any(run.cancelled.is_set() for run in self._runs):
            self._given_up_at = now
        return self._given_up_at is not None and now - self._given_up_at >= GIVEN_UP_S


PLAN_LOCK = PlanLock()
"""The lock of this process, which has one Spark session."""
