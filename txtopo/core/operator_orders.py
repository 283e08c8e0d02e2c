"""The meaning of operators' orders for the machine: which batches they name, when they are carried out, what is
answered. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, assert_never

from txtopo.core.events import Action, Answer, Backfill, Cancel, RecordEnd, Redo, RedoCut, Say
from txtopo.core.plan import Plan
from txtopo.core.replacing import replace
from txtopo.core.state import Batch, OrderInWork, Phase, State
from txtopo.core.values import ActionRecord, Failure, Order, Quarantine, TransactionAttempt
from txtopo.errors import unreachable

Step = tuple[State, list[Action]]
_AGAIN = ("redrive", "recompute")
_RESULTS_TOLD = 20
"""Largest number of batches that the answer to a backfill names."""


def take_in_orders(state: State, orders: Iterable[Order]) -> Step:
    """Begin to carry out each order. A known order is ignored, so that receiving it twice changes nothing."""
    actions: list[Action] = []
    for order in orders:
        if order.order_id not in state.orders:
            state, more = _begin(state, order)
            actions += more
    return state, actions


def _begin(state: State, order: Order) -> Step:
    match order.kind:
        case "retry":
            return _begin_retry(state, order)
        case "skip":
            return _begin_skip(state, order)
        case "redrive" | "recompute":
            return _settled(state, OrderInWork(order=order, todo=order.txids))
        case "backfill":
            planned = {plan.txid: plan.backfills or 0 for plan in _backfills(state, order.committer)}
            return _settled(state, OrderInWork(order=order, waiting=planned, seeks=True))
        case "replan":
            return _with_order(state, OrderInWork(order=order)), []
        case "stop":
            return state, []  # The runner carries this order out.
        case _:
            assert_never(order.kind)


def _begin_retry(state: State, order: Order) -> Step:
    """Give failed batches all their attempts again, with their stored metadata; a halt because of one of them is
    cancelled.
    """
    failed = [txid for txid, batch in state.batches.items() if batch.has_failed]
    failed += [txid for txid, known in state.carried.items() if known.last_failure is not None and state.was_cut(txid)]
    named = order.txids or tuple(sorted(failed))
    work = OrderInWork(order=order, waiting={txid: txid for txid in named if _is_known(state, txid)})
    for txid in named:
        if txid not in work.waiting:
            work = _told(work, txid <= state.last_txid, f"batch {txid} {_absent(state, txid)}")
    for txid in work.waiting:
        batch = state.batches.get(txid)
        if batch is None:
            state = _cut_afresh(state, txid)
        elif batch.phase in (Phase.PLANNED, Phase.PROVING):
            state = state.with_batch(
                replace(
                    batch,
                    phase=Phase.PLANNED,
                    processed=None,
                    data_failures=0,
                    other_failures=0,
                    unread=0,
                    runs_alone=0,
                    rows_lost=0,
                    not_before=0.0,
                    last_failure=None,
                )
            )
    if state.halting is not None and state.halting.txid in work.waiting:
        state = replace(state, halting=None)
    return _settled(state, work)


def _is_known(state: State, txid: int) -> bool:
    return txid in state.batches or state.was_cut(txid)


def _cut_afresh(state: State, txid: int) -> State:
    """Give a batch that is to be planned again all its attempts, and plan it immediately."""
    known = state.carried.get(txid)
    if known is None:
        return state
    fresh = replace(
        known, data_failures=0, other_failures=0, unread=0, runs_alone=0, rows_lost=0, not_before=0.0, last_failure=None
    )
    at_once = 0.0 if txid == state.next_txid else state.cut_not_before
    return replace(state, carried={**state.carried, txid: fresh}, cut_not_before=at_once)


def _begin_skip(state: State, order: Order) -> Step:
    """Begin to skip: `apply_skips` condemns the batch when none of its commits is in progress."""
    work = OrderInWork(order=order, waiting={txid: txid for txid in order.txids if _is_known(state, txid)})
    for txid in work.waiting:
        if txid not in state.batches:
            state = _cut_afresh(state, txid)
            if state.halting is not None and state.halting.txid == txid:
                state = replace(state, halting=None)
    for txid in order.txids:
        if txid not in work.waiting:
            # A leader may have died between the quarantine, whose action is logged with it, and the answer.
            words = "is quarantined" if order.acted else _absent(state, txid)
            work = _told(work, order.acted, f"batch {txid} {words}")
    return _settled(state, work)


def _absent(state: State, txid: int) -> str:
    return "is in the ledger already" if txid <= state.last_txid else "is not planned"


def apply_skips(state: State) -> Step:
    """R14: batches that an order skips stop their work and wait, quarantined, until they are next to commit."""
    actions: list[Action] = []
    for work in state.orders.values():
        if work.order.kind != "skip":
            continue
        for txid in work.waiting:
            batch = state.batches.get(txid)
            if batch is None:
                continue  # It is being planned again.
            if batch.quarantine is None and not state.is_in_commit(txid):  # R27
                state, more = _condemn(state, batch, work.order)
                actions += more
    return state, actions


def _condemn(state: State, batch: Batch, order: Order) -> Step:
    txid, current = batch.plan.txid, batch.transaction_attempt
    actions: list[Action] = []
    last_attempt = max(batch.attempt - 1, 0)
    if batch.phase in (Phase.PROCESSING, Phase.PROCESSED):
        last_attempt = batch.attempt
        failure = Failure(kind="infrastructure", message=f"skipped by order {order.order_id}")
        actions.append(RecordEnd(attempt=current, state="cancelled", failure=failure))
    if batch.phase is Phase.PROCESSING:
        state = replace(state, abandoned=state.abandoned | {current})
        actions.insert(0, Cancel(attempt=current))
    quarantine = Quarantine(
        attempt=TransactionAttempt(txid, last_attempt),
        reason=order.reason or f"skipped by order {order.order_id}",
        order_id=order.order_id,
    )
    if state.halting is not None and state.halting.txid == txid:
        state = replace(state, halting=None)
    state = state.with_batch(replace(batch, phase=Phase.QUARANTINED, processed=None, quarantine=quarantine))
    return state, [*actions, Say(message=f"batch {txid} will be quarantined: {quarantine.reason}")]


def redos_again(state: State, discarded: Iterable[int]) -> State:
    """Return the redos that were planned and discarded, to plan them again."""
    gone = set(discarded)
    for work in list(state.orders.values()):
        kind = work.order.kind
        again = [named for txid, named in work.waiting.items() if txid in gone and kind in (*_AGAIN, "backfill")]
        if again:
            waiting = {txid: named for txid, named in work.waiting.items() if txid not in gone}
            work = replace(work, waiting=waiting)
            if kind == "backfill":
                work = replace(work, seeks=True, above=min(work.above, min(again) - 1))
            else:
                work = replace(work, todo=(*sorted(again), *work.todo))
            state = _with_order(state, work)
    return state


def next_redo(state: State) -> Redo | Backfill | None:
    """Return the next batch that an order redoes or counts into a committer: redos first, which are few, then the
    oldest order.
    """
    for order_id in sorted(state.orders):
        work = state.orders[order_id]
        if work.todo:
            again: Literal["redrive", "recompute"] = "redrive" if work.order.kind == "redrive" else "recompute"
            return Redo(order_id=order_id, kind=again, txid=work.todo[0])
    for order_id in sorted(state.orders):
        work = state.orders[order_id]
        if work.seeks:
            committer = work.order.committer or unreachable(f"order {order_id} names no committer")
            planned = tuple(plan.backfills or 0 for plan in _backfills(state, committer))
            return Backfill(order_id=order_id, committer=committer, above=work.above, planned=planned)
    return None


def _backfills(state: State, committer: str | None) -> list[Plan]:
    """Return the plans that are not committed and count a batch into this committer."""
    plans = (batch.plan for batch in state.batches.values())
    return [plan for plan in plans if plan.backfills is not None and plan.committer == committer]


def wants_replan(state: State) -> bool:
    """Return True if there is an order to discard plans."""
    return any(work.order.kind == "replan" for work in state.orders.values())


def redo_cut(state: State, event: RedoCut) -> Step:
    """Record that a redo is planned under a new txid, was planned before, or is not possible."""
    work = state.orders.get(event.redo.order_id)
    if isinstance(event.redo, Backfill):
        return _backfill_cut(state, work, event)
    if work is None:
        return state, []
    txid = event.redo.txid
    work = replace(work, todo=tuple(other for other in work.todo if other != txid))
    new = event.by if event.plan is None else event.plan.txid
    if new is None:
        work = _told(work, False, event.refused or f"batch {txid} cannot be redone")
    elif new in state.batches:
        work = replace(work, waiting={**work.waiting, new: txid})
    else:
        work = _told(work, True, f"batch {txid} was redone already, as batch {new}")
    return _settled(state, work)


def _backfill_cut(state: State, work: OrderInWork | None, event: RedoCut) -> Step:
    """Record what was found: a batch that is planned, one that cannot be counted, or that there is none any more."""
    state = replace(state, input_next=event.plan is not None)
    if work is None:
        return state, []
    # Also those that another order planned, or whose planning was confirmed late: the order ends when they are decided.
    planned = {plan.txid: plan.backfills or 0 for plan in _backfills(state, work.order.committer)}
    work = replace(work, waiting={**planned, **work.waiting})
    if event.named is None:
        work = replace(work, seeks=False)
    else:
        work = replace(work, above=max(work.above, event.named))
    if event.plan is not None:
        work = replace(work, waiting={**work.waiting, event.plan.txid: event.named or 0})
    elif event.refused is not None:
        work = _told(work, False, event.refused)
    return _settled(state, work)


def committed(state: State, batch: Batch) -> Step:
    """Record that a batch is in the ledger: orders that waited for it continue."""
    actions: list[Action] = []
    for work in list(state.orders.values()):
        named = work.waiting.get(batch.plan.txid)
        if named is None:
            continue
        left = {txid: other for txid, other in work.waiting.items() if txid != batch.plan.txid}
        well, words = _outcome(work.order, named, batch)
        work = replace(work, waiting=left)
        if work.order.kind == "backfill" and well:  # they may be many, and none of them is news
            work = replace(work, backfilled=work.backfilled + 1)
        else:
            work = _told(work, well, words)
        state, more = _settled(state, work)
        actions += more
    return state, actions


def _outcome(order: Order, named: int, batch: Batch) -> tuple[bool, str]:
    txid, quarantine = batch.plan.txid, batch.quarantine
    if order.kind == "skip":
        mine = quarantine is not None
        return mine, f"batch {named} is quarantined" if mine else f"batch {named} was committed before the order came"
    what = f"batch {named} is redone as batch {txid}" if order.kind in _AGAIN else f"batch {named} is committed"
    if quarantine is None:
        return True, what
    if order.kind == "backfill":
        return False, f"batch {named} is not counted: its backfill, batch {txid}, is quarantined: {quarantine.reason}"
    whose = f"its redo, batch {txid}," if order.kind in _AGAIN else f"batch {named}"
    return False, f"{whose} is quarantined: {quarantine.reason}"


def failed_again(state: State, txid: int, reason: str) -> Step:
    """Answer retries of a batch whose attempts are used up. Orders to redo stay open: their batch is planned and keeps
    its txid.
    """
    actions: list[Action] = []
    for work in list(state.orders.values()):
        if work.order.kind == "retry" and txid in work.waiting:
            state = replace(state, orders={key: one for key, one in state.orders.items() if one is not work})
            actions.append(_answer(_told(replace(work, waiting={}), False, f"failed again: {reason}")))
    return state, actions


def _told(work: OrderInWork, well: bool, words: str) -> OrderInWork:
    return replace(work, results=(*work.results, (well, words)))


def _with_order(state: State, work: OrderInWork) -> State:
    return replace(state, orders={**state.orders, work.order.order_id: work})


def _settled(state: State, work: OrderInWork) -> Step:
    """Keep the order, or answer it if nothing of it is left."""
    if not work.is_carried_out:
        return _with_order(state, work), []
    left = {key: one for key, one in state.orders.items() if key != work.order.order_id}
    return replace(state, orders=left), [_answer(work)]


def _answer(work: OrderInWork) -> Answer:
    """Return the answer: `done` if all batches succeeded or there was nothing to do; in words, the outcome of each
    batch.
    """
    order, results = work.order, work.results
    done = all(well for well, _ in results)
    words = "; ".join(words for _, words in results) or "nothing to do"
    if order.kind == "backfill":
        words = _backfilled(work)
    action = None
    if order.kind == "retry" and any(well for well, _ in results):
        # Skips and redos are logged with their own commits; the change of a retry is that it was tried again.
        action = ActionRecord(
            command="retry",
            order_id=order.order_id,
            before={"failed": list(order.txids)},
            after={"result": words},
        )
    return Answer(order_id=order.order_id, state="done" if done else "refused", answer=words, action=action)


def _backfilled(work: OrderInWork) -> str:
    """The outcome of a backfill in words, as far as this leader carried it out."""
    committer, failed = work.order.committer, [words for _, words in work.results]
    number = f"{work.backfilled} batch{'' if work.backfilled == 1 else 'es'}"
    if not failed:
        return f"{number} counted into {committer}" if work.backfilled else f"{committer} has counted every batch"
    more = [f"and {len(failed) - _RESULTS_TOLD} more"] if len(failed) > _RESULTS_TOLD else []
    return "; ".join([f"{number} counted into {committer}", *failed[:_RESULTS_TOLD], *more])
