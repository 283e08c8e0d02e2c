"""Which names of objects a pattern selects: the rules are those of files (`matching_files`)."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence


def fits(pattern: Sequence[str], names: Sequence[str]) -> bool:
    """Return True if the pattern selects the names between the slashes. Hidden folders must be named, and hidden
    objects are never selected.
    """
    return bool(names) and not is_hidden(names[-1]) and _fits(pattern, names)


def is_hidden(name: str) -> bool:
    """Return True for names that are no input: a writer renames, or marks what it has done."""
    return name.startswith(("_", "."))


def _fits(pattern: Sequence[str], names: Sequence[str]) -> bool:
    if not pattern or not names:
        return not pattern and not names
    wanted, name = pattern[0], names[0]
    if wanted == "**":
        if len(pattern) > 1 and _fits(pattern[1:], names):
            return True
        if is_hidden(name):
            return False
        return _fits(pattern, names[1:]) if len(names) > 1 else len(pattern) == 1
    if is_hidden(name) and not wanted.startswith(name[0]):
        return False
    return fnmatch.fnmatchcase(name, wanted) and _fits(pattern[1:], names[1:])
