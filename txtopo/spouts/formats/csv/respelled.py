"""Turns numbers, dates and timestamps that are written in another way into the spelling that the parser accepts, a
column at a time.

What does not match the declared spelling becomes a text that is a value of no type. So a date in the accepted spelling
is refused where `date_format` says another one, and nothing is read in two ways.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import INTEGER_KINDS, Field
from txtopo.spouts.formats.csv.spellings import FRACTIONS, MONTHS, TEXTS, TIMES, Spellings, TimePattern, time_pattern

NO_VALUE = "?"
"""Parses as no number, date or timestamp."""


def usual_texts(spellings: Spellings, field: Field, texts: pa.Array) -> pa.Array:
    """Return the texts of a column in the spelling that the parser accepts, NULL for NULL. `texts` are of type string,
    or binary if they may be no UTF-8.
    """
    kind = field.type.kind
    if spellings.empty_is_null and kind not in TEXTS:
        texts = pc.if_else(pc.equal(pc.binary_length(texts), 0), None, texts)
    if kind in FRACTIONS and (spellings.decimal != "." or spellings.grouping is not None):
        return _fractions(spellings, texts)
    if kind in INTEGER_KINDS and spellings.grouping is not None:
        return _or_no_value(_matches(texts, f"-?{_whole(spellings)}"), _ungrouped(spellings, texts))
    if kind == "date" and spellings.date_format is not None:
        return _times(texts, time_pattern(spellings.date_format, True))
    if kind in TIMES and spellings.timestamp_format is not None:
        return _times(texts, time_pattern(spellings.timestamp_format, False))
    return texts


def _fractions(spellings: Spellings, texts: pa.Array) -> pa.Array:
    sign = re.escape(spellings.decimal)
    number = rf"{_whole(spellings)}?(?:{sign}[0-9]*)?(?:[eE][+-]?[0-9]+)?"
    accepted = _matches(texts, rf"[+-]?(?:{number}|[a-zA-Z]+)")
    plain = _ungrouped(spellings, texts)
    if spellings.decimal != ".":
        plain = pc.replace_substring(plain, spellings.decimal, ".")
    return _or_no_value(accepted, plain)


def _whole(spellings: Spellings) -> str:
    if spellings.grouping is None:
        return "[0-9]+"
    return rf"(?:[0-9]+|[0-9]{{1,3}}(?:{re.escape(spellings.grouping)}[0-9]{{3}})+)"


def _ungrouped(spellings: Spellings, texts: pa.Array) -> pa.Array:
    trimmed = _trimmed(texts)
    return trimmed if spellings.grouping is None else pc.replace_substring(trimmed, spellings.grouping, "")


def _matches(texts: pa.Array, pattern: str) -> pa.BooleanArray:
    return pc.match_substring_regex(texts, rf"^[ \t]*(?:{pattern})[ \t]*$")


def _trimmed(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, r"^[ \t]+|[ \t]+$", "")


def _or_no_value(accepted: pa.BooleanArray, plain: pa.Array) -> pa.Array:
    return pc.if_else(accepted, plain, pa.scalar(NO_VALUE, pa.string()).cast(plain.type))


def _times(texts: pa.Array, pattern: TimePattern) -> pa.Array:
    accepted = _matches(texts, f"(?i:{pattern.accepted})")
    plain = pc.replace_substring_regex(texts, rf"^[ \t]*(?i:{pattern.accepted})[ \t]*$", pattern.written)
    if pattern.has_names:
        for number, name in enumerate(MONTHS, start=1):
            plain = pc.replace_substring_regex(plain, f"-m(?i:{name})-", f"-{number:02}-")
    if "y" in pattern.written:
        plain = pc.replace_substring_regex(plain, "^y(69|[7-9][0-9])", r"19\1")
        plain = pc.replace_substring_regex(plain, "^y", "20")
    plain = pc.replace_substring_regex(plain, "x([0-9]{2})", r"\1")
    plain = pc.replace_substring(plain, "x", "0")
    if pattern.has_zone:
        plain = pc.replace_substring_regex(plain, "z$", "Z")
    return _or_no_value(accepted, plain)
