"""Reads the headers of the pages of a column in a row group: how large they are when they are unpacked.

A footer has only sums. A page is unpacked as a whole, and the values of one with the encoding DELTA_BYTE_ARRAY share
what they begin with: a page of 1 MB may hold a million texts of 1 MB each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyarrow import parquet

HEADER_BYTES = 4 * 1024
HEADER_BYTES_MAX = 16 * 1024 * 1024
"""Number of bytes in which a header is looked for: first so many, then more, since it may have statistics."""
NESTED_MAX = 16
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
"""Kinds of values in the compact protocol of Thrift."""
_DATA_HEADERS = (5, 8)
"""Fields of a page's header that say how many values it has: in the first and in the second version of data pages."""

ReadAt = Callable[[int, int], bytes]
"""(offset, size) -> the bytes of the file there, fewer only at its end."""


class PageHeaderError(ValueError):
    """Bytes that are no header of a page."""


class _CutOffError(Exception):
    """A header does not end in the bytes that were read."""


@dataclass(frozen=True, slots=True)
class PageSizes:
    """The pages of a column in one row group."""

    largest: int
    """Bytes of the largest page when it is unpacked; no value of it has more."""
    densest: int
    """Bytes by value of the page where these are most, rounded up."""


def page_sizes(read: ReadAt, chunk: parquet.ColumnChunkMetaData) -> PageSizes:
    """Return the sizes of the pages, by their headers. Raises PageHeaderError, and what `read` raises."""
    largest = densest = 0
    for size, values in _pages(read, chunk):
        largest = max(largest, size)
        densest = max(densest, -(-size // max(1, values)) if values is not None else 0)
    return PageSizes(largest=largest, densest=densest)


def _pages(read: ReadAt, chunk: parquet.ColumnChunkMetaData) -> Iterator[tuple[int, int | None]]:
    """Yield bytes and number of values of each page; None for a dictionary."""
    starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
    offset = min(start for start in starts if start)
    end = offset + chunk.total_compressed_size
    while offset < end:
        header, size = _header(read, offset)
        unpacked, stored = header.get(2), header.get(3)
        if not isinstance(unpacked, int) or not isinstance(stored, int) or unpacked < 0 or stored < 0:
            raise PageHeaderError(f"there is no header of a page at byte {offset}")
        data = next((header[field] for field in _DATA_HEADERS if isinstance(header.get(field), dict)), None)
        values = None if data is None else data.get(1, 0)
        # A page that is stored as it is has the size of its stored bytes, whatever else its header says.
        yield max(unpacked, stored), values if isinstance(values, int | None) else 0
        offset += size + stored


def _header(read: ReadAt, offset: int) -> tuple[dict[int, Any], int]:
    """Return the fields of the header at `offset` by their numbers, and its size."""
    wanted = HEADER_BYTES
    while True:
        data = read(offset, wanted)
        try:
            compact = _Compact(data)
            return compact.fields(), compact.at
        except _CutOffError:
            if len(data) < wanted or wanted >= HEADER_BYTES_MAX:
                raise PageHeaderError(f"the header of a page at byte {offset} has no end") from None
            wanted *= 16


class _Compact:
    """Values in the compact protocol of Thrift."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        """Number of bytes that were read."""

    def fields(self, depth: int = 0) -> dict[int, Any]:
        """Return number -> value of the fields of a struct; None for values of kinds that no size is made of."""
        if depth > NESTED_MAX:
            raise PageHeaderError("the header of a page is nested too deep")
        found: dict[int, Any] = {}
        number = 0
        while (first := self._byte()) & 0x0F != _STOP:
            number = number + (first >> 4) if first >> 4 else self._integer()
            found[number] = self._value(first & 0x0F, depth)
        return found

    def _value(self, kind: int, depth: int, *, is_listed: bool = False) -> Any:
        if kind in (_TRUE, _FALSE):
            self._take(1 if is_listed else 0)
        elif kind in (_I16, _I32, _I64):
            return self._integer()
        elif kind == _STRUCT:
            return self.fields(depth + 1)
        elif kind in (_BYTE, _DOUBLE, _BINARY):
            self._take({_BYTE: 1, _DOUBLE: struct.calcsize("d")}.get(kind) or self._varint())
        elif kind in (_LIST, _SET):
            first = self._byte()
            self._values(first >> 4 if first >> 4 < 15 else self._varint(), (first & 0x0F,), depth)
        elif kind == _MAP:
            if number := self._varint():
                kinds = self._byte()
                self._values(number, (kinds >> 4, kinds & 0x0F), depth)
        else:
            raise PageHeaderError(f"the header of a page has a value of kind {kind}")
        return None

    def _values(self, number: int, kinds: tuple[int, ...], depth: int) -> None:
        for _ in range(number):
            for kind in kinds:
                self._value(kind, depth + 1, is_listed=True)

    def _integer(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise PageHeaderError("the header of a page has a number of more than 64 bits")
        return value | byte << shift

    def _byte(self) -> int:
        self._take(1)
        return self._data[self.at - 1]

    def _take(self, size: int) -> None:
        if size > len(self._data) - self.at:
            raise _CutOffError
        self.at += size
