"""Values of declared fields as JSON and back, exactly: for tuples that are stored in a batch's metadata."""

from __future__ import annotations

import base64
import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from txtopo.core.fields import FLOAT_KINDS, INTEGER_KINDS, Field, Fields


def to_json(values: Sequence[Any], fields: Fields) -> list[Any]:
    """Return JSON values for values that fit the fields; SQL's NULL is null."""
    return [
        None if value is None else _to_json(value, field) for value, field in zip(values, fields.items, strict=True)
    ]


def from_json(stored: Sequence[Any], fields: Fields) -> list[Any]:
    """Return the values of the fields from JSON."""
    return [
        None if value is None else _from_json(value, field) for value, field in zip(stored, fields.items, strict=True)
    ]


def _to_json(value: Any, field: Field) -> Any:
    match field.type.kind:
        case "string":
            return str(value)
        case kind if kind in INTEGER_KINDS:
            return int(value)
        case kind if kind in FLOAT_KINDS:
            return float(value) if math.isfinite(value) else repr(float(value))
        case "decimal":
            return str(value)
        case "timestamp":
            return value.astimezone(datetime.UTC).isoformat()
        case "date" | "timestamp_ntz":
            return value.isoformat()
        case "binary":
            return base64.b64encode(value).decode("ascii")
        case _:
            return bool(value)


def _from_json(stored: Any, field: Field) -> Any:
    match field.type.kind:
        case kind if kind in FLOAT_KINDS:
            return float(stored)
        case "decimal":
            return Decimal(stored)
        case "date":
            return datetime.date.fromisoformat(stored)
        case "timestamp" | "timestamp_ntz":
            return datetime.datetime.fromisoformat(stored)
        case "binary":
            return base64.b64decode(stored)
        case _:
            return stored
