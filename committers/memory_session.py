"""The commit of one batch in memory: works on a draft that COMMIT puts in place as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from txtopo.committers.applying import Shape, shape_of
from txtopo.committers.memory_store import Key, LedgerRow, MemoryPostgres, Numbers, TopologyRows
from txtopo.committers.rules import describe_counts
from txtopo.core.values import CommitterCount, CommitterResult, EdgeCount, Fence, Lead
from txtopo.errors import BatchDataError, Fenced, Halted, PostgresUnavailable, broken, invariant
from txtopo.ports import LedgerEntry, LedgerTotals
from txtopo.topology.components import CommitterComponent

BIGINT_MAX = 2**63 - 1


class MemoryLedgerSession:
    """LedgerSession on MemoryPostgres."""

    def __init__(self, store: MemoryPostgres, lead: Lead) -> None:
        self._store = store
        self._lead = lead
        self._rows: TopologyRows | None = None
        self._entry: LedgerEntry | None = None
        self._counts: list[CommitterCount] = []
        self._edges: tuple[EdgeCount, ...] = ()
        self._totals: LedgerTotals | None = None
        self._tables: dict[str, dict[Key, Numbers]] = {}
        self._contributions: dict[str, list[tuple[Any, ...]]] = {}
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

    def apply(self, committer: CommitterComponent, result: CommitterResult) -> CommitterCount:
        self._locked()
        shape, txid = shape_of(committer), self._appended().plan.txid
        name = f"{shape.schema}.{shape.table}"
        stored = self._store.tables.get(name)
        if stored is None or list(result.rows.column_names) != [column.name for column in shape.columns]:
            raise _misfit(committer, f"there is no table {name} with these columns")
        draft = self._tables.setdefault(name, {})
        counted, digest, seen = 0, 0, set[Key]()
        for row in _rows_of(result):
            _check_row(committer, shape, row)
            key, numbers = row[: len(shape.keys)], row[len(shape.keys) :]
            if key in seen:
                raise _misfit(committer, f"key {key} comes twice")
            seen.add(key)
            old = draft.get(key) or stored.get(key) or (0,) * len(numbers)
            draft[key] = tuple(was + more for was, more in zip(old, numbers, strict=True))
            _check_row(committer, shape, (*key, *draft[key]))
            counted += numbers[0]
            digest += _hash(row)
            if shape.contribution_table is not None:
                self._contributions.setdefault(name, []).append((txid, None, *row))
        if result.arrived != counted or result.row_count != len(seen):
            numbers_text = describe_counts(result.arrived, counted, result.row_count, len(seen), 0)
            raise BatchDataError(f"committer {committer.name}: {numbers_text}", component=committer.name)
        count = CommitterCount(
            committer=committer.name,
            arrived=result.arrived,
            counted=counted,
            results=result.row_count,
            written=len(seen),
            digest=digest,
        )
        self._counts.append(count)
        return count

    def append_edges(self, edges: Sequence[EdgeCount]) -> None:
        self._locked()
        self._edges = tuple(edges)

    def finish(self, totals: LedgerTotals) -> None:
        rows, entry = self._locked(), self._appended()
        attempt = rows.attempts.get((entry.plan.txid, entry.attempt.attempt))
        invariant(
            attempt is not None and attempt.state == "begun", f"attempt {entry.attempt} was never begun or has ended"
        )
        invariant(rows.fence.last_txid == entry.plan.txid - 1, f"the fence did not stand at {entry.plan.txid - 1}")
        if totals.rejected + totals.dead_lettered > totals.read or totals.committers < 1:
            raise Halted(f"the ledger refuses batch {entry.plan.txid}: its totals do not agree", txid=entry.plan.txid)
        self._totals = totals

    def commit(self) -> None:
        rows, entry = self._locked(committing=True), self._appended()
        with self._store.transaction():
            how = self._store.take_failure()
            if how != "aborted":
                self._check_complete(rows, entry)
                self._put_in_place(rows, entry)
            self.end()
        if how is not None:
            raise PostgresUnavailable("connection broke during COMMIT", definite=False)

    def end(self) -> None:
        """Roll back what was not committed and let the lock go."""
        self._is_ended = True
        if self._rows is not None:
            self._store.release(self._rows, self)

    def _check_complete(self, rows: TopologyRows, entry: LedgerEntry) -> None:
        plan, fence, lead = entry.plan, rows.fence, self._lead
        if self._totals is None or self._totals.committers != len(self._counts):
            raise Halted(f"the ledger refuses: COMMIT before batch {plan.txid} was complete", txid=plan.txid)
        mine = (lead.epoch, lead.incarnation, lead.code_hash)
        if (fence.epoch, fence.incarnation, fence.code_hash) != mine or plan.incarnation != lead.incarnation:
            raise Halted(f"the ledger refuses: batch {plan.txid} does not match the fence", txid=plan.txid)
        if plan.txid not in rows.plans or rows.plans[plan.txid][0] != plan.digest:
            raise Halted(f"the ledger refuses: batch {plan.txid} has no mirrored plan with its digest", txid=plan.txid)

    def _put_in_place(self, rows: TopologyRows, entry: LedgerEntry) -> None:
        plan, totals = entry.plan, self._totals or broken("finish comes before commit")
        for name, draft in self._tables.items():
            self._store.tables[name] = {**self._store.tables[name], **draft}
        for name, contributions in self._contributions.items():
            self._store.contributions[name] = [*self._store.contributions.get(name, []), *contributions]
        rows.ledger[plan.txid] = LedgerRow(
            digest=plan.digest,
            epoch=self._lead.epoch,
            attempt=entry.attempt.attempt,
            redo_of=plan.redo_of,
            read=totals.read,
            rejected=totals.rejected,
            dead_lettered=totals.dead_lettered,
            counts=tuple(self._counts),
            edges=self._edges,
        )
        fence = rows.fence
        rows.fence = Fence(
            incarnation=fence.incarnation,
            owner_nonce=fence.owner_nonce,
            epoch=fence.epoch,
            code_hash=fence.code_hash,
            last_txid=plan.txid,
        )
        attempt = rows.attempts[(plan.txid, entry.attempt.attempt)]
        attempt.state, attempt.spans = "applied", dict(totals.spans)

    def _locked(self, *, committing: bool = False) -> TopologyRows:
        """The topology's rows, if this session still lives and holds the lock."""
        if self._store.unavailable:
            self.end()
        if self._is_ended or (self._rows is not None and self._rows.holder is not self):
            raise PostgresUnavailable("terminating connection (SQLSTATE 57P01)", definite=not committing)
        return self._rows or broken("lock_fence comes first")

    def _appended(self) -> LedgerEntry:
        return self._entry or broken("the ledger row comes before what it counts")


def _rows_of(result: CommitterResult) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in result.rows.columns), strict=True))


def _check_row(committer: CommitterComponent, shape: Shape, row: tuple[Any, ...]) -> None:
    """What Postgres would refuse (P14)."""
    for value in row[: len(shape.keys)]:
        if isinstance(value, str) and ("\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value)):
            raise _misfit(committer, "a text holds NUL or a lone surrogate")
    count, *sums = row[len(shape.keys) :]
    if count is None or None in sums:
        raise _misfit(committer, "a count or sum is NULL")
    if not -BIGINT_MAX - 1 <= count <= BIGINT_MAX:
        raise _misfit(committer, "bigint out of range")


def _misfit(committer: CommitterComponent, reason: str) -> BatchDataError:
    return BatchDataError(
        f"committer {committer.name}: its rows do not fit the table: {reason}", component=committer.name
    )


def _hash(row: tuple[Any, ...]) -> int:
    text = repr([str(value) if isinstance(value, Decimal) else value for value in row])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)
