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


def planned_bytes(planned: Range, rotated: Sequence[str]) -> bytes:
    """Return the bytes of a planned range: exactly those that were planned, wherever the file is now (K7).

    They are looked for in the file of the plan, then in its folder by device and inode, then in all files that
    `rotated` selects. Raises BatchDataError if no file has them; OSError for a failure that may pass and for a missing
    permission.
    """
    position = f"{planned['path']}:{planned['line']}"
    unreadable: list[str] = []
    for path in _places(planned, rotated):
        try:
            with open_log(path) as log:
                if not log.continues(planned):
                    continue
                data = b"".join(log.chunks(planned["start"], planned["end"]))
                if hashlib.sha256(data).hexdigest() == planned["sha256"]:
                    return data
        except ArchiveError as error:
            unreadable.append(f"{path}: {error}")
        except OSError as error:
            if fault_of(error) not in ("gone", "data"):
                raise
            if not is_gone(error):
                unreadable.append(f"{path}: {error.strerror or error}")
    raise BatchDataError(
        f"{position}: bytes {planned['start']} to {planned['end']} of the log are not there as they were planned "
        f"(sha256 {planned['sha256']}), neither in this file nor in a rotated one"
        f"{'; ' if unreadable else ''}{'; '.join(unreadable[:3])}",
        component=COMPONENT,
        position=position,
        fault="log changed",
    )


def _places(planned: Range, rotated: Sequence[str]) -> Iterator[str]:
    """Yield paths where the file may be, each once, the likely ones first."""
    path = str(planned["path"])
    seen = {path}
    yield path
    found = [path for pattern in rotated for path, _ in found_files(pattern)]
    for other in (*same_inode(planned), *found):
        if other not in seen:
            seen.add(other)
            yield other


def same_inode(planned: Range) -> Iterator[str]:
    """Yield the paths in the folder of a planned file that have its inode."""
    folder = os.path.dirname(planned["path"])  # noqa: PTH120
    for path, status in found_files(folder):
        if status.st_ino == planned["inode"]:
            yield path


def found_files(pattern: str) -> list[tuple[str, os.stat_result]]:
    """Return the files that a path selects now, in the order of their names; none if it does not exist."""
    try:
        return sorted(find_files(pattern), key=lambda found: os.fsencode(found[0]))
    except OSError as error:
        if not is_gone(error):
            raise
        return []
