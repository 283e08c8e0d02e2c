"""Reads exactly the rows of one piece of a planned range: all of them as they were counted, or an error."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from txtopo.errors import BatchDataError
from txtopo.spouts.planned_file import COMPONENT
from txtopo.spouts.table import table_statements
from txtopo.spouts.table.database import TableDatabase, one_snapshot
from txtopo.spouts.table.row_ranges import SUM_MODULUS, OtherTableError, RowPlace, check_xmin
from txtopo.spouts.table.table_statements import Statements, statements_of

_HASH_BYTES = 32
"""Space of the hash of a row in what COPY sends."""
_SLACK_BYTES = 1024


def read_piece(
    database: TableDatabase, name: str, planned: Mapping[str, Any], at: int, names: Sequence[str]
) -> pa.Table:
    """Return the rows of piece `at` of a range, each column as text in `binary`: the key, then the other fields of
    `names`.

    Raises BatchDataError if rows were changed or deleted after they were planned; OSError if the database cannot be
    reached, refuses, or is a replica that is late.
    """
    piece = planned["parts"][at]
    after = RowPlace.after(planned["from"] if at == 0 else planned["parts"][at - 1]["to"])
    asking, to = statements_of(planned, names), RowPlace.of(piece["to"])
    sink = _Sink(int(piece["bytes"]) + _HASH_BYTES * int(piece["rows"]) + _SLACK_BYTES)
    with closing(database.connect()) as connection, one_snapshot(connection, name) as cursor:
        cursor.execute(table_statements.HORIZON)
        _check_horizon(name, asking, to, int(cursor.fetchone()[0]))
        statement, values = asking.rows(after, to)
        try:
            cursor.copy_expert(cursor.mogrify(statement, values).decode(), sink)
        except _TooMuchError:
            raise changed(name, at, piece, "more") from None
    return _checked(name, at, piece, _as_table(bytes(sink.data), len(asking.columns) + 1), asking)


def _check_horizon(name: str, asking: Statements, to: RowPlace, horizon: int) -> None:
    if not to.is_settled(horizon):
        raise TimeoutError(
            errno.ETIMEDOUT,
            f"the server has only come to transaction id {horizon}, the batch ends at {to.id}: it is a late replica, "
            f"is late, or another server",
            name,
        )
    try:
        check_xmin(name, asking.settled, horizon)
    except OtherTableError as error:
        raise BatchDataError(str(error), component=COMPONENT, position=name, fault="xmin without meaning") from None


def _checked(name: str, at: int, piece: Mapping[str, Any], found: pa.Table, asking: Statements) -> pa.Table:
    """Return the columns of the rows, if they are those that were counted when the range was planned."""
    hashes = found.column(len(asking.columns)).cast(pa.string()).cast(pa.int64())
    total = _sum(hashes)
    if (found.num_rows, f"{total:016x}") != (piece["rows"], piece["sum"]):
        raise changed(name, at, piece, f"{found.num_rows:,} with sum {total:016x}")
    return found.select(range(len(asking.columns))).rename_columns(list(asking.columns))


def _sum(hashes: pa.ChunkedArray) -> int:
    """Return the sum modulo 2 ** 64; 32 bits of each number are added at a time, so that nothing overflows."""
    high, low = pc.shift_right(hashes, 32), pc.bit_wise_and(hashes, 0xFFFFFFFF)
    both = [int(pc.sum(half).as_py() or 0) for half in (high, low)]
    return ((both[0] << 32) + both[1]) % SUM_MODULUS


def changed(name: str, at: int, piece: Mapping[str, Any], found: str) -> BatchDataError:
    """Return the error for a piece whose rows are not the planned ones."""
    return BatchDataError(
        f"{name}: rows were changed, deleted or added after they were planned: part {at} was planned with "
        f"{piece['rows']:,} rows with sum {piece['sum']}, found {found}",
        component=COMPONENT,
        position=name,
        fault="rows changed",
    )


def _as_table(data: bytes, columns: int) -> pa.Table:
    names = [f"c{number}" for number in range(columns)]
    types = dict.fromkeys(names, pa.binary())
    if not data:
        return pa.table({name: pa.array([], pa.binary()) for name in names})
    return pcsv.read_csv(
        pa.BufferReader(data),
        read_options=pcsv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
        parse_options=pcsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pcsv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


class _TooMuchError(Exception):
    """More bytes came than the planned rows have."""


class _Sink:
    """Takes what COPY sends, up to a number of bytes."""

    def __init__(self, size_max: int) -> None:
        self.data = bytearray()
        self._size_max = size_max

    def write(self, data: bytes) -> int:
        """Take some bytes. Raises _TooMuchError."""
        if len(self.data) + len(data) > self._size_max:
            raise _TooMuchError
        self.data += data
        return len(data)
