"""Reads compressed files with separate code of the audit: nothing is shared with the spouts, and of gzip, zstd and lz4
the library is another one as well.

Everything in the file must belong to its archives: what follows the last one is an error.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

FED_BYTES = 1024
"""Number of stored bytes that a decoder gets at a time, so that a small archive of many zeros fills no memory."""
GIVEN_BYTES = 64 * 1024
XZ_MEMORY_BYTES_MAX = 256 * 1024 * 1024
_GZIP_WINDOW = 31
_FRAME_WITHOUT_CONTENT = b"\x2a\x4d\x18"
_PACKAGES = {"zstd": "zstandard", "lz4": "lz4"}
"""Kinds whose decoder is a package that is not installed everywhere."""


class NoDecoderError(Exception):
    """There is no decoder for this kind of archive, or its package is not installed."""


class DamagedError(ValueError):
    """The file is no whole archive."""


def unpacked(read: Callable[[int], bytes], kind: str) -> Iterator[bytes]:
    """Yield what was compressed. `read` returns the next stored bytes, at most as many as asked for; none at the end.

    Raises NoDecoderError immediately; DamagedError while it is read.
    """
    return _joined(_Archives(read, kind, _fresh_decoder(kind)).pieces())


class _Archives:
    """The archives of one file, one after the other."""

    def __init__(self, read: Callable[[int], bytes], kind: str, fresh: Callable[[], Any]) -> None:
        self._read = read
        self._kind = kind
        self._fresh = fresh
        self._number = 0

    def pieces(self) -> Iterator[bytes]:
        data = self._read(FED_BYTES)
        if not data:
            raise DamagedError("a file without content is no archive")
        while data:
            data = self._filled(data, 4) if self._kind in _PACKAGES else data
            if self._kind in _PACKAGES and data[1:4] == _FRAME_WITHOUT_CONTENT:
                data = self._behind_frame(data)
            elif self._kind == "xz" and self._number and data.startswith(b"\0"):
                data = self._behind_zeros(data)
            else:
                data = yield from self._archive(data)

    def _archive(self, data: bytes) -> Any:
        """Yield the content of one archive; returns what follows it, none at the end of the file."""
        self._number += 1
        decoder = self._fresh()
        while True:
            try:
                piece = decoder.decompress(data)
            except Exception as error:  # Each library has other errors.
                raise DamagedError(f"archive {self._number} in it is damaged: {error}") from error
            if piece:
                yield piece
            if decoder.eof:
                return decoder.unused_data or self._read(FED_BYTES)
            data = self._read(FED_BYTES)
            if not data:
                raise DamagedError(f"archive {self._number} in it is cut off")

    def _filled(self, data: bytes, size: int) -> bytes:
        while len(data) < size and (more := self._read(FED_BYTES)):
            data += more
        return data

    def _behind_frame(self, data: bytes) -> bytes:
        data = self._filled(data, 8)
        left = 8 + int.from_bytes(data[4:8], "little") if len(data) >= 8 else len(data) + 1
        while len(data) < left:
            left -= len(data)
            data = self._read(FED_BYTES)
            if not data:
                raise DamagedError("a frame without content is cut off")
        return data[left:] or self._read(FED_BYTES)

    def _behind_zeros(self, data: bytes) -> bytes:
        zeros = 0
        while data:
            left = data.lstrip(b"\0")
            zeros += len(data) - len(left)
            data = left or self._read(FED_BYTES)
            if left:
                break
        if zeros % 4:
            raise DamagedError(f"{zeros} zeros follow archive {self._number}")
        return data


def _fresh_decoder(kind: str) -> Callable[[], Any]:
    known: dict[str, Callable[[], Any]] = {
        "gzip": lambda: zlib.decompressobj(_GZIP_WINDOW),
        "bzip2": bz2.BZ2Decompressor,
        "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_MEMORY_BYTES_MAX),
    }
    if kind in known:
        return known[kind]
    if kind not in _PACKAGES:
        raise NoDecoderError(f"files compressed with {kind!r} are not read by this audit")
    try:
        return _of_zstd() if kind == "zstd" else _of_lz4()
    except ImportError as error:
        raise NoDecoderError(
            f"the audit reads files compressed with {kind} by the package {_PACKAGES[kind]}, which is not installed: "
            f"pip install 'txtopo[audit]'"
        ) from error


def _of_zstd() -> Callable[[], Any]:
    import zstandard

    return lambda: zstandard.ZstdDecompressor().decompressobj()


def _of_lz4() -> Callable[[], Any]:
    import lz4.frame

    return lambda: lz4.frame.LZ4FrameDecompressor()


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in larger pieces."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= GIVEN_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
