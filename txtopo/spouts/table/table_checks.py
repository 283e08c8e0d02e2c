"""Whether the rows of a table can be read exactly once: refuses tables where that cannot be, with the statement after
which it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.core.fields import INTEGER_KINDS, Field, Fields
from txtopo.errors import BatchDataError
from txtopo.spouts.planned_file import COMPONENT
from txtopo.spouts.table import table_statements
from txtopo.spouts.table.row_ranges import Settled

SERVER_MIN = 130_000
"""Postgres 13: the first version with `xid8`."""
_INTEGERS = ("int2", "int4", "int8")
_TYPES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(INTEGER_KINDS, (*_INTEGERS, "numeric")),
    "decimal": (*_INTEGERS, "numeric"),
    "float": ("float4",),
    "double": ("float8",),
    "boolean": ("bool",),
    "date": ("date",),
    "timestamp": ("timestamptz",),
    "timestamp_ntz": ("timestamp",),
    "binary": ("bytea",),
}
"""Declared type -> types of columns whose text is a value of it; a `string` is the text of any column."""
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index"}


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table."""

    type: str
    """Name of its type; of a domain, the type below it."""
    not_null: bool
    default: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """What the catalog says of a table."""

    oid: int
    schema: str
    name: str
    kind: str
    persistence: str
    has_children: bool
    version: int
    encoding: str
    columns: Mapping[str, TableColumn]
    primary_key: tuple[str, ...]
    unique: Sequence[tuple[str, ...]]
    """The columns of each unique index."""
    indexes: Sequence[tuple[str, ...]]
    """The columns of each index."""

    @property
    def shown(self) -> str:
        """Return its name as text; it is also the name of the partition."""
        return f"{self.schema}.{self.name}"


def look_up(cursor: Any, table: str) -> SourceTable:
    """Read the catalog. Raises BatchDataError if there is no such table."""
    cursor.execute(table_statements.TABLE, {"table": table})
    found = cursor.fetchone()
    if found is None:
        raise refused(table, "there is no such table in this database", "table gone")
    oid, schema, name, kind, persistence, has_children, version, encoding = found
    cursor.execute(table_statements.COLUMNS, {"oid": oid})
    columns = {name: TableColumn(*rest) for name, *rest in cursor.fetchall()}
    cursor.execute(table_statements.INDEXES, {"oid": oid})
    indexes = [(primary, unique, tuple(names)) for primary, unique, names in cursor.fetchall()]
    return SourceTable(
        oid=oid,
        schema=schema,
        name=name,
        kind=kind,
        persistence=persistence,
        has_children=has_children,
        version=version,
        encoding=encoding,
        columns=columns,
        primary_key=next((names for primary, _, names in indexes if primary), ()),
        unique=[names for _, unique, names in indexes if unique],
        indexes=[names for _, _, names in indexes],
    )


def checked_key(table: SourceTable, fields: Fields, settled: Settled, key: Sequence[str] | None) -> tuple[str, ...]:
    """Return the key of the rows: the given one or the primary key. Raises BatchDataError for a table that cannot be
    read exactly once, with the statement after which it can.
    """
    _check_kind(table)
    for field in fields.items:
        _check_field(table, field)
    found = _key(table, key)
    if settled.column is None:
        if table.kind == "p":
            raise refused(
                table.shown,
                f"a partitioned table has no xmin: {_add_column(table, found, 'written_by')} and declare "
                f"settled='xid8:written_by'",
            )
    else:
        _check_ids(table, settled.column, found)
    return found


def _check_kind(table: SourceTable) -> None:
    if table.version < SERVER_MIN:
        raise refused(table.shown, f"the server has version {table.version // 10_000}, and 13 or later is needed")
    if table.encoding != "UTF8":
        raise refused(table.shown, f"the database has encoding {table.encoding}, and UTF8 is needed")
    if table.kind not in ("r", "p"):
        what = _KINDS.get(table.kind, "no table")
        raise refused(table.shown, f"it is {what}, whose rows do not say which transaction wrote them: name a table")
    if table.persistence != "p":
        raise refused(
            table.shown,
            f"it is not permanent, and a crash of the server would empty it: alter table {table.shown} set logged",
        )
    if table.has_children:
        raise refused(table.shown, "it has child tables by inheritance, which no index covers: read each by itself")


def _check_field(table: SourceTable, field: Field) -> None:
    column = table.columns.get(field.name)
    if column is None:
        raise refused(table.shown, f"there is no column {field.name!r}; it has {', '.join(table.columns)}")
    wanted = _TYPES.get(field.type.kind)
    if wanted is None or column.type in wanted:
        return
    fitting = [kind for kind, types in _TYPES.items() if column.type in types]
    better = " or ".join(["string", *fitting])
    raise refused(
        table.shown, f"column {field.name!r} has type {column.type}, declared {field.type}: declare it as {better}"
    )


def _key(table: SourceTable, key: Sequence[str] | None) -> tuple[str, ...]:
    found = tuple(key) if key is not None else table.primary_key
    if not found:
        raise refused(
            table.shown,
            f"it has no primary key, by which a large transaction is cut into batches: alter table {table.shown} add "
            f"primary key (COLUMN), or declare key= with the columns of a unique index",
        )
    for name in found:
        if name not in table.columns:
            raise refused(table.shown, f"there is no column {name!r}, which is in the key")
        if not table.columns[name].not_null:
            raise refused(
                table.shown, f"key {name!r} may be NULL: alter table {table.shown} alter column {name} set not null"
            )
    if not any({*names} <= {*found} for names in table.unique):
        listed = ", ".join(found)
        raise refused(table.shown, f"key ({listed}) is not unique: create unique index on {table.shown} ({listed})")
    return found


def _check_ids(table: SourceTable, name: str, key: tuple[str, ...]) -> None:
    column = table.columns.get(name)
    if column is None:
        raise refused(
            table.shown,
            f"there is no column {name!r} that says which transaction wrote a row: {_add_column(table, key, name)}",
        )
    if column.type != "xid8":
        raise refused(
            table.shown, f"column {name!r} has type {column.type}, not xid8: {_add_column(table, key, 'written_in')}"
        )
    if not column.not_null or column.default.removeprefix("pg_catalog.") != "pg_current_xact_id()":
        raise refused(
            table.shown,
            f"column {name!r} must have the id of the transaction in each row: alter table {table.shown} alter column "
            f"{name} set default pg_current_xact_id(), alter column {name} set not null",
        )
    if not any(names[: 1 + len(key)] == (name, *key) for names in table.indexes):
        raise refused(
            table.shown,
            f"no index finds the rows of a transaction in the order of their key: {_create_index(table, key, name)}",
        )


def _add_column(table: SourceTable, key: tuple[str, ...], name: str) -> str:
    return (
        f"alter table {table.shown} add column {name} xid8 not null default pg_current_xact_id(); "
        f"{_create_index(table, key, name)}"
    )


def _create_index(table: SourceTable, key: tuple[str, ...], name: str) -> str:
    return f"create index on {table.shown} ({', '.join((name, *key))})"


def refused(table: str, words: str, fault: str = "table cannot be read exactly once") -> BatchDataError:
    """Return the error for a table that cannot be read."""
    return BatchDataError(f"{table}: {words}", component=COMPONENT, position=table, fault=fault)
