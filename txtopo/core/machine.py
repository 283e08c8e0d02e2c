"""The machine that orders batches: `step(state, event, moment) -> (state, actions)`, pure.

An event changes what is known (one small function for each, here); then `scheduling.due` starts what can start.
docs/batch_lifecycle.md has the diagram of every legal move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from txtopo.core import limits
from txtopo.core.backoff import backoff_s
from txtopo.core.events import (
    Action,
    AttemptEnded,
    AttemptNotBegun,
    Cancel,
    Checkpointed,
    CheckpointFailed,
    CommitEnded,
    CutFailed,
    End,
    Event,
    ExecutorGone,
    HaltRequired,
    LeadGone,
    LockSeen,
    Mirrored,
    MirrorFailed,
    Moment,
    OrdersSeen,
    PlansCut,
    PostgresAnswered,
    PostgresSilent,
    Proven,
    RecordEnd,
    RedoCut,
    ResolveFailed,
    Say,
    StopWanted,
    Store,
    Tick,
    WavesRefused,
    ZooKeeperSeen,
)
from txtopo.core.opaque_replanning import is_stale, planned, stale_ended, tried_again
from txtopo.core.operator_orders import committed, redo_cut, take_in_orders
from txtopo.core.patience import Tries, is_enough, tried
from txtopo.core.plan import Plan
from txtopo.core.poison import nobodys_fault, proven, remembered, used_up, with_cause
from txtopo.core.remedies import RUN_AGAIN
from txtopo.core.scheduling import due
from txtopo.core.state import Batch, Halting, Phase, ProofOf, State, Stopping
from txtopo.core.unreadable import judged
from txtopo.core.values import (
    Aborted,
    AlreadyCommitted,
    Committed,
    Failed,
    Failure,
    FailureKind,
    Processed,
    TransactionAttempt,
    Unknown,
    cause_of,
)
from txtopo.errors import Patience, invariant

Step = tuple[State, list[Action]]
_SUSPENDED = "ZooKeeper does not answer; nothing new is planned"


def step(state: State, event: Event, moment: Moment) -> Step:
    """Apply one event, then return the new state and the actions to perform now. An ended state does not change."""
    if state.ended is not None:
        return state, []
    if not state.batches and not state.owed:
        state = replace(state, moved_at=moment.now)
    state, told = _take_in(state, event, moment)
    state, started = due(state, moment.now)
    return state, told + started


def _take_in(state: State, event: Event, moment: Moment) -> Step:
    if is_stale(state, event):
        return stale_ended(state, event), []
    match event:
        case Tick():
            return _time_passed(state, event, moment)
        case PlansCut():
            return _plans_cut(state, event, moment), []
        case CutFailed():
            return _cut_failed(state, event, moment)
        case RedoCut(plan=plan):
            with_plan = _source_back(_with_plans(state, () if plan is None else (plan,)))
            return redo_cut(replace(with_plan, cutting=False, cut_failures=0), event)
        case OrdersSeen(orders=orders):
            return take_in_orders(state, orders)
        case Mirrored(txid=txid):
            return replace(
                _postgres_back(state),
                mirroring=False,
                mirror_failures=0,
                mirror_tries=Tries(),
                mirrored_txid=max(state.mirrored_txid, txid),
            ), []
        case MirrorFailed():
            return _mirror_failed(state, event, moment)
        case AttemptEnded():
            return _attempt_ended(state, event, moment)
        case AttemptNotBegun():
            return _attempt_not_begun(state, event, moment)
        case Proven():
            return proven(state, event, moment.now, moment.chance)
        case CommitEnded():
            return _commit_ended(state, event, moment)
        case ResolveFailed(message=message, patience=patience):
            return _commit_again(state, message, patience, moment)
        case Checkpointed() | CheckpointFailed():
            return _checkpoint_ended(state, event, moment), []
        case WavesRefused(reason=reason):
            return replace(state, one_by_one=reason), []
        case PostgresAnswered():
            return replace(_postgres_back(state), answered=state.answered + 1), []
        case PostgresSilent(message=message):
            return _store_away(state, "postgres", message, moment), []
        case LockSeen(words=words):
            return replace(state, locked=words if state.committing else state.locked), []
        case ZooKeeperSeen(suspended=suspended):
            return _zookeeper_seen(state, suspended, moment), []
        case StopWanted() | HaltRequired() | LeadGone() | ExecutorGone():
            return _end_ordered(state, event)
        case _:
            assert_never(event)


# ----------------------------------------------------------------------------------------------------------------------


def _plans_cut(state: State, event: PlansCut, moment: Moment) -> State:
    state = _with_plans(state, event.plans, event.sizes)
    wait = 0.0 if event.plans else min(state.rules.spout_poll_s, max(event.ready_in_s, limits.SPOUT_POLL_MIN_S))
    exhausted = (event.exhausted or state.exhausted) and not state.owed
    return replace(
        _source_back(state),
        cutting=False,
        cut_failures=0,
        exhausted=exhausted,
        cut_dry=not event.plans,
        cut_not_before=moment.now + wait,
    )


def _cut_failed(state: State, event: CutFailed, moment: Moment) -> Step:
    told: list[Action] = []
    if event.store == "source" and state.problem != f"source: {event.message}":
        told.append(Say(message=f"the source cannot be read: {event.message}; trying again"))
    state = _store_away(state, event.store, event.message, moment)
    failures = state.cut_failures + 1
    state = replace(
        state, cutting=False, cut_failures=failures, cut_not_before=moment.now + backoff_s(failures, moment.chance)
    )
    return (_source_away(state, event.message, moment) if event.store == "source" else state), told


def _source_away(state: State, message: str, moment: Moment) -> State:
    """Record that the source is unavailable. A run with an end does not wait for it without a limit: planned batches
    are committed, then it halts.
    """
    since = moment.now if state.source_away_since is None else state.source_away_since
    state = replace(state, source_away_since=since)
    waited = moment.now - since
    if not state.has_end or waited < limits.SOURCE_AWAY_MAX_S or state.halting is not None:
        return state
    txid, again = state.next_txid, "when the source is back: start `txtopo run` again"
    reason = f"batch {txid} of {state.topology} cannot be planned, the source was waited for {waited:.0f} s: {message}"
    if state.was_cut(txid):
        reason = (
            f"batch {txid} of {state.topology} was planned before and is not committed; its source was waited "
            f"for {waited:.0f} s: {message}"
        )
        again += f"; if that input no longer exists: txtopo skip {state.topology} {txid} --reason '…'"
    return replace(state, halting=Halting(txid=txid, reason=reason, next_command=again))


def _source_back(state: State) -> State:
    return replace(_without(state, "source: ", "zookeeper: "), source_away_since=None)


def _with_plans(state: State, plans: tuple[Plan, ...], sizes: Mapping[int, int] | None = None) -> State:
    """Txids are contiguous: a plan that does not follow the last one is a bug (I2)."""
    for plan in plans:
        invariant(plan.txid == state.next_txid, f"plan {plan.txid} does not follow {state.next_txid - 1}")
        state = state.with_batch(planned(state, plan, (sizes or {}).get(plan.txid, 0)))
        state = replace(state, owed=state.owed - {plan.txid})
    return state


# ----------------------------------------------------------------------------------------------------------------------


def _attempt_ended(state: State, event: AttemptEnded, moment: Moment) -> Step:
    attempt = event.outcome.attempt
    state = replace(
        state, running=state.running - {attempt}, abandoned=state.abandoned - {attempt}, begin_tries=Tries()
    )
    batch = _current(state, attempt)
    if batch is None:
        return state, []  # A stale attempt: its batch has another attempt now.
    state = _without(state, "zookeeper: ")  # The begin had to be recorded before it started.
    match event.outcome:
        case Processed() as processed:
            done = replace(batch, phase=Phase.PROCESSED, processed=processed, suspect=False, runs_alone=0, unread=0)
            return replace(state.with_batch(done), waved=state.waved + batch.in_wave, read=state.read + 1), []
        case Failed(failure=failure):
            return _failed(state, batch, failure, moment)
        case _:
            assert_never(event.outcome)


def _current(state: State, attempt: TransactionAttempt) -> Batch | None:
    """Return the batch of this attempt, if the attempt is its current one."""
    batch = state.batches.get(attempt.txid)
    if batch is None or batch.attempt != attempt.attempt or batch.phase is not Phase.PROCESSING:
        return None
    return batch


def _failed(state: State, batch: Batch, failure: Failure, moment: Moment, step: ProofOf = "processing") -> Step:
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


def _attempt_not_begun(state: State, event: AttemptNotBegun, moment: Moment) -> Step:
    state = _store_away(state, event.store, event.message, moment)
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


def _time_passed(state: State, event: Tick, moment: Moment) -> Step:
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
            state, told = _failed(state, batch, failure, moment)
            actions += [Cancel(attempt=attempt), *told]
    return state, actions


# ----------------------------------------------------------------------------------------------------------------------


def _commit_ended(state: State, event: CommitEnded, moment: Moment) -> Step:
    outcome = event.outcome
    batch = state.lowest
    if batch is None or batch.plan.txid != outcome.txid:
        return state, []
    match outcome:
        case Committed() | AlreadyCommitted():
            state, answers = committed(_advance(_postgres_back(state), batch, moment.now), batch)
            return state, answers
        case Unknown(message=message):
            # R7: resolved under the fence lock before anything else is committed.
            return replace(_commit_later(state, message, moment), unresolved=True, commit_not_before=moment.now), []
        case Aborted(failure=failure, patience=patience) if failure.kind == "infrastructure":
            # The outcome of an unknown COMMIT does not show its cause: a trigger of the user's may raise any code
            # there.
            why = state.commit_tries.words if state.unresolved else None
            message = f"{failure.message} ({why})" if why else failure.message
            return _commit_again(replace(state, unresolved=False), message, patience, moment)
        case Aborted(failure=failure):
            tries = replace(
                state.commit_tries, words=None
            )  # The batch is processed again, and nothing waits to be committed.
            state = replace(state, committing=False, unresolved=False, commit_tries=tries, locked=None)
            return _failed(state, batch, failure, moment, "commit")
        case _:
            assert_never(outcome)


def _advance(state: State, batch: Batch, now: float) -> State:
    txid = batch.plan.txid
    batches = dict(state.batches)
    del batches[txid]
    return replace(
        state,
        last_txid=txid,
        last_digest=batch.plan.digest,
        quarantined=state.quarantined + (batch.quarantine is not None),
        batches=batches,
        carried={number: known for number, known in state.carried.items() if number > txid},
        # It was removed when its plan came; a committed txid is not owed.
        owed=frozenset(number for number in state.owed if number > txid),
        next_attempts={number: attempt for number, attempt in state.next_attempts.items() if number > txid},
        committing=False,
        unresolved=False,
        locked=None,
        commit_failures=0,
        commit_tries=Tries(),
        recent=remembered(state, batch),
        moved_at=now,
        commit_log=_logged(state.commit_log, txid, now),
    )


def _logged(log: tuple[tuple[float, int], ...], txid: int, now: float) -> tuple[tuple[float, int], ...]:
    """Keep one entry per second, each exact for its second; of those older than the window only the newest is
    needed.
    """
    if now - log[-1][0] >= 1.0:
        log = (*log, (now, txid))
    old = [index for index, (at, _) in enumerate(log) if at <= now - limits.METADATA_KEPT_S]
    return log[old[-1] :] if old else log


def _commit_again(state: State, message: str, patience: Patience, moment: Moment) -> Step:
    """W5: retry a commit that fails because of the store, up to a limit."""
    tries = tried(state.commit_tries, patience, state.answered, message)
    state = replace(_commit_later(state, message, moment), commit_tries=tries)
    batch = state.lowest
    if batch is None or not is_enough(tries, patience):
        return state, []
    words = f"its commit failed {tries.counts[patience]} times, and Postgres answers: {message}"
    if batch.quarantine is not None or state.unresolved:
        # There is nothing to retry, or the outcome is not known yet: the next leader finds out.
        reason = f"batch {batch.plan.txid} of {state.topology}: {words}"
        return _ended(state, End(kind="halted", reason=reason, txid=batch.plan.txid, next_command=RUN_AGAIN))
    state = replace(state, commit_tries=Tries(), locked=None)
    kind: FailureKind = "data" if patience == "time" else "halt"
    cause = cause_of(None, "statement timeout", None) if patience == "time" else None
    return _failed(state, batch, Failure(kind=kind, message=words, cause=cause), moment, "commit")


def _commit_later(state: State, message: str, moment: Moment) -> State:
    """Keep the results of the batch; the commit, or the question whether it happened, is tried again."""
    state = _store_away(state, "postgres", message, moment)
    failures = state.commit_failures + 1
    batch = state.lowest
    if batch is not None:
        phase = Phase.PROCESSED if batch.quarantine is None else Phase.QUARANTINED
        state = state.with_batch(replace(batch, phase=phase))
    return replace(
        state,
        committing=False,
        commit_tries=replace(state.commit_tries, words=message),
        commit_failures=failures,
        commit_not_before=moment.now + backoff_s(failures, moment.chance),
    )


def _mirror_failed(state: State, event: MirrorFailed, moment: Moment) -> Step:
    failures = state.mirror_failures + 1
    tries = tried(state.mirror_tries, event.patience, state.answered, event.message)
    state = _store_away(state, "postgres", event.message, moment)
    state = replace(
        state,
        mirroring=False,
        mirror_failures=failures,
        mirror_tries=tries,
        mirror_not_before=moment.now + backoff_s(failures, moment.chance),
    )
    if not is_enough(tries, event.patience):
        return state, []
    txid = state.mirrored_txid + 1
    words = f"its plan could not be mirrored {tries.counts[event.patience]} times, and Postgres answers"
    reason = f"batch {txid} of {state.topology}: {words}: {event.message}"
    return _ended(state, End(kind="halted", reason=reason, txid=txid, next_command=RUN_AGAIN))


def _checkpoint_ended(state: State, event: Checkpointed | CheckpointFailed, moment: Moment) -> State:
    state = replace(state, checkpointing=False)
    if isinstance(event, CheckpointFailed):
        failures = state.checkpoint_failures + 1
        return replace(
            state, checkpoint_failures=failures, checkpoint_not_before=moment.now + backoff_s(failures, moment.chance)
        )
    not_before = moment.now + state.rules.checkpoint_every_s
    return replace(
        state,
        checkpoint_failures=0,
        checkpoint_not_before=not_before,
        checkpointed_txid=event.last_txid,
        cleaned_to=event.keep_from,
    )


# ----------------------------------------------------------------------------------------------------------------------


def _store_away(state: State, store: Store, message: str, moment: Moment) -> State:
    if store != "postgres":
        return replace(state, problem=f"{store}: {message}")
    since = moment.now if state.postgres_away_since is None else state.postgres_away_since
    return replace(state, problem=message, postgres_away_since=since)


def _postgres_back(state: State) -> State:
    return state if state.postgres_away_since is None else replace(state, postgres_away_since=None, problem=None)


def _zookeeper_seen(state: State, suspended: bool, moment: Moment) -> State:
    if not suspended:
        if state.suspended_since is None:
            return state
        return replace(_without(state, _SUSPENDED, "zookeeper: "), suspended_since=None)
    since = moment.now if state.suspended_since is None else state.suspended_since
    return replace(state, suspended_since=since, problem=_SUSPENDED)


def _without(state: State, *beginnings: str) -> State:
    """Remove the message that begins so; other waits remain."""
    return replace(state, problem=None) if (state.problem or "").startswith(beginnings) else state


# ----------------------------------------------------------------------------------------------------------------------


def _end_ordered(state: State, event: StopWanted | HaltRequired | LeadGone | ExecutorGone) -> Step:
    match event:
        case StopWanted(at_once=at_once, reason=reason):
            return replace(state, stopping=Stopping(at_once=at_once, reason=reason)), []
        case HaltRequired(reason=reason, txid=int() as txid, next_command=next_command, planning=True):
            halting = Halting(txid=txid, reason=reason, next_command=next_command)
            # If a batch has failed permanently meanwhile, its halt is the lower one; the next run finds this one.
            return replace(state, cutting=False, halting=state.halting or halting), []
        case HaltRequired(reason=reason, txid=txid, next_command=next_command):
            return _ended(state, End(kind="halted", reason=reason, txid=txid, next_command=next_command))
        case LeadGone(fenced=fenced, message=message):
            return _ended(state, End(kind="fenced" if fenced else "lead_lost", reason=message))
        case ExecutorGone(message=message):
            return _ended(state, End(kind="executor_lost", reason=message))
        case _:
            assert_never(event)


def _ended(state: State, end: End) -> Step:
    return replace(state, ended=end), [end]
