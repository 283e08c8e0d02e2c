"""The clock that a leader works by, handed in so that a simulation can turn it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Time, handed in."""

    def monotonic(self) -> float:
        """Seconds that never go back; what every decision uses."""

    def wait(self, seconds: float) -> None:
        """Let `seconds` pass; the simulated clock only advances."""
