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

from txtopo.core.fields import Field, Fields
from txtopo.errors import BatchDataError
from txtopo.spouts.arrow_types import arrow_type
from txtopo.spouts.formats.lines.line_pair import LinePair, Sifted
from txtopo.spouts.formats.lines.typed_texts import sifted_batch
from txtopo.spouts.kafka.avro_format import Avro
from txtopo.spouts.kafka.avro_schema import Leaf, leaves, without_logical
from txtopo.spouts.planned_file import COMPONENT

NUMBERED = 5
"""Bytes before a record that has the number of its schema: 0, and the number."""
_EPOCH = dt.date(1970, 1, 1)
_DAYS = range((dt.date(1, 1, 1) - _EPOCH).days, (dt.date(9999, 12, 31) - _EPOCH).days + 1)
_DAY_US = 86_400_000_000
_MICROS = range(_DAYS[0] * _DAY_US, (_DAYS[-1] + 1) * _DAY_US)
_INT = range(-(2**31), 2**31)
_WIDE = Context(prec=100)
_WRONG = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError)
"""What fastavro raises for bytes that are no record."""


@dataclass(frozen=True, slots=True)
class _Version:
    """How records of one schema are read."""

    schema: Any
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
                [_take(field, leaf) for field, leaf in zip(fields.items, found, strict=True)],
            )
            for number, schema in chosen.by_number.items()
            for found in (leaves(schema, fields.items, chosen.paths),)
        }
        self._lone = self._versions.get(None)

    def whole(self, lines: Sequence[bytes]) -> pa.RecordBatch | None:
        sifted = self.sift(lines)
        return None if sifted.refused else sifted.batch

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


def _column(field: Field, values: Sequence[Any]) -> pa.Array:
    kind = field.type.kind
    if kind == "string":
        return pa.array(values, pa.binary())  # Judged as the text that it is.
    if kind == "date":
        return pa.array(values, pa.int32()).cast(pa.date32())
    if kind in ("timestamp", "timestamp_ntz"):
        return pa.array(values, pa.int64()).cast(arrow_type(field.type))
    return pa.array(values, arrow_type(field.type))
