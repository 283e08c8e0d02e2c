"""Ctrl-C, SIGTERM and the end of a terminal (SIGHUP): the first one stops after the batches in processing, the second
one immediately.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from txtopo.errors import Stopped


class StopSignals:
    """Handles SIGINT, SIGTERM and SIGHUP while it is entered. It has no effect outside the main thread.

    A SIGHUP that was ignored before remains ignored, for `nohup`.
    """

    def __init__(self) -> None:
        self._number = 0
        self._call: Callable[[], None] | None = None
        self._event = threading.Event()
        self._before: dict[int, Any] = {}

    @property
    def received(self) -> bool:
        """True if a signal has arrived."""
        return self._number != 0

    @property
    def exit_code(self) -> int:
        """129 after SIGHUP, 130 after SIGINT, 143 after SIGTERM."""
        return 128 + self._number

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`, or until a signal arrives. Returns True if one has arrived."""
        return self._event.wait(seconds)

    @contextmanager
    def call(self, stop: Callable[[], None]) -> Iterator[None]:
        """During this context, the first signal calls `stop`, which must not block."""
        self._call = stop
        if self.received:
            stop()
        try:
            yield
        finally:
            self._call = None

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            numbers = [signal.SIGINT, signal.SIGTERM]
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                numbers.append(signal.SIGHUP)
            self._before = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.received:
            os._exit(128 + number)  # a second signal: everything that matters is durable
        self._number = number
        self._event.set()
        if self._call is not None:
            self._call()
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            raise Stopped(self.exit_code)
