"""Selects the files of a folder or a pattern that are input now: settled, never planned before, in the order of their
paths.

A file has settled when two checks found it equal, `settled_s` seconds apart by the monotonic clock of the driver; or
when its time stamps are so old, of this machine's clock, and nobody has it open for writing: then one check is enough.
The last matters because a stamp is made when a write begins. A stamp in the future, or of another machine's clock, has
no age.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from txtopo.core.os_errors import is_gone
from txtopo.spouts.consumed_files import ConsumedFiles
from txtopo.spouts.file_states import keys_of
from txtopo.spouts.fingerprint import FileStat
from txtopo.spouts.matching_files import PassOver
from txtopo.spouts.open_for_writing import may_be_open_for_writing
from txtopo.spouts.places.place import FilePlace, Found, Stamps
from txtopo.spouts.stamped_here import changed_s
from txtopo.topology.components import SpoutContext
from txtopo.topology.consumed_inputs import PATHS_PER_READ

LOOK_PAUSE = 10
"""The next check begins this many times later than the last two took, the shorter one of them: the planner must not
spend its time on listing a large folder; but one check that was held up, by a file server for example, says nothing of
the next one. After the first check, which alone reads the metadata of all counted files, it begins as much later as
that took.
"""
LOOK_SHORT_S = 0.05
"""A check that took less than this needs no such pause, unless files wait to be planned."""
ASKED_MIN = 200
"""Of fewer unknown files in a folder the metadata are read before the ledger is asked, for many folders together."""
BEFORE_S = 0.1
"""A file is unchanged since the first check if it last changed more than this before: the clocks may differ by less."""


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
    is_consumed: bool
    """True if it was input before, and has changed."""
    has_changed: bool
    """True if two checks found it in different states."""


@dataclass(slots=True)
class _Check:
    """One check of the source."""

    now: float
    """Time before it began: what it finds was the state of a file then or later."""
    known: set[str]
    """Files of the backlog."""
    stamps: Stamps
    asked: dict[str, bool] = field(default_factory=dict)
    """Files whose metadata are read next -> whether they were input before."""
    found: int = 0
    watched: set[str] = field(default_factory=set)
    settled: list[SettledFile] = field(default_factory=list)


class FileWatch:
    """Checks the source repeatedly and keeps a backlog of settled files. Used by one thread."""

    def __init__(
        self, place: FilePlace, settled_s: float, context: SpoutContext, *, may_be_empty: bool = False
    ) -> None:
        """Create a watch. Unless `may_be_empty`, a `once` run that finds no file at a path that never had one ends with
        FileNotFoundError.
        """
        self._place = place
        self._may_be_empty = may_be_empty
        self._settled_s = 0.0 if place.appears_whole else settled_s
        self._context = context
        self._consumed = ConsumedFiles(context)
        self._watched: dict[str, _Seen] = {}
        self._said: set[str] = set()
        self._backlog: deque[SettledFile] = deque()
        self._open_until_s: float | None = None
        """Files of the first check have settled by then, unless they change."""
        self._first_look_s = -math.inf
        """When the first check began, even if it failed."""
        self._last_look_s = -math.inf
        self._look_took_s = self._pause_s = 0.0
        self._looks_done = False
        """True, in a `once` run, if the folder is not checked again. Then only files that were put back are watched."""
        self._put_back: set[str] = set()
        """In a `once` run: files that had settled, and changed while they waited for their batch."""
        self._is_incomplete = False

    def next_files(self, count: int) -> list[SettledFile]:
        """Return the first settled files by path, at most `count`."""
        return list(islice(self._backlog, count))

    @property
    def is_exhausted(self) -> bool:
        """True, in a `once` run, if the last check is over and its files are planned."""
        return self._looks_done and not self._backlog and not self._watched

    @property
    def is_incomplete(self) -> bool:
        """True while files of the first check may still settle. Until then no batch ends with the last settled file, so
        that the same files always make the same batches.
        """
        return self._is_incomplete

    def ready_in_s(self) -> float:
        """Return after how many seconds another check may find a file settled; infinity if no file is about to."""
        next_s = self._next_again_s() if self._looks_done else max(self._next_settled_s(), self._next_look_s())
        return max(0.0, next_s - self._context.monotonic())

    def look(self) -> None:
        """Check the source, unless there is a backlog from a recent check, or a check can find nothing that matters.

        A `once` run checks again only for the files of its first check that have not settled, at most `settled_s`
        seconds later, and for those that are put back.
        """
        now = self._context.monotonic()
        if self._looks_done:
            self._look_again(now)
            return
        if now < self._next_look_s():
            return
        check = _Check(now=now, known={file.path for file in self._backlog}, stamps=self._place.stamps())
        self._first_look_s = now if self._first_look_s == -math.inf else self._first_look_s
        self._consumed.begin()
        unknown: list[Found] = []
        for path, status in self._place.find(self._passing_over(check)):
            check.found += 1
            if path in self._watched:
                self._consider(path, status, check, is_consumed=self._watched[path].is_consumed)
            elif path in check.asked:
                self._consider(path, status, check, is_consumed=check.asked.pop(path))
            elif path not in check.known and not self._is_unchanged(path, status, check):
                unknown.append((path, status))
            if len(unknown) >= PATHS_PER_READ:
                self._consider_all(unknown, check)
        self._consider_all(unknown, check)
        # Only now: if something cannot be read, the files that had settled do not have to settle again.
        for gone in self._watched.keys() - check.watched:
            seen = self._watched.pop(gone)
            if self._context.once and not seen.is_consumed:
                self._leave(gone, has_changed=True)
        took_s = self._context.monotonic() - now
        is_first = self._open_until_s is None
        self._pause_s = took_s if is_first else LOOK_PAUSE * min(took_s, self._look_took_s)
        self._look_took_s = took_s
        if not check.found:
            self._found_none()
        self._consumed.checked(check.found)
        if self._open_until_s is None:
            self._open_until_s = self._context.monotonic() + self._settled_s
        is_opening = now < self._open_until_s
        self._take(self._in_order(check.settled, is_opening=is_opening))
        self._last_look_s = now  # Only now: a check that failed is made again.
        if self._context.once and not (self._watched and is_opening):
            self._finish()

    def _passing_over(self, check: _Check) -> PassOver:
        """Return what chooses, and counts, the files whose metadata this check need not read: those of the backlog, and
        consumed files that have their turn in another check. It asks the ledger about those that it does not know.
        """
        apart = self._watched.keys() | check.known

        def pass_over(folder: str, paths: Sequence[str], inodes: Sequence[int]) -> Iterable[bool]:
            keys, listed = keys_of(paths), np.fromiter(inodes, np.uint64, len(inodes))
            passed, known = self._consumed.turns(keys, listed)
            for number in [number for number, path in enumerate(paths) if path in apart] if apart else ():
                passed[number], known[number] = paths[number] in check.known, True
            numbers = np.flatnonzero(~known).tolist()
            if len(numbers) < ASKED_MIN:
                for path in (paths[number] for number in numbers if self._consumed.is_unseen(paths[number])):
                    self._consumed.forget(path)  # It replaced the file that was left.
                numbers = []
            new = self._consumed.new_among([paths[number] for number in numbers]) if numbers else set()
            is_left = len(new) < len(numbers) and self._may_leave(folder, check)
            left: list[int] = []
            for number in numbers:
                path = paths[number]
                if is_left and path not in new and self._consumed.may_be_left(path):
                    left.append(number)
                else:
                    check.asked[path] = path not in new
            passed[left] = True
            self._consumed.leave(keys[left], listed[left])
            check.found += int(passed.sum())
            return passed

        return pass_over

    def _may_leave(self, folder: str, check: _Check) -> bool:
        """Return True if the first check need not read the metadata of the consumed files of this folder: their time
        stamps will say whether they changed after it.
        """
        return check.stamps.covers_folder(folder) and self._was_before(0.0)

    def _is_unchanged(self, path: str, status: Any, check: _Check) -> bool:
        """Return True for a consumed file that has not changed since the last check that compared it; if none did,
        since the first check.
        """
        found = self._place.stat_of(status)
        if not self._consumed.is_unseen(path):
            return self._consumed.is_unchanged(path, found)
        is_before = check.stamps.covers(path, status) and self._was_before(changed_s(status))
        if is_before:
            self._consumed.note(path, found)
        return is_before

    def _was_before(self, stamp_s: float) -> bool:
        """Return True if this time was certainly before the first check."""
        age_s = self._context.age_s(stamp_s)
        # In this order: a process that is paused between the two calls takes the time for later than it was.
        return age_s > self._context.monotonic() - self._first_look_s + BEFORE_S

    def _next_look_s(self) -> float:
        """Time of the next check."""
        if self._backlog and not self._is_incomplete:
            return self._last_look_s + max(self._settled_s, self._pause_s, self._place.pause_s)
        if self._watched and (self._context.once or self._is_incomplete):
            return self._next_settled_s()
        pause_s = max(self._pause_s if self._look_took_s > LOOK_SHORT_S else 0.0, self._place.pause_s)
        return self._last_look_s + pause_s if pause_s else -math.inf

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
        young = [path for path, seen in self._watched.items() if not seen.is_consumed and path not in has_settled]
        self._is_incomplete = is_opening and bool(young)
        if not self._is_incomplete:
            return settled
        first = min(map(os.fsencode, young))
        return [file for file in settled if os.fsencode(file.path) < first]

    def consume(self, file: SettledFile, planned: FileStat, fingerprint: bytes) -> None:
        """Remove a file that was `planned` so from the input, permanently."""
        self._backlog.remove(file)
        self._consumed.consume(file.path, planned, fingerprint)

    def redo(self, file: SettledFile, fingerprint: bytes) -> None:
        """Allow the redo to read the file in its current state: it is not reported as changed, and is not input of a
        later batch.
        """
        self._consumed.consume(file.path, file.stat, fingerprint)
        self._watched.pop(file.path, None)

    def put_back(self, file: SettledFile, found: FileStat | None) -> None:
        """Return a file that changed after it had settled: it has to settle again. `found` is its state now; None: it
        has gone. A `once` run waits for that once, for `settled_s` seconds, and then leaves it for the next run.
        """
        self._backlog.remove(file)
        if not self._context.once:
            return  # The next check of the folder finds it.
        if found is None or file.path in self._put_back:
            self._leave(file.path, has_changed=True)
            return
        self._put_back.add(file.path)
        now = self._context.monotonic()
        self._watched[file.path] = _Seen(found, now, now, is_consumed=False, has_changed=True)

    def _look_again(self, now: float) -> None:
        """Check the files that were put back, each `settled_s` seconds later: what had settled when a `once` run began
        is still its input if it changed while it waited for its batch.
        """
        while now >= self._next_again_s():
            path, seen = next(iter(self._watched.items()))
            try:
                is_same = self._place.stat(path) == seen.stat
            except OSError as error:
                if not is_gone(error):
                    raise
                is_same = False
            if is_same:
                self._take([SettledFile(path=path, stat=seen.stat)])
            else:
                del self._watched[path]
                self._leave(path, has_changed=True)

    def _next_again_s(self) -> float:
        """Return when the first of the files that were put back is checked; they are in the order of that time."""
        return next((seen.since_s + self._settled_s for seen in self._watched.values()), math.inf)

    def _consider_all(self, unknown: list[Found], check: _Check) -> None:
        """Look up which of these files were input before, and watch those that are new or have changed."""
        new = self._consumed.new_among([path for path, _ in unknown]) if unknown else set()
        for path, status in unknown:
            self._consider(path, status, check, is_consumed=path not in new)
        unknown.clear()

    def _consider(self, path: str, status: Any, check: _Check, *, is_consumed: bool) -> None:
        if path in check.watched:
            return  # A folder that changes while it is read may give a name twice.
        found, seen = self._place.stat_of(status), self._watched.get(path)
        if is_consumed and (self._consumed.is_unchanged(path, found) or self._consumed.is_as_planned(path, found)):
            self._consumed.note(path, found)
            return
        check.watched.add(path)
        if seen is None or seen.stat != found:
            if seen is not None and self._had_settled(seen):
                self._put_back.add(path)
            first_s = check.now if seen is None else seen.first_s
            age_s = self._context.age_s(changed_s(status)) if check.stamps.covers(path, status) else 0.0
            if age_s > 0 and self._settled_s > 0 and may_be_open_for_writing(path, found):
                age_s = 0.0
            # In this order: a process that is paused between the two calls takes the file for younger than it is.
            since_s = self._context.monotonic() - age_s
            self._watched[path] = _Seen(found, since_s, first_s, is_consumed, has_changed=seen is not None)
            if self._settled_s > 0 and is_consumed and seen is not None and check.now - first_s >= self._settled_s:
                self._say_ignored(path, "was read before and is being written to again")  # It may never settle.
        if self._settled_s == 0 or check.now >= self._watched[path].since_s + self._settled_s:
            check.settled.append(SettledFile(path=path, stat=found))

    def _had_settled(self, seen: _Seen) -> bool:
        """Return True, in a `once` run, for a new file that was settled at the last check, and waited for files before
        it.
        """
        return self._context.once and not seen.is_consumed and self._last_look_s >= seen.since_s + self._settled_s

    def _take(self, settled: list[SettledFile]) -> None:
        consumed = [file for file in settled if self._watched[file.path].is_consumed]
        new = [file for file in settled if not self._watched[file.path].is_consumed]
        if new:
            self._backlog = deque(sorted([*self._backlog, *new], key=lambda file: os.fsencode(file.path)))
        for file in new:
            del self._watched[file.path]
        # Last: this may raise. What was not compared is compared by the next check.
        fingerprints = self._consumed.fingerprints([file.path for file in consumed if file.path not in self._said])
        for file in consumed:
            self._compare(file, None if file.path in self._said else fingerprints[file.path])
            del self._watched[file.path]

    def _compare(self, file: SettledFile, fingerprint: bytes | None) -> None:
        """Handle a changed path that was input before: it is never input again, and is reported once if its content
        differs. `fingerprint`: the one of its last plan; None if a change was reported already.
        """
        differs = False
        if fingerprint is not None:
            try:
                differs = self._place.fingerprint(file.path) != fingerprint
            except OSError as error:
                if not is_gone(error):
                    return  # It is compared again when it has settled again.
        self._consumed.note(file.path, file.stat)
        if differs:
            self._say_ignored(file.path, "was read before and has other content now")

    def _say_ignored(self, path: str, why: str) -> None:
        if path not in self._said:
            self._said.add(path)
            self._context.say(f"{path!r} {why}: ignored, a path is input once")

    def _found_none(self) -> None:
        """Handle a source without files: a path with a typo must not look like a source without new input."""
        if self._place.path in self._said and not self._context.once:
            return
        had_some = self._consumed.any_of(self._place.means)
        why = self._place.why_none()
        words = f"no file matches {self._place.path!r}{f' ({why})' if why else ''}"
        if self._context.once and not had_some and not self._may_be_empty:
            raise FileNotFoundError(
                f"{words}, and none ever did; where that is fine, say FileSpout(…, may_be_empty=True)"
            )
        if self._place.path not in self._said:
            self._said.add(self._place.path)
            self._context.say(f"{words} now; all that did are counted" if had_some else words)

    def _finish(self) -> None:
        self._looks_done = True
        watched = sorted(self._watched.items(), key=lambda item: (item[1].since_s, item[0]))
        self._watched.clear()
        for path, seen in watched:
            if path in self._put_back:
                self._watched[path] = seen
            elif not seen.is_consumed:
                self._leave(path, has_changed=seen.has_changed)

    def _leave(self, path: str, *, has_changed: bool) -> None:
        """Report a file that is no input of this run."""
        if not self._place.exists(path):
            self._context.say(f"{path!r} has gone since it was found: no input of this run")
        else:
            why = "is still changing" if has_changed else "has not settled"
            self._context.say(f"{path!r} {why}: left for the next run")
