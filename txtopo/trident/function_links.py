"""Links that call functions of the user: over values (`each`, `map`, `filter`, `peek` and their flat forms), or over
record batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import length_hint
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from txtopo.core.fields import Fields
from txtopo.topology.spark_types import RowsPromise
from txtopo.topology.user_exceptions import note_values
from txtopo.trident.functions import ArrowFilter, ArrowFunction
from txtopo.trident.links import (
    ChainColumn,
    ChainRows,
    Link,
    LinkContext,
    RunningLink,
    columns_for,
    data_error,
    made_columns,
)
from txtopo.tuples.columns import adder
from txtopo.tuples.user_errors import shown, shown_value

Verb = Literal["each", "flat_each", "map", "flat_map", "filter", "peek"]
FLAT: frozenset[Verb] = frozenset({"flat_each", "flat_map"})
"""Verbs whose function returns any number of rows."""
APPENDS: frozenset[Verb] = frozenset({"each", "flat_each"})
"""Verbs that keep the fields that are there."""
KEEPS: frozenset[Verb] = frozenset({"filter", "peek"})
"""Verbs that make no fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Link):
    """Calls a function with the values of some fields."""

    verb: Verb
    function: Callable[..., Any]
    positions: tuple[int, ...]
    """Of the fields that it gets."""
    names: tuple[str, ...]
    made: Fields
    """Fields that it returns; those of the stream if it makes none."""
    arguments: str
    """Digest of what the function was made with: it is part of the code hash."""

    def open(self, context: LinkContext) -> RunningLink:
        if isinstance(self.function, ArrowFilter):
            return _ArrowFiltering(self, self.function, context)
        if isinstance(self.function, ArrowFunction):
            return _ArrowCalling(self, self.function, context)
        if self.verb in KEEPS:
            return _Keeping(self, context)
        return _Calling(self, context)


class _Caller(RunningLink):
    def __init__(self, call: Call, context: LinkContext) -> None:
        self._call = call
        self._context = context
        self._columns = columns_for(context, call.made)

    def _results(self, rows: ChainRows) -> list[Any]:
        """Return what the function returned for each tuple. An error names the values."""
        function, lists = self._call.function, self._values(rows)
        first = iter(lists[0])
        try:
            # Not `map`, which a StopIteration of the function would end in silence.
            if len(lists) == 1:
                return [function(value) for value in first]
            return [function(*values) for values in zip(first, *lists[1:], strict=True)]
        except (Exception, SystemExit) as error:
            self._note(error, lists, rows.count - length_hint(first) - 1)
            raise

    def _values(self, rows: ChainRows) -> list[list[Any]]:
        return [rows.columns[at].values() for at in self._call.positions]

    def _note(self, error: BaseException, lists: Sequence[list[Any]], at: int) -> None:
        """Say which values the function had."""
        note_values(error, shown({name: values[at] for name, values in zip(self._call.names, lists, strict=True)}))

    def _error(self, words: str, rows: ChainRows, at: int) -> Exception:
        error = data_error(self._context, words, "step returned no row")
        self._note(error, self._values(rows), at)
        return error

    def _after(self, kept: Sequence[ChainColumn], made: Sequence[ChainColumn]) -> list[ChainColumn]:
        return [*kept, *made] if self._call.verb in APPENDS else list(made)


class _Keeping(_Caller):
    """`filter` and `peek`."""

    def take(self, rows: ChainRows) -> Iterator[ChainRows]:
        results = self._results(rows)
        if self._call.verb == "peek":
            yield rows
            return
        strange = set(map(type, results)) - {bool, np.bool_}
        if strange:
            at = next(at for at, result in enumerate(results) if type(result) in strange)
            raise self._error(
                f"the filter returned {shown_value(results[at])} ({type(results[at]).__name__}), which is neither True "
                f"nor False: write bool(…)",
                rows,
                at,
            )
        kept = np.flatnonzero(np.array(results, dtype=bool))
        yield rows if len(kept) == rows.count else rows.take(kept)


class _Calling(_Caller):
    """`each` and `map`, and their flat forms."""

    def take(self, rows: ChainRows) -> Iterator[ChainRows]:
        results = self._results(rows)
        if self._call.verb not in FLAT:
            made = self._made(results)
            yield rows.with_columns(self._after(rows.columns, made))
            return
        several = [self._rows_of(result, rows, at) for at, result in enumerate(results)]
        lengths = np.fromiter(map(len, several), dtype=np.int64, count=len(several))
        positions = np.repeat(np.arange(rows.count), lengths)
        made = self._made(list(chain.from_iterable(several)))
        kept = [column.take(positions) for column in rows.columns] if self._call.verb in APPENDS else ()
        yield rows.made(positions, self._after(kept, made))

    def _rows_of(self, result: Any, rows: ChainRows, at: int) -> Sequence[Any]:
        if type(result) is list or type(result) is tuple:
            return result
        if not isinstance(result, Iterable) or isinstance(result, str | bytes | bytearray | Mapping):
            raise self._error(
                f"the function returned {shown_value(result)} ({type(result).__name__}) instead of rows; return () "
                f"for no rows",
                rows,
                at,
            )
        try:
            return list(result)
        except (Exception, SystemExit) as error:
            self._note(error, self._values(rows), at)
            raise

    def _made(self, results: list[Any]) -> list[ChainColumn]:
        width = len(self._call.made.items)
        if width == 1:
            return made_columns(self._columns, self._call.made, [results])
        lists: list[list[Any]] = [[] for _ in range(width)]
        add = adder(lists, self._columns)
        for result in results:
            add(result)
        return made_columns(self._columns, self._call.made, lists)


class _ArrowFiltering(_Caller):
    def __init__(self, call: Call, function: ArrowFilter, context: LinkContext) -> None:
        super().__init__(call, context)
        self._filter = function

    def take(self, rows: ChainRows) -> Iterator[ChainRows]:
        kept = self._filter.keep(*(rows.columns[at].array for at in self._call.positions))
        if not isinstance(kept, pa.BooleanArray) or len(kept) != rows.count or kept.null_count:
            raise data_error(
                self._context,
                f"keep returned {kept.type if isinstance(kept, pa.Array) else type(kept).__name__}, and a "
                f"BooleanArray of {rows.count} values without NULL is wanted",
                "step returned no row",
            )
        positions = np.flatnonzero(kept.to_numpy(zero_copy_only=False))
        yield rows if len(positions) == rows.count else rows.take(positions)


class _ArrowCalling(_Caller):
    def __init__(self, call: Call, function: ArrowFunction, context: LinkContext) -> None:
        super().__init__(call, context)
        self._function = function

    def take(self, rows: ChainRows) -> Iterator[ChainRows]:
        positions, arrays = self._function.rows(*(rows.columns[at].array for at in self._call.positions))
        batch = pa.RecordBatch.from_arrays(list(arrays), names=self._columns.schema.names)
        made = [ChainColumn(array) for array in self._columns.fitted(batch).columns]
        at = np.asarray(positions, dtype=np.int64)
        if len(at) != batch.num_rows or (len(at) and (at.min() < 0 or at.max() >= rows.count)):
            raise data_error(
                self._context,
                f"rows returned {len(at)} positions for {batch.num_rows} rows, each of which was to be made of one of "
                f"{rows.count} tuples",
                "step returned no row",
            )
        kept = [column.take(at) for column in rows.columns] if self._call.verb in APPENDS else ()
        yield rows.made(at, self._after(kept, made))


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches(Link):
    """Calls a function with record batches."""

    function: Callable[[pa.RecordBatch], pa.RecordBatch]
    before: Fields
    """Fields of the batches that it gets."""
    rows: RowsPromise
    arguments: str

    def open(self, context: LinkContext) -> RunningLink:
        return _CallingBatches(self, context)


class _CallingBatches(RunningLink):
    def __init__(self, link: Batches, context: LinkContext) -> None:
        self._link = link
        self._context = context
        self._names = link.before.names
        self._columns = columns_for(context, link.fields)

    def take(self, rows: ChainRows) -> Iterator[ChainRows]:
        given = pa.RecordBatch.from_arrays([column.array for column in rows.columns], names=self._names)
        made = self._columns.fitted(self._link.function(given))
        promise = self._link.rows
        if (promise == "same" and made.num_rows != rows.count) or (promise == "fewer" and made.num_rows > rows.count):
            raise data_error(
                self._context,
                f"the function promises rows={promise!r}, and made {made.num_rows} rows of {rows.count}",
                "broken promise of rows",
            )
        after = [ChainColumn(array) for array in made.columns]
        if promise == "same":
            yield rows.with_columns(after)
        elif rows.count == 1:
            yield rows.made(np.zeros(made.num_rows, dtype=np.int64), after)
        else:
            yield ChainRows(after, made.num_rows, anchored=False)
