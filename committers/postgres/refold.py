"""Recomputes the minima and maxima that a reversed batch held, from the contributions that are left: in parts, so that
no statement reads more of them than its time limit allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from txtopo.committers.postgres.apply_counts import array_literal
from txtopo.committers.protocol.count_tables import TableShape
from txtopo.committers.protocol.folds import after, left, refolded, reversed_before
from txtopo.errors import BatchDataError

PART_ROWS = 2_000_000
"""Contributions that one statement reads, up to a batch more."""
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
    for first, last in _parts(connection, who):
        values = {"tables": tables, "rows": rows, "first": first, "last": last, "gone": gone}
        for place, *more in connection.exec_driver_sql(left(shape), values):
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
