"""Postgres' names of the types of fields. Without Arrow, so that the audit may know them."""

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
