"""Selects the files of a folder or a pattern that are input now: settled, never planned before, in the order of their
paths.

A file has settled when it was certainly not changed for `settled_s` seconds. Either two checks found it equal, so far
apart, by the monotonic clock of the driver; or its time stamps are of this machine's clock and so old: then one check
is enough. A stamp in the future, or of another machine's clock, has no age.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from txtopo.core.limits import FILES_COMPARED_MAX
from txtopo.core.os_errors import is_gone
from txtopo.spouts.fingerprint import FileStat, open_regular, read_content
from txtopo.spouts.matching_files import find_files, means, why_none
from txtopo.spouts.stamped_here import StampedHere, changed_s
from txtopo.topology.components import SpoutContext


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledFile:
    """A file that has not changed for long enough."""

    path: str
    stat: FileStat


@dataclass(slots=True)
class _Seen:
    stat: FileStat
    since_s: float
    """It is in this state at least since this time: of the first check that found it so, or earlier if its stamps are
    certain.
    """
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
        self._open_until_s: float | None = None
        """Files of the first check have settled by then, unless they change."""
        self._last_look_s = -math.inf
        self._looks_done = False
        self._is_incomplete = False

    @property
    def backlog(self) -> list[SettledFile]:
        """Settled files, sorted by path."""
        return self._backlog

    @property
    def is_exhausted(self) -> bool:
        """True, in a `once` run, if the last check is over and its files are planned."""
        return self._looks_done and not self._backlog

    @property
    def is_incomplete(self) -> bool:
        """True while files of the first check may still settle. Until then no batch ends with the last settled file, so
        that the same files always make the same batches.
        """
        return self._is_incomplete

    def ready_in_s(self) -> float:
        """Return after how many seconds another check may find a file settled; infinity if no file is about to."""
        return math.inf if self._looks_done else max(0.0, self._next_settled_s() - self._context.monotonic())

    def look(self) -> None:
        """Check the source, unless there is a backlog from a recent check, or a check can find nothing that matters.

        A `once` run checks again only for the files of its first check that have not settled, at most `settled_s`
        seconds later.
        """
        now = self._context.monotonic()
        if self._looks_done or now < self._next_look_s():
            return
        known = {file.path for file in self._backlog}
        found = set()
        settled = []
        stamps = StampedHere()
        for path, status in find_files(self._path):
            found.add(path)
            if path not in known and self._has_settled(path, status, now, stamps):
                settled.append(SettledFile(path=path, stat=self._watched[path].stat))
        # Only now: if something cannot be read, the files that had settled do not have to settle again.
        for gone in self._watched.keys() - found:
            del self._watched[gone]
        if not found:
            self._found_none()
        self._last_look_s = now
        if self._open_until_s is None:
            self._open_until_s = self._context.monotonic() + self._settled_s
        is_opening = now < self._open_until_s
        self._take(self._in_order(settled, is_opening=is_opening))
        if self._context.once and not (self._watched and is_opening):
            self._finish()

    def _next_look_s(self) -> float:
        """Time of the next check."""
        if self._backlog and not self._is_incomplete:
            return self._last_look_s + self._settled_s
        return self._next_settled_s() if self._watched and (self._context.once or self._is_incomplete) else -math.inf

    def _next_settled_s(self) -> float:
        """Return the first time after the last check at which a check can find a file settled."""
        times = [seen.since_s + self._settled_s for seen in self._watched.values()]
        if self._open_until_s is not None and self._watched:
            times.append(self._open_until_s)
        return min((time for time in times if time > self._last_look_s), default=math.inf)

    def _in_order(self, settled: list[SettledFile], *, is_opening: bool) -> list[SettledFile]:
        """Return the settled files that are input now. While files of the first check can settle, the others wait for
        those before them, by path.
        """
        has_settled = {file.path for file in settled}
        young = [path for path in self._watched.keys() - has_settled if path not in self._consumed]
        self._is_incomplete = is_opening and bool(young)
        if not self._is_incomplete:
            return settled
        first = min(map(os.fsencode, young))
        return [file for file in settled if os.fsencode(file.path) < first]

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

    def _has_settled(self, path: str, status: os.stat_result, now: float, stamps: StampedHere) -> bool:
        """`now` is before the check began: what is found was the state of the file then or later."""
        found = FileStat.of(status)
        if path in self._consumed and self._is_as_known(path, found):
            self._consumed_stats[path] = found
            return False
        seen = self._watched.get(path)
        if seen is None or seen.stat != found:
            first_s = now if seen is None else seen.first_s
            age_s = self._context.age_s(changed_s(status)) if stamps.covers(path, status) else 0.0
            # In this order: a process that is paused between the two calls takes the file for younger than it is.
            self._watched[path] = _Seen(found, self._context.monotonic() - age_s, first_s)
            if self._settled_s > 0 and path in self._consumed and seen is not None and now - first_s >= self._settled_s:
                self._say_ignored(path, "was read before and is being written to again")  # It may never settle.
        return self._settled_s == 0 or now >= self._watched[path].since_s + self._settled_s

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
            del self._watched[file.path]
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
        if self._context.once and not had_some and not self._may_be_empty:
            raise FileNotFoundError(
                f"{words}, and none ever did; where that is fine, say FileSpout(…, may_be_empty=True)"
            )
        if self._path not in self._said:
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
