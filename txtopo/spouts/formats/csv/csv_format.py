"""The format CSV: records after RFC 4180, with or without a header line, and how their values may be written."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import INTEGER_KINDS, Fields
from txtopo.errors import TopologyError
from txtopo.spouts.fingerprint import Scan
from txtopo.spouts.formats.csv.column_names import ColumnNames
from txtopo.spouts.formats.csv.content_scan import ContentScan
from txtopo.spouts.formats.csv.dialect import (
    HEADER_BYTES_MAX,
    Dialect,
    Header,
    check_encoding,
    column_indexes,
    data_start,
    has_lines_alone,
    read_header,
    what_it_is,
    why_no_header,
    why_no_record,
)
from txtopo.spouts.formats.csv.encodings import UTF_8, encoding_named, why_not_of
from txtopo.spouts.formats.csv.spellings import Spellings
from txtopo.spouts.formats.format import Emitted, Format, Opened, PlannedFile, Section, byte_sections
from txtopo.topology.components import Position

if TYPE_CHECKING:
    from txtopo.spouts.formats.csv.ranges import Piece
    from txtopo.spouts.formats.csv.values import Decoder


class Csv(Format):
    """CSV files.

    >>> Csv(delimiter=";", decimal=",").layout()
    {'delimiter': ';', 'null_values': [''], 'decimal': ','}
    """

    kind = "csv"
    reads_forward = True
    number_field = "_line"

    def __init__(
        self,
        *,
        delimiter: str = ",",
        null_values: Sequence[str] = ("",),
        header: bool = True,
        columns: int | Sequence[str] | None = None,
        trim: bool = False,
        ignore_case: bool = False,
        decimal: str = ".",
        grouping: str | None = None,
        date_format: str | None = None,
        timestamp_format: str | None = None,
        empty_is_null: bool = False,
        quote: str | None = '"',
        escape: str | None = None,
        comment: str | None = None,
        encoding: str = UTF_8,
    ) -> None:
        """`delimiter`, `quote`, `escape` and `comment` are each one ASCII character. An unquoted value that is one
        of `null_values` is NULL.

        With `header=False` there is no header line, and the declared fields are the columns in this order. `columns` is
        then the number of columns, if only the first ones are declared, or the names of all. With `trim`, blanks around
        the names of a header do not count, with `ignore_case` nor do capitals.

        `decimal` stands before decimal places, a dot or a comma; `grouping` may stand between groups of three digits.
        `date_format` and `timestamp_format` say how dates and timestamps are written, such as `%d.%m.%Y %H:%M`. With
        `empty_is_null`, an empty value in quotes is NULL in a column that is neither string nor binary.

        With `quote=None`, a quote is a character like others. The character after `escape` belongs to the value. A line
        that starts with `comment` is skipped. `encoding` is UTF-8, or another one that Python knows, such as `latin-1`,
        `cp1252` or `utf-16`.

        Raises TopologyError for an invalid value.
        """
        if isinstance(null_values, str) or not all(isinstance(value, str) for value in null_values):
            raise TopologyError(f"null_values {null_values!r} is not a list of texts, e.g. ['', 'NA']")
        self._dialect = Dialect(
            delimiter=delimiter,
            quote=quote,
            escape=escape,
            comment=comment,
            encoding=encoding_named(encoding),
            null_values=tuple(null_values),
        )
        self._dialect.check()
        names = tuple(columns) if isinstance(columns, list | tuple) else columns
        self._columns = ColumnNames(header=header, columns=names, trim=trim, ignore_case=ignore_case)  # type: ignore[arg-type]
        self._columns.check()
        self._spellings = Spellings(
            decimal=decimal,
            grouping=grouping,
            date_format=date_format,
            timestamp_format=timestamp_format,
            empty_is_null=empty_is_null,
        )
        self._spellings.check()
        self._layout: Mapping[str, Any] = {
            "delimiter": self._dialect.delimiter,
            "null_values": list(self._dialect.null_values),
            **self._columns.layout(),
            **self._spellings.layout(),
            **self._dialect.layout(),
        }

    def layout(self) -> Mapping[str, Any]:
        """Return the settings; of those that the first release did not have, only the ones that are not the usual."""
        return {name: [*value] if isinstance(value, list) else value for name, value in self._layout.items()}

    def check(self, fields: Fields) -> None:
        self._columns.check_fields(fields)
        self._spellings.check_fields(fields)
        encoding = self._dialect.encoding
        for field in fields.items:
            if field.type.kind == "binary" and encoding != UTF_8:
                raise TopologyError(f"column {field.name!r} is declared binary, and encoding {encoding!r} is for texts")

    @property
    def _is_recoded(self) -> bool:
        return self._dialect.encoding != self._dialect.read_as

    def scan(self, fields: Fields) -> Scan | None:
        if self._is_recoded:
            return None
        return ContentScan(
            hexadecimal=any(field.type.kind in INTEGER_KINDS for field in fields.items), special=self._dialect.special
        )

    def describe(self, opened: Opened, fields: Fields) -> Mapping[str, Any]:
        """Return the names of its columns, None if it has no record, and in `data` the offset of the first record."""
        start, encoding = opened.start, self._dialect.encoding
        what = what_it_is(start)
        why = why_not_of(start, what, encoding)
        if why is not None:
            raise ValueError(why)
        if what is not None and not what.startswith("UTF"):
            check_encoding(start)  # The format explains the error completely.
        text = self._text_of(opened)
        start = text.start[:HEADER_BYTES_MAX]
        final = len(start) == text.size if text is opened else len(start) < HEADER_BYTES_MAX
        if not self._columns.header:
            names = self._columns.by_position(fields)
            why = why_no_record(start, self._dialect, names, fields.names, final=final)
            if why is not None:
                raise ValueError(why)
            return {"header": list(names), "data": data_start(start)}
        header = self._header(start, fields, final=final)
        return {"header": header and list(header.names), "data": header.end if header else 0}

    def _header(self, start: bytes, fields: Fields, *, final: bool) -> Header | None:
        header = None
        try:
            header = read_header(start, self._dialect, final=final)
            if header is not None:
                column_indexes(self._columns.as_declared(header.names, fields), fields.names)
        except ValueError as error:
            found = header.names if header is not None else ()
            raise ValueError(f"{error}{why_no_header(start, found, fields.names)}") from error
        return header

    def sections(self, file: PlannedFile, part_bytes: int) -> Sequence[Section]:
        """Return one section for a file with quotes: line ends may be inside values. So has a file that is numbered: a
        task that starts in the middle would have to read all bytes before it.
        """
        start, end = int(file["data"]), int(file["size"])
        if self._is_recoded:
            return [Section(start, start + end)]  # Only for sharing a task with others.
        is_divided = file.get("quotes") is False and not file.get("numbered")
        return byte_sections(start, end, part_bytes) if is_divided else [Section(start, end)]

    def emit(self, opened: Opened, file: PlannedFile, section: Section, fields: Fields) -> Iterator[Emitted]:
        return iter(()) if file["header"] is None else self._piece(opened, file, section, fields).emitted()

    def common(self, file: PlannedFile, section: Section) -> Hashable | None:
        """Return the header of a whole file in which every line is a record, and what decides how it is read."""
        is_whole = section.start == file["data"] and section.end == file["size"]
        if not is_whole or not has_lines_alone(file, self._dialect) or file.get("numbered") or file["header"] is None:
            return None
        return (*file["header"], file.get("nul"), file.get("hexadecimal"))

    def emit_together(self, contents: Sequence[bytes], file: PlannedFile, fields: Fields) -> Emitted | None:
        """Parse all lines together: a file that ends without a line end gets one, and blank lines are no records."""
        from txtopo.spouts.formats.csv.ranges import rows_together

        batch = rows_together(contents, self._decoder(file, fields))
        return None if batch is None else Emitted(batch=batch)

    def locate(
        self, opened: Opened, file: PlannedFile, section: Section, fields: Fields, number: int
    ) -> Position | int:
        return 0 if file["header"] is None else self._piece(opened, file, section, fields).locate(number)

    def _piece(self, opened: Opened, file: PlannedFile, section: Section, fields: Fields) -> Piece:
        from txtopo.spouts.formats.csv.ranges import Piece

        decoder = self._decoder(file, fields)
        text = self._text_of(opened)
        if text is not opened:
            file, section = {**file, "size": text.size}, Section(int(file["data"]), text.size)
        return Piece(text, file, section, decoder)

    def _decoder(self, file: PlannedFile, fields: Fields) -> Decoder:
        from txtopo.spouts.formats.csv.values import decoder_of

        # What was not looked for when the file was planned may be there.
        return decoder_of(
            self._columns.as_declared(file["header"], fields),
            fields,
            self._dialect,
            may_hold_nul=file.get("nul") is not False,
            may_hold_hexadecimal=file.get("hexadecimal") is not False,
            spellings=self._spellings,
        )

    def _text_of(self, opened: Opened) -> Opened:
        """Return the file in UTF-8, or in an encoding in which records are found."""
        from txtopo.spouts.formats.csv.recoded_file import RecodedFile

        return RecodedFile(opened, self._dialect.encoding) if self._is_recoded else opened

    def warm_up(self) -> None:
        import txtopo.spouts.formats.csv.ranges  # noqa: F401


def check_alone(format_: Csv, fields: Fields) -> None:
    """Raise TopologyError if records that stand alone, such as values of messages, cannot be read so."""
    if format_._columns.header:
        raise TopologyError("a record that stands alone has no header line: say Csv(header=False)")
    if format_._dialect.comment is not None:
        raise TopologyError("a record that stands alone is no comment: leave comment out")
    if format_._is_recoded:
        raise TopologyError(f"encoding {format_._dialect.encoding!r} is only for files")
    format_.check(fields)


def decoder_alone(format_: Csv, fields: Fields) -> Decoder:
    """Return how records that stand alone are read."""
    return format_._decoder({"header": format_._columns.by_position(fields)}, fields)
