"""Reads JSON lines for the audit, one line at a time with the standard library."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from txtopo.audit.readers.line_reader import LineReader, Texts
from txtopo.audit.readers.reader import check_known
from txtopo.core.fields import FLOAT_KINDS, INTEGER_KINDS, Fields

NESTED_MAX = 200
"""Maximum depth of objects and arrays in each other."""
LINE_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size of a line."""
_BLANKS = b" \t\r"
_MISSING = object()


class _Digits(str):
    """A number, as the file has it."""

    __slots__ = ()


class _Object(tuple[tuple[str, Any], ...]):
    """An object: all its keys with their values, in order."""

    __slots__ = ()


def _no_value(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_int=_Digits, parse_float=_Digits, parse_constant=_no_value)


class JsonReader(LineReader):
    """Implements `Reader`."""

    kind = "json"

    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        check_known(layout, "paths")
        super().__init__(layout, fields)
        paths = layout["paths"]
        self._paths = [tuple(paths.get(field.name, (field.name,))) for field in fields.items]
        self._kinds = [field.type.kind for field in fields.items]
        # Every key on the way to a value, by the keys above it: none of them may stand twice in its object.
        self._ways = sorted({path[: at + 1] for path in self._paths for at in range(len(path))}, key=len)

    def skips(self, line: bytes) -> bool:
        return not line.strip(_BLANKS)

    def texts(self, line: bytes) -> Texts:
        if len(line) > LINE_BYTES_MAX:
            raise ValueError("the line is too long")
        text = line.decode("utf-8")
        try:
            whole = _DECODER.decode(text)
        except RecursionError as error:
            raise ValueError("objects or arrays too deep in each other") from error
        if text.count("[") + text.count("{") > NESTED_MAX and any(depth > NESTED_MAX for depth in _depths(whole)):
            raise ValueError("objects or arrays too deep in each other")
        if not isinstance(whole, _Object):
            raise ValueError("no object")
        found: dict[tuple[str, ...], Any] = {(): whole}
        for way in self._ways:
            found[way] = _member(found[way[:-1]], way[-1])
        return [_text(found[path], kind) for path, kind in zip(self._paths, self._kinds, strict=True)]


def _member(above: Any, key: str) -> Any:
    """Return the value of a key; _MISSING if it is not there, or what is above it is missing or null."""
    if above is None or above is _MISSING:
        return _MISSING
    if not isinstance(above, _Object):
        raise ValueError(f"what should have the key {key!r} is no object")
    values = [value for name, value in above if name == key]
    if len(values) > 1:
        raise ValueError(f"the key {key!r} stands twice")
    return values[0] if values else _MISSING


def _text(value: Any, kind: str) -> bytes | None:
    """Return the text of a value as CSV would have it, None for NULL. Raises ValueError for another type of JSON."""
    if value is None or value is _MISSING:
        return None
    if isinstance(value, bool):
        if kind == "boolean":
            return b"true" if value else b"false"
    elif isinstance(value, _Digits):
        if kind == "decimal" or kind in FLOAT_KINDS or (kind in INTEGER_KINDS and value.removeprefix("-").isdecimal()):
            return value.encode()
    elif isinstance(value, str):
        if kind in {"string", "decimal", "date", "timestamp", "timestamp_ntz"}:
            return value.encode()
    elif kind == "string":
        return _written(value).encode()
    raise ValueError(f"a value of another type than {kind}")


def _written(value: Any) -> str:
    """Return JSON without blanks, numbers as the file has them."""
    if isinstance(value, _Object):
        return "{" + ",".join(f"{_written(name)}:{_written(one)}" for name, one in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_written(one) for one in value) + "]"
    return str(value) if isinstance(value, _Digits) else json.dumps(value, ensure_ascii=False)


def _depths(value: Any) -> Iterator[int]:
    """Yield how deep each object and array lies, from 1."""
    waiting = [(value, 1)]
    while waiting:
        one, depth = waiting.pop()
        if isinstance(one, _Object | list):
            yield depth
            inner = (pair[1] for pair in one) if isinstance(one, _Object) else one
            waiting += [(below, depth + 1) for below in inner]
