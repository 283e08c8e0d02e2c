"""Recomputes the minima and maxima that a reversed batch held, from the contributions that are left: those of the
touched keys by an index, in parts, so that no statement reads more of them than its time limit allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from txtopo.committers.postgres.apply_counts import array_literal
from txtopo.committers.protocol.count_tables import TableShape
from txtopo.committers.protocol.folds import after, left, left_of_keys, refolded, reversed_before
from txtopo.committers.sql_names import quoted
from txtopo.errors import BatchDataError

PART_ROWS = 2_000_000
"""Contributions that one statement reads at most; without an index up to a batch more."""
KEYS_MAX = 10_000
"""Keys of one statement."""
_INDEXED = """select exists (
  select from pg_catalog.pg_index i
  where i.indrelid = pg_catalog.to_regclass(%(table)s) and i.indisvalid and i.indpred is null
    and (select array_agg(a.attname::text order by p.place) from unnest(i.indkey::smallint[]) with ordinality p (number,
      place) join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = p.number) = %(names)s::text[]
    and not exists (select from unnest(i.indcollation::oid[]) c (number) where c.number not in (0, 100)))"""
"""Whether the contributions to a key can be found; 100 is the collation of the database."""
_PARTS = """select max(p.txid) from (
  select o.txid, (sum(o.results + o.reversed) over (order by o.txid)) / %(part_rows)s::bigint as part
  from txtopo.committer_count o where (o.topology, o.committer) = (%(topology)s, %(committer)s)) p
group by trunc(p.part) order by 1"""
"""The last batch of each part, by the numbers that their applies recorded."""


def refold_rows(
    connection: Connection,
    shape: TableShape,
    who: Mapping[str, Any],
    tables: Sequence[int],
    rows: Sequence[str],
) -> None:
    """Recompute minima and maxima of the rows of the target with these places, which this database transaction has just
    written. `who` has `topology`, `committer` and `txid`, the batch that reverses another one.

    Raises BatchDataError if a row has no contribution left: the numbers would not add up.
    """
    gone = connection.exec_driver_sql(reversed_before(shape), dict(who)).scalar_one()
    found: dict[int, list[Any]] = {}
    for statement, values in _reads(connection, shape, who, tables, rows):
        for place, *more in connection.exec_driver_sql(statement, {**values, "gone": gone}):
            known = found.get(place)
            found[place] = more if known is None else _folded(shape, known, more)
    if len(found) != len(rows):
        raise BatchDataError(
            f"committer {who['committer']}: {len(rows)} rows of {shape.schema}.{shape.table} need another minimum or "
            f"maximum, but only {len(found)} of them have contributions left",
            component=who["committer"],
        )
    columns = zip(*(found[place] for place in range(1, len(rows) + 1)), strict=True)
    arrays = {f"v{at}": array_literal(column) for at, column in enumerate(columns)}
    connection.exec_driver_sql(refolded(shape), {"tables": tables, "rows": rows, **arrays})


def _reads(
    connection: Connection, shape: TableShape, who: Mapping[str, Any], tables: Sequence[int], rows: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the statements that read the contributions, with their values."""
    if not _is_indexed(connection, shape):
        for first, last in _parts(connection, who):
            yield left(shape), {"tables": tables, "rows": rows, "first": first, "last": last}
        return
    nulls = connection.exec_driver_sql(_nulls(shape), {"tables": tables, "rows": rows}).all()
    # A key has one contribution of a batch at most.
    most = max(1, min(KEYS_MAX, PART_ROWS // who["txid"]))
    for start in range(0, len(rows), most):
        part = slice(start, start + most)
        for pattern in nulls:
            yield left_of_keys(shape, pattern), {"tables": tables[part], "rows": rows[part], "before": start}


def _is_indexed(connection: Connection, shape: TableShape) -> bool:
    """Return False for a table that was made without this index: all of its rows are read then."""
    values = {"table": (shape.contributions or "").replace("%%", "%"), "names": [key.name for key in shape.keys]}
    return bool(connection.exec_driver_sql(_INDEXED, values).scalar_one())


def _nulls(shape: TableShape) -> str:
    """Return the query for which keys are NULL together in the rows of the target with these places."""
    listed = ", ".join(f"t.{quoted(key.name)} is null" for key in shape.keys)
    return f"""select distinct {listed}
from {shape.target} t join unnest(%(tables)s::bigint[], %(rows)s::text[]) as u (row_table, row_id)
  on t.ctid = u.row_id::tid and t.tableoid = u.row_table::oid"""


def _folded(shape: TableShape, known: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    # Texts too: Python orders them by code point, which is the order of their bytes.
    return [after(column, *pair) for column, *pair in zip(shape.refolded, known, more, strict=True)]


def _parts(connection: Connection, who: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last batch of each part; txid 0 is what a committer adopted."""
    first = 0
    sent = {"topology": who["topology"], "committer": who["committer"], "part_rows": PART_ROWS}
    for (last,) in connection.exec_driver_sql(_PARTS, sent).all():
        yield first, last
        first = last + 1
    yield first, who["txid"]
