"""Sends rows of one or several batches into a table by COPY, and records what is there afterwards (P4): the one way in
which rows are stored, of a batch alone and of a commit run (R22).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO

import pyarrow as pa
from sqlalchemy import Connection

from txtopo.committers.postgres.apply_counts import array_literal, hash_of
from txtopo.committers.postgres.copied_text import COPY_BYTES, texts_of, with_front
from txtopo.committers.postgres.transactions import raw_of
from txtopo.committers.protocol.row_tables import RowShape, numbered
from txtopo.committers.sql_names import quoted
from txtopo.core.values import CommitterCount, CommitterResult
from txtopo.errors import invariant
from txtopo.topology.components import CommitterComponent
from txtopo.tuples.storable_keys import check_row_keys

TRIPS_PER_COPY = 2
"""Round trips: the server answers that it is ready, and that it has the rows."""


class CopiedRows:
    """Writes into the table of one committer. Built once, used for every batch; stores nothing between batches."""

    def __init__(self, component: CommitterComponent, shape: RowShape) -> None:
        self._component = component
        self._shape = shape
        self._copy = _copy(shape)
        self._record = _record(shape)

    def texts(self, fronts: Sequence[Sequence[int]], results: Sequence[CommitterResult]) -> Iterator[BytesIO]:
        """Yield the rows of batches as COPY reads them, in canonical order, at least one text. `fronts` are the values
        of the columns in front of `n`, for each batch. Raises BatchDataError if a result has other columns,
        or a key that cannot be stored.
        """
        tables = []
        for front, result in zip(fronts, results, strict=True):
            rows = numbered(self._component, result)
            check_row_keys(self._component.name, self._component.bolt.row_keys, rows)
            tables.append(with_front(front, rows))
        yield from texts_of(pa.concat_tables(tables))

    def send(self, connection: Connection, text: BytesIO) -> None:
        """COPY one text. One that is empty is sent too, so that a right that is missing shows without rows (W4)."""
        with raw_of(connection).cursor() as cursor:
            cursor.copy_expert(self._copy, text, COPY_BYTES)

    def record(
        self, connection: Connection, topology: str, results: Mapping[int, CommitterResult], reversed_rows: int = 0
    ) -> dict[int, CommitterCount]:
        """Record the count of each batch, by txid, without a hole; the numbers come from the rows that are in the table
        (P4).
        """
        txids = sorted(results)
        values = {
            "topology": topology,
            "committer": self._component.name,
            "first": txids[0],
            "last": txids[-1],
            "txids": array_literal(txids),
            "arrived": array_literal(results[txid].arrived for txid in txids),
            "results": array_literal(results[txid].row_count for txid in txids),
            "reversed": reversed_rows,
        }
        rows = connection.exec_driver_sql(self._record, values).all()
        invariant(
            sorted(row[0] for row in rows) == txids,
            f"committer {self._component.name}: counts of other batches were recorded than of those applied",
        )
        return {
            txid: CommitterCount(
                committer=self._component.name,
                arrived=results[txid].arrived,
                counted=int(counted),
                results=results[txid].row_count,
                written=int(counted),
                reversed=reversed_rows,
                digest=int(digest),
            )
            for txid, counted, digest in rows
        }


def sums_of(shape: RowShape, alias: str) -> str:
    """Return SQL for the number of rows and their digest."""
    return f"count(*), coalesce(sum({hash_of(shape.hashed, alias)}), 0)"


def _copy(shape: RowShape) -> str:
    names = ", ".join(quoted(column.name) for column in shape.columns)
    sql = f"copy {shape.target} ({names}) from stdin with (format csv, encoding 'UTF8')"
    return sql.replace("%%", "%")  # psycopg2 binds nothing here


def _record(shape: RowShape) -> str:
    return f"""insert into txtopo.committer_count (topology, txid, committer, arrived, counted, results, written,
  ignored, reversed, digest)
select %(topology)s, u.txid, %(committer)s, u.arrived, coalesce(n.number, 0), u.results, coalesce(n.number, 0), 0,
  %(reversed)s, coalesce(n.digest, 0)
from unnest(%(txids)s::bigint[], %(arrived)s::bigint[], %(results)s::bigint[]) as u (txid, arrived, results)
left join (select t.txid, {sums_of(shape, "t")} from {shape.target} t
  where t.txid between %(first)s and %(last)s group by t.txid) n (txid, number, digest) on n.txid = u.txid
order by u.txid
returning txid, counted, digest"""
