"""How a run of a topology ended, as a value for the program that started it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that ended without an error: its input is at its end, or somebody asked it to stop."""

    topology: str
    ended: Literal["finished", "stopped"]
    """finished: the input of a run with `once=True` is committed. stopped: by a signal or `txtopo stop`."""
    reason: str
    """In words."""
    last_txid: int
    """Highest txid in the ledger that this run has seen; 0 before the first batch."""
    batches: int
    """Committed by this run with their effect."""
    quarantined: int
    """Given their place in the ledger by this run without any effect."""
    exit_code: int
    """What a script should end with: 0, or 129, 130 or 143 after a signal."""
