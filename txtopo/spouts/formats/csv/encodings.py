"""Encodings of CSV files.

Where each character is one byte, and those of ASCII are as ever, lines, quotes and delimiters are found in the bytes of
the file, and its values are converted to UTF-8 when they are parsed. Files in other encodings are converted before.
"""

from __future__ import annotations

import codecs
from functools import lru_cache

from txtopo.errors import TopologyError

UTF_8 = "utf-8"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOT_OF_FILES = frozenset({"unicode_escape", "raw_unicode_escape", "charmap", "undefined", "idna", "punycode", "utf_7"})
"""Codecs of Python that are no encodings of files."""
_ALL = bytes(range(256))


_TRIED = ",;\"'\t\r\nAz09"
MARKING = "txtopo.no_character"
"""The treatment of bytes that are no character: a lone surrogate stands for them, so their value is refused."""


def _marked(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff", error.end


codecs.register_error(MARKING, _marked)


@lru_cache(maxsize=64)
def encoding_named(name: str) -> str:
    """Return the name by which Python knows an encoding of files. Raises TopologyError for any other one."""
    try:
        if not isinstance(name, str):
            raise LookupError
        found = codecs.lookup(name)
    except (LookupError, ValueError) as error:
        raise TopologyError(f"encoding {name!r} is unknown: say one that Python knows, e.g. 'cp1252'") from error
    known = UTF_8 if found.name == "utf-8-sig" else found.name
    if known.replace("-", "_") in _NOT_OF_FILES or not (is_of_single_bytes(known) or _reads_forward(found)):
        raise TopologyError(f"encoding {name!r} is none of text files")
    return known


@lru_cache(maxsize=64)
def is_of_single_bytes(encoding: str) -> bool:
    """Return True if each character is one byte, and those of ASCII are as ever."""
    try:
        bases: tuple[type, ...] = getattr(codecs.getincrementaldecoder(encoding), "__mro__", ())
        if any(base.__name__ == "MultibyteIncrementalDecoder" for base in bases):
            return False  # Some of these give each byte alone one character, and have others after an escape.
        text = _ALL.decode(encoding, "surrogateescape")
        same = text.encode(encoding, "surrogateescape") == _ALL
    except (LookupError, ValueError):
        return False
    return same and len(text) == len(_ALL) and text[:128] == _ALL[:128].decode("ascii")


def _reads_forward(found: codecs.CodecInfo) -> bool:
    try:
        return found.incrementaldecoder is not None and _TRIED.encode(found.name).decode(found.name) == _TRIED
    except (LookupError, ValueError):
        return False


def why_not_of(start: bytes, what: str | None, encoding: str) -> str | None:
    """Return why a file cannot be in this encoding, of which the first bytes show `what` it is; None if it can."""
    if start.startswith(BYTE_ORDER_MARK) and encoding != UTF_8:
        return f"it begins with the byte order mark of UTF-8, declared is encoding {encoding!r}"
    if what in ("UTF-16", "UTF-32"):
        if encoding.startswith(what.lower()):
            return None
        return f"it is {what}, not {encoding.upper()}: say Csv(encoding={what.lower()!r}) (docs/csv.md)"
    if encoding in ("utf-16", "utf-32") and start:
        return f"it has no byte order mark: say which half comes first, encoding='{encoding}-le' or '{encoding}-be'"
    is_wide = encoding.startswith(("utf-16", "utf-32"))
    if not is_wide and encoding != UTF_8 and not is_of_single_bytes(encoding) and b"\0" in start[:1024]:
        return f"it holds NUL characters, so it is not {encoding.upper()}"
    return None


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
