"""Ctrl-C and SIGTERM during the demo: noted immediately, handled between two steps, so that the clean-up is never
interrupted.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class InterruptedDemo(Exception):
    """The demo was asked to end; `exit_code` is 128 and the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Stop:
    """Catches SIGINT, SIGTERM and SIGHUP as a context manager; outside the main thread it catches nothing."""

    def __init__(self) -> None:
        self._number = 0
        self._event = threading.Event()
        self._before: dict[int, Any] = {}

    def check(self) -> None:
        """Raise InterruptedDemo if a signal has come."""
        if self._number:
            raise InterruptedDemo(self._number)

    def wait(self, seconds: float) -> None:
        """Wait until the time is over or a signal comes; on a signal raise InterruptedDemo."""
        self._event.wait(seconds)
        self.check()

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            self._before = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # A second signal changes nothing: the clean-up takes only seconds, and servers that stay running would be
        # worse.
        self._number = self._number or number
        self._event.set()
