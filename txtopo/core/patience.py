"""How often what needs Postgres is tried while Postgres answers (W5): nothing is waited for without end but a lock.
Pure.
"""

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
    """Tries of one thing that failed, one after the other."""

    counts: Mapping[Patience, int] = field(default_factory=dict)
    heard: int = -1
    """How many heartbeats Postgres had answered at the last one that was counted."""
    words: str | None = None
    """What the last one said: it is waited for until one goes through, whatever else does."""


def tried(tries: Tries, patience: Patience, answered: int, words: str) -> Tries:
    """One more failed, with these words. Trouble of a store counts once between two heartbeats that Postgres answered:
    where it is away (R16), nothing counts.
    """
    if patience == "lock" or (patience == "store" and tries.heard == answered):
        return replace(tries, words=words)
    counts = {**tries.counts, patience: tries.counts.get(patience, 0) + 1}
    return replace(tries, counts=counts, heard=answered, words=words)


def is_enough(tries: Tries, patience: Patience) -> bool:
    """True if its limit is reached."""
    most = _MAX[patience]
    return most is not None and tries.counts.get(patience, 0) >= most
