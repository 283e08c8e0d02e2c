"""A spout for text files: each line is a tuple. Files are selected, settled and recorded as by FileSpout."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from txtopo.core.limits import BYTES_PER_BATCH, FILE_SETTLED_S, FILES_PER_BATCH, PART_BYTES, REJECTED_MAX
from txtopo.core.plan import Metadata
from txtopo.spouts.csv.dialect import BYTE_ORDER_MARK, Header, check_encoding
from txtopo.spouts.file_spout import FileSpout
from txtopo.topology.components import Position, Tally

if TYPE_CHECKING:
    import pyarrow as pa


class TextSpout(FileSpout):
    """Reads UTF-8 text files; each line is a tuple with one field, `line string`. Every file is read once, as soon as
    it no longer changes.

    >>> TextSpout("/var/log/apache/access.log-*").fields.names
    ('line',)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        files_per_batch: int = FILES_PER_BATCH,
        bytes_per_batch: int = BYTES_PER_BATCH,
        settled_s: float = FILE_SETTLED_S,
        part_bytes: int = PART_BYTES,
        on_bad_line: Literal["reject", "fail"] = "reject",
        rejected_max: float = REJECTED_MAX,
        may_be_empty: bool = False,
    ) -> None:
        """Arguments and errors are those of FileSpout. Lines end with LF or CRLF; an empty line is a tuple too. A line
        that is not valid UTF-8 or contains NUL is rejected.
        """
        super().__init__(
            path,
            "line string not null",
            files_per_batch=files_per_batch,
            bytes_per_batch=bytes_per_batch,
            settled_s=settled_s,
            part_bytes=part_bytes,
            on_bad_line=on_bad_line,
            rejected_max=rejected_max,
            may_be_empty=may_be_empty,
        )

    def layout(self) -> Mapping[str, Any]:
        return {"kind": "text", "part_bytes": self.part_bytes}

    def header_of(self, start: bytes, *, final: bool) -> Header | None:
        """Return an empty header: text files have none. A byte order mark is skipped."""
        check_encoding(start)
        return Header((), len(BYTE_ORDER_MARK) if start.startswith(BYTE_ORDER_MARK) else 0)

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        from txtopo.spouts.text_emitter import emit_lines

        return emit_lines(metadata, part["pieces"], self.fields, tally, fail=self.on_bad_line == "fail")

    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        from txtopo.spouts.text_emitter import split_texts

        return split_texts(metadata)

    def locate(self, metadata: Metadata, part: Mapping[str, Any], number: int) -> Position | None:
        from txtopo.spouts.text_emitter import locate_line

        return locate_line(metadata, part["pieces"], number)

    def warm_up(self) -> None:
        import txtopo.spouts.text_emitter  # noqa: F401

    def describe(self) -> Mapping[str, Any]:
        described = super().describe()
        return {
            name: value for name, value in described.items() if name not in ("delimiter", "null_values", "fields")
        } | {"kind": "text files", "fields": self.fields.ddl}
