"""Commits several consecutive batches in one database transaction: a commit run (R19 to R26). It uses the ports only,
so it is the same on every ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from txtopo.committers.protocol.commit import (
    check_count,
    check_next,
    check_processed,
    commit_batch,
    compare_digest,
    lock_fence,
    totals_of,
)
from txtopo.core.crash_points import CrashPoint, reach
from txtopo.core.events import CommitItem
from txtopo.core.plan import Plan
from txtopo.core.values import Committed, CommitterCount, CommitterResult, Lead, RunEnded, RunFailed, Unknown
from txtopo.errors import (
    BatchDataError,
    ConfigurationError,
    Fenced,
    Halted,
    LeadLost,
    PostgresUnavailable,
    RunRefused,
    TxtopoError,
    invariant,
)
from txtopo.ports import Ledger, LedgerEntry, LedgerRunSession
from txtopo.topology.components import Topology
from txtopo.tuples.graph import handed_over

_REFUSED = (PostgresUnavailable, BatchDataError, Halted, ConfigurationError, RunRefused)
"""The errors of a COMMIT that certainly did not happen, unless `PostgresUnavailable` says that nobody knows."""


def commit_run(
    ledger: Ledger, lead: Lead, items: Sequence[CommitItem], topology: Topology, now: Callable[[], float]
) -> RunEnded | RunFailed:
    """Try once to make these batches visible, together. `now` returns monotonic seconds.

    A batch whose results fail a check that needs no database ends the run before it; if it is the first, it is
    committed alone, so that it fails with its own message. Returns RunEnded with the outcomes of the first batches, at
    least one; RunFailed if nothing of it was committed and each is to be committed alone. Raises Fenced or LeadLost if
    another driver leads, and, after COMMIT was sent, every error that is not known to refuse it.
    """
    good = _sound(lead, items, handed_over(topology))
    if len(good) < 2:
        alone = items[0]
        return RunEnded(outcomes=(commit_batch(ledger, lead, alone.plan, alone.processed, topology),))
    return _CommitRun(ledger, lead, good, topology, now).commit()


def _sound(lead: Lead, items: Sequence[CommitItem], names: Sequence[str]) -> Sequence[CommitItem]:
    """Return the items before the first one whose results are not sound."""
    for index, item in enumerate(items):
        try:
            check_processed(lead, item.plan, item.processed, names)
        except (BatchDataError, Halted):
            return items[:index]
    return items


class _CommitRun:
    """One commit run. `commit` is called once."""

    def __init__(
        self, ledger: Ledger, lead: Lead, items: Sequence[CommitItem], topology: Topology, now: Callable[[], float]
    ) -> None:
        self._ledger = ledger
        self._lead = lead
        self._items = {item.plan.txid: item for item in items}
        self._txids = list(self._items)
        self._topology = topology
        self._now = now
        self._results = {committer.name: self._results_of(committer.name) for committer in topology.committers}
        self._sent = False
        """True from the moment before COMMIT is sent."""
        self._ended: RunEnded | None = None
        """Set when the outcome is known."""

    def commit(self) -> RunEnded | RunFailed:
        """Commit all of them, or nothing."""
        first, last = self._txids[0], self._txids[-1]
        try:
            with self._ledger.run_session(self._lead) as session:
                self._ended = self._commit(session)
        except (Fenced, LeadLost):
            raise
        except Exception as error:
            if self._ended is None:
                if self._sent and not isinstance(error, _REFUSED):
                    raise
                if isinstance(error, PostgresUnavailable) and not error.definite:
                    # R26: of the whole run nobody knows.
                    return RunEnded(outcomes=tuple(Unknown(txid=txid, message=str(error)) for txid in self._txids))
                # R25: it says nothing about any of the batches.
                return RunFailed(
                    first=first,
                    last=last,
                    message=str(error) or type(error).__name__,
                    patience=error.patience if isinstance(error, PostgresUnavailable) else None,
                    off=self._off(error),
                )
            # The outcome is known; only leaving the session has failed.
        ended = self._ended
        for outcome in ended.outcomes:
            if isinstance(outcome, Committed):
                reach(CrashPoint.COMMITTED, outcome.txid)
        return ended

    def _off(self, error: Exception) -> str | None:
        """Return why no further run can succeed, as text: asked again, since a table that has changed since the start
        may refuse the sum before `finish_run` reads its state.
        """
        if isinstance(error, RunRefused | ConfigurationError):
            return str(error)
        if isinstance(error, PostgresUnavailable):
            return None
        try:
            return self._ledger.single_commits(self._topology.committers)
        except TxtopoError:
            return None

    def _commit(self, session: LedgerRunSession) -> RunEnded:
        first = self._txids[0]
        processed = {txid: item.processed for txid, item in self._items.items()}
        attempts = {txid: one.attempt.attempt for txid, one in processed.items()}
        for committer in self._topology.committers:
            session.prepare_run(committer, self._results[committer.name], attempts)  # R21
        session.prepare_kept(
            {txid: one.edges for txid, one in processed.items()},
            {txid: one.rejected_rows for txid, one in processed.items()},
            {txid: one.dead_letters for txid, one in processed.items()},
        )
        # R4; R29, a takeover waits for this lock or ends the session
        last_txid = lock_fence(session, self._lead, first)
        since = self._now()
        if last_txid >= first:
            return self._found(session, last_txid)
        check_next(last_txid, first)  # R6
        session.append_run(
            [LedgerEntry(plan=item.plan, attempt=item.processed.attempt) for item in self._items.values()]
        )
        self._reach(CrashPoint.LEDGER_APPENDED)
        counts = self._apply(session)
        session.finish_run({txid: totals_of(one, counts[txid]) for txid, one in processed.items()})
        reach(CrashPoint.RUN_FINISHED, first)
        self._reach(CrashPoint.BEFORE_COMMIT)
        self._sent = True
        session.commit()
        outcomes = tuple(Committed(txid=txid, counts=counts[txid]) for txid in self._txids)
        return RunEnded(outcomes=outcomes, locked_s=self._now() - since, travel_s=session.travel_s)

    def _found(self, session: LedgerRunSession, last_txid: int) -> RunEnded:
        """R21: the ledger is at or past the first batch. Those that it has are compared; the others are a new run."""
        plans: list[Plan] = [item.plan for txid, item in self._items.items() if txid <= last_txid]
        found = session.ledger_digests([plan.txid for plan in plans])
        return RunEnded(outcomes=tuple(compare_digest(found.get(plan.txid), plan) for plan in plans))

    def _apply(self, session: LedgerRunSession) -> Mapping[int, tuple[CommitterCount, ...]]:
        """Apply all committers in order; returns the counts of each batch."""
        counts: dict[int, tuple[CommitterCount, ...]] = dict.fromkeys(self._txids, ())
        for committer in self._topology.committers:
            results = self._results[committer.name]
            applied = session.apply_run(committer, results)
            invariant(
                list(results) == self._txids == sorted(applied), f"committer {committer.name} was not applied for each"
            )
            for txid in self._txids:
                check_count(applied[txid])
                counts[txid] += (applied[txid],)
            self._reach(CrashPoint.APPLIED)
        return counts

    def _results_of(self, committer: str) -> Mapping[int, CommitterResult]:
        return {
            txid: result
            for txid, item in self._items.items()
            for result in item.processed.results
            if result.committer == committer
        }

    def _reach(self, point: CrashPoint) -> None:
        for txid in self._txids:
            reach(point, txid)
