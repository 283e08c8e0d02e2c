"""The bytes of a growing file, and what tells one such file from another: its place on the disk and its content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from txtopo.spouts.codecs import ArchiveError, ReadAt, Unpacked, codec_named, codec_of
from txtopo.spouts.fingerprint import open_regular, read_at
from txtopo.spouts.formats.lines.line_windows import LINE_BYTES_MAX, LineTooLongError
from txtopo.spouts.unpacked_file import UNKNOWN_BYTES

HEAD_BYTES = 1024
"""Number of bytes at the start of a file, and at the end of a range, that tell it from others."""
_CHUNK_BYTES = 1024 * 1024

Range = Mapping[str, Any]
"""Whole lines of one file, as the plan has them: `path`, `device`, `inode` and `mtime_ns` when it was planned, `codec`
of a compressed file, `start` and `end` in bytes of its content, `line` and `lines` (number of the first one, from 1,
and how many), and `sha256` of the bytes. `head` and `head_sha256` are a number of bytes at the start of the file and
their hash, `tail` and `tail_sha256` the same of the last bytes of the range: they tell the file from others at every
look.
"""


class ChangingError(OSError):
    """A file was renamed or truncated while it was read; the next look finds it as it is then."""


class LogFile:
    """An open file. Offsets are those of its content: of what was compressed, if it is compressed."""

    def __init__(self, path: str, descriptor: int, codec: str | None) -> None:
        self.path = path
        self.status = os.fstat(descriptor)
        self.codec = codec
        self.read_at: ReadAt = partial(read_at, descriptor)
        """Reads stored bytes."""

    @property
    def end(self) -> int:
        """Return the offset after its last byte; UNKNOWN_BYTES if it is compressed."""
        return self.status.st_size if self.codec is None else UNKNOWN_BYTES

    def chunks(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `start` to `end`, fewer only if the content ends before. Raises OSError, and
        ArchiveError for a compressed file that is damaged or not complete.
        """
        read = self.read_at
        if self.codec is not None:
            unpacked = Unpacked(self.read_at, codec_named(self.codec))
            read = unpacked.read
            for offset in range(0, start, _CHUNK_BYTES):  # Nothing in an archive can be passed over.
                read(offset, min(_CHUNK_BYTES, start - offset))
                unpacked.forget(offset)
        offset = start
        while offset < end and (data := read(offset, min(_CHUNK_BYTES, end - offset))):
            yield data
            offset += len(data)
            if self.codec is not None:
                unpacked.forget(offset)

    def sha256(self, start: int, end: int) -> str | None:
        """Return the hash of these bytes in hexadecimal; None if the content ends before. Raises as `chunks`."""
        digest, size = hashlib.sha256(), 0
        for chunk in self.chunks(start, end):
            digest.update(chunk)
            size += len(chunk)
        return digest.hexdigest() if size == end - start else None

    def readable(self) -> tuple[int, str, bool]:
        """Return how many bytes of its content can be read, their hash, and whether they are all: an archive may be
        damaged or cut off. Raises OSError.
        """
        digest, size = hashlib.sha256(), 0
        try:
            for chunk in self.chunks(0, self.end):
                digest.update(chunk)
                size += len(chunk)
        except ArchiveError:
            return size, digest.hexdigest(), False
        return size, digest.hexdigest(), True

    def continues(self, planned: Range) -> bool | None:
        """Return True if it has the first bytes of the file of a planned range, and the last ones of the range, each at
        its place; None if it agrees as far as it goes, but ends before. Raises as `chunks`.
        """
        head = self.sha256(0, planned["head"])
        if head is None:
            return None
        if head != planned["head_sha256"]:
            return False
        tail = self.sha256(planned["end"] - planned["tail"], planned["end"])
        return None if tail is None else bool(tail == planned["tail_sha256"])


@contextmanager
def open_log(path: str) -> Iterator[LogFile]:
    """Yield a file, unpacked by the ending of its name. Raises OSError that names it."""
    codec = codec_of(path)
    try:
        with open_regular(path) as descriptor:
            yield LogFile(path, descriptor, None if codec is None else codec.name)
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror or str(error), path) from error


@dataclass(frozen=True, slots=True)
class WholeLines:
    """Whole lines of a file."""

    end: int
    """Offset after their last byte."""
    count: int
    sha256: str


def whole_lines(log: LogFile, start: int, limit: int, wanted: int, *, to_its_end: bool) -> WholeLines | None:
    """Return the lines from `start` on that end before `limit`, about `wanted` bytes of them; None if there is none.
    With `to_its_end` what follows the last line end is a line, too, if nothing follows before `limit`.

    Raises LineTooLongError, and as `LogFile.chunks`.
    """
    ended, digest, count = start, hashlib.sha256(), 0
    offset, tail = start, b""
    for chunk in log.chunks(start, limit):
        enough = chunk.find(b"\n", max(0, start + wanted - offset - 1)) + 1
        at = enough or chunk.rfind(b"\n") + 1
        if at:
            digest.update(tail + chunk[:at])
            count += chunk.count(b"\n", 0, at)
            ended, tail = offset + at, chunk[at:]
        else:
            tail += chunk
        if enough:
            break
        offset += len(chunk)
        if len(tail) > LINE_BYTES_MAX + len(b"\r\n"):
            raise LineTooLongError(ended)
    else:
        if to_its_end and tail and (offset == limit or log.codec is not None):
            digest.update(tail)
            ended, count = offset, count + 1
    return WholeLines(ended, count, digest.hexdigest()) if count else None


def planned_range(log: LogFile, start: int, line: int, found: WholeLines) -> dict[str, Any]:
    """Return the entry of the plan for these lines. Raises ChangingError, and as `LogFile.chunks`."""
    head, tail = min(HEAD_BYTES, found.end), min(HEAD_BYTES, found.end - start)
    entry = {
        "path": log.path,
        "device": log.status.st_dev,
        "inode": log.status.st_ino,
        "mtime_ns": log.status.st_mtime_ns,
        "start": start,
        "end": found.end,
        "line": line,
        "lines": found.count,
        "sha256": found.sha256,
        "head": head,
        "head_sha256": log.sha256(0, head),
        "tail": tail,
        "tail_sha256": log.sha256(found.end - tail, found.end),
    }
    if entry["head_sha256"] is None or entry["tail_sha256"] is None:
        raise ChangingError(f"{log.path}: the file became shorter while it was read")
    return entry if log.codec is None else {**entry, "codec": log.codec}
