"""The ZooKeeper side of one topology: metadata, attempt ids, the epoch, and the queue of candidates for the lead."""

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
    """Id of the life of the topology. None: ZooKeeper holds nothing, because the topology is new or the store was
    wiped.
    """
    epoch: int
    system_identifier: str | None
    """Identifies the Postgres cluster that the topology used when the epoch was written; None if ZooKeeper holds
    nothing. A takeover compares it (R11, both stores are compared at takeover).
    """
    mark: int
    """`currtx`: the highest txid that ZooKeeper knows to be committed. It may be lower than in Postgres."""
    plans: Mapping[int, bytes] = field(default_factory=dict)
    """txid -> bytes of the metadata node."""
    cuts: Mapping[int, Mapping[int, bytes]] = field(default_factory=dict)
    """txid -> attempt -> bytes of the metadata node. Only opaque topologies have them: one plan for each attempt."""
    attempts: Mapping[int, int] = field(default_factory=dict)
    """txid -> highest attempt id begun."""


class Coordinator(Protocol):
    """Metadata, attempt ids and the epoch of one topology in ZooKeeper. Implementations use a CoordinatorSession
    only.
    """

    def read(self, plans_above: int = 0) -> CoordinatorView:
        """Return what ZooKeeper holds. `plans` and `cuts` contain only txids above `plans_above`: thousands of nodes
        may be retained, and each costs a round trip.

        The result may be stale unless `write_epoch` was called before on the same session (Z8, reads may be stale until
        the session writes). Raises Halted with the path if a node cannot be read (Z14, unreadable data never reads as
        "no state").
        """

    def write_epoch(self, lead: Lead, system_identifier: str) -> None:
        """Write the epoch by compare-and-set (R2). Call it before `read`: it is the barrier after which reads are not
        stale.

        From then on every write of this object checks the version of the epoch node in the same multi, and raises
        Fenced if it has changed. Raises Fenced if ZooKeeper already has this epoch or a higher one.
        """

    def record_plans(self, plans: Sequence[Plan]) -> None:
        """Create the metadata nodes of consecutive txids and record the attempt of each, in as few multis as possible.
        Nodes are create-only (R3).

        The attempt is 0. In an opaque topology it is the plan's `cut`, and each attempt of a txid has a separate
        node.

        Durable on return. If a node already exists with the same bytes, this driver wrote it and the reply was lost
        (Z6, a call that timed out may still happen). Raises LeadLost if it has other bytes: the next candidacy adopts
        them. Raises InvariantBroken if a plan is larger than METADATA_BYTES_MAX.
        """

    def restore_plan(self, plan: Plan) -> None:
        """Create the metadata node of a mirrored plan again (R9, the plan is mirrored in Postgres). Does nothing if the
        node exists with the same bytes. Raises Halted if it has other bytes.
        """

    def record_attempts(self, attempts: Mapping[int, int]) -> None:
        """Record the highest attempt id of each uncommitted txid, so that ids never decrease. Attempt 0 needs no
        call.
        """

    def drop_plans(self, plans: Mapping[int, bytes]) -> None:
        """Delete the metadata of these txids, the last ones, in one multi. This is the one exception of R3 (metadata is
        create-only), and only an operator's order (`replan`) may use it.

        `plans` maps each txid to the bytes that were found. Raises LeadLost, without changing anything, if a node has
        other bytes or if higher txids exist. Attempt ids are not removed, so that they never decrease. Nodes that no
        longer exist are ignored. Raises Halted if one multi cannot hold all deletions.
        """

    def checkpoint(self, last_txid: int, keep_from: int) -> None:
        """Advance the mark to `last_txid` and delete the metadata of txids below `keep_from` (R8, when metadata is
        removed). Idempotent: nodes that no longer exist are ignored.
        """


class Candidacy(Protocol):
    """One attempt to become leader, on one session."""

    def enter(self) -> None:
        """Join the queue of candidates."""

    def leader(self) -> str | None:
        """Return the first candidate of the queue as text (`host pid since`), or None if it is this driver."""

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` until this driver is first in the queue. Returns True if it is first, False after the
        timeout. Raises ZooKeeperUnavailable if the session is lost.
        """

    def confirm(self) -> None:
        """Write to this driver's node, with a check of its version. Call it directly before the fence is claimed, so
        that a candidate that was paused does not raise the epoch. Raises LeadLost if the node no longer exists.
        """

    def check_place(self) -> None:
        """Check that this driver's node is still in the queue. Raises LeadLost if somebody removed it while the session
        was alive, ZooKeeperUnavailable if ZooKeeper does not answer.
        """
