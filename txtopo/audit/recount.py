"""Recounts one batch from its source files with plain Python: content, records, counts and exact aggregates by key."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import localcontext
from io import BytesIO
from operator import itemgetter
from types import MappingProxyType
from typing import Any, BinaryIO
from zoneinfo import ZoneInfo

from txtopo.audit.objects import PlannedObject, ReplacedError
from txtopo.audit.range_files import LostError, OtherBytesError, planned_lines, ranges_of
from txtopo.audit.readers.kafka_reader import NoRangeError, RangeReader
from txtopo.audit.readers.known_readers import RANGE_READERS, READERS, PlannedReader
from txtopo.audit.readers.reader import HashedFile, NotAsPlannedError, NotDecodedError, Read, TooLongError
from txtopo.audit.readers.table_reader import OtherRangeError
from txtopo.audit.readers.text_values import WIDE
from txtopo.audit.recount_rejects import Judged, Kept, KeptReject
from txtopo.audit.unpacking import DamagedError, NoDecoderError
from txtopo.core.fields import parse_fields
from txtopo.core.positions import Unit
from txtopo.errors import TopologyError
from txtopo.reports.stored_description import CommitterTables

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
RejectsOf = Callable[[str], Iterator[KeptReject]]
"""Path -> its stored rejected records, in the order of their lines."""
_EPOCH_DAY = datetime(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000
Totals = dict[tuple[Any, ...], list[Any]]
"""Key -> count, then aggregates."""


class UnreadableError(Exception):
    """A file or a plan cannot be read: nothing is known."""


class ChangedError(Exception):
    """A file is not as planned."""


class UnknownSourceError(Exception):
    """This audit has no reader for this kind of source."""


@dataclass(slots=True, kw_only=True)
class Recounted:
    """The content of one batch's files."""

    files: int = 0
    records: int = 0
    """All records, including those that do not parse."""
    judged: Judged = field(default_factory=Judged)
    """Records that were rejected, or should have been."""
    dead: int = 0
    """Records that are dead letters, which are counted nowhere."""
    first_rejected: str | None = None
    """`file:line: reason` of the first record that does not parse under the plan's schema."""


class Counter:
    """Counts and aggregates of one committer over one batch."""

    def __init__(self, committer: CommitterTables, names: Sequence[str]) -> None:
        plain = committer.keys[: len(committer.keys) - len(committer.windows) - len(committer.cells)]
        self._cells = [names.index(one.field) for one in committer.cells]
        self._windows = [(names.index(one.field), one.width_us, one.zone) for one in committer.windows]
        at = [names.index(name) for name in plain]
        self._key: Callable[[Sequence[Any]], Any] = itemgetter(*at) if at else lambda _: ()
        self._single = len(at) == 1
        self._aggregates = [(one.kind, names.index(one.field)) for one in committer.aggregates]
        self._empty = [0, *(0 if one.is_added else None for one in committer.aggregates)]
        self.committer = committer
        self.totals: Totals = {}

    def add(self, row: Sequence[Any]) -> None:
        """Add one record."""
        key = (self._key(row),) if self._single else self._key(row)
        for index, width_us, zone in self._windows:
            key = (*key, _days(row[index], width_us, zone) if zone else _window(row[index], width_us))
        for index in self._cells:
            key = (*key, _cell(row[index]))
        total = self.totals.get(key)
        if total is None:
            total = self.totals[key] = [*self._empty]
        total[0] += 1
        for at, (kind, index) in enumerate(self._aggregates, 1):
            value = row[index]
            if value is None:
                continue
            known = total[at]
            if kind == "sum":
                total[at] += value
            elif kind == "count":
                total[at] += 1
            elif known is None or (value < known if kind == "min" else value > known):
                total[at] = value


def _window(moment: datetime | None, width_us: int) -> datetime | None:
    """Return when the window of this moment begins."""
    if moment is None:
        return None
    since = moment - datetime(1970, 1, 1, tzinfo=moment.tzinfo and UTC)
    return moment - since % timedelta(microseconds=width_us)


def _days(moment: datetime | None, width_us: int, zone: str) -> datetime | None:
    """Return the first of the local days that this moment is in, at midnight without a zone."""
    if moment is None:
        return None
    day = moment.astimezone(ZoneInfo(zone)).toordinal()
    return datetime.fromordinal(day - (day - _EPOCH_DAY) % (width_us // _DAY_US))


def _cell(value: str | bytes | int | None) -> int | None:
    """Return the cell of a value in a sketch of 4,096 registers: register times 64, plus the place of the first 1 of
    the 52 bits that follow, 53 if there is none.
    """
    if value is None:
        return None
    text = value if isinstance(value, bytes) else str(value).encode()
    bits = f"{int(hashlib.sha256(text).hexdigest()[:16], 16):064b}"
    return int(bits[:12], 2) * 64 + (bits[12:] + "1").index("1") + 1


def recount(
    metadata: Mapping[str, Any],
    committers: Sequence[CommitterTables],
    rejects: RejectsOf,
    dead: Mapping[str, frozenset[int]] = MappingProxyType({}),
) -> tuple[Recounted, list[Totals]]:
    """Recount all files of one spout's metadata; returns totals for each of the committers, which read the spout
    directly. Rejected records and dead letters are counted nowhere; `dead` has the lines of the dead letters by path.

    Raises ChangedError, UnreadableError, UnknownSourceError.
    """
    if not isinstance(metadata, Mapping) or "format" not in metadata:
        raise UnknownSourceError("there is no independent recount of this kind of spout")
    kind = "unknown kind"
    try:
        layout = metadata["format"]
        kind = layout["kind"]
        if kind not in READERS and kind not in RANGE_READERS:
            raise UnknownSourceError(f"sources of kind {kind!r} are not recounted")
        planned = parse_fields(metadata["schema"])
        counters = [Counter(committer, planned.names) for committer in committers]
        if kind in RANGE_READERS:
            partitions = _Recounter(counters, rejects, dead)
            reader = RANGE_READERS[kind](layout, planned)
            with localcontext(WIDE):
                for name, span in spans_of(metadata).items():
                    partitions.read(reader, name, span)
            return partitions.recounted, [counter.totals for counter in counters]
        recounter = _FileRecounter(PlannedReader(layout, planned), metadata.get("headers", ()), counters, rejects, dead)
        with localcontext(WIDE):
            if "partitions" in metadata:
                for lines in ranges_of(metadata):
                    recounter.read_lines(lines, metadata["rotated"])
            else:
                for file in metadata["files"]:
                    recounter.read_file(file)
    except (LookupError, TypeError, ValueError, AttributeError, TopologyError) as error:
        raise UnknownSourceError(f"its plan is not that of {kind} files ({type(error).__name__}: {error})") from error
    return recounter.recounted, [counter.totals for counter in counters]


def spans_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ranges of a batch by the name of their partition. Raises KeyError, TypeError or ValueError."""
    both = zip(metadata["names"], metadata["partitions"], strict=True)
    return {str(name): entry["range"] for name, entry in both if "range" in entry}


class _Recounter:
    """Counts the records of one batch."""

    def __init__(self, counters: list[Counter], rejects: RejectsOf, dead: Mapping[str, frozenset[int]]) -> None:
        self._counters = counters
        self._rejects = rejects
        self._dead = dead
        self.recounted = Recounted()

    def read(self, reader: RangeReader, name: str, span: Mapping[str, Any]) -> None:
        """Read one range of a partition."""
        try:
            self._count(name, reader.read(name, span), reader.unit)
        except NoRangeError as error:
            raise UnreadableError(str(error)) from error
        except OtherRangeError as error:
            raise ChangedError(str(error)) from error
        self.recounted.files += 1

    def _count(self, path: str, reads: Iterator[Read], unit: Unit) -> None:
        kept = Kept(path, self._rejects(path), self.recounted.judged, unit)
        dead = self._dead.get(path, frozenset())
        try:
            for read in reads:
                self._take(read, kept, dead)
        except NotAsPlannedError as error:
            self.recounted.judged.wrong.add(str(error))
        kept.end()

    def _take(self, read: Read, kept: Kept, dead: frozenset[int]) -> None:
        self.recounted.records += 1
        if read.reason is not None and self.recounted.first_rejected is None:
            self.recounted.first_rejected = f"{kept.place_of(read.number)}: {read.reason}"
        if (read.reason is not None or kept.number <= read.number) and not kept.judge(read):
            return
        if read.number in dead:
            self.recounted.dead += 1
            return
        for counter in self._counters:
            counter.add(read.values)


class _FileRecounter(_Recounter):
    """Reads the files of one batch."""

    def __init__(
        self,
        reader: PlannedReader,
        headers: Sequence[Any],
        counters: list[Counter],
        rejects: RejectsOf,
        dead: Mapping[str, frozenset[int]],
    ) -> None:
        super().__init__(counters, rejects, dead)
        self._reader = reader
        self._headers = headers

    def read_file(self, file: Mapping[str, Any]) -> None:
        """Read one file in one pass: the bytes that are hashed are those that are counted."""
        path = str(file["path"])
        number = file.get("header")
        planned = file if number is None else {**file, "header": self._headers[number]}
        try:
            with _open(file) as opened:
                hashed = HashedFile(opened, file.get("codec"))
                try:
                    self._count(path, self._reader.read(planned, hashed), self._reader.unit)
                except NoDecoderError as error:
                    raise UnknownSourceError(f"{path}: {error}") from error
                except (TooLongError, DamagedError, NotDecodedError) as error:
                    hashed.skip()
                    if hashed.sha256 == _planned_hash(file, hashed):
                        raise UnreadableError(f"{path}: {error}") from error
                hashed.skip()
        except OSError as error:
            raise UnreadableError(f"{path} cannot be read: {error.strerror or error}") from error
        except ReplacedError as error:
            raise ChangedError(f"{path} has changed: planned with tag {file['etag']}; {error}") from error
        size, sha256 = file["size"], _planned_hash(file, hashed)
        if (hashed.size, hashed.sha256) != (size, sha256):
            raise ChangedError(
                f"{path} has changed: planned {size} bytes with sha256 {sha256}, now {hashed.size} "
                f"bytes with sha256 {hashed.sha256}"
            )
        self.recounted.files += 1

    def read_lines(self, planned: Mapping[str, Any], rotated: Sequence[str]) -> None:
        """Read a range of a growing file."""
        path = str(planned["path"])
        try:
            data = planned_lines(planned, rotated)
        except OtherBytesError as error:
            raise ChangedError(str(error)) from error
        except LostError as error:
            raise UnreadableError(str(error)) from error
        except OSError as error:
            raise UnreadableError(f"{path} cannot be read: {error.strerror or error}") from error
        if planned["start"] and data.startswith(BYTE_ORDER_MARK):
            data = BYTE_ORDER_MARK + data  # A mark is one at the start of a file alone.
        file = {"path": path, "first_line": planned["line"], "mtime_ns": planned["mtime_ns"]}
        try:
            self._count(path, self._reader.read(file, HashedFile(BytesIO(data))), self._reader.unit)
        except TooLongError as error:
            raise UnreadableError(f"{path}: {error}") from error
        self.recounted.files += 1


def _planned_hash(file: Mapping[str, Any], hashed: HashedFile) -> str:
    """Return the hash in the plan. The bytes of an object have none: every request for them names its tag."""
    return hashed.sha256 if "etag" in file else str(file["sha256"])


def _open(file: Mapping[str, Any]) -> BinaryIO | PlannedObject:
    """Open a regular file, or an object; never waits for a writer of a FIFO."""
    if "etag" in file:
        return PlannedObject(file)
    path = str(file["path"])
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    opened = os.fdopen(descriptor, "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        opened.close()
        raise OSError(0, "no regular file", path)
    return opened


def same_totals(counted: Totals, stored: Mapping[tuple[Any, ...], Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return the keys whose numbers differ, or that one side does not have."""
    return [
        key
        for key in {**counted, **stored}
        if key not in counted or key not in stored or list(counted[key]) != list(stored[key])
    ]
