"""Which types of columns give which declared types, and how: exactly, or a value is refused."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from txtopo.core.fields import INTEGER_KINDS, Field, FieldType
from txtopo.spouts.arrow_types import arrow_type

_DAY_US = 86_400_000_000
_FIRST_DAY = (dt.date(1, 1, 1) - dt.date(1970, 1, 1)).days
_LAST_DAY = (dt.date(9999, 12, 31) - dt.date(1970, 1, 1)).days
_ANY_INTEGER = pa.decimal128(20, 0)
"""A type that every integer fits."""
_FLOATS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {"float": (types.is_float16, types.is_float32)}
_FLOATS["double"] = (*_FLOATS["float"], types.is_float64)


class UnfitError(ValueError):
    """A value that is no value of the declared type."""


def plain_type(found: pa.DataType) -> pa.DataType:
    """Return the type of the values themselves, without a name or a dictionary for them."""
    if isinstance(found, pa.BaseExtensionType):
        return plain_type(found.storage_type)
    return plain_type(found.value_type) if types.is_dictionary(found) else found


def plain(values: pa.Array) -> pa.Array:
    """Return the same values as their plain type."""
    if isinstance(values, pa.ExtensionArray):
        return plain(values.storage)
    return plain(values.dictionary_decode()) if types.is_dictionary(values.type) else values


def is_text(found: pa.DataType) -> bool:
    """Return True for texts."""
    return bool(types.is_string(found) or types.is_large_string(found) or types.is_string_view(found))


def is_bytes(found: pa.DataType) -> bool:
    """Return True for bytes."""
    return bool(
        types.is_binary(found)
        or types.is_large_binary(found)
        or types.is_binary_view(found)
        or types.is_fixed_size_binary(found)
    )


def why_not_given(declared: FieldType, found: pa.DataType, *, is_int96: bool) -> str | None:
    """Return why a column of this type does not give the declared type; None: it does."""
    found = plain_type(found)
    if found.num_fields:
        return "it is nested: say by Parquet(paths=) which value in it is meant" if types.is_struct(found) else _OTHER
    if types.is_null(found):
        return None  # All values of the column are NULL.
    kind = declared.kind
    if kind in ("timestamp", "timestamp_ntz") and types.is_timestamp(found):
        zoned = is_int96 or found.tz is not None
        if zoned and kind == "timestamp_ntz":
            return "its values are instants: declare it as timestamp"
        if not zoned and kind == "timestamp":
            return "nobody knows the time zone of its values: declare it as timestamp_ntz"
        return None
    return None if _GIVEN[kind](found) else _OTHER


_OTHER = "that type is not given exactly"
_GIVEN: dict[str, Callable[[pa.DataType], bool]] = {
    "string": lambda found: is_text(found) or is_bytes(found),
    "binary": lambda found: is_text(found) or is_bytes(found),
    "boolean": types.is_boolean,
    **dict.fromkeys(INTEGER_KINDS, types.is_integer),
    "decimal": lambda found: types.is_decimal(found) or types.is_integer(found),
    "float": lambda found: any(is_such(found) for is_such in _FLOATS["float"]),
    "double": lambda found: any(is_such(found) for is_such in _FLOATS["double"]),
    "date": types.is_date,
    "timestamp": lambda found: False,
    "timestamp_ntz": lambda found: False,
}


def converted(field: Field, values: pa.Array) -> pa.Array:
    """Return values as the declared type. Raises UnfitError or pyarrow.ArrowInvalid if that type does not have one of
    them, or one is NULL and the field is not.
    """
    if not field.nullable and values.null_count:
        raise UnfitError
    wanted, kind = arrow_type(field.type), field.type.kind
    if kind == "decimal" and types.is_integer(values.type):
        values = pc.cast(values, _ANY_INTEGER)
    given = values if values.type == wanted else pc.cast(values, wanted)
    if kind == "string":
        if is_text(values.type):
            given.validate(full=True)  # Texts of a file need not be UTF-8; a cast from bytes looks.
        if pc.any(pc.match_substring(given, "\0")).as_py():
            raise UnfitError
    elif kind == "date":
        _check_years(pc.cast(given, pa.int32()), _FIRST_DAY, _LAST_DAY)
    elif kind in ("timestamp", "timestamp_ntz"):
        _check_years(pc.cast(given, pa.int64()), _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1)
    return given


def _check_years(values: pa.Array, first: int, last: int) -> None:
    """Check that all values are in the years 1 to 9999."""
    bounds = pc.min_max(values).as_py()
    if bounds["min"] is not None and (bounds["min"] < first or bounds["max"] > last):
        raise UnfitError
