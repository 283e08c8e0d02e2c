"""How the place of a record in its source is written: file and line, or what else a source counts."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Literal

Unit = Literal["line", "row", "offset", "key"]
"""What the number of a record counts: lines of a text file and rows of a table file from 1; offsets and keys from 0."""
_SIGNS: dict[Unit, str] = {"line": ":", "row": ", row ", "offset": "@", "key": ", key "}
_POSITION = re.compile(r"(.*)(?::|, row |@|, key )([0-9]{1,18})", re.DOTALL)


def lowest_number(unit: Unit) -> int:
    """Return the number of the first record of a source."""
    return 0 if unit in ("offset", "key") else 1


def told_position(path: str, number: int, unit: Unit = "line") -> str:
    """Return the place of a record as text.

    >>> told_position("/in/a.csv", 7), told_position("/in/a.parquet", 7, "row"), told_position("orders/0", 7, "offset")
    ('/in/a.csv:7', '/in/a.parquet, row 7', 'orders/0@7')
    """
    return f"{path}{_SIGNS[unit]}{number}"


def read_position(position: str, paths: Container[str]) -> tuple[str, int] | None:
    """Return path and number of a place in one of these paths; None if it is in none of them.

    >>> read_position("/in/a:b.csv:7", {"/in/a:b.csv"})
    ('/in/a:b.csv', 7)
    """
    found = _POSITION.fullmatch(position)
    return (found[1], int(found[2])) if found is not None and found[1] in paths else None
