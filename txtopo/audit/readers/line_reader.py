"""What the audit's readers of lines have in common: numbers of lines, the texts of the fields, and their values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from txtopo.audit.readers.plain_lines import plain_lines
from txtopo.audit.readers.reader import HashedFile, Read, Reader
from txtopo.audit.readers.text_values import Cell, cell_of, is_doubtful
from txtopo.core.fields import Fields

Texts: TypeAlias = "Sequence[bytes | None]"
"""The texts of the planned fields in a line, None for NULL."""


class LineReader(Reader):
    """Reads files whose records are lines."""

    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        self.fields = fields
        # A text is never NULL here: what is NULL has no text.
        self.cells: list[Cell] = [cell_of(column, ()) for column in fields.items]

    @abstractmethod
    def texts(self, line: bytes) -> Texts:
        """Return the texts of the fields in a line without its end. Raises ValueError that says why it is no record."""

    def skips(self, line: bytes) -> bool:
        """Return True for a line that is no record and no reject: by default an empty one."""
        return not line

    def read(self, file: Mapping[str, Any], hashed: HashedFile) -> Iterator[Read]:
        for number, line in enumerate(plain_lines(hashed.chunks()), 1):
            if not self.skips(line):
                yield self.judged(number, line)

    def judged(self, number: int, line: bytes) -> Read:
        """Return one line as a record, or with the reason why it is none."""
        try:
            texts = self.texts(line)
        except ValueError as error:
            return Read(number, (), str(error), line)
        try:
            values = [self.value(at, text) for at, text in enumerate(texts)]
        except (ValueError, OverflowError) as error:
            return _LineRead(number, (), str(error), line, self, texts)
        return _LineRead(number, values, None, line, self, texts)

    def value(self, at: int, text: bytes | None) -> Any:
        """Return the value of one field. Raises ValueError or OverflowError if the text is none."""
        if text is not None:
            return self.cells[at](text, False)
        if not self.fields.items[at].nullable:
            raise ValueError(f"column {self.fields.items[at].name} is NULL")
        return None


@dataclass(slots=True)
class _LineRead(Read):
    reader: LineReader
    texts: Texts

    def is_doubtful(self) -> bool:
        """Return False if one of its plain values is wrong."""
        found = False
        for at, (column, text) in enumerate(zip(self.reader.fields.items, self.texts, strict=True)):
            if text is not None and is_doubtful(column, text):
                found = True
                continue
            try:
                self.reader.value(at, text)
            except (ValueError, OverflowError):
                return False
        return found
