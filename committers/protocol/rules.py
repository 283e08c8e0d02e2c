"""The comparisons that decide whether a driver may write and what the ledger means: pure, the same for Postgres and
memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from txtopo.core.plan import Metadata, read_plan
from txtopo.core.remedies import RESTORE, rebuild_zookeeper
from txtopo.core.values import Aborted, CommitOutcome, Committed, Failure, Fence, Lead
from txtopo.errors import Fenced, Halted, invariant
from txtopo.ports import MirrorEntry

ATTEMPT_STATES = ("failed", "cancelled")
"""How an attempt may end, but for those that are applied."""
LIFE_STATES = ("running", "stalled")
"""The states that a leader may report while it leads."""
END_STATES = ("stopped", "finished", "halted")
"""What its last word may be."""
ANSWERS = ("done", "refused")
"""How an operator's request may be closed."""


def compare_lead(fence: Fence | None, lead: Lead) -> Fence:
    """R4: epoch, nonce, incarnation and code of the fence are those of this driver; otherwise another driver leads."""
    if fence is None:
        raise Fenced(f"topology {lead.topology} has no fence row any more")
    mine = (lead.epoch, lead.owner_nonce, lead.incarnation, lead.code_hash)
    if (fence.epoch, fence.owner_nonce, fence.incarnation, fence.code_hash) != mine:
        raise Fenced(
            f"another driver leads topology {lead.topology}: epoch {fence.epoch}, this driver had {lead.epoch}"
        )
    return fence


def outcome_of(txid: int, digest: bytes, found: bytes | None) -> CommitOutcome:
    """What a ledger row, or its absence, means when it is read under the fence lock."""
    if found is None:
        return Aborted(
            txid=txid,
            failure=Failure(
                kind="infrastructure", message=f"the COMMIT of batch {txid} was not answered and did not happen"
            ),
        )
    if found != digest:
        raise other_batch(txid, found, digest)
    return Committed(txid=txid)


def other_batch(txid: int, found: bytes, digest: bytes) -> Halted:
    """R5: the ledger has this txid, but of another batch."""
    return Halted(
        f"batch {txid} was committed with another plan: digest {found.hex()[:12]} in the ledger, {digest.hex()[:12]} "
        f"here",
        txid=txid,
        next_command=RESTORE,
    )


def check_incarnation(topology: str, in_postgres: str | None, in_zookeeper: str | None) -> None:
    """R11: both stores speak of the same life of the topology. Only ZooKeeper may have lost it."""
    if in_zookeeper is None or in_postgres == in_zookeeper:
        return
    if in_postgres is None:
        raise Halted(
            f"ZooKeeper knows topology {topology} (incarnation {in_zookeeper}) but Postgres does not: is this the "
            f"right database, or was it lost?",
            next_command="name the right database with --dsn, or restore it",
        )
    raise Halted(
        f"topology {topology} is incarnation {in_zookeeper} in ZooKeeper but {in_postgres} in Postgres: one of the "
        f"stores was restored or belongs to another",
        next_command="name the stores that belong together",
    )


def last_metadata(txid: int, data: bytes | None) -> Metadata:
    """Metadata out of the plan of the highest txid that redoes nothing; retention never removes that one."""
    if data is None:
        raise Halted(
            f"the plan of batch {txid} is missing, and the next batch was planned after it",
            txid=txid,
            next_command=RESTORE,
        )
    return read_plan(data, f"plan {txid} in Postgres").metadata


def check_mirrored(txid: int, expected_txid: int, digest: bytes, data: bytes) -> None:
    """R9: mirrored plans after the last commit have no gaps, and each matches its digest."""
    if txid != expected_txid:
        raise Halted(
            f"mirrored plan {expected_txid} is missing, but plan {txid} is there",
            txid=expected_txid,
            next_command=RESTORE,
        )
    if hashlib.sha256(data).digest() != digest:
        raise Halted(
            f"mirrored plan {txid} does not have the digest that was recorded with it", txid=txid, next_command=RESTORE
        )


def check_order(lead: Lead, entries: Sequence[MirrorEntry]) -> None:
    """Plans of one call are of this life of the topology and follow each other."""
    for before, entry in zip([None, *entries], entries, strict=False):
        plan = entry.plan
        invariant(
            (plan.topology, plan.incarnation) == (lead.topology, lead.incarnation),
            f"plan {plan.txid} is of another life of {lead.topology}",
        )
        invariant(before is None or plan.txid == before.plan.txid + 1, f"plan {plan.txid} is mirrored out of order")


def check_same(entry: MirrorEntry, found: bytes | None) -> None:
    """R9: a plan that already exists equals this one byte for byte; otherwise another driver cut this txid
    differently.
    """
    if found != entry.plan.digest:
        raise Halted(
            f"batch {entry.plan.txid} is mirrored in Postgres with another plan: digest "
            f"{found.hex()[:12] if found else None} there, "
            f"{entry.plan.digest.hex()[:12]} here",
            txid=entry.plan.txid,
            next_command=rebuild_zookeeper(entry.plan.topology),
        )


def consumed_twice(topology: str, path: str, before: int, txid: int) -> Halted:
    """A file is input once."""
    return Halted(
        f"{path} is planned into batch {txid}, but batch {before} consumed it already",
        txid=txid,
        next_command=f"txtopo replan {topology}",
    )


def expired_plan(txid: int) -> Halted:
    """The error for a redo of a batch whose plan was removed by retention."""
    return Halted(
        f"the plan of batch {txid} was removed by retention, so the batch cannot be redone",
        txid=txid,
        next_command="withdraw the order (docs/operating.md, An order is open), then start `txtopo run` again",
    )


def checked_part(digest: str, data: bytes | None) -> bytes:
    """Return a piece of metadata that matches its digest. Raises Halted if it does not."""
    if data is None:
        raise Halted(f"the metadata piece {digest} is missing in Postgres", next_command=RESTORE)
    if hashlib.sha256(data).hexdigest() != digest:
        raise Halted(f"the metadata piece {digest} has other content than its digest says", next_command=RESTORE)
    return data


def describe_counts(arrived: object, counted: object, results: object, written: object, ignored: object) -> str:
    """The sentence for numbers of one committer that disagree (I6)."""
    return (
        f"its numbers disagree: {arrived} tuples arrived, the rows applied count {counted}; "
        f"{results} result rows were handed over, {written} written and {ignored} ignored"
    )
