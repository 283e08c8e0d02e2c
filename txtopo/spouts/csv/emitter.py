"""The emitter half of the file source: reads a part of a planned batch as Arrow record batches, and keeps the records
that do not parse.

A part is a list of pieces `[file index, from, to]`: nominal byte ranges after the header. A piece of a file without
quotes begins after the first LF at or after its nominal start and ends after the first LF at or after its nominal end,
so consecutive pieces cover each record once, wherever they are cut.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.limits import REJECTED_BYTES_MAX
from txtopo.core.plan import Metadata
from txtopo.core.values import RejectedRow
from txtopo.errors import BatchDataError
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.spouts.csv.ranges import Piece, RangeRows
from txtopo.spouts.planned_file import COMPONENT, verified
from txtopo.spouts.reject_limit import rejected_share, shown_raw
from txtopo.topology.components import Position, Tally


def split_batch(metadata: Metadata) -> list[dict[str, Any]]:
    """Return the parts of a batch, from its plan alone: small files share a part, a large file without quotes is
    divided into several.
    """
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
    metadata: Metadata, pieces: Sequence[Sequence[int]], declared: Fields, tally: Tally, *, fail: bool = False
) -> Iterator[pa.RecordBatch]:
    """Emit the pieces as batches of the declared fields, parsed with the plan's own schema (R12).

    Records that do not parse go to the tally; with `fail` the first one raises BatchDataError.
    """
    planned = parse_fields(metadata["schema"])
    chosen = _chosen(planned, declared)
    keeper = Keeper(tally, fail=fail)
    for file, start, end in files_of(metadata, pieces):
        with verified(file) as descriptor:
            if file["header"] is None:
                continue
            for emitted in Piece(descriptor, metadata, file, planned, start, end).emitted():
                keeper.keep(emitted)
                if emitted.batch is None:
                    continue
                yield (
                    emitted.batch
                    if chosen is None
                    else pa.RecordBatch.from_arrays(
                        [emitted.batch.column(at) for at in chosen], schema=arrow_schema(declared)
                    )
                )


def locate_record(metadata: Metadata, pieces: Sequence[Sequence[int]], number: int) -> Position | None:
    """Return the position of record `number` (from 0) that `emit_pieces` emits of these pieces; None if there are
    fewer.
    """
    planned = parse_fields(metadata["schema"])
    left = number
    for file, start, end in files_of(metadata, pieces):
        with verified(file) as descriptor:
            if file["header"] is None:
                continue
            piece = Piece(descriptor, metadata, file, planned, start, end)
            for split in piece.split_windows():
                if left < split.rows:
                    return piece.position(split, left)
                left -= split.rows
    return None


def files_of(metadata: Metadata, pieces: Sequence[Sequence[int]]) -> Iterator[tuple[Mapping[str, Any], int, int]]:
    """Return file, start and end of each piece."""
    for index, start, end in pieces:
        yield metadata["files"][index], start, end


class Keeper:
    """Counts what a part emits and keeps rejected records, within limits."""

    def __init__(self, tally: Tally, *, fail: bool) -> None:
        self._tally = tally
        self._fail = fail
        self._first: RejectedRow | None = None
        self._read_before = tally.read
        self._rejected_before = tally.rejected
        self._kept_bytes = 0

    def keep(self, emitted: RangeRows) -> None:
        """Keep a rejected record. Raises BatchDataError if rejected records are not allowed or exceed the limit."""
        self._tally.read += len(emitted.rejects) + (emitted.batch.num_rows if emitted.batch is not None else 0)
        if not emitted.rejects:
            return
        self._first = self._first or emitted.rejects[0]
        if self._fail:
            raise _refusal(self._first)
        self._tally.rejects.extend(emitted.rejects)
        self._kept_bytes += sum(len(reject.raw) for reject in emitted.rejects)
        if self._kept_bytes > REJECTED_BYTES_MAX:
            share = rejected_share(self._tally.rejected - self._rejected_before, self._tally.read - self._read_before)
            raise _refusal(self._first, f"; {share} so far, and more than {REJECTED_BYTES_MAX:,} bytes of them")


def _refusal(reject: RejectedRow, more: str = "") -> BatchDataError:
    position = f"{reject.path}:{reject.line}"
    return BatchDataError(
        f"{position}: {reject.reason}{more}",
        component=COMPONENT,
        position=position,
        detail=shown_raw(reject.raw),
        fault="record that does not parse" if not more else "too many bytes of rejected records",
    )


def _chosen(planned: Fields, declared: Fields) -> list[int] | None:
    """Return the columns of the plan's schema that are declared now; None if both schemas are the same."""
    if planned.names == declared.names and all(
        a.type == b.type for a, b in zip(planned.items, declared.items, strict=True)
    ):
        return None
    for field in declared.items:
        known = planned.get(field.name)
        if known is None or known.type != field.type:
            message = (
                f"the batch was planned with {planned.ddl}, but the topology now declares {field.ddl}; declare "
                f"the planned field again to process it"
            )
            raise BatchDataError(message, component=COMPONENT, fault="other fields than planned")
    return [planned.names.index(name) for name in declared.names]
