"""Reads compressed files: stored bytes in, the bytes that were compressed out, and an error for an archive that is not
whole.

A file may hold several archives, one after the other ("members", "frames", "streams"): their contents follow each
other. Everything in the file must belong to them; zeros or other bytes after the last one are an error, since nobody
knows what they were to be. A file of zero bytes is no archive: even an empty one has a header.
"""

from __future__ import annotations

import bz2
import hashlib
import io
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from txtopo.errors import unreachable

ReadAt = Callable[[int, int], bytes]
"""(offset, size) -> the stored bytes there, fewer only at the end of the file. Raises OSError."""
UNCOMPRESSED_BYTES_MAX = 100 * 1024**3
"""Maximum number of bytes that come out of one file: a small archive may hold any number of zeros."""
MEMORY_BYTES_MAX = 256 * 1024 * 1024
"""Maximum memory of the decoder of an xz file. `xz -9` needs a quarter of it."""
STORED_BYTES = 64 * 1024
"""Number of stored bytes that are read at a time."""


_T = TypeVar("_T")


class ArchiveError(ValueError):
    """A compressed file is damaged, is cut off, or has something after its end."""


class _Unpacking(Protocol):
    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none only at the end of the last archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """One way to compress a file."""

    name: str
    """As in plans and messages."""
    ending: str
    """How names of such files end."""
    magics: tuple[bytes, ...]
    """The bytes with which a file may begin; where there are several, the others are frames without content."""
    open: Callable[[Stored], _Unpacking]


class Stored(io.RawIOBase):
    """The stored bytes of a file, from the first to the last, which are counted and hashed."""

    def __init__(self, read_at: ReadAt) -> None:
        super().__init__()
        self._read_at = read_at
        self._digest = hashlib.sha256()
        self.offset = 0
        """Number of bytes that were read."""
        self.failure: OSError | None = None
        """The error with which the file could not be read, which is none of its content."""

    @property
    def sha256(self) -> str:
        """Return the hash of what was read so far, in hexadecimal."""
        return self._digest.hexdigest()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            unreachable("a compressed file is read in pieces")
        try:
            data = self._read_at(self.offset, size)
        except OSError as error:
            self.failure = error
            raise
        self._digest.update(data)
        self.offset += len(data)
        return data


class Unpacked:
    """The uncompressed bytes of a file, in order. They can be read again until they are forgotten."""

    def __init__(self, read_at: ReadAt, codec: Codec, *, bytes_max: int = UNCOMPRESSED_BYTES_MAX) -> None:
        """Raises ArchiveError if the file does not begin like such an archive; OSError if it cannot be read."""
        self._codec = codec
        self._bytes_max = bytes_max
        self._stored = Stored(read_at)
        self._kept = b""
        self._first = 0
        self._is_whole = False
        start = read_at(0, max(map(len, codec.magics)))
        if not start:
            raise ArchiveError(f"it holds no byte, so it is no {codec.name} archive")
        if not start.startswith(codec.magics):
            raise ArchiveError(f"it is no {codec.name} archive: it begins with {start[:4].hex(' ')}")
        self._stream = self._guarded(lambda: codec.open(self._stored))

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` uncompressed bytes at `offset`, fewer only at the end of a file that is a whole archive.

        Raises ArchiveError; OSError if the file cannot be read. What lies before `offset` can be read again too.
        """
        if offset < self._first:
            unreachable(f"byte {offset} of a compressed file is read again after it was forgotten")
        pieces = [self._kept]
        behind = self.end
        while behind < offset + size and (piece := self._next(max(offset + size - behind, STORED_BYTES))):
            pieces.append(piece)
            behind += len(piece)
        if len(pieces) > 1:
            self._kept = b"".join(pieces)
        return self._kept[offset - self._first : offset - self._first + size]

    @property
    def end(self) -> int:
        """Return the offset after all that was read."""
        return self._first + len(self._kept)

    def forget(self, before: int) -> None:
        """Let go of the bytes before this offset; none of them is read again."""
        self._kept = self._kept[max(0, before - self._first) :]
        self._first = max(self._first, before)

    def size_and_sha256(self) -> tuple[int, str]:
        """Read to the end, and return number and sha-256 of the stored bytes. Raises as `read`."""
        while not self._is_whole:
            self.forget(self.end)
            self.read(self.end, STORED_BYTES)
        return self._stored.offset, self._stored.sha256

    def _next(self, size: int) -> bytes:
        if self._is_whole:
            return b""
        data = self._guarded(lambda: self._stream.read(size))
        if not data:
            if self._stored.read(1):
                raise ArchiveError(
                    f"it has other bytes after the end of its {self._codec.name} archive, at byte "
                    f"{self._stored.offset - 1}"
                )
            self._is_whole = True
        if self.end + len(data) > self._bytes_max:
            raise ArchiveError(
                f"more than {self._bytes_max} bytes come out of its first {self._stored.offset} bytes: divide it"
            )
        return data

    def _guarded(self, step: Callable[[], _T]) -> _T:
        """Return what a step of the decoder gives. Its error is an ArchiveError, unless the file cannot be read."""
        import pyarrow as pa

        try:
            return step()
        except (pa.ArrowException, lzma.LZMAError, EOFError, OSError) as error:
            if self._stored.failure is not None:
                raise self._stored.failure from error
            if isinstance(error, MemoryError):
                raise  # Of this machine: Arrow's error is both.
            reason = f"{error}".splitlines()[0] if f"{error}" else type(error).__name__
            raise ArchiveError(
                f"its {self._codec.name} archive is damaged or cut off: {reason}, found before byte "
                f"{self._stored.offset} of the stored file"
            ) from error


class _Decoder(Protocol):
    """A decoder of one member, such as `lzma.LZMADecompressor`."""

    @property
    def needs_input(self) -> bool:
        """True if it can give nothing more of what it has."""

    @property
    def eof(self) -> bool:
        """True after the end of the member."""

    @property
    def unused_data(self) -> bytes:
        """What it was given after the end of the member."""

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        """Return at most `max_length` bytes."""


class _Members:
    """Reads member by member with a decoder of Python's library, whose own readers of files pass over what they do not
    know after the first member.
    """

    def __init__(self, stored: Stored, fresh: Callable[[], _Decoder], padding: int) -> None:
        """`padding`: zeros may follow a member in groups of this size; 0: none may."""
        self._stored = stored
        self._fresh = fresh
        self._padding = padding
        self._decoder: _Decoder | None = fresh()
        self._input = b""

    def read(self, size: int) -> bytes:
        while self._decoder is not None:
            if self._decoder.needs_input and not self._input:
                self._input = self._stored.read(STORED_BYTES)
                if not self._input:
                    raise EOFError("the end of the file is inside of it")
            data = self._decoder.decompress(self._input, size)
            self._input = b""
            if self._decoder.eof:
                self._input = self._decoder.unused_data or self._stored.read(STORED_BYTES)
                if self._padding:
                    self._skip_zeros()
                self._decoder = self._fresh() if self._input else None
            if data:
                return data
        return b""

    def _skip_zeros(self) -> None:
        zeros = 0
        while self._input:
            left = self._input.lstrip(b"\0")
            zeros += len(self._input) - len(left)
            self._input = left or self._stored.read(STORED_BYTES)
            if left:
                break
        if zeros % self._padding:
            raise EOFError(f"{zeros} zeros follow a stream, which is no multiple of {self._padding}")


def _by_arrow(name: str) -> Callable[[Stored], _Unpacking]:
    # Tried with cut, flipped, joined and padded archives: it reports what the readers of `gzip` and `zstandard` pass
    # over silently. Its bzip2 fails on a member without content, and it has no xz.
    def opened(stored: Stored) -> _Unpacking:
        import pyarrow as pa

        stream: _Unpacking = pa.CompressedInputStream(pa.PythonFile(stored, mode="r"), name)
        return stream

    return opened


def _bzip2(stored: Stored) -> _Unpacking:
    return _Members(stored, bz2.BZ2Decompressor, padding=0)


def _xz(stored: Stored) -> _Unpacking:
    return _Members(stored, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, MEMORY_BYTES_MAX), padding=4)


_SKIPPED = tuple(bytes([0x50 + number, 0x2A, 0x4D, 0x18]) for number in range(16))
"""The beginnings of frames without content, which zstd and lz4 share."""
CODECS = (
    Codec(name="gzip", ending=".gz", magics=(b"\x1f\x8b",), open=_by_arrow("gzip")),
    Codec(name="bzip2", ending=".bz2", magics=(b"BZh",), open=_bzip2),
    Codec(name="zstd", ending=".zst", magics=(b"\x28\xb5\x2f\xfd", *_SKIPPED), open=_by_arrow("zstd")),
    Codec(name="lz4", ending=".lz4", magics=(b"\x04\x22\x4d\x18", *_SKIPPED), open=_by_arrow("lz4")),
    Codec(name="xz", ending=".xz", magics=(b"\xfd7zXZ\x00",), open=_xz),
)
"""Each checks its content by a checksum; lz4, zstd and xz only if the archive was written with one."""
_BY_ENDING = {codec.ending: codec for codec in CODECS}
CODEC_ENDINGS = frozenset(_BY_ENDING)


def codec_of(path: str) -> Codec | None:
    """Return the codec that the ending of a name tells; None for a file that is not compressed."""
    name = path[path.rfind("/") + 1 :]
    at = name.rfind(".")
    return _BY_ENDING.get(name[at:].lower()) if at > 0 else None


def codec_named(name: str) -> Codec:
    """Return the codec of this name in a plan. Raises KeyError for another one."""
    return {codec.name: codec for codec in CODECS}[name]
