"""Reads ranges of rows of a table of any database for the audit, with separate statements and code."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import Engine, column, create_engine, select, table
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from txtopo.audit.readers.kafka_reader import NoRangeError, RangeReader
from txtopo.audit.readers.reader import Read, check_known
from txtopo.audit.readers.table_reader import FoundRows, TableRead, value_of
from txtopo.audit.readers.text_values import cell_of, is_doubtful
from txtopo.core.fields import Field, Fields
from txtopo.core.positions import Unit


class SqlTableReader(RangeReader):
    """Reads all rows of a range by one statement, and compares them with the counts of the plan."""

    kind = "sql_table"
    unit: ClassVar[Unit] = "row"

    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        check_known(layout, "kind", "url_env")
        self._variable = str(layout["url_env"])
        self._fields = {field.name: field for field in fields.items}
        self._cells = {field.name: cell_of(field, ()) for field in fields.items}

    def read(self, name: str, planned: Mapping[str, Any]) -> Iterator[Read]:
        """Yield the rows of a range. Raises NoRangeError, and OtherRangeError at its end."""
        found = FoundRows()
        if planned["parts"]:
            for number, values in enumerate(self._rows(name, planned), 1):
                texts = {column: _text(_kind(self._fields.get(column)), value) for column, value in values.items()}
                shown = [None if text is None else text[0] for text in texts.values()]
                found.add(shown)
                yield self._judged(number, texts)
        found.compare(name, planned)

    def _rows(self, name: str, planned: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        schema, of = planned["name"]
        columns = [planned["key"], *(one for one in self._fields if one != planned["key"])]
        source = table(of, *map(column, columns), schema=schema)
        key = source.c[planned["key"]]
        rows = select(*(source.c[one] for one in columns)).where(key <= planned["to"]).order_by(key)
        if planned["from"] is not None:
            rows = rows.where(key > planned["from"])
        try:
            with self._engine(name, planned).connect() as connection:
                for values in connection.execution_options(stream_results=True).execute(rows):
                    yield dict(zip(columns, values, strict=True))
        except DBAPIError as error:
            words = f"{error.orig}".strip().partition("\n")[0]
            raise NoRangeError(f"table {name} cannot be read ({words})") from None

    def _engine(self, name: str, planned: Mapping[str, Any]) -> Engine:
        text = os.environ.get(self._variable, "")
        if not text.strip():
            raise NoRangeError(f"where the database of the table is, is not known here: set {self._variable}")
        try:
            url = make_url(text)
            where = f"{url.get_backend_name()}://{url.host or ''}{f':{url.port}' if url.host and url.port else ''}"
            where += f"/{url.database or ''}"
            if where != planned["server"]:
                raise NoRangeError(f"table {name} was read in {planned['server']}, and {self._variable} names {where}")
            if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
                raise NoRangeError(f"table {name} cannot be read (there is no such database)")
            return create_engine(url, poolclass=NullPool, hide_parameters=True)
        except (ArgumentError, NoSuchModuleError, ImportError, ValueError):
            raise NoRangeError("where the database of the table is, is no URL of a known database") from None

    def _judged(self, number: int, texts: Mapping[str, tuple[str, str | None] | None]) -> Read:
        def raw() -> bytes:
            shown = {name: None if text is None else text[0] for name, text in texts.items()}
            return json.dumps(shown, ensure_ascii=False).encode()

        values: list[Any] = []
        doubtful = False
        odd = next((text[1] for text in texts.values() if text is not None and text[1] is not None), None)
        if odd is not None:
            return TableRead(number, (), odd, raw, doubtful)
        for name, field in self._fields.items():
            pair = texts[name]
            text = None if pair is None else pair[0]
            try:
                values.append(value_of(field, self._cells[name], text))
            except (ValueError, OverflowError) as error:
                return TableRead(number, (), str(error), raw, doubtful)
            doubtful = doubtful or (text is not None and is_doubtful(field, text.encode()))
        return TableRead(number, values, None, raw, doubtful)


def _kind(field: Field | None) -> str:
    return "bigint" if field is None else field.type.kind


def _text(kind: str, value: Any) -> tuple[str, str | None] | None:
    """Return a value as text, and why it is none of its kind; None for NULL."""
    if value is None:
        return None
    if isinstance(value, memoryview | bytearray):
        value = bytes(value)
    shown = f"{type(value).__name__} {value!r}"
    allowed: Sequence[type]
    match kind:
        case "boolean":
            if value in (0, 1) and isinstance(value, int):
                return ("true" if value else "false"), None
            allowed = ()
        case "binary":
            if isinstance(value, bytes):
                return f"\\x{value.hex()}", None
            allowed = ()
        case "double":
            if type(value) in (int, float):
                return repr(value), None
            allowed = ()
        case "string":
            allowed = (str, int, date)
        case "date":
            allowed = (str, date)
        case "timestamp" | "timestamp_ntz":
            if isinstance(value, datetime):
                if (value.tzinfo is None) != (kind == "timestamp_ntz"):
                    return shown, f"no {kind}"
                return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat(" "), None
            allowed = (str,)
        case _:
            allowed = (int, Decimal)
    if type(value) not in allowed:
        return shown, f"no {kind}"
    if isinstance(value, Decimal):
        return f"{value:f}", None
    return (value.isoformat() if isinstance(value, date) else str(value)), None
