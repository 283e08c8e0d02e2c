"""The schema `txtopo` as the migrations make it: bodies of functions from their SQL, everything else as the server
spells it after the migrations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

_FUNCTION = re.compile(r"create (?:or replace )?function txtopo\.(\w+)\(.*?\) returns .*? as \$\$(.*?)\$\$", re.DOTALL)
_DROPPED = re.compile(r"^drop function (?:if exists )?txtopo\.(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Schema:
    """The required schema."""

    functions: dict[str, str]
    """Name -> body."""
    definitions: frozenset[tuple[str, str]]
    """Table and definition of each constraint, index and trigger, as the server spells it with search path
    `pg_catalog`.
    """

    @property
    def tables(self) -> frozenset[str]:
        """Return the names of the tables; each has at least a primary key."""
        return frozenset(table for table, _ in self.definitions)


def schema_at(revision: str) -> Schema | None:
    """Return what all migrations make; None if this is not the revision of this release, which alone is audited."""
    functions: dict[str, str] = {}
    newest = ""
    for name, text in migrations():
        newest = name[:4]
        functions.update(_FUNCTION.findall(text))
        for dropped in _DROPPED.findall(text):
            functions.pop(dropped, None)
    return Schema(functions, frozenset(_definitions())) if revision == newest else None


def migrations() -> Iterator[tuple[str, str]]:
    """Return name and SQL of each migration, oldest first."""
    folder = files("txtopo") / "migrations" / "versions"
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.name.endswith(".sql"):
            yield entry.name, entry.read_text("utf-8")


def _definitions() -> Iterator[tuple[str, str]]:
    """Return the definitions from the file next to this module; its test says how to make it again after a
    migration.
    """
    for line in (files("txtopo.audit") / "made_schema.tsv").read_text("utf-8").splitlines():
        table, _, definition = line.partition("\t")
        yield table, definition
