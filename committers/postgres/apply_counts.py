"""The driver half of counting committers: SQL that is built once from the table, rows sent as arrays, and numbers
returned by the apply statement itself (P4, a check in another statement proves nothing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection

from txtopo.committers.postgres.staged_rows import check_merged, pieces_of, staged_rows
from txtopo.committers.postgres.transactions import Held, joined
from txtopo.committers.protocol.count_tables import Column, TableShape, result_of_rows, shape_of
from txtopo.committers.protocol.folds import merges
from txtopo.committers.sql_names import quoted
from txtopo.core.values import CommitterCount, CommitterResult
from txtopo.errors import BatchDataError
from txtopo.topology.components import CommitterComponent

ROWS_PER_STATEMENT = 10_000
"""Largest number of rows in one apply statement; more rows are sent in several."""


def hash_of(columns: Sequence[Column], alias: str) -> str:
    """Return SQL for the 64-bit hash of a row: the first 8 bytes of the sha-256 of its text, as a signed number."""
    row = ", ".join(f"{alias}.{quoted(column.name)}" for column in columns)
    return f"('x' || encode(substring(sha256(convert_to(row({row})::text, 'UTF8')) for 8), 'hex'))::bit(64)::bigint"


class Applier:
    """Applies result rows of one committer. Built once, used for every batch; stores nothing between batches."""

    def __init__(self, component: CommitterComponent) -> None:
        self.component = component
        self.shape = shape_of(component)
        work = _work(self.shape, _given(self.shape))
        self._part, self._last = _summed(work), _recorded(work)

    def apply(
        self,
        connection: Connection,
        topology: str,
        txid: int,
        result: CommitterResult,
        held: Held | None,
        reversed_rows: int = 0,
    ) -> CommitterCount:
        """Apply all rows and record the count. `held` is a delayed statement, which is sent first, in the same round
        trip.

        `reversed_rows` is the number of contribution rows that were reversed before, if the batch is a redo.
        """
        counted, written, digest = 0, 0, 0
        part, last = self._part, self._last
        if result.staged is None:
            chunks = [self._arrays(chunk) for chunk in self._chunks(result)]
        else:
            work = _work(self.shape, staged_rows([column.name for column in self.shape.columns], result.staged))
            part, last = _summed(work), _recorded(work)
            chunks, held = pieces_of(connection, result.staged, held), None
        for index, chunk in enumerate(chunks):
            is_last = index == len(chunks) - 1
            if is_last and result.staged is not None:
                check_merged(self.component.name, result.staged, written)
            # P4: the recorded numbers come from the statements that applied the rows; only `arrived` and `results` are
            # reported by the tasks.
            known = {
                "arrived": result.arrived,
                "results": result.row_count,
                "counted_before": counted,
                "written_before": written,
                "digest_before": digest,
                "reversed": reversed_rows,
            }
            values = {
                "topology": topology,
                "txid": txid,
                **chunk,
                **(known if is_last else {}),
                "committer": self.component.name,
            }
            row = connection.exec_driver_sql(*joined(held, last if is_last else part, values)).one()
            held = None
            add = (0, 0, 0) if is_last else (counted, written, digest)
            counted, written, digest = (int(new) + before for new, before in zip(row, add, strict=True))
        return CommitterCount(
            committer=self.component.name,
            arrived=result.arrived,
            counted=counted,
            results=result.row_count,
            written=written,
            reversed=reversed_rows,
            digest=digest,
        )

    def last_contributed(self, connection: Connection) -> CommitterResult | None:
        """Return what the last batch in the contribution table contributed, of many keys only some; None if there is no
        such table, or no batch in it.
        """
        table, names = self.shape.contributions, [column.name for column in self.shape.columns]
        if table is None:
            return None
        listed = ", ".join(map(quoted, names))
        last = f"select max(txid) from {table} where txid > 0 and reverses is null"
        rows = connection.exec_driver_sql(
            f"select {listed} from {table} where reverses is null and txid = ({last}) limit {ROWS_PER_STATEMENT}", {}
        ).all()
        return None if not rows else result_of_rows(self.component.name, names, rows, len(self.shape.keys))

    def longest_key(self, result: CommitterResult) -> str | None:
        """Return the longest value of a key, as text: the likely cause of an error about a limit of the server. None if
        the rows are not in the driver.
        """
        if result.staged is not None:
            return None
        sizes = (
            (len(_element(value).encode()), column.name, value)
            for column in self.shape.keys
            for value in result.rows.column(column.name).to_pylist()
        )
        size, name, value = max(sizes, key=lambda item: item[0], default=(0, "", None))
        text = value if isinstance(value, str) else _element(value)
        return f"the longest key has {size} bytes, {name} = {text[:40]!r}{'…' if len(text) > 40 else ''}"

    def _chunks(self, result: CommitterResult) -> Iterator[Any]:
        names = [column.name for column in self.shape.columns]
        if list(result.rows.column_names) != names:
            raise BatchDataError(
                f"committer {self.component.name}: got columns {', '.join(result.rows.column_names)}, expected "
                f"{', '.join(names)}",
                component=self.component.name,
            )
        if result.rows.num_rows <= ROWS_PER_STATEMENT:
            yield result.rows
            return
        # In key order across all statements, so that every session locks these rows in the same order.
        rows = result.rows.sort_by([(column.name, "ascending") for column in self.shape.keys])
        for start in range(0, rows.num_rows, ROWS_PER_STATEMENT):
            yield rows.slice(start, ROWS_PER_STATEMENT)

    def _arrays(self, chunk: Any) -> dict[str, str]:
        return {f"c{index}": array_literal(chunk.column(index).to_pylist()) for index in range(len(self.shape.columns))}


def array_literal(values: Iterable[Any]) -> str:
    """Return values as the text of a Postgres array, which the server parses much faster than an ARRAY[…]
    expression.
    """
    return "{" + ",".join([_FORMS.get(type(value), _element)(value) for value in values]) + "}"


def _element(value: Any) -> str:
    """Return any value as an element; `_FORMS` has the same for most values, at a third of the time."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, (int, Decimal)):
        return str(value)
    if isinstance(value, (bytes, memoryview)):
        return _bytes(value)
    return _text(value.isoformat() if isinstance(value, date) else str(value))


def _text(value: str) -> str:
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


def _bytes(value: bytes | memoryview) -> str:
    return f'"\\\\x{bytes(value).hex()}"'


_FORMS: dict[type, Callable[[Any], str]] = {str: _text, int: str, Decimal: str, bytes: _bytes}
"""Exact type -> its form."""


def _given(shape: TableShape) -> str:
    """Return SQL for rows that are sent as arrays."""
    names = ", ".join(quoted(column.name) for column in shape.columns)
    arrays = ", ".join(f"%(c{index})s::{column.type}[]" for index, column in enumerate(shape.columns))
    return f"select * from unnest({arrays}) as u ({names})"


def _work(shape: TableShape, rows: str) -> str:
    """The part that all statements share: rows r, target t, contributions x, numbers n. `rows` is the SQL that returns
    the rows.
    """
    names = ", ".join(quoted(column.name) for column in shape.columns)
    keys = ", ".join(quoted(column.name) for column in shape.keys)
    weight = quoted(shape.numbers[0].name)
    if shape.contributions is None:
        taken = f"select r.{weight}, {hash_of(shape.columns, 'r')} from r"
    else:
        taken = (
            f"insert into {shape.contributions} as c (txid, reverses, {names}) select %(txid)s, null, {names} from r"
            f" returning c.{weight}, {hash_of(shape.columns, 'c')}"
        )
    return f"""with r ({names}) as materialized ({rows} order by {keys}),
t as (insert into {shape.target} as t ({names}) select {names} from r on conflict ({keys}) do update set
  {merges(shape)}
  returning 1),
x (weight, hash) as ({taken}),
n (counted, written, digest) as (select coalesce(sum(weight), 0), (select count(*) from t), coalesce(sum(hash), 0) from
  x)"""


def _summed(work: str) -> str:
    """Return a statement of an apply that is not the last."""
    return f"{work}\nselect counted, written, digest from n"


def _recorded(work: str) -> str:
    """Return the last statement of an apply, which records the numbers of all."""
    return f"""{work}
insert into txtopo.committer_count (topology, txid, committer, arrived, counted, results, written, ignored, reversed,
  digest)
select %(topology)s, %(txid)s, %(committer)s, %(arrived)s, n.counted + %(counted_before)s, %(results)s, n.written +
  %(written_before)s, 0, %(reversed)s, n.digest + %(digest_before)s::numeric from n
returning counted, written, digest"""
