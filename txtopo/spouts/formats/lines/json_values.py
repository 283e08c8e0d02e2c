"""The exact path of JSON lines: one line with the standard library, as the texts of the declared fields."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from txtopo.core.fields import FLOAT_KINDS, INTEGER_KINDS, Field, Fields

Paths = Mapping[str, tuple[str, ...]]
"""Field -> the keys that lead to its value."""
LINE_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size of a line: what the standard library makes of a longer one may fill the memory of a task, since a number
of two bytes becomes an object of ninety. A longer line is rejected.
"""
NESTED_MAX = 200
"""Maximum depth of objects and arrays in each other. A deeper line is rejected, since parsers differ in what they
accept.
"""
SHOWN_CHARS_MAX = 100
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
_NO_JSON = "the line is no JSON"


class Number(str):
    """A number as it is written."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """An object with all its keys, also repeated ones."""

    __slots__ = ()


@dataclass(slots=True)
class KeyNode:
    """What is declared of the value of one key."""

    leaves: list[int] = field(default_factory=list)
    """Indexes of the fields that it is the value of."""
    inner: dict[str, KeyNode] = field(default_factory=dict)


class LineError(ValueError):
    """A line is no record of the declared fields; the message is the reason."""


def tree_of(fields: Fields, paths: Paths) -> KeyNode:
    """Return the declared keys as a tree."""
    root = KeyNode()
    for index, declared in enumerate(fields.items):
        node = root
        for key in paths.get(declared.name, (declared.name,)):
            node = node.inner.setdefault(key, KeyNode())
        node.leaves.append(index)
    return root


class ExactLine:
    """Takes lines apart."""

    def __init__(self, fields: Fields, paths: Paths) -> None:
        self._fields = fields.items
        self._root = tree_of(fields, paths)
        self._decoder = json.JSONDecoder(
            object_pairs_hook=Pairs, parse_float=Number, parse_int=Number, parse_constant=_refuse
        )

    def texts(self, line: bytes) -> list[bytes | None]:
        """Return the texts of the fields as a CSV file would have them, None for NULL. Raises LineError."""
        if len(line) > LINE_BYTES_MAX:
            raise LineError(f"the line is longer than {LINE_BYTES_MAX} bytes")
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise LineError("the line is not UTF-8") from error
        if text.count("[") + text.count("{") > NESTED_MAX and _depth(text) > NESTED_MAX:
            raise LineError(f"the line has more than {NESTED_MAX} objects or arrays in each other")
        try:
            value = self._decoder.decode(text)
        except json.JSONDecodeError as error:
            raise LineError(
                f"{_NO_JSON}: {error.msg[:1].lower()}{error.msg[1:]} at character {error.pos + 1}"
            ) from error
        if not isinstance(value, Pairs):
            raise LineError(f"the line is {_kind(value)}, not an object")
        found: list[bytes | None] = [None] * len(self._fields)
        self._collect(value, self._root, found)
        return found

    def _collect(self, pairs: Pairs, node: KeyNode, found: list[bytes | None]) -> None:
        seen: set[str] = set()
        for key, value in pairs:
            below = node.inner.get(key)
            if below is None:
                continue
            if key in seen:
                raise LineError(f"the key {_shown(key)} stands twice in an object")
            seen.add(key)
            for index in below.leaves:
                found[index] = _text(self._fields[index], value)
            if below.inner and value is not None:
                if not isinstance(value, Pairs):
                    raise LineError(f"the key {_shown(key)} is {_kind(value)}, not an object")
                self._collect(value, below, found)


def _text(declared: Field, value: Any) -> bytes | None:
    """Return the text of a value of the declared type. Raises LineError if it is a value of another type."""
    if value is None:
        return None
    kind = declared.type.kind
    fits = False
    text = ""
    match value:
        case Number():
            fits = kind in FLOAT_KINDS or kind == "decimal" or (kind in INTEGER_KINDS and value.lstrip("-").isdigit())
            text = value
        case str():
            fits = kind in ("string", "decimal", "date", "timestamp", "timestamp_ntz")
            text = value
        case bool():
            fits, text = kind == "boolean", "true" if value else "false"
        case _:
            fits, text = kind == "string", compact(value)
    try:
        if fits:
            return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise LineError(f"column {declared.name!r} holds half of a character (a lone surrogate)") from error
    shown = _shown(value) if isinstance(value, str) and not isinstance(value, Number) else text[:SHOWN_CHARS_MAX]
    raise LineError(f"column {declared.name!r}: {shown} is no {declared.type}")


def compact(value: Any) -> str:
    """Return a value as JSON text without blanks, numbers as they are written."""
    match value:
        case Pairs():
            return "{" + ",".join(f"{_quoted(key)}:{compact(one)}" for key, one in value) + "}"
        case list():
            return "[" + ",".join(map(compact, value)) + "]"
        case Number():
            return value
        case str():
            return _quoted(value)
        case bool():
            return "true" if value else "false"
        case _:
            return "null"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _shown(text: str) -> str:
    return json.dumps(text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…")


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case Number():
            return "a number"
        case str():
            return "a text"
        case bool():
            return "true" if value else "false"
        case Pairs():
            return "an object"
        case _:
            return "an array"


def _refuse(constant: str) -> NoReturn:
    raise LineError(f"{_NO_JSON}: {constant} is no value of it")


def _depth(text: str) -> int:
    """Return how deep objects and arrays lie in each other."""
    depth = deepest = 0
    for sign in _BRACKET.finditer(_STRING.sub("", text)):
        depth += 1 if sign[0] in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def in_order(rows: Sequence[Sequence[bytes | None]], width: int) -> list[Sequence[bytes | None]]:
    """Return the columns of these rows."""
    return list(zip(*rows, strict=True)) if rows else [()] * width
