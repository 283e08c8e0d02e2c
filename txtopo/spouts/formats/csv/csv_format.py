"""The format CSV: records with a header line, after RFC 4180."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import INTEGER_KINDS, Fields
from txtopo.errors import TopologyError
from txtopo.spouts.fingerprint import Scan
from txtopo.spouts.formats.csv.content_scan import ContentScan
from txtopo.spouts.formats.csv.dialect import (
    HEADER_BYTES_MAX,
    Header,
    check_encoding,
    column_indexes,
    read_header,
    why_no_header,
)
from txtopo.spouts.formats.format import Emitted, Format, Opened, PlannedFile, Section, byte_sections
from txtopo.topology.components import Position

if TYPE_CHECKING:
    from txtopo.spouts.formats.csv.ranges import Piece


class Csv(Format):
    """CSV files with a header line.

    >>> Csv(delimiter=";").layout()
    {'delimiter': ';', 'null_values': ['']}
    """

    kind = "csv"
    reads_forward = True

    def __init__(self, *, delimiter: str = ",", null_values: Sequence[str] = ("",)) -> None:
        """`delimiter` is one ASCII character. An unquoted value that is one of `null_values` is NULL. Raises
        TopologyError for an invalid value.
        """
        if not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
            raise TopologyError(f"delimiter {delimiter!r} is not one ASCII character other than a quote or a line end")
        self.delimiter = delimiter
        if isinstance(null_values, str) or not all(isinstance(value, str) for value in null_values):
            raise TopologyError(f"null_values {null_values!r} is not a list of texts, e.g. ['', 'NA']")
        self.null_values: tuple[str, ...] = tuple(null_values)

    def layout(self) -> Mapping[str, Any]:
        return {"delimiter": self.delimiter, "null_values": list(self.null_values)}

    def scan(self, fields: Fields) -> Scan:
        return ContentScan(hexadecimal=any(field.type.kind in INTEGER_KINDS for field in fields.items))

    def describe(self, opened: Opened, fields: Fields) -> Mapping[str, Any]:
        """Return its header, None if it has no record, and in `data` the offset of the first record after it."""
        start = opened.start[:HEADER_BYTES_MAX]
        header = self._header(start, fields, final=len(start) == opened.size)
        return {"header": header and list(header.names), "data": header.end if header else 0}

    def _header(self, start: bytes, fields: Fields, *, final: bool) -> Header | None:
        check_encoding(start)  # The format explains the error completely.
        header = None
        try:
            header = read_header(start, self.delimiter, final=final)
            if header is not None:
                column_indexes(header.names, fields.names)
        except ValueError as error:
            found = header.names if header is not None else ()
            raise ValueError(f"{error}{why_no_header(start, found, fields.names)}") from error
        return header

    def sections(self, file: PlannedFile, part_bytes: int) -> Sequence[Section]:
        """Return one section for a file with quotes: line ends may be inside values."""
        start, end = int(file["data"]), int(file["size"])
        return byte_sections(start, end, part_bytes) if file["quotes"] is False else [Section(start, end)]

    def emit(self, opened: Opened, file: PlannedFile, section: Section, fields: Fields) -> Iterator[Emitted]:
        return iter(()) if file["header"] is None else self._piece(opened, file, section, fields).emitted()

    def locate(
        self, opened: Opened, file: PlannedFile, section: Section, fields: Fields, number: int
    ) -> Position | int:
        return 0 if file["header"] is None else self._piece(opened, file, section, fields).locate(number)

    def _piece(self, opened: Opened, file: PlannedFile, section: Section, fields: Fields) -> Piece:
        from txtopo.spouts.formats.csv.ranges import Piece
        from txtopo.spouts.formats.csv.values import Decoder

        # What was not looked for when the file was planned may be there.
        decoder = Decoder(
            tuple(file["header"]),
            fields,
            self.delimiter,
            may_hold_nul=file["nul"] is not False,
            may_hold_hexadecimal=file["hexadecimal"] is not False,
            null_values=self.null_values,
            tells_infinite=False,
        )
        return Piece(opened, file, section, decoder)

    def warm_up(self) -> None:
        import txtopo.spouts.formats.csv.ranges  # noqa: F401
