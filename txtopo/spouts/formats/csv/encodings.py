"""Encodings of CSV files in which each character is one byte, and those of ASCII are as ever: so lines, quotes and
delimiters are found in the bytes of the file, and its values are converted to UTF-8 when they are parsed.
"""

from __future__ import annotations

import codecs
from functools import lru_cache

from txtopo.errors import TopologyError

UTF_8 = "utf-8"
_NOT_OF_FILES = frozenset({"unicode_escape", "raw_unicode_escape", "charmap", "undefined", "idna", "punycode", "utf_7"})
"""Codecs of Python that are no encodings of files."""
_ALL = bytes(range(256))


@lru_cache(maxsize=64)
def encoding_named(name: str) -> str:
    """Return the name by which Python knows an encoding. Raises TopologyError for one that is unknown, or of which a
    character may have several bytes; UTF-8 is the exception.
    """
    try:
        if not isinstance(name, str):
            raise LookupError
        known = codecs.lookup(name).name
    except (LookupError, ValueError) as error:
        raise TopologyError(f"encoding {name!r} is unknown: say one that Python knows, e.g. 'cp1252'") from error
    known = UTF_8 if known == "utf-8-sig" else known
    if known == UTF_8 or (known.replace("-", "_") not in _NOT_OF_FILES and _has_one_byte_each(known)):
        return known
    raise TopologyError(
        f"encoding {name!r} is neither UTF-8 nor one with a byte for each character, in which ASCII is as ever: "
        "convert the files"
    )


def in_utf8(data: bytes, encoding: str) -> bytes:
    """Return data of this encoding in UTF-8. A byte that is no character becomes three that are never UTF-8."""
    if encoding == UTF_8 or data.isascii():
        return data
    return data.decode(encoding, "surrogateescape").encode(UTF_8, "surrogatepass")


def shown_utf8(data: bytes, encoding: str) -> str:
    """Return what `in_utf8` returned, or the first bytes of it, as text; a byte that is no
    character is a lone surrogate."""
    if encoding == UTF_8:
        return data.decode(UTF_8, "surrogateescape")
    for behind in range(len(data), max(len(data) - 3, 0), -1):
        try:
            return data[:behind].decode(UTF_8, "surrogatepass")
        except UnicodeDecodeError:
            continue  # It was cut inside a character.
    return ""


def _has_one_byte_each(encoding: str) -> bool:
    try:
        text = _ALL.decode(encoding, "surrogateescape")
        same = text.encode(encoding, "surrogateescape") == _ALL
    except (LookupError, ValueError):
        return False
    return same and len(text) == len(_ALL) and text[:128] == _ALL[:128].decode("ascii")
