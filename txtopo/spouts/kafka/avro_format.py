"""The format Avro of values and keys of messages: the schemas are given, and no registry is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError
from txtopo.spouts.formats.field_paths import FieldPaths, check_paths, field_paths
from txtopo.spouts.kafka.avro_schema import leaves

ID_MAX = 2**31 - 1


class Avro:
    """Records of Avro in messages of Kafka.

    >>> Avro({"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}).kind
    'avro'
    """

    kind = "avro"

    def __init__(
        self,
        schema: str | Mapping[str, Any] | None = None,
        *,
        schemas: Mapping[int, str | Mapping[str, Any]] = MappingProxyType({}),
        paths: Mapping[str, str | tuple[str, ...]] = MappingProxyType({}),
    ) -> None:
        """`schema` is the one with which all messages were written, as JSON text or as a mapping. `schemas` are those
        of messages that begin with the number of their schema in a registry (a byte 0 and four bytes): number ->
        schema. `paths` says where the value of a field is, if not under its name: a tuple has names from outside in.

        Raises TopologyError for an invalid value.
        """
        if (schema is None) == (not schemas):
            raise TopologyError("Avro: give either schema, or schemas by their numbers")
        self._schema = None if schema is None else _parsed(schema)
        if not isinstance(schemas, Mapping):
            raise TopologyError(f"Avro: schemas {schemas!r} is not a mapping from number to schema")
        for number in schemas:
            if type(number) is not int or not 0 <= number <= ID_MAX:
                raise TopologyError(f"Avro: schemas has {number!r}, which is no number of a registry")
        self._schemas = {number: _parsed(one) for number, one in sorted(schemas.items())}
        self.paths: FieldPaths = field_paths(paths)

    @classmethod
    def of(cls, layout: Mapping[str, Any]) -> Avro:
        """Return the format that returned this layout. Raises TypeError or ValueError for an unknown entry."""
        settings = dict(layout)
        numbered = settings.pop("schemas", {})
        return cls(schemas={int(number): schema for number, schema in numbered.items()}, **settings)

    def layout(self) -> Mapping[str, Any]:
        """Return everything that reading depends on, as JSON values."""
        paths = {name: list(path) for name, path in self.paths.items()}
        if self._schema is not None:
            return {"schema": self._schema, "paths": paths}
        return {"schemas": {str(number): schema for number, schema in self._schemas.items()}, "paths": paths}

    @property
    def by_number(self) -> Mapping[int | None, Any]:
        """Return the schemas by number; None: messages have no number."""
        return {None: self._schema} if self._schema is not None else {at: one for at, one in self._schemas.items()}  # noqa: C416

    def check(self, fields: Fields) -> None:
        """Raise TopologyError if a declared field is in no schema, or cannot be given exactly. One that is only in some
        of them is NULL in messages of the others.
        """
        check_paths(self.paths, fields)
        missing = set(fields.names)
        for number, schema in self.by_number.items():
            try:
                found = leaves(schema, fields.items, self.paths)
            except TopologyError as error:
                told = "" if number is None else f" {number}"
                raise TopologyError(f"Avro{told}: {error}") from error
            missing -= {field.name for field, leaf in zip(fields.items, found, strict=True) if leaf is not None}
        if missing:
            raise TopologyError(f"Avro: no schema has {', '.join(sorted(missing))}")

    def __repr__(self) -> str:
        return f"Avro({', '.join(f'{name}={value!r}' for name, value in self.layout().items())})"


def _parsed(schema: object) -> Any:
    """Return a schema as JSON values."""
    try:
        return json.loads(schema) if isinstance(schema, str) else json.loads(json.dumps(schema))
    except (TypeError, ValueError) as error:
        raise TopologyError(f"Avro: the schema is no JSON ({error})") from error
