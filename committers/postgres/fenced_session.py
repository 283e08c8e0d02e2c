"""The beginning and the end of every commit: lock the fence row, check that the database transaction is still the same
one, COMMIT.
"""

from __future__ import annotations

from collections.abc import Callable

from psycopg2.extensions import TRANSACTION_STATUS_INTRANS
from sqlalchemy import Connection

from txtopo.committers.postgres.postgres_halves import PostgresHalf
from txtopo.committers.postgres.sql_errors import translate_commit, translating
from txtopo.committers.postgres.transactions import Database, Held, backend_pid, begin, commit, status, tag
from txtopo.core.values import Fence, Lead
from txtopo.errors import Fenced, PostgresUnavailable
from txtopo.topology.components import CommitterComponent


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
