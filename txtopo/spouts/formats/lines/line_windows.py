"""Cuts a section of a file into windows of whole lines, and counts the lines before an offset.

A line ends with LF; a CR before it belongs to its end. Nothing else ends a line: no lone CR, no form feed, no U+2028.
The last line may have no end. A section has the lines that start after the first LF at or after `start - 1`, up to the
first LF at or after `end - 1`: so sections that follow each other have each line once, wherever they are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from txtopo.spouts.formats.format import PlannedFile, Section

WINDOW_BYTES = 4 * 1024 * 1024
LINE_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of a line in bytes; a longer one is refused."""

ReadBytes = Callable[[int, int], bytes]
"""(offset, size) -> the bytes of the file there, fewer only at its end."""


class LineTooLongError(ValueError):
    """A line is longer than LINE_BYTES_MAX."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the line is longer than {LINE_BYTES_MAX} bytes")
        self.offset = offset
        """Its first byte in the file."""


class LineWindow:
    """Consecutive whole lines."""

    def __init__(self, start: int, data: bytes) -> None:
        self.start = start
        """Offset in the file of their first byte."""
        self.data = data
        """Their bytes; at least one."""
        self.end = start + len(data)
        """Offset after their last byte."""

    @cached_property
    def lines(self) -> Sequence[bytes]:
        """Return the lines without their ends."""
        return lines_of(self.data)

    @property
    def count(self) -> int:
        """Return how many lines they are."""
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))


def line_windows(read: ReadBytes, file: PlannedFile, section: Section) -> Iterator[LineWindow]:
    """Yield the lines of a section. Raises LineTooLongError."""
    size = int(file["size"])
    offset = section.start if section.start <= file["data"] else _after_line(read, section.start - 1, size)
    end = section.end if section.end >= size else _after_line(read, section.end - 1, size)
    wanted = WINDOW_BYTES
    while offset < end:
        data = read(offset, min(wanted, end - offset))
        if not data:
            return  # The file is shorter than before; the comparison with its plan reports that.
        final = offset + len(data) >= end or len(data) < wanted
        whole = len(data) if final else data.rfind(b"\n") + 1
        if not whole:
            if wanted > LINE_BYTES_MAX:
                raise LineTooLongError(offset)
            wanted = min(2 * wanted, LINE_BYTES_MAX + len(b"\r\n"))
            continue
        window = LineWindow(offset, data[:whole])
        if whole > LINE_BYTES_MAX and len(window.lines[0]) > LINE_BYTES_MAX:
            # A window that is so large begins with the line because of which it was made so large.
            raise LineTooLongError(offset)
        yield window
        offset = window.end
        wanted = WINDOW_BYTES


def lines_of(data: bytes) -> list[bytes]:
    """Return the lines of consecutive bytes, without their ends; after the last line end there is no line."""
    # Not `splitlines`, which also ends a line at a lone CR.
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()  # After the last line end.
    if b"\r\n" in data or data.endswith(b"\r"):
        lines = [line.removesuffix(b"\r") for line in lines]
    return lines


def _after_line(read: ReadBytes, offset: int, size: int) -> int:
    """Return the offset after the first LF at or after `offset`; the size of the file if there is none."""
    while offset < size:
        data = read(offset, 64 * 1024)
        at = data.find(b"\n")
        if at >= 0:
            return offset + at + 1
        if not data:
            break
        offset += len(data)
    return size


class LineNumbers:
    """Finds the line numbers of offsets that are given in ascending order; reads the bytes before them once."""

    def __init__(self, read: ReadBytes, start: int, first: int = 1) -> None:
        """`start`: the offset of the first line; `first`: its number."""
        self._read = read
        self._counted = start
        self._line = first

    def at(self, offset: int) -> int:
        """Return the number of the line that starts at `offset`."""
        while self._counted < offset:
            data = self._read(self._counted, min(WINDOW_BYTES, offset - self._counted))
            if not data:
                break
            self._line += data.count(b"\n")
            self._counted += len(data)
        return self._line

    def passed(self, window: LineWindow) -> None:
        """Skip the window whose start was the last offset given: its number of lines is known."""
        if self._counted == window.start:
            self._counted = window.end
            self._line += window.count
