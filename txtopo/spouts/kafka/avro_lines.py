"""The pair of Avro: each text is one record of a given schema, decoded by fastavro."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import Field, Fields
from txtopo.errors import BatchDataError
from txtopo.spouts.arrow_types import arrow_type
from txtopo.spouts.formats.lines.line_pair import LinePair, Sifted
from txtopo.spouts.formats.lines.typed_texts import sifted_batch, whole_batch
from txtopo.spouts.kafka.avro_format import Avro
from txtopo.spouts.kafka.avro_schema import Leaf, leaves, without_logical
from txtopo.spouts.planned_file import COMPONENT

NUMBERED = 5
"""Bytes before a record that has the number of its schema: 0, and the number."""
_EPOCH = dt.date(1970, 1, 1)
_DAYS = range((dt.date(1, 1, 1) - _EPOCH).days, (dt.date(9999, 12, 31) - _EPOCH).days + 1)
_DAY_US = 86_400_000_000
_MICROS = range(_DAYS[0] * _DAY_US, (_DAYS[-1] + 1) * _DAY_US)
_MILLIS = range(_DAYS[0] * 86_400_000, (_DAYS[-1] + 1) * 86_400_000)
_INT = range(-(2**31), 2**31)
_WIDE = Context(prec=100)
_WRONG = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError)
"""What fastavro raises for bytes that are no record."""


@dataclass(frozen=True, slots=True)
class _Version:
    """How records of one schema are read."""

    schema: Any
    leaves: Sequence[Leaf | None]
    """For each field, where it is."""
    takes: Sequence[Callable[[Any], Any]]
    """For each field, from a record to its value."""


class AvroLines(LinePair):
    """Records of one schema, or of several that each record names by number."""

    def __init__(self, fields: Fields, chosen: Avro) -> None:
        """Raises TopologyError if the fields are not those of the schemas."""
        chosen.check(fields)
        self._fields = fields
        self._versions: Mapping[int | None, _Version] = {
            number: _Version(
                fastavro.parse_schema(without_logical(schema)),
                found,
                [_take(field, leaf) for field, leaf in zip(fields.items, found, strict=True)],
            )
            for number, schema in chosen.by_number.items()
            for found in (leaves(schema, fields.items, chosen.paths),)
        }
        self._lone = self._versions.get(None)

    def whole(self, lines: Sequence[bytes]) -> pa.RecordBatch | None:
        """Decode records of one schema, and convert them field by field."""
        version, start = self._lone, 0
        if version is None:
            begin, start = lines[0][:NUMBERED], NUMBERED
            version = self._versions.get(int.from_bytes(begin[1:], "big"))
            if (
                version is None
                or len(begin) < NUMBERED
                or begin[0]
                or not all(line.startswith(begin) for line in lines)
            ):
                return None
        try:
            records = []
            for line in lines:
                stream = io.BytesIO(line)
                stream.seek(start)
                records.append(fastavro.schemaless_reader(stream, version.schema, None))
                if stream.tell() != len(line):
                    return None
            columns = [_together(*one, records) for one in zip(self._fields.items, version.leaves, strict=True)]
        except (*_WRONG, pa.ArrowInvalid):
            return None
        found = [column for column in columns if column is not None]
        return whole_batch(self._fields, found) if len(found) == len(columns) else None

    def sift(self, lines: Sequence[bytes]) -> Sifted:
        refused: dict[int, str] = {}
        rows: list[list[Any]] = []
        numbers: list[int] = []
        for at, line in enumerate(lines):
            try:
                rows.append(self._values(line))
                numbers.append(at)
            except _WRONG as error:
                words = str(error) if type(error) is _NoValueError else f"the line is no Avro: {_told(error)}"
                refused[at] = words
        found = list(zip(*rows, strict=True)) if rows else [()] * len(self._fields.items)
        columns = [_column(field, values) for field, values in zip(self._fields.items, found, strict=True)]
        batch, wrong = sifted_batch(self._fields, columns)
        refused.update((numbers[row], reason) for row, reason in wrong.items())
        return Sifted(batch, dict(sorted(refused.items())))

    def _values(self, line: bytes) -> list[Any]:
        version, start = self._lone, 0
        if version is None:
            if len(line) < NUMBERED or line[0]:
                raise ValueError("it does not begin with the number of a schema")
            number, start = int.from_bytes(line[1:NUMBERED], "big"), NUMBERED
            version = self._versions.get(number)
            if version is None:
                # Not a rejected row: all messages from here on may have this schema.
                raise BatchDataError(
                    f"a message has schema {number}, which is not among those of Avro(schemas={{…}}): add it, and type "
                    f"txtopo replan",
                    component=COMPONENT,
                    fault="schema unknown",
                    halts=True,
                )
        stream = io.BytesIO(line)
        stream.seek(start)
        record = fastavro.schemaless_reader(stream, version.schema, None)
        if stream.tell() != len(line):
            raise ValueError(f"{len(line) - stream.tell()} bytes are left after the record")
        return [take(record) for take in version.takes]


class _NoValueError(ValueError):
    """A value is none of the declared type; the message is the reason."""


def _told(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "it ends in a value"
    return str(error) if isinstance(error, ValueError) else "a number of a type or symbol is out of range"


def _take(field: Field, leaf: Leaf | None) -> Callable[[Any], Any]:
    """Return how a field is taken from a record: as the value of Arrow, None for NULL."""
    if leaf is None:
        return lambda record: None
    convert = _conversion(field, leaf)
    if len(leaf.path) == 1:
        name = leaf.path[0]
        if convert is None:
            return lambda record: record[name]
        return lambda record: None if record[name] is None else convert(record[name])

    def take(record: Any) -> Any:
        for name in leaf.path:
            if record is None:
                return None
            record = record[name]
        return record if convert is None or record is None else convert(record)

    return take


def _conversion(field: Field, leaf: Leaf) -> Callable[[Any], Any] | None:
    match leaf.logical:
        case "decimal":
            return lambda raw: _decimal(field, raw, leaf.scale)
        case "date":
            return lambda days: _within(field, days, _DAYS)
        case "timestamp-millis" | "local-timestamp-millis":
            return lambda millis: _within(field, 1000 * millis, _MICROS)
        case "timestamp-micros" | "local-timestamp-micros":
            return lambda micros: _within(field, micros, _MICROS)
    if leaf.kind == "int":
        return lambda number: _within(field, number, _INT)
    return str.encode if leaf.kind in ("string", "enum") else None


def _within(field: Field, number: int, allowed: range) -> int:
    if number not in allowed:
        raise _NoValueError(f"column {field.name!r}: {number} is no {field.type}")
    return number


def _decimal(field: Field, raw: bytes, scale: int) -> Decimal:
    digits = field.type.precision or 0, field.type.scale or 0
    unscaled = int.from_bytes(raw, "big", signed=True)
    if abs(unscaled) * 10 ** (digits[1] - scale) >= 10 ** digits[0]:
        raise _NoValueError(f"column {field.name!r}: a number of {len(raw)} bytes is no {field.type}")
    return Decimal(unscaled).scaleb(-scale, _WIDE)


def _together(field: Field, leaf: Leaf | None, records: Sequence[Any]) -> pa.Array | None:
    """Return the values of a field in all records; None if one could be refused. The same as `_take` and `_column`,
    without a call for each value.
    """
    if leaf is None or len(leaf.path) > 1:
        take = _take(field, leaf)
        return _column(field, [take(record) for record in records])
    name = leaf.path[0]
    values = [record[name] for record in records]
    match leaf.logical, leaf.kind:
        case "decimal", _:
            return _decimals(field, values, leaf.scale)
        case "date", _:
            return _all_within(pa.array(values, pa.int64()), _DAYS, 1, pa.int32(), pa.date32())
        case "timestamp-millis" | "local-timestamp-millis", _:
            return _all_within(pa.array(values, pa.int64()), _MICROS, 1000, pa.int64(), arrow_type(field.type))
        case "timestamp-micros" | "local-timestamp-micros", _:
            return _all_within(pa.array(values, pa.int64()), _MICROS, 1, pa.int64(), arrow_type(field.type))
        case _, "int":
            return pa.array(values, pa.int32()).cast(arrow_type(field.type))
        case _, "string" | "enum":
            return pa.array(values, pa.string()).cast(pa.binary())
    return _column(field, values)


def _all_within(values: pa.Array, allowed: range, factor: int, raw: pa.DataType, kind: pa.DataType) -> pa.Array | None:
    """Return values as `kind`, multiplied; None if one is not allowed."""
    ends = pc.min_max(values).as_py()
    if ends["min"] is not None and not allowed[0] <= ends["min"] <= ends["max"] <= allowed[-1]:
        return None
    return (values if factor == 1 else pc.multiply(values, factor)).cast(raw).cast(kind)


def _decimals(field: Field, values: Sequence[bytes | None], scale: int) -> pa.Array | None:
    """Return unscaled numbers as decimals of the declared type; None if one of them may not fit."""
    if None in values:
        return _column(field, [None if raw is None else _decimal(field, raw, scale) for raw in values])
    precision, places = field.type.precision or 0, field.type.scale or 0
    factor = 10 ** (places - scale)
    found = [int.from_bytes(raw, "big", signed=True) * factor for raw in values if raw is not None]
    if max(max(found), -min(found)) >= 10**precision:
        return None
    data = b"".join([number.to_bytes(16, "little", signed=True) for number in found])
    return pa.Array.from_buffers(pa.decimal128(precision, places), len(found), [None, pa.py_buffer(data)])


def _column(field: Field, values: Sequence[Any]) -> pa.Array:
    kind = field.type.kind
    if kind == "string":
        return pa.array(values, pa.binary())  # Judged as the text that it is.
    if kind == "date":
        return pa.array(values, pa.int32()).cast(pa.date32())
    if kind in ("timestamp", "timestamp_ntz"):
        return pa.array(values, pa.int64()).cast(arrow_type(field.type))
    return pa.array(values, arrow_type(field.type))
