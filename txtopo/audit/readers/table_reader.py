"""Reads ranges of rows of a Postgres table for the audit, with separate statements and code."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

import psycopg2
from psycopg2 import sql
from psycopg2.extensions import parse_dsn

from txtopo.audit.readers.kafka_reader import NoRangeError, RangeReader
from txtopo.audit.readers.reader import Read, check_known
from txtopo.audit.readers.text_values import Cell, cell_of, is_doubtful
from txtopo.core.fields import Field, Fields
from txtopo.core.positions import Unit

ROWS_AT_ONCE = 2000
_SESSION = (
    "set transaction isolation level repeatable read, read only; set timezone = 'UTC'; set datestyle = 'ISO, YMD'; "
    "set intervalstyle = 'iso_8601'; set bytea_output = 'hex'; set extra_float_digits = 1; set lc_monetary = 'C'; "
    "set row_security = off"
)
_IDS = 1 << 64


class OtherRangeError(Exception):
    """A range has other rows than planned; the message says which."""


class TableReader(RangeReader):
    """Reads all rows of a range in one snapshot, and compares them with the counts of the plan."""

    kind = "table"
    unit: ClassVar[Unit] = "row"

    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        check_known(layout, "kind", "database")
        database = layout["database"]
        check_known(database, "dsn_env", "service")
        self._service, self._variable = database.get("service"), database.get("dsn_env")
        self._fields = fields.items
        self._cells: list[Cell] = [cell_of(field, ()) for field in fields.items]

    def read(self, name: str, planned: Mapping[str, Any]) -> Iterator[Read]:
        """Yield the rows of a range. Raises NoRangeError, and OtherRangeError at its end."""
        found = FoundRows()
        try:
            with closing(self._connected()) as connection:
                columns = [*dict.fromkeys([*planned["key"], *(field.name for field in self._fields)])]
                for number, texts in enumerate(_rows(connection, name, planned, columns), 1):
                    found.add(texts)
                    yield self._judged(number, dict(zip(columns, texts, strict=True)))
        except psycopg2.Error as error:
            words = f"{error}".strip().partition("\n")[0]
            raise NoRangeError(f"table {name} cannot be read ({words})") from None
        found.compare(name, planned)

    def _connected(self) -> Any:
        dsn = f"service={self._service}" if self._service else os.environ.get(str(self._variable), "")
        if not dsn.strip():
            raise NoRangeError(f"where the database of the table is, is not known here: set {self._variable}")
        try:
            return psycopg2.connect(**{"connect_timeout": 10, "client_encoding": "utf8", **parse_dsn(dsn)})
        except psycopg2.ProgrammingError:  # Its words may have a part of the password.
            raise NoRangeError("where the database of the table is, is no connection string") from None

    def _judged(self, number: int, texts: Mapping[str, str | None]) -> Read:
        def raw() -> bytes:
            return json.dumps(texts, ensure_ascii=False).encode()

        values = []
        doubtful = False
        for field, cell in zip(self._fields, self._cells, strict=True):
            text = texts[field.name]
            try:
                values.append(value_of(field, cell, text))
            except (ValueError, OverflowError) as error:
                return TableRead(number, (), str(error), raw, doubtful)
            doubtful = doubtful or (text is not None and is_doubtful(field, text.encode()))
        return TableRead(number, values, None, raw, doubtful)


class TableRead(Read):
    """A row whose JSON is made only when it is asked for."""

    __slots__ = ("_doubtful", "_raw_of")

    def __init__(
        self, number: int, values: Sequence[Any], reason: str | None, raw: Callable[[], bytes], doubtful: bool
    ) -> None:
        self.number = number
        self.values = values
        self.reason = reason
        self._raw_of = raw
        self._doubtful = doubtful

    @property
    def raw(self) -> bytes:  # type: ignore[override]
        """Return the row as JSON."""
        return self._raw_of()

    def is_doubtful(self) -> bool:
        """Return True if a number of it is written in a way that parsers may read differently."""
        return self._doubtful


@dataclass(slots=True)
class FoundRows:
    """What was read of a range."""

    rows: int = 0
    total: int = 0

    def add(self, texts: Sequence[str | None]) -> None:
        """Add a row."""
        text = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
        self.rows += 1
        self.total += int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")

    def compare(self, name: str, planned: Mapping[str, Any]) -> None:
        """Raise an error unless the rows are the planned ones."""
        rows = sum(part["rows"] for part in planned["parts"])
        total = sum(int(part["sum"], 16) for part in planned["parts"])
        if self.rows < rows:
            raise NoRangeError(f"table {name} has {self.rows} of the {rows} planned rows: others were deleted or moved")
        if self.rows > rows:
            raise OtherRangeError(
                f"table {name} has {self.rows} rows where {rows} were planned: rows came after their transaction id "
                f"had been passed"
            )
        if (self.total - total) % _IDS:
            raise OtherRangeError(f"rows of table {name} were changed after they were planned")


def value_of(field: Field, cell: Cell, text: str | None) -> Any:
    """Return the value of a text. Raises ValueError or OverflowError for one that is none."""
    if text is None:
        if not field.nullable:
            raise ValueError(f"column {field.name} is NULL")
        return None
    if field.type.kind == "binary":
        return bytes.fromhex(text.removeprefix("\\x"))
    return cell(text.encode(), False)


def _rows(
    connection: Any, name: str, planned: Mapping[str, Any], columns: Sequence[str]
) -> Iterator[Sequence[str | None]]:
    """Yield the rows of a range in the order of transaction id and key."""
    if not planned["parts"]:
        return
    mark, key = planned["settled"], list(planned["key"])
    id_: sql.Composable = sql.SQL("t.xmin::text::bigint")
    if mark != "xmin":
        id_ = sql.Identifier("t", mark.removeprefix("xid8:"))
    # A name alone would be that of a column of the result: numbers would be in the order of their texts.
    order = [id_, *(sql.Identifier("t", column) for column in key)]
    conditions, values = [], []
    for place, signs in ((planned["from"], (">=", ">")), (planned["to"], ("<", "<="))):
        if place is None:
            continue
        bounds = [place["id"], *place.get("key", ())]
        conditions.append(
            sql.SQL("({}) {} ({})").format(
                sql.SQL(",").join(order[: len(bounds)]),
                sql.SQL(signs[len(bounds) > 1]),
                sql.SQL(",").join(sql.Placeholder() * len(bounds)),
            )
        )
        values += bounds
    with connection.cursor() as cursor:
        cursor.execute(_SESSION)
        cursor.execute("select pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        come_to, end = cursor.fetchone()[0], planned["to"]
        if come_to < int(end["id"]) + ("key" in end):
            raise NoRangeError(f"the server of table {name} has only come to transaction id {come_to}")
    with connection.cursor(name="recount") as cursor:
        cursor.itersize = ROWS_AT_ONCE
        statement = sql.SQL("select {} from {} t where {} order by {}").format(
            sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier("t", column)) for column in columns),
            sql.Identifier(*planned["name"]),
            sql.SQL(" and ").join(conditions),
            sql.SQL(", ").join(order),
        )
        cursor.execute(statement, values)
        yield from cursor
