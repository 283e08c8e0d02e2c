"""Opaque topologies: what a failed attempt discards, and how its batch and all later ones are planned again. Pure.

A plan begins where the previous batch ends, so a new plan of txid n makes all later plans wrong. Their attempts are
discarded; n and all later txids are planned again, each with a new attempt id, so no tuple is lost between two batches
or counted in both. Batches are only removed from the end of the order, so the remaining plans always form a chain. A
pinned batch is kept: its plan is mirrored and is never replaced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from txtopo.core.events import Action, Cancel, CutFailed, HaltRequired, PlansCut, RecordEnd, RedoCut
from txtopo.core.operator_orders import redos_again
from txtopo.core.plan import Plan
from txtopo.core.replacing import replace
from txtopo.core.state import Batch, Carried, Phase, State
from txtopo.core.values import Failure
from txtopo.errors import invariant

Step = tuple[State, list[Action]]
_CARRIED = [field.name for field in fields(Carried)]
"""Counters that a batch has under the same names."""


def tried_again(state: State, batch: Batch) -> Step:
    """An attempt has failed; `batch` is the starting point of the next one: with the same plan, or, in an opaque
    topology, with new plans for it and all later batches.
    """
    if not state.rules.opaque:
        return state.with_batch(batch), []
    txid = batch.plan.txid
    state, actions = _discard(state, txid + 1, f"batch {txid}, which it follows, failed")
    if state.halting is not None and state.halting.txid > txid:
        state = replace(state, halting=None)  # It will halt for another batch.
    if batch.pinned or not batch.plan.is_input:
        return state.with_batch(batch), actions  # A redo always redoes the same batch.
    state = _taken_out(state, batch, batch.attempt)
    return replace(state, cut_not_before=max(state.cut_not_before, batch.not_before)), actions


def _discard(state: State, first_txid: int, why: str) -> Step:
    """Remove every batch from `first_txid` on, unless it is pinned: its work is cancelled, its results are
    discarded.
    """
    actions: list[Action] = []
    discarded: list[int] = []
    failure = Failure(kind="infrastructure", message=why)
    for txid in range(state.next_txid - 1, first_txid - 1, -1):
        batch = state.batches[txid]
        if batch.pinned:
            break
        attempt = batch.transaction_attempt
        if batch.phase is Phase.PROCESSING:
            actions.append(Cancel(attempt=attempt))
            state = replace(state, abandoned=state.abandoned | {attempt})
        if batch.phase in (Phase.PROCESSING, Phase.PROCESSED):
            actions.append(RecordEnd(attempt=attempt, state="cancelled", failure=failure))
        state = _taken_out(state, batch, batch.attempt + 1)
        discarded.append(txid)
    return redos_again(state, discarded), actions


def _taken_out(state: State, batch: Batch, next_attempt: int) -> State:
    """Remove the last batch; a plan in progress for a later txid is now wrong, and the source is not at its end any
    more.
    """
    txid = batch.plan.txid
    invariant(txid == state.next_txid - 1, f"batch {txid} is not the last one and cannot be cut again alone")
    carried, owed = dict(state.carried), state.owed
    if batch.plan.is_input:
        carried[txid] = carried_of(batch)
        owed |= {txid}
    return replace(
        state.without_batches([txid]),
        next_attempts={**state.next_attempts, txid: max(next_attempt, state.next_attempts.get(txid, 0))},
        carried=carried,
        owed=owed,
        cut_stale=state.cutting,
        cut_dry=False,
        exhausted=False,
    )


def carried_of(batch: Batch) -> Carried:
    """Return the data of a batch that survive its plan."""
    return Carried(**{name: getattr(batch, name) for name in _CARRIED})


def planned(state: State, plan: Plan, source_bytes: int) -> Batch:
    """Return the batch of a new plan, with the data of earlier attempts at its txid."""
    txid, first = plan.txid, state.next_attempts.get(plan.txid, 0)
    if not state.rules.opaque:
        return Batch(plan=plan, attempt=first, source_bytes=source_bytes)
    before = state.batches[txid - 1].plan.digest if txid - 1 in state.batches else state.last_digest
    # R12: a plan that does not follow the current previous batch is neither processed nor mirrored.
    invariant(before is None or plan.previous_digest == before, f"plan {txid} does not follow the plan before it")
    invariant(
        plan.cut >= first, f"plan {txid} was cut for attempt {plan.cut}, and {first} is the first that was never made"
    )
    batch = Batch(plan=plan, attempt=plan.cut, source_bytes=source_bytes)
    known = state.carried.get(txid)
    if known is None or not plan.is_input:
        return batch
    return replace(batch, **{name: getattr(known, name) for name in _CARRIED})


def is_stale(state: State, event: object) -> bool:
    """Return True if this event ends the planning after a discarded plan."""
    planning = isinstance(event, HaltRequired) and event.planning
    return state.cut_stale and (planning or isinstance(event, PlansCut | CutFailed | RedoCut))


def stale_ended(state: State, event: object) -> State:
    """Discard its plans, whose txids are then owed and whose attempt ids are used up: their nodes in ZooKeeper may
    exist.
    """
    plans: tuple[Plan, ...] = ()
    if isinstance(event, PlansCut):
        plans = event.plans
    elif isinstance(event, RedoCut) and event.plan is not None:
        plans = (event.plan,)
    used = {plan.txid: max(plan.cut + 1, state.next_attempts.get(plan.txid, 0)) for plan in plans}
    owed = state.owed | {plan.txid for plan in plans if plan.is_input}
    return replace(state, cutting=False, cut_stale=False, next_attempts={**state.next_attempts, **used}, owed=owed)


@dataclass(slots=True, kw_only=True)
class Recuts:
    """Data that the machine does not have: plans whose recording failed never reach it."""

    _used: dict[int, int] = field(default_factory=dict)
    """By txid, the first attempt id for which no plan can be in ZooKeeper."""

    def use_up(self, plans: Iterable[Plan]) -> None:
        """Mark ids as used: ZooKeeper may hold these plans (Z6: a call that timed out may still happen). Nodes are
        create-only (R3), so the ids are never used for other plans.
        """
        for plan in plans:
            self._used[plan.txid] = max(plan.cut + 1, self._used.get(plan.txid, 0))

    def first_attempt(self, txid: int) -> int:
        """Return the lowest id for a new plan of `txid`, as far as is known here."""
        return self._used.get(txid, 0)

    def forget(self, last_txid: int) -> None:
        """Remove committed txids, which are never planned again."""
        self._used = {txid: attempt for txid, attempt in self._used.items() if txid > last_txid}
