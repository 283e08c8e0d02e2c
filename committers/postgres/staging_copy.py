"""Stores result rows in a staging table by COPY, inside a task (R10). Tasks load this module: it imports nothing that
only a driver has, and what is sent to them has no secret.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

import psycopg2
import pyarrow as pa

from txtopo.committers.postgres.copied_text import COPY_BYTES, ROWS_PER_COPY, texts_of, with_front
from txtopo.committers.postgres.sqlstates import Fault, Owner, verdict_on
from txtopo.committers.sql_names import quoted
from txtopo.core.limits import LOCK_TIMEOUT_MS, STAGING_IDLE_TIMEOUT_MS, STATEMENT_TIMEOUT_MS
from txtopo.errors import StagingFailed

SCHEMA = "txtopo_staging"
PART, TASK = "$part", "$task"
"""Columns in front of those of the result. No field may have such a name."""
_CONNECT_ARGUMENTS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "client_encoding": "utf8",
}
_OPENING = f"""set local statement_timeout = {STATEMENT_TIMEOUT_MS};
set local lock_timeout = {LOCK_TIMEOUT_MS};
set local idle_in_transaction_session_timeout = {STAGING_IDLE_TIMEOUT_MS};
set local search_path = pg_catalog;
set local timezone = 'UTC';
set local datestyle = 'ISO, YMD'"""


def of_topology(topology: str) -> str:
    """Return the beginning of the names of the tables of a topology: its own name is too long for a table's."""
    return f"{hashlib.sha256(topology.encode()).hexdigest()[:12]}_"


@dataclass(frozen=True, slots=True)
class CopyWriter:
    """`StagingWriter` for one table."""

    dsn: str
    """Without a secret: libpq finds the password in the environment or the password file of this host."""
    table: str
    columns: tuple[str, ...]
    application: str
    """Shown in `pg_stat_activity`."""
    committer: str

    def store(self, part: int, task_attempt: int, tables: Iterator[pa.Table]) -> int:
        """See StagingWriter."""
        pieces = _full(tables)
        first = next(pieces, None)
        if first is None:
            return 0  # Connected only after there are rows.
        try:
            with closing(psycopg2.connect(self.dsn, application_name=self.application, **_CONNECT_ARGUMENTS)) as raw:
                rows = 0
                with raw.cursor() as cursor:
                    cursor.execute(_OPENING)
                    while first is not None:
                        rows += first.num_rows
                        for text in texts_of(with_front((part, task_attempt), first)):
                            cursor.copy_expert(self._copy, text, COPY_BYTES)
                        first = next(pieces, None)
                raw.commit()  # If its answer is lost, this attempt fails, and no commit chooses its rows.
                return rows
        except psycopg2.Error as error:
            raise StagingFailed(_kind_of(error), self._words(error)) from None

    @property
    def _copy(self) -> str:
        names = ", ".join(quoted(name) for name in (PART, TASK, *self.columns)).replace("%%", "%")
        return f"copy {SCHEMA}.{quoted(self.table)} ({names}) from stdin with (format csv, encoding 'UTF8')"

    def _words(self, error: psycopg2.Error) -> str:
        said = " ".join((getattr(error.diag, "message_primary", None) or str(error) or type(error).__name__).split())
        state = f" (SQLSTATE {error.pgcode})" if error.pgcode else ""
        return f"committer {self.committer}: a task cannot store its result rows in Postgres: {said}{state}"


def _kind_of(error: psycopg2.Error) -> Literal["infrastructure", "data", "halt"]:
    """Return who is at fault, as for a statement that writes values of a batch into a table."""
    if error.pgcode is None:
        # A connection that fails or breaks has no code; a value that the client refuses is no such error.
        is_broken = isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError)
        return "infrastructure" if is_broken else "data"
    if error.pgcode in ("42P01", "3F000") or error.pgcode.startswith("25"):
        # The table is removed when its attempt is over: only a task that goes on after that misses it (K1).
        return "infrastructure"
    match verdict_on(error.pgcode, Owner.TARGET):
        case Fault.HALT | Fault.BUG:
            return "halt"
        case Fault.DATA:
            return "data"
        case _:
            return "infrastructure"


def _full(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables of about ROWS_PER_COPY rows: the batches of Spark are smaller."""
    held: list[pa.Table] = []
    for table in tables:
        if table.num_rows:
            held.append(table)
        if sum(one.num_rows for one in held) >= ROWS_PER_COPY:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)
