"""Converts the text of CSV values to declared types with pyarrow's parser; the fast and the slow path share it.

Accepted spellings: an empty unquoted field (or another of `null_values`, unquoted) is NULL in every type, a quoted
empty one is the empty string (and not a number). Integers: digits with an optional minus, within range (`+1` and `1.0`
are not integers). Decimals: exact, also `1e2`; more decimal places than declared are refused, never rounded. float and
double: decimal, exponent, `nan`, `inf`. boolean: `true`, `false`, also with a capital or in capitals. date:
`2013-01-31`. timestamp: ISO 8601, blank or `T` between date and time, at most microseconds; with an offset it is
converted, without one it is UTC. timestamp_ntz: the same without any offset. Years are 1 to 9999, in UTC. Numbers and
dates may have blanks around them. string: UTF-8 without the NUL character (Postgres cannot keep it). binary: the
field's bytes as they are.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from txtopo.core.fields import FLOAT_KINDS, INTEGER_KINDS, Field, Fields
from txtopo.spouts.arrow_types import arrow_schema, arrow_type
from txtopo.spouts.formats.csv.dialect import RFC_4180, Dialect, column_indexes
from txtopo.spouts.formats.csv.encodings import in_utf8
from txtopo.spouts.formats.csv.respelled import usual_texts
from txtopo.spouts.formats.csv.spellings import USUAL, Spellings

BOOLEANS = ("true", "True", "TRUE", "false", "False", "FALSE")
"""The first half means true."""
DECODERS_KEPT = 64
"""Number of decoders that a process keeps."""
_DAY_US = 86_400_000_000
_FIRST_DAY = (dt.date(1, 1, 1) - dt.date(1970, 1, 1)).days
_LAST_DAY = (dt.date(9999, 12, 31) - dt.date(1970, 1, 1)).days
_INTEGER = r"^-?[0-9]+$"
_DECIMAL = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?$"
_PLAIN_CHARS_MAX = 38
"""Arrow reads a decimal of so many characters exactly."""
_ZONED = r"[T ].*(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"


class BadValueError(ValueError):
    """Some value of a block does not fit its declared type; the caller finds out which one."""


class Decoder:
    """Converts CSV bytes after the header into record batches of exactly the declared fields, or raises an error if
    they do not parse.
    """

    def __init__(
        self,
        header: tuple[str, ...],
        fields: Fields,
        dialect: Dialect = RFC_4180,
        *,
        may_hold_nul: bool,
        may_hold_hexadecimal: bool = False,
        spellings: Spellings = USUAL,
        tells_infinite: bool = True,
    ) -> None:
        """With `tells_infinite`, a float that is written as infinite is accepted, and one that overflows to infinity is
        refused. Without it, neither is accepted, which is faster.
        """
        self.header = header
        self.fields = fields
        self.dialect = dialect
        self.spellings = spellings
        self._may_hold_nul = may_hold_nul
        self._may_hold_hexadecimal = may_hold_hexadecimal
        self._tells_infinite = tells_infinite
        self._indexes = column_indexes(header, fields.names)
        self._schema = arrow_schema(fields)

    def of(self, fields: Fields) -> Decoder:
        """Return a decoder of other fields of these files."""
        return self._like(self.header, fields, tells_infinite=self._tells_infinite)

    def lone(self, field: Field) -> Decoder:
        """Return a decoder of one column alone, for trying single values that are written in the usual way."""
        return Decoder(
            (field.name,),
            Fields((field,)),
            may_hold_nul=self._may_hold_nul,
            may_hold_hexadecimal=self._may_hold_hexadecimal,
            tells_infinite=self._tells_infinite,
        )

    def usual(self, field: Field, texts: pa.Array) -> pa.Array:
        """Return the texts of a column, of type string or binary, in the usual spelling; NULL for NULL."""
        return usual_texts(self.spellings, field, texts) if self.spellings.change(field) else texts

    def telling_infinite(self) -> Decoder:
        """Return a decoder that also accepts floats written as infinite."""
        return self._like(self.header, self.fields, tells_infinite=True)

    def _like(self, header: tuple[str, ...], fields: Fields, *, tells_infinite: bool) -> Decoder:
        return Decoder(
            header,
            fields,
            self.dialect,
            may_hold_nul=self._may_hold_nul,
            may_hold_hexadecimal=self._may_hold_hexadecimal,
            spellings=self.spellings,
            tells_infinite=tells_infinite,
        )

    def stream(
        self, source: Any, block_bytes: int, on_invalid_row: Callable[[Any], str] | None = None, *, newlines: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield record batches of `source`, which is UTF-8, block by block. Raises BadValueError or
        pyarrow.ArrowInvalid for a block that does not parse.
        """
        names, convert = self._conversion
        reader = csv.open_csv(
            source,
            read_options=csv.ReadOptions(use_threads=False, block_size=block_bytes, column_names=names),
            parse_options=csv.ParseOptions(
                delimiter=self.dialect.delimiter,
                quote_char=self.dialect.parsed_quote or False,
                newlines_in_values=newlines,
                invalid_row_handler=on_invalid_row,
            ),
            convert_options=convert,
        )
        try:
            for batch in reader:
                if batch.num_rows:
                    yield self._checked(batch)
        finally:
            reader.close()

    @cached_property
    def _conversion(self) -> tuple[list[str], csv.ConvertOptions]:
        """Return the names of all columns, and how those of the declared fields are converted."""
        # Names are positions: a header may repeat undeclared names.
        names = [str(index) for index in range(len(self.header))]
        wanted = [names[index] for index in self._indexes]
        return names, csv.ConvertOptions(
            column_types=dict(zip(wanted, map(self._parsed_type, self.fields.items), strict=True)),
            include_columns=wanted,
            null_values=list(self.dialect.null_values),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=list(BOOLEANS[:3]),
            false_values=list(BOOLEANS[3:]),
        )

    def decode(self, data: bytes, *, newlines: bool = True) -> list[pa.RecordBatch]:
        """Return all record batches of `data`, in the encoding of the file, in one block; raises like `stream`."""
        # The line end in front is a blank line: without it, a U+FEFF that starts the first value would be taken for a
        # byte order mark.
        data = in_utf8(data, self.dialect.read_as)
        source = pa.BufferReader(b"\n" + data)
        return list(self.stream(source, len(data) + 1, newlines=newlines)) if data else []

    @property
    def empty(self) -> pa.RecordBatch:
        """Return zero rows of the declared fields."""
        return pa.RecordBatch.from_pylist([], self._schema)

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for field, parsed in zip(self.fields.items, batch.columns, strict=True):
            column = parsed
            if self.spellings.change(field):
                column = self.usual(field, column)
            if not field.nullable and column.null_count:
                raise BadValueError(f"column {field.name!r} is NULL, declared NOT NULL")
            if field.type.kind == "string" and self._may_hold_nul and pc.any(pc.match_substring(column, "\0")).as_py():
                raise BadValueError(f"column {field.name!r} holds the NUL character")
            columns.append(self.converted(field, column))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _parsed_type(self, field: Field) -> pa.DataType:
        return pa.string() if self.is_read_as_text(field) else arrow_type(field.type)

    def is_read_as_text(self, field: Field) -> bool:
        """Return True for a type that is read as text and converted afterwards, because the CSV parser would accept
        other spellings, or not the declared ones.
        """
        kind = field.type.kind
        if self.spellings.change(field):
            return True
        is_told = self._tells_infinite and kind in FLOAT_KINDS
        return kind in ("timestamp", "decimal") or is_told or self._is_checked_integer(field)

    def _is_checked_integer(self, field: Field) -> bool:
        return self._may_hold_hexadecimal and field.type.kind in INTEGER_KINDS

    def converted(self, field: Field, column: pa.Array) -> pa.Array:
        """Return a column from the CSV parser, or its texts in the usual spelling, as the declared type; raises like
        `stream`.
        """
        kind = field.type.kind
        if kind == "timestamp":
            return _within(_instants(column), _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1, field)
        if kind == "decimal":
            return _decimals(column, field)
        if kind in FLOAT_KINDS:
            return _floats(column, field)
        if pa.types.is_string(column.type):
            column = self._of_texts(field, column)
        if kind == "timestamp_ntz":
            return _within(column, _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1, field)
        if kind == "date":
            return _within(column, _FIRST_DAY, _LAST_DAY, field)
        return column

    def _of_texts(self, field: Field, texts: pa.Array) -> pa.Array:
        """Return texts of a type of which the parser reads some spellings itself."""
        kind = field.type.kind
        if kind == "string":
            return texts
        if kind == "boolean":
            if not pc.all(pc.is_in(texts, value_set=pa.array([*BOOLEANS, None], pa.string())), min_count=0).as_py():
                raise BadValueError(f"column {field.name!r} holds a value that is no {field.type}")
            return pc.equal(pc.ascii_lower(texts), "true")
        if kind in INTEGER_KINDS:
            # The parser reads 0x1F as 31, and 0xFFFFFFFF as -1.
            return pc.cast(_matching(texts, _INTEGER, field), arrow_type(field.type))
        return pc.cast(pc.utf8_trim(texts, " \t"), arrow_type(field.type))


@lru_cache(maxsize=DECODERS_KEPT)
def decoder_of(
    header: tuple[str, ...],
    fields: Fields,
    dialect: Dialect,
    *,
    may_hold_nul: bool,
    may_hold_hexadecimal: bool,
    spellings: Spellings,
) -> Decoder:
    """Return the decoder of files with this header: the same one for equal arguments, since a batch has many files. It
    keeps nothing of what it decodes.
    """
    return Decoder(
        header,
        fields,
        dialect,
        may_hold_nul=may_hold_nul,
        may_hold_hexadecimal=may_hold_hexadecimal,
        spellings=spellings,
        tells_infinite=False,
    )


def _instants(texts: pa.Array) -> pa.Array:
    if pc.all(pc.ends_with(texts, "Z"), min_count=0).as_py():
        return pc.cast(texts, pa.timestamp("us", tz="UTC"))  # The same as below, three times as fast.
    # Arrow refuses a column in which only some values have an offset; a value without one is UTC.
    zoned = pc.match_substring_regex(texts, _ZONED)
    date_only = pc.equal(pc.utf8_length(texts), 10)
    suffix = pc.if_else(zoned, "", pc.if_else(date_only, "T00:00:00Z", "Z"))
    return pc.cast(pc.binary_join_element_wise(texts, suffix, ""), pa.timestamp("us", tz="UTC"))


def _within(values: pa.Array, first: int, last: int, field: Field) -> pa.Array:
    """Return the timestamps if all are in the years 1 to 9999: the parser also reads the year 0, and an offset may lead
    outside.
    """
    bounds = pc.min_max(values)
    if bounds["min"].is_valid and (bounds["min"].value < first or bounds["max"].value > last):
        raise BadValueError(f"column {field.name!r} holds a value that is no {field.type}")
    return values


def _floats(column: pa.Array, field: Field) -> pa.Array:
    """Return floats, or their texts. A number with digits that becomes infinite, such as 1e400, is not a value of this
    type.
    """
    texts = pc.utf8_trim(column, " \t") if pa.types.is_string(column.type) else None
    values = column if texts is None else pc.cast(texts, arrow_type(field.type))
    infinite = pc.is_inf(values)
    if pc.any(infinite).as_py() and (
        texts is None or pc.any(pc.and_(infinite, pc.match_substring_regex(texts, "[0-9]"))).as_py()
    ):
        raise BadValueError(f"column {field.name!r} holds a number that does not fit {field.type}")
    return values


def _decimals(texts: pa.Array, field: Field) -> pa.Array:
    """Return exact decimals: the parser itself accepts 1000 for decimal(5,2)."""
    trimmed, wanted = _matching(texts, _DECIMAL, field), arrow_type(field.type)
    # Arrow reads 02e-95 as 0.00, 1.5 with 40 zeros after it as 0.00, and 39 nines as a negative number; ten million
    # digits end the process.
    odd = pc.or_(
        pc.match_substring(trimmed, "e", ignore_case=True), pc.greater(pc.binary_length(trimmed), _PLAIN_CHARS_MAX)
    )
    if not pc.any(odd).as_py():
        return pc.cast(trimmed, wanted)
    values = pc.cast(pc.if_else(odd, None, trimmed), wanted)
    exact = pa.array([_decimal(text, field) for text in trimmed.filter(odd).to_pylist()], wanted)
    return pc.replace_with_mask(values, pc.fill_null(odd, False), exact)


def _decimal(text: str, field: Field) -> Decimal:
    context = Context(prec=field.type.precision or 0, traps=[Inexact, InvalidOperation])
    try:
        return Decimal(text).quantize(Decimal((0, (1,), -(field.type.scale or 0))), context=context)
    except (Inexact, InvalidOperation) as error:
        raise BadValueError(f"column {field.name!r} holds a number that does not fit {field.type}") from error


def _matching(texts: pa.Array, pattern: str, field: Field) -> pa.Array:
    """Return the texts without blanks around them; raises if one does not match."""
    trimmed = pc.utf8_trim(texts, " \t")
    if not pc.all(pc.match_substring_regex(trimmed, pattern), min_count=0).as_py():
        raise BadValueError(f"column {field.name!r} holds a value that is no {field.type}")
    return trimmed
