"""How a leader fares, told by its commits and not by its threads: what it waits for, and whether it has stalled. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from txtopo.core.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What the heartbeat says."""

    state: Literal["running", "stalled"]
    """stalled: a batch waits, and for longer than an attempt may go without progress none was committed."""
    problem: str | None
    """What the leader waits for, in words."""
    waiting: Mapping[str, Any]
    """The batch whose turn it is: `txid`, `attempt`, `phase`, `for_s` seconds since the last commit. Empty: no batch waits."""


def health_of(state: State, now: float) -> Health:
    """As seen at `now` (monotonic seconds)."""
    batch = state.lowest
    if batch is None:
        return Health(state="running", problem=state.problem, waiting={})
    txid, since_s = batch.plan.txid, now - state.moved_at
    waiting = {"txid": txid, "attempt": batch.attempt, "phase": batch.phase.value, "for_s": round(since_s, 1)}
    if since_s <= state.rules.message_timeout_s:
        return Health(state="running", problem=state.problem, waiting=waiting)
    problem = f"no batch was committed for {since_s:.0f} s: batch {txid} attempt {batch.attempt} is {batch.phase.value}"
    why = state.problem or (batch.last_failure.message if batch.last_failure is not None else None)
    return Health(state="stalled", problem=f"{problem} ({why})" if why else problem, waiting=waiting)
