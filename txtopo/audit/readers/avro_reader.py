"""Reads records of Avro for the audit with a separate decoder, value by value."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from txtopo.audit.readers.reader import Read, check_known
from txtopo.core.fields import Field, Fields

_SIMPLE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_BITS = {"int": 31, "bigint": 63}
_UNITS = {"millis": 1000, "micros": 1}
_MISSING = object()


@dataclass(slots=True)
class _Bytes:
    """What is left of a record."""

    data: bytes
    at: int = 0
    is_odd: bool = False
    """True after bytes that decoders read in different ways."""

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise ValueError("the record ends in a value")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        """Return a number of seven bits a byte, the lowest ones first, of which the lowest bit is the sign."""
        found = shift = 0
        while True:
            byte = self.take(1)[0]
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        self.is_odd = self.is_odd or found >= 1 << 64
        return -(found + 1 >> 1) if found & 1 else found >> 1


@dataclass(slots=True)
class _AvroRead(Read):
    is_odd: bool = field(default=False)

    def is_doubtful(self) -> bool:
        """Return True for bytes that decoders read in different ways."""
        return self.is_odd


class AvroReader:
    """Judges texts that are one record each."""

    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        check_known(layout, "schema", "schemas", "paths")
        self._fields = fields.items
        self._paths = [tuple(layout["paths"].get(one.name, (one.name,))) for one in fields.items]
        schemas = layout["schemas"].items() if "schemas" in layout else [(None, layout["schema"])]
        self._schemas: dict[int | None, _Schema] = {
            None if number is None else int(number): _Schema(one) for number, one in schemas
        }

    def judged(self, number: int, raw: bytes) -> Read:
        """Return what a text is."""
        rest = _Bytes(raw)
        try:
            schema = self._schemas.get(None)
            if schema is None:
                if rest.take(1) != b"\0":
                    raise ValueError("no number of a schema")
                schema = self._schemas[int.from_bytes(rest.take(4), "big")]
            record = schema.value(schema.root, rest, "")
            if rest.at < len(raw):
                raise ValueError("more than a record")
            values = [self._cell(one, path, record) for one, path in zip(self._fields, self._paths, strict=True)]
        except (ValueError, KeyError, IndexError, OverflowError, struct.error) as error:
            return _AvroRead(number, (), str(error) or type(error).__name__, raw, rest.is_odd)
        return _AvroRead(number, values, None, raw, rest.is_odd)

    @staticmethod
    def _cell(column: Field, path: tuple[str, ...], record: Any) -> Any:
        found = record
        for name in path:
            if found is None or found is _MISSING:
                break
            found = found.get(name, _MISSING)
        if found is None or found is _MISSING:
            if not column.nullable:
                raise ValueError(f"{column.name} is NULL")
            return None
        return _typed(column, *found)


class _Schema:
    """A schema, and the types that it names."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._named: dict[str, tuple[Any, str]] = {}
        self._name(root, "")

    def _name(self, node: Any, space: str) -> None:
        """Note all types with a name."""
        if isinstance(node, list):
            for one in node:
                self._name(one, space)
        elif isinstance(node, dict):
            if node.get("type") in ("record", "error", "enum", "fixed"):
                full = _full(node["name"], node.get("namespace") or space)
                space = full.rpartition(".")[0]
                self._named[full] = node, space
            for one in node.get("fields", ()):
                self._name(one["type"], space)
            for inner in ("items", "values", "type"):
                if isinstance(node.get(inner), dict | list):
                    self._name(node[inner], space)

    def value(self, node: Any, rest: _Bytes, space: str) -> Any:
        """Return the next value: a mapping for a record, None for null, else a pair of its type and what it is."""
        if isinstance(node, list):
            return self.value(node[self._choice(rest, len(node))], rest, space)
        if isinstance(node, str) and node not in _SIMPLE:
            full = _full(node, space)
            node, space = self._named[full if full in self._named else node]
        kind = node if isinstance(node, str) else node["type"]
        if isinstance(kind, dict | list) or (isinstance(kind, str) and kind not in _KINDS):
            return self.value(kind, rest, space)
        if kind in ("record", "error"):
            space = _full(node["name"], node.get("namespace") or space).rpartition(".")[0]
            return {one["name"]: self.value(one["type"], rest, space) for one in node["fields"]}
        if kind in ("array", "map"):
            self._blocks(node, kind, rest, space)
            return (node, b"")
        if kind == "enum":
            return (node, node["symbols"][self._choice(rest, len(node["symbols"]))])
        found = _simple(kind, node, rest)
        return None if kind == "null" else (node, found)

    @staticmethod
    def _choice(rest: _Bytes, among: int) -> int:
        chosen = rest.number()
        rest.is_odd = rest.is_odd or chosen < 0
        if not 0 <= chosen < among:
            raise ValueError("no such type or symbol")
        return chosen

    def _blocks(self, node: Any, kind: str, rest: _Bytes, space: str) -> None:
        while count := rest.number():
            if count < 0:
                rest.number()
            for _ in range(abs(count)):
                if kind == "map":
                    rest.take(rest.number()).decode("utf-8")
                self.value(node["items" if kind == "array" else "values"], rest, space)


_KINDS = (*_SIMPLE, "record", "error", "array", "map", "enum", "fixed")


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _simple(kind: str, node: Any, rest: _Bytes) -> Any:
    match kind:
        case "null":
            return None
        case "boolean":
            byte = rest.take(1)[0]
            rest.is_odd = rest.is_odd or byte > 1
            return byte == 1
        case "int" | "long":
            return rest.number()
        case "float":
            return struct.unpack("<f", rest.take(4))[0]
        case "double":
            return struct.unpack("<d", rest.take(8))[0]
        case "fixed":
            return rest.take(node["size"])
        case "bytes":
            return rest.take(rest.number())
    return rest.take(rest.number()).decode("utf-8")


def _typed(column: Field, node: Any, value: Any) -> Any:
    """Return a value as the declared type. Raises ValueError or OverflowError."""
    kind = column.type.kind
    if kind in _BITS:
        if not -(1 << _BITS[kind]) <= value < 1 << _BITS[kind]:
            raise ValueError("out of range")
    elif kind == "string":
        if "\0" in value:
            raise ValueError("a NUL character")
    elif kind == "decimal":
        scale, places = int(node.get("scale", 0)), column.type.scale or 0
        unscaled = int.from_bytes(value, "big", signed=True) * 10 ** (places - scale)
        if len(str(abs(unscaled))) > (column.type.precision or 0) and unscaled:
            raise ValueError("out of range")
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -places))
    elif kind == "date":
        return date(1970, 1, 1) + timedelta(days=value)
    elif kind in ("timestamp", "timestamp_ntz"):
        zone = UTC if kind == "timestamp" else None
        unit = _UNITS[str(node["logicalType"]).rpartition("-")[2]]
        return datetime(1970, 1, 1, tzinfo=zone) + timedelta(microseconds=value * unit)
    return value
