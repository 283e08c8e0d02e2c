"""Finds the bytes of a range of a growing file again, with separate code of the audit: nothing is shared with the
spouts.

A growing file is renamed, copied and compressed after its lines were planned, so they may be in another file now. The
hash in the plan says whether bytes are those that were planned.
"""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from txtopo.audit.born import born_ns
from txtopo.audit.unpacking import DamagedError, NoDecoderError, unpacked

CHUNK_BYTES = 1024 * 1024
_CODECS = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd", ".lz4": "lz4", ".xz": "xz"}


class LostError(Exception):
    """No file has the bytes any more, so that nothing is known of them."""


class OtherBytesError(Exception):
    """The file of the plan exists, and has other bytes there."""


def ranges_of(metadata: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the ranges of growing files in the metadata of a batch; none for another kind of source."""
    return [entry["range"] for entry in metadata.get("partitions", ()) if "range" in entry]


def planned_lines(planned: Mapping[str, Any], rotated: Sequence[str]) -> bytes:
    """Return the bytes of a range: from its file, from another one of its folder, or from one that `rotated` selects.

    Raises LostError, OtherBytesError; OSError if a file cannot be read.
    """
    start, end = planned["start"], planned["end"]
    is_changed: bool | None = False
    for path in _places(planned, rotated):
        try:
            with _opened(path) as file:
                status = os.fstat(file.fileno())
                codec = _CODECS.get(Path(path).suffix.lower())
                data = _section(file, codec, start, end)
                head = hashlib.sha256(_section(file, codec, 0, planned["head"])).hexdigest()
                born = born_ns(file.fileno())
        except (FileNotFoundError, NoDecoderError, DamagedError):
            continue
        if hashlib.sha256(data).hexdigest() == planned["sha256"]:
            return data
        if (status.st_dev, status.st_ino) == (planned["device"], planned["inode"]) and head == planned["head_sha256"]:
            is_changed = is_changed or _is_the_planned_file(planned, data, born)
    where = f"bytes {start} to {end} of {planned['path']}"
    if is_changed:
        raise OtherBytesError(f"{where} are not those that were planned, with sha256 {planned['sha256']}")
    words = f"{where} are in no file any more: it was rotated, and its rotated file removed"
    if is_changed is None:
        words += "; a file with its inode begins like it, and nobody knows whether it was changed or is another one"
    raise LostError(words)


def _is_the_planned_file(planned: Mapping[str, Any], data: bytes, born: int | None) -> bool | None:
    """Return True if a file with the inode and the first bytes of the planned one is that file, so that its lines were
    changed; False if it is another one, since inodes are used again; None if nobody knows. `data`: what is in the place
    of the lines; `born`: when the file was made, in nanoseconds, None if that is not known.
    """
    size, tail = planned["end"] - planned["start"], planned["tail"]
    if len(data) == size > tail and hashlib.sha256(data[-tail:]).hexdigest() == planned["tail_sha256"]:
        return True
    # A file is not written to before it is made: one that was made later than the planned one was written is another.
    return None if born is None else bool(born <= planned["mtime_ns"])


def _places(planned: Mapping[str, Any], rotated: Sequence[str]) -> Iterator[str]:
    path = str(planned["path"])
    yield path
    others = {other for pattern in rotated for other in glob.glob(pattern)}  # noqa: PTH207 - absolute
    folder = Path(path).parent
    if folder.is_dir():
        others |= {str(one) for one in folder.iterdir() if one.is_file() and one.stat().st_ino == planned["inode"]}
    yield from sorted(others - {path})


def _opened(path: str) -> BinaryIO:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(descriptor, "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise FileNotFoundError(path)
    return file


def _section(file: BinaryIO, codec: str | None, start: int, end: int) -> bytes:
    """Return the bytes from `start` to `end` of the content, fewer if it ends before."""
    file.seek(start if codec is None else 0)
    if codec is None:
        chunks: Iterator[bytes] = iter(lambda: file.read(CHUNK_BYTES), b"")
        offset = start
    else:
        chunks, offset = unpacked(file.read, codec), 0
    found = bytearray()
    for chunk in chunks:
        found += chunk[max(0, start - offset) : max(0, end - offset)]
        offset += len(chunk)
        if offset >= end:
            break
    return bytes(found)
