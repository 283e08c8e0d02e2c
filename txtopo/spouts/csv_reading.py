"""The emitter half of the file source: reads a part of a planned batch as Arrow record batches, or says which line is at fault.

A part is a list of pieces `[file index, from, to]`: nominal byte ranges behind the header. A piece of a file without quotes begins behind the
first LF at or after its nominal start and ends behind the first LF at or after its nominal end, so pieces cut anywhere cover each record once.
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.plan import Metadata
from txtopo.errors import BatchDataError
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.spouts.csv_faults import RECORD_BYTES_MAX, find_bad_record
from txtopo.spouts.csv_values import BadValueError, Decoder
from txtopo.spouts.fingerprint import FileStat, NoRegularFileError, open_regular, read_at, read_content
from txtopo.topology.components import Tally

BLOCK_BYTES = 4 * 1024 * 1024
"""Bytes that pyarrow parses at a time."""
COMPONENT = "spout"
"""Filled in by the executor, which knows the spout's name."""


def split_batch(metadata: Metadata) -> list[dict[str, Any]]:
    """Parts of a batch by its plan alone: small files share one, a large file without quotes is cut into several."""
    part_bytes = int(metadata["format"]["part_bytes"])
    parts: list[list[list[int]]] = [[]]
    filled = 0
    for index, file in enumerate(metadata["files"]):
        for start, end in _ranges(file, part_bytes):
            if parts[-1] and filled + end - start > part_bytes:
                parts.append([])
                filled = 0
            parts[-1].append([index, start, end])
            filled += end - start
    return [{"pieces": pieces} for pieces in parts]


def _ranges(file: Mapping[str, Any], part_bytes: int) -> list[tuple[int, int]]:
    start, end = int(file["data"]), int(file["size"])
    if file["quotes"] or end - start <= part_bytes:
        return [(start, end)]
    edges = [*range(start, end, part_bytes), end]
    return list(itertools.pairwise(edges))


def emit_pieces(
    metadata: Metadata, pieces: Sequence[Sequence[int]], declared: Fields, tally: Tally
) -> Iterator[pa.RecordBatch]:
    """Emit the pieces as batches of the declared fields, parsed with the plan's own schema (R12)."""
    planned = parse_fields(metadata["schema"])
    chosen = _chosen(planned, declared)
    for index, start, end in pieces:
        file = metadata["files"][index]
        with _verified(file) as descriptor:
            if file["header"] is None:
                continue
            decoder = Decoder(
                tuple(metadata["headers"][file["header"]]),
                planned,
                metadata["format"]["delimiter"],
                may_hold_nul=file["nul"],
                may_hold_hexadecimal=file["hexadecimal"],
                null_values=tuple(metadata["format"]["null_values"]),
            )
            for batch in _Piece(descriptor, file, decoder, start, end).batches():
                tally.read += batch.num_rows
                yield (
                    batch
                    if chosen is None
                    else pa.RecordBatch.from_arrays([batch.column(at) for at in chosen], schema=arrow_schema(declared))
                )


def _chosen(planned: Fields, declared: Fields) -> list[int] | None:
    """Columns of the plan's schema that are declared now; None where both are the same."""
    if planned.names == declared.names and all(
        a.type == b.type for a, b in zip(planned.items, declared.items, strict=True)
    ):
        return None
    for field in declared.items:
        known = planned.get(field.name)
        if known is None or known.type != field.type:
            message = f"the batch was planned with {planned.ddl}, but the topology now declares {field.ddl}; declare the planned field again to process it"
            raise BatchDataError(message, component=COMPONENT)
    return [planned.names.index(name) for name in declared.names]


class _verified:  # noqa: N801 - used like a function
    """Opens a planned file and compares it with its plan before and after it is read: where `stat` differs, the content decides (K7)."""

    def __init__(self, file: Mapping[str, Any]) -> None:
        self._file = file
        self._open = open_regular(str(file["path"]))
        self._descriptor = -1

    def __enter__(self) -> int:
        try:
            self._descriptor = self._open.__enter__()
        except (FileNotFoundError, NotADirectoryError, NoRegularFileError) as error:
            raise self._changed(f"found no file there ({error.strerror or error})") from error
        try:
            self._compare()
        except BaseException as error:
            self._open.__exit__(type(error), error, error.__traceback__)
            raise
        return self._descriptor

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        try:
            # A line that does not parse may come from a file that changed meanwhile: that is the better explanation.
            if kind is None or isinstance(error, BatchDataError):
                self._compare()
        finally:
            self._open.__exit__(None, None, None)

    def _compare(self) -> None:
        planned = FileStat(size=self._file["size"], mtime_ns=self._file["mtime_ns"], inode=self._file["inode"])
        if FileStat.of(os.fstat(self._descriptor)) == planned:
            return
        content = read_content(self._descriptor)
        if content.sha256 != self._file["sha256"]:
            raise self._changed(f"found {content.size} bytes with sha256 {content.sha256}")

    def _changed(self, found: str) -> BatchDataError:
        path = self._file["path"]
        message = f"{path}: the source changed after it was planned: planned {self._file['size']} bytes with sha256 {self._file['sha256']}, {found}"
        return BatchDataError(message, component=COMPONENT, position=str(path))


class _Piece:
    """One byte range of one file."""

    def __init__(self, descriptor: int, file: Mapping[str, Any], decoder: Decoder, start: int, end: int) -> None:
        self._descriptor = descriptor
        self._path = str(file["path"])
        self._quotes = bool(file["quotes"])
        # No file holds its own sha-256. One column too few or too many makes the mark a row that pyarrow hands to the handler.
        self._mark = (
            str(file["sha256"]) if len(decoder.header) > 1 else decoder.delimiter.join([str(file["sha256"])] * 2)
        )
        self._decoder = decoder
        self._start = start if start == file["data"] else self._behind_line(start - 1, file["size"])
        self._end = end if end == file["size"] else self._behind_line(end - 1, file["size"])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the piece; raises BatchDataError naming the first line that does not parse."""
        if self._start >= self._end:
            return
        done = 0
        block_bytes = BLOCK_BYTES
        while True:
            try:
                for batch in self._stream(block_bytes, done):
                    done += batch.num_rows
                    yield batch
                return
            except (BadValueError, pa.ArrowInvalid) as error:
                # A record larger than the block: again with larger ones, leaving out the rows already emitted.
                if "straddling" not in str(error) or block_bytes >= RECORD_BYTES_MAX:
                    raise self._refusal(str(error)) from None
                block_bytes *= 4

    def _stream(self, block_bytes: int, skip: int) -> Iterator[pa.RecordBatch]:
        seen: list[Any] = []

        def on_invalid_row(row: Any) -> str:
            if row.text != self._mark:
                return "error"
            seen.append(row)
            return "skip"

        for batch in self._decoder.stream(self._source(), block_bytes, on_invalid_row, newlines=self._quotes):
            fresh = batch.slice(min(skip, batch.num_rows))
            skip -= batch.num_rows - fresh.num_rows
            if fresh.num_rows:
                yield fresh
        # pyarrow takes a quote that is never closed for a value up to the end of the file; then the mark behind it was swallowed.
        if self._quotes and len(seen) != 1:
            raise BadValueError("a quoted value is not closed")

    def _source(self) -> Any:
        tail = f"\n{self._mark}\n".encode() if self._quotes else b""
        # From one byte earlier, a line end: a U+FEFF that starts the first value is no byte order mark.
        start = self._start - 1
        if self._end - start <= BLOCK_BYTES:
            return pa.BufferReader(read_at(self._descriptor, start, self._end - start) + tail)
        return pa.PythonFile(_Range(self._descriptor, start, self._end, tail), mode="r")

    def _behind_line(self, offset: int, size: int) -> int:
        """The offset behind the first LF at or after `offset`; the file's size where there is none."""
        while offset < size:
            data = read_at(self._descriptor, offset, 64 * 1024)
            at = data.find(b"\n")
            if at >= 0:
                return offset + at + 1
            if not data:
                break
            offset += len(data)
        return size

    def _refusal(self, message: str) -> BatchDataError:
        bad = find_bad_record(
            lambda offset, size: read_at(self._descriptor, offset, size), self._start, self._end, self._decoder
        )
        if bad is None:
            return BatchDataError(f"{self._path}: does not parse: {message}", component=COMPONENT, position=self._path)
        position = f"{self._path}:{bad.line}"
        return BatchDataError(f"{position}: {bad.reason}", component=COMPONENT, position=position, detail=bad.raw)


class _Range(io.RawIOBase):
    """A stretch of a file as a stream, with some bytes behind it; does not own the descriptor."""

    def __init__(self, descriptor: int, start: int, end: int, tail: bytes) -> None:
        self._descriptor = descriptor
        self._offset = start
        self._end = end
        self._tail = tail

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        left = self._end - self._offset
        wanted = left if size < 0 else min(size, left)
        if wanted > 0:
            data = read_at(self._descriptor, self._offset, wanted)
            self._offset = self._offset + len(data) if data else self._end
            if data:
                return data
        tail, self._tail = (self._tail, b"") if size < 0 else (self._tail[:size], self._tail[size:])
        return tail
