"""Finds the values of a column that the parser refuses, from their texts, a column at a time.

Three steps, each cheaper than the next one: a conversion of all values together that accepts nothing that the parser
refuses; a pattern that matches everything that the parser accepts; and the parser itself, by bisection over the
distinct remaining values.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import Field, FieldType
from txtopo.spouts.arrow_types import arrow_type
from txtopo.spouts.formats.csv.encodings import shown_utf8
from txtopo.spouts.formats.csv.values import BOOLEANS, BadValueError, Decoder

VALUE_CHARS_MAX = 100
_ESCAPED = re.compile(r"\\udc([89a-f][0-9a-f])")
_YEAR_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    "(?:[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    f"|{_YEAR_LEAP}-02-29)"
)
_TIME = r"(?:[01][0-9]|2[0-3])(?::[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?)?"
_FLOAT = r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?s:[nN][aA][nN].*|[iI][nN][fF].*))"


def _up_to(largest: int) -> str:
    """Return a pattern for the whole numbers from 0 to `largest`, with or without leading zeros."""
    digits = str(largest)
    choices = [f"[0-9]{{1,{len(digits) - 1}}}", digits]
    for at, digit in enumerate(digits):
        if digit > "0":
            choices.append(f"{digits[:at]}[0-{int(digit) - 1}][0-9]{{{len(digits) - at - 1}}}")
    return f"0*(?:{'|'.join(choices)})"


def _integer(bits: int) -> str:
    return f"{_up_to(2 ** (bits - 1) - 1)}|-{_up_to(2 ** (bits - 1))}"


_POSSIBLE = {
    "tinyint": _integer(8),
    "smallint": _integer(16),
    "int": _integer(32),
    "bigint": _integer(64),
    "float": _FLOAT,
    "double": _FLOAT,
    "boolean": "|".join(BOOLEANS),
    "date": _DATE,
    "timestamp": rf"{_DATE}(?:[T ]{_TIME}(?:Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?)?",
    "timestamp_ntz": rf"{_DATE}(?:[T ]{_TIME})?",
}


def impossible_values(field: Field, texts: pa.Array, decoder: Decoder) -> pa.BooleanArray:
    """Return True for most values that do not parse, and for none that does. `texts` are the bytes of the column, NULL
    for a NULL value.
    """
    texts = decoder.usual(field, texts)
    pattern = possible_pattern(field.type)
    if pattern is not None:
        wrong = pc.invert(pc.match_substring_regex(texts, pattern))
    elif _accepts_all(field, texts, decoder):
        wrong = pc.if_else(pc.is_null(texts), None, False)
    else:
        encoded = texts.dictionary_encode()
        wrong = _among(encoded, _not_text(encoded.dictionary))
    return pc.fill_null(wrong, not field.nullable) if wrong.null_count else wrong


def refused_values(field: Field, texts: pa.Array, decoder: Decoder) -> dict[int, str]:
    """Return index -> reason for all values that do not parse; `texts` as above."""
    found: dict[int, str] = {}
    usual = decoder.usual(field, texts)
    if not field.nullable and usual.null_count:
        reason = f"column {field.name!r} is NULL, declared NOT NULL"
        found = dict.fromkeys(pc.indices_nonzero(pc.is_null(usual)).to_pylist(), reason)
    if _accepts_all(field, usual, decoder):
        return found
    encoded = texts.dictionary_encode()
    wrong = _refused(field, decoder.usual(field, encoded.dictionary), decoder)
    values = encoded.dictionary.take(pa.array(wrong, pa.int64())).to_pylist()
    type_name = str(field.type)
    reasons = {
        index: _reason(field, type_name, value, decoder.dialect.encoding)
        for index, value in zip(wrong, values, strict=True)
    }
    rows = pc.indices_nonzero(_among(encoded, wrong))
    for row, index in zip(rows.to_pylist(), encoded.indices.take(rows).to_pylist(), strict=True):
        found[row] = reasons[index]
    return found


def _among(encoded: pa.DictionaryArray, wrong: list[int]) -> pa.BooleanArray:
    """Return the positions of these entries of the dictionary; NULL for NULL."""
    marks = pa.array([*wrong], encoded.indices.type)
    return pc.if_else(pc.is_null(encoded.indices), None, pc.is_in(encoded.indices, value_set=marks))


def accepts_all(field: Field, texts: pa.Array, decoder: Decoder) -> bool:
    """Return True if the parser accepts each of these texts; False: it may refuse one."""
    return _accepts_all(field, decoder.usual(field, texts), decoder)


def converted(field: Field, texts: pa.Array, decoder: Decoder) -> pa.Array:
    """Return the values that the parser makes of these texts. Raises BadValueError or pyarrow.ArrowInvalid if it may
    refuse one.
    """
    return _converted(field, decoder.usual(field, texts), decoder)


def _accepts_all(field: Field, usual: pa.Array, decoder: Decoder) -> bool:
    """`usual` are the texts in the usual spelling."""
    try:
        _converted(field, usual, decoder)
    except (BadValueError, pa.ArrowInvalid):
        return False
    return True


def _converted(field: Field, usual: pa.Array, decoder: Decoder) -> pa.Array:
    kind = field.type.kind
    if kind == "binary":
        return usual
    strings = pc.cast(usual, pa.string())
    if kind == "string" and pc.any(pc.match_substring(strings, "\0")).as_py():
        raise BadValueError(f"column {field.name!r} holds the NUL character")
    is_text = kind in ("string", "boolean") or decoder.is_read_as_text(field)
    return decoder.converted(field, strings if is_text else pc.cast(strings, arrow_type(field.type)))


@lru_cache(maxsize=64)
def possible_pattern(field_type: FieldType) -> str | None:
    """Return a pattern for all texts that the parser accepts, and few others; None if the type has none."""
    if field_type.kind != "decimal":
        known = _POSSIBLE.get(field_type.kind)
        return None if known is None else rf"^[ \t]*(?:{known})[ \t]*$"
    scale = field_type.scale or 0
    whole = (field_type.precision or 0) - scale
    plain = rf"0*[0-9]{{0,{whole}}}(?:\.[0-9]{{0,{scale}}}0*)?"
    with_exponent = r"[0-9.]+[eE][+-]?[0-9]{1,3}"
    return rf"^[ \t]*[+-]?(?:{plain}|{with_exponent})[ \t]*$"


def _refused(field: Field, texts: pa.Array, decoder: Decoder) -> list[int]:
    """Return the indexes of the texts that the parser refuses; the texts are distinct, in the usual spelling."""
    if field.type.kind == "string":
        return _not_text(texts)
    pattern = possible_pattern(field.type)
    left = pc.indices_nonzero(pc.is_valid(texts)).to_pylist()
    found: list[int] = []
    if pattern is not None:
        matches = pc.match_substring_regex(texts, pattern)
        found = pc.indices_nonzero(pc.invert(matches)).to_pylist()
        left = pc.indices_nonzero(matches).to_pylist()
    rest = texts.take(pa.array(left, pa.int64()))
    if not _accepts_all(field, rest, decoder):
        found += [left[index] for index in _by_halving(field, rest.to_pylist(), decoder)]
    return found


def _not_text(texts: pa.Array) -> list[int]:
    return [index for index, text in enumerate(texts.to_pylist()) if b"\0" in text or not is_utf8(text)]


def _by_halving(field: Field, texts: list[bytes], decoder: Decoder) -> list[int]:
    """Return the refused indexes by bisection with the parser itself, the slowest way."""
    lone = decoder.lone(Field(field.name, field.type))
    found: list[int] = []
    open_ranges = [(0, len(texts))]
    while open_ranges:
        low, high = open_ranges.pop()
        if low == high or _parses(lone, texts[low:high]):
            continue
        if high - low == 1:
            found.append(low)
        else:
            middle = (low + high) // 2
            open_ranges += [(low, middle), (middle, high)]
    return found


def _parses(lone: Decoder, texts: list[bytes]) -> bool:
    # A quoted text is never NULL, and neither are these.
    data = b"".join(b'"' + text.replace(b'"', b'""') + b'"\n' for text in texts)
    try:
        lone.decode(data)
    except (BadValueError, pa.ArrowInvalid):
        return False
    return True


def _reason(field: Field, type_name: str, text: bytes, encoding: str) -> str:
    shown = _quoted(text, encoding)
    if field.type.kind != "string":
        return f"column {field.name!r}: {shown} is no {type_name}"
    return (
        f"column {field.name!r}: {shown} {'holds the NUL character' if is_utf8(text) else f'is not {encoding.upper()}'}"
    )


def _quoted(text: bytes, encoding: str) -> str:
    """Return the value as a literal; bytes that are no characters appear as `\xfc`, escaped once."""
    whole = shown_utf8(text[: 4 * VALUE_CHARS_MAX], encoding)
    shown = repr(whole if len(whole) <= VALUE_CHARS_MAX else whole[:VALUE_CHARS_MAX] + "…")
    return _ESCAPED.sub(r"\\x\1", shown)


def is_utf8(data: bytes) -> bool:
    """Return True for valid UTF-8."""
    try:
        if not data.isascii():
            data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def as_text(field: Field) -> Field:
    """Return the same column as the bytes in the file."""
    return Field(field.name, FieldType("binary"))
