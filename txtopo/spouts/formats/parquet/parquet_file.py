"""An open Parquet file: the values of the declared columns, some rows at a time."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from txtopo.core.fields import Fields
from txtopo.spouts.formats.field_paths import FieldPaths
from txtopo.spouts.formats.format import Opened
from txtopo.spouts.formats.parquet.column_types import is_bytes, is_text, plain
from txtopo.spouts.formats.parquet.footer import PlacedColumn, check_kind, columns_of, row_groups
from txtopo.spouts.formats.parquet.pages import PageHeaderError, page_sizes

BUFFER_BYTES = 1024 * 1024
"""Number of stored bytes of a column that are read at a time."""
DICTIONARY_BUFFER_BYTES = 64 * 1024
"""The same where only a dictionary is read."""
DICTIONARIES, DELTA_BYTE_ARRAY = frozenset((2, 8)), 7
"""Numbers of encodings."""
ROWS_MAX = 32 * 1024
BATCH_BYTES = 16 * 1024 * 1024
"""About as many bytes of values are read at a time, and at most ROWS_MAX rows."""
UNEVEN_BYTES = 64 * 1024 * 1024
"""At most about as many bytes of a column are read at a time where its values are of very different length."""
PAGE_BYTES_MAX = 512 * 1024 * 1024
"""Maximum size in bytes of a page that is unpacked; a larger one is refused."""


class DamagedFileError(ValueError):
    """The bytes of a file are not the values that its footer says."""


class LargePageError(ValueError):
    """A page has more than PAGE_BYTES_MAX bytes."""


@dataclass(frozen=True, slots=True)
class Values:
    """The values of one declared field in consecutive rows, as they are in the file, with a plain type."""

    array: pa.Array
    is_cut: pa.Array | None = None
    """For timestamps that are stored as INT96: True where a value has parts below a microsecond, which `array`
    lacks.
    """


@contextmanager
def parquet_file(opened: Opened, fields: Fields, paths: FieldPaths) -> Iterator[ParquetFile]:
    """Yield an open file. Raises ValueError if it is no Parquet file, or has not the columns of these fields and paths.
    What is done with it raises DamagedFileError, or the error with which reading its bytes failed.
    """
    stored = _Stored(opened)
    try:
        yield ParquetFile(stored, fields, paths)
    except Exception as error:
        if stored.failure is not None:
            raise stored.failure from error
        if isinstance(error, MemoryError) or not isinstance(error, pa.ArrowException | OSError):
            raise  # Of this machine: Arrow's error is both.
        reason = f"{error}".splitlines()[0] if f"{error}" else type(error).__name__
        raise DamagedFileError(f"its Parquet data is damaged: {reason}") from error


class ParquetFile:
    """The declared columns of a file."""

    def __init__(self, stored: _Stored, fields: Fields, paths: FieldPaths) -> None:
        """Raises ValueError if they cannot be given."""
        check_kind(stored.opened)
        self._stored = stored
        self._file = self._open("us")
        self._columns = columns_of(self._file, fields, paths)
        metadata = self._file.metadata
        self._groups = row_groups(stored.opened, self._columns, len(self._file.schema), metadata.num_rows)
        if len(self._groups) != metadata.num_row_groups:
            raise ValueError("its footer contradicts itself: nobody knows how many row groups it has")
        self.groups: list[list[int]] = [[group.rows, group.stored] for group in self._groups]
        """Of each row group, its number of rows and the stored bytes of the declared columns."""

    def read(self, group: int) -> Iterator[list[Values]]:
        """Yield the columns of consecutive rows of a row group, in the order of the declared fields. Raises
        DamagedFileError if it has not as many rows as the footer says.
        """
        left = planned = self.groups[group][0]
        usual = self._usual_rows(group)
        at_once = self._rows_at_once(group, usual)
        batches = self._batches(self._file, group, self._columns, at_once)
        old = [column for column in self._columns if column.is_int96]
        # The same values once more, in a unit in which nothing is cut off, and which overflows far from today.
        exact = self._batches(self._open("ns"), group, old, at_once) if old else None
        pieces = (self._values(*batch, next(exact, None) if exact is not None else None) for batch in batches)
        for columns in pieces if at_once == usual else _gathered(pieces, usual):
            left -= len(columns[0].array) if planned else 0
            yield columns
        if left:
            raise DamagedFileError(f"row group {group} has {planned - left} rows, and {planned} by its footer")

    def _values(
        self, batch: pa.RecordBatch, tops: Sequence[int], exact: tuple[pa.RecordBatch, Sequence[int]] | None
    ) -> list[Values]:
        found = []
        for column in self._columns:
            array = _inside(batch.column(tops.index(column.top)), column)
            cut = None
            if column.is_int96 and exact is not None:
                fine, fine_tops = exact
                cut = _is_cut(array, _inside(fine.column(fine_tops.index(column.top)), column))
            found.append(Values(array, cut))
        return found

    def _batches(
        self, file: parquet.ParquetFile, group: int, columns: Sequence[PlacedColumn], rows: int
    ) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
        """Yield batches of the columns of the file that these are, or are inside of, with the numbers of those."""
        leaves = sorted({column.leaf for column in columns})
        tops = sorted({column.top for column in columns})
        for batch in file.reader.iter_batches(rows, [group], column_indices=leaves, use_threads=False):
            yield batch, tops

    def _usual_rows(self, group: int) -> int:
        """Return how many rows are read at a time if all values have about the same length."""
        found = self._groups[group]
        return max(1, min(ROWS_MAX, found.rows, BATCH_BYTES * found.rows // max(1, found.unpacked)))

    def _rows_at_once(self, group: int, usual: int) -> int:
        """Return how many rows are read at a time: fewer where so many may be far larger than what is stored."""
        fixed = sum({column.leaf: self._fixed_bytes(column.leaf) for column in self._columns}.values())
        rows = max(1, min(usual, BATCH_BYTES // max(1, fixed)))
        rows = max(1, min(rows, BATCH_BYTES // max(1, self._repeated_bytes(group, rows))))
        return max(1, min(rows, UNEVEN_BYTES // max(1, self._uneven_bytes(group))))

    def _fixed_bytes(self, leaf: int) -> int:
        """Return how many bytes every value of a column takes in memory, NULL too; 0 where that is no more than a few.

        A file of 1 MB may have a value of 1 MB in every one of a million rows.
        """
        column = self._file.schema.column(leaf)
        return max(0, int(column.length)) if column.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0

    def _uneven_bytes(self, group: int) -> int:
        """Return how many bytes the values of one row may have in the page where they are longest. 0 for columns whose
        values are as long as the bytes that are stored, and are not many. Raises LargePageError, DamagedFileError.
        """
        found, longest = self._groups[group], 0
        for leaf, chunk in sorted(found.chunks.items()):
            is_shared = DELTA_BYTE_ARRAY in chunk.encodings
            if found.rows and (is_shared or chunk.unpacked > UNEVEN_BYTES):
                path = self._file.schema.column(leaf).path
                try:
                    sizes = page_sizes(self._stored.read, chunk)
                except PageHeaderError as error:
                    raise DamagedFileError(f"column {path!r} of row group {group}: {error}") from error
                if sizes.largest > PAGE_BYTES_MAX:
                    raise LargePageError(
                        f"column {path!r} of row group {group} has a page of {sizes.largest} bytes, "
                        f"which is unpacked as a whole; the maximum is {PAGE_BYTES_MAX}: write smaller pages"
                    )
                longest += sizes.largest if is_shared else sizes.densest
        return longest

    def _repeated_bytes(self, group: int, rows: int) -> int:
        """Return how many bytes the values of one row may have that are stored once for many rows: the longest ones in
        the dictionaries of texts and bytes. 0 if so many rows fit anyway.

        A file of 1 MB may have a text of 1 MB in every one of a million rows.
        """
        chunks = self._groups[group].chunks
        asked = [
            column
            for column in self._columns
            if self._file.schema.column(column.leaf).physical_type == "BYTE_ARRAY"
            and chunks[column.leaf].unpacked * rows > BATCH_BYTES
            and chunks[column.leaf].encodings & DICTIONARIES
        ]
        return self._longest_listed(group, asked) if asked else 0

    def _longest_listed(self, group: int, columns: Sequence[PlacedColumn]) -> int:
        """Return the bytes of the longest values in the dictionaries of these columns, added up."""
        leaves = sorted({column.leaf for column in columns})
        # One row is enough: the dictionary of a row group stands before all its rows.
        longest = 0
        for batch, tops in itertools.islice(self._batches(self._open("us", leaves), group, columns, 1), 1):
            for column in columns:
                values = _member(batch.column(tops.index(column.top)), column)
                values = values.dictionary if pa.types.is_dictionary(values.type) else plain(values)
                if is_text(values.type) or is_bytes(values.type):
                    longest += pc.max(pc.binary_length(values)).as_py() or 0
        return longest

    def _open(self, unit: str, dictionaries: Sequence[int] = ()) -> parquet.ParquetFile:
        """Open it again; INT96 timestamps are read in this unit, and columns with these numbers as dictionaries."""
        return parquet.ParquetFile(
            pa.PythonFile(_Seekable(self._stored), mode="r"),
            read_dictionary=dictionaries or None,
            buffer_size=BUFFER_BYTES if not dictionaries else DICTIONARY_BUFFER_BYTES,
            pre_buffer=False,
            coerce_int96_timestamp_unit=unit,
            page_checksum_verification=True,
            arrow_extensions_enabled=False,
        )


def _gathered(pieces: Iterator[list[Values]], rows: int) -> Iterator[list[Values]]:
    """Yield the same rows in pieces of at most `rows` and about BATCH_BYTES: to judge a piece costs more than to read
    it.
    """
    held: list[list[Values]] = []
    number = size = 0
    for columns in pieces:
        more = sum(one.array.nbytes for one in columns)
        if held and (number + len(columns[0].array) > rows or size + more > BATCH_BYTES):
            yield _joined(held)
            held, number, size = [], 0, 0
        held.append(columns)
        number, size = number + len(columns[0].array), size + more
    if held:
        yield _joined(held)


def _joined(pieces: Sequence[list[Values]]) -> list[Values]:
    """Return consecutive pieces as one."""
    if len(pieces) == 1:
        return pieces[0]
    found = []
    for column in zip(*pieces, strict=True):
        cuts = [one.is_cut for one in column if one.is_cut is not None]
        found.append(Values(pa.concat_arrays([one.array for one in column]), pa.concat_arrays(cuts) if cuts else None))
    return found


def _inside(array: pa.Array, column: PlacedColumn) -> pa.Array:
    """Return the values of a column; NULL where something that it is inside of is NULL."""
    return plain(_member(array, column))


def _member(array: pa.Array, column: PlacedColumn) -> pa.Array:
    return pc.struct_field(array, list(column.inside)) if column.inside else array


def _is_cut(micros: pa.Array, nanos: pa.Array) -> pa.Array:
    """Return True where the nanoseconds are not whole microseconds."""
    valid = pc.is_valid(micros)
    whole = np.asarray(pc.fill_null(pc.cast(micros, pa.int64()), 0))
    exact = np.asarray(pc.fill_null(pc.cast(nanos, pa.int64()), 0))
    # Both sides overflow alike, so the difference is exact: 0 to 999.
    return pc.and_(valid, pa.array(exact - whole * np.int64(1000) != 0))


class _Stored:
    """The bytes of a file, and the error with which reading them failed."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self.failure: Exception | None = None

    def read(self, offset: int, size: int) -> bytes:
        try:
            return self.opened.read(offset, size)
        except Exception as error:
            self.failure = error
            raise


class _Seekable(io.RawIOBase):
    """The bytes of a file as pyarrow wants them: with a place that is moved."""

    def __init__(self, stored: _Stored) -> None:
        self._bytes = stored
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._bytes.opened.size}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = self._bytes.opened.size - self._at
        data = self._bytes.read(self._at, left if size < 0 else min(size, left))
        self._at += len(data)
        return data
