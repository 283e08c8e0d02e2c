"""A request to another process that is repeated, one at a time, and whose answer may be late or never come."""

from __future__ import annotations

from typing import Literal

LOOK_S_MAX = 1.0
"""Longest time between two looks that counts as silence: a driver that was paused itself does not hold it against
others.
"""


class Question:
    """When to ask, and for how long the answer has been due. `look` from one thread, `answered` from any."""

    def __init__(self, every_s: float) -> None:
        self.silent_s = 0.0
        """Seconds for which the answer has been due."""
        self._every_s = every_s
        self._next_at = 0.0
        self._looked_at: float | None = None
        self._open = False

    def look(self, now: float) -> Literal["ask", "late"] | None:
        """What is due at `now` (monotonic seconds): ask, after which the request counts as asked; or report, at the
        same interval, that there is no answer yet.
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
        """An answer has come, be it a refusal."""
        self._open = False
