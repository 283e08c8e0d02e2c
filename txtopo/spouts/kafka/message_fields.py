"""The fields of a message that stand around its value, and how values and keys become fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError
from txtopo.spouts.formats.csv.csv_format import Csv, check_alone
from txtopo.spouts.formats.json_format import Json
from txtopo.spouts.kafka.avro_format import Avro

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
"""Format that is one field -> the type of that field."""
KINDS = (*TEXTS, Json.kind, Csv.kind)
"""All formats of values and keys."""


def envelope_fields(fields: Fields) -> Fields:
    """Return the declared fields that stand around the value."""
    return Fields(tuple(field for field in fields.items if field.name in ENVELOPE))


def key_fields(fields: Fields, key: Mapping[str, Any] | None) -> Fields:
    """Return the declared fields of the key, by the layout of keys."""
    names = () if key is None else key["fields"]
    return Fields(tuple(field for field in fields.items if field.name in names))


def value_fields(fields: Fields, key: Mapping[str, Any] | None) -> Fields:
    """Return the declared fields of the value, by the layout of keys."""
    others = {*ENVELOPE, *(() if key is None else key["fields"])}
    return Fields(tuple(field for field in fields.items if field.name not in others))


def check_envelope(fields: Fields) -> None:
    """Raise TopologyError for a field around the value that is declared with another type."""
    for field in envelope_fields(fields).items:
        if field.type.kind not in ENVELOPE[field.name]:
            raise TopologyError(
                f"KafkaSpout: {field.name} is declared {field.type}: declare it as {' or '.join(ENVELOPE[field.name])}"
            )


def key_layout(key: str | Json | Csv | Avro | None, names: Sequence[str], fields: Fields) -> dict[str, Any] | None:
    """Return the layout of the keys for the plan; None if no declared field belongs to them. Raises TopologyError."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TopologyError(f"KafkaSpout: key_fields {names!r} is not a list of declared fields")
    if (key is None) != (not names):
        raise TopologyError(
            "KafkaSpout: key says how keys are written, and key_fields which fields belong to them: both"
        )
    if key is None:
        return None
    for name in names:
        if name in ENVELOPE or fields.get(name) is None or list(names).count(name) > 1:
            raise TopologyError(f"KafkaSpout: key_fields has {name!r}, which is no declared field, or is there twice")
    own = key_fields(fields, {"fields": names})
    return {**layout_of("key", key, own), "fields": list(own.names)}


def layout_of(what: str, chosen: str | Json | Csv | Avro, own: Fields) -> dict[str, Any]:
    """Return the layout of `what`, values or keys, of these fields, with its `kind`. Raises TopologyError if the fields
    do not fit.
    """
    if chosen == Json.kind:
        chosen = Json()
    elif chosen == Csv.kind:
        chosen = Csv(header=False)
    if isinstance(chosen, Json | Csv | Avro):
        try:
            if own.items:
                check_alone(chosen, own) if isinstance(chosen, Csv) else chosen.check(own)
        except TopologyError as error:
            raise TopologyError(f"KafkaSpout: {what}: {error}") from error
        return {"kind": chosen.kind, **chosen.layout()}
    if not isinstance(chosen, str) or chosen not in TEXTS:
        raise TopologyError(
            f"KafkaSpout: {what} {chosen!r} is none of {', '.join(map(repr, KINDS))}, and no Json(…), Csv(…) or Avro(…)"
        )
    if [field.type.kind for field in own.items] not in ([], [TEXTS[chosen]]):
        raise TopologyError(
            f"KafkaSpout: a {what} of format {chosen!r} is one field of type {TEXTS[chosen]}, not {own.ddl}"
        )
    return {"kind": chosen}
