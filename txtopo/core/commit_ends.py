"""How commits end: of one batch, or of a commit run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from txtopo.core import limits
from txtopo.core.attempt_ends import failed
from txtopo.core.backoff import backoff_s
from txtopo.core.commit_runs import grown
from txtopo.core.events import Action, CommitEnded, CommitRunFailed, End, LogAction, Moment, ResolveFailed, Say
from txtopo.core.operator_orders import committed
from txtopo.core.patience import Tries, is_enough, tried
from txtopo.core.poison import remembered
from txtopo.core.remedies import RUN_AGAIN, SERVER_LOSES_ROWS
from txtopo.core.replacing import replace
from txtopo.core.state import Batch, Phase, State, ended
from txtopo.core.store_state import postgres_back, store_away
from txtopo.core.values import (
    Aborted,
    ActionRecord,
    AlreadyCommitted,
    Committed,
    Failure,
    FailureKind,
    RunFailed,
    Unknown,
    cause_of,
)
from txtopo.errors import Patience, invariant

Step = tuple[State, list[Action]]


def commit_ended(state: State, event: CommitEnded, moment: Moment) -> Step:
    """Take in the outcomes of a commit, in ascending order. A commit run may end with outcomes of its first batches
    only; the others are committed later.
    """
    txids = [outcome.txid for outcome in event.outcomes]
    batch, first = state.lowest, event.outcomes[0]
    if batch is None or batch.plan.txid != first.txid:
        return state, []
    invariant(txids == list(range(txids[0], txids[-1] + 1)), f"outcomes of batches {txids} have a hole")
    match first:
        case Committed() | AlreadyCommitted():
            alike = all(isinstance(one, Committed | AlreadyCommitted) for one in event.outcomes)
            invariant(alike, f"batches {txids} were committed together, but not all of them")
            failed_runs = 0 if len(txids) > 1 else state.runs_failed
            run_max = grown(state.run_max, len(txids), event.locked_s)
            state = replace(state, run_max=run_max, runs_failed=failed_runs)
            return _committed(state, [state.batches[txid] for txid in txids], moment.now)
        case Unknown(message=message):
            # R7, R26: resolved under the fence lock, all of them at once, before anything else is committed.
            state = replace(_commit_later(state, message, moment), unresolved=(txids[0], txids[-1]))
            return replace(state, commit_not_before=moment.now), []
        case Aborted(failure=failure) if len(txids) > 1:
            lost = RunFailed(first=txids[0], last=txids[-1], message=_with_cause(state, failure), patience="store")
            return _run_failed(replace(state, unresolved=None), lost, moment)
        case Aborted(failure=failure, patience=patience) if failure.kind == "infrastructure":
            return _commit_again(replace(state, unresolved=None), _with_cause(state, failure), patience, moment)
        case Aborted(failure=failure):
            # The batch is processed again, and nothing waits to be committed.
            tries = replace(state.commit_tries, words=None)
            state = replace(_not_committing(state), unresolved=None, commit_tries=tries, locked=None)
            batch = state.batches[first.txid]
            if first.rows_lost:
                batch, failure = _lost_again(batch, failure)
            return failed(state, batch, failure, moment, "commit")
        case _:
            assert_never(first)


def _lost_again(batch: Batch, failure: Failure) -> tuple[Batch, Failure]:
    """W2: no batch is at fault if the server loses rows that tasks stored, and it is not tried without an end."""
    batch = replace(batch, rows_lost=batch.rows_lost + 1)
    if batch.rows_lost < limits.ROWS_LOST_MAX:
        return batch, failure
    words = f"{failure.message} ({batch.rows_lost} times now)"
    return batch, replace(failure, kind="halt", message=words, next_command=SERVER_LOSES_ROWS)


def _with_cause(state: State, failure: Failure) -> str:
    """Return the message of an aborted commit. The outcome of an unknown COMMIT does not show its cause: a trigger of
    the user's may raise any code there.
    """
    why = state.commit_tries.words if state.unresolved else None
    return f"{failure.message} ({why})" if why else failure.message


def commit_run_failed(state: State, event: CommitRunFailed, moment: Moment) -> Step:
    """R25: the batches of the run are committed one by one."""
    if event.failed.first != state.last_txid + 1 or not state.committing:
        return state, []
    return _run_failed(state, event.failed, moment)


def _run_failed(state: State, lost: RunFailed, moment: Moment) -> Step:
    """No attempt has failed and nothing halts: what a run raises says nothing about any of its batches (W6)."""
    if lost.patience is not None:
        state = _commit_later(state, lost.message, moment)
    runs_failed = state.runs_failed + 1
    # What makes every run fail, and no batch alone, costs less and less.
    alone = min(2**runs_failed, limits.RUN_ALONE_MAX)
    state = replace(
        _not_committing(state),
        locked=None,
        alone_upto=max(lost.last, lost.first - 1 + alone),
        runs_failed=runs_failed,
        run_max=limits.RUN_TXIDS_AGAIN,
        single_commits=state.single_commits or lost.off,
    )
    batches = f"batches {lost.first} to {lost.last}"
    record = ActionRecord(
        command="run_failed",
        txid=lost.first,
        reason=lost.message,
        before={"first": lost.first, "last": lost.last},
        after={"commits": "one by one", **({"until": "the next leader"} if lost.off is not None else {})},
    )
    words = f"the commit run of {batches} failed, they are committed one by one: {lost.message}"
    return state, [LogAction(action=record), Say(message=words)]


def _not_committing(state: State) -> State:
    """Return what is being committed to its phase before: its results wait again."""
    back = [
        replace(batch, phase=Phase.PROCESSED if batch.quarantine is None else Phase.QUARANTINED)
        for batch in _committing(state)
    ]
    return replace(state.with_batches(back) if back else state, committing=False)


def _committing(state: State) -> Sequence[Batch]:
    """Return the batches whose commit is in progress: always the lowest."""
    found: list[Batch] = []
    while (batch := state.batches.get(state.last_txid + 1 + len(found))) is not None:
        if batch.phase is not Phase.COMMITTING:
            break
        found.append(batch)
    return found


def _committed(state: State, batches: Sequence[Batch], now: float) -> Step:
    """All of them are in the ledger: orders that waited for them continue, in ascending order (R28)."""
    actions: list[Action] = []
    state = _not_committing(_advance(postgres_back(state), batches, now))
    for batch in batches:
        state, answers = committed(state, batch)
        actions += answers
    return state, actions


def _advance(state: State, batches: Sequence[Batch], now: float) -> State:
    txid = batches[-1].plan.txid
    for batch in batches:
        state = replace(state, recent=remembered(state, batch))
    return replace(
        state.without_batches([batch.plan.txid for batch in batches]),
        last_txid=txid,
        last_digest=batches[-1].plan.digest,
        mirrored_txid=max(state.mirrored_txid, txid),
        quarantined=state.quarantined + sum(batch.quarantine is not None for batch in batches),
        carried={number: known for number, known in state.carried.items() if number > txid},
        # It was removed when its plan came; a committed txid is not owed.
        owed=frozenset(number for number in state.owed if number > txid),
        next_attempts={number: attempt for number, attempt in state.next_attempts.items() if number > txid},
        unresolved=None,
        locked=None,
        commit_failures=0,
        commit_tries=Tries(),
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


def resolve_failed(state: State, event: ResolveFailed, moment: Moment) -> Step:
    """The outcome of a commit is still unknown."""
    return _commit_again(state, event.message, event.patience, moment)


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
        return ended(state, End(kind="halted", reason=reason, txid=batch.plan.txid, next_command=RUN_AGAIN))
    state = replace(state, commit_tries=Tries(), locked=None)
    kind: FailureKind = "data" if patience == "time" else "halt"
    cause = cause_of(None, "statement timeout", None) if patience == "time" else None
    return failed(state, batch, Failure(kind=kind, message=words, cause=cause), moment, "commit")


def _commit_later(state: State, message: str, moment: Moment) -> State:
    """Keep the results; the commit, or the question whether it happened, is tried again."""
    state = store_away(state, "postgres", message, moment)
    failures = state.commit_failures + 1
    return replace(
        _not_committing(state),
        commit_tries=replace(state.commit_tries, words=message),
        commit_failures=failures,
        commit_not_before=moment.now + backoff_s(failures, moment.chance),
    )
