"""Reverses what a batch contributed, for the batch that redoes it: contributions are added negated, subtracted from the
target, and rows whose count becomes 0 are deleted.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from txtopo.committers.postgres.transactions import Held, joined
from txtopo.committers.protocol.count_tables import TableShape
from txtopo.committers.protocol.redo_checks import check_reversed
from txtopo.committers.sql_names import quoted
from txtopo.errors import BatchDataError, unreachable
from txtopo.topology.components import CommitterComponent


def reverse_batch(
    connection: Connection,
    committer: CommitterComponent,
    shape: TableShape,
    values: dict[str, Any],
    held: Held | None,
) -> int:
    """Reverse the rows that batch `redo_of` contributed, as part of batch `txid`. Returns their number. `values` has
    `redo_of`, `txid` and `topology`.

    `held` is a delayed statement, which is sent first, in the same round trip. Raises BatchDataError if rows are
    missing: the numbers would not add up.
    """
    sent = joined(held, _reversal(shape), {**values, "committer": committer.name})
    reversed_rows, lacking, expected, tables, rows = connection.exec_driver_sql(*sent).one()
    check_reversed(committer.name, values["redo_of"], reversed_rows, lacking, expected)
    if rows:
        removed = connection.exec_driver_sql(_removal(shape), {"tables": tables, "rows": rows}).rowcount
        if removed != len(rows):
            raise BatchDataError(
                f"committer {committer.name}: {len(rows)} rows of {shape.schema}.{shape.table} have count 0 now, but "
                f"{removed} could be removed",
                component=committer.name,
            )
    return int(reversed_rows)


def _reversal(shape: TableShape) -> str:
    """Return the statement that changes both tables.

    It uses ON CONFLICT like every apply: only that finds NULL keys by the unique index. A row that does not exist
    becomes negative.
    """
    if shape.contributions is None:
        unreachable(f"{shape.target} has no contributions")
    names = ", ".join(quoted(column.name) for column in shape.columns)
    keys = ", ".join(quoted(column.name) for column in shape.keys)
    negated = ", ".join([keys, *(f"-{quoted(column.name)}" for column in shape.numbers)])
    adds = ", ".join(
        f"{quoted(column.name)} = t.{quoted(column.name)} + excluded.{quoted(column.name)}" for column in shape.numbers
    )
    weight = quoted(shape.numbers[0].name)
    return f"""with c as (
  insert into {shape.contributions} (txid, reverses, {names})
  select %(txid)s, %(redo_of)s, {negated} from {shape.contributions} where txid = %(redo_of)s and reverses is null
  returning {names}),
t (row_table, row_id, weight) as (
  insert into {shape.target} as t ({names}) select {names} from c order by {keys} on conflict ({keys}) do update set
  {adds}
  returning t.tableoid, t.ctid, t.{weight})
select (select count(*) from c), (select count(*) from t where weight < 0),
       (select results from txtopo.committer_count o where (o.topology, o.txid, o.committer) = (%(topology)s,
       %(redo_of)s, %(committer)s)),
       (select array_agg(row_table::bigint order by row_id) from t where weight = 0),
       (select array_agg(row_id::text order by row_id) from t where weight = 0)"""


def _removal(shape: TableShape) -> str:
    # This database transaction has just written these rows, so nothing else can have moved them: their ctid finds them
    # without a scan.
    weight = quoted(shape.numbers[0].name)
    return f"""delete from {shape.target} t using unnest(%(tables)s::bigint[], %(rows)s::text[]) as u (row_table,
    row_id)
where t.ctid = u.row_id::tid and t.tableoid = u.row_table::oid and t.{weight} = 0"""
