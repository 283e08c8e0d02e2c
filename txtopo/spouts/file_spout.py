"""FileSpout: CSV files of a folder or a pattern become batches, by default one file per batch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.limits import BYTES_PER_BATCH, FILE_SETTLED_S, FILES_PER_BATCH, PART_BYTES, REJECTED_MAX
from txtopo.core.plan import Metadata
from txtopo.errors import TopologyError
from txtopo.spouts.csv.dialect import Header, check_encoding, column_indexes, read_header, why_no_header
from txtopo.spouts.file_coordinator import FileCoordinator
from txtopo.topology.components import Input, Position, Spout, SpoutContext, SpoutCoordinator, Tally

if TYPE_CHECKING:
    import pyarrow as pa

_SCHEME = re.compile(r"(jdbc|kafka|[A-Za-z][A-Za-z0-9+.-]+(?=:/)):")
"""A name followed by `:/`, as in `s3://…` and `file:/…`. `./s3:/…` is a folder of that name."""


class FileSpout(Spout):
    """Reads CSV files with a header line. Every file is read once, in the order of the paths, as soon as it no longer
    changes.

    >>> FileSpout("/data/flights", "carrier string, distance int").fields.names
    ('carrier', 'distance')
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fields: str | Fields,
        *,
        files_per_batch: int = FILES_PER_BATCH,
        bytes_per_batch: int = BYTES_PER_BATCH,
        delimiter: str = ",",
        null_values: Sequence[str] = ("",),
        settled_s: float = FILE_SETTLED_S,
        part_bytes: int = PART_BYTES,
        on_bad_line: Literal["reject", "fail"] = "reject",
        rejected_max: float = REJECTED_MAX,
        may_be_empty: bool = False,
    ) -> None:
        """`path` is a folder, a file or a glob. `fields` are the columns to read, matched by the names in the header;
        other columns are ignored.

        A batch is closed at `files_per_batch` files or `bytes_per_batch` bytes, whichever comes first. A file is ready
        when its size, mtime and ctime have not changed for `settled_s` seconds (0: at first sight). A file without
        quotes that is larger than `part_bytes` bytes is read in parts of that size. An unquoted value that is one of
        `null_values` is NULL; by default only the empty value, so `NA` and `null` are text. A record that does not
        parse is kept as a rejected row of its batch, or fails the batch with `on_bad_line="fail"`; a batch fails if
        more than the share `rejected_max` (0 to 1) of its records is rejected. A `--once` run halts if it finds no file
        at a path that never had one, unless `may_be_empty` is True.

        Raises TopologyError for an invalid value.
        """
        self.path: str = local_path(path)
        self.fields: Fields = parse_fields(fields)
        self.files_per_batch: int = _whole("files_per_batch", files_per_batch)
        self.bytes_per_batch: int = _whole("bytes_per_batch", bytes_per_batch)
        self.part_bytes: int = _whole("part_bytes", part_bytes)
        if not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
            raise TopologyError(
                f"FileSpout: delimiter {delimiter!r} is not one ASCII character other than a quote or a line end"
            )
        self.delimiter = delimiter
        if isinstance(null_values, str) or not all(isinstance(value, str) for value in null_values):
            raise TopologyError(f"FileSpout: null_values {null_values!r} is not a list of texts, e.g. ['', 'NA']")
        self.null_values: tuple[str, ...] = tuple(null_values)
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
            "kind": "csv",
            "delimiter": self.delimiter,
            "null_values": list(self.null_values),
            "part_bytes": self.part_bytes,
        }

    def header_of(self, start: bytes, *, final: bool) -> Header | None:
        """Return the header in the first bytes of a file; None if the file is empty. Raises ValueError if a declared
        column is missing.
        """
        check_encoding(start)  # The format explains the error completely.
        header = None
        try:
            header = read_header(start, self.delimiter, final=final)
            if header is not None:
                column_indexes(header.names, self.fields.names)
        except ValueError as error:
            found = header.names if header is not None else ()
            raise ValueError(f"{error}{why_no_header(start, found, self.fields.names)}") from error
        return header

    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        from txtopo.spouts.csv.emitter import split_batch

        return split_batch(metadata)

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        from txtopo.spouts.csv.emitter import emit_pieces

        return emit_pieces(metadata, part["pieces"], self.fields, tally, fail=self.on_bad_line == "fail")

    def locate(self, metadata: Metadata, part: Mapping[str, Any], number: int) -> Position | None:
        """Read the part again and return the place of the record. Raises BatchDataError if the source has changed."""
        from txtopo.spouts.csv.emitter import locate_record

        return locate_record(metadata, part["pieces"], number)

    def warm_up(self) -> None:
        import txtopo.spouts.csv.emitter  # noqa: F401

    def batch_bytes(self, metadata: Metadata) -> int:
        return sum(int(file["size"]) for file in metadata["files"])

    def inputs(self, metadata: Metadata) -> Sequence[Input]:
        return tuple(Input(path=file["path"], fingerprint=bytes.fromhex(file["sha256"])) for file in metadata["files"])

    def describe(self) -> Mapping[str, Any]:
        return {
            "kind": "csv files",
            "path": self.path,
            "fields": self.fields.ddl,
            "files_per_batch": self.files_per_batch,
            "bytes_per_batch": self.bytes_per_batch,
            "part_bytes": self.part_bytes,
            "delimiter": self.delimiter,
            "null_values": list(self.null_values),
            "settled_s": self.settled_s,
            "on_bad_line": self.on_bad_line,
            "rejected_max": self.rejected_max,
            "may_be_empty": self.may_be_empty,
        }


def local_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of files on this machine or on a mounted file system. Raises TopologyError for anything
    else, such as a URL.
    """
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise TopologyError(f"FileSpout: path {path!r} is not a folder, file or pattern")
    scheme = _SCHEME.match(text)
    if scheme is not None:
        remedy = (
            f"write {'/' + text[scheme.end() :].lstrip('/')!r}"
            if scheme[1].lower() == "file"
            else "mount it, or write a custom spout (docs/spouts.md)"
        )
        raise TopologyError(
            f"FileSpout: path {text!r} is a URL of scheme {scheme[1]}; FileSpout reads files of this machine or of a "
            f"mounted file system: {remedy}"
        )
    if text.startswith("~"):
        expanded = os.path.expanduser(text)  # noqa: PTH111
        if expanded.startswith("~"):
            raise TopologyError(
                f"FileSpout: path {text!r} names the home of an unknown user; a folder of that name is './{text}'"
            )
        text = expanded
    return os.path.abspath(text)  # noqa: PTH100 - links stay as the user wrote them


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TopologyError(f"FileSpout: {name} {value!r} is not a whole number of 1 or more")
    return value
