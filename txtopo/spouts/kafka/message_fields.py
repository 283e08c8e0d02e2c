"""The fields of a message that stand around its value, and how values become fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError
from txtopo.spouts.formats.json_format import Json

ENVELOPE: Mapping[str, tuple[str, ...]] = {
    "_headers": ("string",),
    "_key": ("string", "binary"),
    "_offset": ("bigint",),
    "_partition": ("int",),
    "_timestamp": ("timestamp",),
    "_topic": ("string",),
}
"""Name of a field -> the types with which it may be declared."""
TEXTS: Mapping[str, str] = {"string": "string", "bytes": "binary"}
"""Format of values that are one field -> the type of that field."""


def envelope_fields(fields: Fields) -> Fields:
    """Return the declared fields that stand around the value."""
    return Fields(tuple(field for field in fields.items if field.name in ENVELOPE))


def value_fields(fields: Fields) -> Fields:
    """Return the declared fields that stand in the value."""
    return Fields(tuple(field for field in fields.items if field.name not in ENVELOPE))


def value_layout(value: str | Json, fields: Fields) -> dict[str, Any]:
    """Return the layout of the values for the plan. Raises TopologyError if the fields do not fit."""
    for field in envelope_fields(fields).items:
        if field.type.kind not in ENVELOPE[field.name]:
            raise TopologyError(
                f"KafkaSpout: {field.name} is declared {field.type}: declare it as {' or '.join(ENVELOPE[field.name])}"
            )
    own = value_fields(fields)
    if value == "json":
        value = Json()
    if isinstance(value, Json):
        try:
            value.check(own) if own.items else None
        except TopologyError as error:
            raise TopologyError(f"KafkaSpout: {error}") from error
        return {"kind": "json", **value.layout()}
    if not isinstance(value, str) or value not in TEXTS:
        raise TopologyError(f"KafkaSpout: value {value!r} is none of 'string', 'bytes', 'json', and no Json(…)")
    if [field.type.kind for field in own.items] not in ([], [TEXTS[value]]):
        raise TopologyError(
            f"KafkaSpout: a value of format {value!r} is one field of type {TEXTS[value]}, not {own.ddl}"
        )
    return {"kind": value}
