"""The fast path of JSON lines as programs write them: the same keys in the same order, texts and other values in the
same places, and no escapes. Then a quote stands only before and after a key or a text, and the CSV parser cuts lines at
quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from txtopo.core.fields import FLOAT_KINDS, INTEGER_KINDS

_TEXT = r'"[^"\\\x00-\x1f]*"'
_INTEGER = r"-?(?:0|[1-9][0-9]*)"
_NUMBER = rf"{_INTEGER}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_OTHER = rf"{_NUMBER}|true|false|null"
_BLANKS = r"[ \t]*"
_MEMBER = re.compile(
    rf'({_BLANKS},{_BLANKS}|\{{{_BLANKS})"([A-Za-z0-9_.-]+)"({_BLANKS}:{_BLANKS})(?:({_TEXT})|{_OTHER})'.encode()
)
_END = re.compile(rf"{_BLANKS}\}}".encode())
_NEVER = r"[^\x00-\x{10FFFF}]"
"""An expression that nothing matches."""
KEYS_MAX = 1000
"""A line with more keys has no shape."""


@dataclass(frozen=True, slots=True)
class Member:
    """A key, and what stands around it in every line of a shape."""

    key: str
    before: str
    """Between the value before it, or the start of the line, and its quote."""
    colon: str
    """Between its quote and its value, without the quote of a text."""
    is_text: bool


@dataclass(frozen=True, slots=True)
class LineShape:
    """What stands around the values of a line."""

    members: tuple[Member, ...]
    end: str

    def pattern(self, kinds: Mapping[str, str]) -> str:
        """Return an expression for the lines of this shape whose values may be of these kinds, by their keys."""
        parts = [
            f'{re.escape(one.before)}"{re.escape(one.key)}"{re.escape(one.colon)}'
            f"(?:{value_pattern(kinds.get(one.key), is_text=one.is_text)})"
            for one in self.members
        ]
        return f"^{''.join(parts)}{re.escape(self.end)}$"

    def cells(self) -> Iterator[tuple[Member, int, int]]:
        """Yield each member, the number of the cell of its value in a line that is cut at quotes, from 0, and how many
        characters follow the value in that cell.
        """
        cell = 0
        for one, after in zip(self.members, [*(one.before for one in self.members[1:]), self.end], strict=True):
            yield (one, cell + 3, 0) if one.is_text else (one, cell + 2, len(after))
            cell += 4 if one.is_text else 2


def value_pattern(kind: str | None, *, is_text: bool) -> str:
    """Return an expression for values that a key of this kind may have; None: it is not declared."""
    if is_text:
        return _NEVER if kind in (*INTEGER_KINDS, *FLOAT_KINDS, "boolean") else _TEXT
    if kind is None:
        return _OTHER
    if kind in INTEGER_KINDS:
        return f"{_INTEGER}|null"
    if kind in (*FLOAT_KINDS, "decimal"):
        return f"{_NUMBER}|null"
    return "true|false|null" if kind == "boolean" else "null"


def shape_of(line: bytes) -> LineShape | None:
    """Return the shape of a line; None if it is not as plain as it has to be here."""
    members: list[Member] = []
    at = 0
    while len(members) <= KEYS_MAX and (found := _MEMBER.match(line, at)) and found[1].startswith(b"{") == (at == 0):
        before, key, colon = (found[number].decode() for number in (1, 2, 3))
        members.append(Member(key, before, colon, is_text=found[4] is not None))
        at = found.end()
    if not members or len({one.key for one in members}) < len(members) or not _END.fullmatch(line, at):
        return None  # A key twice: nobody knows which one is meant.
    return LineShape(tuple(members), line[at:].decode())


def strict_lines(shape: LineShape, lines: pa.Array, kinds: Mapping[str, str]) -> pa.Array | None:
    """Return, for lines of type `binary`, which ones have this shape; None if one is not UTF-8."""
    try:
        return pc.match_substring_regex(lines.cast(pa.string()), shape.pattern(kinds))
    except pa.ArrowInvalid:
        return None


def cut_values(shape: LineShape, data: bytes, kinds: Mapping[str, str]) -> dict[str, pa.Array]:
    """Return, for the keys of `kinds` that the shape has, the texts of their values as `binary`, NULL for `null`, in
    lines that all have this shape. The last line may have no end.
    """
    cells = {one.key: (cell, one, after) for one, cell, after in shape.cells() if one.key in kinds}
    if not cells:
        return {}
    names = [str(cell) for cell in range(sum(4 if one.is_text else 2 for one in shape.members) + 1)]
    needed = [str(cell) for cell, *_ in cells.values()]
    table = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        parse_options=csv.ParseOptions(delimiter='"', quote_char=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(needed, pa.binary()),
            include_columns=needed,
            null_values=[],
            strings_can_be_null=False,
        ),
    )
    found = {}
    for key, (cell, one, after) in cells.items():
        texts = table.column(str(cell)).combine_chunks()
        if not one.is_text:
            texts = pc.binary_slice(texts, len(one.colon), -after)
            nulls = pc.equal(texts, pa.scalar(b"null"))
            texts = pc.if_else(nulls, None, texts) if pc.any(nulls).as_py() else texts
        found[key] = texts
    return found
