"""Which files of a folder or a pattern are input now: settled, never consumed before, in the order of their paths."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from txtopo.spouts.fingerprint import FileStat, open_regular, read_content
from txtopo.topology.components import SpoutContext


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledFile:
    """A file that was the same in two looks far enough apart."""

    path: str
    stat: FileStat


@dataclass(slots=True)
class _Seen:
    stat: FileStat
    since_s: float
    """When a look first found it like this."""


def find_files(path: str) -> Iterable[tuple[str, os.stat_result]]:
    """Every regular file that `path` means (a folder, a file, else a pattern), symlinks followed. Raises OSError where a plain path is not there.

    Names that start with `_` or `.` are no input, nor are directories, FIFOs and devices; folders are not walked.
    """
    if os.path.isdir(path):  # noqa: PTH112
        with os.scandir(path) as entries:
            names = [entry.path for entry in entries]
    elif os.path.lexists(path) or not glob.has_magic(path):
        os.stat(path)  # noqa: PTH116
        names = [path]
    else:
        names = glob.glob(path, recursive=True)  # noqa: PTH207 - a Path would normalise the user's pattern
    for name in names:
        if os.path.basename(name).startswith(("_", ".")):  # noqa: PTH119 - runs a million times
            continue
        try:
            status = os.stat(name)  # noqa: PTH116
        except OSError:
            continue  # Gone since it was listed, or a link to nowhere.
        if stat.S_ISREG(status.st_mode):
            yield name, status


class FileWatch:
    """Looks at the source again and again and keeps a backlog of settled files. One thread uses it."""

    def __init__(self, path: str, settled_s: float, context: SpoutContext) -> None:
        self._path = path
        self._settled_s = settled_s
        self._context = context
        self._consumed: dict[str, bytes] = dict(context.consumed)
        self._consumed_stats: dict[str, FileStat] = {}
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
        """In a `once` run: the second look is over and its files are taken."""
        return self._looks_done and not self._backlog

    def look(self) -> None:
        """Look at the source, unless a backlog is there and the last look is fresh, or a `once` run has looked twice."""
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
                settled.append(SettledFile(path=path, stat=self._watched.pop(path).stat))
        for gone in self._watched.keys() - found:
            del self._watched[gone]
        self._last_look_s = now
        self._take(settled)
        if self._context.once and self._first_look_s is not None:
            self._finish()
        self._first_look_s = now if self._first_look_s is None else self._first_look_s

    def consume(self, file: SettledFile, fingerprint: bytes) -> None:
        """The file is planned: it is never input again."""
        self._backlog.remove(file)
        self._consumed[file.path] = fingerprint
        self._consumed_stats[file.path] = file.stat

    def redo(self, file: SettledFile, fingerprint: bytes) -> None:
        """The file, input before, is read again as it is now: it is not said to have changed, and it is no input of a later batch either."""
        self._consumed[file.path] = fingerprint
        self._consumed_stats[file.path] = file.stat
        self._watched.pop(file.path, None)

    def put_back(self, file: SettledFile) -> None:
        """The file changed while it was fingerprinted: it has to settle again. In a `once` run it is left for the next one."""
        self._backlog.remove(file)
        if self._looks_done:
            self._leave(file.path)

    def _has_settled(self, path: str, found: FileStat, now: float) -> bool:
        baseline = self._consumed_stats.get(path)
        if path in self._consumed and (baseline is None or baseline == found):
            # What stood there when this driver took the lead was compared when it was planned; hashing it all again would take hours.
            self._consumed_stats[path] = found
            return False
        seen = self._watched.get(path)
        if seen is None or seen.stat != found:
            self._watched[path] = _Seen(found, now)
            return False
        return now - seen.since_s >= self._settled_s

    def _take(self, settled: list[SettledFile]) -> None:
        for file in settled:
            if file.path in self._consumed:
                self._consider_consumed(file)
            else:
                self._backlog.append(file)
        self._backlog.sort(key=lambda file: os.fsencode(file.path))

    def _consider_consumed(self, file: SettledFile) -> None:
        """A path that was input before has changed: never input again, and said once where the content is another."""
        self._consumed_stats[file.path] = file.stat
        if file.path in self._said:
            return
        try:
            with open_regular(file.path) as descriptor:
                differs = read_content(descriptor).sha256 != self._consumed[file.path].hex()
        except OSError:
            return
        if differs:
            self._said.add(file.path)
            self._context.say(f"{file.path!r} was read before and has other content now: ignored, a path is input once")

    def _finish(self) -> None:
        self._looks_done = True
        for path in sorted(self._watched):
            if path not in self._consumed:
                self._leave(path)

    def _leave(self, path: str) -> None:
        self._context.say(f"{path!r} is still changing: left for the next run")
