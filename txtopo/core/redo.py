"""Which batch a redo redoes, if any: decided from the ledger and the open plans. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from txtopo.core.events import Backfill, Redo
from txtopo.core.plan import Plan, read_plan
from txtopo.core.values import Lacking, LedgerBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class RedoChoice:
    """Exactly one of the three is set."""

    base: LedgerBatch | None = None
    """The batch to redo: its inputs are planned again, its contributions subtracted."""
    by: int | None = None
    """Txid of an existing redo."""
    refused: str | None = None
    """Why nothing is redone."""


def choose_redo(
    redo: Redo, chain: Sequence[LedgerBatch], open_redos: Iterable[tuple[int, int, int | None]]
) -> RedoChoice:
    """Return the batch to redo, the existing redo, or why there is none. A redo is planned only if no applied ledger
    row or open plan does it yet; a recompute redoes the last applied redo of the chain.

    `chain` is the batch with everything in the ledger that redoes it, directly or not; `open_redos` are (redo_of, txid,
    order id) of the uncommitted plans.
    """
    if not chain:
        return RedoChoice(refused=f"batch {redo.txid} is not in the ledger")
    if (backfills := chain[0].backfills) is not None:
        # R32: to redo it would count its input into all other committers too.
        return RedoChoice(refused=f"batch {redo.txid} is a backfill of batch {backfills}: {redo.kind} that one")
    if chain[0].state == "quarantined" and chain[0].redo_of is not None:
        # The batch that it was to redo may have its effect; redoing this one would apply both.
        return RedoChoice(refused=f"batch {redo.txid} is a redo of batch {chain[0].redo_of}: redo that one again")
    known = {batch.txid for batch in chain}
    for redo_of, txid, order_id in open_redos:
        if redo_of in known:
            if order_id == redo.order_id:
                return RedoChoice(by=txid)
            return RedoChoice(refused=f"batch {redo.txid} is being redone as batch {txid} already")
    applied = [batch for batch in chain if batch.state == "applied"]
    mine = [batch for batch in applied if batch.redo_of is not None and plan_of(batch).order_id == redo.order_id]
    if mine:
        return RedoChoice(by=mine[-1].txid)
    if redo.kind == "redrive":
        return _redrive(redo, chain[0], applied)
    if not applied:
        return RedoChoice(refused=f"batch {redo.txid} is quarantined: bring it back with redrive")
    return RedoChoice(base=applied[-1])


def choose_backfill(backfill: Backfill, found: Lacking, plan: Plan | None) -> str | None:
    """Return why the batch that was found is not counted; None: it is. `plan` is its plan, None if retention has
    removed it.
    """
    mine = [txid for txid, order_id, _ in found.tried if order_id == backfill.order_id]
    if mine:  # an earlier leader tried it for this order; another order tries again
        reason = next(reason for txid, _, reason in found.tried if txid == mine[-1])
        return f"batch {found.txid} is not counted: its backfill, batch {mine[-1]}, is quarantined: {reason}"
    if plan is None:
        return f"batch {found.txid} is not counted: its plan was removed by retention"
    return None


def _redrive(redo: Redo, batch: LedgerBatch, applied: Sequence[LedgerBatch]) -> RedoChoice:
    if batch.state == "applied":
        return RedoChoice(refused=f"batch {redo.txid} is not quarantined but applied: recompute it instead")
    if applied:
        return RedoChoice(by=applied[-1].txid)
    return RedoChoice(base=batch)


def plan_of(batch: LedgerBatch) -> Plan:
    """Return its plan, decoded."""
    return read_plan(batch.plan, f"plan {batch.txid} in Postgres")
