"""The emitter half of the source of text files: the lines of a part of a planned batch as Arrow record batches, and the
lines that are not valid text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txtopo.core.fields import Fields
from txtopo.core.limits import REJECTED_RAW_BYTES_MAX
from txtopo.core.plan import Metadata
from txtopo.core.values import RejectedRow
from txtopo.errors import BatchDataError
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.spouts.csv.emitter import Keeper, files_of, split_batch
from txtopo.spouts.csv.ranges import LOCATED_CHARS_MAX, RangeRows
from txtopo.spouts.csv.windows import RECORD_BYTES_MAX, WINDOW_BYTES
from txtopo.spouts.fingerprint import read_at
from txtopo.spouts.planned_file import COMPONENT, verified
from txtopo.spouts.reject_limit import shown_raw
from txtopo.topology.components import Position, Tally

Line = tuple[int, bytes]
"""The number of a line in the file, from 1, and its bytes without the line end."""


def split_texts(metadata: Metadata) -> list[dict[str, Any]]:
    """Return the parts of a batch, from its plan alone, as for CSV files. Quotes have no meaning in text, so a large
    file is always divided.
    """
    return split_batch({**metadata, "files": [{**file, "quotes": False} for file in metadata["files"]]})


def emit_lines(
    metadata: Metadata, pieces: Sequence[Sequence[int]], declared: Fields, tally: Tally, *, fail: bool = False
) -> Iterator[pa.RecordBatch]:
    """Emit the lines of the pieces. Lines that are not valid text go to the tally; with `fail`, the first one raises
    BatchDataError.
    """
    keeper, schema = Keeper(tally, fail=fail), arrow_schema(declared)
    for file, start, end in files_of(metadata, pieces):
        with verified(file) as descriptor:
            for lines in _windows(descriptor, file, start, end):
                texts: list[str] = []
                rejects: list[RejectedRow] = []
                for number, raw in lines:
                    text = _text(raw)
                    if text is not None:
                        texts.append(text)
                        continue
                    rejects.append(
                        RejectedRow(
                            path=str(file["path"]),
                            line=number,
                            reason="the line holds the NUL character" if b"\0" in raw else "the line is not UTF-8",
                            raw=raw[:REJECTED_RAW_BYTES_MAX],
                            raw_bytes=len(raw),
                        )
                    )
                batch = pa.record_batch([pa.array(texts, pa.string())], schema=schema)
                keeper.keep(RangeRows(batch=batch, rejects=rejects))
                if texts:
                    yield batch


def locate_line(metadata: Metadata, pieces: Sequence[Sequence[int]], number: int) -> Position | None:
    """Return the position of line `number` (from 0) that `emit_lines` emits of these pieces; None if there are
    fewer.
    """
    left = number
    for file, start, end in files_of(metadata, pieces):
        with verified(file) as descriptor:
            for line, raw in itertools.chain.from_iterable(_windows(descriptor, file, start, end)):
                if _text(raw) is None:
                    continue
                if left == 0:
                    return Position(position=f"{file['path']}:{line}", raw=shown_raw(raw, LOCATED_CHARS_MAX))
                left -= 1
    return None


def _text(raw: bytes) -> str | None:
    try:
        return None if b"\0" in raw else raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _windows(descriptor: int, file: Mapping[str, Any], start: int, end: int) -> Iterator[list[Line]]:
    """Yield the lines of a piece in groups: the lines that start after the first LF at or after `start - 1`, up to the
    first LF at or after `end - 1`.
    """
    size = int(file["size"])
    offset = start if start == file["data"] else _after_line(descriptor, start - 1, size)
    stop = end if end == size else _after_line(descriptor, end - 1, size)
    number = _line_at(descriptor, offset)
    wanted = WINDOW_BYTES
    while offset < stop:
        data = read_at(descriptor, offset, min(wanted, stop - offset))
        if not data:
            return  # The file is shorter than before; the comparison with its plan reports that.
        whole = len(data) if offset + len(data) >= stop else data.rfind(b"\n") + 1
        if not whole:
            if wanted >= RECORD_BYTES_MAX:
                position = f"{file['path']}:{number}"
                raise BatchDataError(
                    f"{position}: the line is longer than {RECORD_BYTES_MAX} bytes",
                    component=COMPONENT,
                    position=position,
                    fault="line too long",
                )
            wanted = min(2 * wanted, RECORD_BYTES_MAX)
            continue
        lines = data[:whole].split(b"\n")
        if not lines[-1]:
            lines.pop()  # After the last line end.
        yield [(number + at, raw.removesuffix(b"\r")) for at, raw in enumerate(lines)]
        number += len(lines)
        offset += whole
        wanted = WINDOW_BYTES


def _after_line(descriptor: int, offset: int, size: int) -> int:
    """Return the offset after the first LF at or after `offset`; the size of the file if there is none."""
    while offset < size:
        data = read_at(descriptor, offset, WINDOW_BYTES)
        at = data.find(b"\n")
        if at >= 0:
            return offset + at + 1
        if not data:
            break
        offset += len(data)
    return size


def _line_at(descriptor: int, offset: int) -> int:
    """Return the line that starts at `offset`."""
    lines = done = 0
    while done < offset:
        data = read_at(descriptor, done, min(WINDOW_BYTES, offset - done))
        if not data:
            break
        lines += data.count(b"\n")
        done += len(data)
    return lines + 1
