"""Tests whether a commit fails without the batch too (W4): the same commit with input that is known to be good, rolled
back. It uses the ports only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from txtopo.committers.protocol.commit import apply_all, check_next, failure_of, lock_fence
from txtopo.committers.protocol.downstream import CommitPhases
from txtopo.core.plan import Plan
from txtopo.core.values import CommitterResult, Failure, Lead, Processed
from txtopo.errors import BatchDataError, NoBatchAtFault, PostgresUnavailable
from txtopo.ports import Ledger, LedgerEntry, LedgerSession
from txtopo.topology.components import CommitterComponent, Topology


def prove_commit(ledger: Ledger, lead: Lead, plan: Plan, processed: Processed, topology: Topology) -> Failure | None:
    """Apply every committer to no rows, then each counting committer to what the last batch contributed; roll back.
    Returns what failed, or None if nothing did. Raises what `commit_batch` raises.

    A failure of kind `infrastructure` proves nothing. For a custom committer that does nothing without rows, the result
    proves nothing either (W7 limits that case).
    """
    # The rows that a redo reverses are specific to it, so the test is not a redo; nor is it a backfill.
    entry = LedgerEntry(plan=replace(plan, redo_of=None, backfills=None, committer=None), attempt=processed.attempt)

    def on_no_rows(session: LedgerSession) -> None:
        empty = [_emptied(result) for result in processed.results]
        phases = CommitPhases(topology, processed.attempt, empty, session.keep_alive)
        for _ in apply_all(session, phases, topology, plan.txid):
            pass

    def on_last_rows(session: LedgerSession) -> None:
        for committer in topology.committers:
            last = session.last_contributed(committer)
            if last is not None:
                session.apply(committer, last)

    try:
        for write in (on_no_rows, on_last_rows):
            _rolled_back(ledger, lead, entry, write, topology.committers)
    except BatchDataError as error:
        return failure_of(error)
    except NoBatchAtFault as error:
        return Failure(kind="halt", message=error.reason, component=error.component, next_command=error.next_command)
    except PostgresUnavailable as error:
        return Failure(kind="infrastructure", message=str(error))
    return None


def _rolled_back(
    ledger: Ledger,
    lead: Lead,
    entry: LedgerEntry,
    write: Callable[[LedgerSession], None],
    committers: tuple[CommitterComponent, ...],
) -> None:
    txid = entry.plan.txid
    with ledger.session(lead) as session:
        check_next(lock_fence(session, lead, txid), txid)  # the ledger would refuse the row too, with another message
        session.append_ledger(entry)
        write(session)
        for committer in committers:
            session.check_deferred(committer)


def _emptied(result: CommitterResult) -> CommitterResult:
    """The same result without rows."""
    deferred = tuple((source, stream, table.slice(0, 0)) for source, stream, table in result.deferred)
    return replace(result, arrived=0, rows=result.rows.slice(0, 0), row_count=0, bytes=0, deferred=deferred)
