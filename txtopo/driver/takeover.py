"""Takes the lead: from "first in the queue" to the state with which the runner continues (R1 and R2, the epoch; R9,
plans are mirrored; R11, both stores are compared).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.plan import Metadata, read_plan
from txtopo.core.reconcile import Reconciled, Stores, reconcile
from txtopo.core.remedies import RUN_AGAIN, rebuild_zookeeper
from txtopo.core.values import ActionRecord, Fence, Lead, Left, Order
from txtopo.driver.changed_committers import check_committers
from txtopo.driver.planner import Planner
from txtopo.errors import (
    BatchDataError,
    ConfigurationError,
    Fenced,
    Halted,
    PostgresUnavailable,
    TopologyError,
    TxtopoError,
)
from txtopo.ports import Candidacy, Claim, Claimed, Coordinator, CoordinatorView, Ledger
from txtopo.topology.components import Topology
from txtopo.topology.queries import check_has_batches

_NO_PLANS = (1 << 63) - 1
"""Higher than every txid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateIdentity:
    """A candidate for the lead. Each candidacy makes a new one (Z4, lock objects cannot be used again)."""

    topology: str
    owner_nonce: str
    new_incarnation: str
    """The incarnation to use if neither store knows the topology."""
    code_hash: bytes
    host: str
    pid: int
    application: str
    description: Mapping[str, Any]
    epoch_seen: int
    """Epoch in the fence row when this driver started; 0: no row."""
    opaque: bool = False
    """True if batches may be planned again, see `is_opaque`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """The lead, and the work that both stores show as not done."""

    lead: Lead
    last_txid: int
    last_digest: bytes
    last_metadata: Metadata | None
    reconciled: Reconciled
    system_identifier: str
    recent: Sequence[Left] = ()
    """See `Claimed.recent`."""
    orders: Sequence[Order] = ()
    """Operators' orders that are still to be carried out, oldest first."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """The description of the topology under the last leader that started its work; empty for a new topology."""
    staging_tables: Sequence[str] | None = None
    """See `Claimed.staging_tables`."""


def is_opaque(topology: Topology) -> bool:
    """True if the spouts of the topology are opaque. Opaque and other spouts cannot be mixed: planning a batch again
    rewinds every spout, and a spout that is not opaque cannot emit the same data again.

    Raises TopologyError if they are mixed.
    """
    by_kind = {item.spout.kind == "opaque": item.name for item in topology.spouts}
    if len(by_kind) > 1:
        raise TopologyError(
            f"{topology.name}: spout {by_kind[True]!r} is opaque and spout {by_kind[False]!r} is not; planning a batch "
            f"again rewinds every spout, and a spout that is not opaque cannot emit the same data again: put them into "
            f"separate topologies"
        )
    return True in by_kind


def check_can_run(topology: Topology) -> None:
    """Raise TopologyError, before anything is started, for a topology that has no batches, or that mixes opaque and
    other spouts.
    """
    check_has_batches(topology)
    is_opaque(topology)


def take_lead(
    identity: CandidateIdentity,
    candidacy: Candidacy,
    coordinator: Coordinator,
    ledger: Ledger,
    say: Callable[[str], None],
) -> Leadership:
    """Claim the fence, write the epoch and compare the stores; returns the lead and the remaining work. May be repeated
    after a crash at any point. Raises Fenced, Halted, LeadLost, StoreUnavailable.
    """
    crash_points.reach(CrashPoint.ELECTED)
    _check_code(identity, ledger)
    with noting_halts(lambda halt: ledger.note_halt(halt)):
        before = coordinator.read(plans_above=_NO_PLANS)
        candidacy.confirm()  # a candidate that was paused must not raise the epoch
        claimed = ledger.claim_fence(  # R1
            Claim(
                topology=identity.topology,
                owner_nonce=identity.owner_nonce,
                code_hash=identity.code_hash,
                epoch_above=before.epoch,
                incarnation=before.incarnation,
                new_incarnation=identity.new_incarnation,
                host=identity.host,
                pid=identity.pid,
                application=identity.application,
                description=identity.description,
                opaque=identity.opaque,
            )
        )
    crash_points.reach(CrashPoint.FENCE_CLAIMED)
    planned_txid = claimed.last_txid + len(claimed.plans)
    with noting_halts(
        lambda halt: ledger.note_end(claimed.lead, "halted", halt.reason, halt.txid, planned_txid, halt.next_command)
    ):
        return _reconcile(identity, before, claimed, coordinator, ledger, say)


@contextmanager
def noting_halts(note: Callable[[Halted], None]) -> Iterator[None]:
    """Record a halt, or a missing privilege, with its reason for `status`, if Postgres is available. The error is
    raised again.
    """
    try:
        yield
    except (Halted, ConfigurationError) as error:
        with suppress(TxtopoError):
            note(error if isinstance(error, Halted) else Halted(str(error), next_command=RUN_AGAIN))
        raise


def _reconcile(
    identity: CandidateIdentity,
    before: CoordinatorView,
    claimed: Claimed,
    coordinator: Coordinator,
    ledger: Ledger,
    say: Callable[[str], None],
) -> Leadership:
    """After the fence is claimed: write the epoch, and make both stores agree on what is planned."""
    _check_cluster(identity.topology, before.system_identifier, claimed.system_identifier)
    coordinator.write_epoch(claimed.lead, claimed.system_identifier)  # R2; what is read from here on is not stale (Z8)
    crash_points.reach(CrashPoint.EPOCH_WRITTEN)
    view = coordinator.read(plans_above=claimed.last_txid)
    after, left = _carry_out_replans(claimed, view, coordinator, ledger, say)
    reconciled = reconcile(  # R11
        Stores(
            topology=identity.topology,
            incarnation=claimed.lead.incarnation,
            last_txid=claimed.last_txid,
            last_digest=claimed.last_digest,
            mark=after.mark,
            coordinator_plans=after.plans,
            mirrored_plans=claimed.plans,
            coordinator_attempts=after.attempts,
            attempts=claimed.attempts,
            code_hash=identity.code_hash,
            opaque=identity.opaque,
            coordinator_cuts=after.cuts,
            last_epoch=claimed.last_epoch,
        )
    )
    if before.incarnation is None and claimed.last_txid > 0:
        say("ZooKeeper knows nothing of this topology: restoring it from Postgres")
    for plan in reconciled.restore:
        coordinator.restore_plan(plan)  # R9
    planned = {plan.txid for plan in reconciled.plans}
    used = {txid: attempt - 1 for txid, attempt in reconciled.next_attempts.items() if attempt > 0 and txid in planned}
    if any(after.attempts.get(txid, -1) < attempt for txid, attempt in used.items()):
        coordinator.record_attempts(used)
    return Leadership(
        lead=claimed.lead,
        last_txid=claimed.last_txid,
        last_digest=claimed.last_digest,
        last_metadata=claimed.last_metadata,
        reconciled=reconciled,
        system_identifier=claimed.system_identifier,
        recent=claimed.recent,
        orders=left,
        description=claimed.description,
        staging_tables=claimed.staging_tables,
    )


def begin(
    leadership: Leadership,
    topology: Topology,
    planner: Planner,
    ledger: Ledger,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Check that spouts and tables of the topology fit what is committed. Raises Halted, ConfigurationError and
    BatchDataError, which are recorded for `status`.

    Only after that, its description and the settings of this run are stored, with the tables in one database
    transaction: a refused topology changes nothing, and audits still use the previous description.
    """
    lead, plans = leadership.lead, leadership.reconciled.plans
    try:
        check_spouts(leadership, topology)
        check_committers(leadership.last_txid, leadership.description, topology)
        planner.open(plans, leadership.reconciled.discarded)
        ledger.prepare_targets(lead, topology.committers, topology.describe(), settings)
    except (Halted, ConfigurationError, BatchDataError) as error:
        txid = error.txid if isinstance(error, Halted) else None
        with suppress(TxtopoError):
            following = error.next_command if isinstance(error, Halted) else RUN_AGAIN
            ledger.note_end(lead, "halted", str(error), txid, leadership.last_txid + len(plans), following)
        raise


def check_spouts(leadership: Leadership, topology: Topology) -> None:
    """Raise Halted if a spout seems to be renamed. Consumed input is recorded under the spout's name, so all of it
    would be counted again.
    """
    if not leadership.last_txid:
        return
    before = leadership.description.get("spouts", {}).keys()
    now = {spout.name for spout in topology.spouts}
    gone, new = sorted(before - now), sorted(now - before)
    if gone and new:
        names, news = ", ".join(gone), ", ".join(new)
        raise Halted(
            f"{topology.name}: spout {names} was removed and {news} is new. If {news} is {names} renamed, its whole "
            "input would be counted again",
            next_command="keep the old name of a renamed spout; if it is another source, start `txtopo run` once with "
            f"both of them, then without {names}",
        )


def _carry_out_replans(
    claimed: Claimed, view: CoordinatorView, coordinator: Coordinator, ledger: Ledger, say: Callable[[str], None]
) -> tuple[CoordinatorView, tuple[Order, ...]]:
    """Carry out `replan` orders, the one exception to R3 (metadata is create-only): under the new epoch, drop the last
    plans, if they were never mirrored.

    The plans are recorded first. So they are dropped once even if the leader dies meanwhile, and nothing planned later
    is dropped. Returns the remaining plans and orders. An order for a batch whose plan was dropped is refused with this
    reason.
    """
    left = {order.order_id: order for order in claimed.orders if order.kind != "replan"}
    mirrored_txid = claimed.last_txid + len(claimed.plans)
    for order in claimed.orders:
        if order.kind != "replan":
            continue
        plans = {txid: data for txid, data in view.plans.items() if txid > mirrored_txid}
        # Plans of opaque topologies stay (R3): every new leader plans what is not mirrored again, so nothing needs to
        # be removed.
        cuts = {txid: found[max(found)] for txid, found in view.cuts.items() if txid > max(mirrored_txid, view.mark)}
        digests = {
            str(txid): read_plan(
                data, f"plan {txid} in ZooKeeper", rebuild_zookeeper(claimed.lead.topology)
            ).digest.hex()
            for txid, data in sorted({**cuts, **plans}.items())
        }
        if order.progress and order.progress != {"dropped": digests}:
            plans, digests = {}, dict(order.progress.get("dropped", {}))
        elif not order.progress:
            ledger.note_progress(claimed.lead, order.order_id, {"dropped": digests})
        coordinator.drop_plans(plans)
        view = replace(view, plans={txid: data for txid, data in view.plans.items() if txid not in plans})
        answer = _replanned(digests)
        action = ActionRecord(command="replan", order_id=order.order_id, before={"plans": digests}, after={"plans": {}})
        ledger.answer_order(claimed.lead, order.order_id, "done", answer, action if digests else None)
        say(answer)
        for other in [one for one in left.values() if one.txids and all(str(txid) in digests for txid in one.txids)]:
            words = f"the plan was dropped by the replan of order {order.order_id}: its inputs are planned again"
            ledger.answer_order(claimed.lead, other.order_id, "refused", words)
            del left[other.order_id]
    return view, tuple(left.values())


def _replanned(digests: Mapping[str, str]) -> str:
    if not digests:
        return "no plan was dropped: all plans are mirrored already; skip such a batch, then redrive it"
    return f"plans of batches {', '.join(digests)} dropped: their inputs are planned again"


def _check_code(identity: CandidateIdentity, ledger: Ledger) -> None:
    """Raise Fenced if a leader with other code took the lead after this driver started (R12: a standby with other code
    does not take the lead unless it was started later).
    """
    fence = _read_fence(ledger)
    if fence is None or fence.code_hash == identity.code_hash or fence.epoch <= identity.epoch_seen:
        return
    raise Fenced(
        f"{identity.topology}: a driver with other code took the lead while this one waited (epoch {fence.epoch}); "
        "start this one again if its code is newer"
    )


def _read_fence(ledger: Ledger) -> Fence | None:
    try:
        return ledger.read_fence()
    except PostgresUnavailable:
        return ledger.read_fence()  # the connection was opened while this driver waited, and may have died since


def _check_cluster(topology: str, before: str | None, now: str) -> None:
    """Raise Halted if the same incarnation is in another Postgres cluster: that is a copy (R11, both stores are
    compared at takeover).
    """
    if before is not None and before != now:
        raise Halted(
            f"{topology}: ZooKeeper belongs to the Postgres cluster {before}, this one is {now}: it was copied or "
            f"restored elsewhere",
            next_command="point --dsn at the old cluster, or use another ZooKeeper chroot",
        )
