"""Checks a statement of a custom committer before it is sent. It must be a single statement that neither ends nor
changes the database transaction (P9, user code that ends it).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

ALLOWED = frozenset(
    [
        "alter",
        "analyze",
        "call",
        "comment",
        "create",
        "delete",
        "do",
        "drop",
        "explain",
        "grant",
        "insert",
        "lock",
        "merge",
        "notify",
        "refresh",
        "revoke",
        "select",
        "table",
        "truncate",
        "update",
        "values",
        "with",
    ]
)
"""First words that a statement may have: those that read, write or define. All others would end the database
transaction, split it or change its settings.
"""
_WORD = re.compile(r"[^\W\d][\w$]*")
_DOLLAR = re.compile(r"\$(?:[^\W\d]\w*)?\$")
_PLAIN = re.compile(r"'(?:[^']|'')*'")
_ESCAPED = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_COMMENT_MARK = re.compile(r"/\*|\*/")


def objection(statement: str) -> str | None:
    """Return the reason why a committer may not send this statement, or None if it may. Quotes and comments are read as
    the server does with standard_conforming_strings on.

        >>> objection("insert into words values (%s)")
        >>> objection("/* done */ commit")
        'COMMIT would end or change the database transaction of the batch'
        >>> objection("select 1; select 2")
        'it is more than one statement'
    """
    signs = list(_signs(statement))
    while signs and signs[-1] == ";":
        signs.pop()
    if "" in signs:
        return "a quote or comment in it is not closed"
    if ";" in signs:
        return "it is more than one statement"
    first = next((sign for sign in signs if sign != "("), None)
    if first is None:
        return "it is empty"
    if first not in ALLOWED:
        return f"{first.upper()} would end or change the database transaction of the batch"
    if "set_config" in signs:
        return "set_config would change the settings of the database transaction of the batch"
    return None


def _signs(statement: str) -> Iterator[str]:
    """Yield words in lower case, `;` and other signs one by one. Comments and quoted text are skipped. Yields an empty
    string if a quote or comment is not closed.
    """
    at = 0
    while at < len(statement):
        sign = statement[at]
        word = _WORD.match(statement, at)
        if word is not None:
            yield word[0].lower()
            at = word.end()
            if word[0].lower() == "e" and statement.startswith("'", at):
                at = _end_of(_ESCAPED.match(statement, at))
        elif sign.isspace():
            at += 1
        elif statement.startswith("--", at):
            at = _line_end(statement, at)
        elif statement.startswith("/*", at):
            at = _comment_end(statement, at)
        elif sign == "'":
            at = _end_of(_PLAIN.match(statement, at))
        elif sign == '"':
            quoted = _QUOTED.match(statement, at)
            at = _end_of(quoted)
            if quoted is not None:
                yield quoted[0][1:-1]
        elif (dollar := _DOLLAR.match(statement, at)) is not None:
            end = statement.find(dollar[0], dollar.end())
            at = -1 if end < 0 else end + len(dollar[0])
        else:
            yield sign
            at += 1
        if at < 0:
            yield ""
            return


def _end_of(match: re.Match[str] | None) -> int:
    return -1 if match is None else match.end()


def _line_end(statement: str, start: int) -> int:
    ends = [end for end in (statement.find("\n", start), statement.find("\r", start)) if end >= 0]
    return min(ends, default=len(statement))


def _comment_end(statement: str, start: int) -> int:
    """Comments nest."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(statement, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return -1
