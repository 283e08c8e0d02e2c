"""Selects the files of a folder or a pattern that are input now: settled, never planned before, in the order of their
paths.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from txtopo.core.limits import FILES_COMPARED_MAX
from txtopo.core.os_errors import is_gone
from txtopo.spouts.fingerprint import FileStat, open_regular, read_content
from txtopo.spouts.matching_files import find_files, means, why_none
from txtopo.topology.components import SpoutContext


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledFile:
    """A file that was unchanged in two checks, far enough apart."""

    path: str
    stat: FileStat


@dataclass(slots=True)
class _Seen:
    stat: FileStat
    since_s: float
    """Time of the first check that found it in this state."""
    first_s: float
    """Time of the first check that found it at all, or found that it has changed."""


class FileWatch:
    """Checks the source repeatedly and keeps a backlog of settled files. Used by one thread."""

    def __init__(self, path: str, settled_s: float, context: SpoutContext, *, may_be_empty: bool = False) -> None:
        """Create a watch. Unless `may_be_empty`, a `once` run that finds no file at a path that never had one ends with
        FileNotFoundError.
        """
        self._path = path
        self._may_be_empty = may_be_empty
        self._settled_s = settled_s
        self._context = context
        self._consumed: dict[str, bytes] = dict(context.consumed)
        self._consumed_stats: dict[str, FileStat] = {}
        self._planned = _as_planned(context)
        self._watched: dict[str, _Seen] = {}
        self._said: set[str] = set()
        self._backlog: list[SettledFile] = []
        self._first_look_s: float | None = None
        self._last_look_s = 0.0
        self._looks_done = False

    @property
    def backlog(self) -> list[SettledFile]:
        """Settled files, sorted by path."""
        return self._backlog

    @property
    def is_exhausted(self) -> bool:
        """True, in a `once` run, if the second check is over and its files are planned."""
        return self._looks_done and not self._backlog

    def look(self) -> None:
        """Check the source, unless there is a backlog from a recent check, or a `once` run has checked twice."""
        now = self._context.monotonic()
        if self._looks_done or (self._backlog and now - self._last_look_s < self._settled_s):
            return
        if self._context.once and self._first_look_s is not None and now - self._first_look_s < self._settled_s:
            return
        known = {file.path for file in self._backlog}
        found = set()
        settled = []
        for path, status in find_files(self._path):
            found.add(path)
            if path not in known and self._has_settled(path, FileStat.of(status), now):
                settled.append(SettledFile(path=path, stat=self._watched[path].stat))
        # Only now: if something cannot be read, the files that had settled do not have to settle again.
        for done in (self._watched.keys() - found) | {file.path for file in settled}:
            del self._watched[done]
        self._last_look_s = now
        if not found:
            self._found_none()
        self._take(settled)
        if self._context.once and self._first_look_s is not None:
            self._finish()
        self._first_look_s = now if self._first_look_s is None else self._first_look_s

    def consume(self, file: SettledFile, fingerprint: bytes) -> None:
        """Remove a planned file from the input, permanently."""
        self._backlog.remove(file)
        self._consumed[file.path] = fingerprint
        self._consumed_stats[file.path] = file.stat

    def redo(self, file: SettledFile, fingerprint: bytes) -> None:
        """Allow the redo to read the file in its current state: it is not reported as changed, and is not input of a
        later batch.
        """
        self._consumed[file.path] = fingerprint
        self._consumed_stats[file.path] = file.stat
        self._watched.pop(file.path, None)

    def put_back(self, file: SettledFile) -> None:
        """Return a file that changed while it was fingerprinted: it has to settle again. A `once` run leaves it to the
        next run.
        """
        self._backlog.remove(file)
        if self._looks_done:
            self._leave(file.path)

    def _has_settled(self, path: str, found: FileStat, now: float) -> bool:
        if path in self._consumed and self._is_as_known(path, found):
            self._consumed_stats[path] = found
            return False
        seen = self._watched.get(path)
        if seen is None or seen.stat != found:
            first_s = now if seen is None else seen.first_s
            self._watched[path] = _Seen(found, now, first_s)
            if path in self._consumed and seen is not None and now - first_s >= self._settled_s:
                self._say_ignored(path, "was read before and is being written to again")  # It may never settle.
            return False
        return now - seen.since_s >= self._settled_s

    def _is_as_known(self, path: str, found: FileStat) -> bool:
        """True if, according to `stat`, a file that was input before is unchanged."""
        baseline = self._consumed_stats.get(path)
        if baseline is not None:
            return baseline == found
        # The files found when this driver took the lead were compared when they were planned; hashing all of them again
        # would take hours. Inode and ctime change with every move to another disk, so a difference in them alone means
        # nothing.
        planned = self._planned.get(path)
        return planned is None or planned == (found.size, found.mtime_ns)

    def _take(self, settled: list[SettledFile]) -> None:
        for file in settled:
            if file.path in self._consumed:
                self._consider_consumed(file)
            else:
                self._backlog.append(file)
        self._backlog.sort(key=lambda file: os.fsencode(file.path))

    def _consider_consumed(self, file: SettledFile) -> None:
        """Handle a changed path that was input before: it is never input again, and is reported once if its content
        differs.
        """
        differs = False
        if file.path not in self._said:
            try:
                with open_regular(file.path) as descriptor:
                    differs = read_content(descriptor, hexadecimal=False).sha256 != self._consumed[file.path].hex()
            except OSError as error:
                if not is_gone(error):
                    return  # It is compared again when it has settled again.
        self._consumed_stats[file.path] = file.stat
        if differs:
            self._say_ignored(file.path, "was read before and has other content now")

    def _say_ignored(self, path: str, why: str) -> None:
        if path not in self._said:
            self._said.add(path)
            self._context.say(f"{path!r} {why}: ignored, a path is input once")

    def _found_none(self) -> None:
        """Handle a source without files: a path with a typo must not look like a source without new input."""
        had_some = any(means(self._path, path) for path in self._consumed)
        why = why_none(self._path)
        words = f"no file matches {self._path!r}{f' ({why})' if why else ''}"
        is_last_look = self._context.once and self._first_look_s is not None
        if is_last_look and not had_some and not self._may_be_empty:
            raise FileNotFoundError(
                f"{words}, and none ever did; where that is fine, say FileSpout(…, may_be_empty=True)"
            )
        if self._path not in self._said and (is_last_look or not self._context.once):
            self._said.add(self._path)
            self._context.say(f"{words} now; all that did are counted" if had_some else words)

    def _finish(self) -> None:
        self._looks_done = True
        for path in sorted(self._watched):
            if path not in self._consumed:
                self._leave(path)

    def _leave(self, path: str) -> None:
        self._context.say(f"{path!r} is still changing: left for the next run")


def _as_planned(context: SpoutContext) -> dict[str, tuple[int, int]]:
    """Return size and mtime of the files of the last batches when they were planned, so that writes while no driver ran
    are reported.
    """
    known: dict[str, tuple[int, int]] = {}
    for metadata in context.recent():
        for file in metadata.get("files", ()):
            known.setdefault(str(file["path"]), (file["size"], file["mtime_ns"]))
        if len(known) >= FILES_COMPARED_MAX:
            break
    return known
