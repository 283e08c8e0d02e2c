"""The output of the demo while it runs, on stderr: sentences with the time, and one line of progress that is redrawn on
a terminal.
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from txtopo.demo.watching import Standing

TERMINAL_EVERY_S = 0.2
PLAIN_EVERY_S = 5.0
BAR = 10
"""Width of the bar; the whole line fits into 79 columns."""


class Storyteller:
    """Every line starts with the seconds since the demo began, in brackets."""

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._began = time.monotonic()
        self._drawn = False
        self._next_at = 0.0
        self._last: tuple[float, int] | None = None
        self._rate = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._began

    def say(self, sentence: str) -> None:
        """Print one line that stays."""
        if self._quiet:
            return
        self.clear()
        print(f"{self._stamp()} {sentence}", file=self._stream, flush=True)

    def progress(self, standing: Standing, batches: int, who: str) -> None:
        """Draw the progress, unless it was drawn a moment ago."""
        now = time.monotonic()
        if self._quiet or now < self._next_at:
            return
        if not self._terminal and standing.committed == (self._last[1] if self._last else 0):
            return
        self._next_at = now + (TERMINAL_EVERY_S if self._terminal else PLAIN_EVERY_S)
        line = f"{self._stamp()} {progress_line(standing, batches, who, self._pace(now, standing.committed))}"
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{line[:width]}", end="", file=self._stream, flush=True)
            self._drawn = True
        else:
            print(line, file=self._stream, flush=True)

    def clear(self) -> None:
        """Remove the drawn line."""
        if self._drawn:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
            self._drawn = False

    def _stamp(self) -> str:
        return f"[{self.elapsed_s:5.1f} s]"

    def _pace(self, now: float, committed: int) -> float:
        """Return batches per second, smoothed; the pace before a pause soon loses its weight."""
        if self._last is not None and now > self._last[0]:
            latest = max(0, committed - self._last[1]) / (now - self._last[0])
            weight = 0.2 if self._terminal else 1.0
            self._rate += weight * (latest - self._rate)
        self._last = (now, committed)
        return self._rate


def progress_line(standing: Standing, batches: int, who: str, rate: float) -> str:
    """Return one line: bar, batches, number in processing, leader, pace."""
    filled = BAR * standing.committed // max(batches, 1)
    bar = "#" * filled + "." * (BAR - filled)
    line = f"{bar} {standing.committed} of {batches} committed, {len(standing.running)} processing, {who}"
    return f"{line}, {rate:.0f}/s" if rate >= 0.5 else line
