"""Metadata, attempt ids and epoch of one topology in ZooKeeper, and the queue of its candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from txtopo.core.plan import Plan
from txtopo.core.values import (
    Lead,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorView:
    """What ZooKeeper holds of one topology."""

    incarnation: str | None
    """None: nothing there, never used or wiped."""
    epoch: int
    system_identifier: str | None
    """Of the Postgres cluster that the topology lived in when the epoch was written (R11)."""
    mark: int
    """`currtx` - the highest txid known committed; may lag."""
    plans: Mapping[int, bytes] = field(default_factory=dict)
    """Metadata nodes, by txid."""
    cuts: Mapping[int, Mapping[int, bytes]] = field(default_factory=dict)
    """Those of opaque topologies, by txid and by the attempt that they were cut for."""
    attempts: Mapping[int, int] = field(default_factory=dict)
    """Highest attempt id begun, by txid."""


class Coordinator(Protocol):
    """Metadata, attempt ids and epoch of one topology in ZooKeeper, written against a CoordinatorSession."""

    def read(self, plans_above: int = 0) -> CoordinatorView:
        """What there is; of the plans only those of txids above `plans_above`, since kept ones may be thousands and
        each costs a round trip.

        Stale unless `write_epoch` came before on the same session (Z8). Unreadable nodes raise Halted with the path
        (Z14).
        """

    def write_epoch(self, lead: Lead, system_identifier: str) -> None:
        """Compare-and-set the epoch (R2); the barrier before `read`. Raises Fenced when ZooKeeper has this epoch
        already or a newer one.

        From then on every write of this object checks the epoch node's version in the same multi and raises Fenced.
        """

    def record_plans(self, plans: Sequence[Plan]) -> None:
        """Create the metadata nodes of consecutive txids, create-only (R3), and remember the attempt of each, in as few
        multis as fit.

        The attempt is 0; in an opaque topology it is the plan's `cut`, and each cut of a txid has a node of its own.
        Durable on return. A node that is there with the same bytes is mine (a lost reply, Z6). With other bytes: raises
        LeadLost, so that the
        next candidacy adopts what is there. A plan above METADATA_BYTES_MAX is an InvariantBroken.
        """

    def restore_plan(self, plan: Plan) -> None:
        """Put back the metadata of a mirrored plan (R9); there with the same bytes: nothing to do; other bytes:
        Halted.
        """

    def record_attempts(self, attempts: Mapping[int, int]) -> None:
        """Remember the highest attempt id of each uncommitted txid, so that ids never go back. Attempt 0 needs no
        call.
        """

    def drop_plans(self, plans: Mapping[int, bytes]) -> None:
        """R3's one exception, by an operator (`replan`): delete the metadata of these txids, the whole suffix in one
        multi under R2.

        The bytes are those found; raises LeadLost, having changed nothing, where a node has others or more follow
        behind them.
        Attempt ids are kept: they never go back. Nodes that are gone already: nothing. Raises Halted where one multi
        cannot hold them.
        """

    def checkpoint(self, last_txid: int, keep_from: int) -> None:
        """Advance the mark to `last_txid` and delete metadata of txids below `keep_from` (R8). Idempotent; a node that
        is gone is done.
        """


class Candidacy(Protocol):
    """One try to become leader on one session."""

    def enter(self) -> None:
        """Join the queue."""

    def leader(self) -> str | None:
        """Who stands first, in words (`host pid since`), or None if it is me."""

    def wait(self, seconds: float) -> bool:
        """Wait until I stand first, at most `seconds`; True when I do. Raises ZooKeeperUnavailable when the session is
        lost.
        """

    def confirm(self) -> None:
        """Version-checked write to my own node right before the fence is claimed, so that a woken candidate does not
        bump the epoch. Raises LeadLost.
        """

    def check_place(self) -> None:
        """Raise LeadLost when my node is gone from the queue although my session lives: somebody removed it. Raises
        ZooKeeperUnavailable.
        """
