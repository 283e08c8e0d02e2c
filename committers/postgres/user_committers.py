"""Counts the result rows of a custom committer on Postgres and records their numbers, in the database transaction that
applied them (P4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection

from txtopo.committers.postgres.apply_counts import ROWS_PER_STATEMENT, array_literal, hash_of
from txtopo.committers.postgres.statements import statement
from txtopo.committers.postgres.transactions import Held, joined, settings
from txtopo.committers.protocol.count_tables import Column
from txtopo.committers.sql_names import column_type
from txtopo.core.fields import Fields, FieldType
from txtopo.core.values import CommitterCount, CommitterResult


class RowSums:
    """SQL that hashes rows of some fields on the server, in the way of the apply statements of counting committers."""

    def __init__(self, fields: Fields) -> None:
        self._columns = [Column(f"c{at}", _sent_type(field.type), True) for at, field in enumerate(fields.items)]
        names = ", ".join(column.name for column in self._columns)
        arrays = ", ".join(f"%({column.name})s::{column.type}[]" for column in self._columns)
        self.sql = f"""with r ({names}) as materialized (select * from unnest({arrays}) as u ({names})),
n (rows, digest) as (select count(*), coalesce(sum({hash_of(self._columns, "r")}), 0) from r)"""

    def chunks(self, table: pa.Table) -> Iterator[Mapping[str, str]]:
        """Yield the values for `sql` in chunks that one statement can carry; at least one chunk."""
        for start in range(0, max(1, table.num_rows), ROWS_PER_STATEMENT):
            piece = table.slice(start, ROWS_PER_STATEMENT)
            yield {
                f"c{at}": array_literal(map(_sendable, piece.column(at).to_pylist()))
                for at in range(len(self._columns))
            }


def record_user_committer(
    connection: Connection,
    topology: str,
    txid: int,
    result: CommitterResult,
    fields: Fields,
    *,
    written: int,
    held: Held | None,
    tag: str,
) -> CommitterCount:
    """Restore txtopo's settings, count and hash the result rows, and record the numbers. `written` is what the user's
    code reported.

    `counted` is always equal to `arrived`: only the user's code knows how many tuples a row stands for.
    """
    sums = RowSums(fields)
    pieces = list(sums.chunks(result.rows))
    rows, digest = 0, 0
    before: Held = joined(held, *restored_settings(tag))
    for piece in pieces[:-1]:
        found = connection.exec_driver_sql(*joined(before, f"{sums.sql} select rows, digest from n", piece)).one()
        rows, digest, before = rows + int(found[0]), digest + int(found[1]), ("select 1", {})
    values = {
        "topology": topology,
        "txid": txid,
        "committer": result.committer,
        "arrived": result.arrived,
        "results": result.row_count,
        "written": written,
        "rows_before": rows,
        "digest_before": digest,
        **pieces[-1],
    }
    row = connection.exec_driver_sql(*joined(before, f"{sums.sql}\n{_RECORD}", values)).one()
    return CommitterCount(
        committer=result.committer,
        arrived=result.arrived,
        counted=result.arrived,
        results=result.row_count,
        written=written,
        ignored=int(row[0]),
        digest=int(row[1]),
    )


def restored_settings(tag: str) -> Held:
    """Return the statement that restores every setting of txtopo's database transactions, in case user code changed one
    (P8, settings that lose commits; P9, user code that ends the database transaction).
    """
    lines = statement("begin_transaction").splitlines()
    return "\n".join(line for line in lines if line.startswith("set local")).rstrip(";"), settings(tag)


_RECORD = """insert into txtopo.committer_count (topology, txid, committer, arrived, counted, results, written,
  ignored, reversed, digest)
select %(topology)s, %(txid)s, %(committer)s, %(arrived)s, %(arrived)s, %(results)s, %(written)s, n.rows +
  %(rows_before)s - %(written)s, 0,
       n.digest + %(digest_before)s::numeric from n
returning ignored, digest"""


def _sent_type(kind: FieldType) -> str:
    # Text is sent as bytes: a row may contain characters that Postgres' text cannot hold, and only the user's code
    # decides what to do with them.
    if kind.kind == "string":
        return "bytea"
    return column_type(kind)


def _sendable(value: Any) -> Any:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
