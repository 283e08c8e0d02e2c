"""Which batches are committed next, and how many of them together: a commit run (R19, R20, R24). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from txtopo.core import limits
from txtopo.core.events import Action, Commit, CommitItem, CommitQuarantine, Resolve
from txtopo.core.replacing import replace
from txtopo.core.state import Batch, Phase, State
from txtopo.core.values import Processed
from txtopo.errors import unreachable

Step = tuple[State, list[Action]]


def next_commit(state: State, now: float) -> Step:
    """Only the lowest uncommitted txids commit, after their plans are mirrored or together with the mirror (R9), and
    one commit at a time; no new commit after ZooKeeper was silent for too long (Z5).
    """
    batch = state.lowest
    if batch is None or not batch.is_ready or state.committing or now < state.commit_not_before:
        return state, []
    if state.unresolved is not None:
        first, last = state.unresolved
        plans = tuple(state.batches[txid].plan for txid in range(first, last + 1))
        return replace(state, committing=True), [Resolve(plans=plans)]
    mirrors = _mirrors_with_its_commit(state, batch)
    if (state.mirrored_txid < batch.plan.txid and not mirrors) or _is_silent_too_long(state, now):
        return state, []
    if state.stopping is not None and state.stopping.at_once:
        return state, []
    if batch.quarantine is not None:
        state = replace(state.with_batch(replace(batch, phase=Phase.COMMITTING)), committing=True)
        return state, [CommitQuarantine(plan=batch.plan, quarantine=batch.quarantine)]
    run = [batch] if mirrors else next_run(state)
    items = tuple(CommitItem(plan=one.plan, processed=_results(one)) for one in run)
    state = state.with_batches([replace(one, phase=Phase.COMMITTING) for one in run])
    return replace(state, committing=True), [Commit(items=items, mirrors=mirrors)]


def _mirrors_with_its_commit(state: State, batch: Batch) -> bool:
    """R9: True if this batch, the next to commit, is committed by the database transaction that mirrors its plan. It is
    the only one that is ready: the plans of several are mirrored together.

    After a failure of either the two are separate: then each says what its own trouble is, and no commit is tried
    again because of the mirror. An opaque plan is pinned before its commit; a quarantine is decided before the mirror
    (W7).
    """
    txid = batch.plan.txid
    after = state.batches.get(txid + 1)
    is_alone = after is None or not after.is_ready
    troubled = state.commit_failures or state.mirror_failures or state.mirroring
    plain = batch.quarantine is None and not state.rules.opaque
    return state.rules.joins_mirrors and txid > state.mirrored_txid and is_alone and plain and not troubled


def next_run(state: State) -> Sequence[Batch]:
    """Return the batches that are committed next, in one database transaction: the lowest, which is ready and mirrored,
    and those after it that are ready now and may share it (R20). Nobody waits for more.
    """
    lowest = state.lowest or unreachable("there is a batch to commit")
    run, size = [lowest], _Size()
    if not _may_share(state, lowest) or not size.takes(_results(lowest)):
        return run
    for txid in range(lowest.plan.txid + 1, min(state.halts_at, state.mirrored_txid + 1)):
        batch = state.batches[txid]
        most = min(state.run_max, state.rules.run_txids_max)
        if len(run) >= most or not _may_share(state, batch) or not size.takes(_results(batch)):
            break
        run.append(batch)
    return run


def grown(run_max: int, txids: int, locked_s: float | None) -> int:
    """R24: return the maximum size of the next run after one of `txids` batches that itself needed the lock for so
    long.
    """
    if txids < 2 or locked_s is None:
        return run_max
    if locked_s < limits.RUN_FAST_S:
        return min(2 * run_max, limits.RUN_TXIDS_MAX)
    return max(run_max // 2, limits.RUN_TXIDS_AGAIN) if locked_s > limits.RUN_SLOW_S else run_max


def _may_share(state: State, batch: Batch) -> bool:
    """True if this batch may be committed together with others."""
    is_plain = batch.phase is Phase.PROCESSED and batch.quarantine is None and batch.plan.is_input
    # Rows that tasks have stored are many, whatever limit applies: their batch commits alone (R20).
    is_small = batch.processed is None or all(result.staged is None for result in batch.processed.results)
    is_free = state.single_commits is None and not state.rules.opaque and batch.plan.txid > state.alone_upto
    return is_plain and is_small and is_free


@dataclass(slots=True)
class _Size:
    """What a run holds so far: it must fit into one statement of each kind."""

    rows: dict[str, int] = field(default_factory=dict)
    """Result rows by committer."""
    held: int = 0
    edges: int = 0
    records: int = 0
    record_bytes: int = 0

    def takes(self, more: Processed) -> bool:
        """Add the results of a batch; False if the run would not fit any more."""
        for result in more.results:
            self.rows[result.committer] = self.rows.get(result.committer, 0) + result.row_count
        self.held += more.bytes
        self.edges += len(more.edges)
        self.records += len(more.rejected_rows) + len(more.dead_letters)
        if self.records > limits.RUN_RECORDS_MAX:
            return False  # Before their bytes are added up, which takes long for a million of them.
        self.record_bytes += sum(len(row.raw) + len(row.reason) + len(row.path) for row in more.rejected_rows)
        self.record_bytes += sum(len(row.raw) + len(row.reason) + len(row.position) for row in more.dead_letters)
        return (
            max(self.rows.values(), default=0) <= limits.RUN_ROWS_MAX
            and self.held <= limits.RUN_BYTES_MAX
            and self.edges <= limits.RUN_ROWS_MAX
            and self.record_bytes <= limits.RUN_RECORDS_BYTES_MAX
        )


def _results(batch: Batch) -> Processed:
    return batch.processed or unreachable(f"batch {batch.plan.txid} is to be committed without results")


def _is_silent_too_long(state: State, now: float) -> bool:
    return (
        state.suspended_since is not None
        and now - state.suspended_since > limits.SUSPENDED_SHARE_MAX * state.rules.session_s
    )
