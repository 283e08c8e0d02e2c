"""Finds the file of a range again, after it was renamed, copied or compressed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence

from txtopo.core.os_errors import fault_of, is_gone
from txtopo.errors import BatchDataError
from txtopo.spouts.codecs import ArchiveError
from txtopo.spouts.matching_files import find_files
from txtopo.spouts.planned_file import COMPONENT
from txtopo.spouts.tail.log_file import Range, open_log

LOOKS_MAX = 5
"""Number of times that the file of a range is looked for, if files are renamed meanwhile."""


def planned_bytes(planned: Range, rotated: Sequence[str]) -> bytes:
    """Return the bytes of a planned range: exactly those that were planned, wherever the file is now (K7).

    They are looked for in the file of the plan, then in its folder by device and inode, then in all files that
    `rotated` selects. Raises BatchDataError if no file has them; OSError for a failure that may pass and for a missing
    permission.
    """
    unreadable: list[str] = []
    for _ in range(LOOKS_MAX):
        unreadable, gone = [], False
        for path in _places(planned, rotated):
            try:
                if (data := _bytes_in(path, planned)) is not None:
                    return data
            except ArchiveError as error:
                unreadable.append(f"{path}: {error}")
            except OSError as error:
                if fault_of(error) not in ("gone", "data"):
                    raise
                if is_gone(error):
                    gone = gone or path != planned["path"]
                else:
                    unreadable.append(f"{path}: {error.strerror or error}")
        if not gone:
            break  # Otherwise one that existed a moment ago was renamed, and may be the one.
    position = f"{planned['path']}:{planned['line']}"
    raise BatchDataError(
        f"{position}: bytes {planned['start']} to {planned['end']} of the log are not there as they were planned "
        f"(sha256 {planned['sha256']}), neither in this file nor in a rotated one"
        f"{'; ' if unreadable else ''}{'; '.join(unreadable[:3])}",
        component=COMPONENT,
        position=position,
        fault="log changed",
    )


def _bytes_in(path: str, planned: Range) -> bytes | None:
    """Return the bytes of a planned range if this file has them. Raises ArchiveError, OSError."""
    with open_log(path) as log:
        if not log.continues(planned):
            return None
        data = b"".join(log.chunks(planned["start"], planned["end"]))
    return data if hashlib.sha256(data).hexdigest() == planned["sha256"] else None


def _places(planned: Range, rotated: Sequence[str]) -> Iterator[str]:
    """Yield paths where the file may be, each once, the likely ones first."""
    path = str(planned["path"])
    seen = {path}
    yield path
    found = [path for pattern in rotated for path, _ in found_files(pattern)]
    for other in (*same_inode(path, planned["inode"]), *found):
        if other not in seen:
            seen.add(other)
            yield other


def same_inode(path: str, inode: int) -> Iterator[str]:
    """Yield the paths in the folder of a file that have this inode."""
    for other, status in found_files(os.path.dirname(path)):  # noqa: PTH120
        if status.st_ino == inode:
            yield other


def found_files(pattern: str) -> list[tuple[str, os.stat_result]]:
    """Return the files that a path selects now, in the order of their names; none if it does not exist."""
    try:
        return sorted(find_files(pattern), key=lambda found: os.fsencode(found[0]))
    except OSError as error:
        if not is_gone(error):
            raise
        return []
