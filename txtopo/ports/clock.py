"""The clock of a leader. It is an argument, so that a simulation can control the time."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Source of time; never the wall clock."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never decreases. Every decision about time uses it."""

    def wait(self, seconds: float) -> None:
        """Block for `seconds` s. The simulated clock does not block, it advances."""
