"""`AggregateCommitter`: maintains a table of exact counts, sums, averages, minima and maxima by key, and a contribution
table with the share of each batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from txtopo.committers.table_names import IDENTIFIER_BYTES_MAX, check_columns, split_table
from txtopo.core.fields import FLOAT_KINDS, Field, Fields, FieldType, parse_fields
from txtopo.errors import TopologyError
from txtopo.topology.committer_bolt import (
    Aggregate,
    AggregateKind,
    Aggregation,
    CommitterBolt,
    Later,
    result_fields,
)
from txtopo.topology.event_windows import CELL_KINDS, Cell, TimeWindow, check_zone, width_us
from txtopo.topology.keyed_table import KeyedTable
from txtopo.topology.streams import DEFAULT_STREAM, Stream

KEYS_MAX = 30
"""An index of Postgres has at most 32 columns, and the one on the contribution table has two more than the keys."""
CONTRIBUTION_SUFFIX = "_contribution"
_RESERVED = frozenset({"txid", "reverses"})
"""Column names that the contribution table uses."""
_UNORDERED_KINDS = frozenset({*FLOAT_KINDS, "binary"})
"""Types without an order that is the same in Arrow, Spark and Postgres: NaN and -0.0; min(bytea) is new in Postgres 18.
"""


WINDOW_START, WINDOW_END = "window_start", "window_end"
WINDOWS_SUFFIX = "_windows"
"""Of the view with sliding windows."""
SLOT_START, SLOT_END = "slot_start", "slot_end"
SESSIONS_SUFFIX = "_sessions"
"""Of the view with sessions."""
SLIDES_MAX = 1_000
DISTINCT_SUFFIX = "_distinct"
"""Of the view with the numbers of distinct values."""


class Sessions(NamedTuple):
    """Columns from which sessions follow.

    Time is cut into slots that are as wide as the gap. Rows of a key in one slot are always of one session, and rows of
    two slots with another slot between them are only if it has rows, too: so the first and last time of each slot say
    where sessions begin and end.
    """

    first: str = "first_time"
    """Column of the table: the smallest time in the slot."""
    last: str = "last_time"
    """Column of the table: the largest time in the slot."""
    start: str = "session_start"
    """Column of the view: the smallest time in the session."""
    end: str = "session_end"
    """Column of the view: the largest time in the session, and the gap."""


class Distinct(NamedTuple):
    """A number of distinct values: those of each key are the rows of another table."""

    field: str
    column: str
    """Column of the view."""
    table: str
    """Name of the table of the values, in the schema of the target."""
    cell: str | None = None
    """Column of this table with the cells of a sketch; None: it has the values."""


class Average(NamedTuple):
    """An average as it is stored: two columns that are added up, and a column that the server computes from them."""

    column: str
    """The average: numeric, NULL if no value is there."""
    total: str
    """Column with the sum of the values."""
    present: str
    """Column with the number of values that are not NULL."""


class AggregateCommitter(CommitterBolt):
    """Counts rows and maintains exact aggregates by key, in `table`.

    `table` is `name` (in schema public) or `schema.name`. `keys` are the fields to group by; `count` is the column for
    the number of rows. `sums`, `averages`, `mins` and `maxs` map input fields to result columns; a list uses the field
    names as columns. NULL values are ignored: a sum over none is 0, the others are NULL. NULL is a key like any other.

    Integers and decimals can be summed and averaged. An average `a` is stored as `a_sum` and `a_count`, and the server
    computes `a` from them. Minimum and maximum can be taken of all types but floats and binary; texts are compared by
    their UTF-8 bytes (COLLATE "C").

    With `window`, a width such as `1 hour`, and `time`, a timestamp field, rows are grouped by their window of event
    time, too, in the columns `window_start` and `window_end`: each row in the one window that its time is in, whenever
    it arrives. Windows follow each other from 1970-01-01 00:00 UTC on. With `slide`, a width that divides `window`, the
    table has a row for each slide, and the view `<table>_windows` a row for each window, a new one every slide. With
    `zone`, such as `Europe/Berlin`, windows are local days, from midnight to midnight, and the columns have local
    times.

    With `gap`, a width such as `30 minutes`, and `time`, rows of a key are of one session as long as none is later than
    the one before it by more than the gap. The view `<table>_sessions` has the sessions, with `session_start`, the
    first time, and `session_end`, the last time and the gap. A late row may join two. The table has a row for each slot
    of time as wide as the gap.

    `distinct` maps fields to columns of the view `<table>_distinct`, which has the table and how many different values
    a field has. The values of each key are in another table, `<table>_<column>`, with the number of their rows,
    which another committer keeps: it is a part of this one, with `_<column>` added to its name. With `approximate`
    this table has the cells of a sketch instead, and the numbers are estimates with a standard error of 1.6 %.

    `baseline=True` adopts, once, a table that already has rows. `contributions=False` keeps no contribution table; then
    the audit cannot name the batches that contributed to a key, and a batch cannot be recomputed.

    `values` declares what components downstream get in the commit of each batch: for each key of the batch, some of its
    columns as they are after the batch, by name. Then batches cannot be recomputed.

    Raises TopologyError if the name of a table or column or a width is not valid, or if a column is named twice.

        >>> stays = AggregateCommitter("stays", ["room"], averages={"nights": "nights_avg"}, maxs={"left": "last_left"})
        >>> [column for _, _, column in stays.aggregates]
        ['nights_avg_sum', 'nights_avg_count', 'last_left']
    """

    committer_kind: ClassVar[str] = "aggregate"
    commits_in_runs: ClassVar[bool] = True
    can_be_staged = True

    def __init__(
        self,
        table: str,
        keys: Sequence[str],
        *,
        count: str = "count",
        sums: Mapping[str, str] | Sequence[str] = (),
        averages: Mapping[str, str] | Sequence[str] = (),
        mins: Mapping[str, str] | Sequence[str] = (),
        maxs: Mapping[str, str] | Sequence[str] = (),
        distinct: Mapping[str, str] | Sequence[str] = (),
        approximate: bool = False,
        window: str | None = None,
        slide: str | None = None,
        zone: str | None = None,
        gap: str | None = None,
        time: str | None = None,
        baseline: bool = False,
        contributions: bool = True,
        values: str | Fields | None = None,
    ) -> None:
        if any(isinstance(one, str) for one in (keys, sums, averages, mins, maxs, distinct)):
            raise TopologyError(f"{_class(self)}({table!r}): keys and sums are lists of field names, not text")
        self.schema: str
        self.name: str
        self.schema, self.name = split_table(_class(self), table, CONTRIBUTION_SUFFIX if contributions else "")
        self.keys: tuple[str, ...] = tuple(keys)
        self.count = count
        self.baseline = baseline
        self.contributions = contributions
        self.values = None if values is None else parse_fields(values)
        """What it passes on after each batch, for each key of the batch; None: nothing."""
        self.can_be_staged = values is None
        averaged = [(field, Average(name, f"{name}_sum", f"{name}_count")) for field, name in _pairs(averages)]
        self.averages: tuple[Average, ...] = tuple(one for _, one in averaged)
        """Averages in the order in which they were named."""
        self.aggregates: tuple[Aggregate, ...] = (
            *_all("sum", sums),
            *(
                part
                for field, one in averaged
                for part in (Aggregate("sum", field, one.total), Aggregate("count", field, one.present))
            ),
            *_all("min", mins),
            *_all("max", maxs),
        )
        """Stored aggregates, in the order of their columns."""
        self.windows: tuple[TimeWindow, ...] = ()
        """The window that is a key, or none."""
        self.slides = 1
        """Number of rows of the table that a window of the view is made of; 1: there is no view."""
        self.sessions: Sessions | None = None
        """Where sessions begin and end; None: they are not asked for."""
        if gap is not None:
            self._set_gap(gap, time, [window, slide, zone, baseline or None])
        elif any(one is not None for one in (window, slide, zone, time)):
            self._set_window(window, slide, time, zone)
        cell = None if not approximate else "cell" if "cell" not in self.keys else "cell_of_value"
        self.distinct: tuple[Distinct, ...] = tuple(
            Distinct(field, column, f"{self.name}_{column}", cell) for field, column in _pairs(distinct)
        )
        self.cells: tuple[Cell, ...] = ()
        """The cell of a sketch that is a key, in a part that keeps cells."""
        self._check_names()
        self._parts = self._values_of_keys(gap or slide or window, time)

    def parts(self) -> Mapping[str, CommitterBolt]:
        return self._parts

    def table_by_key(self, inputs: Fields) -> KeyedTable | None:
        if self.distinct:
            return None  # these numbers are in a view
        aggregation = self.aggregation()
        has, width = result_fields(aggregation, inputs).items, len(aggregation.sources)
        return KeyedTable(table=self.table, keys=Fields(has[:width]), values=Fields(has[width:]))

    def declared_outputs(self, who: str) -> Mapping[str, Stream]:
        return {} if self.values is None else {DEFAULT_STREAM: Stream(self.values)}

    def cannot(self) -> Mapping[Later, str]:
        if self.values is None:
            return super().cannot()
        why = "its values are passed on, and what followed from those of a batch is unknown"
        return {"recompute": why, "backfill": why, **super().cannot()}

    def _values_of_keys(self, window: str | None, time: str | None) -> Mapping[str, CommitterBolt]:
        if self.distinct and self.baseline:
            raise TopologyError(
                f"{self}: distinct is not possible with baseline: the values of rows that exist are unknown"
            )
        found = {}
        made = {name for one in self.windows for name in (one.start, one.end)} | set(self.sessions or ())
        for field, column, table, cell in self.distinct:
            if f"_{column}" in (DISTINCT_SUFFIX, CONTRIBUTION_SUFFIX, WINDOWS_SUFFIX, SESSIONS_SUFFIX):
                raise TopologyError(f"{self}: {table} is the name of another table; rename the column {column}")
            if field in self.keys:
                raise TopologyError(f"{self}: {field} is a key, which has one value; distinct needs another field")
            if field in made:
                raise TopologyError(f"{self}: {field} is a column that txtopo makes; rename the field in a bolt")
            if len(f"{self.name}{DISTINCT_SUFFIX}") > IDENTIFIER_BYTES_MAX:
                raise TopologyError(f"{self}: table name {self.name!r} is too long for its view")
            part = found[f"_{column}"] = AggregateCommitter(
                f"{self.schema}.{table}",
                [*self.keys, *([] if cell else [field])],
                count="rows" if "rows" not in (*self.keys, field) else "rows_of_value",
                window=window,
                time=time,
                contributions=self.contributions,
            )
            part.windows = self.windows
            if cell:
                part.cells = (Cell(field, cell),)
        return found

    @property
    def table(self) -> str:
        """Schema and name of the target table."""
        return f"{self.schema}.{self.name}"

    @property
    def contribution_table(self) -> str:
        """Schema and name of the contribution table."""
        return f"{self.table}{CONTRIBUTION_SUFFIX}"

    def aggregation(self) -> Aggregation:
        return Aggregation(
            keys=self.keys, count=self.count, aggregates=self.aggregates, windows=self.windows, cells=self.cells
        )

    def required_fields(self) -> tuple[str, ...]:
        times = (one.field for one in self.windows)
        cells = (one.field for one in self.cells)
        return tuple(dict.fromkeys([*self.keys, *times, *cells, *(one.field for one in self.aggregates)]))

    def check_fields(self, fields: Fields) -> None:
        for name in self.keys:
            field = self._field(fields, name)
            if field.type.kind in FLOAT_KINDS:
                raise TopologyError(
                    f"{self}: key {name} is a {field.type}; equal-looking floats differ: declare it decimal, or "
                    f"round it in a bolt"
                )
        for one in self.windows:
            found = self._field(fields, one.field)
            if found.type.kind not in ("timestamp", "timestamp_ntz"):
                raise TopologyError(f"{self}: time={one.field!r} is a {found.type}; windows need a timestamp")
            if one.zone and found.type.kind == "timestamp_ntz":
                raise TopologyError(f"{self}: time={one.field!r} is a timestamp_ntz, which has no zone: remove zone=")
        for cell in self.cells:
            if (of := self._field(fields, cell.field).type).kind not in CELL_KINDS:
                raise TopologyError(f"{self}: {cell.field} is a {of}; only texts, binaries and integers are estimated")
        for kind, name, _ in self.aggregates:
            self._check_aggregate(kind, name, self._field(fields, name).type)
        if self.values is not None:
            has = result_fields(self.aggregation(), fields)
            if wrong := self.values.missing_in(has):
                raise TopologyError(f"{self}: values: {wrong}; each is one of {has.ddl}")

    def describe(self) -> Mapping[str, Any]:
        return {
            "kind": "aggregate",
            "table": self.table,
            "keys": list(self.keys),
            "count": self.count,
            "aggregates": [list(one) for one in self.aggregates],
            "averages": [list(one) for one in self.averages],
            **(
                {"windows": [list(one if one.zone else one[:4]) for one in self.windows], "slides": self.slides}
                if self.windows
                else {}
            ),
            **({"sessions": list(self.sessions)} if self.sessions else {}),
            **({"distinct": [list(one[:3]) for one in self.distinct]} if self.distinct else {}),
            **({"cells": [list(one) for one in self.cells]} if self.cells else {}),
            "contributions": self.contributions,
            **self._described_values(),
        }

    def _described_values(self) -> Mapping[str, Any]:
        return {} if self.values is None else {"values": self.values.ddl}

    def __repr__(self) -> str:
        return f"{_class(self)}({self.table!r})"

    def _set_window(self, window: str | None, slide: str | None, time: str | None, zone: str | None) -> None:
        if window is None or time is None:
            raise TopologyError(f"{self}: a window needs its width and its time, e.g. window='1 hour', time='sold'")
        whole = step = width_us(str(self), "window", window)
        if slide is not None:
            step = width_us(str(self), "slide", slide)
            if whole % step or whole // step > SLIDES_MAX:
                raise TopologyError(
                    f"{self}: window={window!r} is not made of slides of {slide!r}: a window has a whole number of "
                    f"slides, at most {SLIDES_MAX:,}"
                )
        if zone is not None:
            check_zone(str(self), zone, whole, step)
        self.windows = (TimeWindow(time, step, WINDOW_START, WINDOW_END, zone or ""),)
        self.slides = whole // step
        if self.slides > 1 and len(f"{self.name}{WINDOWS_SUFFIX}") > IDENTIFIER_BYTES_MAX:
            raise TopologyError(
                f"{self}: table name {self.name!r} is too long for its view {self.name}{WINDOWS_SUFFIX}"
            )

    def _set_gap(self, gap: str, time: str | None, others: Sequence[object]) -> None:
        if time is None or any(one is not None for one in others):
            raise TopologyError(
                f"{self}: a session needs its gap and its time, e.g. gap='30 minutes', time='seen', and has neither "
                f"window, slide, zone nor baseline"
            )
        self.sessions = Sessions()
        self.windows = (TimeWindow(time, width_us(str(self), "gap", gap), SLOT_START, SLOT_END),)
        self.aggregates += (Aggregate("min", time, self.sessions.first), Aggregate("max", time, self.sessions.last))
        if len(f"{self.name}{SESSIONS_SUFFIX}") > IDENTIFIER_BYTES_MAX:
            raise TopologyError(
                f"{self}: table name {self.name!r} is too long for its view {self.name}{SESSIONS_SUFFIX}"
            )

    def _check_aggregate(self, kind: AggregateKind, name: str, of: FieldType) -> None:
        if kind in ("min", "max"):
            if of.kind in _UNORDERED_KINDS:
                advice = ": declare it decimal, or round it in a bolt" if of.kind in FLOAT_KINDS else ""
                raise TopologyError(
                    f"{self}: {name} is a {of}, whose order is not the same everywhere, so it has no {kind}{advice}"
                )
        elif not of.is_exact_number:
            advice = "; sums of floats depend on their order: declare it decimal" if of.kind in FLOAT_KINDS else ""
            raise TopologyError(f"{self}: {name} is a {of}, and only integers and decimals are summed{advice}")

    def _field(self, fields: Fields, name: str) -> Field:
        field = fields.get(name)
        if field is None:
            raise TopologyError(f"{self}: there is no field {name}; there are {', '.join(fields.names)}")
        return field

    def _check_names(self) -> None:
        if not self.keys and not self.windows:
            raise TopologyError(f"{self}: at least one key is needed, e.g. ['carrier']")
        if len(self.keys) + len(self.windows) > KEYS_MAX:
            raise TopologyError(f"{self}: {len(self.keys) + len(self.windows)} keys, at most {KEYS_MAX} are possible")
        stored = (*(one.column for one in self.aggregates), *(one.column for one in self.averages))
        windows = (name for one in self.windows for name in (one.start, one.end))
        sessions = () if self.sessions is None else (self.sessions.start, self.sessions.end)
        columns = [*self.keys, *windows, *sessions, self.count, *stored, *(one.column for one in self.distinct)]
        twice = sorted({name for name in columns if columns.count(name) > 1})
        if twice:
            raise TopologyError(
                f"{self}: column {', '.join(twice)} is named twice; name the result of a sum with sums={{'field': "
                f"'column'}}"
            )
        check_columns(self, columns, _RESERVED)


def _class(bolt: AggregateCommitter) -> str:
    return type(bolt).__name__


def _pairs(columns: Mapping[str, str] | Sequence[str]) -> Sequence[tuple[str, str]]:
    return list(columns.items()) if isinstance(columns, Mapping) else [(name, name) for name in columns]


def _all(kind: AggregateKind, columns: Mapping[str, str] | Sequence[str]) -> Sequence[Aggregate]:
    return [Aggregate(kind, field, column) for field, column in _pairs(columns)]
