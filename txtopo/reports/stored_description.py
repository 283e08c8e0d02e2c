"""Reads the stored description of a topology: its `config`, and for an audit the tables, keys and sums of its
committers, and the path of rows to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sqlalchemy import Connection, text

from txtopo.committers.sql_names import postgres_type
from txtopo.core.fields import parse_fields

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterTables:
    """One counting committer."""

    name: str
    target: str
    """Schema and name of its table."""
    keys: tuple[str, ...]
    count: str
    sums: Mapping[str, str]
    """Input field -> column."""
    contributions: bool
    spout: str | None
    """The spout at the start of its path; None if there are several."""
    way: Way
    types: Mapping[str, str | None] = field(default_factory=dict)
    """Key -> the type of its column, as Postgres spells it; None if the description does not contain it."""
    alone: bool = True
    """True if it reads the topology's only spout. With several spouts, the ledger has one number of records for all of
    them.
    """

    def ordered(self, columns: Sequence[str]) -> CommitterTables:
        """Return the same with its sums in the order of these columns: JSON objects in the stored description have no
        order, and rows are hashed in the order of the columns.
        """
        places = {name: at for at, name in enumerate(columns)}
        sums = sorted(self.sums.items(), key=lambda item: places.get(item[1], len(places)))
        return replace(self, sums=dict(sums))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the target, in the order in which its rows are hashed."""
        return (*self.keys, *self.numbers)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Return the count column first, then the sums."""
        return (self.count, *self.sums.values())

    @property
    def target_columns(self) -> Mapping[str, str | None]:
        """Return column of the target -> its type."""
        numbers = dict.fromkeys(self.sums.values(), "numeric")
        return {**{key: self.types.get(key) for key in self.keys}, self.count: "bigint", **numbers}

    @property
    def contribution_columns(self) -> Mapping[str, str | None]:
        """Return column of the contribution table -> its type."""
        return {"txid": "bigint", "reverses": "bigint", **self.target_columns}

    @property
    def target_sql(self) -> str:
        """Return the quoted name of the target table."""
        return _qualified(self.target)

    @property
    def contributions_sql(self) -> str:
        """Return the quoted name of the contribution table."""
        return _qualified(f"{self.target}_contribution")


def committers_of(description: Mapping[str, Any]) -> dict[str, CommitterTables]:
    """Return the counting committers of a topology, by name. Raises ValueError for an unexpected description."""
    found = {}
    own = own_committers_of(description)
    try:
        for name, one in description["committers"].items():
            if name in own:
                continue
            if one["kind"] not in TABLES:
                raise ValueError(f"committer {name} is of kind {one['kind']!r}")
            found[name] = TABLES[one["kind"]](description, name, one)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return found


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
    spout, way = _way(description, one["input"])
    return CommitterTables(
        name=name,
        target=one["table"],
        keys=tuple(one["keys"]),
        count=one["count"],
        sums=dict(one["sums"]),
        contributions=bool(one["contributions"]),
        spout=spout,
        way=way,
        types=_types(one),
        alone=len(description["spouts"]) == 1,
    )


TABLES: Mapping[str, Callable[[Mapping[str, Any], str, Mapping[str, Any]], CommitterTables]] = {"count": _of_count}
"""Kind in the description of a committer -> what reads its tables from it, for the audit to count again. Custom
committers have none: only their own code knows what they wrote.
"""


def _types(one: Mapping[str, Any]) -> Mapping[str, str | None]:
    """Return the types of a committer's keys, from the fields that it reads."""
    fields = parse_fields(one["fields"]) if one.get("fields") else None
    known = (
        {}
        if fields is None
        else {field.name: postgres_type(field.type) for field in fields.items if field.name in one["keys"]}
    )
    return {key: known.get(key) for key in one["keys"]}


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
