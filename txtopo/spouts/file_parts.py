"""The emitter half of the file source: divides a planned batch into parts, and reads a part as Arrow record batches by
the format of its plan.

A part is a list of pieces `[file index, start, end]`: sections of files, as their format divides them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.plan import Metadata
from txtopo.spouts.file_fields import FileFields
from txtopo.spouts.formats.format import Emitted, Format, Opened, PlannedFile, Section
from txtopo.spouts.places.known_places import planned_place
from txtopo.spouts.planned_rows import Keeper, chosen_columns, only_columns
from txtopo.spouts.unpacked_file import UNKNOWN_BYTES, unpacked_file
from txtopo.topology.components import Position, Tally

if TYPE_CHECKING:
    import pyarrow as pa

Opener = Callable[[PlannedFile], AbstractContextManager[Opened]]
_FileSection = tuple[PlannedFile, Section]
TOGETHER_BYTES_MAX = 4 * 1024 * 1024
"""Small files are read together up to this number of bytes: to set up the parser for each costs more than to parse it.
"""


def split_batch(format_: Format, metadata: Metadata) -> list[dict[str, Any]]:
    """Return the parts of a batch, from its plan alone: small files share a part, a large file that its format divides
    has several.
    """
    part_bytes = int(metadata["format"]["part_bytes"])
    parts: list[list[list[int]]] = [[]]
    filled = 0
    is_numbered = FileFields.planned(parse_fields(metadata["schema"]), metadata).is_numbered
    for index in range(len(metadata["files"])):
        file = _file(metadata, index)
        seen = _seen(file, is_numbered=is_numbered)
        for section in format_.sections(seen, UNKNOWN_BYTES if "codec" in file else part_bytes):
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
    opener: Opener | None = None,
) -> Iterator[pa.RecordBatch]:
    """Emit the pieces as batches of the declared fields, parsed with the plan's own schema (R12).

    Records that do not parse go to the tally; with `fail` the first one raises BatchDataError. `opener` opens files
    that are not whole files of a disk.
    """
    from txtopo.spouts.arrow_types import arrow_schema

    planned = parse_fields(metadata["schema"])
    known = FileFields.planned(planned, metadata)
    within, is_numbered = known.within, known.is_numbered
    chosen = chosen_columns(planned, declared)
    keeper = Keeper(tally, fail=fail)
    is_bare = opener is None and not known.about and not known.partitions
    opened_by = opener or _opened_to_its_end
    for sections in _runs(format_, _sections(metadata, pieces), is_bare=is_bare):
        for emitted, file in _emitted(format_, sections, within, opened_by, keeper, is_numbered=is_numbered):
            if emitted.batch is None or not emitted.batch.num_rows:
                continue
            batch = known.completed(emitted.batch, emitted.numbers, file)
            yield batch if chosen is None else only_columns(batch, chosen, arrow_schema(declared))


def _emitted(
    format_: Format,
    sections: Sequence[_FileSection],
    within: Fields,
    opened_by: Opener,
    keeper: Keeper,
    *,
    is_numbered: bool,
) -> Iterator[tuple[Emitted, PlannedFile]]:
    if len(sections) > 1 and (together := _read_together(format_, sections, within)) is not None:
        keeper.keep(together)
        yield together, sections[0][0]
        return
    for file, section in sections:
        with opened_by(file) as opened:
            for emitted in format_.emit(opened, _seen(file, is_numbered=is_numbered), section, within):
                # While the file is open: that it changed, or is damaged, is a better reason than a bad record.
                keeper.keep(emitted)
                yield emitted, file


def _runs(format_: Format, sections: Iterator[_FileSection], *, is_bare: bool) -> Iterator[list[_FileSection]]:
    """Yield the sections, several where the format may read them together. `is_bare`: rows have only what is in
    the records.
    """
    run: list[_FileSection] = []
    size, common = 0, None
    for file, section in sections:
        found = format_.common(file, section) if is_bare and "codec" not in file else None
        size += section.size
        if run and (found is None or found != common or size > TOGETHER_BYTES_MAX):
            yield run
            run, size = [], section.size
        run.append((file, section))
        common = found
    if run:
        yield run


def _read_together(format_: Format, sections: Sequence[_FileSection], within: Fields) -> Emitted | None:
    """Return the rows of sections with something in common; None if a record does not parse, so that each has to be
    read by itself.
    """
    contents = []
    for file, section in sections:
        with _opened_to_its_end(file) as opened:  # K7: compared with its plan before and after it is read.
            contents.append(opened.read(section.start, section.size))
    return format_.emit_together(contents, sections[0][0], within)


def locate_row(
    format_: Format,
    metadata: Metadata,
    pieces: Sequence[Sequence[int]],
    number: int,
    *,
    opener: Opener | None = None,
) -> Position | None:
    """Return the position of row `number` (from 0) that `emit_pieces` emits of these pieces; None if there are
    fewer.
    """
    within = FileFields.planned(parse_fields(metadata["schema"]), metadata).within
    left = number
    for file, section in _sections(metadata, pieces):
        with opener(file) if opener else _opened(file, to_its_end=False) as opened:
            found = format_.locate(opened, _seen(file), section, within, left)
        if isinstance(found, Position):
            return found
        left -= found
    return None


def _opened_to_its_end(file: PlannedFile) -> AbstractContextManager[Opened]:
    return _opened(file, to_its_end=True)


@contextmanager
def _opened(file: PlannedFile, *, to_its_end: bool) -> Iterator[Opened]:
    """Yield a planned file, which is compared with its plan. Raises as `FilePlace.verified`."""
    with planned_place(file).verified(file) as stored:
        if "codec" not in file:
            yield Opened(str(file["path"]), stored.read, int(file["size"]))
            return
        with unpacked_file(file, stored.read, to_its_end=to_its_end) as opened:
            yield opened


def _seen(file: PlannedFile, *, is_numbered: bool = False) -> PlannedFile:
    """Return a file as its format sees it: nobody knows the size of a compressed one."""
    seen = {**file, "numbered": True} if is_numbered else file
    return {**seen, "size": UNKNOWN_BYTES} if "codec" in file else seen


def _sections(metadata: Metadata, pieces: Sequence[Sequence[int]]) -> Iterator[_FileSection]:
    for index, start, end in pieces:
        yield _file(metadata, index), Section(start, end)


def _file(metadata: Metadata, index: int) -> PlannedFile:
    """Return a file of the plan with its own header."""
    file = metadata["files"][index]
    number = file.get("header")
    return file if number is None else {**file, "header": metadata["headers"][number]}
