"""Comparisons that decide whether a driver may write, and what the ledger means. Pure; the same for Postgres and
memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from txtopo.core.plan import Metadata, read_plan
from txtopo.core.remedies import RESTORE, rebuild_zookeeper
from txtopo.core.values import Aborted, CommitOutcome, Committed, Failure, Fence, Lead
from txtopo.errors import Fenced, Halted, invariant
from txtopo.ports import MirrorEntry

ATTEMPT_STATES = ("failed", "cancelled")
"""How an attempt may end, if it is not applied."""
LIFE_STATES = ("running", "stalled")
"""The states that a leader may report while it leads."""
END_STATES = ("stopped", "finished", "halted")
"""The states that a leader may report when it ends."""
ANSWERS = ("done", "refused")
"""How an operator's order may be closed."""


def compare_lead(fence: Fence | None, lead: Lead) -> Fence:
    """Return the fence if epoch, nonce, incarnation and code hash are those of this driver (R4). Raises Fenced
    otherwise: another driver leads.
    """
    if fence is None:
        raise Fenced(f"topology {lead.topology} has no fence row any more")
    mine = (lead.epoch, lead.owner_nonce, lead.incarnation, lead.code_hash)
    if (fence.epoch, fence.owner_nonce, fence.incarnation, fence.code_hash) != mine:
        raise Fenced(
            f"another driver leads topology {lead.topology}: epoch {fence.epoch}, this driver had {lead.epoch}"
        )
    return fence


def outcome_of(txid: int, digest: bytes, found: bytes | None) -> CommitOutcome:
    """Return what a ledger row read under the fence lock means for an unanswered COMMIT: `found` is its digest, None if
    there is no row. Raises Halted if it is another batch.
    """
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


def outcomes_of_run(plans: Sequence[tuple[int, bytes]], found: Mapping[int, bytes]) -> Sequence[CommitOutcome]:
    """Return what the ledger rows of a commit run, read under the fence lock in one look, mean for its unanswered
    COMMIT (R26): `plans` are its txids and digests, `found` the digests of the rows that exist. Raises Halted if it is
    another batch, or half of the run: a COMMIT leaves all of its rows or none.
    """
    outcomes = [outcome_of(txid, digest, found.get(txid)) for txid, digest in plans]
    missing = [outcome.txid for outcome in outcomes if isinstance(outcome, Aborted)]
    if missing and len(missing) < len(outcomes):
        first, last = plans[0][0], plans[-1][0]
        raise Halted(
            f"the ledger has half of a commit run: of the batches {first} to {last}, which one COMMIT writes together, "
            f"batch {missing[0]} is missing",
            txid=missing[0],
            next_command=RESTORE,
        )
    return outcomes


def other_batch(txid: int, found: bytes, digest: bytes) -> Halted:
    """The error if the ledger has this txid with another batch (R5, three-way compare)."""
    return Halted(
        f"batch {txid} was committed with another plan: digest {found.hex()[:12]} in the ledger, {digest.hex()[:12]} "
        f"here",
        txid=txid,
        next_command=RESTORE,
    )


def check_incarnation(topology: str, in_postgres: str | None, in_zookeeper: str | None) -> None:
    """Raise Halted unless both stores have the same incarnation (R11, both stores are compared at takeover). Only
    ZooKeeper may have lost it.
    """
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
    """Return the metadata in the plan of the highest txid that is not a redo. Raises Halted if it is missing; retention
    never removes it.
    """
    if data is None:
        raise Halted(
            f"the plan of batch {txid} is missing, and the next batch was planned after it",
            txid=txid,
            next_command=RESTORE,
        )
    return read_plan(data, f"plan {txid} in Postgres").metadata


def check_mirrored(txid: int, expected_txid: int, digest: bytes, data: bytes) -> None:
    """Raise Halted unless mirrored plans after the last commit have no gaps, and each matches its digest (R9, the plan
    is mirrored).
    """
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
    """Raise InvariantBroken unless the plans of one call have this incarnation and consecutive txids."""
    for before, entry in zip([None, *entries], entries, strict=False):
        plan = entry.plan
        invariant(
            (plan.topology, plan.incarnation) == (lead.topology, lead.incarnation),
            f"plan {plan.txid} is of another life of {lead.topology}",
        )
        invariant(before is None or plan.txid == before.plan.txid + 1, f"plan {plan.txid} is mirrored out of order")


def check_same(entry: MirrorEntry, found: bytes | None) -> None:
    """Raise Halted unless a mirrored plan equals this one (R9, create-only). Otherwise another driver planned this txid
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
    """The error if a file is planned into a second batch."""
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
    """Return a part of metadata that matches its digest. Raises Halted if it is missing or does not match."""
    if data is None:
        raise Halted(f"the metadata part {digest} is missing in Postgres", next_command=RESTORE)
    if hashlib.sha256(data).hexdigest() != digest:
        raise Halted(f"the metadata part {digest} does not match its digest", next_command=RESTORE)
    return data


def describe_counts(arrived: object, counted: object, results: object, written: object, ignored: object) -> str:
    """Return the sentence for numbers of one committer that disagree (I6, the equations of the counts hold)."""
    return (
        f"its numbers disagree: {arrived} tuples arrived, the rows applied count {counted}; "
        f"{results} result rows were passed to it, {written} written and {ignored} ignored"
    )
