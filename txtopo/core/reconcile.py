"""The cross-check of both stores at takeover (R11): the uncommitted plans, those that ZooKeeper lost, and when to halt.
Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from txtopo.core.plan import Plan, read_plan
from txtopo.core.remedies import go_on_from_restored, rebuild_zookeeper
from txtopo.core.values import AttemptRecord
from txtopo.errors import Halted


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """The state with which a new leader continues."""

    plans: tuple[Plan, ...]
    """Uncommitted plans: last + 1, last + 2, …"""
    restore: tuple[Plan, ...]
    """Those of them that ZooKeeper does not have (wiped, or restored from an old snapshot)."""
    mirrored_txid: int
    """Plans up to here are durable in Postgres."""
    next_attempts: Mapping[int, int]
    """The first unused attempt id, by txid; also for txids without a plan that will be planned again."""
    suspects: Mapping[int, int]
    """Txids with an attempt that ended without a verdict -> how often they ran alone with this code and may have ended
    their driver.
    """
    suspects_once: frozenset[int] = frozenset()
    """Those of them that shared such an end once, with others: one death of a driver may affect hundreds."""
    discarded: tuple[Plan, ...] = ()
    """Opaque topologies: the last plan of each uncommitted txid that is planned again. Redos are planned again by their
    orders.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Both stores, read after the epoch was written to both."""

    topology: str
    incarnation: str
    last_txid: int
    last_digest: bytes
    mark: int
    """Highest txid that ZooKeeper knows as committed."""
    coordinator_plans: Mapping[int, bytes]
    mirrored_plans: Sequence[bytes]
    coordinator_attempts: Mapping[int, int]
    attempts: Sequence[AttemptRecord]
    code_hash: bytes
    """Code hash of the new leader."""
    opaque: bool = False
    """True if batches that are not mirrored may be planned again."""
    coordinator_cuts: Mapping[int, Mapping[int, bytes]] = field(default_factory=dict)
    """Plans of opaque batches in ZooKeeper, by txid and attempt."""
    last_epoch: int = 0
    """Epoch that committed `last_txid`."""


def reconcile(stores: Stores) -> Reconciled:
    """Compare the stores; raises Halted with the evidence if they contradict each other."""
    mirrored = {
        plan.txid: plan for plan in (read_plan(bytes(data), "table txtopo.plan") for data in stores.mirrored_plans)
    }
    plans, restore = _pinned(stores, mirrored) if stores.opaque else _uncommitted(stores, mirrored)
    _check_chain(stores, plans)
    planned = None if stores.opaque else {plan.txid for plan in plans}
    suspects, once = _suspects(stores, planned, mirrored.keys())
    return Reconciled(
        plans=tuple(plans),
        restore=tuple(restore),
        mirrored_txid=max(mirrored, default=stores.last_txid),
        next_attempts=_next_attempts(plans, stores),
        suspects=suspects,
        suspects_once=once,
        discarded=_discarded(stores, plans),
    )


def _uncommitted(stores: Stores, mirrored: Mapping[int, Plan]) -> tuple[list[Plan], list[Plan]]:
    plans: list[Plan] = []
    restore: list[Plan] = []
    txid = stores.last_txid + 1
    while txid in mirrored or txid in stores.coordinator_plans:
        plan = mirrored.get(txid)
        if plan is None:
            plan = read_plan(stores.coordinator_plans[txid], _where(stores, txid), rebuild_zookeeper(stores.topology))
        elif not _is_in_zookeeper(stores, plan):
            restore.append(plan)
        plans.append(plan)
        txid += 1
    # Before the check beyond: of batches that Postgres lost, ZooKeeper keeps the last plans and has removed earlier
    # ones.
    _check_mark(stores, txid - 1)
    beyond = sorted(number for number in {*mirrored, *stores.coordinator_plans} if number >= txid)
    if beyond:
        raise _missing(stores, txid, beyond[0])
    if left := [number for number in stores.coordinator_cuts if number >= txid]:
        # The plans of these txids would be in these nodes.
        raise Halted(
            f"{stores.topology}: batch {min(left)} was cut by an opaque spout and is not committed; commit it with "
            f"the code that cut it first",
            txid=min(left),
            next_command="start `txtopo run` with the spout that cut it, until it is committed",
        )
    return plans, restore


def _pinned(stores: Stores, mirrored: Mapping[int, Plan]) -> tuple[list[Plan], list[Plan]]:
    """Return the adopted plans of an opaque topology: only the mirrored ones. All others will be planned again, with
    new attempt ids.

    If Postgres lost commits (P7), ZooKeeper has the plans of the committed batches. A mirrored plan is never replaced,
    so it is the last one.
    """
    plans: list[Plan] = []
    restore: list[Plan] = []
    txid = stores.last_txid + 1
    while txid in mirrored or (txid <= stores.mark and stores.coordinator_cuts.get(txid)):
        plan = mirrored.get(txid)
        if plan is None:
            cuts = stores.coordinator_cuts[txid]
            plan = read_plan(cuts[max(cuts)], _where(stores, txid), rebuild_zookeeper(stores.topology))
        elif not _is_in_zookeeper(stores, plan):
            restore.append(plan)
        plans.append(plan)
        txid += 1
    _check_mark(stores, txid - 1)
    if beyond := [number for number in mirrored if number >= txid]:
        raise _missing(stores, txid, min(beyond))
    if left := [number for number in stores.coordinator_plans if number >= txid]:
        # Their nodes are above those that new plans of these txids would need.
        raise Halted(
            f"{stores.topology}: batch {min(left)} was planned before its spout became opaque and is not committed",
            txid=min(left),
            next_command=f"txtopo replan {stores.topology}",
        )
    return plans, restore


def _discarded(stores: Stores, plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """The last plan of each batch that is to be planned again. A topology that is not opaque has none: plans of an
    opaque spout that are not committed halt it.
    """
    first = stores.last_txid + len(plans) + 1
    last_cuts = {txid: cuts[max(cuts)] for txid, cuts in stores.coordinator_cuts.items() if txid >= first}
    found = (
        read_plan(data, _where(stores, txid), rebuild_zookeeper(stores.topology))
        for txid, data in sorted(last_cuts.items())
    )
    return tuple(plan for plan in found if plan.is_input)


def _missing(stores: Stores, txid: int, beyond: int) -> Halted:
    return Halted(
        f"{stores.topology}: batch {txid} has no plan, but batch {beyond} has one",
        txid=txid,
        next_command=rebuild_zookeeper(stores.topology),
    )


def _is_in_zookeeper(stores: Stores, plan: Plan) -> bool:
    """Return True if ZooKeeper has this plan. Raises Halted if it has another plan than the mirrored one."""
    data = stores.coordinator_cuts.get(plan.txid, {}).get(plan.cut) or stores.coordinator_plans.get(plan.txid)
    if data is not None and data != plan.bytes:
        # R9: both stores have a plan for one txid, and they are different batches.
        raise Halted(
            f"{stores.topology}: batch {plan.txid} is planned differently in ZooKeeper and in Postgres",
            txid=plan.txid,
            next_command=rebuild_zookeeper(stores.topology),
        )
    return data is not None


def _where(stores: Stores, txid: int) -> str:
    return f"metadata of batch {txid} of {stores.topology} in ZooKeeper"


def _check_mark(stores: Stores, known_txid: int) -> None:
    """R11, P7: if Postgres lost commits, all plans to replay them, up to `known_txid` without holes, must exist;
    otherwise raise Halted.
    """
    if stores.mark > known_txid:
        raise Halted(
            f"{stores.topology}: ZooKeeper knows batch {stores.mark} as committed, Postgres has {stores.last_txid} "
            f"and plans up to {known_txid} are left: Postgres was restored to an earlier time, or this is another "
            f"database",
            next_command=go_on_from_restored(stores.topology),
        )


def _check_chain(stores: Stores, plans: Iterable[Plan]) -> None:
    """R12: every plan names the digest of the previous batch, in this incarnation of the topology; otherwise raise
    Halted.
    """
    digest = stores.last_digest
    txid = stores.last_txid
    for plan in plans:
        txid += 1
        if (plan.topology, plan.incarnation, plan.txid) != (stores.topology, stores.incarnation, txid):
            raise Halted(
                f"{stores.topology}: the plan of batch {txid} belongs to another topology or another life of it",
                txid=txid,
                next_command=rebuild_zookeeper(stores.topology),
            )
        if plan.previous_digest != digest:
            raise Halted(
                f"{stores.topology}: the plan of batch {txid} follows another batch {txid - 1} than the one in the "
                f"ledger "
                f"({plan.previous_digest.hex()[:12]}, not {digest.hex()[:12]})",
                txid=txid,
                next_command=rebuild_zookeeper(stores.topology),
            )
        digest = plan.digest


def _next_attempts(plans: Iterable[Plan], stores: Stores) -> dict[int, int]:
    """Return the next attempt ids. Ids never decrease: they are above all that either store has."""
    highest: dict[int, int] = dict(stores.coordinator_attempts)
    for txid, cuts in stores.coordinator_cuts.items():
        highest[txid] = max(highest.get(txid, -1), *cuts)
    for record in stores.attempts:
        txid = record.attempt.txid
        highest[txid] = max(highest.get(txid, -1), record.attempt.attempt)
    fresh = {plan.txid: 0 for plan in plans}
    return {**fresh, **{txid: attempt + 1 for txid, attempt in highest.items() if txid > stores.last_txid}}


def _suspects(stores: Stores, planned: set[int] | None, mirrored: Set[int]) -> tuple[dict[int, int], frozenset[int]]:
    """Return batches with an attempt without a verdict -> how often they ran alone, and those of them that shared such
    an end once.

    `None`: for all txids, since they are planned again. An attempt that began and has no end was running when its
    driver died, or was processed and waited for its commit; that of a mirrored batch was certainly processed, since
    only processed batches are mirrored. Attempts that ran alone count, so that a bolt that ends its process is found:
    only those with this leader's code, since other code may be the remedy and gets as many tries.
    """
    alone: Counter[int] = Counter()
    ends: Counter[int] = Counter()
    seen_alone: set[int] = set()
    last_alone: dict[int, int] = {}
    for record in stores.attempts:
        if record.alone:
            last_alone[record.epoch] = max(record.attempt.txid, last_alone.get(record.epoch, 0))
    for record in stores.attempts:
        txid = record.attempt.txid
        if record.state == "begun" and (planned is None or txid in planned):
            ends[txid] += 1
            if record.alone:
                seen_alone.add(txid)
                may_be = _may_have_ended_its_driver(record, stores, last_alone)
                alone[txid] += may_be and record.code_hash == stores.code_hash
    ends.subtract(mirrored)
    suspects = {txid: alone[txid] for txid, count in ends.items() if count > 0}
    return suspects, frozenset(txid for txid in suspects if txid not in seen_alone and ends[txid] == 1)


def _may_have_ended_its_driver(record: AttemptRecord, stores: Stores, last_alone: Mapping[int, int]) -> bool:
    """Return True if the attempt may have ended its driver. For the next batch to commit: was it the next one since
    then? For later ones: was it the last that began alone?

    An attempt that began alone, and was processed before another began, was waiting when its driver died of another
    cause.
    """
    txid, epoch = record.attempt.txid, record.epoch
    return epoch >= stores.last_epoch if txid == stores.last_txid + 1 else last_alone[epoch] == txid
