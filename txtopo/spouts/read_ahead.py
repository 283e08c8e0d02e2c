"""Reads the contents of the next files in daemon threads, while the planner plans the batches before them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Generic, TypeVar

from txtopo.spouts.settled_files import SettledFile

FILE_BYTES_MIN = 1024 * 1024
"""A smaller file is read by the planner itself: another thread would cost about as much as it saves."""
THREADS_MAX = 4
FILES_MAX = 8
BYTES_MAX = 512 * 1024 * 1024
"""Maximum number of files that are read ahead, and of their bytes together. One file may be larger."""

R = TypeVar("R")


@dataclass(slots=True)
class _Reading(Generic[R]):
    file: SettledFile
    begun: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    result: R | None = None
    """None: not read, or with an error."""


class ReadAhead(Generic[R]):
    """Results of reading files before the planner needs them. Its caller is one thread; any thread may close it.

    An error is no result: the caller then reads the file itself, and raises what that raises. So no error, and no order
    of errors, depends on threads.
    """

    def __init__(
        self, read: Callable[[SettledFile], R], threads: int | None = None, bytes_min: int | None = None
    ) -> None:
        """`read` is called in `threads` threads; None: one for each CPU, at most THREADS_MAX. Smaller files than
        `bytes_min` (None: FILE_BYTES_MIN) are not read ahead.
        """
        self._read = read
        self._bytes_min = FILE_BYTES_MIN if bytes_min is None else bytes_min
        self._threads_max = min(THREADS_MAX, os.cpu_count() or 1) if threads is None else threads
        self._threads = 0
        self._readings: dict[SettledFile, _Reading[R]] = {}
        self._queue: SimpleQueue[_Reading[R] | None] = SimpleQueue()
        self._lock = threading.RLock()

    def taken(self, file: SettledFile, following: Sequence[SettledFile]) -> R | None:
        """Return the result for a file, after waiting for it; None if the caller should read it now.

        Meanwhile threads read the large ones of the `following` files, in this order and within the limits. What was
        read of all other files is forgotten.
        """
        with self._lock:
            reading = self._readings.pop(file, None)
            self._begin(following)
        if reading is None or self._claim(reading):
            return None
        reading.done.wait()
        return reading.result

    def _begin(self, files: Sequence[SettledFile]) -> None:
        before, self._readings = self._readings, {}
        size = 0
        for number, file in enumerate(files[:FILES_MAX]):
            size += file.stat.size
            if number and size > BYTES_MAX:
                break
            if (known := before.pop(file, None)) is not None:
                self._readings[file] = known
            elif file.stat.size >= self._bytes_min and self._has_thread():
                self._readings[file] = _Reading(file)
                self._queue.put(self._readings[file])
        for forgotten in before.values():
            self._claim(forgotten)

    def close(self) -> None:
        """End the threads after their current file. Does not wait for them."""
        with self._lock:
            # The planner may still be in `taken`: it must start no thread that nobody ends.
            threads, self._threads, self._threads_max = self._threads, 0, 0
            self._begin(())
            for _ in range(threads):
                self._queue.put(None)

    def _claim(self, reading: _Reading[R]) -> bool:
        """Return True to one caller alone: it reads the file, or forgets it."""
        with self._lock:
            claimed, reading.begun = not reading.begun, True
        return claimed

    def _has_thread(self) -> bool:
        if self._threads < self._threads_max:
            thread = threading.Thread(target=self._serve, name="txtopo-read-ahead", daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError):  # No room for it: the planner reads everything itself.
                self._threads_max = self._threads
            else:
                self._threads += 1
        return self._threads > 0

    def _serve(self) -> None:
        while (reading := self._queue.get()) is not None:
            if not self._claim(reading):
                continue
            try:
                reading.result = self._read(reading.file)
            except Exception:
                reading.result = None
            finally:
                reading.done.set()
