"""What the planner of an opaque topology remembers so that it can cut again from any uncommitted batch on. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from txtopo.core.plan import Metadata, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a cut goes on."""

    last: Plan | None
    """The plan before, None: what was learned when the lead was taken."""
    input: Mapping[str, Metadata] | None
    """Metadata of the newest plan before that redoes nothing; None likewise."""


@dataclass(slots=True, kw_only=True)
class Recuts:
    """The plans of one leadership that are not known to be committed, each with the place that it was cut at."""

    _cuts: dict[int, tuple[Place, Plan]] = field(default_factory=dict)
    _used: dict[int, int] = field(default_factory=dict)
    """First attempt id that no plan which may lie in ZooKeeper was cut for, by txid."""

    def remember(self, plan: Plan, place: Place) -> None:
        """`plan` was cut at `place`, or found there."""
        self._cuts[plan.txid] = (place, plan)

    def use_up(self, plans: Iterable[Plan]) -> None:
        """ZooKeeper may hold these (Z6): their nodes are create-only, so that their ids are never used for other plans."""
        for plan in plans:
            self._used[plan.txid] = max(plan.cut + 1, self._used.get(plan.txid, 0))

    def first_attempt(self, txid: int) -> int:
        """The lowest id that a new cut of `txid` may have, as far as is known here."""
        return self._used.get(txid, 0)

    def go_back(self, first_txid: int, last_txid: int) -> Place | None:
        """Forget the plans from `first_txid` on, and what is committed (`last_txid`); returns where to cut, None where the end has not moved."""
        gone = sorted(txid for txid in self._cuts if txid >= first_txid)
        place = self._cuts[gone[0]][0] if gone else None
        self.use_up(self._cuts[txid][1] for txid in gone)
        self._cuts = {txid: cut for txid, cut in self._cuts.items() if last_txid < txid < first_txid}
        self._used = {txid: attempt for txid, attempt in self._used.items() if txid > last_txid}
        return place

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Those that are left, in order."""
        return tuple(self._cuts[txid][1] for txid in sorted(self._cuts))
