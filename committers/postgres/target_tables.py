"""Creates or checks the tables of counting committers, and registers each target for one committer of one topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psycopg2
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from txtopo.committers.aggregate_committer import AggregateCommitter
from txtopo.committers.postgres.apply_counts import Applier, hash_of
from txtopo.committers.postgres.target_views import prepare_views
from txtopo.committers.postgres.transactions import run
from txtopo.committers.protocol.count_tables import Column, Computed, TableShape
from txtopo.committers.sql_names import quoted, unescaped
from txtopo.core.values import Lead
from txtopo.errors import ConfigurationError, Halted

FIX_TABLE = "change the table as the message says, then start `txtopo run` again"


def prepare_target(connection: Connection, lead: Lead, applier: Applier) -> None:
    """Create or check the tables of one committer. Call it inside a fenced database transaction. May be repeated.
    Raises Halted with the next command if a table is not suitable.
    """
    shape, name = applier.shape, applier.component.name
    target = f"{shape.schema}.{shape.table}"
    registered = is_registered(connection, lead, name, shape.schema, target)
    for table in tables_of(shape):
        create_or_check(connection, shape.schema, table, registered=registered)
    if shape.contribution_table is not None:
        _guard_contributions(connection, shape.schema, shape.contribution_table)
    prepare_views(connection, shape)
    if not registered:
        _register(connection, lead, applier, target)


def is_registered(connection: Connection, lead: Lead, name: str, schema: str, target: str) -> bool:
    """Return True if the target belongs to this committer already. Raises Halted if it belongs to another one, or if
    it is another table than before; ConfigurationError if its schema does not exist.
    """
    owner, other = run(connection, "read_target", target=target, topology=lead.topology, committer=name).one()
    if owner not in (None, f"{lead.topology}/{name}"):
        topology, _, committer = owner.partition("/")
        raise Halted(
            f"table {target} belongs to committer {committer} of topology {topology}; each committer needs its own "
            f"table",
            next_command="name another table, then start `txtopo run` again",
        )
    if owner is None and other is not None:
        raise Halted(
            f"committer {name} of topology {lead.topology} writes to {other} and cannot change to {target}; give it "
            f"another name",
            next_command=f"name table {other} again, or give the committer another name; then start `txtopo run` again",
        )
    if connection.exec_driver_sql("select to_regnamespace(%(name)s)", {"name": quoted(schema)}).scalar_one() is None:
        raise ConfigurationError(f"committer {name}: schema {schema} does not exist; create schema {schema}")
    return owner is not None


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a committer."""

    name: str
    columns: tuple[Column, ...]
    keys: tuple[Column, ...]
    append_only: bool = False
    computed: tuple[Computed, ...] = ()
    """Further columns."""
    index: tuple[Column, ...] = ()
    """Columns of a further index, by which rows are found; none: there is none."""


def tables_of(shape: TableShape) -> tuple[Table, ...]:
    """Return the target, and the contribution table if the committer keeps one."""
    target = Table(shape.table, shape.columns, shape.keys, computed=shape.computed)
    if shape.contribution_table is None:
        return (target,)
    added = (Column("txid", "bigint", False), Column("reverses", "bigint", True))
    index = shape.keys if shape.refolded else ()  # a redo looks for what is left of a key
    columns, unique = (*added, *shape.columns), (*added, *shape.keys)
    return target, Table(shape.contribution_table, columns, unique, append_only=True, index=index)


def ddl_of(schema: str, table: Table) -> tuple[str, ...]:
    """Return the statements that create a table as txtopo needs it, with its triggers."""
    added = (_contributes(f"{unescaped(schema)}.{unescaped(table.name)}"),) if table.append_only else ()
    return (*_created(schema, table), *added)


def _created(schema: str, table: Table) -> tuple[str, ...]:
    name = f"{unescaped(schema)}.{unescaped(table.name)}"
    columns = ", ".join(unescaped(column.name) for column in table.index)
    create = (create_table(schema, table), *((f"create index on {name} ({columns})",) if columns else ()))
    if not table.append_only:
        return create
    return (
        *create,
        f"create trigger frozen before update or delete on {name} for each row execute function txtopo.frozen()",
        f"create trigger kept_whole before truncate on {name} for each statement execute function txtopo.frozen()",
    )


def _contributes(name: str) -> str:
    """The trigger that refuses contributions of a batch that is not being applied. Commit runs need it: in one of
    them, only the txid of a row tells the batch that it belongs to.
    """
    return (
        f"create trigger contributes after insert on {name} referencing new table as new_rows for each statement "
        f"execute function txtopo.contributes()"
    )


def _guard_contributions(connection: Connection, schema: str, table: str) -> None:
    """Add the trigger where it is missing: to a new table, and to one of an earlier release. A role that may not do it
    commits batch by batch, and `single_commits` says why.
    """
    is_missing, may_add = run(connection, "read_contributes", schema=schema, table=table).one()
    if not (is_missing and may_add):
        return
    connection.exec_driver_sql("savepoint contributes", {})
    try:
        connection.exec_driver_sql(_contributes(f"{quoted(schema)}.{quoted(table)}"), {})
    except (SQLAlchemyError, psycopg2.Error):  # a lock of VACUUM, a rule against DDL: no reason not to count
        connection.exec_driver_sql("rollback to savepoint contributes", {})


def create_or_check(connection: Connection, schema: str, wanted: Table, *, registered: bool) -> None:
    """Create a table of a committer, or check the one that is there. Raises Halted if it is not suitable, or if it is
    missing although it is `registered`.
    """
    table, columns = wanted.name, wanted.columns
    found = run(connection, "list_columns", schema=schema, table=table).all()
    ddl, *further = _created(schema, wanted)
    if found:
        if found[0][3] not in ("r", "p") or found[0][4] != "p":
            # P5: an unlogged table is empty after a crash.
            raise Halted(
                f"{schema}.{table} is not a plain, logged table; txtopo would create it as: {ddl}",
                next_command=FIX_TABLE,
            )
        _check_columns(f"{schema}.{table}", [row[:2] for row in found if not row[5]], columns, ddl)
        _check_computed(f"{schema}.{table}", {row[0]: row for row in found if row[5]}, wanted.computed, ddl)
        _check_unique(connection, schema, wanted, {row[0] for row in found if row[2]})
        return
    if registered:
        # A new table would be empty, and every count in it too low.
        raise Halted(
            f"table {schema}.{table} no longer exists although batches were counted in it; restore it",
            next_command="restore it from a backup (docs/operating.md, A target table), then start `txtopo run` again",
        )
    for statement in (ddl, *further):
        connection.exec_driver_sql(statement.replace("%", "%%"), {})


def table_problem(connection: Connection, shape: TableShape) -> str | None:
    """Return what is wrong with the tables of a committer that has counted in them, as text; None if no problem is
    found.
    """
    try:
        for table in tables_of(shape):
            create_or_check(connection, shape.schema, table, registered=True)
    except Halted as halted:
        return halted.reason
    return None


def create_table(schema: str, table: Table) -> str:
    """Return the statement that creates a table as txtopo needs it."""
    lines = [f"{unescaped(column.name)} {column.type}{_not_null(column, table.keys)}" for column in table.columns]
    lines += [f"{unescaped(one.name)} {one.type} generated always as ({one.sql}) stored" for one in table.computed]
    unique = ", ".join(unescaped(key.name) for key in table.keys)
    name = f"{unescaped(schema)}.{unescaped(table.name)}"
    return f"create table {name} ({', '.join(lines)}, unique nulls not distinct ({unique}))"


def _not_null(column: Column, keys: Sequence[Column]) -> str:
    # The user's keys stay nullable, so that a field may become nullable later.
    return "" if column.nullable or (column in keys and column.name != "txid") else " not null"


def _check_computed(table: str, found: Mapping[str, Sequence[str]], computed: Sequence[Computed], ddl: str) -> None:
    """Check the columns that the server computes, by name -> row of `list_columns`."""
    expected = {one.name: one for one in computed}
    wrong = [f"{name} is not expected" for name in found if name not in expected]
    wrong += [f"{name} {one.type} is missing" for name, one in expected.items() if name not in found]
    for name, one in expected.items():
        if name in found and (found[name][1] != one.type or found[name][5] not in one.spelled):
            wrong.append(f"{name} {found[name][1]} is computed as {found[name][5]}")
    if wrong:
        raise Halted(
            f"table {table} has other computed columns: {'; '.join(wrong)}. txtopo would create it as: {ddl}",
            next_command=FIX_TABLE,
        )


def _check_columns(table: str, rows: Sequence[Sequence[str]], columns: Sequence[Column], ddl: str) -> None:
    found, expected = {row[0]: row[1] for row in rows}, {column.name: column for column in columns}
    wrong = [f"{name} is not expected" for name in found if name not in expected]
    for column in columns:
        if column.name not in found:
            wrong.append(f"{column.name} {column.type} is missing")
            continue
        kind = found[column.name]
        if kind != column.type and (column.type, kind) != ("text", "character varying"):
            wrong.append(f"{column.name} is {kind}, not {column.type}")
    if wrong:
        raise Halted(
            f"table {table} has other columns: {'; '.join(wrong)}. txtopo would create it as: {ddl}",
            next_command=FIX_TABLE,
        )


def _check_unique(connection: Connection, schema: str, table: Table, not_null: set[str]) -> None:
    keys, names = table.keys, {key.name for key in table.keys}
    numbers = [
        column
        for column in table.columns
        if column.name not in names and not column.nullable and column.name not in not_null
    ]
    name = f"{unescaped(schema)}.{unescaped(table.name)}"
    if numbers:
        # NULL + 1 is NULL: such a row would lose every later count.
        sets = ", ".join(f"alter column {unescaped(column.name)} set not null" for column in numbers)
        nullable = ", ".join(unescaped(column.name) for column in numbers)
        raise Halted(
            f"table {name} allows NULL in {nullable}, where txtopo needs a value; alter table {name} {sets}",
            next_command=FIX_TABLE,
        )
    for columns, nulls_not_distinct in run(connection, "list_unique_keys", schema=schema, table=table.name):
        if set(columns) == names and (
            nulls_not_distinct or all(key.name in not_null and not key.nullable for key in keys)
        ):
            return
    unique = ", ".join(unescaped(key.name) for key in keys)
    raise Halted(
        f"table {name} needs one row for each key, NULL included; alter table {name} add unique nulls not distinct "
        f"({unique})",
        next_command=FIX_TABLE,
    )


def _register(connection: Connection, lead: Lead, applier: Applier, target: str) -> None:
    shape, name = applier.shape, applier.component.name
    # Nothing can insert a row between the check and the registration.
    connection.exec_driver_sql(f"lock table {shape.target} in share row exclusive mode", {})
    contributions = shape.contributions
    if contributions is not None and has_rows(connection, contributions):
        raise Halted(
            f"table {shape.schema}.{shape.contribution_table} holds contributions of an earlier table {target}; move "
            f"it away first",
            next_command="rename or drop that table, then start `txtopo run` again",
        )
    digest = None
    if has_rows(connection, shape.target):
        if not applier.component.bolt_as(AggregateCommitter).baseline:
            raise Halted(
                f"table {target} holds rows that no topology has counted; baseline=True adopts them unchanged, or "
                f"name another table",
                next_command="set baseline=True of the committer, or name another table; then start `txtopo run` again",
            )
        digest = _adopt(connection, shape)
    run(connection, "insert_target", target=target, topology=lead.topology, committer=name, baseline_digest=digest)


def _adopt(connection: Connection, shape: TableShape) -> int:
    """Make the existing rows contributions of txid 0; returns their digest."""
    names = ", ".join(quoted(column.name) for column in shape.columns)
    if shape.contributions is not None:
        connection.exec_driver_sql(
            f"insert into {shape.contributions} (txid, reverses, {names}) select 0, null, {names} from {shape.target}",
            {},
        )
    digest = connection.exec_driver_sql(
        f"select coalesce(sum({hash_of(shape.columns, 't')}), 0) from {shape.target} t", {}
    ).scalar_one()
    return int(digest)


def has_rows(connection: Connection, table: str) -> bool:
    """Return True if the table, given quoted, has a row."""
    return bool(connection.exec_driver_sql(f"select exists (select from {table})", {}).scalar_one())
