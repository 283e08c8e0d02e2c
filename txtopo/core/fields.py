"""Fields declared with types: a small DDL parser (Spark's needs a session) and the types it knows.

`parse_fields("carrier string, distance int not null, price decimal(10,2)")`. Names may be quoted with backticks, as in
Spark.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import lru_cache

from txtopo.errors import TopologyError

_ALIASES = {
    "string": "string",
    "varchar": "string",
    "text": "string",
    "boolean": "boolean",
    "bool": "boolean",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "decimal": "decimal",
    "dec": "decimal",
    "numeric": "decimal",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "binary": "binary",
}
INTEGER_KINDS = frozenset({"tinyint", "smallint", "int", "bigint"})
FLOAT_KINDS = frozenset({"float", "double"})
FLOAT_MAX = 3.4028235677973366e38
"""Largest number of a float; Arrow silently turns larger ones into infinity."""
DECIMAL_PRECISION_MAX = 38


@dataclass(frozen=True, slots=True)
class FieldType:
    """A type by Spark's name, e.g. `int`, `decimal(10,2)`."""

    kind: str
    """One of string, boolean, tinyint, smallint, int, bigint, float, double, decimal, date, timestamp, timestamp_ntz,
    binary.
    """
    precision: int | None = None
    """Total number of digits; decimals only."""
    scale: int | None = None
    """Digits after the decimal point; decimals only."""

    def __str__(self) -> str:
        return self.kind if self.precision is None else f"{self.kind}({self.precision},{self.scale})"

    @property
    def is_exact_number(self) -> bool:
        """True for integers and decimals, whose sums of them do not depend on order."""
        return self.kind in INTEGER_KINDS or self.kind == "decimal"


@dataclass(frozen=True, slots=True)
class Field:
    """One named column of a stream."""

    name: str
    type: FieldType
    nullable: bool = True

    @property
    def ddl(self) -> str:
        """The field in Spark's DDL, the name in backticks."""
        name = self.name.replace("`", "``")
        return f"`{name}` {self.type}" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True)
class Fields:
    """The ordered, uniquely named columns of a stream (Storm's `Fields`, with types)."""

    items: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.items)

    @property
    def ddl(self) -> str:
        """All fields in Spark's DDL."""
        return ", ".join(field.ddl for field in self.items)

    def get(self, name: str) -> Field | None:
        """Return the field of exactly this name, or None."""
        return next((field for field in self.items if field.name == name), None)

    def missing_in(self, found: Fields) -> str | None:
        """Return which of these fields `found` lacks, or has with another type, in words; None: none. Their order and
        NOT NULL are ignored.

        >>> parse_fields("id string, day string").missing_in(parse_fields("day date, n int"))
        'there is no id; day is date, not string'
        """
        words = []
        for field in self.items:
            other = found.get(field.name)
            if other is None:
                words.append(f"there is no {field.name}")
            elif other.type != field.type:
                words.append(f"{field.name} is {other.type}, not {field.type}")
        return "; ".join(words) or None


TEXTS_KEPT = 256
"""Number of texts of fields that a process keeps parsed."""
_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>[^\s,()`:]+)|(?P<sign>[(),:]))")


def parse_fields(ddl: str | Fields) -> Fields:
    """Parse a DDL string such as `"a string, b decimal(10,2) not null"`. Raises TopologyError with the wrong
    position.
    """
    if isinstance(ddl, Fields):
        return ddl
    if not isinstance(ddl, str):
        raise TopologyError(f"fields {ddl!r} is not text: write 'a string, b int'")
    return _parsed(ddl)


@lru_cache(maxsize=TEXTS_KEPT)
def _parsed(ddl: str) -> Fields:
    """Parse a text; every part of a batch asks for the fields of its plan."""
    tokens = _tokens(ddl)
    items: list[Field] = []
    position = 0
    while position < len(tokens):
        field, position = _field(tokens, position, ddl)
        items.append(field)
        if position < len(tokens):
            if tokens[position] != ("sign", ","):
                raise TopologyError(f"fields {ddl!r}: expected a comma before {tokens[position][1]!r}")
            position += 1
            if position == len(tokens):
                raise TopologyError(f"fields {ddl!r}: nothing follows the last comma")
    if not items:
        raise TopologyError("fields: at least one field is needed, e.g. 'carrier string, distance int'")
    names = [field.name for field in items]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TopologyError(f"fields {ddl!r}: {', '.join(twice)} declared twice")
    return Fields(tuple(items))


def _tokens(ddl: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    text = ddl.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise TopologyError(f"fields {ddl!r}: cannot read {text[position:]!r}")
        kind = str(match.lastgroup)
        value = match.group(kind)
        tokens.append((kind, value[1:-1].replace("``", "`") if kind == "quoted" else value))
        position = match.end()
    return tokens


def _field(tokens: list[tuple[str, str]], position: int, ddl: str) -> tuple[Field, int]:
    kind, name = tokens[position]
    if kind == "sign":
        raise TopologyError(f"fields {ddl!r}: expected a name, found {name!r}")
    position += 1
    if tokens[position : position + 1] == [("sign", ":")]:
        position += 1
    if position == len(tokens) or tokens[position][0] != "word":
        raise TopologyError(f"fields {ddl!r}: {name} has no type")
    type_name = tokens[position][1].lower()
    if type_name not in _ALIASES and (spaced := _spaced_name(tokens, position - 1)) is not None:
        raise TopologyError(f"fields {ddl!r}: write a name with blanks in backticks: `{spaced}`")
    if type_name not in _ALIASES:
        raise TopologyError(
            f"fields {ddl!r}: {name} has unknown type {tokens[position][1]!r}; known: "
            f"{', '.join(sorted(set(_ALIASES.values())))}"
        )
    position += 1
    arguments, position = _arguments(tokens, position, ddl)
    field_type = _type(_ALIASES[type_name], arguments, f"fields {ddl!r}: {name}")
    words = [token[1].lower() for token in tokens[position : position + 2]]
    nullable = words != ["not", "null"]
    return Field(name, field_type, nullable), position + (0 if nullable else 2)


def _spaced_name(tokens: list[tuple[str, str]], position: int) -> str | None:
    """Return the words up to a type, if there are several before one: `Origin State string`; quotes do not belong to
    the name.
    """
    words = [value for kind, value in itertools.takewhile(lambda token: token[0] != "sign", tokens[position:])]
    types = [at for at, word in enumerate(words) if at > 1 and word.lower() in _ALIASES]
    if any(kind == "quoted" for kind, _ in tokens[position : position + len(words)]) or not types:
        return None
    return " ".join(words[: types[0]]).strip("\"'")


def _arguments(tokens: list[tuple[str, str]], position: int, ddl: str) -> tuple[list[int], int]:
    if position == len(tokens) or tokens[position] != ("sign", "("):
        return [], position
    numbers: list[int] = []
    for index in range(position + 1, len(tokens)):
        kind, value = tokens[index]
        if (kind, value) == ("sign", ")"):
            return numbers, index + 1
        if kind == "word" and value.isdigit():
            numbers.append(int(value))
        elif (kind, value) != ("sign", ","):
            break
    raise TopologyError(f"fields {ddl!r}: the parenthesis is not closed")


def _type(kind: str, arguments: list[int], where: str) -> FieldType:
    if kind != "decimal":
        if arguments:
            raise TopologyError(f"{where}: {kind} takes no arguments")
        return FieldType(kind)
    precision, scale = ([*arguments, 0] if len(arguments) == 1 else arguments or [10, 0])[:2]
    if not (1 <= precision <= DECIMAL_PRECISION_MAX and 0 <= scale <= precision) or len(arguments) > 2:
        raise TopologyError(
            f"{where}: decimal needs 1 <= precision <= {DECIMAL_PRECISION_MAX} and 0 <= scale <= precision"
        )
    return FieldType("decimal", precision, scale)
