"""Whether a table of any database can be read by its key, and which values its columns give: refuses what is not known
to be exact.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import INTEGER_KINDS, Field, Fields
from txtopo.errors import BatchDataError
from txtopo.spouts.table.table_checks import refused

if TYPE_CHECKING:
    from sqlalchemy import Connection

_FITTING: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(INTEGER_KINDS, ("whole number", "decimal")),
    "decimal": ("whole number", "decimal"),
    "double": ("floating point",),
    "boolean": ("boolean", "whole number"),
    "date": ("date",),
    "timestamp": ("time with zone",),
    "timestamp_ntz": ("time",),
    "binary": ("bytes",),
    "string": ("text", "whole number", "date"),
    "float": (),
}
"""Declared type -> what a column may have."""


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table that can be read."""

    schema: str | None
    name: str
    key: str
    """The column by which it is cut: whole numbers, each once."""

    @property
    def shown(self) -> str:
        """Return its name as text; it is also the name of the partition."""
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


def look_up(connection: Connection, table: str, fields: Fields, key: str | None) -> SqlTable:
    """Read the catalog. Raises BatchDataError for a table that cannot be read."""
    from sqlalchemy import inspect
    from sqlalchemy.exc import NoSuchTableError, SAWarning

    schema, _, name = table.rpartition(".")
    inspector = inspect(connection)
    if name in inspector.get_view_names(schema or None):
        raise refused(table, "it is a view, whose rows may come in another order than their keys: name a table")
    try:
        with warnings.catch_warnings(category=SAWarning, action="ignore"):  # A type that is unknown is refused below.
            columns = {column["name"]: column for column in inspector.get_columns(name, schema or None)}
        primary = inspector.get_pk_constraint(name, schema or None)["constrained_columns"]
        unique: list[Sequence[str | None]] = []
        unique += [one["column_names"] for one in inspector.get_unique_constraints(name, schema or None)]
        unique += [one["column_names"] for one in inspector.get_indexes(name, schema or None) if one["unique"]]
    except NoSuchTableError:
        raise refused(table, "there is no such table in this database", "table gone") from None
    for field in fields.items:
        _check_field(table, field, columns, connection.dialect.name)
    found = _key(table, key, primary, unique, columns)
    if connection.dialect.name == "sqlite":
        _check_sqlite(connection, table, schema, name, found)
    return SqlTable(schema or None, name, found)


def content_of(kind: Any, dialect: str) -> str:
    """Return what a column of a type has, in words; the name of the type if it is not known to be exact.

    >>> from sqlalchemy import types
    >>> content_of(types.BigInteger(), "mysql"), content_of(types.JSON(), "mysql")
    ('whole number', 'JSON')
    """
    from sqlalchemy import types

    for base, words in (
        (types.Float, "floating point"),
        (types.Boolean, "boolean"),
        (types.Integer, "whole number"),
        (types.DateTime, "time with zone" if getattr(kind, "timezone", False) else "time"),
        (types.Date, "date"),
        (types.LargeBinary, "bytes"),
        (types.BINARY, "bytes"),
        (types.VARBINARY, "bytes"),
        (types.String, "text"),
    ):
        if isinstance(kind, base):
            return words
    if isinstance(kind, types.Numeric) and dialect != "sqlite":  # SQLite keeps it as floating point.
        return "decimal"
    return str(getattr(kind, "__visit_name__", "") or type(kind).__name__)


def _check_field(table: str, field: Field, columns: Mapping[str, Any], dialect: str) -> None:
    column = columns.get(field.name)
    if column is None:
        raise refused(table, f"there is no column {field.name!r}; it has {', '.join(columns)}")
    content = content_of(column["type"], dialect)
    if content in _FITTING[field.type.kind]:
        return
    fitting = [kind for kind, contents in _FITTING.items() if content in contents]
    better = f"declare it as {' or '.join(fitting)}" if fitting else "no declared type has its values exactly"
    raise refused(table, f"column {field.name!r} has {content}, declared {field.type}: {better}")


def _key(
    table: str,
    key: str | None,
    primary: Sequence[str],
    unique: Sequence[Sequence[str | None]],
    columns: Mapping[str, Any],
) -> str:
    if key is None:
        if len(primary) != 1:
            raise refused(
                table,
                f"its primary key has {len(primary)} columns: declare key= with a unique column of whole numbers that "
                f"grow",
            )
        (key,) = primary
    column = columns.get(key)
    if column is None:
        raise refused(table, f"there is no column {key!r}, which is the key")
    if list(primary) != [key]:
        if [key] not in [list(names) for names in unique]:
            raise refused(table, f"key {key!r} is not unique: create a unique index on it")
        if column["nullable"]:
            raise refused(table, f"key {key!r} may be NULL: declare the column not null")
    if content_of(column["type"], "") != "whole number":
        raise refused(table, f"key {key!r} has no whole numbers, which grow from row to row: declare another key=")
    return key


def _check_sqlite(connection: Connection, table: str, schema: str, name: str, key: str) -> None:
    """Refuse a table of SQLite that gives numbers of deleted rows to new ones."""
    from sqlalchemy import column, select
    from sqlalchemy import table as named

    catalog = named("sqlite_master", column("sql"), column("name"), column("type"), schema=schema or None)
    made = connection.execute(
        select(catalog.c.sql).where(catalog.c.name == name, catalog.c.type == "table")
    ).scalar_one_or_none()
    if made is None or not re.search(r"\bautoincrement\b", made, re.IGNORECASE):
        raise refused(
            table,
            f"SQLite gives the numbers of deleted rows to new ones, which would be in no batch: make the table with "
            f"{key} integer primary key autoincrement",
        )


def whole_number(table: str, key: str, value: object) -> int:
    """Return the key of a row. Raises BatchDataError for another value."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BatchDataError(
            f"{table}: {value!r:.100} in column {key!r} is no whole number",
            component="spout",
            position=table,
            fault="key is no whole number",
        )
    return value
