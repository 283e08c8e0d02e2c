"""The commit of one batch in memory: it works on a draft, and COMMIT publishes the draft as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from txtopo.committers.memory.memory_applying import MemoryDraft
from txtopo.committers.memory.memory_store import (
    MemoryPostgres,
    StoredAction,
    StoredBatch,
    StoredDeadLetter,
    StoredReject,
    TopologyRows,
)
from txtopo.committers.memory.memory_transaction import MemoryTransaction, apply_user_committer
from txtopo.committers.protocol.redo_checks import irreversible_code
from txtopo.core.values import (
    ActionRecord,
    CommitterCount,
    CommitterResult,
    DeadLetter,
    EdgeCount,
    Fence,
    Lead,
    Redone,
    RejectedRow,
)
from txtopo.errors import BatchDataError, Fenced, Halted, PostgresUnavailable, invariant, unreachable
from txtopo.ports import LedgerEntry, LedgerTotals
from txtopo.topology.batch_committer import BatchCommitter, CommitCollector
from txtopo.topology.components import CommitterComponent


class MemoryLedgerSession:
    """LedgerSession on MemoryPostgres."""

    def __init__(self, store: MemoryPostgres, lead: Lead) -> None:
        self._store = store
        self._lead = lead
        self._rows: TopologyRows | None = None
        self._entry: LedgerEntry | None = None
        self._draft = MemoryDraft(store)
        self._counts: list[CommitterCount] = []
        self._edges: tuple[EdgeCount, ...] = ()
        self._rejected: list[RejectedRow] = []
        self._dead: list[DeadLetter] = []
        self._own: list[MemoryTransaction] = []
        self._actions: list[StoredAction] = []
        self._totals: LedgerTotals | None = None
        self._reason: str | None = None
        """Why the batch is quarantined; None: it is not."""
        self._is_ended = False

    def lock_fence(self) -> Fence:
        with self._store.transaction():
            rows = self._store.topologies.get(self._lead.topology)
        if rows is None:
            raise Fenced(f"topology {self._lead.topology} has no fence row any more")
        self._store.hold(rows, self)
        self._rows = rows
        return rows.fence

    def ledger_digest(self, txid: int) -> bytes | None:
        row = self._locked().ledger.get(txid)
        return None if row is None else row.digest

    def append_ledger(self, entry: LedgerEntry) -> None:
        ledger, plan = self._locked().ledger, entry.plan
        before = ledger.get(plan.txid - 1)
        if plan.txid in ledger or before is None or before.digest != plan.previous_digest:
            raise Halted(
                f"the ledger refuses batch {plan.txid}: it does not follow the batch before it", txid=plan.txid
            )
        self._entry = entry

    def apply(
        self, committer: CommitterComponent, result: CommitterResult, collector: CommitCollector | None = None
    ) -> CommitterCount:
        rows, plan, reversed_rows = self._locked(), self._appended().plan, 0
        if plan.redo_of is not None:
            redone = self.read_redone(plan.redo_of)
            if redone is None or redone.by is not None:
                raise Halted(f"the ledger refuses batch {plan.txid}: it redoes batch {plan.redo_of}", txid=plan.txid)
            if redone.state == "applied" and isinstance(committer.bolt, BatchCommitter):
                raise irreversible_code(committer.name, plan.redo_of)
            if redone.state == "applied":
                counts = {count.committer: count for count in rows.ledger[plan.redo_of].counts}
                expected = counts[committer.name].results if committer.name in counts else None
                reversed_rows = self._draft.reverse_batch(committer, plan.txid, plan.redo_of, expected)
        if isinstance(committer.bolt, BatchCommitter):
            transaction = MemoryTransaction(committer.name, self._appended().attempt, self._store.answers)
            count = apply_user_committer(committer, result, transaction, collector)
            self._own.append(transaction)
        else:
            count = self._draft.apply(committer, plan.txid, result, reversed_rows)
        self._counts.append(count)
        return count

    def last_contributed(self, committer: CommitterComponent) -> CommitterResult | None:
        self._locked()
        return self._draft.last_contributed(committer)

    def check_deferred(self, committer: CommitterComponent) -> None:
        self._locked()

    def keep_alive(self) -> None:
        self._locked()

    def append_edges(self, edges: Sequence[EdgeCount]) -> None:
        self._locked()
        self._appended()
        if len({edge.edge for edge in edges}) != len(edges):
            raise BatchDataError("edges: its counts of edges cannot be kept: an edge is there twice", component="edges")
        self._edges = tuple(edges)

    def append_rejected(self, rows: Sequence[RejectedRow]) -> None:
        self._locked()
        self._appended()
        known = {(row.spout, row.path, row.line) for row in self._rejected}
        for row in rows:
            if (
                (row.spout, row.path, row.line) in known
                or row.line < 1
                or not row.reason
                or row.raw_bytes < len(row.raw)
            ):
                message = f"spout {row.spout}: its rejected records cannot be kept: {row.path}:{row.line}"
                raise BatchDataError(message, component=row.spout)
            known.add((row.spout, row.path, row.line))
            self._rejected.append(row)

    def append_dead_letters(self, rows: Sequence[DeadLetter]) -> None:
        self._locked()
        self._appended()
        known = {(row.spout, row.position) for row in self._dead}
        for row in rows:
            if (row.spout, row.position) in known or not (row.position and row.reason):
                message = f"spout {row.spout}: its dead letters cannot be kept: {row.position}"
                raise BatchDataError(message, component=row.spout)
            known.add((row.spout, row.position))
            self._dead.append(row)

    def append_action(self, action: ActionRecord) -> None:
        self._locked()
        self._actions.append(self._store.action_row(self._lead.topology, action))

    def read_redone(self, txid: int) -> Redone | None:
        ledger = self._locked().ledger
        row = ledger.get(txid)
        if row is None or row.state == "genesis":
            return None
        applied = (number for number, one in ledger.items() if one.redo_of == txid and one.state == "applied")
        return Redone(state=row.state, by=next(applied, None))

    def finish(self, totals: LedgerTotals) -> None:
        rows, entry = self._locked(), self._appended()
        attempt = rows.attempts.get((entry.plan.txid, entry.attempt.attempt))
        invariant(
            attempt is not None and attempt.state == "begun", f"attempt {entry.attempt} was never begun or has ended"
        )
        invariant(rows.fence.last_txid == entry.plan.txid - 1, f"the fence was not at batch {entry.plan.txid - 1}")
        if totals.rejected + totals.dead_lettered > totals.read or totals.committers < 1:
            raise Halted(f"the ledger refuses batch {entry.plan.txid}: its totals do not agree", txid=entry.plan.txid)
        self._totals = totals

    def finish_quarantined(self, reason: str) -> None:
        rows, txid = self._locked(), self._appended().plan.txid
        if self._counts or self._edges or self._rejected or self._dead:
            unreachable(f"something of batch {txid} was applied, so it cannot be quarantined")
        invariant(rows.fence.last_txid == txid - 1, f"the fence was not at batch {txid - 1}")
        if not reason:
            raise Halted(f"the ledger refuses batch {txid}: a quarantine without a reason", txid=txid)
        self._reason = reason

    def commit(self) -> None:
        rows, entry = self._locked(committing=True), self._appended()
        with self._store.transaction():
            how = self._store.take_failure()
            if how != "aborted":
                self._check_complete(rows, entry)
                self._publish(rows, entry)
            self.end()
        if how is not None:
            raise PostgresUnavailable("connection broke during COMMIT", definite=False)

    def end(self) -> None:
        """Roll back what was not committed and release the lock."""
        self._is_ended = True
        if self._rows is not None:
            self._store.release(self._rows, self)

    def _check_complete(self, rows: TopologyRows, entry: LedgerEntry) -> None:
        plan, fence, lead, totals = entry.plan, rows.fence, self._lead, self._totals
        complete = totals is not None and totals.committers == len(self._counts)
        if not complete and self._reason is None:
            raise Halted(f"the ledger refuses: COMMIT before batch {plan.txid} was complete", txid=plan.txid)
        if totals is not None and totals.rejected != len(self._rejected):
            raise Halted(
                f"the ledger refuses: batch {plan.txid} does not have each of its rejected records", txid=plan.txid
            )
        if totals is not None and totals.dead_lettered != len(self._dead):
            raise Halted(
                f"the ledger refuses: batch {plan.txid} does not have each of its dead letters", txid=plan.txid
            )
        mine = (lead.epoch, lead.incarnation, lead.code_hash)
        if (fence.epoch, fence.incarnation, fence.code_hash) != mine or plan.incarnation != lead.incarnation:
            raise Halted(f"the ledger refuses: batch {plan.txid} does not match the fence", txid=plan.txid)
        if plan.txid not in rows.plans or rows.plans[plan.txid][0] != plan.digest:
            raise Halted(f"the ledger refuses: batch {plan.txid} has no mirrored plan with its digest", txid=plan.txid)

    def _publish(self, rows: TopologyRows, entry: LedgerEntry) -> None:
        plan, totals = entry.plan, self._totals
        row = StoredBatch(
            digest=plan.digest, epoch=self._lead.epoch, attempt=entry.attempt.attempt, redo_of=plan.redo_of
        )
        attempt = rows.attempts.get((plan.txid, entry.attempt.attempt))
        if totals is None:
            rows.ledger[plan.txid] = replace(row, state="quarantined", reason=self._reason)
            if attempt is not None and attempt.state == "begun":
                attempt.state = "cancelled"
        else:
            self._draft.publish()
            rows.ledger[plan.txid] = replace(
                row,
                state="applied",
                read=totals.read,
                rejected=totals.rejected,
                dead_lettered=totals.dead_lettered,
                counts=tuple(self._counts),
                edges=self._edges,
            )
            ended = attempt or unreachable("finish has looked for the attempt")
            ended.state, ended.spans = "applied", dict(totals.spans)
        topology = self._lead.topology
        self._store.rejected += [StoredReject(topology=topology, txid=plan.txid, row=one) for one in self._rejected]
        self._store.dead_letters += [StoredDeadLetter(topology=topology, txid=plan.txid, row=one) for one in self._dead]
        self._store.executed += [one for own in self._own for one in own.executed(topology)]
        self._store.actions += self._actions
        rows.fence = replace(rows.fence, last_txid=plan.txid)

    def _locked(self, *, committing: bool = False) -> TopologyRows:
        """Return the rows of the topology. Raises PostgresUnavailable unless this session is open and holds the
        lock.
        """
        if self._store.unavailable:
            self.end()
        if self._is_ended or (self._rows is not None and self._rows.holder is not self):
            raise PostgresUnavailable("terminating connection (SQLSTATE 57P01)", definite=not committing)
        return self._rows or unreachable("lock_fence comes first")

    def _appended(self) -> LedgerEntry:
        return self._entry or unreachable("the ledger row comes before what it counts")
