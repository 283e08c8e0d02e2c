"""A request to another process that is repeated, one at a time. Its answer may be late or never arrive."""

from __future__ import annotations

from typing import Literal

LOOK_S_MAX = 1.0
"""Longest time in seconds between two calls of `look` that counts as silence. If this driver itself was paused, the
other process is not blamed.
"""


class AnswerTimer:
    """Decides when to send the request, and measures how long its answer is overdue. `look` is called from one thread,
    `answered` from any.
    """

    def __init__(self, every_s: float) -> None:
        self.silent_s = 0.0
        """Seconds since the request was sent, if it is not answered yet."""
        self._every_s = every_s
        self._next_at = 0.0
        self._looked_at: float | None = None
        self._open = False

    def look(self, now: float) -> Literal["ask", "late"] | None:
        """Return what is due at `now` (monotonic seconds). "ask": send the request; it counts as sent. "late": there is
        no answer yet; reported at the same interval.
        """
        passed = 0.0 if self._looked_at is None else min(now - self._looked_at, LOOK_S_MAX)
        self._looked_at = now
        self.silent_s = self.silent_s + passed if self._open else 0.0
        if now < self._next_at:
            return None
        self._next_at = now + self._every_s
        if self._open:
            return "late"
        self._open = True
        return "ask"

    def answered(self) -> None:
        """Call this when any answer arrives, also a refusal."""
        self._open = False
