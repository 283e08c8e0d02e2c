"""The pair of the format JSON lines: a record a line. The fastest path is for lines of the same shape; the next one is
msgspec with a type made of the declared fields, and what it takes too kindly is judged by the exact path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET

from txtopo.core.fields import INTEGER_KINDS, Field, Fields, FieldType
from txtopo.spouts.arrow_types import arrow_type
from txtopo.spouts.formats.lines import json_values
from txtopo.spouts.formats.lines.json_values import NESTED_MAX, ExactLine, KeyNode, LineError, Paths, in_order, tree_of
from txtopo.spouts.formats.lines.line_pair import LinePair, Sifted, cut_lines, joined
from txtopo.spouts.formats.lines.strict_json import LineShape, cut_values, shape_of, strict_lines, value_pattern
from txtopo.spouts.formats.lines.typed_texts import sifted_batch, whole_batch

BLANKS = b" \t\r"
"""Blanks of JSON; a line of nothing else is skipped."""
_ESCAPED_KEY = re.compile(rb'\\.[^"\\]*+"[ \t\r]*+:', re.DOTALL)
"""Found in every line with an escape in a key, at its last one. Never looks beyond the next escape: texts may have
millions of them.
"""
_NEGATIVE_ZERO = re.compile(rb"-0(?![.0-9eE])")
"""A zero of which msgspec drops the sign in a double."""
_NUMBER = r"^(?:null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)$"
_NUMBER_OR_TEXT = rf'{_NUMBER}|^"[^"\\]*"$'
SHAPED_BYTES_MIN = 64 * 1024
"""Size of a block from which on the fastest path costs less than it takes to begin with it."""
SHAPED_KEYS_MAX = 64
SHAPED_KEYS_FACTOR = 3
"""Number of keys of a line, in all and for each declared one, up to which the fastest path is that: msgspec passes over
other keys faster.
"""
OTHERS_PART_MAX = 0.25
"""Part of the lines of a block that may have another shape than its first one. With more of them all are read by the
other paths, since these cost less for all lines than for many of them.
"""


class JsonLines(LinePair):
    """Objects, one a line."""

    def __init__(self, fields: Fields, paths: Paths) -> None:
        self._fields = fields
        self._exact = ExactLine(fields, paths)
        tree = tree_of(fields, paths)
        struct = _struct(tree, fields)
        self._decode: Callable[[bytes], Any] | None = None if struct is None else msgspec.json.Decoder(struct).decode
        self._members = _members(tree, ())
        self._has_doubles = any(field.type.kind == "double" for field in fields.items)
        self._plain = _plain(self._members, fields)
        self._kinds = {key: fields.items[member.leaves[0]].type.kind for key, member in (self._plain or {}).items()}

    def whole(self, lines: Sequence[bytes]) -> pa.RecordBatch | None:
        if self._decode is None:
            return None
        block = b"\n".join(lines)
        if len(block) > json_values.LINE_BYTES_MAX and max(map(len, lines)) > json_values.LINE_BYTES_MAX:
            return None
        try:
            block.decode("utf-8")
            rows = list(map(self._decode, lines))
            values = [_values(rows, member.names) for member in self._members]
            doubtful = _doubtful(block, lines)
            doubtful |= self._repeated(block, lines, values, one_by_one=bool(doubtful))
            if self._has_doubles and _NEGATIVE_ZERO.search(block):
                doubtful.update(number for number, line in enumerate(lines) if _NEGATIVE_ZERO.search(line))
            exact = {number: self._exact.texts(lines[number]) for number in sorted(doubtful)}
            return self._batch(values, exact)
        except (pa.ArrowInvalid, LineError, msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError):
            # A line is not UTF-8, no JSON, of another type, or holds a number out of range.
            return None

    def block(self, data: bytes) -> pa.RecordBatch | None:
        is_fit = SHAPED_BYTES_MIN <= len(data) <= json_values.LINE_BYTES_MAX
        if self._plain is None or not is_fit or (shape := shape_of(data.partition(b"\n")[0])) is None:
            return None
        if len(shape.members) > min(SHAPED_KEYS_MAX, SHAPED_KEYS_FACTOR * len(self._plain)):
            return None
        lines = cut_lines(data)
        strict = None if lines is None else strict_lines(shape, lines, self._kinds)
        if lines is None or strict is None:
            return None
        others = pc.indices_nonzero(pc.invert(strict))
        if not len(others):
            return whole_batch(self._fields, self._cut(shape, data, len(lines)))
        rest = lines.take(others).to_pylist()
        if len(rest) > OTHERS_PART_MAX * len(lines) or not all(map(self.is_record, rest)):
            return None
        chosen = pc.indices_nonzero(strict)
        batch = whole_batch(self._fields, self._cut(shape, joined(lines.take(chosen)), len(chosen)))
        odd = self.whole(rest) if batch is not None else None
        if batch is None or odd is None:
            return None
        order = np.empty(len(lines), dtype=np.int64)
        order[chosen.to_numpy()] = np.arange(len(chosen))
        order[others.to_numpy()] = np.arange(len(chosen), len(lines))
        return pa.concat_batches([batch, odd]).take(pa.array(order))

    def sift(self, lines: Sequence[bytes]) -> Sifted:
        refused: dict[int, str] = {}
        rows: list[list[bytes | None]] = []
        numbers: list[int] = []
        for number, line in enumerate(lines):
            try:
                rows.append(self._exact.texts(line))
                numbers.append(number)
            except LineError as error:
                refused[number] = str(error)
        columns = [pa.array(column, pa.binary()) for column in in_order(rows, len(self._fields.items))]
        batch, wrong = sifted_batch(self._fields, columns)
        refused.update((numbers[row], reason) for row, reason in wrong.items())
        return Sifted(batch, dict(sorted(refused.items())))

    def is_record(self, line: bytes) -> bool:
        """Return False for a line of blanks."""
        return bool(line.strip(BLANKS))

    def skips_any(self, lines: Sequence[bytes]) -> bool:
        return any(line[:1] in BLANKS for line in lines)

    def _cut(self, shape: LineShape, data: bytes, count: int) -> list[pa.Array]:
        """Return the texts of the declared fields in lines that all have this shape."""
        found = cut_values(shape, data, self._kinds)
        columns: list[pa.Array] = [None] * len(self._fields.items)
        for key, member in (self._plain or {}).items():
            for leaf in member.leaves:
                columns[leaf] = found[key] if key in found else pa.nulls(count, pa.binary())
        return columns

    def _repeated(
        self, block: bytes, lines: Sequence[bytes], values: Sequence[list[Any]], *, one_by_one: bool
    ) -> set[int]:
        """Return the lines in which the text of a declared key stands more often than msgspec found that key, so that
        it may be there twice: msgspec silently keeps the last one. `one_by_one`: a key may be written with an escape,
        so that a line has the key without its text, and hides in the sum over the block one that has it twice.
        """
        found: set[int] = set()
        known: dict[bytes, list[list[Any]]] = {}
        for member, column in zip(self._members, values, strict=True):
            known.setdefault(member.text, []).append(column)
        for text, columns in known.items():
            present = sum(len(column) - column.count(UNSET) for column in columns)
            if one_by_one or block.count(text) != present:
                found.update(
                    number
                    for number, line in enumerate(lines)
                    if line.count(text) != sum(column[number] is not UNSET for column in columns)
                )
        return found

    def _batch(self, values: Sequence[list[Any]], exact: dict[int, list[bytes | None]]) -> pa.RecordBatch | None:
        """Return the rows of both paths, in the order of the lines."""
        if exact:
            # What msgspec made of these lines is replaced.
            for column in values:
                for number in exact:
                    column[number] = UNSET
        columns: list[pa.Array] = [None] * len(self._fields.items)
        for member, column in zip(self._members, values, strict=True):
            if UNSET in column:
                column = [None if value is UNSET else value for value in column]
            for leaf in member.leaves:
                columns[leaf] = _column(self._fields.items[leaf].type, column)
        if not exact:
            return whole_batch(self._fields, columns)
        # NOT NULL is judged when both are together.
        batch = whole_batch(_nullable(self._fields), columns)
        texts = [pa.array(column, pa.binary()) for column in in_order(list(exact.values()), len(columns))]
        others = whole_batch(self._fields, texts)
        if batch is None or others is None:
            return None
        order = list(range(batch.num_rows))
        for place, number in enumerate(exact):
            order[number] = batch.num_rows + place
        merged = pa.concat_batches([batch, others]).take(pa.array(order, pa.int64()))
        return whole_batch(self._fields, merged.columns)


def _doubtful(block: bytes, lines: Sequence[bytes]) -> set[int]:
    """Return the lines with an escape in a key, and those that are nested too deep."""
    found: set[int] = set()
    if b"\\" in block:
        found.update(number for number, line in enumerate(lines) if b"\\" in line and _ESCAPED_KEY.search(line))
    if block.count(b"[") + block.count(b"{") > NESTED_MAX:
        found.update(
            number
            for number, line in enumerate(lines)
            if len(line) > NESTED_MAX and line.count(b"[") + line.count(b"{") > NESTED_MAX
        )
    return found


def _nullable(fields: Fields) -> Fields:
    return Fields(tuple(Field(field.name, field.type) for field in fields.items))


def _values(rows: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Return the values of one key in all rows, UNSET where it is not there."""
    first, *inner = names
    values = [getattr(row, first) for row in rows] if inner else list(map(attrgetter(first), rows))
    for name in inner:
        values = [UNSET if value is None or value is UNSET else getattr(value, name) for value in values]
    return values


def _column(declared: FieldType, values: list[Any]) -> pa.Array:
    """Return values of the fast path: of their type, or as texts. Raises LineError, OverflowError, pa.ArrowInvalid."""
    kind = declared.kind
    if kind in INTEGER_KINDS or kind in ("boolean", "double", "string"):
        return pa.array(values, arrow_type(declared))
    if kind not in ("decimal", "float"):
        return pa.array(values, pa.string()).cast(pa.binary())
    texts = pa.array([None if value is None else bytes(value) for value in values], pa.binary())
    if not pc.all(
        pc.match_substring_regex(texts, _NUMBER if kind == "float" else _NUMBER_OR_TEXT), min_count=0
    ).as_py():
        raise LineError("no number")
    texts = pc.if_else(pc.equal(texts, b"null"), None, texts)
    if kind == "decimal" and pc.any(pc.starts_with(texts, '"')).as_py():
        texts = pc.utf8_trim(texts.cast(pa.string()), '"').cast(pa.binary())
    return texts


def _struct(node: KeyNode, fields: Fields) -> type[Any] | None:
    """Return the type of an object with these keys; None if one of them is to be both a value and an object."""
    members: list[tuple[str, Any, Any]] = []
    for at, below in enumerate(node.inner.values()):
        if below.inner:
            inner = _struct(below, fields)
            if inner is None or below.leaves:
                return None
            members.append((f"f{at}", inner | None, UNSET))
        else:
            kinds = {_python_type(fields.items[leaf].type.kind) for leaf in below.leaves}
            if len(kinds) > 1:
                return None
            kind = kinds.pop()
            members.append((f"f{at}", kind if kind is msgspec.Raw else kind | None, UNSET))
    names = {f"f{at}": key for at, key in enumerate(node.inner)}
    return msgspec.defstruct("Record", members, rename=names, gc=False)


def _python_type(kind: str) -> Any:
    if kind in INTEGER_KINDS:
        return int
    return {"boolean": bool, "double": float, "decimal": msgspec.Raw, "float": msgspec.Raw}.get(kind, str)


@dataclass(frozen=True, slots=True)
class _Member:
    """A declared key."""

    text: bytes
    """The key in quotes, as JSON has it."""
    names: tuple[str, ...]
    """Names of the members of the types that lead to it."""
    leaves: tuple[int, ...]
    """Indexes of the fields that it is the value of."""


def _plain(members: Sequence[_Member], fields: Fields) -> dict[str, _Member] | None:
    """Return key -> member; None if one is inside of an object, or has to be of two types of JSON."""
    for member in members:
        kinds = [fields.items[leaf].type.kind for leaf in member.leaves]
        patterns = {(value_pattern(kind, is_text=True), value_pattern(kind, is_text=False)) for kind in kinds}
        if len(member.names) > 1 or len(patterns) != 1:
            return None
    return {json.loads(member.text): member for member in members}


def _members(node: KeyNode, above: tuple[str, ...]) -> list[_Member]:
    members = []
    for at, (key, below) in enumerate(node.inner.items()):
        names = (*above, f"f{at}")
        members.append(_Member(json.dumps(key, ensure_ascii=False).encode(), names, tuple(below.leaves)))
        members += _members(below, names)
    return members
