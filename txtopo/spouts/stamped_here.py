"""Determines which files get their time stamps from the clock of this machine, so that their age is known."""

from __future__ import annotations

import os
import re
from pathlib import Path

STAMPED_HERE = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems whose ctime is set by the kernel of this machine at each change. On NFS, SMB and FUSE another machine
or a program sets it.
"""
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


class StampedHere:
    """Says of files whether their time stamps are of this machine's clock. Made for one check of a source: a file
    system may be mounted at any time.
    """

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}

    def covers(self, path: str, status: os.stat_result) -> bool:
        """Return True if the file, of this status, is on a file system of `STAMPED_HERE`; False if that is unknown."""
        device = status.st_dev
        if device not in self._known:
            self._known[device] = _mounted_as(os.path.realpath(path), device) in STAMPED_HERE
        return self._known[device]


def changed_s(status: os.stat_result) -> float:
    """Return the later one of mtime and ctime in seconds since 1970. A program can set mtime back, but not ctime."""
    changed_ns = max(status.st_mtime_ns, status.st_ctime_ns)
    # Some file systems store whole seconds, rounded down.
    return changed_ns / 1e9 + (1.0 if changed_ns % 1_000_000_000 == 0 else 0.0)


def _mounted_as(path: str, device: int) -> str | None:
    """Return the type of the file system with this real path; None if it is unknown."""
    found, kind = "", None
    try:
        lines = os.fsdecode(_MOUNTS.read_bytes()).splitlines()
    except OSError:
        return None  # not Linux
    for line in lines:
        before, _, after = line.partition(" - ")
        place = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), before.split()[4])
        is_above = path == place or path.startswith(place.rstrip("/") + "/")
        if is_above and len(place) >= len(found):  # a later mount at the same place hides the earlier one
            found, kind = place, after.split()[0]
    try:
        return kind if found and os.stat(found).st_dev == device else None  # noqa: PTH116
    except OSError:
        return None
