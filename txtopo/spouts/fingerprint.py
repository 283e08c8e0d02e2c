"""The identity of a file: its metadata from `stat` and its content (K7: a file may change between two attempts)."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

CHUNK_BYTES = 1024 * 1024
"""At least as many as a header may have (`HEADER_BYTES_MAX`): the first chunk is searched for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """Metadata that changes when somebody writes to a file or replaces it."""

    size: int
    """Bytes."""
    mtime_ns: int
    inode: int
    ctime_ns: int | None
    """The last change of any kind, by the kernel: a program can set mtime back, but not ctime. None: the plan is from
    an older release, which did not store it.
    """
    etag: str | None = None
    """The entity tag of an object of a store; None for a file, and an object has neither inode nor ctime."""

    @classmethod
    def of(cls, status: os.stat_result) -> FileStat:
        """Return the metadata in the result of `os.stat`."""
        return cls(size=status.st_size, mtime_ns=status.st_mtime_ns, inode=status.st_ino, ctime_ns=status.st_ctime_ns)

    @classmethod
    def planned(cls, file: Mapping[str, Any]) -> FileStat:
        """Return the metadata in a plan. A plan of a release without ctime equals no file, so that the content is
        compared.
        """
        if (etag := file.get("etag")) is not None:
            return cls(size=file["size"], mtime_ns=file["mtime_ns"], inode=0, ctime_ns=None, etag=etag)
        return cls(size=file["size"], mtime_ns=file["mtime_ns"], inode=file["inode"], ctime_ns=file.get("ctime_ns"))

    def entries(self) -> Mapping[str, Any]:
        """Return the metadata as the entries of a file in a plan."""
        entries: dict[str, Any] = {"size": self.size, "mtime_ns": self.mtime_ns}
        if self.etag is not None:
            return {**entries, "etag": self.etag}
        return {**entries, "inode": self.inode, "ctime_ns": self.ctime_ns}


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The result of one pass over the bytes of a file."""

    sha256: str
    """Hexadecimal."""
    size: int
    start: bytes
    """The first CHUNK_BYTES of the file, of the same read as the hash."""


class Scan(Protocol):
    """Receives all bytes of a file while it is hashed for its plan."""

    def feed(self, data: bytearray, count: int) -> None:
        """Take the next `count` bytes (1 or more), which are the first ones of `data`."""

    def facts(self) -> Mapping[str, Any]:
        """Return what it found about the whole file, as JSON values for its plan."""


class NoRegularFileError(FileNotFoundError):
    """The path is now a directory, a FIFO or a device, not a file that can be read."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ENOENT, "no regular file", path)


@contextmanager
def open_regular(path: str) -> Iterator[int]:
    """Return a descriptor of a regular file. Raises NoRegularFileError for anything else; never blocks on a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NoRegularFileError(path)
        yield descriptor
    finally:
        os.close(descriptor)


class _Buffer(threading.local):
    """The memory into which a thread reads one chunk after the other, of one file after the other."""

    def __init__(self) -> None:
        self.data = bytearray(CHUNK_BYTES)
        self.view = memoryview(self.data)


_buffer = _Buffer()


def read_content(descriptor: int, scan: Scan | None = None) -> Content:
    """Hash the whole file in one pass, in chunks; `scan` receives each of them."""
    digest = hashlib.sha256()
    data, view = _buffer.data, _buffer.view[:CHUNK_BYTES]
    size, count = 0, len(view)
    start = b""
    while count == len(view) and (count := _fill(descriptor, view, size)):
        digest.update(view[:count])
        if scan is not None:
            scan.feed(data, count)
        start = start or bytes(view[:count])
        size += count
    return Content(sha256=digest.hexdigest(), size=size, start=start)


def _fill(descriptor: int, view: memoryview, offset: int) -> int:
    """Fill `view` with the bytes at `offset`; returns their number, which is smaller only at the end of the file."""
    count = 0
    while count < len(view) and (read := os.preadv(descriptor, [view[count:]], offset + count)):
        count += read
    return count


def read_at(descriptor: int, offset: int, size: int) -> bytes:
    """Return `size` bytes at `offset`, fewer only at the end of the file."""
    pieces = []
    while size > 0:
        piece = os.pread(descriptor, size, offset)
        if not piece:
            break
        pieces.append(piece)
        offset += len(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
