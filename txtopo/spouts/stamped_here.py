"""Determines which files get their time stamps from the clock of this machine, so that their age is known."""

from __future__ import annotations

import os
import re
from pathlib import Path

from txtopo.core.os_errors import is_gone

STAMPED_HERE = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems whose ctime is set by the kernel of this machine at each change. On NFS, SMB and FUSE another machine
or a program sets it.
"""
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(rb"\\([0-3][0-7]{2})")


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

    def covers_folder(self, folder: str) -> bool:
        """Return True if the folder is on such a file system; False if it no longer exists. Raises OSError."""
        try:
            status = os.stat(folder)  # noqa: PTH116 - as find_files
        except OSError as error:
            if not is_gone(error):
                raise
            return False
        return self.covers(folder, status)


def changed_s(status: os.stat_result) -> float:
    """Return the later one of mtime and ctime in seconds since 1970. A program can set mtime back, but not ctime."""
    changed_ns = max(status.st_mtime_ns, status.st_ctime_ns)
    # Some file systems store whole seconds, rounded down.
    return changed_ns / 1e9 + (1.0 if changed_ns % 1_000_000_000 == 0 else 0.0)


def _mounted_as(path: str, device: int) -> str | None:
    """Return the type of the file system with this real path and device; None if it is unknown.

    The table names the device of most file systems. Others, such as btrfs, give their files another one: they are found
    by path alone. If path and device say different types, one mount hides another, and the type is unknown.
    """
    named = b"%d:%d" % (os.major(device), os.minor(device))
    by_device: set[bytes] = set()
    target = os.fsencode(path)
    found, by_path = b"", None
    try:
        lines = _MOUNTS.read_bytes().split(b"\n")
    except OSError:
        return None  # not Linux
    for line in lines:
        # The kernel escapes blank, tab, newline and backslash: other white space may be part of a name.
        words, _, after = line.partition(b" - ")
        before, kind = words.split(b" "), after.split(b" ")[0]
        if len(before) < 6 or not kind:
            continue
        if before[2] == named:
            by_device.add(kind)
        place = _ESCAPED.sub(lambda code: bytes([int(code[1], 8)]), before[4])
        is_above = target == place or target.startswith(place.rstrip(b"/") + b"/")
        if is_above and len(place) >= len(found):  # a later mount at the same place hides the earlier one
            found, by_path = place, kind
    try:
        is_there = bool(found) and os.stat(found).st_dev == device  # noqa: PTH116
    except OSError:
        is_there = False
    kinds = by_device | ({by_path} if is_there and by_path else set())
    return kinds.pop().decode("ascii", "replace") if len(kinds) == 1 else None
