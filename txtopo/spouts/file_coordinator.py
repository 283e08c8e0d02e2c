"""The coordinator half of the file source: makes batches of settled files and fingerprints each file once, when it is
planned.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from txtopo.core.fields import Fields
from txtopo.core.os_errors import is_gone
from txtopo.core.plan import Metadata
from txtopo.core.planned_fingerprint import planned_fingerprint
from txtopo.errors import BatchDataError, unreachable
from txtopo.spouts.codecs import codec_of
from txtopo.spouts.file_fields import FileFields
from txtopo.spouts.fingerprint import FileStat, Scan
from txtopo.spouts.formats.format import Format, Opened
from txtopo.spouts.places.place import Examined, FilePlace
from txtopo.spouts.read_ahead import FILES_MAX, THREADS_MAX, ReadAhead
from txtopo.spouts.settled_files import FileWatch, SettledFile
from txtopo.spouts.unpacked_file import described_unpacked
from txtopo.topology.components import SpoutContext

PATH_BYTES_MAX = 2000
"""Maximum length of a path in bytes, since it is stored permanently (an index row in Postgres holds less than 2700)."""


class _Source(Protocol):
    """The limits of a batch and the format of its files."""

    place: FilePlace
    fields: Fields
    file_fields: FileFields
    format: Format
    files_per_batch: int
    bytes_per_batch: int
    settled_s: float
    may_be_empty: bool

    def layout(self) -> Mapping[str, Any]:
        """Return the layout with which the files are read, for the plan."""


class _StillChangingError(Exception):
    """The file has changed since it settled. `found` is its state now; None: it has gone."""

    def __init__(self, found: FileStat | None) -> None:
        super().__init__()
        self.found = found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A file that was read, and its metadata after that."""

    content: Examined
    facts: Mapping[str, Any] | ValueError
    """What its format says of it, for the plan; or why it cannot be planned."""
    stat: FileStat
    is_steady: bool
    """True if it had the same metadata before."""


class FileCoordinator:
    """Implements `SpoutCoordinator`. A batch is fingerprinted in `is_ready`, so that a batch exists whenever it returns
    True.
    """

    def __init__(self, source: _Source, context: SpoutContext) -> None:
        self._source = source
        self._context = context
        self._watch = FileWatch(source.place, source.settled_s, context, may_be_empty=source.may_be_empty)
        self._next: Metadata | BatchDataError | None = None
        self._ahead = (
            ReadAhead(self._read, threads=THREADS_MAX, bytes_min=0)
            if source.place.answers_late
            else ReadAhead(self._read)
        )

    def is_ready(self) -> bool:
        self._watch.look()
        while self._next is None and (files := self._next_files()):
            self._next = self._cut(files)
        return self._next is not None

    def ready_in_s(self) -> float:
        return self._watch.ready_in_s()

    def initialize_transaction(self, txid: int, previous: Metadata | None) -> Metadata:
        cut, self._next = self._next, None
        if cut is None:
            unreachable(f"batch {txid} is cut before the spout said that it is ready")
        if isinstance(cut, BatchDataError):
            raise cut
        return cut

    def initialize_redo(self, metadata: Metadata) -> Metadata:
        headers: list[Any] = []
        files: list[dict[str, Any]] = []
        found: list[SettledFile] = []
        for planned in metadata["files"]:
            path = str(planned["path"])
            try:
                file = self._look_at(path)
                described = self._describe(file)
            except _StillChangingError as error:
                raise OSError(f"{path}: the file is still changing, or is being replaced") from error
            files.append(_numbered(described, headers))
            found.append(file)
        for file, described in zip(found, files, strict=True):
            self._watch.redo(replace(file, stat=FileStat.planned(described)), planned_fingerprint(described))
        return self._metadata(headers, files)

    def is_exhausted(self) -> bool:
        return self._context.once and self._next is None and self._watch.is_exhausted

    def close(self) -> None:
        self._next = None
        self._ahead.close()

    def _cut(self, chosen: list[SettledFile]) -> Metadata | BatchDataError | None:
        """Return the next batch, or the error that prevents it; None if all its files have to settle again."""
        headers: list[Any] = []
        files: list[dict[str, Any]] = []
        taken: list[SettledFile] = []
        upcoming = self._watch.next_files(len(chosen) + FILES_MAX)
        for number, file in enumerate(chosen, start=1):
            try:
                described = self._describe(file, self._ahead.taken(file, upcoming[number : number + FILES_MAX]))
            except _StillChangingError as error:
                self._watch.put_back(file, error.found)
                continue
            except BatchDataError as error:
                # The file stays in the backlog, so that it is refused again and never skipped. Once repaired, it
                # differs from what settled, and has to settle again. Files before it form a batch and do not wait for
                # it.
                return self._plan(headers, files, taken) if files else error
            files.append(_numbered(described, headers))
            taken.append(file)
        return self._plan(headers, files, taken) if files else None

    def _plan(self, headers: list[Any], files: list[dict[str, Any]], taken: list[SettledFile]) -> Metadata:
        for file, described in zip(taken, files, strict=True):
            self._watch.consume(file, FileStat.planned(described), planned_fingerprint(described))
        return self._metadata(headers, files)

    def _metadata(self, headers: list[Any], files: list[dict[str, Any]]) -> Metadata:
        return {"format": self._source.layout(), "schema": self._source.fields.ddl, "headers": headers, "files": files}

    def _next_files(self) -> list[SettledFile]:
        """Return settled files up to the limits; a file larger than the limit is a batch by itself. Empty if more files
        may still join those that have settled.
        """
        chosen: list[SettledFile] = []
        size = 0
        for file in self._watch.next_files(self._source.files_per_batch):
            size += file.stat.size
            if chosen and size > self._source.bytes_per_batch:
                return chosen
            chosen.append(file)
        return [] if self._watch.is_incomplete and len(chosen) < self._source.files_per_batch else chosen

    def _look_at(self, path: str) -> SettledFile:
        """Return the file of a redo in its current state. Raises BatchDataError if it no longer exists or is not a
        file.
        """
        try:
            with self._source.place.opened(path) as opened:
                return SettledFile(path=path, stat=opened.stat())
        except OSError as error:
            if not is_gone(error):
                raise _named(error, path) from error
            raise BatchDataError(
                f"{path}: cannot be read again, there is no file ({error.strerror or error})",
                component=self._context.spout,
                position=path,
            ) from error

    def _describe(self, file: SettledFile, read: _Read | None = None) -> dict[str, Any]:
        """Return the file's entry in the plan. `read`: what was read ahead."""
        try:
            if read is None or self._look_again(file) != read.stat:
                read = self._read(file)
            content = read.content
            # A file whose content may have changed since it settled has to settle again. Its ctime alone also changes
            # with its rights, its owner or a hard link: then what was read, while nothing changed, is what settled.
            settled = replace(file.stat, ctime_ns=read.stat.ctime_ns)
            if not read.is_steady or read.stat != settled or content.size != settled.size:
                raise _StillChangingError(read.stat)
        except OSError as error:
            if not is_gone(error):
                raise _named(error, file.path) from error
            raise _StillChangingError(None) from error
        self._check_path(file.path)
        return {
            "path": file.path,
            **settled.entries(),
            **content.identity,
            **self._facts(file, read),
        }

    def _read(self, file: SettledFile) -> _Read:
        """Read the whole file. Called by several threads."""
        source, within = self._source, self._source.file_fields.within
        with source.place.opened(file.path) as stored:
            before = stored.stat()
            codec = codec_of(file.path) if source.format.reads_forward else None
            scan = source.format.scan(within)
            content = stored.examine(scan if codec is None else None)
            facts: Mapping[str, Any] | ValueError
            try:
                source.file_fields.check_file(file.path, before.mtime_ns)
                if codec is None:
                    opened = Opened(file.path, stored.read, content.size, content.start)
                    found = _found_by(scan) if content.is_scanned else dict.fromkeys(_found_by(scan))
                    facts = {**found, **source.format.describe(opened, within)}
                else:
                    facts = described_unpacked(file.path, stored.read, codec, source.format, within)
                    facts = {**dict.fromkeys(_found_by(scan)), **facts}
            except ValueError as error:
                facts = error
            stat = stored.stat()
            return _Read(content=content, facts=facts, stat=stat, is_steady=stat == before)

    def _look_again(self, file: SettledFile) -> FileStat:
        """Return the metadata of a file that was read ahead: it may have changed since."""
        with self._source.place.opened(file.path) as stored:
            return stored.stat()

    def _facts(self, file: SettledFile, read: _Read) -> Mapping[str, Any]:
        if isinstance(read.facts, ValueError):
            raise BatchDataError(
                f"{file.path}: {read.facts}", component=self._context.spout, position=f"{file.path}:1"
            ) from read.facts
        return read.facts

    def _check_path(self, path: str) -> None:
        problem = None
        try:
            if len(path.encode("utf-8")) > PATH_BYTES_MAX:
                problem = f"is longer than {PATH_BYTES_MAX} bytes"
        except UnicodeEncodeError:
            problem = "is not UTF-8"
        if problem:
            raise BatchDataError(
                f"the path {os.fsencode(path)!r} {problem}: rename the file", component=self._context.spout
            )


def _numbered(described: dict[str, Any], headers: list[Any]) -> dict[str, Any]:
    """Return the file with the index of its header among the headers of the batch; a new one is added to them."""
    header = described.get("header")
    if header is None:
        return described
    if header not in headers:
        headers.append(header)
    return {**described, "header": headers.index(header)}


def _found_by(scan: Scan | None) -> Mapping[str, Any]:
    return {} if scan is None else scan.facts()


def _named(error: OSError, path: str) -> OSError:
    """Return the error with the name of the file, which reads by descriptor do not have."""
    return error if error.filename is not None else OSError(error.errno, error.strerror or str(error), path)
