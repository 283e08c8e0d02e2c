"""Finds repeats in regular expressions with which a line that does not match takes exponential time."""

from __future__ import annotations

import re
from typing import Any

_PARSER: Any = getattr(re, "_parser", None)
"""The parser of `re`. It is not public: without it, nothing is found."""


def nested_repeat(pattern: str) -> str | None:
    """Return in words a repeat of a repeat that nothing separates, such as `(a+)+` or `(\\w+|,)*`; None if there is
    none to be seen. Each way to divide the characters among the two is tried, 2**n for n characters.
    """
    if _PARSER is None:
        return None
    try:
        return _in_sequence(_PARSER.parse(pattern, re.ASCII))
    except (re.error, RecursionError, AttributeError, TypeError, ValueError):
        return None


def _in_sequence(items: Any) -> str | None:
    for operation, argument in items:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT") and argument[1] == _PARSER.MAXREPEAT and _is_open(argument[2]):
            return "a repeat without a limit is repeated without a limit"
        for inner in _sequences(argument):
            if (found := _in_sequence(inner)) is not None:
                return found
    return None


def _is_open(items: Any) -> bool:
    """Return True if one repeat without a limit is all that such a sequence has to match."""
    repeats = 0
    for operation, argument in items:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = argument
            if most == _PARSER.MAXREPEAT:
                repeats += 1
            elif least > 0 and not (least == most == 1 and _is_open(inner)):
                return False
        elif name == "SUBPATTERN":
            if not _is_open(argument[-1]):
                return False
            repeats += 1
        elif name == "BRANCH":
            if not any(_is_open(branch) for branch in argument[1]):
                return False
            repeats += 1
        elif name not in ("AT", "ASSERT", "ASSERT_NOT"):
            return False
    return repeats > 0


def _sequences(argument: Any) -> list[Any]:
    """Return the sequences of operations in the argument of one."""
    if isinstance(argument, _PARSER.SubPattern):
        return [argument]
    if isinstance(argument, list | tuple):
        return [inner for one in argument for inner in _sequences(one)]
    return []
