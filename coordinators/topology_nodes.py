"""Epoch, metadata and attempt ids of one topology in ZooKeeper. Every write checks the version of the epoch node (R2);
metadata is create-only (R3) and removed when it is old (R8).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from txtopo.coordinators import codec
from txtopo.coordinators.codec import EpochNode
from txtopo.coordinators.paths import TopologyPaths
from txtopo.coordinators.read_nodes import TopologyReader
from txtopo.core import limits
from txtopo.core.plan import Plan
from txtopo.core.remedies import rebuild_zookeeper
from txtopo.core.values import Lead
from txtopo.errors import Fenced, Halted, LeadLost, ZooKeeperUnavailable, invariant, unreachable
from txtopo.ports import (
    CheckNode,
    CoordinatorSession,
    CoordinatorView,
    CreateNode,
    DeleteNode,
    NodeExists,
    NodeMissing,
    Operation,
    SetNode,
    VersionDiffers,
)

_Item = TypeVar("_Item")
_TRIES_MAX = 5
"""Limit of rounds of compare-and-set, and of reading back after a refusal."""


class TopologyCoordinator:
    """See `txtopo.ports.Coordinator`. One object serves one candidacy; a new candidacy starts without its memory (R15,
    a step-down discards all state).

    With `opaque` each attempt's plan has a separate node below the node of its batch: a batch may be planned again, but
    a node never changes (R3, metadata is create-only). `record_plans`, `record_attempts` and `checkpoint` cost one
    proposal each, and none if nothing changed.
    """

    def __init__(self, session: CoordinatorSession, topology: str, *, opaque: bool = False) -> None:
        self._session = session
        self._opaque = opaque
        self._topology = topology
        self._paths = TopologyPaths(topology)
        self._reader = TopologyReader(session, topology)
        self._lock = threading.RLock()
        self._lead: Lead | None = None
        self._epoch_version = -1
        self._epoch_unsure = False
        """True if this object sent an epoch write and its reply was lost."""
        self._mark = 0
        self._attempts: dict[int, int] = {}
        self._known: dict[int, set[int] | None] = {}
        """txid -> attempts with a node below it, for txids whose metadata node exists; so cleanup need not list them.
        None instead of the attempts: earlier leaders wrote there, so they must be listed.
        """

    def read(self, plans_above: int = 0) -> CoordinatorView:
        """See the port."""
        return self._reader.read(plans_above)

    # ------------------------------------------------------------------------------------------------------------------

    def write_epoch(self, lead: Lead, system_identifier: str) -> None:
        """See the port. May be repeated with the same lead after ZooKeeperUnavailable."""
        with self._lock:
            invariant(lead.topology == self._topology, f"lead of {lead.topology} for {self._topology}")
            mine = EpochNode(
                epoch=lead.epoch,
                incarnation=lead.incarnation,
                system_identifier=system_identifier,
                owner_nonce=lead.owner_nonce,
            )
            self._epoch_version = self._compare_and_set_epoch(mine)
            self._lead = lead
            # Z8: the epoch write precedes these reads on the same session, so they are as new as it is.
            self._mark, self._attempts = self._reader.counters()
            self._known = dict.fromkeys(self._reader.txids())

    def _compare_and_set_epoch(self, mine: EpochNode) -> int:
        """Write the epoch node (R2); returns the version that every later write checks."""
        for tries_left in reversed(range(_TRIES_MAX)):
            found = self._session.get(self._paths.epoch)
            if found is not None:
                there = codec.decode_epoch(found[0], self._paths.epoch)
                # Another driver has another nonce, so this driver wrote the node. That is possible only if the reply
                # was lost.
                if there == mine and self._epoch_unsure:
                    self._epoch_unsure = False
                    return found[1]
                self._refuse_epoch(there, mine)
            try:
                return self._send_epoch(mine, None if found is None else found[1])
            except (NodeExists, NodeMissing, VersionDiffers):
                continue  # Another driver wrote in between: compare again.
            except ZooKeeperUnavailable:
                self._epoch_unsure = True
                if tries_left == 0:
                    raise
        raise Fenced(f"another driver keeps writing {self._paths.epoch}")

    def _refuse_epoch(self, there: EpochNode, mine: EpochNode) -> None:
        if there.incarnation != mine.incarnation:  # R11
            raise Halted(
                f"{self._paths.epoch} in ZooKeeper is of incarnation {there.incarnation}, Postgres holds "
                f"{mine.incarnation}: "
                "these stores do not belong together; check both addresses",
                next_command="name the stores that belong together",
            )
        if there.epoch >= mine.epoch:  # R2
            raise Fenced(
                f"ZooKeeper has epoch {there.epoch} of {self._topology}, this driver has {mine.epoch}: another "
                f"driver leads"
            )

    def _send_epoch(self, mine: EpochNode, version: int | None) -> int:
        data = codec.encode_epoch(mine)
        if version is not None:
            self._session.multi([SetNode(self._paths.epoch, data, version)])
            return version + 1
        try:
            self._session.create(self._paths.root, b"")
        except NodeExists:
            pass
        try:
            # In one multi: an epoch without the other nodes, or those without an epoch, is damage and not a new
            # topology (Z13).
            self._session.multi(
                [
                    CreateNode(self._paths.epoch, data),
                    CreateNode(self._paths.coordinator, b""),
                    CreateNode(self._paths.mark, codec.encode_mark(0)),
                    CreateNode(self._paths.attempts, codec.encode_attempts({})),
                    CreateNode(self._paths.plans, b""),
                ]
            )
        except NodeExists:
            self._reader.epoch()
            raise
        return 0

    # ------------------------------------------------------------------------------------------------------------------

    def record_plans(self, plans: Sequence[Plan]) -> None:
        """See the port. May be repeated with the same plans after ZooKeeperUnavailable."""
        with self._lock:
            for earlier, later in itertools.pairwise(plans):
                invariant(later.txid == earlier.txid + 1, f"plan {later.txid} comes after {earlier.txid}")
            for plan in plans:
                self._check_plan(plan)
            for part in self._parts(plans):
                self._create_plans(part)

    def restore_plan(self, plan: Plan) -> None:
        """See the port."""
        with self._lock:
            self._check_plan(plan)
            try:
                self._create_plans([plan])
            except LeadLost as error:
                # R9, R17: two stores name two contents for one txid; no driver may choose.
                raise Halted(
                    f"{self._paths.plan(plan.txid)} in ZooKeeper differs from the plan mirrored in Postgres",
                    txid=plan.txid,
                    next_command=rebuild_zookeeper(self._topology),
                ) from error

    def record_attempts(self, attempts: Mapping[int, int]) -> None:
        """See the port. Ids only increase; those of txids up to the mark are removed."""
        with self._lock:
            merged = self._merged(attempts.items())
            if merged != self._attempts:
                self._write([SetNode(self._paths.attempts, codec.encode_attempts(merged))])
                self._attempts = merged

    def drop_plans(self, plans: Mapping[int, bytes]) -> None:
        """See the port."""
        with self._lock:
            self._require_lead()
            if not plans:
                return
            for _ in range(_TRIES_MAX):
                there = self._to_drop(plans)
                parts = self._bounded([DeleteNode(self._paths.plan(txid)) for txid in there], [])
                if len(parts) > 1:
                    raise Halted(
                        f"{len(there)} plans of {self._topology} do not fit one change in ZooKeeper (Z9)",
                        next_command=rebuild_zookeeper(self._topology),
                    )
                try:
                    if there:
                        self._write(parts[0])
                except NodeMissing:
                    continue  # An earlier reply was lost.
                self._forget(plans)
                return
            raise LeadLost(f"metadata below {self._paths.plans} goes away under this driver")

    def _to_drop(self, plans: Mapping[int, bytes]) -> list[int]:
        """Txids of `plans` that still have a node. Raises LeadLost if a node has other bytes than expected, or if
        higher txids exist: nothing else is ever dropped (R3).
        """
        beyond = [txid for txid in self._reader.txids() if txid > max(plans)]
        if beyond:
            raise LeadLost(f"{self._paths.plan(beyond[0])} follows the plans that were to be dropped")
        there = []
        for txid in sorted(plans):
            found = self._session.get(self._paths.plan(txid))
            if found is not None and found[0] != plans[txid]:
                raise LeadLost(f"{self._paths.plan(txid)} holds another plan than the one that was to be dropped")
            if found is not None:
                there.append(txid)
        return there

    def checkpoint(self, last_txid: int, keep_from: int) -> None:
        """See the port."""
        with self._lock:
            # R8: metadata that is not known to be committed is never removed.
            invariant(
                keep_from <= last_txid + 1, f"metadata from {keep_from} on would be kept, {last_txid} is committed"
            )
            for _ in range(_TRIES_MAX):
                try:
                    return self._checkpoint(last_txid, keep_from)
                except NodeMissing:
                    # A missing node was deleted by an earlier call whose reply was lost.
                    self._known = dict.fromkeys(self._reader.txids())
            raise LeadLost(f"metadata below {self._paths.plans} goes away under this driver")

    def _checkpoint(self, last_txid: int, keep_from: int) -> None:
        mark = max(self._mark, last_txid)
        attempts = {txid: attempt for txid, attempt in self._attempts.items() if txid > mark}
        advance: list[Operation] = []
        if mark != self._mark:
            advance.append(SetNode(self._paths.mark, codec.encode_mark(mark)))
        if attempts != self._attempts:
            advance.append(SetNode(self._paths.attempts, codec.encode_attempts(attempts)))
        deletable = sorted(txid for txid in self._known if txid < keep_from)
        gone = [DeleteNode(path) for txid in deletable for path in self._nodes(txid)]
        for part in self._bounded(gone, advance) or ([[]] if advance else []):
            self._write([*advance, *part])
            self._mark, self._attempts, advance = mark, attempts, []
        self._forget(deletable)

    def _nodes(self, txid: int) -> list[str]:
        """Every metadata node of a batch, in an order in which they can be deleted."""
        known = self._known[txid]
        attempts = self._reader.attempts(txid) if known is None else sorted(known)
        return [*(self._paths.cut(txid, attempt) for attempt in attempts), self._paths.plan(txid)]

    def _forget(self, txids: Iterable[int]) -> None:
        for txid in txids:
            self._known.pop(txid, None)

    def _path(self, plan: Plan) -> str:
        return self._paths.cut(plan.txid, plan.cut) if self._opaque else self._paths.plan(plan.txid)

    def _creations(self, plan: Plan) -> list[Operation]:
        """Operations that create the plan's node, and its parent if that does not exist."""
        create: list[Operation] = [CreateNode(self._path(plan), plan.bytes)]
        if self._opaque and plan.txid not in self._known:
            create.insert(0, CreateNode(self._paths.plan(plan.txid), codec.CUTS))
        return create

    def _create_plans(self, plans: Sequence[Plan]) -> None:
        """Create the nodes of `plans` in one multi with the attempt ids (R3, create-only). Nodes that exist are read
        back and compared.
        """
        missing = list(plans)
        for plan in plans:
            if self._opaque and plan.txid in self._known and self._known[plan.txid] is None:
                self._adopt(plan.txid)
        for _ in range(_TRIES_MAX):
            attempts = self._merged((plan.txid, plan.cut) for plan in plans)
            operations = [operation for plan in missing for operation in self._creations(plan)]
            if attempts != self._attempts:
                operations.insert(0, SetNode(self._paths.attempts, codec.encode_attempts(attempts)))
            try:
                if operations:
                    self._write(operations)
            except NodeExists:
                missing = [plan for plan in plans if not self._is_there(plan)]
                continue
            self._attempts = attempts
            for plan in plans:
                cuts = self._known.setdefault(plan.txid, set())
                if self._opaque and cuts is not None:
                    cuts.add(plan.cut)
            return
        raise LeadLost(f"metadata below {self._paths.plans} comes and goes under this driver")

    def _is_there(self, plan: Plan) -> bool:
        """True if the plan's node exists with the same bytes: an earlier reply was lost (Z6). Raises LeadLost if it has
        other bytes: an earlier leader planned this txid, and the next candidacy adopts that plan.
        """
        found = self._session.get(self._path(plan))
        if found is not None and found[0] != plan.bytes:
            raise LeadLost(f"{self._path(plan)} holds another plan than this driver cut")
        if found is None and self._opaque and plan.txid not in self._known:
            self._adopt(plan.txid)
        return found is not None

    def _adopt(self, txid: int) -> None:
        """Note that the parent of a batch's plans exists, maybe with plans of earlier leaders below. Raises LeadLost if
        the node is itself a plan: nothing is ever created below a plan.
        """
        above = self._session.get(self._paths.plan(txid))
        if above is not None and above[0] != codec.CUTS:
            raise LeadLost(f"{self._paths.plan(txid)} holds a plan, where an opaque topology keeps one an attempt")
        if above is not None:
            self._known[txid] = None

    def _write(self, operations: Sequence[Operation]) -> None:
        """The only way to write (R2): the multi is refused if the epoch node has changed since this object wrote it."""
        self._require_lead()
        try:
            self._session.multi([CheckNode(self._paths.epoch, self._epoch_version), *operations])
        except VersionDiffers as error:
            raise self._fenced() from error
        except NodeMissing as error:
            path = error.args[0]
            if path == self._paths.epoch:
                # No epoch is there. Whether another driver leads is decided by the fence in Postgres, at the next
                # candidacy (R1, R11).
                raise LeadLost(f"{path} no longer exists: ZooKeeper was wiped or restored under this leader") from error
            if DeleteNode(path) in operations:
                raise
            raise Halted(
                f"ZooKeeper node {path}, or the node above it, was removed under the leader",
                next_command=rebuild_zookeeper(self._topology),
            ) from error

    # ------------------------------------------------------------------------------------------------------------------

    def _fenced(self) -> Fenced:
        return Fenced(f"{self._paths.epoch} was written by another driver, which leads {self._topology} now")

    def _require_lead(self) -> Lead:
        if self._lead is None:
            unreachable("write_epoch comes before every other write (R2)")
        return self._lead

    def _check_plan(self, plan: Plan) -> None:
        lead = self._require_lead()
        invariant(
            (plan.topology, plan.incarnation) == (lead.topology, lead.incarnation),
            f"plan {plan.txid} of {plan.topology}, incarnation {plan.incarnation}, under the lead of "
            f"{lead.topology}, {lead.incarnation}",
        )
        invariant(
            len(plan.bytes) <= limits.METADATA_BYTES_MAX,
            f"plan {plan.txid} has {len(plan.bytes)} bytes, and a node may have {limits.METADATA_BYTES_MAX} (Z9)",
        )

    def _merged(self, attempts: Iterable[tuple[int, int]]) -> dict[int, int]:
        """The known attempt ids together with `attempts`. Ids never decrease; committed txids need none."""
        merged = dict(self._attempts)
        for txid, attempt in attempts:
            if txid > self._mark:
                merged[txid] = max(attempt, merged.get(txid, 0))
        return merged

    def _parts(self, plans: Sequence[Plan]) -> list[list[Plan]]:
        """Plans in as few multis as possible, each with room for the attempt ids of all."""
        merged = self._merged((plan.txid, plan.cut) for plan in plans)
        fixed: list[Operation] = [SetNode(self._paths.attempts, codec.encode_attempts(merged))]
        sizes = [sum(map(codec.operation_bytes, self._creations(plan))) for plan in plans]
        return self._cut_up(plans, sizes, fixed)

    def _bounded(self, operations: Sequence[Operation], fixed: Sequence[Operation]) -> list[list[Operation]]:
        return self._cut_up(operations, [codec.operation_bytes(operation) for operation in operations], fixed)

    def _cut_up(self, items: Sequence[_Item], sizes: Sequence[int], fixed: Sequence[Operation]) -> list[list[_Item]]:
        """Split `items` into parts whose multi stays below the size limit (Z9), together with the epoch check and
        `fixed`.
        """
        room = limits.MULTI_BYTES_MAX - sum(codec.operation_bytes(o) for o in [CheckNode(self._paths.epoch, 0), *fixed])
        parts: list[list[_Item]] = []
        left = 0
        for item, size in zip(items, sizes, strict=True):
            if not parts or size > left:
                parts.append([])
                left = room
            parts[-1].append(item)
            left -= size
        return parts
