"""Reverses what a batch contributed, for the batch that redoes it: contributions are added negated, subtracted from the
target, rows whose count becomes 0 are deleted, and minima and maxima that the batch held are recomputed.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from txtopo.committers.postgres.refold import refold_rows
from txtopo.committers.postgres.transactions import Held, joined
from txtopo.committers.protocol.count_tables import TableShape
from txtopo.committers.protocol.folds import held as held_by
from txtopo.committers.protocol.folds import key_of, merges, taken_back
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
    """Reverse the rows that batch `reverses` contributed, as part of batch `txid`. Returns their number. `values` has
    `reverses`, `txid` and `topology`: not `redo_of`, which a backfill may have contributed in place of.

    `held` is a delayed statement, which is sent first, in the same round trip. Raises BatchDataError if rows are
    missing: the numbers would not add up.
    """
    sent = joined(held, _reversal(shape), {**values, "committer": committer.name})
    reversed_rows, lacking, expected, tables, rows, *again = connection.exec_driver_sql(*sent).one()
    check_reversed(committer.name, values["reverses"], reversed_rows, lacking, expected)
    if rows:
        removed = connection.exec_driver_sql(_removal(shape), {"tables": tables, "rows": rows}).rowcount
        if removed != len(rows):
            raise BatchDataError(
                f"committer {committer.name}: {len(rows)} rows of {shape.schema}.{shape.table} have count 0 now, but "
                f"{removed} could be removed",
                component=committer.name,
            )
    if again and again[1]:
        who = {"topology": values["topology"], "committer": committer.name, "txid": values["txid"]}
        refold_rows(connection, shape, who, again[0], again[1])
    return int(reversed_rows)


def _reversal(shape: TableShape) -> str:
    """Return the statement that changes both tables.

    It uses ON CONFLICT like every apply: only that finds NULL keys by the unique index. A row that does not exist
    becomes negative. The last two columns are the places of the rows whose minimum or maximum the batch held.
    """
    if shape.contributions is None:
        unreachable(f"{shape.target} has no contributions")
    names = ", ".join(quoted(column.name) for column in shape.columns)
    keys = ", ".join(quoted(column.name) for column in shape.keys)
    negated = ", ".join([keys, *map(taken_back, shape.numbers)])
    subtracted = merges(shape, [column for column in shape.numbers if column.fold == "add"])
    weight = quoted(shape.numbers[0].name)
    returned = "".join(f", t.{quoted(column.name)}" for column in shape.refolded)
    named = "".join(f", v{at}" for at in range(len(shape.refolded)))
    again = f""",
h (row_table, row_id) as (
  select t.row_table, t.row_id from t join c on t.key = {key_of(shape, "c")}
  where t.weight > 0 and ({held_by(shape, "c.")}))"""
    places = """,
       (select array_agg(row_table::bigint order by row_id) from h),
       (select array_agg(row_id::text order by row_id) from h)"""
    return f"""with c as (
  insert into {shape.contributions} (txid, reverses, {names})
  select %(txid)s, %(reverses)s, {negated} from {shape.contributions} where txid = %(reverses)s and reverses is null
  returning {names}),
t (row_table, row_id, weight, key{named}) as (
  insert into {shape.target} as t ({names}) select {names} from c order by {keys} on conflict ({keys}) do update set
  {subtracted}
  returning t.tableoid, t.ctid, t.{weight}, {key_of(shape, "t")}{returned}){again if named else ""}
select (select count(*) from c), (select count(*) from t where weight < 0),
       (select results from txtopo.committer_count o where (o.topology, o.txid, o.committer) = (%(topology)s,
       %(reverses)s, %(committer)s)),
       (select array_agg(row_table::bigint order by row_id) from t where weight = 0),
       (select array_agg(row_id::text order by row_id) from t where weight = 0){places if named else ""}"""


def _removal(shape: TableShape) -> str:
    # This database transaction has just written these rows, so nothing else can have moved them: their ctid finds them
    # without a scan.
    weight = quoted(shape.numbers[0].name)
    return f"""delete from {shape.target} t using unnest(%(tables)s::bigint[], %(rows)s::text[]) as u (row_table,
    row_id)
where t.ctid = u.row_id::tid and t.tableoid = u.row_table::oid and t.{weight} = 0"""
