"""Schemas of Avro: which declared fields they have, and with which types. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.core.fields import Field, FieldType
from txtopo.errors import TopologyError

PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
PLAIN: Mapping[str, tuple[str, ...]] = {
    "boolean": ("boolean",),
    "int": ("int", "bigint"),
    "long": ("bigint",),
    "float": ("float", "double"),
    "double": ("double",),
    "bytes": ("binary",),
    "fixed": ("binary",),
    "string": ("string",),
    "enum": ("string",),
}
"""Type of Avro -> the types with which it may be declared."""
LOGICAL: Mapping[tuple[str, str], str] = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
    ("bytes", "decimal"): "decimal",
    ("fixed", "decimal"): "decimal",
}
"""Type of Avro and its logical type -> the type with which it is declared."""
REFUSED = frozenset({"timestamp-nanos", "local-timestamp-nanos", "time-millis", "time-micros", "duration"})
"""Logical types that no type of a field has exactly."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where the value of a field is in the records of a schema, and what it is."""

    path: tuple[str, ...]
    kind: str
    """The type of Avro."""
    logical: str | None
    """The logical type, if it says how the value is meant."""
    scale: int = 0
    """Decimal places of a decimal."""


def leaves(schema: Any, fields: Sequence[Field], paths: Mapping[str, tuple[str, ...]]) -> list[Leaf | None]:
    """Return where each field is in a schema; None for one that it does not have. Raises TopologyError for a schema
    that is none or is not read, and for a field of another type.
    """
    root = _Reader().normal(schema, "", ())
    if root["type"] != "record":
        raise TopologyError(f"its schema is {root['type']!r}, not a record")
    return [_leaf(root, field, paths.get(field.name, (field.name,))) for field in fields]


def without_logical(schema: Any) -> Any:
    """Return a schema in which each value is what its bytes say."""
    if isinstance(schema, list):
        return [without_logical(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = ("type", "items", "values", "fields")
    return {
        name: without_logical(one) if name in inner else one for name, one in schema.items() if name != "logicalType"
    }


def _leaf(root: Mapping[str, Any], field: Field, path: tuple[str, ...]) -> Leaf | None:
    node, told = root, ".".join(path)
    for name in path:
        node = _not_null(node, told)
        if node["type"] != "record":
            raise TopologyError(f"{told} of {field.name}: what has {name!r} is of type {node['type']!r}, not a record")
        found = [one["type"] for one in node["fields"] if one["name"] == name]
        if not found:
            return None
        node = found[0]
    node = _not_null(node, told)
    kind, logical = str(node["type"]), node.get("logicalType")
    declared = LOGICAL.get((kind, str(logical)))
    accepted = PLAIN.get(kind, ()) if declared is None else (declared,)
    if logical in REFUSED or field.type.kind not in accepted:
        meant = kind if logical is None else f"{kind} with logicalType {logical}"
        remedy = f"declare it as {' or '.join(accepted)}" if accepted and logical not in REFUSED else "it is not read"
        raise TopologyError(f"{field.name} is declared {field.type}, and {told} of the schema is {meant}: {remedy}")
    if declared != "decimal":
        return Leaf(path, kind, None if declared is None else str(logical))
    scale, precision = node.get("scale", 0), node.get("precision")
    _check_decimal(field.type, scale, precision, told)
    return Leaf(path, kind, "decimal", scale)


def _check_decimal(declared: FieldType, scale: Any, precision: Any, told: str) -> None:
    if type(scale) is not int or type(precision) is not int or not 0 <= scale <= precision:
        raise TopologyError(f"{told} of the schema is a decimal without right precision and scale")
    places, digits = declared.scale or 0, (declared.precision or 0) - (declared.scale or 0)
    if places < scale or digits < precision - scale:
        raise TopologyError(f"{told} of the schema is decimal({precision},{scale}), which {declared} cannot hold")


def _not_null(node: Mapping[str, Any], told: str) -> Mapping[str, Any]:
    """Return what a node is if it is not null."""
    if node["type"] != "union":
        return node
    others: list[Mapping[str, Any]] = [one for one in node["of"] if one["type"] != "null"]
    if len(others) != 1:
        raise TopologyError(f"{told} of the schema is one of {len(others)} types: only null and one type are read")
    return others[0]


class _Reader:
    """Replaces the names of types by what they mean."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}

    def normal(self, schema: Any, space: str, inside: tuple[str, ...]) -> dict[str, Any]:
        """Return a schema as a mapping with its `type`. Raises TopologyError."""
        if isinstance(schema, list):
            members = [self.normal(one, space, inside) for one in schema]
            if not members or any(one["type"] == "union" for one in members):
                raise TopologyError("its schema has a union of nothing or of unions")
            return {"type": "union", "of": members}
        if isinstance(schema, str):
            return self._named(schema, space, inside)
        kind = schema.get("type") if isinstance(schema, Mapping) else None
        if isinstance(kind, list | Mapping):
            return self.normal(kind, space, inside)
        if kind in PRIMITIVE:
            return dict(schema)
        if kind == "array":
            items = self.normal(schema.get("items"), space, inside)
            if _is_empty(items):
                raise TopologyError("its schema has an array of values without bytes, of which any number fits")
            return {"type": "array"}
        if kind == "map":
            self.normal(schema.get("values"), space, inside)
            return {"type": "map"}
        if kind not in ("record", "error", "enum", "fixed"):
            return self._named(kind, space, inside)
        return self._defined(schema, str(kind), space, inside)

    def _defined(self, schema: Mapping[str, Any], kind: str, space: str, inside: tuple[str, ...]) -> dict[str, Any]:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise TopologyError(f"its schema has a {kind} without a name")
        space = name.rpartition(".")[0] if "." in name else str(schema.get("namespace") or space)
        full = name if "." in name or not space else f"{space}.{name}"
        if kind == "enum" and not _are_names(schema.get("symbols")):
            raise TopologyError(f"its schema has an enum {full} without symbols")
        if kind == "fixed" and (type(schema.get("size")) is not int or schema["size"] < 0):
            raise TopologyError(f"its schema has a fixed {full} without size")
        found = {**schema, "type": "record" if kind == "error" else kind}
        if found["type"] == "record":
            given = schema.get("fields")
            if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
                raise TopologyError(f"its schema has a record {full} without fields")
            found["fields"] = [
                {"name": one.get("name"), "type": self.normal(one.get("type"), space, (*inside, full))} for one in given
            ]
            names = [one["name"] for one in found["fields"]]
            if not _are_names(names) and names:
                raise TopologyError(f"its schema has a record {full} with fields without names, or of one name")
        self._known[full] = found
        return found

    def _named(self, name: Any, space: str, inside: tuple[str, ...]) -> dict[str, Any]:
        if name in PRIMITIVE:
            return {"type": name}
        full = f"{space}.{name}" if isinstance(name, str) and space and "." not in name else name
        for one in (full, name):
            if one in inside:
                raise TopologyError(f"its schema has {one}, which is in itself: such values have no end")
            if isinstance(one, str) and one in self._known:
                return self._known[one]
        raise TopologyError(f"its schema has {name!r}, which is no type")


def _are_names(names: Any) -> bool:
    is_list = isinstance(names, list) and bool(names) and all(isinstance(name, str) and name for name in names)
    return is_list and len(set(names)) == len(names)


def _is_empty(node: Mapping[str, Any]) -> bool:
    """Return True for a type of which values may have no bytes."""
    match node["type"]:
        case "null":
            return True
        case "fixed":
            return bool(node["size"] == 0)
        case "record":
            return all(_is_empty(one["type"]) for one in node["fields"])
    return False
