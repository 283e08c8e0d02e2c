"""The rows of a staging table, as the commit reads them: those of the task attempts that count, all of them, piece by
piece (R10).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from txtopo.committers.postgres.staging_copy import PART, SCHEMA, TASK
from txtopo.committers.postgres.transactions import Held, joined
from txtopo.committers.protocol.count_tables import TableShape
from txtopo.committers.sql_names import quoted
from txtopo.core.values import Staged
from txtopo.errors import StagedRowsLost

ROWS_PER_PIECE = 200_000
"""About so many rows are merged by one statement, which has a time limit."""


def staged_rows(shape: TableShape, staged: Staged) -> str:
    """Return SQL for the rows of one piece that count. Blocks are read where they are, without an index: the table is
    only ever added to, so no row moves from one piece to another.
    """
    names = ", ".join(f"s.{quoted(column.name)}" for column in shape.columns)
    # R10: rows of a task attempt that was replaced, or that goes on after its job (K1), are there and do not count.
    return f"""select {names} from {SCHEMA}.{quoted(staged.table)} s where s.ctid >= %(piece_from)s::tid and
  s.ctid < %(piece_to)s::tid and (s.{quoted(PART)}, s.{quoted(TASK)}) in (select * from unnest(%(parts)s::integer[],
  %(tasks)s::bigint[]))"""


def pieces_of(connection: Connection, staged: Staged, held: Held | None) -> list[dict[str, Any]]:
    """Return the values that name each piece of the table. The last piece is empty: it only records the numbers of the
    others. `held` is a delayed statement, which is sent first, in the same round trip. Raises StagedRowsLost if
    the table does not exist.
    """
    sql = (
        "select pg_relation_size(to_regclass(%(staging)s)) / current_setting('block_size')::bigint, "
        "to_regclass(%(staging)s) is not null"
    )
    blocks, there_is = connection.exec_driver_sql(
        *joined(held, sql, {"staging": f"{SCHEMA}.{quoted(staged.table)}"})
    ).one()
    if not there_is:
        raise StagedRowsLost(f"staging table {staged.table} does not exist any more: its batch is processed again")
    count = max(1, -(-staged.rows // ROWS_PER_PIECE))
    step = max(1, -(-blocks // count))
    chosen = {
        "parts": [part.part for part in staged.parts],
        "tasks": [part.task_attempt for part in staged.parts],
    }
    starts = [*range(0, blocks, step)]
    bounds = [*((start, start + step) for start in starts), (0, 0)]
    return [{"piece_from": f"({start},0)", "piece_to": f"({end},0)", **chosen} for start, end in bounds]


def check_merged(committer: str, staged: Staged, written: int) -> None:
    """Raise StagedRowsLost unless every row that tasks have stored was merged (P5: after a crash of the server the
    table is empty). The caller's database transaction is rolled back.
    """
    if written != staged.rows:
        raise StagedRowsLost(
            f"committer {committer}: {written} of {staged.rows} rows that tasks stored were in staging table "
            f"{staged.table}, for example because the server was restarted after a crash: its batch is processed again"
        )
