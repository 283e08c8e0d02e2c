"""Arrow types of the declared fields, the same that Spark uses for them."""

from __future__ import annotations

import pyarrow as pa

from txtopo.core.fields import Fields, FieldType

_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}


def arrow_type(field_type: FieldType) -> pa.DataType:
    """Return the Arrow type of one declared type."""
    if field_type.kind == "decimal":
        return pa.decimal128(field_type.precision, field_type.scale)
    return _TYPES[field_type.kind]


def arrow_schema(fields: Fields) -> pa.Schema:
    """Return the Arrow schema of the declared fields. Every column is nullable for Arrow: NOT NULL is checked where
    values are read.
    """
    return pa.schema([pa.field(field.name, arrow_type(field.type)) for field in fields.items])
