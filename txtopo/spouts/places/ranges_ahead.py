"""Reads a file in ranges: reads that follow each other become few large requests."""

from __future__ import annotations

from collections.abc import Callable

BLOCK_BYTES_MIN = 256 * 1024
BLOCK_BYTES_MAX = 8 * 1024 * 1024
"""Size of one request: the first is small, since many reads look only at the beginning, or for the end of a line; each
that continues the one before is twice as large.
"""

ReadRange = Callable[[int, int], bytes]
"""(offset, size) -> exactly these bytes; both are inside the file, and `size` is 1 or more."""


class RangesAhead:
    """The bytes of a file of a known size. Keeps the last block, at most `BLOCK_BYTES_MAX` or the last read."""

    def __init__(self, read_range: ReadRange, size: int) -> None:
        self._read_range = read_range
        self._size = size
        self._block = b""
        self._first = 0
        """Offset of the block."""
        self._wanted = BLOCK_BYTES_MIN

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at `offset`, fewer only at the end of the file. Raises as `read_range`."""
        end = min(offset + size, self._size)
        if offset >= end:
            return b""
        behind = self._first + len(self._block)
        if not self._first <= offset <= behind or not self._block:
            self._block, self._first, self._wanted = b"", offset, BLOCK_BYTES_MIN
            behind = offset
        if end > behind:
            more = self._read_range(behind, min(max(end - behind, self._wanted), self._size - behind))
            self._wanted = min(2 * self._wanted, BLOCK_BYTES_MAX)
            # What lies before this read is let go: reads of a section go forward.
            self._block = self._block[offset - self._first :] + more
            self._first = offset
        return self._block[offset - self._first : end - self._first]
