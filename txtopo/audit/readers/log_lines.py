"""Takes lines of well-known logs apart for the audit, from left to right, and undoes their escapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

Parts = Mapping[str, "str | None"]
"""Field -> text as the log has it."""

_REQUEST = ("method", "path", "protocol")
_DIGITS = frozenset("0123456789")
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_HEXADECIMAL = frozenset(b"0123456789abcdefABCDEF")
_ACCESS_TIME = re.compile(r"(\d\d)/([A-Z][a-z][a-z])/(\d{4}):(\d\d:\d\d:\d\d) ([+-]\d\d)(\d\d)", re.ASCII)
_ACCESS_TIME_CHARS = 26
_SYSLOG_TIME = re.compile(
    r"[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)", re.ASCII
)
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_SIGNS = {b"\\": b"\\", b'"': b'"', b"b": b"\b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


@dataclass(frozen=True, slots=True)
class KnownLog:
    """One kind of log."""

    taken_apart: Callable[[str], Parts | None]
    """Line -> its parts; None if it is no line of such a log."""
    escaped: frozenset[str] = frozenset()
    """Fields that are written with escapes."""
    signs: Mapping[bytes, bytes] | None = None
    """What one sign after a backslash stands for; `\\xhh` is a byte everywhere."""

    def plain(self, name: str, value: str, kind: str) -> bytes:
        """Return the value without escapes; as the log has it if that would be no text."""
        written = value.encode()
        if name not in self.escaped or "\\" not in value:
            return written
        undone = _without_escapes(written, self.signs or {})
        return undone if kind == "binary" or _is_text(undone) else written


def request_part(request: str, name: str) -> str | None:
    """Return method, path or protocol of a request as the log has it; None unless it consists of these three."""
    words = request.split(" ")
    if len(words) != len(_REQUEST) or name not in _REQUEST:
        return None
    method, path, protocol = words
    version = protocol.removeprefix("HTTP/")
    if not method or not {*method} <= _LETTERS or version == protocol:
        return None
    if not version or not {*version} <= _DIGITS | {"."} or not _is_path(path):
        return None
    return words[_REQUEST.index(name)]


def time_text(value: str, kind: str) -> str:
    """Return the time of an access log as ISO 8601 for a field of this type; other texts as they are."""
    found = _ACCESS_TIME.fullmatch(value) if kind in {"timestamp", "timestamp_ntz", "date"} else None
    if found is None or found[2] not in _MONTHS:
        return value
    day = f"{found[3]}-{_MONTHS.index(found[2]) + 1:02d}-{found[1]}"
    if kind == "date":
        return day
    return f"{day} {found[4]}{found[5]}:{found[6]}" if kind == "timestamp" else f"{day} {found[4]}"


def _access(text: str, *, with_ident: bool, combined: bool) -> Parts | None:
    host, _, rest = text.partition(" ")
    ident, space, rest = rest.partition(" ")
    if not host or not ident or not space or (not with_ident and ident != "-"):
        return None
    # A user may hold blanks and brackets: the first time with the rest of such a line behind it is the time.
    at = rest.find(" [", 1)
    while at >= 0:
        begin, end = at + 2, at + 2 + _ACCESS_TIME_CHARS
        if rest.startswith('] "', end) and _ACCESS_TIME.fullmatch(rest, begin, end):
            parts = _result(rest, end + 2, combined=combined)
            if parts is not None:
                return {"host": host, "ident": ident, "user": rest[:at], "time": rest[begin:end], **parts}
        at = rest.find(" [", at + 1)
    return None


def _result(text: str, at: int, *, combined: bool) -> dict[str, str | None] | None:
    """Return what stands from the request to the end; None if that is something else."""
    end = _closing(text, at)
    if end is None:
        return None
    found: dict[str, str | None] = {"request": text[at + 1 : end]}
    status, size = text[end + 2 : end + 5], end + 6
    if text[end + 1 : end + 2] != " " or len(status) != 3 or not {*status} <= _DIGITS or text[size - 1 : size] != " ":
        return None
    behind = size
    while text[behind : behind + 1] in _DIGITS:
        behind += 1
    if behind == size and text.startswith("-", size):
        behind += 1
    found |= {"status": status, "size": text[size:behind]}
    if behind == size:
        return None
    for name in ("referer", "agent") if combined else ():
        end = _closing(text, behind + 1) if text.startswith(' "', behind) else None
        if end is None:
            return None
        found[name] = text[behind + 2 : end]
        behind = end + 1
    return found if behind == len(text) else None


def _closing(text: str, at: int) -> int | None:
    """Return where the quote is closed that stands at `at`."""
    at += 1
    while at < len(text):
        quote = text.find('"', at)
        if quote < 0:
            return None
        slash = text.find("\\", at, quote)
        if slash < 0:
            return quote
        at = slash + 2
    return None


def _syslog(text: str) -> Parts | None:
    priority = None
    if text.startswith("<"):
        priority, closed, text = text[1:].partition(">")
        if not closed or not 1 <= len(priority) <= 3 or not {*priority} <= _DIGITS:
            return None
    time = _SYSLOG_TIME.match(text)
    if time is None or not text.startswith(" ", time.end()):
        return None
    host, space, message = text[time.end() + 1 :].partition(" ")
    if not host or not space:
        return None
    program, pid = None, None
    tag, colon, behind = _tag(message)
    if colon and (not behind or behind.startswith(" ")):
        program, pid = tag
        message = behind[1:]
    return {
        "priority": priority,
        "time": time[0],
        "host": host,
        "program": program,
        "pid": pid,
        "message": message,
    }


def _tag(message: str) -> tuple[tuple[str | None, str | None], bool, str]:
    """Return program and pid at the start of a message, whether a colon follows them, and what comes after it."""
    end = next((at for at, sign in enumerate(message) if sign in " :[]"), len(message))
    program, pid, rest = message[:end], None, message[end:]
    if rest.startswith("["):
        pid, closed, rest = rest[1:].partition("]")
        if not closed:
            return (None, None), False, message
    return (program, pid), bool(program) and rest.startswith(":"), rest[1:]


def _is_path(path: str) -> bool:
    """True for a text without quotes, unless a backslash is in front, and without a backslash at its end."""
    at = 0
    while at < len(path):
        if path[at] == '"' or path[at:] == "\\":
            return False
        at += 2 if path[at] == "\\" else 1
    return bool(path)


def _without_escapes(written: bytes, signs: Mapping[bytes, bytes]) -> bytes:
    done = bytearray()
    at = 0
    while (slash := written.find(b"\\", at)) >= 0:
        done += written[at:slash]
        digits = written[slash + 2 : slash + 4]
        sign = written[slash + 1 : slash + 2]
        if sign == b"x" and len(digits) == 2 and {*digits} <= _HEXADECIMAL:
            done.append(int(digits, 16))
            at = slash + 4
        elif sign in signs:
            done += signs[sign]
            at = slash + 2
        else:
            done += b"\\"
            at = slash + 1
    return bytes(done + written[at:])


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode("utf-8")
    except UnicodeDecodeError:
        return False


_QUOTED = frozenset({"request", *_REQUEST, "referer", "agent"})
KNOWN_LOGS: Mapping[str, KnownLog] = MappingProxyType(
    {
        "apache_combined": KnownLog(lambda text: _access(text, with_ident=True, combined=True), _QUOTED, _SIGNS),
        "apache_common": KnownLog(lambda text: _access(text, with_ident=True, combined=False), _QUOTED, _SIGNS),
        "nginx": KnownLog(lambda text: _access(text, with_ident=False, combined=True), _QUOTED),
        "syslog": KnownLog(_syslog),
    }
)
"""Name of a pattern -> how the audit reads its lines."""
