"""The health of a leader, derived from its commits and not from its threads: what it waits for, and whether it has
stalled. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from txtopo.core.state import State
from txtopo.core.unreadable import waiting_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health part of a heartbeat."""

    state: Literal["running", "stalled"]
    """stalled: a batch waits, and no batch was committed for longer than an attempt may take without progress."""
    problem: str | None
    """What the leader waits for, in words."""
    waiting: Mapping[str, Any]
    """The next batch to commit: `txid`, `attempt`, `phase`, `for_s` seconds since the last commit. Empty: no batch
    waits.
    """


def health_of(state: State, now: float) -> Health:
    """Return the health at `now` (monotonic seconds)."""
    known = state.trouble or waiting_for(state)
    txid, since_s = state.last_txid + 1, now - state.moved_at
    batch, again = state.lowest, state.carried.get(txid)
    if batch is not None:
        attempt, phase, failure = batch.attempt, batch.phase.value, batch.last_failure
    elif state.owed:  # In an opaque topology.
        failure = again.last_failure if again is not None else None
        attempt, phase = state.next_attempts.get(txid, 0), "to be cut again"
    else:
        return Health(state="running", problem=known, waiting={})
    waiting = {"txid": txid, "attempt": attempt, "phase": phase, "for_s": round(since_s, 1)}
    if since_s <= state.rules.message_timeout_s:
        return Health(state="running", problem=known, waiting=waiting)
    problem = f"no batch was committed for {since_s:.0f} s: batch {txid} attempt {attempt} is {phase}"
    why = known or (failure.message if failure is not None else None)
    return Health(state="stalled", problem=f"{problem} ({why})" if why else problem, waiting=waiting)
