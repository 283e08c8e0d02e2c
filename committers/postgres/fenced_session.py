"""The beginning and the end of every commit, of one batch or of a run: lock the fence row; finish the batches in the
same database transaction; COMMIT.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg2
from psycopg2.extensions import TRANSACTION_STATUS_INTRANS
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from txtopo.committers.postgres.apply_counts import array_literal
from txtopo.committers.postgres.postgres_halves import PostgresHalf
from txtopo.committers.postgres.sql_errors import (
    EDGES,
    table_of,
    translate,
    translate_commit,
    translate_kept,
    translating,
)
from txtopo.committers.postgres.statements import statement
from txtopo.committers.postgres.transactions import Database, Held, backend_pid, begin, commit, joined, status, tag
from txtopo.core.remedies import RESTORE
from txtopo.core.values import Fence, Lead
from txtopo.errors import Fenced, Halted, PostgresUnavailable, TxtopoError, invariant
from txtopo.ports import LedgerTotals
from txtopo.topology.components import CommitterComponent

_KEPT = {
    "edge_count": ("counts of edges", EDGES),
    "rejected_row": ("rejected records", "rejected_row"),
    "dead_letter": ("dead letters", "dead_letter"),
}
"""Table -> what it holds, and the component of an error about it."""


class FencedSession:
    """One database transaction under the lock of the fence row. Statements may be delayed, and are then sent with the
    next one.
    """

    def __init__(
        self, database: Database, lead: Lead, connection: Connection, half: Callable[[CommitterComponent], PostgresHalf]
    ) -> None:
        self._database = database
        self._lead = lead
        self._connection = connection
        self._half = half
        self._held: Held | None = None
        self._xid: str | None = None
        self._applied: list[str] = []
        """Committers whose rows are in this database transaction."""

    def lock_fence(self) -> Fence:
        with translating("locking the fence"):
            fence, self._xid = begin(self._connection, self._lead.topology, tag(self._lead), "lock_fence_to_commit")
        if fence is None:
            raise Fenced(f"topology {self._lead.topology} has no fence row any more")
        return fence

    def _answers(self) -> bool:
        return self._database.answers(self._connection)

    def _take_held(self) -> Held | None:
        held, self._held = self._held, None
        return held

    def _finish(
        self, batches: Sequence[tuple[int, int, LedgerTotals]], doing: str, tables: Sequence[Mapping[str, Any]] = ()
    ) -> str | None:
        """Send the delayed statements, then make batches final, each given as txid, attempt and totals, ascending: a
        function, whose plan the server keeps in the session without a name that could be missing there (R31). Returns
        what in `tables` allows no commit run (R20), as text.
        """
        numbers = {totals.committers for _, _, totals in batches}
        invariant(len(numbers) == 1, f"{doing} have different numbers of committers")
        values = {
            "topology": self._lead.topology,
            "xid": self._xid,
            "txids": array_literal(txid for txid, _, _ in batches),
            "attempts": array_literal(attempt for _, attempt, _ in batches),
            "reads": array_literal(totals.read for _, _, totals in batches),
            "rejecteds": array_literal(totals.rejected for _, _, totals in batches),
            "dead_lettereds": array_literal(totals.dead_lettered for _, _, totals in batches),
            "spans": array_literal(json.dumps(dict(totals.spans)) for _, _, totals in batches),
            "committers": numbers.pop(),
            "tables": json.dumps(list(tables)) if tables else None,
        }
        sent_s = time.monotonic()
        try:
            row = self._connection.exec_driver_sql(*joined(self._take_held(), statement("finish_run"), values)).one()
        except (SQLAlchemyError, psycopg2.Error, ValueError) as error:
            raise self._translate_finish(error, batches[0][0], doing) from error
        finished, obstacles, xid, server_s = row
        self._database.travels_s.append(max(0.0, time.monotonic() - sent_s - server_s))
        self._check_transaction(xid, doing)
        invariant(finished == len(batches), f"{doing}: {finished} of {len(batches)} were finished")
        return None if obstacles is None else str(obstacles)

    def _translate_finish(self, error: Exception, first: int, batches: str) -> TxtopoError:
        """Return the typed error for the statements that finish batches, from txid `first` on, and for what was delayed
        until then.
        """
        doing, (schema, table) = f"finishing {batches}", table_of(error)
        if (schema, table) == ("txtopo", "ledger"):
            return Halted(
                f"the ledger refuses batch {first}: {translate(error, doing)}", txid=first, next_command=RESTORE
            )
        if schema == "txtopo" and table in _KEPT:
            return translate_kept(error, *_KEPT[table], first, answers=self._answers)
        return translate(error, doing)

    def _check_transaction(self, xid: str, batches: str) -> None:
        """Check that this is the database transaction that was begun (P1, P9): a failed one commits nothing, another
        one holds no lock.
        """
        if xid != self._xid or status(self._connection) != TRANSACTION_STATUS_INTRANS:
            raise PostgresUnavailable(
                f"finishing {batches}: this is not the database transaction that locked the fence"
            )

    def _commit(self, batches: str, txid: int) -> None:
        doing, applied = f"COMMIT of {batches}", ", ".join(self._applied) or "commit"
        pid = backend_pid(self._connection)
        try:
            commit(
                self._connection,
                doing,
                lambda error: translate_commit(error, applied, txid, doing, answers=self._answers),
            )
        except PostgresUnavailable as error:
            if not error.definite:
                self._database.unresolved_pids.add(pid)
                self._connection.invalidate()
            raise
