"""Writes archives of every kind that compressed files have, with the writers of other packages."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from collections.abc import Callable

import lz4.frame
import zstandard

WRITERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "bzip2": bz2.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "lz4": lambda data: bytes(lz4.frame.compress(data, content_checksum=True)),
    "xz": lzma.compress,
}
"""Kind -> what makes one archive of some bytes, with a checksum in it."""
ENDINGS = {"gzip": ".gz", "bzip2": ".bz2", "zstd": ".zst", "lz4": ".lz4", "xz": ".xz"}


def frame_without_content(size: int) -> bytes:
    """Return a frame that the decoders of zstd and lz4 skip."""
    return struct.pack("<II", 0x184D2A53, size) + bytes(number % 251 for number in range(size))
