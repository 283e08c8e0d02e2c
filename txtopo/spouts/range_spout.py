"""RangeSpout: the base of txtopo's own sources with named partitions, whose ranges are read as their plan says."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from txtopo.core.fields import parse_fields
from txtopo.core.plan import Metadata
from txtopo.core.positions import Unit, told_position
from txtopo.errors import BatchDataError
from txtopo.spouts.formats.format import Emitted
from txtopo.spouts.partitioned import PartitionedTransactionalSpout, partition_of
from txtopo.spouts.planned_file import COMPONENT
from txtopo.spouts.planned_rows import Keeper, chosen_columns, only_columns
from txtopo.topology.components import Position, Tally

if TYPE_CHECKING:
    import pyarrow as pa

RAW_SHOWN = 300
"""A record is shown up to this many characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The next records of a range."""

    emitted: Emitted
    record: Callable[[int], tuple[int, bytes]]
    """Returns, for a row of `emitted`, the number of its record and the record itself."""


class RangeSpout(PartitionedTransactionalSpout):
    """Emits and locates rows; a subclass says how a planned range becomes blocks of them. Everything that reading
    depends on is in its `layout`, which is in each plan (R12).
    """

    unit: ClassVar[Unit]
    """What the numbers of its records count."""

    def _check_methods(self) -> None:
        """Its methods are those of txtopo."""

    @abstractmethod
    def layout(self) -> Mapping[str, Any]:
        """Return what reading depends on, with its `kind`, for the plan."""

    @abstractmethod
    def blocks(self, metadata: Metadata, part: Mapping[str, Any], name: str, planned: Any) -> Iterator[Block]:
        """Yield the records of a part: of the range `planned` of partition `name`. Uses the plan alone.

        Raises `unknown_layout` for a layout with an entry that is not known, and BatchDataError for records that are
        not as planned.
        """

    def _planned_settings(self) -> Mapping[str, Any]:
        return {"format": self.layout(), "schema": self.fields.ddl}

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        from txtopo.spouts.arrow_types import arrow_schema

        if part["partition"] is None:
            return
        chosen = chosen_columns(parse_fields(metadata["schema"]), self.fields)
        keeper = Keeper(tally)
        for block in self._blocks(metadata, part):
            keeper.keep(block.emitted)
            batch = block.emitted.batch
            if batch is not None and batch.num_rows:
                yield batch if chosen is None else only_columns(batch, chosen, arrow_schema(self.fields))

    def locate(self, metadata: Metadata, part: Mapping[str, Any], number: int) -> Position | None:
        """Read the part again and return the place of the row. Raises BatchDataError if it is not as planned."""
        from txtopo.spouts.reject_limit import shown_raw

        if part["partition"] is None:
            return None
        left = number
        for block in self._blocks(metadata, part):
            rows = 0 if block.emitted.batch is None else block.emitted.batch.num_rows
            if left < rows:
                at, raw = block.record(left)
                name = str(partition_of(metadata, part["partition"]))
                return Position(position=told_position(name, at, self.unit), raw=shown_raw(raw, RAW_SHOWN))
            left -= rows
        return None

    def _blocks(self, metadata: Metadata, part: Mapping[str, Any]) -> Iterator[Block]:
        at = part["partition"]
        return self.blocks(metadata, part, str(partition_of(metadata, at)), metadata["partitions"][at]["range"])


def unknown_layout(layout: object) -> BatchDataError:
    """Return the error for a plan of another release."""
    return BatchDataError(
        f"the batch was planned with {layout}, which this release cannot read: use the release that planned it",
        component=COMPONENT,
        fault="format of the plan unknown",
        halts=True,
    )
