"""Well-known formats of log lines: their fields, an exact expression, and how a log writes characters that it escapes.

A name never changes its meaning in a later release, since plans hold the name: what must differ gets another name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Escapes = Literal["apache", "nginx"]
"""How a value in quotes is written: Apache writes `\\"`, `\\\\`, `\\n` and its like, and `\\xhh`; nginx writes `\\xhh`
only.
"""

_TIME = r"\[(?P<time>[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{4})\]"
_QUOTED = r'"(?P<{}>(?:[^"\\]++|\\.)*+)"'
_HEAD = rf"(?P<host>[^ ]++) (?P<ident>[^ ]++) (?P<user>.+?) {_TIME}"
_NGINX_HEAD = rf"(?P<host>[^ ]++) - (?P<user>.+?) {_TIME}"
_RESULT = rf"{_QUOTED.format('request')} (?P<status>[0-9]{{3}}) (?P<size>[0-9]++|-)"
_AGENT = f"{_QUOTED.format('referer')} {_QUOTED.format('agent')}"
_SYSLOG = (
    r"(?:<(?P<priority>[0-9]{1,3})>)?"
    r"(?P<time>[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]++)?(?:Z|[+-][0-9]{2}:?[0-9]{2})) "
    r"(?P<host>[^ ]++) "
    r"(?:(?P<program>[^ :\[\]]++)(?:\[(?P<pid>[^\]]*+)\])?:(?: |\Z))?"
    r"(?P<message>.*)"
)

REQUEST_PARTS = ("method", "path", "protocol")
"""Parts of `request`, NULL unless it consists of three: `GET /index.html HTTP/1.1`."""
REQUEST = re.compile(r'([A-Z]++) ((?:[^" \\]++|\\[^ ])++) (HTTP/[0-9.]++)', re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPattern:
    """A well-known format."""

    expression: re.Pattern[str]
    fields: tuple[str, ...]
    """All fields that it has."""
    escaped: frozenset[str] = frozenset()
    """Fields in quotes, whose values may hold escapes."""
    escapes: Escapes | None = None
    strict: str | None = None
    """For RE2: matches only lines that `split` by blanks and quotes into `columns`; None: every line takes the exact
    path.
    """
    columns: tuple[str, ...] = ()
    """A field for each word or quoted text, `[time` and `zone]`, or `-` for what has no name."""


def _access_log(head: str, columns: str, escapes: Escapes, *, combined: bool) -> KnownPattern:
    expression = re.compile(f"{head} {_RESULT}{f' {_AGENT}' if combined else ''}", re.ASCII)
    named = [name for name in expression.groupindex if name != "request"]
    at = named.index("status")
    quoted = r'"[^"\\\r]*"'
    word = r'[^ "\\\r]+'
    # The same as the exact expression, without escapes and blanks in the user, and with a request of three parts.
    strict = (
        rf"^{word} {'-' if columns.split()[1] == '-' else word} {word} "
        r"\[[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{4}\] "
        rf'"[A-Z]+ {word} HTTP/[0-9.]+" [0-9]{{3}} (?:[0-9]+|-){f" {quoted} {quoted}" if combined else ""}$'
    )
    return KnownPattern(
        expression=expression,
        fields=(*named[:at], "request", *REQUEST_PARTS, *named[at:]),
        escaped=frozenset({"request", *REQUEST_PARTS, "referer", "agent"}),
        escapes=escapes,
        strict=strict,
        columns=(*columns.split(), *(("referer", "agent") if combined else ())),
    )


_APACHE_COLUMNS = "host ident user [time zone] request status size"
_NGINX_COLUMNS = "host - user [time zone] request status size"

KNOWN_PATTERNS = MappingProxyType(
    {
        "apache_combined": _access_log(_HEAD, _APACHE_COLUMNS, "apache", combined=True),
        "apache_common": _access_log(_HEAD, _APACHE_COLUMNS, "apache", combined=False),
        "nginx": _access_log(_NGINX_HEAD, _NGINX_COLUMNS, "nginx", combined=True),
        "syslog": KnownPattern(
            expression=(expression := re.compile(_SYSLOG, re.ASCII | re.DOTALL)), fields=tuple(expression.groupindex)
        ),
    }
)
NULL_VALUES = ("-",)
"""What stands for no value in all of them."""

_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: f"{number:02}" for number, name in enumerate(_MONTH_NAMES, 1)}
_LOG_TIME = re.compile(r"([0-9]{2})/([A-Z][a-z]{2})/([0-9]{4}):([0-9:]{8}) ([+-][0-9]{2})([0-9]{2})", re.ASCII)


def iso_time(text: str, kind: str) -> str:
    """Return the time of an access log, `10/Oct/2000:13:55:36 -0700`, as ISO 8601 for a field of this type; any other
    text unchanged.
    """
    match = _LOG_TIME.fullmatch(text)
    if match is None or match[2] not in _MONTHS:
        return text
    day = f"{match[3]}-{_MONTHS[match[2]]}-{match[1]}"
    if kind == "date":
        return day
    return f"{day}T{match[4]}" + (f"{match[5]}:{match[6]}" if kind == "timestamp" else "")


_ESCAPED = {
    "apache": re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|([\\\"bnrtv]))"),
    "nginx": re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|((?!)))"),
}
_LETTERS = {b"b": b"\b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def unescaped(value: bytes, escapes: Escapes) -> bytes:
    """Return the bytes that a log escaped; an unknown escape stays as it is."""
    return _ESCAPED[escapes].sub(
        lambda found: bytes.fromhex(found[1].decode()) if found[1] else _LETTERS.get(found[2], found[2]), value
    )


def unescaped_text(value: bytes, escapes: Escapes) -> bytes:
    """Return the text that a log escaped; the value as the log has it if that is no text: a request of random bytes,
    for example.
    """
    text = unescaped(value, escapes)
    try:
        return value if "\0" in text.decode("utf-8") else text
    except UnicodeDecodeError:
        return value
