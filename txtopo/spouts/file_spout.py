"""FileSpout: files of a folder or a pattern become batches, by default one file per batch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.limits import BYTES_PER_BATCH, FILE_SETTLED_S, FILES_PER_BATCH, PART_BYTES, REJECTED_MAX
from txtopo.core.plan import Metadata
from txtopo.core.planned_fingerprint import planned_fingerprint
from txtopo.errors import TopologyError
from txtopo.spouts.file_coordinator import FileCoordinator
from txtopo.spouts.file_fields import FileFields, chosen_partitions
from txtopo.spouts.file_parts import emit_pieces, locate_row, split_batch
from txtopo.spouts.formats.format import Format
from txtopo.spouts.formats.known_formats import chosen_format, planned_format
from txtopo.spouts.places.known_places import place_of
from txtopo.spouts.places.place import FilePlace
from txtopo.topology.components import Input, Position, Spout, SpoutContext, SpoutCoordinator, Tally

if TYPE_CHECKING:
    import pyarrow as pa


class FileSpout(Spout):
    """Reads files, by default CSV with a header line. Every file is read once, in the order of the paths, as soon as it
    no longer changes.

    >>> FileSpout("/data/flights", "carrier string, distance int").fields.names
    ('carrier', 'distance')
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fields: str | Fields,
        *,
        format: str | Format | None = None,
        files_per_batch: int = FILES_PER_BATCH,
        bytes_per_batch: int = BYTES_PER_BATCH,
        delimiter: str | None = None,
        null_values: Sequence[str] | None = None,
        settled_s: float = FILE_SETTLED_S,
        part_bytes: int = PART_BYTES,
        on_bad_line: Literal["reject", "fail"] = "reject",
        rejected_max: float = REJECTED_MAX,
        may_be_empty: bool = False,
        partitions: Literal["hive"] | Sequence[str] = (),
    ) -> None:
        """`path` is a folder, a file or a glob. `fields` are the columns to read, matched by the names in the header;
        other columns are ignored. `format` is the name of a format or an object of `txtopo.formats`, by default
        `Csv()`; `delimiter` and `null_values` are short for those of `Csv`.

        A batch is closed at `files_per_batch` files or `bytes_per_batch` bytes, whichever comes first. A file is ready
        when its size, mtime and ctime have not changed for `settled_s` seconds (0: at first sight). A file that is
        larger than `part_bytes` bytes is read in parts of that size, if its format allows that: CSV without quotes. An
        unquoted value that is one of `null_values` is NULL; by default only the empty value, so `NA` and `null` are
        text. A record that does not
        parse is kept as a rejected row of its batch, or fails the batch with `on_bad_line="fail"`; a batch fails if
        more than the share `rejected_max` (0 to 1) of its records is rejected. A `--once` run halts if it finds no file
        at a path that never had one, unless `may_be_empty` is True.

        `partitions` are declared fields whose values stand in names of folders, `day=2026-11-01/`; "hive" means those
        of which the path has such a folder, `/data/day=*/*.csv`. `_file`, `_line` and `_modified` are path, line and
        time of the last change of the file, where they are declared.

        Raises TopologyError for an invalid value.
        """
        self.place: FilePlace = place_of(path)
        self.path: str = self.place.path
        self.fields: Fields = parse_fields(fields)
        self.files_per_batch: int = _whole("files_per_batch", files_per_batch)
        self.bytes_per_batch: int = _whole("bytes_per_batch", bytes_per_batch)
        self.part_bytes: int = _whole("part_bytes", part_bytes)
        self.format: Format = chosen_format(format, self.path, delimiter=delimiter, null_values=null_values)
        chosen = chosen_partitions(partitions, self.path, self.fields)
        self.file_fields: FileFields = FileFields.declared(self.fields, self.format.number_field, chosen)
        self.format.check(self.file_fields.within)
        if isinstance(settled_s, bool) or not isinstance(settled_s, int | float) or not 0 <= settled_s < float("inf"):
            raise TopologyError(f"FileSpout: settled_s {settled_s!r} is not a number of seconds")
        self.settled_s: float = float(settled_s)
        if on_bad_line not in ("reject", "fail"):
            raise TopologyError(f"FileSpout: on_bad_line {on_bad_line!r} is neither 'reject' nor 'fail'")
        self.on_bad_line = on_bad_line
        if isinstance(rejected_max, bool) or not isinstance(rejected_max, int | float) or not 0 <= rejected_max <= 1:
            raise TopologyError(f"FileSpout: rejected_max {rejected_max!r} is not a share from 0 to 1")
        self.rejected_max: float = float(rejected_max)
        if not isinstance(may_be_empty, bool):
            raise TopologyError(f"FileSpout: may_be_empty {may_be_empty!r} is neither True nor False")
        self.may_be_empty = may_be_empty

    def open_coordinator(self, context: SpoutContext) -> SpoutCoordinator:
        return FileCoordinator(self, context)

    def layout(self) -> Mapping[str, Any]:
        """Return the layout of the files, for the plan."""
        return {
            "kind": self.format.kind,
            **self.format.layout(),
            "part_bytes": self.part_bytes,
            **self.file_fields.layout,
        }

    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        return split_batch(self._planned_format(metadata), metadata)

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        fail = self.on_bad_line == "fail"
        return emit_pieces(self._planned_format(metadata), metadata, part["pieces"], self.fields, tally, fail=fail)

    def locate(self, metadata: Metadata, part: Mapping[str, Any], number: int) -> Position | None:
        """Read the part again and return the place of the record. Raises BatchDataError if the source has changed."""
        return locate_row(self._planned_format(metadata), metadata, part["pieces"], number)

    def _planned_format(self, metadata: Metadata) -> Format:
        return planned_format(metadata["format"], self.format)

    def warm_up(self) -> None:
        self.format.warm_up()

    def batch_bytes(self, metadata: Metadata) -> int:
        return sum(int(file["size"]) for file in metadata["files"])

    def inputs(self, metadata: Metadata) -> Sequence[Input]:
        return tuple(Input(path=file["path"], fingerprint=planned_fingerprint(file)) for file in metadata["files"])

    def describe(self) -> Mapping[str, Any]:
        return {
            "kind": f"{self.format.kind} files",
            "path": self.path,
            "fields": self.fields.ddl,
            "files_per_batch": self.files_per_batch,
            "bytes_per_batch": self.bytes_per_batch,
            "part_bytes": self.part_bytes,
            **self.format.layout(),
            "settled_s": self.settled_s,
            "on_bad_line": self.on_bad_line,
            "rejected_max": self.rejected_max,
            "may_be_empty": self.may_be_empty,
            **self.file_fields.layout,
        }


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TopologyError(f"FileSpout: {name} {value!r} is not a whole number of 1 or more")
    return value
