"""Reads the stored description of a topology: its `config`, and for an audit the tables, keys and aggregates of its
committers, and the path of rows to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeVar

from sqlalchemy import Connection, text

from txtopo.committers.sql_names import column_type, postgres_type
from txtopo.core.fields import FLOAT_KINDS, parse_fields

AggregateKind = Literal["sum", "count", "min", "max"]
_LOCAL = "timestamp without time zone"
T = TypeVar("T")
Way = Literal["direct", "same", "fewer", "any"]
"""The path of rows from the spout to a committer: direct, through bolts that keep the number of rows, that may drop
some, or that may do anything.
"""

_CONFIG = text("select description -> 'config' from txtopo.topology where topology = :topology")


def read_config(connection: Connection, topology: str) -> Mapping[str, Any] | None:
    """Return the `config` of a topology, empty if it was described without one; None if no driver has described the
    topology yet.
    """
    found = connection.execute(_CONFIG, {"topology": topology}).one_or_none()
    if found is None:
        return None
    return found[0] if isinstance(found[0], Mapping) else {}


class StoredAggregate(NamedTuple):
    """One column of a target besides the keys and the count."""

    kind: AggregateKind
    field: str
    """The input field."""
    column: str
    type: str | None = None
    """Type of the column, as Postgres spells it; None if the description does not contain it."""

    @property
    def is_added(self) -> bool:
        """True if the value of the target is the sum of all contributions."""
        return self.kind in ("sum", "count")


class StoredAverage(NamedTuple):
    """A column that the server computes from two others."""

    column: str
    total: str
    present: str


class StoredWindow(NamedTuple):
    """A key that is the window of event time of a row, and the column with its end, which the server computes."""

    field: str
    """The input field."""
    width_us: int
    start: str
    end: str
    zone: str = ""
    """The time zone in whose local time the windows are; empty: UTC."""


class StoredSessions(NamedTuple):
    """Columns of slots of time, and of the view with sessions that are made of them."""

    first: str
    last: str
    start: str
    end: str


class StoredCell(NamedTuple):
    """A key that is the cell of a sketch."""

    field: str
    """The input field."""
    column: str


class StoredDistinct(NamedTuple):
    """A number of distinct values: a column of a view. A part of the committer keeps the values."""

    field: str
    """The input field."""
    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterTables:
    """One counting committer."""

    name: str
    target: str
    """Schema and name of its table."""
    keys: tuple[str, ...]
    """Columns; the starts of windows come after the fields, and cells last."""
    count: str
    aggregates: tuple[StoredAggregate, ...]
    contributions: bool
    spout: str | None
    """The spout at the start of its path; None if there are several."""
    way: Way
    types: Mapping[str, str | None] = field(default_factory=dict)
    """Key -> the type of its column, as Postgres spells it; None if the description does not contain it."""
    averages: tuple[StoredAverage, ...] = ()
    windows: tuple[StoredWindow, ...] = ()
    slides: int = 1
    """Number of rows that a window of the view is made of; 1: there is no such view."""
    sessions: StoredSessions | None = None
    """Sessions, whose gap is the width of the window; None: there are none."""
    distinct: tuple[StoredDistinct, ...] = ()
    cells: tuple[StoredCell, ...] = ()
    alone: bool = True
    """True if it reads the topology's only spout. With several spouts, the ledger has one number of records for all of
    them.
    """

    def ordered(self, columns: Sequence[str]) -> CommitterTables:
        """Return the same with its aggregates in the order of these columns: JSON objects in the stored description
        have no order, and rows are hashed in the order of the columns.
        """
        places = {name: at for at, name in enumerate(columns)}
        aggregates = sorted(self.aggregates, key=lambda one: places.get(one.column, len(places)))
        return replace(self, aggregates=tuple(aggregates))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the target, in the order in which its rows are hashed."""
        return (*self.keys, *self.numbers)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Return the count column first, then the aggregates."""
        return (self.count, *(one.column for one in self.aggregates))

    @property
    def added(self) -> frozenset[str]:
        """Return the columns whose value in the target is the sum of all contributions."""
        return frozenset({self.count, *(one.column for one in self.aggregates if one.is_added)})

    @property
    def never_null(self) -> tuple[str, ...]:
        """Return the columns besides the keys that may not be NULL."""
        return tuple(name for name in self.numbers if name in self.added)

    @property
    def extremes(self) -> Mapping[str, StoredAggregate]:
        """Return column -> minimum or maximum, which only contributions that count decide."""
        return {one.column: one for one in self.aggregates if not one.is_added}

    @property
    def no_row(self) -> Mapping[str, Decimal | str | None] | None:
        """Return what contributions must come to where the target has no row: a row is removed when its count becomes
        0.
        """
        return {name: None if name in self.extremes else Decimal(0) for name in self.numbers}

    @property
    def target_columns(self) -> Mapping[str, str | None]:
        """Return column of the target -> its type."""
        ends = {one.end: self.types.get(one.start) for one in self.windows}
        return {**self._stored_columns, **dict.fromkeys((one.column for one in self.averages), "numeric"), **ends}

    @property
    def contribution_columns(self) -> Mapping[str, str | None]:
        """Return column of the contribution table -> its type."""
        return {"txid": "bigint", "reverses": "bigint", **self._stored_columns}

    @property
    def _stored_columns(self) -> Mapping[str, str | None]:
        keys = {key: self.types.get(key) for key in self.keys}
        return {**keys, self.count: "bigint", **{one.column: one.type for one in self.aggregates}}

    @property
    def target_sql(self) -> str:
        """Return the quoted name of the target table."""
        return _qualified(self.target)

    def view_sql(self, suffix: str) -> str:
        """Return the quoted name of the view whose name ends with this."""
        return _qualified(f"{self.target}{suffix}")

    @property
    def contributions_sql(self) -> str:
        """Return the quoted name of the contribution table."""
        return _qualified(f"{self.target}_contribution")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRows:
    """How the table of a committer follows from its log: the last row of each key, or the rows of its last batch."""

    keys: tuple[str, ...]
    version: tuple[str, ...]
    deleted: str | None
    whole: bool
    """True: the rows of the last batch."""

    @property
    def front(self) -> tuple[str, ...]:
        """Return the columns of the table in front of the fields."""
        return ("txid", "n") if self.whole else ()

    @property
    def unique(self) -> tuple[str, ...]:
        """Return the columns that tell rows of the table apart."""
        return self.front or self.keys


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTable:
    """One committer that stores the rows of each batch."""

    name: str
    target: str
    """Schema and name of its table."""
    log: str
    """Schema and name of the table that has the rows of batches: the same, or another one if `last` is given."""
    front: tuple[str, ...]
    """Columns of the batch, in front of the fields."""
    fields: Mapping[str, str]
    """Column -> its type, as Postgres spells it: the fields of its input, in their order."""
    last: LastRows | None
    """How `target` follows from `log`; None: it is the log."""
    spout: str | None
    """As in CommitterTables."""
    way: Way
    """As in CommitterTables."""
    alone: bool
    """As in CommitterTables."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the columns that identify a row; none if nothing does."""
        return () if self.last is None else self.last.keys

    @property
    def numbers(self) -> tuple[str, ...]:
        """Return the other fields."""
        return tuple(name for name in self.fields if name not in self.keys)

    @property
    def no_row(self) -> Mapping[str, Decimal | str | None] | None:
        """Return None: where the table has no row, none must follow from the log."""
        return None

    @property
    def log_columns(self) -> Mapping[str, str | None]:
        """Return all columns of the log with their types."""
        return {**dict.fromkeys(self.front, "bigint"), **self.fields}

    @property
    def hashed(self) -> tuple[str, ...]:
        """Return the columns that the digest of a batch covers, in their order."""
        return ("n", *self.fields)

    @property
    def target_sql(self) -> str:
        """Return the quoted name of the table."""
        return _qualified(self.target)

    @property
    def log_sql(self) -> str:
        """Return the quoted name of the log."""
        return _qualified(self.log)


def row_tables_of(description: Mapping[str, Any]) -> dict[str, RowTable]:
    """Return the committers that store rows, by name. Raises ValueError as `committers_of`."""
    made = _tables_of(description).items()
    return {name: one for name, one in made if isinstance(one, RowTable)}


def committers_of(description: Mapping[str, Any]) -> dict[str, CommitterTables]:
    """Return the counting committers of a topology, by name. Raises ValueError for an unexpected description."""
    made = _tables_of(description).items()
    return {name: one for name, one in made if isinstance(one, CommitterTables)}


def _tables_of(description: Mapping[str, Any]) -> dict[str, CommitterTables | RowTable]:
    found: dict[str, CommitterTables | RowTable] = {}
    own = own_committers_of(description)
    try:
        for name, one in description["committers"].items():
            if name in own:
                continue
            if one["kind"] not in TABLES:
                raise ValueError(f"committer {name} is of kind {one['kind']!r}")
            found[name] = TABLES[one["kind"]](description, name, one)
        for made in found.values():
            if isinstance(made, CommitterTables):
                parts_of(made, found)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return found


def parts_of(committer: CommitterTables, others: Mapping[str, T]) -> list[T]:
    """Return the committers, by name, that keep the distinct values of this one, in the order of their columns."""
    return [others[f"{committer.name}_{one.column}"] for one in committer.distinct]


def own_committers_of(description: Mapping[str, Any]) -> frozenset[str]:
    """Return the custom committers, by name: only their own code knows what they wrote. Raises ValueError as
    `committers_of`.
    """
    try:
        return frozenset(name for name, one in description["committers"].items() if "class" in one)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def quoted(name: str) -> str:
    """Return an identifier in quotes, for statements with psycopg2's placeholders (a percent sign doubled)."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def listed(names: Sequence[str], alias: str) -> str:
    """Return the columns of a table, quoted."""
    return ", ".join(f"{alias}.{quoted(name)}" for name in names)


def _of_count(description: Mapping[str, Any], name: str, one: Mapping[str, Any]) -> CommitterTables:
    sums = [StoredAggregate("sum", field, column, "numeric") for field, column in one["sums"].items()]
    return _tables(description, name, one, sums)


def _of_aggregate(description: Mapping[str, Any], name: str, one: Mapping[str, Any]) -> CommitterTables:
    own = {"sum": "numeric", "count": "bigint"}
    fields = _field_types(one)
    aggregates = [
        StoredAggregate(kind, field, column, own[kind] if kind in own else fields.get(field))
        for kind, field, column in one["aggregates"]
    ]
    if any(made.kind not in ("sum", "count", "min", "max") for made in aggregates):
        raise ValueError(f"committer {name} has an aggregate of an unknown kind")
    averages = [StoredAverage(*average) for average in one["averages"]]
    windows = [StoredWindow(*window) for window in one.get("windows", ())]
    return _tables(
        description, name, one, aggregates, averages, windows, [StoredCell(*x) for x in one.get("cells", ())]
    )


def _tables(
    description: Mapping[str, Any],
    name: str,
    one: Mapping[str, Any],
    aggregates: Sequence[StoredAggregate],
    averages: Sequence[StoredAverage] = (),
    windows: Sequence[StoredWindow] = (),
    cells: Sequence[StoredCell] = (),
) -> CommitterTables:
    spout, way = _way(description, one["input"])
    return CommitterTables(
        name=name,
        target=one["table"],
        keys=(*one["keys"], *(window.start for window in windows), *(cell.column for cell in cells)),
        count=one["count"],
        aggregates=tuple(aggregates),
        averages=tuple(averages),
        windows=tuple(windows),
        slides=one.get("slides", 1),
        sessions=StoredSessions(*one["sessions"]) if "sessions" in one else None,
        distinct=tuple(StoredDistinct(*made[:2]) for made in one.get("distinct", ())),
        cells=tuple(cells),
        contributions=bool(one["contributions"]),
        spout=spout,
        way=way,
        types={
            **_types(one),
            **{window.start: _LOCAL if window.zone else _field_types(one).get(window.field) for window in windows},
            **dict.fromkeys((cell.column for cell in cells), "integer"),
        },
        alone=len(description["spouts"]) == 1,
    )


def _of_append(description: Mapping[str, Any], name: str, one: Mapping[str, Any]) -> RowTable:
    return _row_table(description, name, one, one["table"], ("txid", "attempt", "n"), None)


def _of_upsert(description: Mapping[str, Any], name: str, one: Mapping[str, Any]) -> RowTable:
    last = LastRows(keys=tuple(one["keys"]), version=tuple(one["version"]), deleted=one["deleted"], whole=False)
    return _row_table(description, name, one, f"{one['table']}_log", ("txid", "attempt", "origin", "n"), last)


def _of_replace(description: Mapping[str, Any], name: str, one: Mapping[str, Any]) -> RowTable:
    last = LastRows(keys=tuple(one["keys"]), version=(), deleted=None, whole=True)
    return _row_table(description, name, one, f"{one['table']}_log", ("txid", "attempt", "origin", "n"), last)


def _row_table(
    description: Mapping[str, Any],
    name: str,
    one: Mapping[str, Any],
    log: str,
    front: tuple[str, ...],
    last: LastRows | None,
) -> RowTable:
    inputs = one["inputs"]
    spout, way = _way(description, inputs[0]["source"]) if len(inputs) == 1 else (None, "any")
    return RowTable(
        name=name,
        target=one["table"],
        log=log,
        front=front,
        fields={field.name: column_type(field.type) for field in parse_fields(one["fields"]).items},
        last=last,
        spout=spout,
        way=way,
        alone=len(description["spouts"]) == 1,
    )


TABLES: Mapping[str, Callable[[Mapping[str, Any], str, Mapping[str, Any]], CommitterTables | RowTable]] = {
    "append": _of_append,
    "replace": _of_replace,
    "upsert": _of_upsert,
    "count": _of_count,
    "aggregate": _of_aggregate,
}
"""Kind in the description of a committer -> what reads its tables from it, for the audit to count again. Custom
committers have none: only their own code knows what they wrote.
"""


def _types(one: Mapping[str, Any]) -> Mapping[str, str | None]:
    """Return the types of a committer's keys, from the fields that it reads."""
    known = _field_types(one)
    return {key: known.get(key) for key in one["keys"]}


def _field_types(one: Mapping[str, Any]) -> Mapping[str, str]:
    fields = parse_fields(one["fields"]).items if one.get("fields") else ()
    # A float has no type here: it is neither a key nor an aggregate.
    return {field.name: postgres_type(field.type) for field in fields if field.type.kind not in FLOAT_KINDS}


def _qualified(table: str) -> str:
    schema, _, name = table.partition(".")
    return f"{quoted(schema)}.{quoted(name)}"


def _way(description: Mapping[str, Any], source: str) -> tuple[str | None, Way]:
    way: Way = "direct"
    while source not in description["spouts"]:
        if source in description["committers"]:
            return None, "any"
        bolt = description["bolts"][source]
        if len(bolt["inputs"]) != 1:
            return None, "any"
        # The inputs of a tuple bolt are objects; the number of its output tuples is unknown.
        (read,), rows = bolt["inputs"], bolt.get("rows", "any")
        if "any" in (way, rows) or rows not in ("same", "fewer"):
            way = "any"
        else:
            way = "fewer" if "fewer" in (way, rows) else "same"
        source = read["source"] if isinstance(read, Mapping) else read
    return source, way
