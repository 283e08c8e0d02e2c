"""PiecedSpout: the base of spouts whose ranges are rows of a table, counted and cut into pieces when planned."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.plan import Metadata
from txtopo.errors import TopologyError
from txtopo.spouts.range_spout import Block, RangeSpout, unknown_layout

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_ROWS = 50_000
PIECE_BYTES = 16 * 1024 * 1024
"""A task reads at most this many rows, and this many bytes and one row more; it has them in memory."""


class PiecedSpout(RangeSpout):
    """Has a task for each piece. A subclass reads one, and compares it with its plan."""

    unit = "row"

    @abstractmethod
    def read_piece(
        self, name: str, planned: Mapping[str, Any], piece: int, fields: Fields
    ) -> tuple[pa.Table, Mapping[int, str]]:
        """Return the texts of the rows of a piece, key first, and by place why rows are no rows of the fields. Raises
        BatchDataError if they are not as planned.
        """

    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        """Return one part for each piece of a range; a batch without rows has one part, which emits nothing."""
        found = [
            {"partition": at, "piece": piece}
            for at, entry in enumerate(metadata["partitions"])
            if "range" in entry
            for piece in range(len(entry["range"]["parts"]))
        ]
        return found or [{"partition": None}]

    def blocks(self, metadata: Metadata, part: Mapping[str, Any], name: str, planned: Any) -> Iterator[Block]:
        """Yield the rows of a piece. Raises BatchDataError if they are not as planned."""
        from txtopo.spouts.table.table_rows import row_blocks

        if set(metadata["format"]) != {*self.layout()}:
            raise unknown_layout(metadata["format"])
        fields, piece = parse_fields(metadata["schema"]), part["piece"]
        before = sum(one["rows"] for one in planned["parts"][:piece])
        found, odd = self.read_piece(name, planned, piece, fields)
        key = [planned["key"]] if isinstance(planned["key"], str) else planned["key"]
        yield from row_blocks(name, fields, key, found, before, odd)

    def bytes_of(self, partition: Any, metadata: Any) -> int:
        return sum(int(part["bytes"]) for part in metadata["parts"])


def checked_table(spout: str, table: object) -> str:
    """Return the name of a table. Raises TopologyError."""
    if not isinstance(table, str) or not 0 < len(table) <= 200 or not table.isprintable():
        raise TopologyError(f"{spout}: {table!r} is no name of a table")
    return table


def checked_count(spout: str, name: str, value: object) -> int:
    """Return a whole number of 1 or more. Raises TopologyError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TopologyError(f"{spout}: {name} {value!r} is not a whole number of 1 or more")
    return value


def checked_number(spout: str, name: str, value: object, largest: float, meaning: str) -> float:
    """Return a number from 0 to `largest`. Raises TopologyError with the `meaning` of such a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
        raise TopologyError(f"{spout}: {name} {value!r} is not {meaning}")
    return float(value)


def check_word(spout: str, name: str, value: object, one: str, other: str) -> None:
    """Raise TopologyError unless a value is one of two words."""
    if value not in (one, other):
        raise TopologyError(f"{spout}: {name} {value!r} is neither {one!r} nor {other!r}")
