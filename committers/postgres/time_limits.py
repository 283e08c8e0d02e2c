"""How long statements of a commit may take that work on all rows of a large batch together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from txtopo.core.limits import RESULT_ROWS_MAX, STATEMENT_TIMEOUT_MS

if TYPE_CHECKING:
    from txtopo.committers.postgres.postgres_halves import Applying

ROWS_PER_LIMIT = RESULT_ROWS_MAX
"""One statement may take its time limit once for each so many rows."""


@contextmanager
def time_for(connection: Connection, rows: int) -> Iterator[None]:
    """Let each statement inside take as long as statements of ROWS_PER_LIMIT rows may take together for so many rows.
    With few rows nothing is sent.
    """
    times = -(-rows // ROWS_PER_LIMIT)
    if times <= 1:
        yield
        return
    connection.exec_driver_sql(f"set local statement_timeout = {times * STATEMENT_TIMEOUT_MS}", {})
    yield
    # After an error the database transaction has failed, and the setting ends with it.
    connection.exec_driver_sql(f"set local statement_timeout = {STATEMENT_TIMEOUT_MS}", {})


def rows_before(applying: Applying, committer: str) -> int:
    """Return how many result rows the ledger recorded for the batch whose rows are removed or reversed; 0 if there is
    none.
    """
    if applying.reverses is None:
        return 0
    sql = """select results from txtopo.committer_count
where (topology, txid, committer) = (%(topology)s, %(redone)s, %(committer)s)"""
    values = {"topology": applying.entry.plan.topology, "redone": applying.reverses, "committer": committer}
    return int(applying.connection.exec_driver_sql(sql, values).scalar() or 0)
