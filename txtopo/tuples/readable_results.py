"""Finds result values that Python cannot represent. Result rows must be read in Python on their way to the database;
here such a value is still a failure of its batch.

Arrow and Spark can store more than Python: texts that are not UTF-8, days after the year 9999, times before the year 1.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.errors import BatchDataError
from txtopo.tuples.user_errors import shown_value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = tuple((day - _EPOCH.date()).days for day in (date.min, date.max))
_MICROSECONDS = tuple(
    (time.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) for time in (datetime.min, datetime.max)
)


def check_readable(committer: str, rows: pa.Table) -> None:
    """Raise BatchDataError, naming committer, column and value, if Python cannot read one of the rows."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        trouble = _trouble(column)
        if trouble is not None:
            raise BatchDataError(
                f"committer {committer}: column {name}: {trouble}", component=committer, fault="unreadable result"
            )


def _trouble(column: pa.ChunkedArray) -> str | None:
    if pa.types.is_string(column.type):
        return _no_utf8(column)
    if pa.types.is_date32(column.type):
        return _outside(column, pa.int32(), _DAYS)
    if pa.types.is_timestamp(column.type):
        return _outside(column, pa.int64(), _MICROSECONDS)
    return None


def _no_utf8(column: pa.ChunkedArray) -> str | None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        for value in column.cast(pa.binary()).to_pylist():
            try:
                str(value or b"", "utf-8")
            except UnicodeDecodeError as error:
                return f"{shown_value(value)} is no UTF-8 ({error.reason})"
        raise
    return None


def _outside(column: pa.ChunkedArray, whole: pa.DataType, bounds: tuple[int, ...]) -> str | None:
    """Return which day or time is too early or too late, as Arrow formats it; None if there is none."""
    first, last = bounds
    numbers = column.cast(whole)
    wrong = column.filter(pc.or_(pc.less(numbers, first), pc.greater(numbers, last)))
    if not len(wrong):
        return None
    return f"{wrong.slice(0, 1).cast(pa.string())[0].as_py()} is not between the years 1 and 9999"
