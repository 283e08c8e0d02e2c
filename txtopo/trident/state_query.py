"""Queries of states inside a stream: what asks, what a state answers, and the committer that does it in the commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.core.fields import Fields
from txtopo.errors import BatchDataError, TopologyError
from txtopo.topology.batch_committer import BatchCommitter, CommitCollector, CommitTransaction
from txtopo.topology.keyed_table import KeyedTable
from txtopo.topology.streams import Stream, Tuple
from txtopo.topology.user_exceptions import note_component, note_values
from txtopo.trident.chain import named
from txtopo.trident.checks import arguments_of
from txtopo.tuples.user_errors import shown, shown_value

RowsOf = Callable[[KeyedTable, Iterable[Sequence[Any]]], Mapping[tuple[Any, ...], tuple[Any, ...]]]


class ReadOnlyMapState:
    """A state as a query sees it: as the batch before has left it, the same in every attempt."""

    def __init__(self, table: KeyedTable, rows_of: RowsOf) -> None:
        """Made for each batch."""
        self._table = table
        self._rows_of = rows_of

    def multi_get(self, keys: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the value of each key, in their order: the value itself where the state keeps one, else a tuple. None:
        there is no such key.
        """
        found = self._rows_of(self._table, keys)
        rows = [found.get(tuple(key)) for key in keys]
        if len(self._table.values.items) > 1:
            return rows
        return [None if row is None else row[0] for row in rows]


class QueryFunction(ABC):
    """Asks a state (Trident's QueryFunction). It is copied for each batch, and runs in the commit of the batch, in the
    driver.
    """

    @abstractmethod
    def batch_retrieve(self, state: ReadOnlyMapState, arguments: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """Return one result for each tuple of arguments, in their order: the values of the fields that ask."""

    @abstractmethod
    def execute(self, arguments: tuple[Any, ...], result: Any) -> Iterable[Any]:
        """Return the rows that are appended to the tuple that asked, `()` for none: a value where one field is
        declared, a tuple of values where there are several.
        """

    def check(self, who: str, state: KeyedTable, of: Fields, made: Fields) -> None:  # noqa: B027 - most take any
        """Raise TopologyError if it cannot ask this state with fields of these types, or make such fields. It is a copy
        for one step, and may note them.
        """


class MapGet(QueryFunction):
    """Appends the value of the key that the fields are; NULL if there is none."""

    def __init__(self) -> None:
        self._width = 1

    def batch_retrieve(self, state: ReadOnlyMapState, arguments: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        return state.multi_get(arguments)

    def execute(self, arguments: tuple[Any, ...], result: Any) -> Iterable[Any]:
        return [(None,) * self._width if result is None and self._width > 1 else result]

    def check(self, who: str, state: KeyedTable, of: Fields, made: Fields) -> None:
        if [one.type for one in of.items] != [one.type for one in state.keys.items]:
            raise TopologyError(
                f"{who}: the key of {state.table} is {state.keys.ddl or 'empty'}, and it is asked with {of.ddl}"
            )
        if [one.type for one in made.items] != [one.type for one in state.values.items]:
            raise TopologyError(f"{who}: {state.table} keeps {state.values.ddl}: declare these types, not {made.ddl}")
        if not all(one.nullable for one in made.items):
            raise TopologyError(f"{who}: a key that is not there gives NULL: declare {made.ddl} without NOT NULL")
        self._width = len(made.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One step that asks a state."""

    place: str
    state: KeyedTable
    function: QueryFunction
    names: tuple[str, ...]
    """Fields that ask."""
    positions: tuple[int, ...]
    before: Fields
    made: Fields
    after: Fields


class StateQuery(BatchCommitter):
    """Appends to each tuple what a state answers. It writes nothing, and stands where committers do because a state is
    read in the order of the batches.
    """

    def __init__(self, question: Question, reads: Sequence[str]) -> None:
        """`reads` names the committer that keeps the state; it is applied after this one."""
        self.question = question
        self.reads = tuple(reads)
        self.outputs = [Stream(question.after)]  # type: ignore[misc]
        self.arguments = arguments_of(question.function)
        note_component(type(question.function).__module__)

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
        """Ask for all rows at once, then emit each with what was answered."""
        asked = self.question
        arguments = [tuple(row.values[at] for at in asked.positions) for row in rows]
        if not rows:
            return None
        component = rows[0].component
        with named(asked.place):
            state = ReadOnlyMapState(asked.state, transaction.rows_of)
            results = asked.function.batch_retrieve(state, arguments)
            if isinstance(results, str | bytes) or not isinstance(results, Sequence) or len(results) != len(rows):
                raise _error(
                    component,
                    f"batch_retrieve returned {shown_value(results)}, and a list with one result for each of "
                    f"{len(rows)} tuples is wanted",
                )
            for row, argument, result in zip(rows, arguments, results, strict=True):
                self._emit(row, argument, result, collector)
        return None

    def _emit(self, row: Tuple, argument: tuple[Any, ...], result: Any, collector: CommitCollector) -> None:
        asked = self.question
        try:
            made = asked.function.execute(argument, result)
            if isinstance(made, str | bytes | Mapping) or not isinstance(made, Iterable):
                raise _error(
                    row.component,
                    f"execute returned {shown_value(made)} ({type(made).__name__}) instead of rows; return () for none",
                )
            for one in made:
                added = [one] if len(asked.made.items) == 1 else self._several(row.component, one)
                collector.emit([*row.values, *added])
        except Exception as error:
            note_values(error, shown(dict(zip(asked.names, argument, strict=True))))
            raise

    def _several(self, component: str, row: Any) -> Sequence[Any]:
        width = len(self.question.made.items)
        if not isinstance(row, tuple | list) or len(row) != width:
            raise _error(component, f"execute made {shown_value(row)}; a tuple of {width} values is wanted")
        return row


def _error(component: str, words: str) -> BatchDataError:
    return BatchDataError(words, component=component, fault="step returned no row")
