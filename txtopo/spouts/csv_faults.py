"""Finds the record because of which a piece of a CSV file does not parse, with the same parser that refused it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txtopo.spouts.csv_dialect import LineCounter, Record, records
from txtopo.spouts.csv_values import BadValueError, Decoder

RECORD_BYTES_MAX = 64 * 1024 * 1024
"""A longer record is refused."""
WINDOW_BYTES = 4 * 1024 * 1024
RAW_CHARS_MAX = 2000
"""Characters of a bad record that go into the message's detail."""
VALUE_CHARS_MAX = 100

ReadBytes = Callable[[int, int], bytes]
"""(offset, size) -> the file's bytes there, fewer only at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """A record that is not parsable under the declared schema."""

    line: int
    """1-based physical line where it starts; the header is on line 1."""
    reason: str
    raw: str
    """The record as it stands in the file, shortened."""


def find_bad_record(read: ReadBytes, start: int, end: int, decoder: Decoder) -> BadRecord | None:
    """The first record in [start, end) that does not parse; None where each does. `start` is a record's start."""
    lines = _lines_before(read, start)
    offset = start
    window = WINDOW_BYTES
    while offset < end:
        data = read(offset, min(window, end - offset))
        final = offset + len(data) >= end or not data
        found, complete = records(data, decoder.delimiter, final=final)
        if complete == 0 and not final and window <= RECORD_BYTES_MAX:
            window *= 2
            continue
        if complete == 0:
            found, complete = [Record(0, len(data), True)], len(data)
        bad = _first_bad(data, found, decoder)
        if bad is not None:
            lines.feed(data[: bad.start])
            raw = data[bad.start : bad.end]
            return BadRecord(
                line=lines.line, reason=_reason(raw, bad, decoder), raw=_shown(raw.rstrip(b"\r\n"), RAW_CHARS_MAX)
            )
        lines.feed(data[:complete])
        offset += complete
        window = WINDOW_BYTES
    return None


def _lines_before(read: ReadBytes, end: int) -> LineCounter:
    lines = LineCounter()
    offset = 0
    while offset < end:
        data = read(offset, min(WINDOW_BYTES, end - offset))
        if not data:
            break
        lines.feed(data)
        offset += len(data)
    return lines


def _first_bad(data: bytes, found: list[Record], decoder: Decoder) -> Record | None:
    """The first record that fails by halving: the left half is tried first, the right one only where the left is good."""
    low, high = 0, len(found)
    if low == high or _all_parse(data, found, decoder):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _all_parse(data, found[low:middle], decoder):
            low = middle
        else:
            high = middle
    return found[low]


def _all_parse(data: bytes, found: list[Record], decoder: Decoder) -> bool:
    if any(not record.closed or record.end - record.start > RECORD_BYTES_MAX for record in found):
        return False
    try:
        decoder.decode(data[found[0].start : found[-1].end])
    except (BadValueError, pa.ArrowInvalid):
        return False
    return True


def _reason(raw: bytes, record: Record, decoder: Decoder) -> str:
    if record.end - record.start > RECORD_BYTES_MAX:
        return f"the record is longer than {RECORD_BYTES_MAX} bytes"
    if not record.closed:
        return "a quoted value is not closed"
    columns: list[int] = []

    def remember(row: Any) -> str:
        columns.append(row.actual_columns)
        return "error"

    for field in decoder.fields.items:
        try:
            list(decoder.only(field).stream(pa.BufferReader(b"\n" + raw), len(raw) + 1, remember, newlines=True))
        except BadValueError as error:
            return str(error)
        except pa.ArrowInvalid as error:
            if columns:
                return f"{columns[0]} columns, the header has {len(decoder.header)}"
            if "invalid UTF8" in str(error):
                return f"column {field.name!r}: {_value(raw, decoder.as_binary(field))} is not UTF-8"
            return f"column {field.name!r}: {_value(raw, decoder.as_binary(field))} is no {field.type}"
    return "the record does not parse"


def _value(raw: bytes, decoder: Decoder) -> str:
    (batch,) = decoder.decode(raw)
    return repr(_shown(batch.column(0)[0].as_py() or b"", VALUE_CHARS_MAX))


def _shown(data: bytes, chars_max: int) -> str:
    text = data[: chars_max * 4].decode("utf-8", "backslashreplace").replace("\0", "\\x00")
    return text if len(text) <= chars_max else text[:chars_max] + "…"
