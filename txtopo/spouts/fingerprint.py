"""A file's identity: what `stat` says and what its content is (K7)."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

CHUNK_BYTES = 1024 * 1024
_HEXADECIMAL = re.compile(rb"0[xX](?<![0-9A-Za-z]0[xX])")
"""Begins with a literal and looks back: eight times as fast as to look for what stands before, and every file is
searched.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """What changes when somebody writes to a file or puts another in its place."""

    size: int
    """Bytes."""
    mtime_ns: int
    inode: int
    ctime_ns: int | None
    """When the kernel last changed anything about it: who writes can set mtime back, but not this. None: an older
    release did not ask.
    """

    @classmethod
    def of(cls, status: os.stat_result) -> FileStat:
        """From what `os.stat` returns."""
        return cls(size=status.st_size, mtime_ns=status.st_mtime_ns, inode=status.st_ino, ctime_ns=status.st_ctime_ns)

    @classmethod
    def planned(cls, file: Mapping[str, Any]) -> FileStat:
        """As a plan says it, also one of a release that had no ctime: that equals no file, so its content is
        compared.
        """
        return cls(size=file["size"], mtime_ns=file["mtime_ns"], inode=file["inode"], ctime_ns=file.get("ctime_ns"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What one pass over a file's bytes tells."""

    sha256: str
    """Hexadecimal."""
    size: int
    quotes: bool
    """A quote character stands somewhere: line ends may lie inside values, so the file is not cut into parts."""
    nul: bool
    """A NUL byte stands somewhere."""
    hexadecimal: bool
    """`0x` or `0X` stands where a value may start, which the parser would take for the start of a number."""


class NoRegularFileError(FileNotFoundError):
    """The path is a directory, a FIFO or a device by now: there is no file that could be read."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ENOENT, "no regular file", path)


@contextmanager
def open_regular(path: str) -> Iterator[int]:
    """A descriptor of a regular file; raises NoRegularFileError for anything else, and never blocks on a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NoRegularFileError(path)
        yield descriptor
    finally:
        os.close(descriptor)


def read_content(descriptor: int) -> Content:
    """Hash the whole file once, in chunks."""
    digest = hashlib.sha256()
    size = 0
    quotes = nul = hexadecimal = False
    last = b""
    while chunk := os.pread(descriptor, CHUNK_BYTES, size):
        digest.update(chunk)
        size += len(chunk)
        quotes = quotes or b'"' in chunk
        nul = nul or b"\0" in chunk
        hexadecimal = hexadecimal or _may_hold_hexadecimal(chunk) or (last + chunk[:1]) in (b"0x", b"0X")
        last = chunk[-1:]
    return Content(sha256=digest.hexdigest(), size=size, quotes=quotes, nul=nul, hexadecimal=hexadecimal)


def _may_hold_hexadecimal(chunk: bytes) -> bool:
    """Cheap first; a tail number such as N930XJ is none."""
    return (b"0x" in chunk or b"0X" in chunk) and _HEXADECIMAL.search(chunk) is not None


def read_at(descriptor: int, offset: int, size: int) -> bytes:
    """`size` bytes at `offset`, fewer only at the end of the file."""
    pieces = []
    while size > 0:
        piece = os.pread(descriptor, size, offset)
        if not piece:
            break
        pieces.append(piece)
        offset += len(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
