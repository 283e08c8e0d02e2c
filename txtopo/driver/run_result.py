"""The result of a run, as a value for the program that started it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that ended without an error: its input was exhausted, or it was asked to stop."""

    topology: str
    ended: Literal["finished", "stopped"]
    """`finished`: the input of a run with `once=True` is committed. `stopped`: by a signal or `txtopo stop`."""
    reason: str
    """Why the run ended, as text."""
    last_txid: int
    """Highest txid in the ledger that this run has seen; 0 before the first batch."""
    batches: int
    """Number of batches that this run committed with their effect."""
    quarantined: int
    """Number of batches that this run quarantined: they have a ledger row but no effect."""
    exit_code: int
    """Exit code for a script: 0, or 129, 130 or 143 after a signal."""
