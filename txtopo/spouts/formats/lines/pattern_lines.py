"""The pair of the format pattern: named groups of a regular expression, or the fields of a well-known log, are the
values.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import Field, Fields
from txtopo.spouts.formats.lines.known_patterns import (
    REQUEST,
    REQUEST_PARTS,
    KnownPattern,
    iso_time,
    unescaped,
    unescaped_text,
)
from txtopo.spouts.formats.lines.line_pair import LinePair, Sifted, cut_lines
from txtopo.spouts.formats.lines.strict_logs import strict_columns
from txtopo.spouts.formats.lines.typed_texts import sifted_batch, whole_batch

LINE_BYTES_MAX = 1024 * 1024
"""Maximum size of a line that an expression is tried on, since its time may grow faster than the line; a longer line is
rejected.
"""
NO_MATCH = "the line does not match the pattern"
_TIMES = ("timestamp", "timestamp_ntz", "date")


class PatternLines(LinePair):
    """Lines that match an expression completely; its named groups are the values."""

    def __init__(
        self, expression: re.Pattern[str], fields: Fields, null_values: Sequence[str], known: KnownPattern | None = None
    ) -> None:
        """`expression` has a group for each of the fields; `known`: what is known of it besides."""
        self._match = expression.fullmatch
        self._fields = fields
        self._nulls = frozenset(null_values)
        self._known = known
        self._keeps_empty = expression.fullmatch("") is not None
        groups = set(expression.groupindex)
        self._groups = tuple(
            dict.fromkeys("request" if name in REQUEST_PARTS and name not in groups else name for name in fields.names)
        )
        take = operator.itemgetter(*self._groups) if len(self._groups) > 1 else None
        self._values: Callable[[re.Match[str]], Sequence[str | None]] = take or (
            lambda match: (match[self._groups[0]],)
        )

    def whole(self, lines: Sequence[bytes]) -> pa.RecordBatch | None:
        if max(map(len, lines)) > LINE_BYTES_MAX:
            return None
        if self._known is not None and self._known.strict is not None:
            array = pa.array(lines, pa.binary())
            columns = strict_columns(self._known, array, self._fields, self._nulls, self._exact)
        else:
            columns = self._exact(lines)
        return None if columns is None else whole_batch(self._fields, columns)

    def block(self, data: bytes) -> pa.RecordBatch | None:
        if self._known is None or self._known.strict is None:
            return None
        lines = cut_lines(data)
        if lines is None or pc.max(pc.binary_length(lines)).as_py() > LINE_BYTES_MAX:
            return None
        columns = strict_columns(self._known, lines, self._fields, self._nulls, self._exact, data)
        return None if columns is None else whole_batch(self._fields, columns)

    def sift(self, lines: Sequence[bytes]) -> Sifted:
        refused: dict[int, str] = {}
        rows: list[Sequence[str | None]] = []
        numbers: list[int] = []
        for number, line in enumerate(lines):
            values, reason = self._judged(line)
            if reason is None:
                rows.append(values)
                numbers.append(number)
            else:
                refused[number] = reason
        batch, wrong = sifted_batch(self._fields, self._columns(rows))
        refused.update((numbers[row], reason) for row, reason in wrong.items())
        return Sifted(batch, dict(sorted(refused.items())))

    def is_record(self, line: bytes) -> bool:
        """Return False for an empty line, unless the expression matches it."""
        return self._keeps_empty or bool(line)

    def skips_any(self, lines: Sequence[bytes]) -> bool:
        return not self._keeps_empty and not all(lines)

    def _judged(self, line: bytes) -> tuple[Sequence[str | None], str | None]:
        if len(line) > LINE_BYTES_MAX:
            return (), f"the line is longer than {LINE_BYTES_MAX} bytes"
        try:
            match = self._match(line.decode("utf-8"))
        except UnicodeDecodeError:
            return (), "the line is not UTF-8"
        return (self._values(match), None) if match is not None else ((), NO_MATCH)

    def _exact(self, lines: Sequence[bytes]) -> list[pa.Array] | None:
        """Return the texts of the fields by the expression itself; None if a line does not match."""
        try:
            matches = [self._match(line.decode("utf-8")) for line in lines]
        except UnicodeDecodeError:
            return None
        found = [match for match in matches if match is not None]
        return self._columns([self._values(match) for match in found]) if len(found) == len(lines) else None

    def _columns(self, rows: Sequence[Sequence[str | None]]) -> list[pa.Array]:
        groups: dict[str, Sequence[str | None]] = dict(
            zip(self._groups, zip(*rows, strict=True) if rows else [()] * len(self._groups), strict=True)
        )
        return [self._texts(field, groups) for field in self._fields.items]

    def _texts(self, field: Field, groups: dict[str, Sequence[str | None]]) -> pa.Array:
        if field.name in groups:
            values = groups[field.name]
        else:
            at = REQUEST_PARTS.index(field.name) + 1
            requests = [REQUEST.fullmatch(request) if request else None for request in groups["request"]]
            values = [match[at] if match is not None else None for match in requests]
        if self._known is None or not (field.name in self._known.escaped or field.name == "time"):
            return pa.array([None if value in self._nulls else value for value in values], pa.string()).cast(
                pa.binary()
            )
        change = self._change(field, self._known)
        done: dict[str | None, Any] = dict.fromkeys((None, *self._nulls))
        return pa.array(
            [done[value] if value in done else done.setdefault(value, change(value)) for value in values], pa.binary()
        )

    def _change(self, field: Field, known: KnownPattern) -> Callable[[Any], bytes]:
        """Return what makes the text of a value of what the log has."""
        if field.name == "time":
            kind = field.type.kind
            return lambda value: (iso_time(value, kind) if kind in _TIMES else value).encode()
        escapes = known.escapes
        if escapes is None:
            return lambda value: value.encode()
        undo = unescaped if field.type.kind == "binary" else unescaped_text
        return lambda value: undo(value.encode(), escapes) if "\\" in value else value.encode()
