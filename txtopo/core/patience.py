"""Limits of retries while Postgres answers (W5): only a lock is waited for without a limit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from txtopo.core import limits
from txtopo.errors import Patience

_MAX: Mapping[Patience, int | None] = {
    "store": limits.COMMIT_TRIES_MAX,
    "time": limits.TIMEOUT_TRIES_MAX,
    "once": 2,
    "lock": None,
}


@dataclass(frozen=True, slots=True)
class Tries:
    """Consecutive failed tries of one action."""

    counts: Mapping[Patience, int] = field(default_factory=dict)
    heard: int = -1
    """Number of heartbeats that Postgres had answered when the last failure was counted."""
    words: str | None = None
    """Message of the last failure: shown until the action succeeds, even if other actions succeed."""


def tried(tries: Tries, patience: Patience, answered: int, words: str) -> Tries:
    """Return the tries with one more failure. A failure of a store counts once between two heartbeats that Postgres
    answered: while it is unavailable (R16), nothing counts.
    """
    if patience == "lock" or (patience == "store" and tries.heard == answered):
        return replace(tries, words=words)
    counts = {**tries.counts, patience: tries.counts.get(patience, 0) + 1}
    return replace(tries, counts=counts, heard=answered, words=words)


def is_enough(tries: Tries, patience: Patience) -> bool:
    """True if the limit is reached."""
    most = _MAX[patience]
    return most is not None and tries.counts.get(patience, 0) >= most
