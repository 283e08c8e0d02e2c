"""Commits one batch, in order and once. It uses the ports only, so it is the same on every ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from txtopo.committers.protocol.downstream import CommitPhases, commit_phases, committers_of, fresh
from txtopo.committers.protocol.rules import compare_lead, describe_counts, other_batch
from txtopo.core.crash_points import CrashPoint, reach
from txtopo.core.plan import Plan
from txtopo.core.remedies import REPORT, RESTORE
from txtopo.core.values import (
    Aborted,
    ActionRecord,
    AlreadyCommitted,
    CommitOutcome,
    Committed,
    CommitterCount,
    Failure,
    Lead,
    Processed,
    Quarantine,
    Redone,
    Unknown,
)
from txtopo.errors import BatchDataError, Halted, NoBatchAtFault, PostgresUnavailable, StagedRowsLost
from txtopo.ports import Ledger, LedgerEntry, LedgerRunSession, LedgerSession, LedgerTotals, MirrorEntry
from txtopo.topology.components import CommitterComponent, Topology
from txtopo.topology.filled_committers import filled_by
from txtopo.tuples.graph import handed_over


def commit_batch(
    ledger: Ledger,
    lead: Lead,
    plan: Plan,
    processed: Processed,
    topology: Topology,
    mirror: MirrorEntry | None = None,
) -> CommitOutcome:
    """Try once to make a batch visible. If the batch is a redo of one that is already redone, it is quarantined
    instead, which is a commit too. `mirror` is its plan, to be mirrored by the same database transaction (R9); None: it
    is mirrored already.

    Returns Committed or AlreadyCommitted: the batch is in the ledger. Aborted: it is certainly not; try again, or count
    the failure by its kind. Unknown: call `ledger.resolve` before anything else is committed (R7, an unknown outcome is
    resolved). Raises Fenced if another driver leads, Halted if ledger and plan contradict each other.
    """

    def write(session: LedgerSession) -> tuple[CommitterCount, ...]:
        if plan.backfills is not None:
            return _backfill(session, plan, processed, topology)
        redone = _read_redone(session, plan)
        if redone is not None and redone.by is not None:
            reason = f"already redone as batch {redone.by}"
            _log_redo(session, plan, redone, {"state": "quarantined", "reason": reason})
            session.finish_quarantined(reason)
            return ()
        phases = CommitPhases(topology, processed.attempt, processed.results, session.keep_alive)
        counts = tuple(apply_all(session, phases, topology, plan.txid))
        known = {edge.edge for edge in processed.edges}
        session.append_edges((*processed.edges, *(edge for edge in phases.edges if edge.edge not in known)))
        session.append_rejected(processed.rejected_rows)
        session.append_dead_letters(processed.dead_letters)
        if redone is not None:
            counted = {count.committer: count.counted for count in counts}
            _log_redo(session, plan, redone, {"state": "applied", "counted": counted})
        session.finish(totals_of(processed, counts))
        return counts

    def check() -> None:
        check_processed(lead, plan, processed, handed_over(topology))

    return _in_transaction(ledger, lead, LedgerEntry(plan=plan, attempt=processed.attempt), check, write, mirror)


def _backfill(
    session: LedgerSession, plan: Plan, processed: Processed, topology: Topology
) -> tuple[CommitterCount, ...]:
    """Apply the rows of one committer alone, and of its parts, unless it has counted the batch meanwhile (R32). What
    the batch is to this committer is read under the fence lock: no redo or backfill of it can be committed meanwhile.
    """
    committer = plan.committer or ""
    filled = session.read_filled(plan.backfills or 0, committer)
    components = filled_by(topology.committers, committer)
    if filled is None or not components:
        what = "the ledger has no such applied batch" if filled is None else "the topology has no such committer"
        raise Halted(
            f"batch {plan.txid} counts batch {plan.backfills} into committer {committer}, but {what}",
            txid=plan.txid,
            next_command=RESTORE
            if filled is None
            else f"put committer {committer} back, then start `txtopo run` again",
        )
    if filled.refused is not None:
        _log_backfill(session, plan, {"state": "quarantined", "reason": filled.refused})
        session.finish_quarantined(filled.refused)
        return ()
    results = {result.committer: result for result in processed.results}
    counts: list[CommitterCount] = []
    for component in components:
        counts.append(session.apply(component, results[component.name]))
        check_count(counts[-1])
        reach(CrashPoint.APPLIED, plan.txid)
    session.append_edges(processed.edges)
    session.append_rejected(processed.rejected_rows)
    session.append_dead_letters(processed.dead_letters)
    _log_backfill(session, plan, {"state": "applied", "counted": {one.committer: one.counted for one in counts}})
    session.finish(totals_of(processed, counts))
    return tuple(counts)


def quarantine_batch(ledger: Ledger, lead: Lead, plan: Plan, quarantine: Quarantine) -> CommitOutcome:
    """Try once to give a batch its place in the order without any effect (R14, quarantine is a ledger row in sequence).
    Returns and raises what `commit_batch` does.
    """

    def write(session: LedgerSession) -> tuple[CommitterCount, ...]:
        session.append_action(
            ActionRecord(
                command="on_poison" if quarantine.order_id is None else "skip",
                txid=plan.txid,
                order_id=quarantine.order_id,
                reason=quarantine.reason,
                before={"batch": plan.txid, "state": "failed", "attempt": quarantine.attempt.attempt},
                after={
                    "batch": plan.txid,
                    "state": "quarantined",
                    "reason": quarantine.reason,
                    **({} if quarantine.cause is None else {"cause": quarantine.cause}),
                },
            )
        )
        session.finish_quarantined(quarantine.reason)
        return ()

    def check() -> None:
        _check_attempt(plan, quarantine.attempt.txid, str(quarantine.attempt))

    return _in_transaction(ledger, lead, LedgerEntry(plan=plan, attempt=quarantine.attempt), check, write)


def _in_transaction(
    ledger: Ledger,
    lead: Lead,
    entry: LedgerEntry,
    check: Callable[[], None],
    write: Callable[[LedgerSession], tuple[CommitterCount, ...]],
    mirror: MirrorEntry | None = None,
) -> CommitOutcome:
    """The one database transaction of a batch: lock, compare, mirror the plan if it is not mirrored, append the ledger
    row, `write`, COMMIT. Errors of the batch and of Postgres are returned as outcomes.
    """
    txid = entry.plan.txid
    try:
        check()
        with ledger.session(lead) as session:
            last_txid = lock_fence(session, lead, txid)
            if last_txid >= txid:
                return compare_digest(session.ledger_digest(txid), entry.plan)
            check_next(last_txid, txid)
            if mirror is not None:
                session.mirror(mirror)  # R9: plan and ledger row become durable together, or neither does
                reach(CrashPoint.MIRROR_OPEN, txid)
            session.append_ledger(entry)
            reach(CrashPoint.LEDGER_APPENDED, txid)
            counts = write(session)
            reach(CrashPoint.BEFORE_COMMIT, txid)
            session.commit()
        reach(CrashPoint.COMMITTED, txid)
        if mirror is not None:
            reach(CrashPoint.MIRRORED, txid)
        return Committed(txid=txid, counts=counts)
    except BatchDataError as error:
        return Aborted(txid=txid, failure=failure_of(error))
    except NoBatchAtFault as error:
        # W2: every batch would fail in the same way, so this one is neither tried again nor quarantined.
        words = Failure(kind="halt", message=error.reason, component=error.component, next_command=error.next_command)
        return Aborted(txid=txid, failure=words)
    except StagedRowsLost as error:
        # R10: the rows are gone, so only another attempt can be committed; no data is at fault.
        return Aborted(txid=txid, failure=Failure(kind="suspect", message=str(error)), rows_lost=True)
    except PostgresUnavailable as error:
        if not error.definite:
            return Unknown(txid=txid, message=str(error))
        failure = Failure(kind="infrastructure", message=str(error))
        return Aborted(txid=txid, failure=failure, patience=error.patience)


def failure_of(error: BatchDataError) -> Failure:
    """The failure of kind `data` that describes this error."""
    return Failure(
        kind="data",
        message=str(error),
        component=error.component,
        position=error.position,
        detail=error.detail,
        cause=error.cause,
    )


def check_processed(lead: Lead, plan: Plan, processed: Processed, names: Sequence[str]) -> None:
    """Check what needs no database: the code, results of all committers in `names`, and the equations of the batch.
    Raises BatchDataError, or Halted if the results are of another batch.
    """
    if processed.code_hash != lead.code_hash:
        # R12: results of other code are not results of this topology.
        raise BatchDataError(
            f"attempt {processed.attempt} ran code {processed.code_hash.hex()[:12]} but the leader runs "
            f"{lead.code_hash.hex()[:12]}: "
            "an executor has another version of the topology",
            component="executor",
        )
    _check_attempt(plan, processed.attempt.txid, str(processed.attempt))
    handed, expected = sorted(result.committer for result in processed.results), sorted(names)
    if handed != expected:
        # R13: all committers of the batch or none.
        raise BatchDataError(
            f"attempt {processed.attempt} has results of {', '.join(handed)}; expected {', '.join(expected)}",
            component="executor",
        )
    if processed.rejected + processed.dead_lettered > processed.read:
        raise BatchDataError(
            f"attempt {processed.attempt} read {processed.read} records, rejected {processed.rejected} and removed "
            f"{processed.dead_lettered} as dead letters",
            component="executor",
        )
    if processed.rejected != len(processed.rejected_rows):
        # I6: every record that is counted as rejected must be stored, or it would be lost.
        raise BatchDataError(
            f"attempt {processed.attempt} rejected {processed.rejected} records, but returned "
            f"{len(processed.rejected_rows)} of them",
            component="executor",
        )
    for edge in processed.edges:
        if edge.sent != edge.received:
            raise BatchDataError(
                f"edge {edge.edge}: {edge.sent} tuples sent, {edge.received} received", component=edge.edge
            )


def _check_attempt(plan: Plan, txid: int, attempt: str) -> None:
    if txid != plan.txid:
        raise Halted(f"attempt {attempt} is not of batch {plan.txid}", txid=plan.txid, next_command=REPORT)


def lock_fence(session: LedgerSession | LedgerRunSession, lead: Lead, txid: int) -> int:
    """Lock the fence row, compare it with the lead (R4) and return the highest txid in the ledger. Raises Fenced."""
    fence = compare_lead(session.lock_fence(), lead)  # R4
    reach(CrashPoint.FENCE_LOCKED, txid)
    return fence.last_txid


def compare_digest(found: bytes | None, plan: Plan) -> AlreadyCommitted:
    """Skip the batch if the ledger has the same one (R5, three-way compare): `found` is the digest of its row. Raises
    Halted if it has another one, or none.
    """
    if found is None:
        raise Halted(
            f"the fence is at or past batch {plan.txid}, but the ledger has no row of it",
            txid=plan.txid,
            next_command=RESTORE,
        )
    if found != plan.digest:
        raise other_batch(plan.txid, found, plan.digest)
    return AlreadyCommitted(txid=plan.txid)


def check_next(last_txid: int, txid: int) -> None:
    """Raise Halted unless `txid` follows `last_txid` or is in the ledger already (R6, no gap)."""
    if last_txid < txid - 1:
        raise Halted(
            f"gap: batch {txid} is to be committed, but the last one committed is {last_txid}",
            txid=txid,
            next_command=RESTORE,
        )


def _read_redone(session: LedgerSession, plan: Plan) -> Redone | None:
    """Return the state of the batch that this one redoes; None if it is not a redo. It is read under the fence lock, so
    that no other redo of the same batch can be committed meanwhile.
    """
    if plan.redo_of is None:
        return None
    redone = session.read_redone(plan.redo_of)
    if redone is None:
        raise Halted(
            f"batch {plan.txid} redoes batch {plan.redo_of}, but the ledger has no batch {plan.redo_of}",
            txid=plan.txid,
            next_command=RESTORE,
        )
    return redone


def _log_redo(session: LedgerSession, plan: Plan, redone: Redone, after: dict[str, object]) -> None:
    """Append the order to the action log, in the same database transaction as the change."""
    if plan.order_id is None:
        return
    session.append_action(
        ActionRecord(
            command="redrive" if redone.state == "quarantined" else "recompute",
            txid=plan.txid,
            order_id=plan.order_id,
            before={"batch": plan.redo_of, "state": redone.state},
            after={"batch": plan.txid, **after},
        )
    )


def _log_backfill(session: LedgerSession, plan: Plan, after: dict[str, object]) -> None:
    """Append the order to the action log, in the same database transaction as the change."""
    if plan.order_id is not None:
        before = {"batch": plan.backfills, "committer": plan.committer, "state": "applied"}
        after = {"batch": plan.txid, **after}
        action = ActionRecord(command="backfill", txid=plan.txid, order_id=plan.order_id, before=before, after=after)
        session.append_action(action)


def apply_all(session: LedgerSession, phases: CommitPhases, topology: Topology, txid: int) -> Iterator[CommitterCount]:
    """Apply all committers in order; yields the count of each. Raises BatchDataError and the errors of the session."""
    for phase in commit_phases(topology):
        phases.enter(phase)
        for committer in committers_of(topology, phase):
            yield _apply(session, phases, fresh(committer), txid)


def _apply(session: LedgerSession, phases: CommitPhases, committer: CommitterComponent, txid: int) -> CommitterCount:
    emitted, result = phases.collector(committer), phases.result(committer)
    count = session.apply(committer, result) if emitted is None else session.apply(committer, result, emitted)
    phases.applied(committer, emitted)
    check_count(count)
    reach(CrashPoint.APPLIED, txid)
    return count


def check_count(count: CommitterCount) -> None:
    """Raise BatchDataError if the numbers of a committer disagree (I6): rows were lost or counted twice on the way. A
    retry may be correct; these rows must not be committed.
    """
    if count.arrived != count.counted or count.results != count.written + count.ignored:
        numbers = describe_counts(count.arrived, count.counted, count.results, count.written, count.ignored)
        raise BatchDataError(f"committer {count.committer}: {numbers}", component=count.committer)


def totals_of(processed: Processed, counts: Sequence[CommitterCount]) -> LedgerTotals:
    """Return the values that make the ledger row of a batch final."""
    return LedgerTotals(
        read=processed.read,
        rejected=processed.rejected,
        dead_lettered=processed.dead_lettered,
        committers=len(counts),
        spans=processed.spans,
    )
