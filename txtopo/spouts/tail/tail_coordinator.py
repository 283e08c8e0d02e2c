"""The coordinator half of TailSpout: which growing files there are, which of them is the one that was planned before,
and which whole lines are new in it.

It decides by the last ranges and the files alone. What it remembers of earlier looks says how old bytes are, and saves
it from reading an archive again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from txtopo.core.os_errors import is_gone
from txtopo.errors import BatchDataError
from txtopo.spouts.codecs import CODEC_ENDINGS, ArchiveError, codec_of
from txtopo.spouts.file_fields import FileFields
from txtopo.spouts.formats.format import Opened
from txtopo.spouts.formats.line_format import LineFormat
from txtopo.spouts.formats.lines.line_windows import LineTooLongError
from txtopo.spouts.matching_files import why_none
from txtopo.spouts.partitioned import NOTHING
from txtopo.spouts.stamped_here import StampedHere, changed_s
from txtopo.spouts.tail.growth import Growth
from txtopo.spouts.tail.identity import found_files, same_inode
from txtopo.spouts.tail.log_file import ChangingError, LogFile, Range, open_log, planned_range, whole_lines
from txtopo.spouts.unpacked_file import UNKNOWN_BYTES
from txtopo.topology.components import SpoutContext

GONE_KEPT = 20
"""Number of files that are remembered after they have disappeared, so that one that comes back is known."""

ARCHIVES_MAX = 10_000
"""Number of findings about archives that are kept; then all are found again."""
LOOKS_MAX = 5
"""Number of times that files are looked for again immediately, if they are renamed meanwhile."""


class Source(Protocol):
    """The settings of a TailSpout."""

    path: str
    rotated: tuple[str, ...]
    file_fields: FileFields
    format: LineFormat
    bytes_per_batch: int
    settled_s: float
    rotated_s: float
    on_truncate: Literal["halt", "new"]


@dataclass(frozen=True, slots=True)
class _LogFound:
    """A file that exists at this look."""

    path: str
    status: os.stat_result
    is_live: bool
    """False for a file to which nobody appends any more: it was rotated."""

    @property
    def place(self) -> tuple[int, int]:
        return self.status.st_dev, self.status.st_ino

    @property
    def state(self) -> tuple[int, ...]:
        """Return what changes when somebody writes to it."""
        status = self.status
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    @property
    def is_compressed(self) -> bool:
        return codec_of(self.path) is not None


@dataclass(slots=True)
class _Look:
    """The files of one look, and which partition each of them continues."""

    now_s: float
    found: list[_LogFound]
    by_name: dict[str, _LogFound] = field(default_factory=dict)
    taken: set[tuple[int, int]] = field(default_factory=set)
    """Places of the files in `by_name`, and of copies of them."""
    waiting: set[str] = field(default_factory=set)
    """Partitions of which nobody knows yet whether a file continues them."""
    wait_s: float = math.inf
    """Seconds until the next look can find more in these files."""

    def take(self, name: str, found: _LogFound) -> None:
        self.by_name[name] = found
        self.taken.add(found.place)

    @property
    def free(self) -> list[_LogFound]:
        return [found for found in self.found if found.place not in self.taken]

    def wait(self, seconds: float) -> None:
        self.wait_s = min(self.wait_s, seconds)


class TailCoordinator:
    """Implements `NamedCoordinator`. A partition is a file, wherever it is moved to."""

    def __init__(self, source: Source, context: SpoutContext) -> None:
        self._source = source
        self._context = context
        self._ranges: dict[str, Range] = {}
        """New lines by partition, as the last look found them."""
        self._gone: frozenset[str] = frozenset()
        self._wait_s = math.inf
        self._growth: dict[tuple[int, int], Growth] = {}
        self._seen: dict[str, _LogFound] = {}
        """File of each partition when it was last seen: its name and its inode may be those of another file later."""
        self._ends: dict[str, int] = {}
        """Size of each partition's file when it was last seen."""
        self._archives: dict[tuple[Any, ...], Any] = {}
        """What reading an archive found; one that was not written to since is not read again for that."""
        self._stamps = StampedHere()
        self._first: dict[tuple[int, int], int] | None = None
        """In a `--once` run: size of each file at the first look, which is the input of the run."""
        self._absent: frozenset[str] = frozenset()
        """Partitions without a file at the last look: one that has their inode now is another."""
        self._said: set[str] = set()

    def is_ready(self) -> bool:
        return True

    def close(self) -> None:
        self._ranges.clear()

    def partition_names(self, known: Mapping[str, Any]) -> Sequence[str]:
        for _ in range(LOOKS_MAX - 1):
            try:
                return self._names(known)
            except ChangingError:
                continue  # Rotated during the look.
        return self._names(known)

    def _names(self, known: Mapping[str, Any]) -> Sequence[str]:
        look = self._look()
        planned = {name: last for name, last in known.items() if last is not None}
        self._recognize(look, planned)
        self._explain_missing(look, planned)
        self._ranges = {}
        for name, found in list(look.by_name.items()):
            self._cut(look, name, found, planned[name])
        # What may be a copy of another new file is known as that when the other one is planned.
        new = list(self._unknown(look, planned))
        late = [found for found in new if not found.is_live and (found.is_compressed or self._quiet_in_s(look, found))]
        count = len(self._ranges)
        for found in new:
            if found not in late:
                self._cut(look, "", found, None, known)
        for found in late if len(self._ranges) == count else ():
            self._cut(look, "", found, None, known)
        self._wait_s = look.wait_s
        return list(self._ranges)

    def next_range(self, partition: str, last: Any) -> Any:
        found = self._ranges.get(partition)
        start = 0 if last is None else last["end"]
        return found if found is not None and found["start"] == start else NOTHING

    def is_gone(self, partition: str, last: Any) -> bool:
        return partition in self._gone

    def is_exhausted(self) -> bool:
        return self._wait_s == math.inf

    def ready_in_s(self) -> float:
        return self._wait_s

    # ------------------------------------------------------------------------------------------------ what exists now

    def _look(self) -> _Look:
        source = self._source
        rotated = [found for pattern in source.rotated for found in found_files(pattern)]
        not_live = {path for path, _ in rotated}
        live = [found for found in found_files(source.path) if found[0] not in not_live]
        files: dict[tuple[int, int], _LogFound] = {}
        for found in (
            *(_LogFound(path, status, codec_of(path) is None) for path, status in live),
            *(_LogFound(path, status, False) for path, status in rotated),
        ):
            files.setdefault(found.place, found)  # A file may have two names.
        look = _Look(self._context.monotonic(), list(files.values()))
        if not files:
            self._found_none()
        if self._first is None and self._context.once:
            self._first = {found.place: found.status.st_size for found in look.found}
        self._note_growth(look)
        return look

    def _note_growth(self, look: _Look) -> None:
        self._stamps = StampedHere()
        found = {found.place for found in look.found}
        if len(self._archives) > ARCHIVES_MAX:
            self._archives.clear()
        self._growth = {place: growth for place, growth in self._growth.items() if place in found or growth.is_renamed}
        for one in look.found:
            self._grow(look.now_s, one)

    def _grow(self, now_s: float, found: _LogFound, *, is_renamed: bool = False) -> None:
        status = found.status
        age_s = self._context.age_s(changed_s(status)) if self._stamps.covers(found.path, status) else 0.0
        growth = self._growth.get(found.place) or Growth(status.st_size, now_s - age_s)
        growth.is_renamed = is_renamed
        growth.look(status.st_size, now_s - age_s, now_s, self._source.settled_s)
        self._growth[found.place] = growth

    def _quiet_in_s(self, look: _Look, found: _LogFound) -> float:
        """Return after how many seconds a rotated file counts as complete; 0: it does."""
        return max(0.0, self._growth[found.place].since_s + self._source.rotated_s - look.now_s)

    def _found_none(self) -> None:
        why = why_none(self._source.path)
        words = f"no file matches {self._source.path!r}{f' ({why})' if why else ''}"
        if self._context.once and not self._ends and self._context.previous is None:
            raise FileNotFoundError(words)
        self._say(words)

    # ------------------------------------------------------------------------------------ which file is which partition

    def _recognize(self, look: _Look, planned: Mapping[str, Range]) -> None:
        """Find the file of each partition: first where it was, by device and inode, then by its content."""
        places = {found.place: found for found in look.found}
        for name, last in reversed(list(planned.items())):  # Of two in one place, the newer one can be there.
            place = self._place_of(name, last)
            found = places.get(place) or self._renamed(look, last, place)
            if found is not None and found.place not in look.taken and self._continues(found, name, last):
                look.take(name, found)
        # A file with all that was read of one partition also begins like a partition of which less was read.
        for name, last in sorted(planned.items(), key=lambda item: -int(item[1]["end"])):
            if name in look.by_name:
                continue
            _, inode = self._place_of(name, last)
            for found in look.free:
                if found.is_live and found.status.st_ino != inode:
                    continue  # A log that begins like another one. The device alone changes if it is mounted again.
                is_same = self._continues(found, name, last)
                if is_same:
                    look.take(name, found)
                    break
                if is_same is None and not found.is_live and (seconds := self._quiet_in_s(look, found)):
                    look.waiting.add(name)
                    look.wait(seconds)

    def _place_of(self, name: str, last: Range) -> tuple[int, int]:
        """Return device and inode of the file of a partition when it was last seen, which may be an archive since then;
        as they were planned if it was not.
        """
        seen = self._seen.get(name)
        return (last["device"], last["inode"]) if seen is None else seen.place

    def _renamed(self, look: _Look, last: Range, place: tuple[int, int]) -> _LogFound | None:
        """Return the file of a range that has a name now by which nobody looks for it."""
        for path in same_inode(last["path"], place[1]):
            try:
                status = os.stat(path)  # noqa: PTH116
            except FileNotFoundError:
                continue
            if (status.st_dev, status.st_ino) == place:
                found = _LogFound(path, status, is_live=False)
                self._grow(look.now_s, found, is_renamed=True)
                return found
        return None

    def _continues(self, found: _LogFound, name: str, last: Range) -> bool | None:
        """Return True if the file is the one of a partition; None if it agrees as far as it goes."""
        head = (*found.state, last["head"])
        key = (*head, last["head_sha256"], last["end"], last["tail_sha256"])
        if key in self._archives:
            known: bool | None = self._archives[key]
            return known
        if self._archives.get(head, last["head_sha256"]) != last["head_sha256"]:
            return False
        try:
            with self._opened(found) as log:
                same = log.continues(last)
                if found.is_compressed:
                    self._archives[head] = log.sha256(0, last["head"])
        except ArchiveError:
            same = None
        if found.is_compressed:
            self._archives[key] = same
        return same

    @contextmanager
    def _opened(self, found: _LogFound) -> Iterator[LogFile]:
        """Yield a file that was found. Raises ChangingError if it has another name now, or was truncated."""
        try:
            with open_log(found.path) as log:
                status = log.status
                if (status.st_dev, status.st_ino) != found.place or status.st_size < found.status.st_size:
                    raise ChangingError(f"{found.path}: the file was replaced or truncated while it was looked for")
                yield log
        except OSError as error:
            if isinstance(error, ChangingError) or not is_gone(error):
                raise
            raise ChangingError(f"{found.path}: the file was renamed while it was looked for") from error

    def _explain_missing(self, look: _Look, planned: Mapping[str, Range]) -> None:
        """Halt, or say so, for a partition whose file was truncated, or has gone before it was read to its end."""
        missing = [name for name in planned if name not in look.by_name and name not in look.waiting]
        free = {found.place: found for found in look.free}
        for name in missing:
            last = planned[name]
            found = free.get(self._place_of(name, last))
            if found is not None and name not in self._absent and self._stood_at(found.path, name, planned):
                self._lost(
                    name,
                    f"{found.path}: the log was truncated or replaced: bytes to {last['end']} of it were read, and now "
                    f"it has {found.status.st_size} others",
                )
            elif self._ends.get(name, 0) > last["end"]:
                unread = self._ends[name] - last["end"]
                self._lost(name, f"{last['path']}: the log has gone, and {unread} bytes at its end were not read")
        self._gone = frozenset(missing[:-GONE_KEPT])
        self._absent = frozenset(missing)
        seen = {name: found for name, found in self._seen.items() if name in planned}
        self._seen = {**seen, **look.by_name}

    def _stood_at(self, path: str, name: str, planned: Mapping[str, Range]) -> bool:
        """Return True if the partition's file was the log at this path. Otherwise its inode is used again: a file that
        was removed after its rotation leaves it to the next one that is made, often immediately.
        """
        if name in self._seen:
            return self._seen[name].is_live and self._seen[name].path == path
        newest = [other for other, last in planned.items() if last["path"] == path]
        return newest[-1:] == [name]

    def _lost(self, name: str, words: str) -> None:
        if self._source.on_truncate == "halt" and name not in self._said:
            raise BatchDataError(
                f"{words}; what stood there and was not read is lost. To continue with what is there now, set "
                f"on_truncate='new'",
                component=self._context.spout,
            )
        self._ends.pop(name, None)
        self._say(f"{words}; continuing with what is there now", name)

    def _unknown(self, look: _Look, planned: Mapping[str, Range]) -> Iterator[_LogFound]:
        """Yield files that continue no partition, and are no copy of one."""
        for found in look.free:
            if self._first is not None and found.place not in self._first:
                continue  # It came after the run began.
            if not found.is_live and self._may_be_copy(look, found, planned):
                continue
            yield found

    def _may_be_copy(self, look: _Look, found: _LogFound, planned: Mapping[str, Range]) -> bool:
        """Return True for a rotated file with the content of a partition that is elsewhere, or what may become one:
        copytruncate and gzip leave two files for a while.
        """
        for name, last in planned.items():
            original = look.by_name.get(name)
            if original is not None and not found.is_compressed and not original.is_live:
                continue  # Two rotated files that begin alike: nothing copies one without compressing it.
            is_same = self._continues(found, name, last)
            if is_same is False:
                continue
            if seconds := self._quiet_in_s(look, found):
                look.wait(seconds)
                return True
            if original is not None and self._is_start_of(found, original, is_same=is_same is True):
                self._say(f"{found.path}: all of it is the beginning of {original.path}: regarded as a copy, not read")
                return True
        return False

    def _is_start_of(self, found: _LogFound, original: _LogFound, *, is_same: bool) -> bool:
        """Return True if all of one file is the beginning of another. `is_same`: it has at least what was read of that.

        What follows what was read counts, too: a log that only begins like another one is no copy.
        """
        key = (*found.state, *original.place)
        if self._archives.get(key) == "copy":
            return True  # Nobody wrote to it, and the other one only grows.
        # An archive may be so damaged that nothing of it can be read.
        likely = is_same or found.path.removeprefix(original.path) in CODEC_ENDINGS
        with self._opened(found) as log, self._opened(original) as other:
            size, sha256, is_whole = log.readable()
            try:
                is_start = likely if not size and not is_whole else other.sha256(0, size) == sha256
            except ArchiveError:
                is_start = likely
        if is_start:
            self._archives[key] = "copy"
        return is_start

    # ---------------------------------------------------------------------------------------------- what is new in it

    def _cut(
        self, look: _Look, name: str, found: _LogFound, last: Range | None, known: Mapping[str, Any] | None = None
    ) -> None:
        """Find the next whole lines of a file; a new one gets a name."""
        start, line = (0, 1) if last is None else (last["end"], last["line"] + last["lines"])
        limit, to_its_end = self._limit(look, found, start)
        if name:
            self._ends[name] = 0 if found.is_compressed else found.status.st_size
        key = (*found.state, start)
        if limit <= start or self._archives.get(key) == "read":
            return
        try:
            with self._opened(found) as log:
                lines = whole_lines(log, start, limit, self._source.bytes_per_batch, to_its_end=to_its_end)
                if lines is None:
                    if found.is_compressed:
                        self._archives[key] = "read"
                    elif self._first is not None and found.is_live and limit >= self._first.get(found.place, 0):
                        self._say(f"{found.path}: its last line has no end yet: left for the next run")
                    return
                entry = planned_range(log, start, line, lines)
                if last is None:
                    entry |= self._described(log, lines.end)
                    name = _name_of(entry, known or {}, self._ranges)
                self._ranges[name] = entry
        except (ArchiveError, LineTooLongError) as error:
            raise self._refused(found.path, f"{error}", line) from error

    def _limit(self, look: _Look, found: _LogFound, start: int) -> tuple[int, bool]:
        """Return up to where a file may be read now, and whether its last line is complete without an end."""
        size = found.status.st_size
        if found.is_compressed:
            seconds = self._quiet_in_s(look, found)
            if seconds and self._archives.get((*found.state, start)) != "read":
                look.wait(seconds)
            return (0 if seconds else UNKNOWN_BYTES), True
        if not found.is_live and not self._quiet_in_s(look, found):
            return size, True
        growth = self._growth[found.place]
        limit = growth.settled
        if self._first is not None and found.is_live:
            size = min(size, self._first.get(found.place, size))
            limit = min(limit, size)
        if limit < size:
            look.wait(growth.wait_s(look.now_s, self._source.settled_s))
        if not found.is_live and start < size:
            look.wait(self._quiet_in_s(look, found))
        return limit, False

    def _described(self, log: LogFile, end: int) -> Mapping[str, Any]:
        """Return what the format says of the start of a new file."""
        start = b"".join(log.chunks(0, min(end, 1024 * 1024)))
        try:
            self._source.file_fields.check_file(log.path, log.status.st_mtime_ns)
            described = self._source.format.describe(
                Opened(log.path, log.read_at, end, start), self._source.file_fields.within
            )
        except ValueError as error:
            raise self._refused(log.path, f"{error}", 1) from error
        return {"data": described["data"]}

    def _refused(self, path: str, words: str, line: int) -> BatchDataError:
        return BatchDataError(f"{path}: {words}", component=self._context.spout, position=f"{path}:{line}")

    def _say(self, words: str, about: str | None = None) -> None:
        if (about or words) not in self._said:
            self._said.add(about or words)
            self._context.say(words)


def _name_of(entry: Range, *taken: Mapping[str, Any]) -> str:
    """Return a new name for the file of a first range, which no other partition has."""
    plain = f"{entry['device']:x}:{entry['inode']:x}:{entry['head_sha256'][:12]}"
    name, number = plain, 1
    while any(name in names for names in taken):
        number += 1
        name = f"{plain}:{number}"
    return name
