"""`KeyedTable`: a table of a committer, as what reads rows of it by their keys sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.core.fields import Fields, parse_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedTable:
    """A table that has one row for each key; NULL is a key like any other."""

    table: str
    """`schema.name`."""
    keys: Fields
    """All columns of the key, in the order of the table; none: it has one row."""
    values: Fields
    """The columns that are read."""

    @classmethod
    def of(cls, table: str, keys: str | Fields, values: str | Fields) -> KeyedTable:
        """Return a table, `name` (in schema public) or `schema.name`. Raises TopologyError for fields that cannot be
        parsed.

        >>> KeyedTable.of("words", "word string", "n bigint").table
        'public.words'
        """
        schema, _, name = table.rpartition(".")
        return cls(table=f"{schema or 'public'}.{name}", keys=parse_fields(keys), values=parse_fields(values))


def can_be_stored(key: Sequence[Any]) -> bool:
    """Return False for a key that no table has, because Postgres stores no such text (P14)."""
    return not any(isinstance(value, str) and _is_refused(value) for value in key)


def _is_refused(text: str) -> bool:
    return "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text)
