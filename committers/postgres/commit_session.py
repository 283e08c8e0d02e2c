"""The database transaction that commits one batch, in four round trips: lock; ledger row with the first committer;
finish; COMMIT. A plan that is mirrored by it takes one more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import psycopg2
from sqlalchemy.exc import SQLAlchemyError

from txtopo.committers.postgres.actions import append_action
from txtopo.committers.postgres.fenced_session import FencedSession
from txtopo.committers.postgres.mirror import mirror_plans
from txtopo.committers.postgres.postgres_halves import Applying, PostgresHalf
from txtopo.committers.postgres.sql_errors import (
    sqlstate,
    translate_apply,
    translate_kept,
    translating,
)
from txtopo.committers.postgres.sqlstates import LIMIT_EXCEEDED
from txtopo.committers.postgres.statements import statement
from txtopo.committers.postgres.storable_text import storable
from txtopo.committers.postgres.transactions import joined, opening, run, tag
from txtopo.core.remedies import RESTORE
from txtopo.core.values import (
    ActionRecord,
    CommitterCount,
    CommitterResult,
    DeadLetter,
    EdgeCount,
    Filled,
    Redone,
    RejectedRow,
)
from txtopo.errors import BatchDataError, Halted, TxtopoError, invariant, unreachable
from txtopo.ports import LedgerEntry, LedgerTotals, MirrorEntry
from txtopo.topology.batch_committer import CommitCollector
from txtopo.topology.components import CommitterComponent

REJECTED_PER_STATEMENT = 10_000
"""Largest number of rejected records in one statement; more are sent in several."""
REJECTED_BYTES_PER_STATEMENT = 16 * 1024 * 1024
"""Largest number of their bytes in one statement."""
Kept = TypeVar("Kept", RejectedRow, DeadLetter)


class PostgresLedgerSession(FencedSession):
    """LedgerSession on Postgres. The ledger row is delayed and sent with the rows of the first committer; the edges are
    sent with `finish`.
    """

    _entry: LedgerEntry | None = None
    _redone: Redone | None = None

    def ledger_digest(self, txid: int) -> bytes | None:
        with translating(f"reading ledger row {txid}"):
            found = run(
                self._connection, "read_ledger_digest", topology=self._lead.topology, txid=txid
            ).scalar_one_or_none()
        return None if found is None else bytes(found)

    def mirror(self, entry: MirrorEntry) -> None:
        with translating("mirroring plans"):
            mirror_plans(self._connection, self._lead, [entry])

    def append_ledger(self, entry: LedgerEntry) -> None:
        plan = entry.plan
        self._entry = entry
        values = {
            "topology": plan.topology,
            "txid": plan.txid,
            "prev_digest": plan.previous_digest,
            "digest": plan.digest,
            "incarnation": plan.incarnation,
            "epoch": self._lead.epoch,
            "attempt": entry.attempt.attempt,
            "cut": plan.cut,
            "code_hash": self._lead.code_hash,
            "redo_of": plan.redo_of,
            "backfills": plan.backfills,
            "backfills_into": plan.committer,
        }
        self._held = (statement("append_ledger"), values)

    def apply(
        self, committer: CommitterComponent, result: CommitterResult, collector: CommitCollector | None = None
    ) -> CommitterCount:
        entry, half = self._appended(), self._half(committer)
        self._applied.append(committer.name)
        redo_of = entry.plan.redo_of
        reverses = None if redo_of is None else self._reversed(redo_of, committer.name)
        applying = Applying(
            connection=self._connection,
            entry=entry,
            reverses=reverses,
            held=self._take_held(),
            tag=tag(self._lead),
            answers=self._answers,
            typed=lambda error, ledger_held: self._translate_apply(error, half, result, ledger_held=ledger_held),
        )
        return half.apply(applying, result, collector)

    def _translate_apply(
        self, error: Exception, half: PostgresHalf, result: CommitterResult | None, *, ledger_held: bool
    ) -> TxtopoError:
        """Return the typed error (W1 to W3), with details that only the tables and the rows show."""
        typed = translate_apply(
            error,
            half.component.name,
            self._appended().plan.txid,
            ledger_held=ledger_held,
            answers=self._answers,
            compare=lambda: self._compared(half),
        )
        too_long = (sqlstate(error) or "").startswith(LIMIT_EXCEEDED)
        if too_long and isinstance(typed, BatchDataError) and result is not None:
            longest = half.longest_key(result)
            typed = BatchDataError(
                f"{typed}; {longest}" if longest is not None else str(typed),
                component=typed.component,
                detail=typed.detail,
                cause=typed.cause,
            )
        return typed

    def _compared(self, half: PostgresHalf) -> str | None:
        """Return what is wrong with a committer's tables, read on another connection, since this database transaction
        has failed.
        """
        if not half.ddl():
            return None
        try:
            with self._database.transaction("comparing tables", self._database.fresh) as connection:
                connection.exec_driver_sql(*opening(tag(self._lead)))
                return half.problem(connection)
        except TxtopoError:
            return None

    def last_contributed(self, committer: CommitterComponent) -> CommitterResult | None:
        half = self._half(committer)
        try:
            return half.last_contributed(self._connection)
        except (SQLAlchemyError, psycopg2.Error) as error:
            raise self._translate_apply(error, half, None, ledger_held=False) from error

    def check_deferred(self, committer: CommitterComponent) -> None:
        half = self._half(committer)
        try:
            half.check_deferred(self._connection)
        except (SQLAlchemyError, psycopg2.Error) as error:
            raise self._translate_apply(error, half, None, ledger_held=False) from error

    def keep_alive(self) -> None:
        with translating("keeping the database transaction alive"):
            self._connection.exec_driver_sql("select 1")

    def append_edges(self, edges: Sequence[EdgeCount]) -> None:
        if not edges:
            return
        plan = self._appended().plan
        values = {
            "topology": plan.topology,
            "txid": plan.txid,
            "edges": [edge.edge for edge in edges],
            "sent": [edge.sent for edge in edges],
            "received": [edge.received for edge in edges],
        }
        self._held = joined(self._held, statement("append_edges"), values)

    def append_rejected(self, rows: Sequence[RejectedRow]) -> None:
        def columns(chunk: Sequence[RejectedRow]) -> Mapping[str, Any]:
            return {
                # P14: position and reason of a record must not be lost because of a byte that Postgres cannot hold.
                "paths": [storable(row.path) for row in chunk],
                "lines": [row.line for row in chunk],
                "sizes": [row.raw_bytes for row in chunk],
                "units": [row.unit for row in chunk],
            }

        self._append_records("append_rejected", rows, columns, "rejected records")

    def append_dead_letters(self, rows: Sequence[DeadLetter]) -> None:
        def columns(chunk: Sequence[DeadLetter]) -> Mapping[str, Any]:
            return {
                "positions": [storable(row.position) for row in chunk],  # P14, as with rejected records
                "components": [row.component for row in chunk],
            }

        self._append_records("append_dead_letters", rows, columns, "dead letters")

    def _append_records(
        self,
        name: str,
        rows: Sequence[Kept],
        columns: Callable[[Sequence[Kept]], Mapping[str, Any]],
        kept: str,
    ) -> None:
        """Store source records that no committer counts, with the statement `name`, in bounded chunks. `columns`
        returns the columns that only this kind of record has.
        """
        txid = self._appended().plan.txid
        if rows:
            self._send_held()
        for chunk in rejected_chunks(rows):
            try:
                run(
                    self._connection,
                    name,
                    topology=self._lead.topology,
                    txid=txid,
                    spouts=[row.spout for row in chunk],
                    reasons=[storable(row.reason) for row in chunk],
                    raws=[row.raw for row in chunk],
                    **columns(chunk),
                )
            except (SQLAlchemyError, psycopg2.Error) as error:
                raise translate_kept(error, kept, chunk[0].spout, txid, answers=self._answers) from error

    def append_action(self, action: ActionRecord) -> None:
        with translating(f"writing the action log: {action.command}"):
            append_action(self._connection, self._lead.topology, action)

    def read_redone(self, txid: int) -> Redone | None:
        with translating(f"reading what redoes batch {txid}"):
            row = run(self._connection, "read_redone", topology=self._lead.topology, redone_txid=txid).one_or_none()
        self._redone = None if row is None else Redone(state=row[0], by=row[1], holders=json.loads(row[2] or "{}"))
        return self._redone

    def read_filled(self, txid: int, committer: str) -> Filled | None:
        with translating(f"reading who has counted batch {txid}"):
            values = {"topology": self._lead.topology, "filled_txid": txid, "committer": committer}
            row = run(self._connection, "read_filled", **values).one_or_none()
        return None if row is None else Filled(redone_by=row[0], counted_by=row[1])

    def finish(self, totals: LedgerTotals) -> None:
        entry = self._appended()
        self._finish([(entry.plan.txid, entry.attempt.attempt, totals)], f"batch {entry.plan.txid}")

    def finish_quarantined(self, reason: str) -> None:
        txid = self._appended().plan.txid
        # Applied rows would stay in the tables: a quarantined batch must have no effect (R14).
        _, values = self._take_held() or unreachable(
            f"something of batch {txid} was applied, so it cannot be quarantined"
        )
        try:
            row = run(self._connection, "quarantine_batch", **values, reason=storable(reason)).one()
        except (SQLAlchemyError, psycopg2.Error) as error:
            raise self._translate_finish(error, txid, f"batch {txid}") from error
        rows, fences, xid = row
        self._check_transaction(xid, f"batch {txid}")
        invariant(rows == 1, f"ledger row {txid} was not inserted")
        invariant(fences == 1, f"the fence was not at batch {txid - 1} although it was locked at that batch")  # R6

    def commit(self) -> None:
        txid = self._appended().plan.txid
        self._commit(f"batch {txid}", txid)

    def _appended(self) -> LedgerEntry:
        return self._entry or unreachable("the ledger row comes before what it counts")

    def _reversed(self, txid: int, committer: str) -> int | None:
        """Return the batch whose rows a redo of batch `txid` removes from a committer; None if it had no effect."""
        redone = self._redone or self.read_redone(txid)
        if redone is None:
            raise Halted(f"batch {txid} is to be redone, but it is not in the ledger", txid=txid, next_command=RESTORE)
        return redone.holder(txid, committer) if redone.state == "applied" else None

    def _send_held(self) -> None:
        held = self._take_held()
        if held is None:
            return
        try:
            self._connection.exec_driver_sql(*held)
        except (SQLAlchemyError, psycopg2.Error) as error:
            txid = self._appended().plan.txid
            raise self._translate_finish(error, txid, f"batch {txid}") from error


def rejected_chunks(rows: Sequence[Kept]) -> Iterator[Sequence[Kept]]:
    """Yield chunks that one statement can carry: bounded in rows and in bytes, never empty."""
    start, size = 0, 0
    for index, row in enumerate(rows):
        if index > start and (
            index - start >= REJECTED_PER_STATEMENT or size + len(row.raw) > REJECTED_BYTES_PER_STATEMENT
        ):
            yield rows[start:index]
            start, size = index, 0
        size += len(row.raw)
    if start < len(rows):
        yield rows[start:]
