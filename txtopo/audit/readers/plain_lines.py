"""Cuts a file into lines with separate code of the audit.

Lines end with LF; one CR before it, or at the end of the file, belongs to the line end. Nothing else ends a line. A
byte order mark at the start of the file is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

from txtopo.audit.readers.reader import TooLongError

LINE_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of a line in bytes, without its end; a longer one is not read to its end."""
_MARK = b"\xef\xbb\xbf"


def plain_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines without their ends; the first one is line 1. Raises TooLongError."""
    begun = bytearray()
    at_start = True
    for chunk in chunks:
        begun += chunk
        if at_start:
            if len(begun) < len(_MARK):
                continue
            at_start = False
            _skip_mark(begun)
        if b"\n" in chunk:
            *whole, rest = begun.split(b"\n")
            begun = rest
            for line in whole:
                yield _without_end(line)
        if len(begun) > LINE_BYTES_MAX + 1:
            raise TooLongError(f"a line is longer than {LINE_BYTES_MAX} bytes")
    if at_start:
        _skip_mark(begun)
        *whole, begun = begun.split(b"\n")
        yield from map(_without_end, whole)
    if begun:
        yield _without_end(begun)


def _skip_mark(begun: bytearray) -> None:
    if begun.startswith(_MARK):
        del begun[: len(_MARK)]


def _without_end(line: bytearray) -> bytes:
    end = len(line) - 1 if line.endswith(b"\r") else len(line)
    if end > LINE_BYTES_MAX:
        raise TooLongError(f"a line is longer than {LINE_BYTES_MAX} bytes")
    return bytes(line[:end])
