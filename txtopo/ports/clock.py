"""The clock of a leader. It is an argument, so that a simulation can control the time."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Source of time."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never decreases. Every decision about time uses it."""

    def wait(self, seconds: float) -> None:
        """Block for `seconds` s. The simulated clock does not block, it advances."""

    def age_s(self, stamp_s: float) -> float:
        """Return how many seconds have certainly passed since this machine's clock of the day made a time stamp
        (seconds since 1970); 0 if nothing is certain. A stamp of another machine's clock has no age here.
        """
