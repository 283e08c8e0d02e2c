"""The clock of a real run: the monotonic clock of this machine, and what is certain about the age of a time stamp."""

from __future__ import annotations

import time

STEP_S = 0.05
"""If the clock of the day and the monotonic clock drift apart by more seconds than this, the clock of the day was set,
or the machine slept.
"""
STAMP_LATE_S = 0.02
"""A time stamp of the kernel may be this many seconds older than the change."""
_READING_S = 0.01
_TRIES_MAX = 5


def _both() -> tuple[float, float] | None:
    """The clock of the day and the monotonic clock at one moment; None if the process was held up between the two."""
    for _ in range(_TRIES_MAX):
        before, day, after = time.monotonic(), time.time(), time.monotonic()
        if after - before < _READING_S:
            return day, before
    return None


class SystemClock:
    """The clocks of this machine. All instances share one beginning: the moment when this module was imported."""

    _known_since = _both()
    """A moment on both clocks, since which the clock of the day was not set."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def age_s(self, stamp_s: float) -> float:
        """See `Clock.age_s`. Only the time since this process began counts: before that the clock of the day may have
        been set, e.g. when the machine started. A stamp from before that is at least as old as the process, whatever
        it says. If the clock is set later, or the machine sleeps, the count begins again.
        """
        now, since = _both(), SystemClock._known_since
        if now is None:
            return 0.0
        if since is None or abs((now[0] - since[0]) - (now[1] - since[1])) > STEP_S:
            SystemClock._known_since = since = now
        return max(0.0, now[0] - max(stamp_s, since[0]) - STAMP_LATE_S)
