"""The machine that orders batches: `step(state, events, moment) -> (state, actions)`, pure.

An event changes what is known (one small function for each, here); after all that are there, `scheduling.due` starts
what can start.
docs/batch_lifecycle.md has the diagram of every legal move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from txtopo.core import limits
from txtopo.core.attempt_ends import attempt_ended, attempt_not_begun, time_passed
from txtopo.core.backoff import backoff_s
from txtopo.core.commit_ends import commit_ended, commit_run_failed, resolve_failed
from txtopo.core.events import (
    Action,
    AttemptEnded,
    AttemptNotBegun,
    Checkpointed,
    CheckpointFailed,
    CommitEnded,
    CommitRunFailed,
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
    RedoCut,
    ResolveFailed,
    Say,
    StopWanted,
    Tick,
    WavesRefused,
    ZooKeeperSeen,
)
from txtopo.core.opaque_replanning import is_stale, planned, stale_ended
from txtopo.core.operator_orders import redo_cut, take_in_orders
from txtopo.core.patience import Tries, is_enough, tried
from txtopo.core.plan import Plan
from txtopo.core.poison import proven
from txtopo.core.remedies import RUN_AGAIN
from txtopo.core.replacing import replace
from txtopo.core.scheduling import due
from txtopo.core.state import Halting, State, Stopping, ended
from txtopo.core.store_state import postgres_back, store_away, without, zookeeper_seen
from txtopo.errors import invariant

Step = tuple[State, list[Action]]


def step(state: State, events: Sequence[Event], moment: Moment) -> Step:
    """Apply the events that have happened, in their order, then return the new state and the actions to perform now.
    An ended state does not change.

    What starts is decided once, with all of them known: batches whose results came together are committed together.
    """
    actions: list[Action] = []
    for event in events:
        if state.ended is not None:
            return state, actions
        if not state.batches and not state.owed:
            state = replace(state, moved_at=moment.now)
        state, told = _take_in(state, event, moment)
        actions += told
    state, started = due(state, moment.now)
    return state, actions + started


def _take_in(state: State, event: Event, moment: Moment) -> Step:
    if is_stale(state, event):
        return stale_ended(state, event), []
    match event:
        case Tick():
            return time_passed(state, event, moment)
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
                postgres_back(state),
                mirroring=False,
                mirror_failures=0,
                mirror_tries=Tries(),
                mirrored_txid=max(state.mirrored_txid, txid),
            ), []
        case MirrorFailed():
            return _mirror_failed(state, event, moment)
        case AttemptEnded():
            return attempt_ended(state, event, moment)
        case AttemptNotBegun():
            return attempt_not_begun(state, event, moment)
        case Proven():
            return proven(state, event, moment.now, moment.chance)
        case CommitEnded():
            return commit_ended(state, event, moment)
        case CommitRunFailed():
            return commit_run_failed(state, event, moment)
        case ResolveFailed():
            return resolve_failed(state, event, moment)
        case Checkpointed() | CheckpointFailed():
            return _checkpoint_ended(state, event, moment), []
        case WavesRefused(reason=reason):
            return replace(state, one_by_one=reason), []
        case PostgresAnswered():
            return replace(postgres_back(state), answered=state.answered + 1), []
        case PostgresSilent(message=message):
            return store_away(state, "postgres", message, moment), []
        case LockSeen(words=words):
            return replace(state, locked=words if state.committing else state.locked), []
        case ZooKeeperSeen(suspended=suspended):
            return zookeeper_seen(state, suspended, moment), []
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
        input_next=False,
        cut_not_before=moment.now + wait,
    )


def _cut_failed(state: State, event: CutFailed, moment: Moment) -> Step:
    told: list[Action] = []
    if event.store == "source" and state.problem != f"source: {event.message}":
        told.append(Say(message=f"the source cannot be read: {event.message}; trying again"))
    state = store_away(state, event.store, event.message, moment)
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
    return replace(without(state, "source: ", "zookeeper: "), source_away_since=None)


def _with_plans(state: State, plans: tuple[Plan, ...], sizes: Mapping[int, int] | None = None) -> State:
    """Txids are contiguous: a plan that does not follow the last one is a bug (I2)."""
    for plan in plans:
        invariant(plan.txid == state.next_txid, f"plan {plan.txid} does not follow {state.next_txid - 1}")
        state = state.with_batch(planned(state, plan, (sizes or {}).get(plan.txid, 0)))
        state = replace(state, owed=state.owed - {plan.txid})
    return state


# ----------------------------------------------------------------------------------------------------------------------


def _mirror_failed(state: State, event: MirrorFailed, moment: Moment) -> Step:
    failures = state.mirror_failures + 1
    tries = tried(state.mirror_tries, event.patience, state.answered, event.message)
    state = store_away(state, "postgres", event.message, moment)
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
    return ended(state, End(kind="halted", reason=reason, txid=txid, next_command=RUN_AGAIN))


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


def _end_ordered(state: State, event: StopWanted | HaltRequired | LeadGone | ExecutorGone) -> Step:
    match event:
        case StopWanted(at_once=at_once, reason=reason):
            return replace(state, stopping=Stopping(at_once=at_once, reason=reason)), []
        case HaltRequired(reason=reason, txid=int() as txid, next_command=next_command, planning=True):
            halting = Halting(txid=txid, reason=reason, next_command=next_command)
            # If a batch has failed permanently meanwhile, its halt is the lower one; the next run finds this one.
            return replace(state, cutting=False, halting=state.halting or halting), []
        case HaltRequired(reason=reason, txid=txid, next_command=next_command):
            return ended(state, End(kind="halted", reason=reason, txid=txid, next_command=next_command))
        case LeadGone(fenced=fenced, message=message):
            return ended(state, End(kind="fenced" if fenced else "lead_lost", reason=message))
        case ExecutorGone(message=message):
            return ended(state, End(kind="executor_lost", reason=message))
        case _:
            assert_never(event)
