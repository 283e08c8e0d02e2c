"""Rows of a table of any database in the order of their key: each value as text, with a hash of each row, as they are
counted when a range is planned and compared when it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from txtopo.core.fields import INTEGER_KINDS, Fields
from txtopo.errors import BatchDataError
from txtopo.spouts.planned_file import COMPONENT
from txtopo.spouts.table.row_ranges import SUM_MODULUS
from txtopo.spouts.table.sql_database import SqlDatabase
from txtopo.spouts.table.sql_table import SqlTable, whole_number
from txtopo.spouts.table.table_reading import changed

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

BUFFERED_ROWS = 1000
_AS_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_PLAIN_TYPES: Mapping[str, type] = {
    **dict.fromkeys((*INTEGER_KINDS, "decimal"), int),
    **dict.fromkeys(("string", "date", "timestamp", "timestamp_ntz"), str),
}
"""Declared kind -> the type of values whose text is that of `str`; `spelled` gives them the same, but takes longer."""


class FoundRow(NamedTuple):
    """A row as it was read."""

    key: int
    texts: Sequence[str | None]
    """Of the key, then of the other fields."""
    odd: str | None
    """Why it is no row of the fields, whatever its texts are; None if the texts decide."""
    json: bytes
    """The texts as JSON: what is hashed, and whose length is the size of the row."""

    @property
    def hash(self) -> int:
        """Return the hash of the row."""
        return int.from_bytes(hashlib.sha256(self.json).digest()[:8], "big")


def columns_of(key: str, fields: Fields) -> Sequence[str]:
    """Return the columns that are read: the key, then the other fields."""
    return tuple(dict.fromkeys((key, *fields.names)))


def rows_between(
    connection: Connection, table: SqlTable, fields: Fields, after: int | None, to: int, limit: int | None = None
) -> Iterator[FoundRow]:
    """Yield the rows after one key up to another, at most `limit`, in the order of their keys. Raises BatchDataError
    for a key that is no whole number, or stands twice.
    """
    from sqlalchemy import column, select
    from sqlalchemy import table as named

    names = columns_of(table.key, fields)
    # Without types: values are as the client of the database gives them, and nothing rounds.
    source = named(table.name, *(column(name) for name in names), schema=table.schema)
    key = source.c[table.key]
    asked = select(*(source.c[name] for name in names)).where(*between(key, after, to)).order_by(key).limit(limit)
    kinds = [field.type.kind if (field := fields.get(name)) is not None else "bigint" for name in names]
    columns = [(name, kind, _PLAIN_TYPES.get(kind)) for name, kind in zip(names, kinds, strict=True)]
    streamed = connection.execution_options(stream_results=True, max_row_buffer=BUFFERED_ROWS)
    last: int | None = None
    with streamed.execute(asked) as found:
        for values in _read(found, table.shown):
            at = whole_number(table.shown, table.key, values[0])
            if last is not None and at <= last:
                raise _not_growing(table, at)
            last = at
            texts: list[str | None] = []
            odd = None
            for (name, kind, plain), value in zip(columns, values, strict=True):
                text = str(value) if type(value) is plain else spelled(kind, value)
                if text is None and value is not None:
                    value = _plain(value)
                    text = f"{type(value).__name__} {value!r}"
                    odd = odd or f"column {name!r} has {text:.100}, which is no {kind}"
                texts.append(text)
            body = _AS_JSON(texts).encode("utf-8", "backslashreplace")
            yield FoundRow(at, texts, odd, body)


def _read(found: Iterable[Sequence[Any]], table: str) -> Iterator[Sequence[Any]]:
    """Yield what the client reads. Raises BatchDataError for a value that it cannot, such as an infinite time."""
    try:
        yield from found
    except (ValueError, OverflowError) as error:
        raise BatchDataError(
            f"{table}: the client of the database cannot read a value: {error}",
            component=COMPONENT,
            position=table,
            fault="value that the client cannot read",
        ) from None


def _not_growing(table: SqlTable, at: int) -> BatchDataError:
    return BatchDataError(
        f"{table.shown}: key {at} is in two rows, of which one may be in no batch: make {table.key} unique again",
        component=COMPONENT,
        position=table.shown,
        fault="key is not unique",
    )


def between(key: ColumnElement[Any], after: int | None, to: int) -> list[ColumnElement[bool]]:
    """Return the conditions of the rows after one key up to another."""
    return [key <= to] if after is None else [key > after, key <= to]


def spelled(kind: str, value: object) -> str | None:
    """Return a value of a client as the text of a declared kind; None for NULL, and for a value that has none.

    >>> from decimal import Decimal
    >>> spelled("decimal", Decimal("1.50")), spelled("decimal", 1.5), spelled("boolean", 1)
    ('1.50', None, 'true')
    """
    value = _plain(value)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    text: str | None = None
    if kind == "boolean":
        text = {0: "false", 1: "true"}.get(int(value)) if isinstance(value, int) else None
    elif kind == "binary":
        text = "\\x" + value.hex() if isinstance(value, bytes) else None
    elif kind in INTEGER_KINDS or kind == "decimal":
        text = str(value) if is_whole else f"{value:f}" if isinstance(value, Decimal) else None
    elif kind == "double":
        text = repr(value) if is_whole or isinstance(value, float) else None
    elif isinstance(value, str):
        text = value  # Of a time, too, where a database keeps times as text.
    elif kind == "string":
        text = str(value) if is_whole or (isinstance(value, date) and not isinstance(value, datetime)) else None
    elif isinstance(value, datetime):
        if value.tzinfo is None:
            text = value.isoformat(" ") if kind == "timestamp_ntz" else None
        else:  # Its offset is that of the session, which hosts may have otherwise.
            text = value.astimezone(UTC).isoformat(" ") if kind == "timestamp" else None
    elif isinstance(value, date):
        text = value.isoformat() if kind == "date" else None
    return text


def _plain(value: object) -> object:
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


def read_piece(
    database: SqlDatabase, name: str, planned: Mapping[str, Any], at: int, fields: Fields
) -> tuple[pa.Table, Mapping[int, str]]:
    """Return the rows of piece `at` of a range, each column as text in `binary`, and by place why rows are none.

    Raises BatchDataError if they are not those that were counted when the range was planned; OSError if the database
    cannot be reached.
    """
    piece = planned["parts"][at]
    after = planned["from"] if at == 0 else planned["parts"][at - 1]["to"]
    table = SqlTable(planned["name"][0], planned["name"][1], planned["key"])
    texts: list[Sequence[str | None]] = []
    odd: dict[int, str] = {}
    size = total = 0
    with database.connected(name) as connection:
        for row in rows_between(connection, table, fields, after, piece["to"], int(piece["rows"]) + 1):
            if row.odd is not None:
                odd[len(texts)] = row.odd
            texts.append(row.texts)
            size, total = size + len(row.json), (total + row.hash) % SUM_MODULUS
            if size > piece["bytes"]:
                break
    if (len(texts), f"{total:016x}") != (piece["rows"], piece["sum"]):
        raise changed(name, at, piece, f"{len(texts):,} with sum {total:016x}")
    columns = zip(*texts, strict=True) if texts else [()] * len(columns_of(table.key, fields))
    arrays = [
        pa.array([None if text is None else text.encode("utf-8", "backslashreplace") for text in column], pa.binary())
        for column in columns
    ]
    return pa.table(arrays, names=list(columns_of(table.key, fields))), odd
