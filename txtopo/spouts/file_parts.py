"""The emitter half of the file source: divides a planned batch into parts, and reads a part as Arrow record batches by
the format of its plan.

A part is a list of pieces `[file index, start, end]`: sections of files, as their format divides them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.limits import REJECTED_BYTES_MAX
from txtopo.core.plan import Metadata
from txtopo.core.values import RejectedRow
from txtopo.errors import BatchDataError
from txtopo.spouts.formats.format import Emitted, Format, Opened, PlannedFile, Section
from txtopo.spouts.places.known_places import planned_place
from txtopo.spouts.planned_file import COMPONENT
from txtopo.spouts.reject_limit import rejected_share, shown_raw
from txtopo.spouts.unpacked_file import UNKNOWN_BYTES, unpacked_file
from txtopo.topology.components import Position, Tally

if TYPE_CHECKING:
    import pyarrow as pa


def split_batch(format_: Format, metadata: Metadata) -> list[dict[str, Any]]:
    """Return the parts of a batch, from its plan alone: small files share a part, a large file that its format divides
    has several.
    """
    part_bytes = int(metadata["format"]["part_bytes"])
    parts: list[list[list[int]]] = [[]]
    filled = 0
    for index in range(len(metadata["files"])):
        file = _file(metadata, index)
        for section in format_.sections(_seen(file), UNKNOWN_BYTES if "codec" in file else part_bytes):
            size = int(file["size"]) if "codec" in file else format_.section_bytes(file, section)
            if parts[-1] and filled + size > part_bytes:
                parts.append([])
                filled = 0
            parts[-1].append([index, section.start, section.end])
            filled += size
    return [{"pieces": pieces} for pieces in parts]


def emit_pieces(
    format_: Format,
    metadata: Metadata,
    pieces: Sequence[Sequence[int]],
    declared: Fields,
    tally: Tally,
    *,
    fail: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Emit the pieces as batches of the declared fields, parsed with the plan's own schema (R12).

    Records that do not parse go to the tally; with `fail` the first one raises BatchDataError.
    """
    from txtopo.spouts.arrow_types import arrow_schema

    planned = parse_fields(metadata["schema"])
    chosen = _chosen(planned, declared)
    keeper = _Keeper(tally, fail=fail)
    for file, section in _sections(metadata, pieces):
        with _opened(file, to_its_end=True) as opened:
            for emitted in format_.emit(opened, _seen(file), section, planned):
                keeper.keep(emitted)
                if emitted.batch is None or not emitted.batch.num_rows:
                    continue
                yield emitted.batch if chosen is None else _only(emitted.batch, chosen, arrow_schema(declared))


def locate_row(format_: Format, metadata: Metadata, pieces: Sequence[Sequence[int]], number: int) -> Position | None:
    """Return the position of row `number` (from 0) that `emit_pieces` emits of these pieces; None if there are
    fewer.
    """
    planned = parse_fields(metadata["schema"])
    left = number
    for file, section in _sections(metadata, pieces):
        with _opened(file, to_its_end=False) as opened:
            found = format_.locate(opened, _seen(file), section, planned, left)
        if isinstance(found, Position):
            return found
        left -= found
    return None


@contextmanager
def _opened(file: PlannedFile, *, to_its_end: bool) -> Iterator[Opened]:
    """Yield a planned file, which is compared with its plan. Raises as `FilePlace.verified`."""
    with planned_place(file).verified(file) as stored:
        if "codec" not in file:
            yield Opened(str(file["path"]), stored.read, int(file["size"]))
            return
        with unpacked_file(file, stored.read, to_its_end=to_its_end) as opened:
            yield opened


def _seen(file: PlannedFile) -> PlannedFile:
    """Return a file as its format sees it: nobody knows the size of a compressed one."""
    return {**file, "size": UNKNOWN_BYTES} if "codec" in file else file


def _sections(metadata: Metadata, pieces: Sequence[Sequence[int]]) -> Iterator[tuple[PlannedFile, Section]]:
    for index, start, end in pieces:
        yield _file(metadata, index), Section(start, end)


def _file(metadata: Metadata, index: int) -> PlannedFile:
    """Return a file of the plan with its own header."""
    file = metadata["files"][index]
    number = file.get("header")
    return file if number is None else {**file, "header": metadata["headers"][number]}


def _only(batch: pa.RecordBatch, chosen: Sequence[int], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([batch.column(at) for at in chosen], schema=schema)


class _Keeper:
    """Counts what a part emits and keeps rejected records, within limits."""

    def __init__(self, tally: Tally, *, fail: bool) -> None:
        self._tally = tally
        self._fail = fail
        self._first: RejectedRow | None = None
        self._read_before = tally.read
        self._rejected_before = tally.rejected
        self._kept_bytes = 0

    def keep(self, emitted: Emitted) -> None:
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
    position = reject.position
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
