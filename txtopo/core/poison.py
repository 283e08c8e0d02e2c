"""What happens to a batch that keeps failing: whose fault it is, with proof, then a halt or its quarantine. Pure."""

from __future__ import annotations

import re

from txtopo.core import limits
from txtopo.core.backoff import backoff_s
from txtopo.core.events import Action, Proven, Say
from txtopo.core.opaque_replanning import tried_again
from txtopo.core.operator_orders import failed_again
from txtopo.core.remedies import RUN_AGAIN
from txtopo.core.replacing import replace
from txtopo.core.state import Batch, Halting, Phase, ProofOf, State
from txtopo.core.values import Failure, Left, Processed, Quarantine, TransactionAttempt, cause_of

Step = tuple[State, list[Action]]
_FAULT = re.compile(r"^data \([^)]*\) in\b")


def with_cause(failure: Failure) -> Failure:
    """Return the failure with a cause (W7): its own, otherwise its component and kind. Words decide nothing: they have
    values in them.
    """
    if failure.cause is not None:
        return failure
    return replace(failure, cause=cause_of(failure.component, failure.kind, None))


def same_cause(stored: str, found: str | None) -> bool:
    """Return True if two failures have one cause. Release 0.1.0 stored no fault with a cause: such a cause is equal to
    one with any fault, so that the row of batches does not start again at an upgrade.

    >>> same_cause("data in files", "data (file changed) in files")
    True
    >>> same_cause("data (line too long) in files", "data (file changed) in files")
    False
    """
    if found is None or stored == found:
        return stored == found
    plain = _FAULT.sub("data in", stored.replace("BatchDataError in", "data in")), _FAULT.sub("data in", found)
    return plain[0] == plain[1] and _FAULT.match(stored) is None


def used_up(state: State, batch: Batch, failure: Failure, step: ProofOf, processed: Processed | None = None) -> Step:
    """The attempts of `batch`, the starting point of its next one, are used up by `failure` in this step: `on_poison`
    decides.
    """
    if state.rules.on_poison == "quarantine_batch":
        # W4: only a batch that is proven to be at fault is quarantined.
        return state.with_batch(
            replace(batch, phase=Phase.PROVING, proof_of=step, processed=processed, not_before=0.0)
        ), []
    helps = failure.kind == "data" and step == "processing" and not failure.of_whole
    if state.rules.on_poison == "dead_letter_rows" and helps and not batch.dead_letter:
        words = f"batch {batch.plan.txid}: {what_failed(batch, failure)}; again without the records that fail"
        state, more = tried_again(state, replace(batch, dead_letter=True))
        return state, [Say(message=words), *more]
    reason = f"batch {batch.plan.txid} of {state.topology}: {what_failed(batch, failure)}"
    return halted_at(state, batch, reason, failure.next_command)


def nobodys_fault(state: State, batch: Batch, failure: Failure) -> Step:
    """W2: every batch would fail in the same way, so none is retried or quarantined, and `skip` is not suggested."""
    where = f" in {failure.component}" if failure.component else ""
    reason = f"batch {batch.plan.txid} of {state.topology} failed{where}, and no batch is at fault: {failure.message}"
    return halted_at(state, batch, reason, failure.next_command or RUN_AGAIN)


def halted_at(state: State, batch: Batch, reason: str, next_command: str | None = None) -> Step:
    """Commit the batches below, then halt. Orders that wait for an attempt of this batch are answered.

    If a lower batch halts already, that halt comes first. When an order cancels it, this batch is tried again and halts
    itself.
    """
    txid = batch.plan.txid
    halting = Halting(txid=txid, reason=reason, next_command=next_command or f"txtopo show {state.topology} {txid}")
    state, actions = failed_again(state, txid, reason)
    if state.halting is None or txid < state.halting.txid:
        state = replace(state, halting=halting)
    batch = replace(batch, phase=Phase.PLANNED, processed=None, quarantine=None, not_before=0.0)
    state, more = tried_again(state, batch)
    return state, actions + more


def proven(state: State, event: Proven, now: float, chance: float) -> Step:
    """W4: the failed step was tried on input that is known to be good. A batch that has moved on meanwhile is not
    changed.
    """
    state = replace(state, proving=state.proving - {event.txid})
    batch, failure = state.batches.get(event.txid), event.failure
    if batch is None or batch.phase is not Phase.PROVING:
        return state, []
    if failure is None:
        return _poisoned(state, batch)
    if failure.kind == "infrastructure":
        tries = batch.proof_tries + 1
        if tries >= limits.COMMIT_TRIES_MAX:
            unknown = f"whether it is at fault could not be found out, {tries} times: {failure.message}"
            return nobodys_fault(state, batch, replace(failure, message=unknown))
        return state.with_batch(replace(batch, proof_tries=tries, not_before=now + backoff_s(tries, chance))), []
    what = "over no rows at all" if batch.proof_of == "processing" else "of rows that are known to be good"
    words = replace(failure, message=f"{failure.message} (the same {batch.proof_of} {what} fails too)")
    return nobodys_fault(state, batch, words)


def _poisoned(state: State, batch: Batch) -> Step:
    """R14: the batch gets a ledger row without effect, and later batches do not wait."""
    failure = batch.last_failure or Failure(kind="data", message="unknown")
    reason = what_failed(batch, failure)
    last, cause = TransactionAttempt(batch.plan.txid, batch.attempt - 1), with_cause(failure).cause
    quarantine = Quarantine(attempt=last, reason=reason, cause=cause)
    state = state.with_batch(replace(batch, phase=Phase.QUARANTINED, processed=None, quarantine=quarantine))
    return state, [Say(message=f"batch {batch.plan.txid} will be quarantined: {reason}")]


def too_many_quarantined(state: State) -> Step:
    """W7, W8: halt if the next batch to commit would be one quarantine too many. Decided at that batch, before its plan
    is mirrored, so that it does not depend on which worker failed first.

    While its COMMIT is in progress, or unknown, this was decided before: only a commit changes the counts, so the
    answer would be the same.
    """
    batch = state.lowest
    if batch is None or batch.phase is not Phase.QUARANTINED or state.unresolved or state.committing:
        return state, []
    quarantine = batch.quarantine
    if quarantine is None or quarantine.order_id is not None:
        return state, []  # An operator's decision.
    if state.halting is not None and state.halting.txid <= batch.plan.txid:
        return state, []
    reason = _too_many(state, quarantine)
    if reason is None:
        return state, []
    txid, name = batch.plan.txid, state.topology
    left = " ".join(str(one.txid) for one in state.recent if one.cause is not None)
    again = (
        f"fix what it names, then `txtopo run` again{f', then txtopo redrive {name} {left}' if left else ''}; "
        f"where the data itself is bad: txtopo skip {name} {txid}"
    )
    return halted_at(state, batch, f"batch {txid} of {name}: {reason}; it failed so: {quarantine.reason}", again)


def _too_many(state: State, quarantine: Quarantine) -> str | None:
    most = state.rules.quarantined_in_row_max
    row: list[int] = []
    for one in reversed(state.recent):
        if one.cause is None or not same_cause(one.cause, quarantine.cause):
            break
        row.insert(0, one.txid)
    setting = f"(topology.quarantined.in.row.max is {most})"
    if len(row) + 1 >= most:
        before = f" after {', '.join(map(str, row))}" if row else ""
        return (
            f"it would be number {len(row) + 1} in a row{before} to be quarantined for one cause, {quarantine.cause} "
            f"{setting}"
        )
    left = [str(one.txid) for one in state.recent[1 - limits.RECENT_TXIDS :] if one.cause is not None]
    if 2 * (len(left) + 1) > limits.RECENT_TXIDS:
        return (
            f"more than half of the last {limits.RECENT_TXIDS} batches would be quarantined, including "
            f"{', '.join(left)}"
        )
    return None


def remembered(state: State, batch: Batch) -> tuple[Left, ...]:
    """Return the data about the last batches after this one is in the ledger. One that an operator skips, or that read
    nothing, is not counted.
    """
    if batch.quarantine is not None:
        one = Left(batch.plan.txid, batch.quarantine.cause or "unknown")
        counts = batch.quarantine.order_id is None
    else:
        one = Left(batch.plan.txid, None)
        counts = batch.processed is not None and batch.processed.read > 0
    return (*state.recent, one)[1 - limits.RECENT_TXIDS :] if counts else state.recent


def what_failed(batch: Batch, failure: Failure) -> str:
    """Return how often, where and why, for people."""
    tries = (
        f"{batch.data_failures} {'attempt' if batch.data_failures == 1 else 'attempts'} failed"
        if failure.kind == "data"
        else f"no verdict from {batch.runs_alone} attempts that ran alone"
    )
    where = f" in {failure.component}" if failure.component else ""
    at = f" at {failure.position}" if failure.position and failure.position not in failure.message else ""
    return f"{tries}{where}{at}: {failure.message}"
