"""The commit of one batch in memory, or of a commit run: it works on a draft, and COMMIT publishes the draft as a
whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from txtopo.committers.memory.memory_applying import MemoryDraft
from txtopo.committers.memory.memory_halves import MemoryApplying, memory_half
from txtopo.committers.memory.memory_mirror import NewPlans, mirrored
from txtopo.committers.memory.memory_store import (
    MemoryPostgres,
    StoredAction,
    StoredBatch,
    StoredDeadLetter,
    StoredReject,
    TopologyRows,
)
from txtopo.committers.memory.memory_transaction import MemoryTransaction
from txtopo.core.plan import Plan
from txtopo.core.positions import lowest_number
from txtopo.core.values import (
    ActionRecord,
    CommitterCount,
    CommitterResult,
    DeadLetter,
    EdgeCount,
    Fence,
    Filled,
    Lead,
    Redone,
    RejectedRow,
)
from txtopo.errors import BatchDataError, Fenced, Halted, PostgresUnavailable, RunRefused, invariant, unreachable
from txtopo.ports import LedgerEntry, LedgerTotals, MirrorEntry
from txtopo.topology.batch_committer import CommitCollector
from txtopo.topology.components import CommitterComponent


@dataclass(slots=True)
class _Row:
    """A ledger row that is not committed yet, with everything that names its txid."""

    entry: LedgerEntry
    counts: list[CommitterCount] = field(default_factory=list)
    edges: tuple[EdgeCount, ...] = ()
    rejected: list[RejectedRow] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    totals: LedgerTotals | None = None
    """Set when the row is final."""
    reason: str | None = None
    """Why the batch is quarantined; None: it is not."""

    @property
    def is_final(self) -> bool:
        return self.totals is not None or self.reason is not None


class MemoryLedgerSession:
    """LedgerSession and LedgerRunSession on MemoryPostgres. A commit of one batch is a run of one."""

    def __init__(self, store: MemoryPostgres, lead: Lead) -> None:
        self._store = store
        self._lead = lead
        self._rows: TopologyRows | None = None
        self._appended: dict[int, _Row] = {}
        """By txid, ascending."""
        self._last_txid = 0
        """Of the fence, as this database transaction has moved it."""
        self._mirrored = NewPlans(plans={}, sources={})
        self._draft = MemoryDraft(store)
        self._own: list[MemoryTransaction] = []
        self._actions: list[StoredAction] = []
        self._is_ended = False
        self._kept: tuple[
            Mapping[int, Sequence[EdgeCount]],
            Mapping[int, Sequence[RejectedRow]],
            Mapping[int, Sequence[DeadLetter]],
        ] = ({}, {}, {})
        """Of a commit run: what is stored when it is finished."""

    def lock_fence(self) -> Fence:
        with self._store.transaction():
            rows = self._store.topologies.get(self._lead.topology)
        if rows is None:
            raise Fenced(f"topology {self._lead.topology} has no fence row any more")
        self._store.hold(rows, self)
        self._rows, self._last_txid = rows, rows.fence.last_txid
        return rows.fence

    def ledger_digest(self, txid: int) -> bytes | None:
        row = self._locked().ledger.get(txid)
        return None if row is None else row.digest

    def ledger_digests(self, txids: Sequence[int]) -> Mapping[int, bytes]:
        found = {txid: self.ledger_digest(txid) for txid in txids}
        return {txid: digest for txid, digest in found.items() if digest is not None}

    def mirror(self, entry: MirrorEntry) -> None:
        self._mirrored = mirrored(self._locked(), self._lead, [entry])

    def append_ledger(self, entry: LedgerEntry) -> None:
        ledger, plan = self._locked().ledger, entry.plan
        mine, stored = self._appended.get(plan.txid - 1), ledger.get(plan.txid - 1)
        before = mine.entry.plan.digest if mine is not None else stored.digest if stored is not None else None
        if plan.txid in ledger or plan.txid in self._appended or before != plan.previous_digest:
            raise Halted(
                f"the ledger refuses batch {plan.txid}: it does not follow the batch before it", txid=plan.txid
            )
        self._appended[plan.txid] = _Row(entry)

    def append_run(self, entries: Sequence[LedgerEntry]) -> None:
        for entry in entries:
            self.append_ledger(entry)

    def apply(
        self, committer: CommitterComponent, result: CommitterResult, collector: CommitCollector | None = None
    ) -> CommitterCount:
        rows, row = self._locked(), self._only()
        plan, reverses = row.entry.plan, None
        before: tuple[CommitterCount, ...] = ()
        if plan.backfills is not None:
            self._check_filled(plan, committer.name)
        if plan.redo_of is not None:
            redone = self.read_redone(plan.redo_of)
            if redone is None or redone.by is not None:
                raise Halted(f"the ledger refuses batch {plan.txid}: it redoes batch {plan.redo_of}", txid=plan.txid)
            if redone.state == "applied":
                reverses = redone.holder(plan.redo_of, committer.name)
                before = rows.ledger[reverses].counts
        results_before = {count.committer: count.results for count in before}
        count = self._apply(row, committer, result, reverses, results_before, collector)
        row.counts.append(count)
        return count

    def _apply(
        self,
        row: _Row,
        committer: CommitterComponent,
        result: CommitterResult,
        reverses: int | None,
        results_before: Mapping[str, int],
        collector: CommitCollector | None,
    ) -> CommitterCount:
        applying = MemoryApplying(
            draft=self._draft,
            entry=row.entry,
            reverses=reverses,
            results_before=results_before,
            transactions=self._own,
            store=self._store,
        )
        return memory_half(committer).apply(applying, committer, result, collector)

    @property
    def travel_s(self) -> float:
        return 0.0

    def prepare_run(
        self, committer: CommitterComponent, results: Mapping[int, CommitterResult], attempts: Mapping[int, int]
    ) -> None:
        """See LedgerRunSession: here is nothing to prepare."""

    def apply_run(
        self, committer: CommitterComponent, results: Mapping[int, CommitterResult]
    ) -> Mapping[int, CommitterCount]:
        self._locked()
        counts: dict[int, CommitterCount] = {}
        for txid, result in results.items():
            row = self._row(txid)
            invariant(not row.is_final, f"batch {txid} is not being applied")
            counts[txid] = self._apply(row, committer, result, None, {}, None)
            row.counts.append(counts[txid])
        self._draft.applied.update(memory_half(committer).tables(committer))
        return counts

    def last_contributed(self, committer: CommitterComponent) -> CommitterResult | None:
        self._locked()
        return memory_half(committer).last_contributed(self._draft, committer)

    def check_deferred(self, committer: CommitterComponent) -> None:
        self._locked()

    def keep_alive(self) -> None:
        self._locked()

    def append_edges(self, edges: Sequence[EdgeCount]) -> None:
        self._locked()
        self._keep_edges(self._only(), edges)

    def prepare_kept(
        self,
        edges: Mapping[int, Sequence[EdgeCount]],
        rejected: Mapping[int, Sequence[RejectedRow]],
        dead_letters: Mapping[int, Sequence[DeadLetter]],
    ) -> None:
        self._kept = edges, rejected, dead_letters

    @staticmethod
    def _keep_edges(row: _Row, edges: Sequence[EdgeCount]) -> None:
        if len({edge.edge for edge in edges}) != len(edges):
            message = "edges: its counts of edges cannot be kept: an edge is there twice"
            raise BatchDataError(message, component="edges")
        row.edges = tuple(edges)

    def append_rejected(self, rows: Sequence[RejectedRow]) -> None:
        self._locked()
        self._keep_rejected(self._only(), rows)

    @staticmethod
    def _keep_rejected(batch: _Row, rows: Sequence[RejectedRow]) -> None:
        known = {(row.spout, row.path, row.line) for row in batch.rejected}
        for row in rows:
            place = (row.spout, row.path, row.line)
            if place in known or row.line < lowest_number(row.unit) or not row.reason or row.raw_bytes < len(row.raw):
                message = f"spout {row.spout}: its rejected records cannot be kept: {row.position}"
                raise BatchDataError(message, component=row.spout)
            known.add(place)
            batch.rejected.append(row)

    def append_dead_letters(self, rows: Sequence[DeadLetter]) -> None:
        self._locked()
        self._keep_dead_letters(self._only(), rows)

    @staticmethod
    def _keep_dead_letters(batch: _Row, rows: Sequence[DeadLetter]) -> None:
        known = {(row.spout, row.position) for row in batch.dead}
        for row in rows:
            if (row.spout, row.position) in known or not (row.position and row.reason):
                message = f"spout {row.spout}: its dead letters cannot be kept: {row.position}"
                raise BatchDataError(message, component=row.spout)
            known.add((row.spout, row.position))
            batch.dead.append(row)

    def append_action(self, action: ActionRecord) -> None:
        self._locked()
        self._actions.append(self._store.action_row(self._lead.topology, action))

    def read_redone(self, txid: int) -> Redone | None:
        ledger = self._locked().ledger
        row = ledger.get(txid)
        if row is None or row.state == "genesis":
            return None
        applied = (number for number, one in ledger.items() if one.redo_of == txid and one.state == "applied")
        holders = {
            count.committer: number
            for number, one in ledger.items()
            if one.backfills == txid and one.state == "applied"
            for count in one.counts
        }
        return Redone(state=row.state, by=next(applied, None), holders=holders)

    def read_filled(self, txid: int, committer: str) -> Filled | None:
        ledger = self._locked().ledger
        row = ledger.get(txid)
        if row is None or row.state != "applied" or row.backfills is not None:
            return None
        applied = [(number, one) for number, one in ledger.items() if one.state == "applied"]
        counted = [
            number
            for number, one in applied
            if txid in (number, one.backfills) and any(count.committer == committer for count in one.counts)
        ]
        redone = [number for number, one in applied if one.redo_of == txid]
        return Filled(redone_by=next(iter(redone), None), counted_by=next(iter(counted), None))

    def _check_filled(self, plan: Plan, committer: str) -> None:
        """What the ledger refuses of a backfill."""
        filled = self.read_filled(plan.backfills or 0, committer)
        if filled is None or filled.refused is not None or not committer.startswith(plan.committer or " "):
            raise Halted(
                f"the ledger refuses batch {plan.txid}: it counts batch {plan.backfills} into {committer}",
                txid=plan.txid,
            )

    def finish(self, totals: LedgerTotals) -> None:
        self._finish(self._only(), totals)

    def finish_run(self, totals: Mapping[int, LedgerTotals]) -> None:
        rows = self._locked()
        edges, rejected, dead_letters = self._kept
        for txid in sorted({*edges, *rejected, *dead_letters}):
            row = self._row(txid)
            self._keep_edges(row, edges.get(txid, ()))
            self._keep_rejected(row, rejected.get(txid, ()))
            self._keep_dead_letters(row, dead_letters.get(txid, ()))
        for txid, of_batch in sorted(totals.items()):
            self._finish(self._row(txid), of_batch)
        self._check_complete(rows)
        for table in sorted(self._draft.applied):
            if table in self._store.not_plain:
                raise RunRefused(f"table {table} is not plain: {self._store.not_plain[table]}")

    def finish_quarantined(self, reason: str) -> None:
        row = self._only()
        txid = row.entry.plan.txid
        self._locked()
        if row.counts or row.edges or row.rejected or row.dead:
            unreachable(f"something of batch {txid} was applied, so it cannot be quarantined")
        if not reason:
            raise Halted(f"the ledger refuses batch {txid}: a quarantine without a reason", txid=txid)
        self._move_fence(txid)
        row.reason = reason

    def commit(self) -> None:
        rows = self._locked(committing=True)
        with self._store.transaction():
            how = self._store.take_failure()
            if how != "aborted":
                self._check_complete(rows)
                self._publish(rows)
            self.end()
        if how is not None:
            raise PostgresUnavailable("connection broke during COMMIT", definite=False)

    def end(self) -> None:
        """Roll back what was not committed and release the lock."""
        self._is_ended = True
        if self._rows is not None:
            self._store.release(self._rows, self)

    def _finish(self, row: _Row, totals: LedgerTotals) -> None:
        rows, txid, entry = self._locked(), row.entry.plan.txid, row.entry
        attempt = rows.attempts.get((txid, entry.attempt.attempt))
        invariant(
            attempt is not None and attempt.state == "begun", f"attempt {entry.attempt} was never begun or has ended"
        )
        invariant(not row.is_final, f"batch {txid} is not being applied")
        if totals.rejected + totals.dead_lettered > totals.read or totals.committers < 1:
            raise Halted(f"the ledger refuses batch {txid}: its totals do not agree", txid=txid)
        self._move_fence(txid)
        row.totals = totals

    def _move_fence(self, txid: int) -> None:
        """R23: one further, so that no row is final, and sealed, before the one before it (I13)."""
        invariant(self._last_txid == txid - 1, f"the fence was not at batch {txid - 1}")
        self._last_txid = txid

    def _check_complete(self, rows: TopologyRows) -> None:
        """What the deferred triggers of the ledger check: every row that was inserted is final and whole."""
        self._appended or unreachable("the ledger row comes before what it counts")
        fence, lead, plans = rows.fence, self._lead, {**rows.plans, **self._mirrored.plans}
        for txid, row in self._appended.items():
            plan, totals = row.entry.plan, row.totals
            complete = totals is not None and totals.committers == len(row.counts)
            if not complete and row.reason is None:
                raise Halted(f"the ledger refuses: COMMIT before batch {txid} was complete", txid=txid)
            if totals is not None and totals.rejected != len(row.rejected):
                raise Halted(f"the ledger refuses: batch {txid} does not have each of its rejected records", txid=txid)
            if totals is not None and totals.dead_lettered != len(row.dead):
                raise Halted(f"the ledger refuses: batch {txid} does not have each of its dead letters", txid=txid)
            mine = (lead.epoch, lead.incarnation, lead.code_hash)
            if (fence.epoch, fence.incarnation, fence.code_hash) != mine or plan.incarnation != lead.incarnation:
                raise Halted(f"the ledger refuses: batch {txid} does not match the fence", txid=txid)
            if txid not in plans or plans[txid][0] != plan.digest:
                raise Halted(f"the ledger refuses: batch {txid} has no mirrored plan with its digest", txid=txid)

    def _publish(self, rows: TopologyRows) -> None:
        topology = self._lead.topology
        self._mirrored.publish(rows)
        if any(row.totals is not None for row in self._appended.values()):
            self._draft.publish()
        for txid, row in self._appended.items():
            self._publish_row(rows, row)
            self._store.rejected += [StoredReject(topology=topology, txid=txid, row=one) for one in row.rejected]
            self._store.dead_letters += [StoredDeadLetter(topology=topology, txid=txid, row=one) for one in row.dead]
        self._store.executed += [one for own in self._own for one in own.executed(topology)]
        self._store.actions += self._actions
        rows.fence = replace(rows.fence, last_txid=self._last_txid)

    def _publish_row(self, rows: TopologyRows, row: _Row) -> None:
        plan, number, totals = row.entry.plan, row.entry.attempt.attempt, row.totals
        stored = StoredBatch(
            digest=plan.digest,
            epoch=self._lead.epoch,
            attempt=number,
            redo_of=plan.redo_of,
            backfills=plan.backfills,
            committer=plan.committer,
        )
        attempt = rows.attempts.get((plan.txid, number))
        if totals is None:
            rows.ledger[plan.txid] = replace(stored, state="quarantined", reason=row.reason)
            if attempt is not None and attempt.state == "begun":
                attempt.state = "cancelled"
            return
        rows.ledger[plan.txid] = replace(
            stored,
            state="applied",
            read=totals.read,
            rejected=totals.rejected,
            dead_lettered=totals.dead_lettered,
            counts=tuple(row.counts),
            edges=row.edges,
        )
        ended = attempt or unreachable("finish has looked for the attempt")
        ended.state, ended.spans = "applied", dict(totals.spans)

    def _locked(self, *, committing: bool = False) -> TopologyRows:
        """Return the rows of the topology. Raises PostgresUnavailable unless this session is open and holds the
        lock.
        """
        if self._store.unavailable:
            self.end()
        if self._is_ended or (self._rows is not None and self._rows.holder is not self):
            raise PostgresUnavailable("terminating connection (SQLSTATE 57P01)", definite=not committing)
        return self._rows or unreachable("lock_fence comes first")

    def _row(self, txid: int) -> _Row:
        return self._appended.get(txid) or unreachable("the ledger row comes before what it counts")

    def _only(self) -> _Row:
        return next(iter(self._appended.values()), None) or unreachable("the ledger row comes before what it counts")
