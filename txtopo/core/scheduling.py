"""What can start now: one rule for each kind of action, in order of priority. Pure."""

from __future__ import annotations

from collections.abc import Callable

from txtopo.core import limits
from txtopo.core.commit_runs import next_commit
from txtopo.core.events import (
    Action,
    Backfill,
    Cancel,
    Checkpoint,
    Cut,
    CutRedo,
    End,
    Mirror,
    Process,
    Prove,
    RecordEnd,
)
from txtopo.core.operator_orders import apply_skips, next_redo, wants_replan
from txtopo.core.poison import too_many_quarantined, used_up
from txtopo.core.replacing import replace
from txtopo.core.state import Batch, Phase, State
from txtopo.core.values import Failure, TransactionAttempt

Step = tuple[State, list[Action]]


def due(state: State, now: float) -> Step:
    """Start every action that can start at `now`; the machine calls it after every event."""
    actions: list[Action] = []
    rules: tuple[Callable[[State, float], Step], ...] = (
        _give_up,
        _replan,
        _skip,
        _halt_if_too_many,
        _judge_deadly,
        next_commit,
        _mirror,
        _prove,
        _process,
        _cut_redo,
        _cut,
        _checkpoint,
        _end,
    )
    for rule in rules:
        if state.ended is not None:
            break
        state, more = rule(state, now)
        actions += more
    return state, actions


def _give_up(state: State, now: float) -> Step:
    """R16: a leader that cannot reach Postgres gives up the lead, so that a driver with access can take over."""
    since = state.postgres_away_since
    if since is None or now - since <= state.rules.postgres_away_max_s:
        return state, []
    end = End(kind="lead_lost", reason=f"Postgres has been away for {now - since:.0f} s ({state.problem})")
    return replace(state, ended=end), [end]


# ----------------------------------------------------------------------------------------------------------------------


def _replan(state: State, now: float) -> Step:
    """R3: plans are discarded only under a new epoch, so the lead ends between two commits, and is taken again."""
    del now
    if not wants_replan(state) or state.committing or state.mirroring or state.unresolved or state.cutting:
        return state, []
    end = End(kind="replan", reason="plans that were never mirrored are to be dropped")
    return replace(state, ended=end), [*_cancel_all(state), end]


def _skip(state: State, now: float) -> Step:
    """Quarantine a batch that an order skips, unless its commit is in progress."""
    del now
    return apply_skips(state)


def _halt_if_too_many(state: State, now: float) -> Step:
    """Halt if one more quarantine by `on_poison` would be too many."""
    del now
    return too_many_quarantined(state)


def _judge_deadly(state: State, now: float) -> Step:
    """Judge the next batch to commit if it ended several drivers, alone, as often as a suspect may: so a batch that
    ends its driver, also in its commit, is no endless loop.
    """
    del now
    batch = state.batches.get(state.deadly_txid or 0)
    if batch is None:
        return state, []
    state = replace(state, deadly_txid=None)
    if batch.phase is not Phase.PLANNED or batch.runs_alone < limits.SUSPECT_RUNS_ALONE_MAX:
        return state, []  # An operator has given another order.
    failure = Failure(
        kind="suspect",
        message="each ended with its driver: the process, its JVM, or its host",
        # Another start of the same code would end too: no further try before an operator orders one.
        next_command=f"fix what ends the driver: with other code start `txtopo run` again, else txtopo retry "
        f"{state.topology} {batch.plan.txid}",
    )
    return used_up(state, replace(batch, last_failure=failure), failure, "processing")


def _cut_redo(state: State, now: float) -> Step:
    """Plan redos at the end of the order, one at a time, before any new input."""
    redo = next_redo(state)
    if redo is None or _may_not_plan(state) or _input_comes_first(state):
        return state, []
    is_pausing = now < state.cut_not_before
    # After a dry planning a backfill does not wait until the source is asked again: it would be one for each pause.
    if is_pausing and not (isinstance(redo, Backfill) and state.cut_dry and not state.cut_failures):
        return state, []
    if isinstance(redo, Backfill) and _gives_way(state, is_pausing=is_pausing):
        return state, []
    uncommitted = [batch.plan for batch in state.batches.values() if batch.plan.redo_of is not None]
    open_redos = tuple((plan.redo_of or 0, plan.txid, plan.order_id) for plan in uncommitted)
    cut = CutRedo(
        first_txid=state.next_txid,
        redo=redo,
        open_redos=open_redos,
        last_txid=state.last_txid,
        attempts=_attempts(state, 1),
    )
    return replace(state, cutting=True), [cut]


def _gives_way(state: State, *, is_pausing: bool) -> bool:
    """Return True if a backfill waits: after each one new input is asked for, and half of the places are for input, so
    that a long backfill never holds it up. A redo that is planned may count the batch that would be next.
    """
    if any(batch.plan.redo_of is not None for batch in state.batches.values()):
        return True
    backfills = sum(batch.plan.backfills is not None for batch in state.batches.values())
    is_full = backfills >= max(1, state.rules.spout_pending_max // 2)
    return is_full or (state.input_next and not state.no_more_input and not is_pausing)


def _input_comes_first(state: State) -> bool:
    """Return True if txids that were planned before come first: a redo that took one would leave its input without a
    txid, and its failures are not the redo's.
    """
    return bool(state.owed) and not state.no_more_input


# ----------------------------------------------------------------------------------------------------------------------


def _mirror(state: State, now: float) -> Step:
    """Mirror the processed batches at the front of the queue: in txid order without holes (R9), many in one database
    transaction.

    Only processed and quarantined ones, so that an operator can still replace the plan of a batch that cannot be
    processed (R3).
    """
    if state.mirroring or now < state.mirror_not_before or (state.stopping is not None and state.stopping.at_once):
        return state, []
    if state.rules.opaque:
        return _mirror_lowest(state)
    lowest = state.lowest
    if lowest is not None and lowest.phase is Phase.COMMITTING and lowest.plan.txid > state.mirrored_txid:
        return state, []  # Its commit mirrors it, and the plans after it come after it (R9).
    plans = []
    for txid in range(state.last_txid + 1, state.next_txid):
        batch = state.batches[txid]
        if not batch.is_ready and batch.phase is not Phase.COMMITTING:
            break
        poison = batch.quarantine is not None and batch.quarantine.order_id is None
        if poison and txid > state.last_txid + 1:
            break  # Decided when it is next to commit (W7); until then its plan can be replaced.
        if txid > state.mirrored_txid:
            plans.append(batch.plan)
    if not plans:
        return state, []
    return replace(state, mirroring=True), [Mirror(plans=tuple(plans))]


def _mirror_lowest(state: State) -> Step:
    """Mirror an opaque plan only when it is next to commit, since an earlier failure may replace it until then. The
    mirror pins it.
    """
    batch = state.lowest
    if batch is None or not batch.is_ready or batch.plan.txid <= state.mirrored_txid:
        return state, []
    # Pinned from here on, even if the mirror fails: its reply may be lost although the row exists.
    return replace(state.with_batch(replace(batch, pinned=True)), mirroring=True), [Mirror(plans=(batch.plan,))]


def _prove(state: State, now: float) -> Step:
    """W4: one proof at a time, lowest txid first; none above a halt, which decides nothing about later batches."""
    waiting = (
        batch
        for txid in range(state.last_txid + 1, state.halts_at)
        if (batch := state.batches[txid]).phase is Phase.PROVING and now >= batch.not_before
    )
    chosen = None if state.proving else next(waiting, None)
    if chosen is None:
        return state, []
    last = TransactionAttempt(chosen.plan.txid, chosen.attempt - 1)
    prove = Prove(plan=chosen.plan, attempt=last, step=chosen.proof_of, processed=chosen.processed)
    return replace(state, proving=frozenset({last.txid})), [prove]


# ----------------------------------------------------------------------------------------------------------------------


def _process(state: State, now: float) -> Step:
    """Fill idle workers with waves of planned batches, lowest txid first. A suspect runs alone, or the first time only
    with other suspects.
    """
    actions: list[Action] = []
    holding = False
    while (txid := _next_to_process(state, now, holding=holding)) is not None:
        first = state.batches[txid]
        wave = _wave(state, txid, now)
        if not wave:
            holding = True
            continue
        is_alone = first.suspect and len(wave) == 1
        state = _started(state, wave, now)
        attempts = tuple((batch.transaction_attempt, batch.plan) for batch in wave)
        actions.append(Process(attempts=attempts, alone=is_alone, dead_letter=first.dead_letter))
    return state, actions


def _started(state: State, wave: list[Batch], now: float) -> State:
    first, shares = wave[0].transaction_attempt, len(wave) > 1
    started = [
        replace(
            batch,
            phase=Phase.PROCESSING,
            progress=0,
            progress_at=now,
            once=False,
            wave=first,
            in_wave=shares,
            runs_alone=batch.runs_alone + (batch.suspect and not shares),
        )
        for batch in wave
    ]
    running = state.running | {batch.transaction_attempt for batch in wave}
    return replace(state.with_batches(started), running=running)


def _wave(state: State, first_txid: int, now: float) -> list[Batch]:
    """Return the batches that one worker takes together: so many that the other idle workers have work too, unless they
    are too small to be worth two jobs.

    Empty if it is better to wait a moment.
    """
    first = state.batches[first_txid]
    rules = state.rules
    if state.one_by_one is not None or not rules.wave_bytes_max or not (first.may_share or first.once):
        return [first]
    if _is_being_proven(state):
        return [] if _may_be_held(first) else [first]
    ready = [
        batch
        for txid in range(first_txid, state.halts_at)
        if (batch := state.batches[txid]).phase is Phase.PLANNED
        and now >= batch.not_before
        and (batch.once if first.once else batch.may_share)
    ]
    idle = 1 if first.once else rules.workers - _waves(state)
    share, most = -(-len(ready) // idle), _wave_txids_max(state)
    first_max = rules.wave_bytes_max if state.waved or first.once else limits.FIRST_WAVE_BYTES_MAX
    wave, size, size_max = [first], first.source_bytes, min(first_max, rules.wave_bytes_max)
    for batch in ready[1:most]:
        size += batch.source_bytes
        is_small = batch.source_bytes > 0 and size <= limits.WAVE_SMALL_BYTES and len(wave) < limits.WAVE_SMALL_TXIDS
        if size > size_max or (len(wave) >= share and not is_small):
            return wave
        wave.append(batch)
    return [] if len(wave) < most and _may_be_held(first) and _has_time_to_gather(state) else wave


def _is_being_proven(state: State) -> bool:
    """True while the first wave is running: the executor compares it with separate runs of its batches, and no other
    wave starts before that.
    """
    return state.waved == 0 and any(
        batch.in_wave and batch.phase is Phase.PROCESSING for batch in state.batches.values()
    )


def _may_be_held(batch: Batch) -> bool:
    """True for a small batch, which costs more alone than in a job with others; False if its size is unknown or it is a
    suspect.
    """
    return batch.may_share and 0 < batch.source_bytes <= limits.WAVE_SMALL_BYTES


def _has_time_to_gather(state: State) -> bool:
    """True if the results of a full wave are waiting to be committed and more batches will come to share the next
    job.
    """
    if state.no_more_input or state.cut_dry or state.stopping is not None or state.halting is not None:
        return False
    enough = range(state.last_txid + 1, state.last_txid + 1 + state.rules.wave_txids_max)
    return all((batch := state.batches.get(txid)) is not None and _is_in_turn(batch) for txid in enough)


def _is_in_turn(batch: Batch) -> bool:
    return batch.is_ready or batch.phase is Phase.COMMITTING


def _wave_txids_max(state: State) -> int:
    """Return the maximum size of a wave. Waves grow: the executor compares the first one with separate runs, and its
    results should not wait for many others.
    """
    grown = next((size for size, after in limits.WAVE_GROWTH if state.waved < after), state.rules.wave_txids_max)
    return min(grown, state.rules.wave_txids_max)


def _busy(state: State) -> frozenset[TransactionAttempt]:
    return state.running - state.abandoned


def _waves(state: State) -> int:
    """Return the busy workers: one for each wave, until the last of its attempts has ended."""
    waves = set()
    for attempt in _busy(state):
        batch = state.batches.get(attempt.txid)
        current = batch is not None and batch.attempt == attempt.attempt and batch.phase is Phase.PROCESSING
        waves.add(batch.wave if batch is not None and current else attempt)
    return len(waves)


def _next_to_process(state: State, now: float, *, holding: bool) -> int | None:
    """Return the lowest txid that can start now; `holding`: of those that do not wait for a job with others."""
    if state.stopping is not None:
        return None
    busy = _busy(state)
    if _waves(state) >= state.rules.workers or any(
        state.batches[a.txid].suspect for a in busy if a.txid in state.batches
    ):
        return None
    for txid in range(state.last_txid + 1, state.halts_at):
        batch = state.batches[txid]
        if batch.phase is not Phase.PLANNED:
            continue
        if batch.suspect and (busy or now < batch.not_before):
            return None  # It waits for the others to end, and they for it.
        if now < batch.not_before or (holding and _may_be_held(batch)):
            continue
        if txid > state.last_txid + 1 and state.held_bytes >= state.rules.results_bytes_max:
            return None  # The next batch to commit can always run; otherwise nothing would ever free the memory.
        return txid
    return None


# ----------------------------------------------------------------------------------------------------------------------


def _may_not_plan(state: State) -> bool:
    stopped = state.stopping is not None or state.halting is not None
    full = len(state.batches) >= state.rules.spout_pending_max
    return state.cutting or stopped or full or state.suspended_since is not None


def _cut(state: State, now: float) -> Step:
    if state.no_more_input or _may_not_plan(state) or now < state.cut_not_before:
        return state, []
    room = state.rules.spout_pending_max - len(state.batches)
    if room < limits.PLANS_PER_CUT_MIN and _has_work_left(state):
        return state, []
    count = min(room, limits.PLANS_PER_CUT_MAX)
    if state.cut_upto is not None:
        count = min(count, state.cut_upto - state.next_txid + 1)
    cut = Cut(
        first_txid=state.next_txid,
        count=count,
        last_txid=state.last_txid,
        attempts=_attempts(state, count),
        given_up=_given_up(state),
    )
    return replace(state, cutting=True), [cut]


def _given_up(state: State) -> frozenset[int]:
    """Return the batches to plan again that an order skips: they are planned even if the source gives no input."""
    named = (work.waiting for work in state.orders.values() if work.order.kind == "skip")
    return frozenset(txid for waiting in named for txid in waiting if state.was_cut(txid))


def _has_work_left(state: State) -> bool:
    waiting = sum(batch.phase is Phase.PLANNED for batch in state.batches.values())
    return waiting >= limits.PLANS_PER_CUT_MIN


def _attempts(state: State, count: int) -> dict[int, int]:
    if not state.rules.opaque:
        return {}  # The plan of an immutable batch has no attempt.
    txids = range(state.next_txid, state.next_txid + count)
    return {txid: state.next_attempts[txid] for txid in txids if txid in state.next_attempts}


# ----------------------------------------------------------------------------------------------------------------------


def keep_from(state: State, now: float) -> int:
    """R8: return the txid below which metadata may be removed. Kept are ten txids or all commits of the last minute,
    whichever is more, at most ten thousand.
    """
    old = [txid for at, txid in state.commit_log if at <= now - limits.METADATA_KEPT_S]
    recent = state.last_txid - (old[-1] if old else 0)
    kept = min(max(limits.METADATA_KEPT_TXIDS, recent), limits.METADATA_KEPT_TXIDS_MAX)
    return max(state.last_txid - kept + 1, 1)


def _checkpoint(state: State, now: float) -> Step:
    """Write a checkpoint after a series of commits, at most `checkpoint_every_s` late, and immediately when nothing is
    left to do.
    """
    if state.checkpointing or state.suspended_since is not None:
        return state, []
    bound = keep_from(state, now)
    idle = not state.batches and state.checkpoint_failures == 0
    if state.last_txid <= state.checkpointed_txid and bound <= state.cleaned_to + limits.METADATA_KEPT_TXIDS:
        return state, []
    if now < state.checkpoint_not_before and not idle:
        return state, []
    return replace(state, checkpointing=True), [Checkpoint(last_txid=state.last_txid, keep_from=bound)]


# ----------------------------------------------------------------------------------------------------------------------


def _end(state: State, now: float) -> Step:
    """Finished, stopped or halted: end after everything that was begun has ended."""
    del now
    if state.committing or state.mirroring or state.unresolved or state.checkpointing:
        return state, []
    end: End | None = None
    if state.halting is not None and state.last_txid + 1 >= state.halts_at:
        halting = state.halting
        end = End(kind="halted", reason=halting.reason, txid=halting.txid, next_command=halting.next_command)
    elif state.stopping is not None and _is_quiet(state):
        end = End(kind="stopped", reason=state.stopping.reason)
    elif _is_done(state):
        end = _done(state)
    if end is None:
        return state, []
    return replace(state, ended=end), [*_cancel_all(state), end]


def _done(state: State) -> End:
    if state.plans_input:
        return End(kind="finished", reason="the input is at its end")
    return End(kind="stopped", reason="what was planned or ordered is done; new input was not looked for")


def _is_done(state: State) -> bool:
    """True if nothing more will come, and everything that was ever planned or ordered is committed.

    While a txid is owed, more input is expected too; both are checked, since either alone would end a run although
    input is in no batch.
    """
    left = state.batches or state.owed or state.orders or state.cutting
    return state.no_more_input and not left and state.checkpointed_txid >= state.last_txid


def _is_quiet(state: State) -> bool:
    """True if nothing that was begun can be committed any more."""
    if state.stopping is not None and state.stopping.at_once:
        return True
    if state.cutting:
        return False
    lowest = state.lowest
    return not (state.running - state.abandoned) and (lowest is None or not lowest.is_ready)


def _cancel_all(state: State) -> list[Action]:
    """Record an end for everything that was begun, so that the next leader does not treat it as a suspect: work in
    progress, and results that nobody will commit.
    """
    failure = Failure(kind="infrastructure", message="the run ended before the attempt did")
    unused = [batch.transaction_attempt for batch in state.batches.values() if batch.phase is Phase.PROCESSED]
    actions: list[Action] = [RecordEnd(attempt=attempt, state="cancelled", failure=failure) for attempt in unused]
    for attempt in sorted(state.running - state.abandoned):
        actions += [Cancel(attempt=attempt), RecordEnd(attempt=attempt, state="cancelled", failure=failure)]
    return actions
