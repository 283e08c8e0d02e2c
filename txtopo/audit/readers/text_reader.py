"""Reads files of text for the audit: each line is the value of the only field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txtopo.audit.readers.line_reader import LineReader, Texts
from txtopo.audit.readers.reader import check_known
from txtopo.core.fields import Fields


class TextReader(LineReader):
    """Implements `Reader`."""

    kind = "text"

    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        check_known(layout)
        if len(fields.items) != 1:
            raise ValueError(f"a line of text is one field, not {fields.ddl}")
        super().__init__(layout, fields)

    def texts(self, line: bytes) -> Texts:
        return (line,)

    def skips(self, line: bytes) -> bool:
        return False
