"""Links of a chain: what one task does with record batches between two repartitions. Each link is data; a task opens
it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txtopo.core.fields import INTEGER_KINDS, Fields
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.streams import DEFAULT_STREAM
from txtopo.tuples.columns import Columns

Positions = npt.NDArray[np.int64]
_NONE = type(None)
_EXACT: dict[str, frozenset[type]] = {
    "string": frozenset({str, _NONE}),
    "binary": frozenset({bytes, _NONE}),
    "boolean": frozenset({bool, _NONE}),
    "double": frozenset({float, _NONE}),
    **dict.fromkeys(INTEGER_KINDS, frozenset({int, _NONE})),
}
"""By kind of field: types whose values come back from Arrow as they were."""


class ChainColumn:
    """The values of one field: an Arrow array, and the Python values that it was made of, if there are any."""

    __slots__ = ("_kind", "_made", "array")

    def __init__(self, array: pa.Array, kind: str = "", made: list[Any] | None = None) -> None:
        self.array = array
        self._kind = kind
        self._made = made

    def values(self) -> list[Any]:
        """Return the values as Python has them after a trip through Arrow."""
        made = self._made
        # What one step returns is what the next one gets, whether or not an exchange is between them.
        if made is None or not set(map(type, made)) <= _EXACT.get(self._kind, frozenset()):
            made = self._made = self.array.to_pylist()
            self._kind = self._kind if self._kind in _EXACT else ""
        return made

    def take_one(self, position: int) -> Any:
        """Return the value at one position."""
        return self.array[position].as_py()

    def take(self, positions: Positions) -> ChainColumn:
        """Return the values at these positions."""
        return ChainColumn(self.array.take(pa.array(positions)))


class ChainRows:
    """Tuples between two links: columns, and for each tuple the number of the tuple of the chain's input that it was
    made of.
    """

    __slots__ = ("anchored", "columns", "count", "parents")

    def __init__(
        self, columns: Sequence[ChainColumn], count: int, parents: Positions | None = None, *, anchored: bool = True
    ) -> None:
        self.columns = columns
        self.count = count
        self.parents = parents
        """None: tuple n was made of tuple n."""
        self.anchored = anchored
        """False: nobody knows what they were made of."""

    @classmethod
    def of(cls, batch: pa.RecordBatch, *, anchored: bool = True) -> ChainRows:
        """Return the rows of a record batch."""
        return cls([ChainColumn(array) for array in batch.columns], batch.num_rows, anchored=anchored)

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return them as a record batch with these names."""
        return pa.RecordBatch.from_arrays([column.array for column in self.columns], schema=schema)

    def with_columns(self, columns: Sequence[ChainColumn]) -> ChainRows:
        """Return the same tuples with other columns."""
        return ChainRows(columns, self.count, self.parents, anchored=self.anchored)

    def take(self, positions: Positions) -> ChainRows:
        """Return the tuples at these positions."""
        return self.made(positions, [column.take(positions) for column in self.columns])

    def made(self, positions: Positions, columns: Sequence[ChainColumn]) -> ChainRows:
        """Return new tuples, each made of the tuple at its position."""
        parents = positions if self.parents is None else self.parents[positions]
        return ChainRows(columns, len(positions), parents, anchored=self.anchored)

    def anchors(self) -> pa.Array | None:
        """Return the number of each tuple's input tuple; None if they are not known."""
        if not self.anchored:
            return None
        return pa.array(np.arange(self.count) if self.parents is None else self.parents)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkContext:
    """Where a link runs."""

    component: str
    attempt: TransactionAttempt


class RunningLink(ABC):
    """A link in one task of one attempt."""

    @abstractmethod
    def take(self, rows: ChainRows) -> Iterator[ChainRows]:
        """Take some tuples, at least one; yields what continues immediately."""

    def end(self) -> Iterator[ChainRows]:
        """Yield what continues when all tuples have come."""
        yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link(ABC):
    """One step inside a chain, as data; a template that every task opens."""

    place: str
    """The step, for failures."""
    fields: Fields
    """Fields of the tuples after it."""

    @abstractmethod
    def open(self, context: LinkContext) -> RunningLink:
        """Return it running, without anything from another task or attempt."""

    def shown(self) -> str:
        """Return what `txtopo explain` says of it."""
        return self.place

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the tuples after it."""
        return arrow_schema(self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(Link):
    """Keeps some fields, in a new order."""

    positions: tuple[int, ...]

    def open(self, context: LinkContext) -> RunningLink:
        return _Projecting(self.positions)


class _Projecting(RunningLink):
    def __init__(self, positions: Sequence[int]) -> None:
        self._positions = positions

    def take(self, rows: ChainRows) -> Iterator[ChainRows]:
        yield rows.with_columns([rows.columns[at] for at in self._positions])


def made_columns(columns: Columns, fields: Fields, lists: Sequence[list[Any]]) -> list[ChainColumn]:
    """Return values that Python made as columns. Raises BatchDataError for one that does not fit its field."""
    batch = columns.batch(lists)
    return [
        ChainColumn(array, field.type.kind, made)
        for array, field, made in zip(batch.columns, fields.items, lists, strict=True)
    ]


def columns_for(context: LinkContext, fields: Fields) -> Columns:
    """Return what checks values of these fields, in words of this component."""
    return Columns(context.component, DEFAULT_STREAM, fields)


def data_error(context: LinkContext, words: str, fault: str) -> BatchDataError:
    """Return the failure of a step whose code returned something that is no row."""
    return BatchDataError(words, component=context.component, fault=fault)
