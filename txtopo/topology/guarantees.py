"""The guarantee of each pair of a kind of spout and a kind of committer, and whether it satisfies a topology: a pure
table.
"""

from __future__ import annotations

from typing import Literal, get_args

from txtopo.topology.components import Guarantee, SpoutKind

Effects = Literal["transaction", "outside"]

SPOUT_KINDS: tuple[SpoutKind, ...] = get_args(SpoutKind)
EFFECTS: tuple[Effects, ...] = get_args(Effects)
GUARANTEES: tuple[Guarantee, ...] = get_args(Guarantee)

PAIRS: dict[tuple[SpoutKind, Effects], Guarantee] = {
    ("transactional", "transaction"): "exactly_once",
    ("opaque", "transaction"): "exactly_once",
    ("at_least_once", "transaction"): "at_least_once",
    ("at_most_once", "transaction"): "at_most_once",
    ("transactional", "outside"): "at_least_once",
    ("opaque", "outside"): "at_least_once",
    ("at_least_once", "outside"): "at_least_once",
    # The source may lose messages, and a failed attempt may have written outside, which the next attempt repeats.
    ("at_most_once", "outside"): "none",
}
"""The guarantee of each pair."""

_ENOUGH_FOR: dict[Guarantee, frozenset[Guarantee]] = {
    "exactly_once": frozenset({"exactly_once", "at_least_once", "at_most_once", "none"}),
    "at_least_once": frozenset({"at_least_once", "none"}),
    "at_most_once": frozenset({"at_most_once", "none"}),
    "none": frozenset({"none"}),
}
"""Guarantees that satisfy each other one. Losing nothing and repeating nothing are different promises: neither
at_least_once nor at_most_once satisfies the other.
"""

_SPOUT_WHY: dict[SpoutKind, str] = {
    "at_least_once": "its source may give a message twice",
    "at_most_once": "its source may lose a message",
}
_OUTSIDE_WHY = "it also writes to places that a rollback does not undo, so a retried attempt writes again"


def given(kind: SpoutKind, effects: Effects) -> Guarantee:
    """Return the guarantee of a spout of this kind with a committer of these effects."""
    return PAIRS[kind, effects]


def is_enough(guarantee: Guarantee, wanted: Guarantee) -> bool:
    """True if a pair with `guarantee` satisfies a topology that is declared `wanted`."""
    return wanted in _ENOUGH_FOR[guarantee]


def why(spout: str, kind: SpoutKind, committer: str, effects: Effects) -> str:
    """Return which half of a pair weakens the guarantee, and how, in words for the operator; empty if neither does."""
    reasons = [f"spout {spout!r} is {kind}: {_SPOUT_WHY[kind]}"] if kind in _SPOUT_WHY else []
    if effects == "outside":
        reasons.append(f"committer bolt {committer!r} has effects outside: {_OUTSIDE_WHY}")
    return "; ".join(reasons)


def acceptable(kind: SpoutKind, effects: Effects, wanted: Guarantee) -> Guarantee:
    """Return the strongest guarantee that a topology with this pair can declare; the error message names it."""
    pair = given(kind, effects)
    return pair if is_enough(wanted, pair) else "none"
