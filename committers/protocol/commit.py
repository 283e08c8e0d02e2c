"""Commit one batch, in order and once: the commit of the protocol, written against the ports only, so that it is the
same on every ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from txtopo.committers.protocol.downstream import Turn, committers_of, fresh, phases_in_turn
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
from txtopo.errors import BatchDataError, Halted, NoBatchAtFault, PostgresUnavailable
from txtopo.ports import Ledger, LedgerEntry, LedgerSession, LedgerTotals
from txtopo.topology.components import CommitterComponent, Topology
from txtopo.tuples.graph import handed_over


def commit_batch(ledger: Ledger, lead: Lead, plan: Plan, processed: Processed, topology: Topology) -> CommitOutcome:
    """One try at making a batch visible. A redo of what is redone already is quarantined instead, which is a commit
    too.

    Committed or AlreadyCommitted: it is in the ledger. Aborted: surely not, try again or count the failure by its kind.
    Unknown: call `ledger.resolve` before anything else is committed (R7). Raises Fenced when another driver leads,
    Halted when ledger and plan disagree.
    """

    def write(session: LedgerSession) -> tuple[CommitterCount, ...]:
        redone = _read_redone(session, plan)
        if redone is not None and redone.by is not None:
            reason = f"already redone as batch {redone.by}"
            _log_redo(session, plan, redone, {"state": "quarantined", "reason": reason})
            session.finish_quarantined(reason)
            return ()
        turn = Turn(topology, processed.attempt, processed.results, session.keep_alive)
        counts = tuple(apply_all(session, turn, topology, plan.txid))
        known = {edge.edge for edge in processed.edges}
        session.append_edges((*processed.edges, *(edge for edge in turn.edges if edge.edge not in known)))
        session.append_rejected(processed.rejected_rows)
        session.append_dead_letters(processed.dead_letters)
        if redone is not None:
            counted = {count.committer: count.counted for count in counts}
            _log_redo(session, plan, redone, {"state": "applied", "counted": counted})
        session.finish(_totals(processed, counts))
        return counts

    def check() -> None:
        _check_processed(lead, plan, processed, handed_over(topology))

    return _in_turn(ledger, lead, LedgerEntry(plan=plan, attempt=processed.attempt), check, write)


def quarantine_batch(ledger: Ledger, lead: Lead, plan: Plan, quarantine: Quarantine) -> CommitOutcome:
    """One try at giving a batch its place in the order without any effect (R14); returns and raises as
    `commit_batch`.
    """

    def write(session: LedgerSession) -> tuple[CommitterCount, ...]:
        session.append_action(
            ActionRecord(
                command="on_poison" if quarantine.request_id is None else "skip",
                txid=plan.txid,
                request_id=quarantine.request_id,
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

    return _in_turn(ledger, lead, LedgerEntry(plan=plan, attempt=quarantine.attempt), check, write)


def _in_turn(
    ledger: Ledger,
    lead: Lead,
    entry: LedgerEntry,
    check: Callable[[], None],
    write: Callable[[LedgerSession], tuple[CommitterCount, ...]],
) -> CommitOutcome:
    """The one database transaction of a batch: lock, compare, ledger row, `write`, COMMIT; errors of the batch and of
    Postgres as outcomes.
    """
    txid = entry.plan.txid
    try:
        check()
        with ledger.session(lead) as session:
            last_txid = lock_fence(session, lead, txid)
            if last_txid >= txid:
                return _compare_digest(session, entry.plan)
            check_turn(last_txid, txid)
            session.append_ledger(entry)
            reach(CrashPoint.LEDGER_APPENDED, txid)
            counts = write(session)
            reach(CrashPoint.BEFORE_COMMIT, txid)
            session.commit()
        reach(CrashPoint.COMMITTED, txid)
        return Committed(txid=txid, counts=counts)
    except BatchDataError as error:
        return Aborted(txid=txid, failure=failure_of(error))
    except NoBatchAtFault as error:
        # W2: any batch would fail alike, so none is tried again and none is left out.
        words = Failure(kind="halt", message=error.reason, component=error.component, next_command=error.next_command)
        return Aborted(txid=txid, failure=words)
    except PostgresUnavailable as error:
        if not error.definite:
            return Unknown(txid=txid, message=str(error))
        failure = Failure(kind="infrastructure", message=str(error))
        return Aborted(txid=txid, failure=failure, patience=error.patience)


def failure_of(error: BatchDataError) -> Failure:
    """The data failure that the error is."""
    return Failure(
        kind="data",
        message=str(error),
        component=error.component,
        position=error.position,
        detail=error.detail,
        cause=error.cause,
    )


def _check_processed(lead: Lead, plan: Plan, processed: Processed, names: Sequence[str]) -> None:
    """What can be seen without the database: code, completeness (results of all these `names`), equations of the
    batch.
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
            f"attempt {processed.attempt} read {processed.read} records, rejected {processed.rejected} and took out "
            f"{processed.dead_lettered}",
            component="executor",
        )
    if processed.rejected != len(processed.rejected_rows):
        # I6: a record that is counted as rejected is kept, or nobody can ever tell what it was.
        raise BatchDataError(
            f"attempt {processed.attempt} rejected {processed.rejected} records, but handed over "
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


def lock_fence(session: LedgerSession, lead: Lead, txid: int) -> int:
    """The highest txid in the ledger, under the lock (R4). Raises Fenced."""
    fence = compare_lead(session.lock_fence(), lead)  # R4
    reach(CrashPoint.FENCE_LOCKED, txid)
    return fence.last_txid


def _compare_digest(session: LedgerSession, plan: Plan) -> AlreadyCommitted:
    """R5: skip only what is the same batch."""
    found = session.ledger_digest(plan.txid)
    if found is None:
        raise Halted(
            f"the fence is at or past batch {plan.txid}, but the ledger has no row of it",
            txid=plan.txid,
            next_command=RESTORE,
        )
    if found != plan.digest:
        raise other_batch(plan.txid, found, plan.digest)
    return AlreadyCommitted(txid=plan.txid)


def check_turn(last_txid: int, txid: int) -> None:
    """R6: only the next txid applies."""
    if last_txid < txid - 1:
        raise Halted(
            f"gap: batch {txid} is to be committed, but the last one committed is {last_txid}",
            txid=txid,
            next_command=RESTORE,
        )


def _read_redone(session: LedgerSession, plan: Plan) -> Redone | None:
    """What the batch redoes, read under the fence lock, so that no other redo of it can come in between; None: it
    redoes nothing.
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
    """The order's row in the action log: with the change or not at all."""
    if plan.request_id is None:
        return
    session.append_action(
        ActionRecord(
            command="redrive" if redone.state == "quarantined" else "recompute",
            txid=plan.txid,
            request_id=plan.request_id,
            before={"batch": plan.redo_of, "state": redone.state},
            after={"batch": plan.txid, **after},
        )
    )


def apply_all(session: LedgerSession, turn: Turn, topology: Topology, txid: int) -> Iterator[CommitterCount]:
    """Apply all committers in order. Raises BatchDataError and the errors of the session."""
    for phase in phases_in_turn(topology):
        turn.enter(phase)
        for committer in committers_of(topology, phase):
            yield _apply(session, turn, fresh(committer), txid)


def _apply(session: LedgerSession, turn: Turn, committer: CommitterComponent, txid: int) -> CommitterCount:
    emitted, result = turn.collector(committer), turn.result(committer)
    count = session.apply(committer, result) if emitted is None else session.apply(committer, result, emitted)
    turn.applied(committer, emitted)
    if count.arrived != count.counted or count.results != count.written + count.ignored:
        # I6: rows were lost or doubled on the way; a retry may give others, the database must not have these.
        numbers = describe_counts(count.arrived, count.counted, count.results, count.written, count.ignored)
        raise BatchDataError(f"committer {committer.name}: {numbers}", component=committer.name)
    reach(CrashPoint.APPLIED, txid)
    return count


def _totals(processed: Processed, counts: Sequence[CommitterCount]) -> LedgerTotals:
    return LedgerTotals(
        read=processed.read,
        rejected=processed.rejected,
        dead_lettered=processed.dead_lettered,
        committers=len(counts),
        spans=processed.spans,
    )
