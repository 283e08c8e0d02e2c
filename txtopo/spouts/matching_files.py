"""Finds the files of a path: a folder, a file or a pattern. A folder or file that cannot be read is an error; it is
never skipped.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from txtopo.core.os_errors import is_gone

Found = tuple[str, os.stat_result]
PassOver = Callable[[str, Sequence[str], Sequence[int]], Iterable[bool]]
"""Called with a folder, and with paths and inodes of regular files in it, as the folder has them; returns for each
whether it is passed over, since nobody needs its metadata.
"""
NAMES_PER_PIECE = 20_000
"""Number of names of a folder that are in memory together."""


def find_files(path: str, pass_over: PassOver | None = None) -> Iterator[Found]:
    """Return every regular file that `path` selects (a folder, a file, otherwise a pattern), once; symlinks are
    followed. Files that `pass_over` chooses are passed over when their folder is listed.

    Names that start with `_` or `.` are not input; neither are directories, FIFOs and devices. Only `**` descends into
    folders; hidden folders must be named. Raises OSError if a plain path does not exist, and if a folder or a file
    cannot be read.
    """
    seen: set[str] | None = set() if "**" in path else None  # only a path with `**` finds a file in two ways
    for name, status in _candidates(path, pass_over):
        if _is_hidden(os.path.basename(name)) or not stat.S_ISREG(status.st_mode):  # noqa: PTH119 - runs a million times
            continue
        if seen is not None:
            if name in seen:
                continue
            seen.add(name)
        yield name, status


def why_none(path: str) -> str:
    """Return what exists instead, if no file matches; empty if nothing exists there."""
    if not os.path.isdir(path):  # noqa: PTH112
        return ""
    names = os.listdir(path)  # noqa: PTH208
    if not names:
        return "the folder is empty"
    if any(os.path.isdir(os.path.join(path, name)) for name in names if not _is_hidden(name)):  # noqa: PTH112, PTH118
        return f"it holds folders, which are not walked; {os.path.join(path, '**', '*')!r} walks them"  # noqa: PTH118
    return "all names in it start with `_` or `.`, or are no regular files"


def means(path: str, file: str) -> bool:
    """Return True if `path` may select this file, by names alone: the file may no longer exist."""
    folder = os.path.dirname(file)  # noqa: PTH120
    return file == path or folder == path or (glob.has_magic(path) and _fits(Path(path).parts, Path(file).parts))


def _candidates(path: str, pass_over: PassOver | None) -> Iterator[Found]:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError as error:
        # A name with characters of a pattern may be the name of a file: it is a pattern only if no such file exists.
        if not is_gone(error) or not glob.has_magic(path) or os.path.lexists(path):
            raise
        start, *parts = Path(path).parts
        yield from _expand(start, parts, pass_over)
        return
    if not stat.S_ISDIR(status.st_mode):
        yield path, status
        return
    for name in _names_in(path, lambda name: not _is_hidden(name), pass_over):
        yield from _stat(os.path.join(path, name))  # noqa: PTH118 - runs a million times


def _expand(
    folder: str, parts: Sequence[str], pass_over: PassOver | None, above: frozenset[tuple[int, int]] = frozenset()
) -> Iterator[Found]:
    """Return the matches of the rest of a pattern in a folder. `glob` does the same, but silently skips what cannot be
    read.
    """
    head, *rest = parts
    if head == "**":
        here = {(status.st_dev, status.st_ino) for _, status in _stat(folder)}
        if not here or here & above:
            return  # Removed since it was listed, or a link to a folder above it, whose files were already found there.
        above |= here
        if rest:
            yield from _expand(folder, rest, pass_over)
    names: Iterable[str] = [head]
    if glob.has_magic(head):
        wanted = "*" if head == "**" else head
        names = _names_in(
            folder,
            lambda name: fnmatch.fnmatchcase(name, wanted) and not _is_skipped(name, wanted),
            _all if rest else pass_over,
        )
    for name in names:
        for found, status in _stat(os.path.join(folder, name)):  # noqa: PTH118
            if not rest and not (head == "**" and stat.S_ISDIR(status.st_mode)):
                yield found, status
            elif stat.S_ISDIR(status.st_mode):
                yield from _expand(found, parts, pass_over, above) if head == "**" else _expand(found, rest, pass_over)


def _fits(pattern: Sequence[str], names: Sequence[str]) -> bool:
    if not pattern or not names:
        return not pattern and not names
    if pattern[0] == "**":
        return _fits(pattern, names[1:]) or (_fits(pattern[1:], names) if len(pattern) > 1 else True)
    return fnmatch.fnmatchcase(names[0], pattern[0]) and _fits(pattern[1:], names[1:])


def _all(folder: str, paths: Sequence[str], inodes: Sequence[int]) -> Iterable[bool]:
    """Pass over all files: folders are wanted here."""
    return [True] * len(paths)


def _names_in(folder: str, is_wanted: Callable[[str], bool], pass_over: PassOver | None) -> Iterator[str]:
    for entries in _pieces(folder, is_wanted):
        files: list[os.DirEntry[str]] = []
        for entry in entries:
            if pass_over is not None and entry.is_file(follow_symlinks=False):
                files.append(entry)
            else:
                yield entry.name
        if pass_over is not None and files:
            passed = pass_over(folder, [entry.path for entry in files], [entry.inode() for entry in files])
            yield from (entry.name for entry, is_passed in zip(files, passed, strict=True) if not is_passed)


def _pieces(folder: str, is_wanted: Callable[[str], bool]) -> Iterator[list[os.DirEntry[str]]]:
    """Read a folder piece by piece: it may have a million names."""
    try:
        with os.scandir(folder) as entries:
            wanted = (entry for entry in entries if is_wanted(entry.name))
            while piece := list(islice(wanted, NAMES_PER_PIECE)):
                yield piece
    except OSError as error:
        if not is_gone(error):  # Removed since it was listed.
            raise


def _stat(path: str) -> Iterator[Found]:
    try:
        yield path, os.stat(path)  # noqa: PTH116
    except OSError as error:
        if not is_gone(error):  # Removed since it was listed, or a broken link.
            raise


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _is_skipped(name: str, pattern: str) -> bool:
    """Return True for hidden folders, which must be named: files that another program writes below `_temporary` would
    be counted there, and again when it renames them.
    """
    return _is_hidden(name) and not pattern.startswith(name[0])
