"""Reads the headers of the pages of a column in a row group: how large they are when they are unpacked.

A footer has only sums. A page is unpacked as a whole, and the values of one with the encoding DELTA_BYTE_ARRAY share
what they begin with: a page of 1 MB may hold a million texts of 1 MB each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from txtopo.spouts.formats.parquet.compact import CompactError, CompactValues, CutOffError

HEADER_BYTES = 4 * 1024
HEADER_BYTES_MAX = 16 * 1024 * 1024
"""Number of bytes in which a header is looked for: first so many, then more, since it may have statistics."""
_DATA_HEADERS = (5, 8)
"""Fields of a page's header that say how many values it has: in the first and in the second version of data pages."""

ReadAt = Callable[[int, int], bytes]
"""(offset, size) -> the bytes of the file there, fewer only at its end."""


class PageHeaderError(ValueError):
    """Bytes that are no header of a page."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The pages of a column in one row group, as the footer describes them."""

    start: int
    """Offset of the first page."""
    stored: int
    """Bytes in the file."""
    unpacked: int
    """Bytes when they are unpacked."""
    encodings: frozenset[int]
    """Numbers of the encodings of its values."""


@dataclass(frozen=True, slots=True)
class PageSizes:
    """The pages of a column in one row group."""

    largest: int
    """Bytes of the largest page when it is unpacked; no value of it has more."""
    densest: int
    """Bytes by value of the page where these are most, rounded up."""


def page_sizes(read: ReadAt, chunk: Chunk) -> PageSizes:
    """Return the sizes of the pages, by their headers. Raises PageHeaderError, and what `read` raises."""
    largest = densest = 0
    for size, values in _pages(read, chunk):
        largest = max(largest, size)
        densest = max(densest, -(-size // max(1, values)) if values is not None else 0)
    return PageSizes(largest=largest, densest=densest)


def _pages(read: ReadAt, chunk: Chunk) -> Iterator[tuple[int, int | None]]:
    """Yield bytes and number of values of each page; None for a dictionary."""
    offset, end = chunk.start, chunk.start + chunk.stored
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
        values = CompactValues(data)
        try:
            return values.fields(), values.at
        except CutOffError:
            if len(data) < wanted or wanted >= HEADER_BYTES_MAX:
                raise PageHeaderError(f"the header of a page at byte {offset} has no end") from None
            wanted *= 16
        except CompactError as error:
            raise PageHeaderError(f"the header of a page at byte {offset} has {error}") from error
