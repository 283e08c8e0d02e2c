"""Recounts one batch from its source files with plain Python: content, records, and counts and exact sums by key."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from operator import itemgetter
from typing import Any, BinaryIO

from txtopo.audit.describing import CommitterTables
from txtopo.audit.recount_records import CsvRecord, HashedFile, TooLongError, read_records
from txtopo.audit.recount_values import WIDE, Cell, cell_of
from txtopo.core.fields import Fields, parse_fields
from txtopo.errors import TopologyError

Totals = dict[tuple[Any, ...], list[Any]]
"""Key -> count, then sums."""


class UnreadableError(Exception):
    """A file or a plan that cannot be read: nothing is known."""


class ChangedError(Exception):
    """A file that is not what was planned."""


class UnknownSourceError(Exception):
    """A source that this audit has no reader for."""


@dataclass(slots=True, kw_only=True)
class Recounted:
    """What one batch's files hold."""

    files: int = 0
    records: int = 0
    """All of them, those that do not parse too."""
    rejected: int = 0
    """Records that do not parse under the plan's schema."""
    first_rejected: str | None = None
    """`file:line: reason` of the first of them."""


class Counter:
    """Counts and sums of one committer over one batch."""

    def __init__(self, committer: CommitterTables, names: Sequence[str]) -> None:
        self._key = itemgetter(*[names.index(name) for name in committer.keys])
        self._single = len(committer.keys) == 1
        self._sums = [names.index(name) for name in committer.sums]
        self.committer = committer
        self.totals: Totals = {}

    def add(self, row: Sequence[Any]) -> None:
        """One record."""
        key = (self._key(row),) if self._single else self._key(row)
        total = self.totals.get(key)
        if total is None:
            total = self.totals[key] = [0] * (1 + len(self._sums))
        total[0] += 1
        for at, index in enumerate(self._sums, 1):
            value = row[index]
            if value is not None:
                total[at] += value


def recount(metadata: Mapping[str, Any], committers: Sequence[CommitterTables]) -> tuple[Recounted, list[Totals]]:
    """All files of one spout's metadata; totals for each of the committers, which read the spout directly.

    Raises ChangedError, UnreadableError, UnknownSourceError.
    """
    try:
        layout = metadata["format"]
        if layout["kind"] != "csv":
            raise UnknownSourceError(f"sources of kind {layout['kind']!r} are not recounted")
        planned = parse_fields(metadata["schema"])
        counters = [Counter(committer, planned.names) for committer in committers]
        reader = _Reader(planned, layout["delimiter"], tuple(layout["null_values"]), metadata["headers"], counters)
        with localcontext(WIDE):
            for file in metadata["files"]:
                reader.read(file)
    except (LookupError, TypeError, ValueError, AttributeError, TopologyError) as error:
        raise UnknownSourceError(f"its plan is not that of CSV files ({type(error).__name__}: {error})") from error
    return reader.recounted, [counter.totals for counter in counters]


class _Reader:
    """Reads the files of one batch."""

    def __init__(
        self, planned: Fields, delimiter: str, nulls: Sequence[str], headers: Any, counters: list[Counter]
    ) -> None:
        self._fields = planned
        self._delimiter = delimiter.encode()
        self._headers = headers
        self._counters = counters
        self._cells: list[Cell] = [cell_of(column, nulls) for column in planned.items]
        self.recounted = Recounted()

    def read(self, file: Mapping[str, Any]) -> None:
        """One file in one pass: what is hashed is what is counted."""
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
                f"{path} has changed: planned {file['size']} bytes with sha256 {file['sha256']}, now {hashed.size} bytes with sha256 {hashed.sha256}"
            )
        self.recounted.files += 1

    def _count(self, path: str, file: Mapping[str, Any], hashed: HashedFile) -> None:
        records = read_records(hashed.lines(), self._delimiter)
        header = next(records, None)
        if header is None:
            return
        names = [name.decode("utf-8", "replace") for name in header.fields]
        planned = None if file["header"] is None else list(self._headers[file["header"]])
        if names != planned or any(names.count(name) != 1 for name in self._fields.names):
            self._reject(path, header.line, f"the header is {names}, planned {planned}")
            return
        indexes = [names.index(name) for name in self._fields.names]
        for record in records:
            self._take(path, record, len(names), indexes)

    def _take(self, path: str, record: CsvRecord, width: int, indexes: Sequence[int]) -> None:
        self.recounted.records += 1
        if not record.closed:
            self._reject(path, record.line, "a quoted value is not closed")
            return
        if len(record.fields) != width:
            self._reject(path, record.line, f"{len(record.fields)} columns, the header has {width}")
            return
        try:
            row = [
                cell(record.fields[index], index in record.quoted)
                for cell, index in zip(self._cells, indexes, strict=True)
            ]
        except (ValueError, OverflowError) as error:
            self._reject(path, record.line, str(error))
            return
        for counter in self._counters:
            counter.add(row)

    def _reject(self, path: str, line: int, reason: str) -> None:
        self.recounted.rejected += 1
        self.recounted.first_rejected = self.recounted.first_rejected or f"{path}:{line}: {reason}"


def _open(path: str) -> BinaryIO:
    """A regular file; never waits for a writer of a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    opened = os.fdopen(descriptor, "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        opened.close()
        raise OSError(0, "no regular file", path)
    return opened


def same_totals(counted: Totals, stored: Mapping[tuple[Any, ...], Sequence[int | Decimal]]) -> list[tuple[Any, ...]]:
    """Keys whose numbers differ, or that one side lacks."""
    return [
        key
        for key in {**counted, **stored}
        if key not in counted or key not in stored or list(counted[key]) != list(stored[key])
    ]
