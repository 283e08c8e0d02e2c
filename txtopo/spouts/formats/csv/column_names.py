"""How the columns of a CSV file are found: by the names in its header line, or by position where it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError

_BLANKS = " \t"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnNames:
    """What is known of the columns before a file is opened."""

    header: bool = True
    """The first record has their names."""
    columns: int | tuple[str, ...] | None = None
    """Without a header line: the names of all columns in order; or their number, and the declared fields are the first
    ones; None: the declared fields are all.
    """
    trim: bool = False
    """Blanks around a name of the header do not count."""
    ignore_case: bool = False
    """Nor do capitals."""

    def check(self) -> None:
        """Raise TopologyError for an invalid setting."""
        for name in ("header", "trim", "ignore_case"):
            if not isinstance(getattr(self, name), bool):
                raise TopologyError(f"{name} {getattr(self, name)!r} is neither True nor False")
        columns = self.columns
        if columns is not None and self.header:
            raise TopologyError("columns is for files without a header line: say header=False")
        if not self.header and (self.trim or self.ignore_case):
            raise TopologyError("trim and ignore_case are for the names of a header, and there is none")
        is_count = isinstance(columns, int) and not isinstance(columns, bool) and columns > 0
        is_names = isinstance(columns, tuple) and columns and all(isinstance(name, str) for name in columns)
        if columns is not None and not is_count and not is_names:
            raise TopologyError(f"columns {columns!r} is neither a number of columns nor a list of their names")

    def check_fields(self, fields: Fields) -> None:
        """Raise TopologyError if the fields cannot be found in any file."""
        if self.header:
            known: dict[str, str] = {}
            for name in fields.names:
                other = known.setdefault(self._key(name), name)
                if other != name:
                    raise TopologyError(f"columns {other!r} and {name!r} are the same name with these settings")
            return
        if isinstance(self.columns, int) and self.columns < len(fields.items):
            raise TopologyError(f"{len(fields.items)} fields are declared, and only {self.columns} columns")
        if isinstance(self.columns, tuple):
            for name in fields.names:
                if self.columns.count(name) != 1:
                    raise TopologyError(f"field {name!r} stands {self.columns.count(name)} times in columns")

    def layout(self) -> Mapping[str, Any]:
        """Return the settings that are not the usual ones, as JSON values."""
        found = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) != getattr(_USUAL, name)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    def by_position(self, fields: Fields) -> tuple[str, ...]:
        """Return the names of the columns of a file without a header line; empty for one without a name."""
        if isinstance(self.columns, tuple):
            return self.columns
        return (*fields.names, *[""] * ((self.columns or 0) - len(fields.items)))

    def as_declared(self, header: Sequence[str], fields: Fields) -> tuple[str, ...]:
        """Return the names of a header, those that mean a field as the field is declared."""
        if not self.trim and not self.ignore_case:
            return tuple(header)
        declared = {self._key(name): name for name in fields.names}
        return tuple(declared.get(self._key(name), name) for name in header)

    def _key(self, name: str) -> str:
        key = name.strip(_BLANKS) if self.trim else name
        return key.casefold() if self.ignore_case else key


_USUAL = ColumnNames()
