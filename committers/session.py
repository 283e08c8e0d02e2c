"""The database transaction that commits one batch, in four round trips: lock, ledger row with the first committer, finish, COMMIT."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import psycopg2
from psycopg2.extensions import TRANSACTION_STATUS_INTRANS
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from txtopo.committers.applying import Applier
from txtopo.committers.outcomes import table_of, translate, translate_apply, translating
from txtopo.committers.statements import statement
from txtopo.committers.transactions import Database, backend_pid, begin, commit, run, status, tag
from txtopo.core.values import CommitterCount, CommitterResult, EdgeCount, Fence, Lead
from txtopo.errors import Fenced, Halted, PostgresUnavailable, broken, invariant
from txtopo.ports import LedgerEntry, LedgerTotals
from txtopo.topology.components import CommitterComponent


class PostgresLedgerSession:
    """LedgerSession on Postgres. The ledger row is held back and travels with the first committer's rows."""

    def __init__(
        self, database: Database, lead: Lead, connection: Connection, applier: Callable[[CommitterComponent], Applier]
    ) -> None:
        self._database = database
        self._lead = lead
        self._connection = connection
        self._applier = applier
        self._entry: LedgerEntry | None = None
        self._held: tuple[str, dict[str, Any]] | None = None
        self._xid: str | None = None

    def lock_fence(self) -> Fence:
        with translating("locking the fence"):
            fence, self._xid = begin(self._connection, self._lead.topology, tag(self._lead), "lock_fence_to_commit")
        if fence is None:
            raise Fenced(f"topology {self._lead.topology} has no fence row any more")
        return fence

    def ledger_digest(self, txid: int) -> bytes | None:
        with translating(f"reading ledger row {txid}"):
            found = run(
                self._connection, "read_ledger_digest", topology=self._lead.topology, txid=txid
            ).scalar_one_or_none()
        return None if found is None else bytes(found)

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
        }
        self._held = (statement("append_ledger"), values)

    def apply(self, committer: CommitterComponent, result: CommitterResult) -> CommitterCount:
        entry = self._appended()
        held = self._take_held()
        try:
            return self._applier(committer).apply(self._connection, entry.plan.topology, entry.plan.txid, result, held)
        except (SQLAlchemyError, psycopg2.Error, ValueError, OverflowError) as error:
            raise translate_apply(error, committer.name, entry.plan.txid, ledger_held=held is not None) from error

    def append_edges(self, edges: Sequence[EdgeCount]) -> None:
        if not edges:
            return
        entry = self._appended()
        with translating(f"recording edges of batch {entry.plan.txid}"):
            self._send_held()
            run(
                self._connection,
                "append_edges",
                topology=entry.plan.topology,
                txid=entry.plan.txid,
                edges=[edge.edge for edge in edges],
                sent=[edge.sent for edge in edges],
                received=[edge.received for edge in edges],
            )

    def finish(self, totals: LedgerTotals) -> None:
        entry = self._appended()
        txid = entry.plan.txid
        try:
            self._send_held()
            row = run(
                self._connection,
                "finish_batch",
                topology=entry.plan.topology,
                txid=txid,
                attempt=entry.attempt.attempt,
                read=totals.read,
                rejected=totals.rejected,
                dead_lettered=totals.dead_lettered,
                committers=totals.committers,
                spans=json.dumps(dict(totals.spans)),
            ).one()
        except (SQLAlchemyError, psycopg2.Error) as error:
            if table_of(error) == ("txtopo", "ledger"):
                raise Halted(f"the ledger refuses batch {txid}: {translate(error, 'finishing')}", txid=txid) from error
            raise translate(error, f"finishing batch {txid}") from error
        rows, fences, attempts, xid = row
        if xid != self._xid or status(self._connection) != TRANSACTION_STATUS_INTRANS:
            # P1, P9: a failed database transaction commits nothing, another one holds no lock.
            raise PostgresUnavailable(
                f"finishing batch {txid}: this is not the database transaction that locked the fence"
            )
        invariant(rows == 1, f"ledger row {txid} was not being applied")
        invariant(fences == 1, f"the fence did not stand at {txid - 1} although it was locked there")  # R6
        invariant(attempts == 1, f"attempt {entry.attempt} was never begun or has ended")

    def commit(self) -> None:
        doing = f"COMMIT of batch {self._appended().plan.txid}"
        pid = backend_pid(self._connection)
        try:
            commit(self._connection, doing)
        except PostgresUnavailable as error:
            if not error.definite:
                self._database.unresolved_pids.add(pid)
                self._connection.invalidate()
            raise

    def _appended(self) -> LedgerEntry:
        return self._entry or broken("the ledger row comes before what it counts")

    def _take_held(self) -> tuple[str, dict[str, Any]] | None:
        held, self._held = self._held, None
        return held

    def _send_held(self) -> None:
        held = self._take_held()
        if held is not None:
            self._connection.exec_driver_sql(*held)
