"""Loads the fixed SQL statements: one file for each in `sql/`, with names like verb_object."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> str:
    """Return the statement in `sql/<name>.sql` without its comment lines. Placeholders are psycopg2's `%(name)s`."""
    text = (files("txtopo") / "committers" / "postgres" / "sql" / f"{name}.sql").read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip().rstrip(";")
