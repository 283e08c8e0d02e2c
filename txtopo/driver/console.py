"""Progress of a run on stderr: one line that is redrawn on a terminal, a new line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TextIO

from txtopo.core.state import Phase, State

TERMINAL_EVERY_S = 0.2
PLAIN_EVERY_S = 5.0


class Reporter:
    """Reports to the operator. `say` may be called from any thread, `watch` only from the runner's loop."""

    def __init__(self, topology: str, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._topology = topology
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._next_at = 0.0
        self._shown = ""
        self._trouble: str | None = None
        self._printed = True
        """True if the last text reached the stream."""
        self._started: tuple[float, int] | None = None
        self._last_txid = 0
        self._quarantined = 0
        self._quarantined_in_lead = 0

    def say(self, message: str) -> None:
        """Print one line about a problem, even if the run is quiet."""
        self._clear()
        self._print(f"{self._topology}: {message}\n")

    def note(self, message: str) -> None:
        """Print one line unless the run is quiet."""
        if not self._quiet:
            self.say(message)

    def watch(self, state: State) -> None:
        """Look at the state after a step of the machine, and print the progress if it is due."""
        now = time.monotonic()
        if self._started is None:
            self._started = (now, state.last_txid)
            self._last_txid = state.last_txid
        # A new lead counts from 0.
        newly = state.quarantined - self._quarantined_in_lead
        self._quarantined += newly if newly >= 0 else state.quarantined
        self._quarantined_in_lead = state.quarantined
        if self._quiet or now < self._next_at:
            return
        trouble = state.trouble
        if not self._terminal and state.last_txid == self._last_txid and trouble in (None, self._trouble):
            return
        self._trouble = trouble
        self._next_at = now + (TERMINAL_EVERY_S if self._terminal else PLAIN_EVERY_S)
        self._last_txid = state.last_txid
        self._draw(progress_line(self._topology, state, self._rate(state.last_txid, now)))

    def summary(self, last_txid: int) -> str:
        """Return how many batches this run committed, and in how much time."""
        if self._started is None:
            return f"last txid {last_txid}"
        seconds = time.monotonic() - self._started[0]
        count = last_txid - self._started[1] - self._quarantined
        quarantined = f", {self._quarantined} quarantined (txtopo status {self._topology})" if self._quarantined else ""
        return (
            f"{count} {'batch' if count == 1 else 'batches'} committed{quarantined} in {seconds:.1f} s, last txid "
            f"{last_txid}"
        )

    def close(self) -> None:
        """Clear the progress line of the terminal."""
        self._clear()
        if not self._printed:  # Python would try again at its end, and change the exit code if that fails
            with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())

    def _rate(self, last_txid: int, now: float) -> float:
        started_at, first_txid = self._started or (now, last_txid)
        return (last_txid - first_txid) / max(now - started_at, 0.001)

    def _draw(self, line: str) -> None:
        if self._terminal:
            self._print("\r" + line + " " * max(0, len(self._shown) - len(line)))
            self._shown = line
        else:
            self._print(f"{line}\n")

    def _clear(self) -> None:
        if self._shown:
            self._print("\r" + " " * len(self._shown) + "\r")
            self._shown = ""

    def _print(self, text: str) -> None:
        """Write to the stream. A closed terminal, or a full disk of a log, must not end a run: its results are in
        Postgres.
        """
        self._printed = False
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()
            self._printed = True


def progress_line(topology: str, state: State, rate: float) -> str:
    """Return the state in one line: committed, planned, processing, rate, and what the run waits for."""
    processing = len(state.running - state.abandoned)
    waiting = sum(batch.phase is Phase.PROCESSED for batch in state.batches.values())
    line = (
        f"{topology}: done up to {state.last_txid} of {state.next_txid - 1} planned, {processing} processing, "
        f"{waiting} waiting for their commit, {rate:.1f} batches/s"
    )
    if state.quarantined:
        line += f", {state.quarantined} quarantined"
    return line + (f"; {'waits for ' if state.locked else ''}{state.trouble}" if state.trouble else "")
