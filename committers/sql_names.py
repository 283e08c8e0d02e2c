"""Names in SQL: identifiers in quotes, and Postgres' names of the types of fields. Pure, without a driver and without
Arrow.
"""

from __future__ import annotations

from txtopo.core.fields import FieldType

_POSTGRES_TYPES = {
    "string": "text",
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "binary": "bytea",
}


def postgres_type(field_type: FieldType) -> str:
    """Postgres' name of a key's type, as `format_type` spells it."""
    if field_type.kind == "decimal":
        return f"numeric({field_type.precision},{field_type.scale})"
    return _POSTGRES_TYPES[field_type.kind]


def quoted(name: str) -> str:
    """An identifier in quotes, ready for psycopg2 (a percent sign doubled)."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'
