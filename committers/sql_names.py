"""SQL names: quoted identifiers, and the Postgres names of field types. Pure; needs neither a driver nor Arrow."""

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
    """Return the Postgres name of a field type, as `format_type` writes it."""
    if field_type.kind == "decimal":
        return f"numeric({field_type.precision},{field_type.scale})"
    return _POSTGRES_TYPES[field_type.kind]


def quoted(name: str) -> str:
    """Return the identifier in double quotes, with percent signs doubled for psycopg2."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def is_average(expression: str, total: str, present: str) -> bool:
    """True if this is how Postgres spells a column computed as the quotient of two others, NULL over no values."""
    totals, presents = ((name, '"' + name.replace('"', '""') + '"') for name in (total, present))
    return expression in [f"({one} / (NULLIF({other}, 0))::numeric)" for one in totals for other in presents]
