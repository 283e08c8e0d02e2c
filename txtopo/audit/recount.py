"""Recounts one batch from its source files with plain Python: content, records, counts and exact aggregates by key."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import localcontext
from operator import itemgetter
from types import MappingProxyType
from typing import Any, BinaryIO

from txtopo.audit.recount_records import CsvRecord, HashedFile, TooLongError, read_records
from txtopo.audit.recount_rejects import Judged, Kept, KeptReject
from txtopo.audit.recount_values import WIDE, Cell, cell_of, is_doubtful
from txtopo.core.fields import Fields, parse_fields
from txtopo.errors import TopologyError
from txtopo.reports.stored_description import CommitterTables

RejectsOf = Callable[[str], Iterator[KeptReject]]
"""Path -> its stored rejected records, in the order of their lines."""
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
        self._key = itemgetter(*[names.index(name) for name in committer.keys])
        self._single = len(committer.keys) == 1
        self._aggregates = [(one.kind, names.index(one.field)) for one in committer.aggregates]
        self._empty = [0, *(0 if one.is_added else None for one in committer.aggregates)]
        self.committer = committer
        self.totals: Totals = {}

    def add(self, row: Sequence[Any]) -> None:
        """Add one record."""
        key = (self._key(row),) if self._single else self._key(row)
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
    try:
        layout = metadata["format"]
        if layout["kind"] != "csv":
            raise UnknownSourceError(f"sources of kind {layout['kind']!r} are not recounted")
        planned = parse_fields(metadata["schema"])
        counters = [Counter(committer, planned.names) for committer in committers]
        reader = _Reader(
            planned, layout["delimiter"], tuple(layout["null_values"]), metadata["headers"], counters, rejects, dead
        )
        with localcontext(WIDE):
            for file in metadata["files"]:
                reader.read(file)
    except (LookupError, TypeError, ValueError, AttributeError, TopologyError) as error:
        raise UnknownSourceError(f"its plan is not that of CSV files ({type(error).__name__}: {error})") from error
    return reader.recounted, [counter.totals for counter in counters]


class _Reader:
    """Reads the files of one batch."""

    def __init__(
        self,
        planned: Fields,
        delimiter: str,
        nulls: Sequence[str],
        headers: Any,
        counters: list[Counter],
        rejects: RejectsOf,
        dead: Mapping[str, frozenset[int]],
    ) -> None:
        self._fields = planned
        self._delimiter = delimiter.encode()
        self._headers = headers
        self._counters = counters
        self._rejects = rejects
        self._dead = dead
        self._cells: list[Cell] = [cell_of(column, nulls) for column in planned.items]
        self.recounted = Recounted()

    def read(self, file: Mapping[str, Any]) -> None:
        """Read one file in one pass: the bytes that are hashed are those that are counted."""
        path = str(file["path"])
        try:
            with _open(path) as opened:
                hashed = HashedFile(opened)
                try:
                    self._count(path, file, hashed)
                except TooLongError as error:
                    hashed.skip()
                    if hashed.sha256 == file["sha256"]:
                        raise UnreadableError(f"{path}: {error}") from error
                hashed.skip()
        except OSError as error:
            raise UnreadableError(f"{path} cannot be read: {error.strerror or error}") from error
        if (hashed.size, hashed.sha256) != (file["size"], file["sha256"]):
            raise ChangedError(
                f"{path} has changed: planned {file['size']} bytes with sha256 {file['sha256']}, now {hashed.size} "
                f"bytes with sha256 {hashed.sha256}"
            )
        self.recounted.files += 1

    def _count(self, path: str, file: Mapping[str, Any], hashed: HashedFile) -> None:
        kept = Kept(path, self._rejects(path), self.recounted.judged)
        records = read_records(hashed.lines(), self._delimiter)
        header = next(records, None)
        if header is not None:
            self._count_behind(header, path, file, records, kept)
        kept.end()

    def _count_behind(
        self, header: CsvRecord, path: str, file: Mapping[str, Any], records: Iterator[CsvRecord], kept: Kept
    ) -> None:
        names = [name.decode("utf-8", "replace") for name in header.fields]
        planned = None if file["header"] is None else list(self._headers[file["header"]])
        if names != planned or any(names.count(name) != 1 for name in self._fields.names):
            self.recounted.judged.wrong.add(f"{path}:{header.line}: the header is {names}, planned {planned}")
            return
        indexes = [names.index(name) for name in self._fields.names]
        for record in records:
            self._take(path, record, len(names), indexes, kept)

    def _take(self, path: str, record: CsvRecord, width: int, indexes: Sequence[int], kept: Kept) -> None:
        self.recounted.records += 1
        row, reason = self._parse(record, width, indexes)
        if (reason is not None or kept.line <= record.line) and not self._judge(
            path, record, reason, width, indexes, kept
        ):
            return
        if self._dead and record.line in self._dead.get(path, ()):
            self.recounted.dead += 1
            return
        for counter in self._counters:
            counter.add(row)

    def _parse(self, record: CsvRecord, width: int, indexes: Sequence[int]) -> tuple[Sequence[Any], str | None]:
        """Return the values, or why there are none."""
        if not record.closed:
            return (), "a quoted value is not closed"
        if len(record.fields) != width:
            return (), f"{len(record.fields)} columns, the header has {width}"
        try:
            return [
                cell(record.fields[index], index in record.quoted)
                for cell, index in zip(self._cells, indexes, strict=True)
            ], None
        except (ValueError, OverflowError) as error:
            return (), str(error)

    def _judge(
        self, path: str, record: CsvRecord, reason: str | None, width: int, indexes: Sequence[int], kept: Kept
    ) -> bool:
        doubtful = record.closed and len(record.fields) == width and self._is_doubtful(record, reason, indexes)
        if reason is not None and self.recounted.first_rejected is None:
            self.recounted.first_rejected = f"{path}:{record.line}: {reason}"
        return kept.judge(record, reason, doubtful)

    def _is_doubtful(self, record: CsvRecord, reason: str | None, indexes: Sequence[int]) -> bool:
        """True if another reader may judge this record differently; False if one of its plain values is wrong."""
        found = False
        for cell, column, index in zip(self._cells, self._fields.items, indexes, strict=True):
            text = record.fields[index]
            doubtful = is_doubtful(column, text)
            found = found or doubtful
            if reason is not None and not doubtful:
                try:
                    cell(text, index in record.quoted)
                except (ValueError, OverflowError):
                    return False
        return found


def _open(path: str) -> BinaryIO:
    """Open a regular file; never waits for a writer of a FIFO."""
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
