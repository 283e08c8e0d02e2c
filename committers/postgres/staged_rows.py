"""The rows of a staging table, as the commit reads them: those of the task attempts that count, all of them (R10). Of a
counting committer piece by piece; of one that stores rows all together, since they are numbered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection

from txtopo.committers.postgres.staging_copy import PART, SCHEMA, TASK
from txtopo.committers.postgres.transactions import Held, joined, raw_of
from txtopo.committers.protocol.row_tables import RowShape
from txtopo.committers.sql_names import quoted
from txtopo.core.fields import FLOAT_KINDS, Fields
from txtopo.core.values import Staged
from txtopo.errors import StagedRowsLost
from txtopo.topology.components import CommitterComponent
from txtopo.tuples.storable_keys import two_rows

ROWS_PER_PIECE = 200_000
"""About so many rows are merged in the time that one statement may take."""


def staged_rows(names: Sequence[str], staged: Staged) -> str:
    """Return SQL for these columns of the rows of one piece that count. Blocks are read where they are, without an
    index: the table is only ever added to, so no row moves from one piece to another.
    """
    return f"{_rows(names, staged)} and s.ctid >= %(piece_from)s::tid and s.ctid < %(piece_to)s::tid"


def pieces_of(connection: Connection, staged: Staged, held: Held | None) -> list[dict[str, Any]]:
    """Return the values that name each piece of the table. The last piece is empty: it only records the numbers of the
    others. `held` is a delayed statement, which is sent first, in the same round trip. Raises StagedRowsLost if
    the table does not exist.
    """
    blocks = _blocks_of(connection, staged, held)
    count = max(1, -(-staged.rows // ROWS_PER_PIECE))
    step = max(1, -(-blocks // count))
    starts = [*range(0, blocks, step)]
    bounds = [*((start, start + step) for start in starts), (0, 0)]
    return [{"piece_from": f"({start},0)", "piece_to": f"({end},0)", **_chosen(staged)} for start, end in bounds]


def check_merged(committer: str, staged: Staged, written: int) -> None:
    """Raise StagedRowsLost unless every row that tasks have stored was merged (P5: after a crash of the server the
    table is empty). The caller's database transaction is rolled back.
    """
    if written != staged.rows:
        raise StagedRowsLost(
            f"committer {committer}: {written} of {staged.rows} rows that tasks stored were in staging table "
            f"{staged.table}, for example because the server was restarted after a crash: its batch is processed again"
        )


def insert_rows(
    connection: Connection, component: CommitterComponent, shape: RowShape, front: Sequence[int], staged: Staged
) -> None:
    """Add the rows of a staging table to the table of a committer that stores rows. `front` are the values of the
    columns in front of `n`, which numbers the rows in canonical order, as `numbered` does. Raises StagedRowsLost, and
    BatchDataError for two rows of a key if nothing says which is the last: tasks have checked all else.
    """
    _blocks_of(connection, staged, None)
    keys = component.bolt.row_keys
    if keys is not None and keys.one_row:
        listed = ", ".join(f"s.{quoted(name)}" for name in keys.fields)
        twice = f"{_rows(keys.fields, staged, 'count(*)')} group by {listed} having count(*) > 1 limit 1"
        for *key, count in connection.exec_driver_sql(twice, _chosen(staged)).all():
            raise two_rows(component.name, keys.fields, key, count)
    names = [column.name for column in shape.fields]
    given = ", ".join(f"%(front{at})s::bigint" for at in range(len(front)))
    number = f"row_number() over (order by {', '.join(_order(component.result_fields))})"
    columns = ", ".join(quoted(column.name) for column in shape.columns)
    values = {f"front{at}": value for at, value in enumerate(front)}
    sql = f"insert into {shape.target} ({columns}) {_rows(names, staged, f'{given}, {number}', first=True)}"
    with raw_of(connection).cursor() as cursor:
        cursor.execute(sql, {**values, **_chosen(staged)})
        check_merged(component.name, staged, cursor.rowcount)


def _blocks_of(connection: Connection, staged: Staged, held: Held | None) -> int:
    """Return the number of blocks of a staging table. Raises StagedRowsLost if it does not exist."""
    sql = (
        "select pg_relation_size(to_regclass(%(staging)s)) / current_setting('block_size')::bigint, "
        "to_regclass(%(staging)s) is not null"
    )
    blocks, there_is = connection.exec_driver_sql(
        *joined(held, sql, {"staging": f"{SCHEMA}.{quoted(staged.table)}"})
    ).one()
    if not there_is:
        raise StagedRowsLost(f"staging table {staged.table} does not exist any more: its batch is processed again")
    return int(blocks or 0)


def _rows(names: Sequence[str], staged: Staged, more: str = "", *, first: bool = False) -> str:
    """Return SQL for these columns of the rows that count, and for more expressions, after them or first."""
    listed = [f"s.{quoted(name)}" for name in names]
    selected = ", ".join(filter(None, [more, *listed] if first else [*listed, more]))
    # R10: rows of a task attempt that was replaced, or that goes on after its job (K1), are there and do not count.
    return f"""select {selected} from {SCHEMA}.{quoted(staged.table)} s where (s.{quoted(PART)}, s.{quoted(TASK)}) in
  (select * from unnest(%(parts)s::integer[], %(tasks)s::bigint[]))"""


def _chosen(staged: Staged) -> dict[str, Any]:
    return {
        "parts": [part.part for part in staged.parts],
        "tasks": [part.task_attempt for part in staged.parts],
    }


def _order(fields: Fields) -> Iterator[str]:
    """Yield what `in_order` sorts rows by, in SQL; NULL is last there too."""
    for field in fields.items:
        name = f"s.{quoted(field.name)}"
        yield f'{name} collate pg_catalog."C"' if field.type.kind == "string" else name
        if field.type.kind in FLOAT_KINDS:
            # 0.0 and -0.0 compare as equal. Their bits differ.
            yield f"('x' || encode(float8send({name}::double precision), 'hex'))::bit(64)::bigint"
