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
_FLOAT_TYPES = {"float": "real", "double": "double precision"}


def postgres_type(field_type: FieldType) -> str:
    """Return the Postgres name of a field type, as `format_type` writes it."""
    if field_type.kind == "decimal":
        return f"numeric({field_type.precision},{field_type.scale})"
    return _POSTGRES_TYPES[field_type.kind]


def column_type(field_type: FieldType) -> str:
    """Return the same for a column that only keeps values, which may be floats."""
    return _FLOAT_TYPES.get(field_type.kind) or postgres_type(field_type)


def quoted(name: str) -> str:
    """Return the identifier in double quotes, with percent signs doubled for psycopg2."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def unescaped(name: str) -> str:
    """Return the identifier in double quotes, as a statement without placeholders has it."""
    return quoted(name).replace("%%", "%")


def average_of(total: str, present: str) -> str:
    """Return SQL for the quotient of two columns, NULL over no values."""
    return f"{unescaped(total)} / nullif({unescaped(present)}, 0)"


def averages_spelled(total: str, present: str) -> tuple[str, ...]:
    """Return the ways in which Postgres spells this quotient: a name has quotes only if it needs them."""
    totals, presents = ((name, unescaped(name)) for name in (total, present))
    return tuple(f"({one} / (NULLIF({other}, 0))::numeric)" for one in totals for other in presents)


def later(start: str, kind: str, seconds: int) -> str:
    """Return SQL for the moment that is this much later than a column; immutable, so without the zone of a session."""
    width = f"make_interval(secs => {seconds})"
    if kind == "timestamp with time zone":
        return f"({unescaped(start)} at time zone 'UTC' + {width}) at time zone 'UTC'"
    return f"{unescaped(start)} + {width}"


def later_spelled(start: str, kind: str, seconds: int) -> str:
    """Return the way in which Postgres spells this."""
    width = f"make_interval(secs => ({seconds})::double precision)"
    if kind == "timestamp with time zone":
        return f"((({start} AT TIME ZONE 'UTC'::text) + {width}) AT TIME ZONE 'UTC'::text)"
    return f"({start} + {width})"
