"""Opaque topologies: what a failed attempt takes with it, and how its batch and all behind it come to be cut again.
Pure.

A cut begins where the batch before ends, so a new cut of txid n makes every plan behind n wrong. Their attempts are
discarded, n and they are
planned anew from the batch before n, each with a new attempt id, and nothing falls between two batches or into both.
Batches are only ever taken
from the end of the order, so the plans that are left always chain. What is pinned stays: its plan is mirrored and will
not be cut again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace

from txtopo.core.events import Action, Cancel, CutFailed, HaltRequired, PlansCut, RecordEnd, RedoCut
from txtopo.core.operator_orders import redos_again
from txtopo.core.plan import Plan
from txtopo.core.state import Batch, Carried, Phase, State
from txtopo.core.values import Failure
from txtopo.errors import invariant

Step = tuple[State, list[Action]]
_CARRIED = [field.name for field in fields(Carried)]
"""A batch has them all, under the same names."""


def tried_again(state: State, batch: Batch) -> Step:
    """An attempt has failed and `batch` is what its next one starts from: with the same plan, or in an opaque topology
    cut again with all behind it.
    """
    if not state.rules.opaque:
        return state.with_batch(batch), []
    txid = batch.plan.txid
    state, actions = _discard(state, txid + 1, f"batch {txid}, which it follows, failed")
    if state.halting is not None and state.halting.txid > txid:
        state = replace(state, halting=None)  # what it halts over will be another batch
    if batch.pinned or batch.plan.redo_of is not None:
        return state.with_batch(batch), actions  # a redo brings back what it brings back
    state = _taken_out(state, batch, batch.attempt)
    return replace(state, cut_not_before=max(state.cut_not_before, batch.not_before)), actions


def _discard(state: State, first_txid: int, why: str) -> Step:
    """Take every batch from `first_txid` on out, unless it is pinned: its work is cancelled, its results are
    dropped.
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
    """The last batch leaves; what is being cut behind it is wrong now, and the source is not at its end any more."""
    txid = batch.plan.txid
    invariant(txid == state.next_txid - 1, f"batch {txid} is not the last one and cannot be cut again alone")
    carried, owed = dict(state.carried), state.owed
    if batch.plan.redo_of is None:
        carried[txid] = carried_of(batch)
        owed |= {txid}
    return replace(
        state,
        batches={number: other for number, other in state.batches.items() if number != txid},
        next_attempts={**state.next_attempts, txid: max(next_attempt, state.next_attempts.get(txid, 0))},
        carried=carried,
        owed=owed,
        cut_stale=state.cutting,
        cut_dry=False,
        exhausted=False,
    )


def carried_of(batch: Batch) -> Carried:
    """What of a batch outlives its plan."""
    return Carried(**{name: getattr(batch, name) for name in _CARRIED})


def planned(state: State, plan: Plan, source_bytes: int) -> Batch:
    """The batch of a new plan, with what is remembered of earlier attempts at its txid."""
    txid, first = plan.txid, state.next_attempts.get(plan.txid, 0)
    if not state.rules.opaque:
        return Batch(plan=plan, attempt=first, source_bytes=source_bytes)
    before = state.batches[txid - 1].plan.digest if txid - 1 in state.batches else state.last_digest
    # R12: what does not follow the batch before as it is now is neither processed nor mirrored.
    invariant(before is None or plan.previous_digest == before, f"plan {txid} does not follow the plan before it")
    invariant(
        plan.cut >= first, f"plan {txid} was cut for attempt {plan.cut}, and {first} is the first that was never made"
    )
    batch = Batch(plan=plan, attempt=plan.cut, source_bytes=source_bytes)
    known = state.carried.get(txid)
    if known is None or plan.redo_of is not None:
        return batch
    return replace(batch, **{name: getattr(known, name) for name in _CARRIED})


def is_stale(state: State, event: object) -> bool:
    """True if this event ends a cut that follows a discarded plan."""
    planning = isinstance(event, HaltRequired) and event.planning
    return state.cut_stale and (planning or isinstance(event, PlansCut | CutFailed | RedoCut))


def stale_ended(state: State, event: object) -> State:
    """What it planned is dropped and owed, and its attempt ids are used up: their nodes in ZooKeeper are there for
    ever.
    """
    plans: tuple[Plan, ...] = ()
    if isinstance(event, PlansCut):
        plans = event.plans
    elif isinstance(event, RedoCut) and event.plan is not None:
        plans = (event.plan,)
    used = {plan.txid: max(plan.cut + 1, state.next_attempts.get(plan.txid, 0)) for plan in plans}
    owed = state.owed | {plan.txid for plan in plans if plan.redo_of is None}
    return replace(state, cutting=False, cut_stale=False, next_attempts={**state.next_attempts, **used}, owed=owed)


@dataclass(slots=True, kw_only=True)
class Recuts:
    """What is known here beside what the machine knows: plans whose recording failed never reach it."""

    _used: dict[int, int] = field(default_factory=dict)
    """First attempt id that no plan which may lie in ZooKeeper was cut for, by txid."""

    def use_up(self, plans: Iterable[Plan]) -> None:
        """ZooKeeper may hold these (Z6): their nodes are create-only (R3), so that their ids are never used for other
        plans.
        """
        for plan in plans:
            self._used[plan.txid] = max(plan.cut + 1, self._used.get(plan.txid, 0))

    def first_attempt(self, txid: int) -> int:
        """The lowest id that a new cut of `txid` may have, as far as is known here."""
        return self._used.get(txid, 0)

    def forget(self, last_txid: int) -> None:
        """What is committed is not cut again."""
        self._used = {txid: attempt for txid, attempt in self._used.items() if txid > last_txid}
