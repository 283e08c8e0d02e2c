"""Reads lines by a pattern for the audit: groups of an expression, or a well-known log, which `log_lines` takes apart
without an expression.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from txtopo.audit.readers.line_reader import LineReader, Texts
from txtopo.audit.readers.log_lines import KNOWN_LOGS, KnownLog, request_part, time_text
from txtopo.audit.readers.reader import check_known
from txtopo.core.fields import Fields

LINE_BYTES_MAX = 1024 * 1024
"""A longer line is no record."""


class PatternReader(LineReader):
    """Implements `Reader`."""

    kind = "pattern"

    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        check_known(layout, "pattern", "null_values")
        super().__init__(layout, fields)
        self._nulls = frozenset(map(str, layout["null_values"]))
        pattern = str(layout["pattern"])
        self._log: KnownLog | None = KNOWN_LOGS.get(pattern)
        self._expression: re.Pattern[str] | None = None
        if self._log is None:
            try:
                self._expression = re.compile(pattern, re.ASCII)
            except (re.error, RecursionError) as error:
                raise ValueError(f"{pattern!r} is neither a known log nor an expression: {error}") from error
            missing = {*fields.names} - {*self._expression.groupindex}
            if missing:
                raise ValueError(f"the pattern has no group {', '.join(sorted(missing))}")
        self._skips_empty = self._expression is None or self._expression.fullmatch("") is None

    def skips(self, line: bytes) -> bool:
        return self._skips_empty and not line

    def texts(self, line: bytes) -> Texts:
        if len(line) > LINE_BYTES_MAX:
            raise ValueError(f"longer than {LINE_BYTES_MAX} bytes")
        found = self._taken_apart(line.decode("utf-8"))
        if found is None:
            raise ValueError("no match")
        return [self._text(found, field.name, field.type.kind) for field in self.fields.items]

    def _taken_apart(self, text: str) -> Mapping[str, str | None] | None:
        if self._log is not None:
            return self._log.taken_apart(text)
        match = self._expression.fullmatch(text) if self._expression is not None else None
        return None if match is None else match.groupdict()

    def _text(self, found: Mapping[str, str | None], name: str, kind: str) -> bytes | None:
        if self._log is not None and name not in found:
            value = request_part(found["request"] or "", name)
        else:
            value = found[name]
        if value is None or value in self._nulls:
            return None
        if self._log is None:
            return value.encode()
        if name == "time":
            return time_text(value, kind).encode()
        return self._log.plain(name, value, kind)
