"""Traces one row of a target: which batches contributed what to it, from which files, and whether together they are
the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from txtopo.committers.postgres.sql_errors import one_line, sqlstate
from txtopo.committers.postgres.sqlstates import DATA_EXCEPTION
from txtopo.errors import ConfigurationError, TxtopoError, unreachable
from txtopo.reports.list_batches import one, rows
from txtopo.reports.stored_description import CommitterTables, RowTable, committers_of, quoted, row_tables_of

FILES_SHOWN = 3
"""Number of input files named for each batch."""
_SETTINGS = (
    "set local search_path = pg_catalog; set local timezone = 'UTC'; set local datestyle = 'ISO, YMD'; "
    "set local bytea_output = 'hex'"
)
"""Names of types are qualified, and values are text as in the audit."""

TARGETS = """select target, topology, committer from txtopo.target order by target collate "C" limit 10000"""

DESCRIPTION = """select description from txtopo.topology where topology = :topology"""

COLUMN_TYPES = """
select a.attname as name, pg_catalog.format_type(a.atttypid, -1) as type
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
 where n.nspname = :schema and c.relname = :table
"""
"""Types without their length: a longer value must not be truncated to an existing one."""

BATCHES = """
select txid, case state when 'applied' then 'committed' else state end as state, attempt, epoch, committed_at,
       encode(code_hash, 'hex') as code_hash, (to_jsonb(l) ->> 'backfills')::bigint as backfills
  from txtopo.ledger l where topology = :topology and txid = any(cast(:txids as bigint[]))
"""

FILES = """
select txid, path, files from (
  select txid, path, count(*) over (partition by txid) as files, row_number() over (partition by txid order by spout,
  path) as place
    from txtopo.source_file where topology = :topology and txid = any(cast(:txids as bigint[]))) f
 where place <= :shown order by txid, place
"""


class UntraceableError(TxtopoError):
    """It is unknown which batches made the row; nothing is known to be wrong."""

    exit_code = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A registered target table, as its topology describes it."""

    topology: str
    committer: str
    tables: CommitterTables | RowTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """The contribution of one batch to the row, or its reversal."""

    txid: int
    """0: the content of the table before its topology took it over."""
    reverses: int | None
    """The batch whose contribution is reversed; None: the row is the batch's own contribution."""
    numbers: Mapping[str, Decimal | str | None]
    """By column; a minimum or maximum, and a field of a row that is kept, as text."""
    state: str | None
    """State of the batch; None if it is not in the ledger."""
    backfills: int | None = None
    """The batch that this one counts into the committer, which was added later."""
    attempt: int | None
    epoch: int | None
    code_hash: str | None
    committed_at: datetime | None
    paths: tuple[str, ...]
    """The first of its input files, at most `FILES_SHOWN`."""
    files: int
    """Number of all its input files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A row and its contributions."""

    target: Target
    key: Mapping[str, str | None]
    """Column -> value as given; None is NULL."""
    row: Mapping[str, Decimal | str | None] | None
    """The values in the target now, as in `Contribution.numbers`; None: there is no such row."""
    contributions: tuple[Contribution, ...]
    """The last contributions, oldest first."""
    count: int
    """Number of all contributions."""
    sums: Mapping[str, Decimal | str | None] | None
    """What follows from all contributions, by column: sums, and minima and maxima of those that count; or the last row
    of a log. None: no row.
    """

    @property
    def is_known(self) -> bool:
        """True if the row exists, or existed before."""
        return self.row is not None or self.count > 0

    @property
    def verdict(self) -> Literal["MATCH", "MISMATCH"]:
        """MATCH: the contributions add up to the row, or the row is the last one of its log; or there is none, and must
        be none.
        """
        expected = self.target.tables.no_row if self.row is None else self.row
        return "MATCH" if self.is_known and self.sums == expected else "MISMATCH"


def find_target(connection: Connection, table: str, topology: str | None) -> Target:
    """Return the registered target of this name, with or without its schema. Raises ConfigurationError or
    UntraceableError.
    """
    known = [row for row in rows(connection, TARGETS) if topology in (None, row["topology"])]
    exact = [row for row in known if row["target"] in (table, f"public.{table}")]
    found = exact or [row for row in known if row["target"].partition(".")[2] == table]
    if len(found) != 1:
        of = f" of topology {topology}" if topology else ""
        names = ", ".join(row["target"] for row in (found or known)[:10]) or "none"
        problem = "could be several targets" if found else "is no target"
        raise ConfigurationError(f"table {table!r} {problem}{of}; registered: {names}")
    (registered,) = found
    described = one(connection, DESCRIPTION, topology=registered["topology"])
    try:
        committers = committers_of(described["description"]) if described else {}
        rows_of = row_tables_of(described["description"]) if described else {}
    except ValueError as error:
        raise UntraceableError(
            f"the stored description of {registered['topology']} is not understood: {error}"
        ) from error
    stored = rows_of.get(registered["committer"])
    if stored is not None and stored.last is not None and not stored.last.whole:
        return Target(topology=registered["topology"], committer=stored.name, tables=stored)
    if stored is not None:
        raise UntraceableError(
            f"{registered['target']} has the rows of batches as they came: column txid says which batch added a row; "
            f"`txtopo show {registered['topology']} TXID` shows its files"
        )
    tables = committers.get(registered["committer"])
    if tables is None or tables.target != registered["target"]:
        raise UntraceableError(
            f"{registered['target']} belongs to committer {registered['committer']}, which topology "
            f"{registered['topology']} has no more"
        )
    if not tables.contributions:
        raise UntraceableError(
            f"committer {tables.name} of {registered['topology']} keeps no contributions (contributions=False): "
            f"it is not recorded which batches contributed to a row of {tables.target}"
        )
    return Target(topology=registered["topology"], committer=registered["committer"], tables=tables)


def read_key(target: Target, given: Sequence[str], nulls: Sequence[str]) -> dict[str, str | None]:
    """Return the complete key from `column=value`, or `value` if there is one column, and the columns that are NULL.
    Raises ConfigurationError.
    """
    keys = target.tables.keys
    spelled = (
        f"{target.tables.target} has the key {', '.join(keys)}: give each column once, --key COLUMN=VALUE or "
        f"--null COLUMN"
    )
    found: dict[str, str | None] = {}
    pairs: list[tuple[str, str | None]] = [_pair(keys, text) for text in given]
    for column, value in [*pairs, *((column, None) for column in nulls)]:
        if column not in keys or column in found:
            raise ConfigurationError(f"{column!r} is {'given twice' if column in found else 'no key'}; {spelled}")
        if value is not None and ("\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value)):
            # P14: the client library would refuse these in Python, without an SQLSTATE.
            raise ConfigurationError(f"{column}: no text in Postgres holds NUL or what is not UTF-8")
        found[column] = value
    if missing := [column for column in keys if column not in found]:
        raise ConfigurationError(f"{', '.join(missing)} is missing; {spelled}")
    return {column: found[column] for column in keys}


def read_trace(connection: Connection, target: Target, key: Mapping[str, str | None], limit: int) -> Trace:
    """Return the row with this key and its last `limit` contributions. Raises ConfigurationError for values of another
    type.
    """
    connection.exec_driver_sql(_SETTINGS)
    tables = target.tables
    types = _types(connection, tables.target)
    where = " and ".join(
        _condition(column, value, types[column], number) for number, (column, value) in enumerate(key.items())
    )
    values: dict[str, Any] = {f"k{number}": value for number, value in enumerate(key.values()) if value is not None}
    read = _of_log(tables, where) if isinstance(tables, RowTable) else _of_contributions(tables, where)
    try:
        row = connection.exec_driver_sql(
            f"select {', '.join(['true', *read.numbers])} from {tables.target_sql} where {where}", values
        ).one_or_none()
    except DBAPIError as error:
        if (sqlstate(error) or "").startswith(DATA_EXCEPTION):
            raise ConfigurationError(f"no key of {tables.target}: {one_line(error)}") from error
        raise
    _types(connection, read.kept)
    count, is_row, *totals = connection.exec_driver_sql(read.folded, values).one()
    last = connection.exec_driver_sql(
        f"select txid, {read.reverses}, {', '.join(read.numbers)} from {read.kept_sql} where {where}"
        f" order by {read.newest} limit %(limit)s",
        {**values, "limit": limit},
    ).all()
    return Trace(
        target=target,
        key=key,
        row=None if row is None else dict(zip(tables.numbers, row[1:], strict=True)),
        contributions=_contributions(connection, target, last[::-1]),
        count=count,
        sums=dict(zip(tables.numbers, totals, strict=True)) if is_row else None,
    )


class _Kept(NamedTuple):
    """How the contributions to a row are read."""

    kept: str
    """Schema and name of the table that has them."""
    kept_sql: str
    numbers: list[str]
    """SQL for each column."""
    reverses: str
    newest: str
    """Their order."""
    folded: str
    """Query for their number, whether they make a row, and its columns."""


def _of_contributions(tables: CommitterTables, where: str) -> _Kept:
    numbers = [f"{quoted(name)}::{'text' if name in tables.extremes else 'numeric'}" for name in tables.numbers]
    sums = ", ".join(_folded(tables, name) for name in tables.numbers)
    return _Kept(
        kept=f"{tables.target}_contribution",
        kept_sql=tables.contributions_sql,
        numbers=numbers,
        reverses="reverses",
        newest="txid desc, reverses desc",
        folded=f"select count(*), true, {sums} from {tables.contributions_sql} where {where}",
    )


def _of_log(tables: RowTable, where: str) -> _Kept:
    last = tables.last or unreachable(f"{tables.target} has the rows of batches as they came")
    numbers = [f"{quoted(name)}::text" for name in tables.numbers]
    order = [*(f"{quoted(name)} desc nulls last" for name in last.version), "origin desc", "n desc"]
    present = "true" if last.deleted is None else f"{quoted(last.deleted)} is not true"
    rows_of_key = f"from {tables.log_sql} where {where}"
    names = [f"f{at}" for at in range(len(numbers))]  # a field may be called like anything
    found = ", ".join(["there", *names])
    return _Kept(
        kept=tables.log,
        kept_sql=tables.log_sql,
        numbers=numbers,
        reverses="null",
        newest="txid desc, n desc",
        folded=f"select (select count(*) {rows_of_key}), {', '.join(['coalesce(there, false)', *names])} from "
        f"(select 1) one left join (select {', '.join([present, *numbers])} {rows_of_key} order by {', '.join(order)} "
        f"limit 1) as l ({found}) on true",
    )


def _folded(tables: CommitterTables, name: str) -> str:
    """Return SQL for what the contributions make of a column. One counts until another batch reverses it."""
    extreme = tables.extremes.get(name)
    if extreme is None:
        return f"coalesce(sum({quoted(name)}::numeric), 0)"
    counts = (
        f"reverses is null and txid not in (select reverses from {tables.contributions_sql} where reverses is not null)"
    )
    if extreme.type == "boolean":
        function = "bool_and" if extreme.kind == "min" else "bool_or"
        return f"({function}({quoted(name)}) filter (where {counts}))::text"
    collated = ' collate "C"' if extreme.type == "text" else ""
    return f"({extreme.kind}({quoted(name)}{collated}) filter (where {counts}))::text"


def _pair(keys: Sequence[str], text: str) -> tuple[str, str]:
    column, sign, value = text.partition("=")
    if len(keys) == 1 and (not sign or column not in keys):
        return keys[0], text
    if not sign:
        raise ConfigurationError(f"--key {text}: the key is {', '.join(keys)}; write COLUMN=VALUE")
    return column, value


def _types(connection: Connection, table: str) -> dict[str, str]:
    schema, _, name = table.partition(".")
    found = {row["name"]: row["type"] for row in rows(connection, COLUMN_TYPES, schema=schema, table=name)}
    if not found:
        raise UntraceableError(f"table {table} no longer exists")
    return found


def _condition(column: str, value: str | None, type_name: str, number: int) -> str:
    """Return a condition that an index can serve: `is not distinct from` would scan the table. The server casts the
    value.
    """
    if value is None:
        return f"{quoted(column)} is null"
    return f"{quoted(column)} = cast(%(k{number})s as {type_name.replace('%', '%%')})"


def _contributions(connection: Connection, target: Target, found: Sequence[Any]) -> tuple[Contribution, ...]:
    """Return the contributions, with the ledger's data about their batches."""
    txids = sorted({row[0] for row in found})
    batches = {row["txid"]: row for row in rows(connection, BATCHES, topology=target.topology, txids=txids)}
    paths: dict[int, list[str]] = {}
    files: dict[int, int] = {}
    for row in rows(connection, FILES, topology=target.topology, txids=txids, shown=FILES_SHOWN):
        paths.setdefault(row["txid"], []).append(row["path"])
        files[row["txid"]] = row["files"]
    names = ("state", "attempt", "epoch", "code_hash", "committed_at", "backfills")
    return tuple(
        Contribution(
            txid=txid,
            reverses=reverses,
            numbers=dict(zip(target.tables.numbers, numbers, strict=True)),
            paths=tuple(paths.get(txid, ())),
            files=files.get(txid, 0),
            **{name: batches[txid][name] if txid in batches and txid > 0 else None for name in names},
        )
        for txid, reverses, *numbers in found
    )
