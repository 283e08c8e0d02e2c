"""TailSpout: whole lines of growing files become batches, through rotation, while they are written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.limits import REJECTED_MAX
from txtopo.core.plan import Metadata
from txtopo.errors import TopologyError
from txtopo.spouts.file_fields import FileFields
from txtopo.spouts.file_parts import emit_pieces, locate_row
from txtopo.spouts.formats.format import Format, Opened, PlannedFile
from txtopo.spouts.formats.json_format import Json
from txtopo.spouts.formats.known_formats import planned_format
from txtopo.spouts.formats.line_format import LineFormat
from txtopo.spouts.formats.text import Text
from txtopo.spouts.partitioned import NamedCoordinator, PartitionedTransactionalSpout
from txtopo.spouts.places.known_places import place_of
from txtopo.spouts.places.local_place import LocalPlace
from txtopo.spouts.tail.identity import planned_bytes
from txtopo.spouts.tail.tail_coordinator import TailCoordinator
from txtopo.topology.components import Position, SpoutContext, Tally

if TYPE_CHECKING:
    import pyarrow as pa

BYTES_PER_BATCH = 32 * 1024 * 1024
"""About how many bytes of a file are in a batch. The task that reads them has them in memory."""
SETTLED_S = 1.0
ROTATED_S = 10.0
_BY_NAME: Mapping[str, type[LineFormat]] = {"text": Text, "json": Json}


class TailSpout(PartitionedTransactionalSpout):
    """Reads the lines of files that grow: logs that are appended to, rotated and compressed. Every whole line is read
    once, a second or two after it was written.

    >>> TailSpout("/var/log/app/app.log", "line string").rotated
    ('/var/log/app/app.log.[0-9]*', '/var/log/app/app.log-[0-9]*')
    """

    described_as = "growing files"

    def __init__(
        self,
        path: str | os.PathLike[str],
        fields: str | Fields,
        *,
        format: str | Format = "text",
        rotated: str | Sequence[str] | None = None,
        bytes_per_batch: int = BYTES_PER_BATCH,
        settled_s: float = SETTLED_S,
        rotated_s: float = ROTATED_S,
        on_truncate: Literal["halt", "new"] = "halt",
        on_bad_line: Literal["reject", "fail"] = "reject",
        rejected_max: float = REJECTED_MAX,
    ) -> None:
        """`path` is a file, a pattern or a folder: the files that are appended to. `format` is a format of lines:
        `"text"`, `"json"`, or an object of `txtopo.formats`. `rotated` says where a file goes when it is rotated: a
        pattern or several, compressed files among them; by default the names that logrotate gives, and `()` for none.
        Files that match it and were never read are input, too.

        A batch has about `bytes_per_batch` bytes of each file, in whole lines. Bytes are read when they are `settled_s`
        seconds old. A rotated file that nobody wrote to for `rotated_s` seconds is complete: its last line counts
        without a line end, and an archive is read. If a file becomes shorter, or others bytes stand where some were
        read, the topology halts; with `on_truncate="new"` what is there now is a new file. `on_bad_line` and
        `rejected_max` are those of `FileSpout`.

        Raises TopologyError for an invalid value.
        """
        self.path: str = _local(path)
        self.rotated: tuple[str, ...] = _patterns(self.path, rotated)
        self.fields: Fields = parse_fields(fields)
        self.format: LineFormat = _line_format(format)
        self.file_fields: FileFields = FileFields.declared(self.fields, self.format.number_field)
        self.format.check(self.file_fields.within)
        if isinstance(bytes_per_batch, bool) or not isinstance(bytes_per_batch, int) or bytes_per_batch < 1:
            raise TopologyError(f"TailSpout: bytes_per_batch {bytes_per_batch!r} is not a whole number of 1 or more")
        self.bytes_per_batch: int = bytes_per_batch
        self.settled_s: float = _seconds("settled_s", settled_s)
        self.rotated_s: float = _seconds("rotated_s", rotated_s)
        if on_truncate not in ("halt", "new"):
            raise TopologyError(f"TailSpout: on_truncate {on_truncate!r} is neither 'halt' nor 'new'")
        self.on_truncate = on_truncate
        if on_bad_line not in ("reject", "fail"):
            raise TopologyError(f"TailSpout: on_bad_line {on_bad_line!r} is neither 'reject' nor 'fail'")
        self.on_bad_line = on_bad_line
        if isinstance(rejected_max, bool) or not isinstance(rejected_max, int | float) or not 0 <= rejected_max <= 1:
            raise TopologyError(f"TailSpout: rejected_max {rejected_max!r} is not a share from 0 to 1")
        self.rejected_max: float = float(rejected_max)

    def _check_methods(self) -> None:
        """It emits by itself, with no emitter half."""

    def get_coordinator(self, config: Mapping[str, Any], context: SpoutContext) -> NamedCoordinator:
        return TailCoordinator(self, context)

    def _planned_settings(self) -> Mapping[str, Any]:
        return {
            "format": {"kind": self.format.kind, **self.format.layout(), **self.file_fields.layout},
            "schema": self.fields.ddl,
            "rotated": list(self.rotated),
        }

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        if part["partition"] is None:
            return iter(())
        files = _as_files(metadata, part["partition"])
        format_ = planned_format(metadata["format"], self.format)
        fail = self.on_bad_line == "fail"
        return emit_pieces(format_, files, _whole_of(files), self.fields, tally, fail=fail, opener=self._opened)

    def locate(self, metadata: Metadata, part: Mapping[str, Any], number: int) -> Position | None:
        """Read the part again and return the place of the record. Raises BatchDataError if the source has changed."""
        if part["partition"] is None:
            return None
        files = _as_files(metadata, part["partition"])
        format_ = planned_format(metadata["format"], self.format)
        return locate_row(format_, files, _whole_of(files), number, opener=self._opened)

    @contextmanager
    def _opened(self, file: PlannedFile) -> Iterator[Opened]:
        data = planned_bytes(file["range"], self.rotated)
        yield Opened(str(file["path"]), lambda offset, size: data[offset : offset + size], len(data))

    def bytes_of(self, partition: Any, metadata: Any) -> int:
        return int(metadata["end"] - metadata["start"])

    def warm_up(self) -> None:
        self.format.warm_up()

    def describe(self) -> Mapping[str, Any]:
        return {
            "kind": f"growing {self.format.kind} files",
            "path": self.path,
            "rotated": list(self.rotated),
            "fields": self.fields.ddl,
            **self.format.layout(),
            **self.file_fields.layout,
            "bytes_per_batch": self.bytes_per_batch,
            "settled_s": self.settled_s,
            "rotated_s": self.rotated_s,
            "on_truncate": self.on_truncate,
            "on_bad_line": self.on_bad_line,
            "rejected_max": self.rejected_max,
        }


def _as_files(metadata: Metadata, at: int) -> Metadata:
    """Return a range in the words of the file source: a file that has these lines only."""
    planned = metadata["partitions"][at]["range"]
    file = {
        "path": planned["path"],
        "size": planned["end"] - planned["start"],
        "data": planned.get("data", 0),
        "first_line": planned["line"],
        "mtime_ns": planned["mtime_ns"],
        "range": planned,
    }
    return {"format": metadata["format"], "schema": metadata["schema"], "headers": [], "files": [file]}


def _whole_of(files: Metadata) -> Sequence[Sequence[int]]:
    file = files["files"][0]
    return [[0, file["data"], file["size"]]]


def _line_format(chosen: str | Format) -> LineFormat:
    if isinstance(chosen, LineFormat):
        return chosen
    named = _BY_NAME.get(chosen) if isinstance(chosen, str) else None
    if named is None:
        raise TopologyError(
            f"TailSpout: format {chosen!r} is neither 'text' nor 'json', nor an object of txtopo.formats whose records "
            f"are lines (Text, Json, Pattern)"
        )
    return named()


def _patterns(path: str, rotated: str | Sequence[str] | None) -> tuple[str, ...]:
    if rotated is None:
        # A folder has its rotated files in it.
        return () if os.path.isdir(path) else (f"{path}.[0-9]*", f"{path}-[0-9]*")  # noqa: PTH112
    patterns = (rotated,) if isinstance(rotated, str | os.PathLike) else tuple(rotated)
    folder = os.path.dirname(path)  # noqa: PTH120
    found = tuple(_local(os.path.join(folder, pattern)) for pattern in patterns)  # noqa: PTH118
    if path in found:
        raise TopologyError(f"TailSpout: rotated {rotated!r} is the path itself")
    return found


def _local(path: str | os.PathLike[str]) -> str:
    place = place_of(path)
    if not isinstance(place, LocalPlace):
        raise TopologyError(f"TailSpout: {path!r} is no path of this machine: only its files grow")
    return place.path


def _seconds(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise TopologyError(f"TailSpout: {name} {value!r} is not a number of seconds")
    return float(value)
