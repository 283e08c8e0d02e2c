"""The format pattern: the named groups of a regular expression, or the fields of a well-known log, are the values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError
from txtopo.spouts.formats.line_format import LineFormat
from txtopo.spouts.formats.lines.known_patterns import KNOWN_PATTERNS, NULL_VALUES
from txtopo.spouts.formats.lines.nested_repeats import nested_repeat

if TYPE_CHECKING:
    from txtopo.spouts.formats.lines.line_pair import LinePair

_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Pattern(LineFormat):
    """Lines that match a regular expression completely; a line that does not is a rejected row, and an empty one is
    skipped.

    >>> Pattern("apache_common").fields
    ('host', 'ident', 'user', 'time', 'request', 'method', 'path', 'protocol', 'status', 'size')
    >>> Pattern(r"(?P<level>[A-Z]+) (?P<message>.*)").fields
    ('level', 'message')
    """

    kind = "pattern"

    def __init__(self, pattern: str, *, null_values: Sequence[str] | None = None) -> None:
        """`pattern` is one of apache_combined, apache_common, nginx and syslog, or an expression of Python's `re` with
        a named group for each declared field; there `\\d`, `\\w` and `\\s` mean ASCII. A value that is one of
        `null_values` is NULL: by default `-` in well-known formats, otherwise the empty text.

        Raises TopologyError for an expression that is invalid, has no named group, or can take for ever on one line.
        """
        if not isinstance(pattern, str):
            raise TopologyError(f"pattern {pattern!r} is not text")
        self.pattern = pattern
        known = KNOWN_PATTERNS.get(pattern)
        if null_values is None:
            null_values = ("",) if known is None else NULL_VALUES
        if isinstance(null_values, str) or not all(isinstance(value, str) for value in null_values):
            raise TopologyError(f"null_values {null_values!r} is not a list of texts, e.g. ['', '-']")
        self.null_values: tuple[str, ...] = tuple(null_values)
        self.fields: tuple[str, ...] = tuple(_compiled(pattern).groupindex) if known is None else known.fields

    def layout(self) -> Mapping[str, Any]:
        return {"pattern": self.pattern, "null_values": list(self.null_values)}

    def check(self, fields: Fields) -> None:
        missing = [name for name in fields.names if name not in self.fields]
        if missing:
            raise TopologyError(
                f"the pattern has no group {', '.join(map(repr, missing))}; it has {', '.join(self.fields)}"
            )

    def _pair(self, fields: Fields) -> LinePair:
        from txtopo.spouts.formats.lines.pattern_lines import PatternLines

        known = KNOWN_PATTERNS.get(self.pattern)
        expression = _compiled(self.pattern) if known is None else known.expression
        return PatternLines(expression, fields, self.null_values, known)

    def warm_up(self) -> None:
        super().warm_up()
        import txtopo.spouts.formats.lines.pattern_lines  # noqa: F401


def _compiled(pattern: str) -> re.Pattern[str]:
    known = ", ".join(KNOWN_PATTERNS)
    if _NAME.fullmatch(pattern):
        raise TopologyError(f"pattern {pattern!r} is neither a known one ({known}) nor an expression with named groups")
    try:
        compiled = re.compile(pattern, re.ASCII)
    except (re.error, ValueError, RecursionError, OverflowError) as error:
        raise TopologyError(f"pattern {pattern!r} is not an expression of Python's re: {error}") from error
    if not compiled.groupindex:
        raise TopologyError(
            f"pattern {pattern!r} has no named group: write (?P<name>…) for each field, or one of {known}"
        )
    repeat = nested_repeat(pattern)
    if repeat is not None:
        raise TopologyError(
            f"pattern {pattern!r} can take for ever on one line: {repeat}; write the inner one possessive (`++`, `*+`) "
            f"or separate its repeats by a character that it does not match"
        )
    return compiled
