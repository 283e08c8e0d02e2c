"""Attempt ids that a planner of opaque batches may not use again, because a plan with them may lie in ZooKeeper. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from txtopo.core.plan import Plan


@dataclass(slots=True, kw_only=True)
class Recuts:
    """What is known here beside what the machine knows: plans whose recording failed never reach it."""

    _used: dict[int, int] = field(default_factory=dict)
    """First attempt id that no plan which may lie in ZooKeeper was cut for, by txid."""

    def use_up(self, plans: Iterable[Plan]) -> None:
        """ZooKeeper may hold these (Z6): their nodes are create-only (R3), so that their ids are never used for other plans."""
        for plan in plans:
            self._used[plan.txid] = max(plan.cut + 1, self._used.get(plan.txid, 0))

    def first_attempt(self, txid: int) -> int:
        """The lowest id that a new cut of `txid` may have, as far as is known here."""
        return self._used.get(txid, 0)

    def forget(self, last_txid: int) -> None:
        """What is committed is not cut again."""
        self._used = {txid: attempt for txid, attempt in self._used.items() if txid > last_txid}
