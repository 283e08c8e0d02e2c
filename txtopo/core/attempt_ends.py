"""How attempts end: processed, failed, never begun, or without progress for too long. Pure."""

from __future__ import annotations

from typing import assert_never

from txtopo.core import limits
from txtopo.core.backoff import backoff_s
from txtopo.core.events import Action, AttemptEnded, AttemptNotBegun, Cancel, Moment, RecordEnd, Say, Tick
from txtopo.core.opaque_replanning import tried_again
from txtopo.core.patience import Tries, is_enough, tried
from txtopo.core.poison import nobodys_fault, used_up, with_cause
from txtopo.core.replacing import replace
from txtopo.core.state import Batch, Phase, ProofOf, State
from txtopo.core.store_state import store_away, without
from txtopo.core.unreadable import judged
from txtopo.core.values import Failed, Failure, Processed, TransactionAttempt

Step = tuple[State, list[Action]]


def attempt_ended(state: State, event: AttemptEnded, moment: Moment) -> Step:
    """Take in the outcome of an attempt, if it is the current one of its batch."""
    attempt = event.outcome.attempt
    state = replace(
        state, running=state.running - {attempt}, abandoned=state.abandoned - {attempt}, begin_tries=Tries()
    )
    batch = _current(state, attempt)
    if batch is None:
        return state, []  # A stale attempt: its batch has another attempt now.
    state = without(state, "zookeeper: ")  # The begin had to be recorded before it started.
    match event.outcome:
        case Processed() as processed:
            done = replace(batch, phase=Phase.PROCESSED, processed=processed, suspect=False, runs_alone=0, unread=0)
            return replace(state.with_batch(done), waved=state.waved + batch.in_wave, read=state.read + 1), []
        case Failed(failure=failure):
            return failed(state, batch, failure, moment)
        case _:
            assert_never(event.outcome)


def _current(state: State, attempt: TransactionAttempt) -> Batch | None:
    """Return the batch of this attempt, if the attempt is its current one."""
    batch = state.batches.get(attempt.txid)
    if batch is None or batch.attempt != attempt.attempt or batch.phase is not Phase.PROCESSING:
        return None
    return batch


def failed(state: State, batch: Batch, failure: Failure, moment: Moment, step: ProofOf = "processing") -> Step:
    """Count a failure by its kind, then retry with a new attempt or halt. If plans are immutable, later txids are not
    affected.

    A quarantined batch of an opaque topology keeps its last plan, so later batches are not affected either.
    """
    attempt, failure = batch.transaction_attempt, with_cause(failure)
    results = batch.processed if step == "commit" else None
    actions: list[Action] = [RecordEnd(attempt=attempt, state="failed", failure=failure)]
    batch = replace(batch, phase=Phase.PLANNED, attempt=batch.attempt + 1, processed=None, last_failure=failure)
    match failure.kind:
        case "data":
            batch = replace(batch, data_failures=batch.data_failures + 1)
            is_used_up = batch.data_failures >= state.rules.attempts_max
        case "infrastructure":
            batch, failure, judged_as = judged(state, batch, failure)
            if judged_as == "halt":
                state, more = nobodys_fault(state, batch, failure)
                return state, actions + more
            is_used_up = judged_as == "data"
        case "suspect":
            batch = replace(batch, suspect=True, other_failures=batch.other_failures + 1)
            is_used_up = batch.runs_alone >= limits.SUSPECT_RUNS_ALONE_MAX
        case "halt":
            state, more = nobodys_fault(state, batch, failure)
            return state, actions + more
        case _:
            assert_never(failure.kind)
    if is_used_up:
        state, more = used_up(state, batch, failure, step, results)
        return state, actions + more
    wait = backoff_s(batch.data_failures + batch.other_failures, moment.chance)
    actions.append(
        Say(
            message=f"batch {attempt.txid} attempt {attempt.attempt} failed ({failure.kind}): {failure.message}; "
            f"again in {wait:.1f} s"
        )
    )
    state, more = tried_again(state, replace(batch, not_before=moment.now + wait))
    return state, actions + more


def attempt_not_begun(state: State, event: AttemptNotBegun, moment: Moment) -> Step:
    """Nothing was emitted: the batch is tried again under a new attempt id, up to a limit (W5)."""
    state = store_away(state, event.store, event.message, moment)
    state = replace(state, running=state.running - {event.attempt}, abandoned=state.abandoned - {event.attempt})
    batch = _current(state, event.attempt)
    if batch is None:
        return state, []
    failures = batch.other_failures + 1
    # The id may be recorded somewhere already, so the next try takes a new one: ids never decrease.
    again = replace(batch, phase=Phase.PLANNED, attempt=batch.attempt + 1, other_failures=failures)
    if event.store == "postgres":
        tries = tried(state.begin_tries, event.patience, state.answered, event.message)
        state = replace(state, begin_tries=tries)
        if is_enough(tries, event.patience):
            words = (
                f"no attempt could begin, {tries.counts[event.patience]} times, and Postgres answers: {event.message}"
            )
            return nobodys_fault(replace(state, begin_tries=Tries()), again, Failure(kind="halt", message=words))
    return tried_again(state, replace(again, not_before=moment.now + backoff_s(failures, moment.chance)))


def time_passed(state: State, event: Tick, moment: Moment) -> Step:
    """Check timeouts, which depend on progress, not on total time: an attempt without progress for too long is
    cancelled as a suspect.
    """
    actions: list[Action] = []
    for attempt in sorted(state.running - state.abandoned):
        batch = _current(state, attempt)
        if batch is None:
            continue
        seen = event.progress.get(attempt, 0)
        if seen > batch.progress:
            state = state.with_batch(replace(batch, progress=seen, progress_at=moment.now))
        elif moment.now - batch.progress_at > state.rules.message_timeout_s:
            failure = Failure(kind="suspect", message=f"no progress for {state.rules.message_timeout_s:g} s")
            state = replace(state, abandoned=state.abandoned | {attempt})
            state, told = failed(state, batch, failure, moment)
            actions += [Cancel(attempt=attempt), *told]
    return state, actions
