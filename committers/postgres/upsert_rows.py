"""What Postgres does for an `UpsertCommitter`: its rows go into the log, then the last row of each touched key into the
table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from txtopo.committers.postgres.append_rows import PostgresAppend, check_deferred
from txtopo.committers.postgres.plain_targets import plain_table
from txtopo.committers.postgres.target_tables import Table, create_or_check, ddl_of, has_rows, is_registered
from txtopo.committers.postgres.transactions import joined, run
from txtopo.committers.protocol.count_tables import Column
from txtopo.committers.protocol.redo_checks import check_reversed
from txtopo.committers.protocol.row_tables import (
    UpsertShape,
    holds_rows,
    upsert_shape_of,
)
from txtopo.committers.sql_names import quoted, unescaped
from txtopo.core.values import Lead, TransactionAttempt
from txtopo.errors import Halted
from txtopo.topology.components import CommitterComponent

if TYPE_CHECKING:
    from txtopo.committers.postgres.postgres_halves import Applying

_ORIGIN = """with recursive chain (txid, redo_of) as (
  select l.txid, l.redo_of from txtopo.ledger l where (l.topology, l.txid) = (%(topology)s, %(redone)s)
  union all
  select l.txid, l.redo_of from txtopo.ledger l join chain c on (l.topology, l.txid) = (%(topology)s, c.redo_of))
select min(txid) from chain"""


class PostgresUpsert(PostgresAppend):
    """The half of a committer that keeps the last row of each key, or the rows of its last batch."""

    _statements = 3
    """As of PostgresAppend, and what sets the rows of the keys."""

    def __init__(self, component: CommitterComponent) -> None:
        self._upsert = upsert_shape_of(component)
        self._last = Table(self._upsert.table, self._upsert.columns, self._upsert.unique)
        self._fold = _fold(self._upsert)
        super().__init__(component)

    def ddl(self) -> list[str]:
        """See PostgresHalf."""
        return [*super().ddl(), _index(self._upsert), *ddl_of(self._upsert.log.schema, self._last)]

    def prepare(self, connection: Connection, lead: Lead) -> None:
        """See PostgresHalf."""
        shape, name = self._upsert, self.component.name
        registered = is_registered(connection, lead, name, shape.log.schema, shape.name)
        if not registered:
            is_registered(connection, lead, name, shape.log.schema, shape.log.name)  # raises if it is another one's
        create_or_check(connection, shape.log.schema, self._table, registered=registered)
        create_or_check(connection, shape.log.schema, self._last, registered=registered)
        if registered:
            return
        connection.exec_driver_sql(_index(shape).replace("%", "%%"), {})
        # Nothing can insert a row between the check and the registration.
        connection.exec_driver_sql(f"lock table {shape.target}, {shape.log.target} in share row exclusive mode", {})
        for one, table in ((shape.name, shape.target), (shape.log.name, shape.log.target)):
            if has_rows(connection, table):
                raise holds_rows(one)
        run(
            connection,
            "insert_target",
            target=shape.name,
            topology=lead.topology,
            committer=name,
            baseline_digest=None,
        )

    def check_deferred(self, connection: Connection) -> None:
        """See PostgresHalf."""
        super().check_deferred(connection)
        check_deferred(connection, self._upsert.log.schema, self._upsert.table)

    def problem(self, connection: Connection) -> str | None:
        """See PostgresHalf."""
        try:
            create_or_check(connection, self._upsert.log.schema, self._last, registered=True)
        except Halted as halted:
            return halted.reason
        return super().problem(connection)

    def front(self, attempt: TransactionAttempt, origin: int) -> tuple[int, ...]:
        """See PostgresAppend."""
        return (attempt.txid, attempt.attempt, origin)

    @property
    def tables(self) -> Sequence[Mapping[str, Any]]:
        """See RunHalf."""
        shape = self._upsert
        return [*super().tables, plain_table(shape.name, shape.target, shape.columns, shape.unique)]

    def _begin(self, applying: Applying, values: dict[str, Any]) -> tuple[int, int]:
        plan = applying.entry.plan
        again = plan.redo_of if plan.backfills is None else plan.backfills
        if again is not None:  # a redrive has the place of its batch too, which was quarantined, and so has a backfill
            sent = joined(applying.held, _ORIGIN, {"topology": plan.topology, "redone": again})
            return 0, int(applying.connection.exec_driver_sql(*sent).scalar_one())
        if applying.held is not None:
            applying.connection.exec_driver_sql(applying.held[0], dict(applying.held[1]))
        return 0, plan.txid

    def _end(self, connection: Connection, values: dict[str, Any]) -> int:
        removed, expected = connection.exec_driver_sql(self._fold, values).one()
        if values["reverses"] is not None:
            check_reversed(self.component.name, values["reverses"], removed, 0, expected)
        return int(removed)


def _index(shape: UpsertShape) -> str:
    """Return the statement that lets the last row of a key be found in the log without reading the others: they become
    more with every batch.
    """
    keys = [unescaped(key.name) for key in shape.keys]
    listed = ", ".join([*keys, "origin"] if shape.whole else [*keys, *_latest_first(shape)])
    return f"create index on {unescaped(shape.log.schema)}.{unescaped(shape.log.table)} ({listed})"


def _latest_first(shape: UpsertShape, alias: str = "") -> list[str]:
    """Return the order of the rows of a key: as the index has them, the last one first."""
    versions = [f"{alias}{quoted(name)}" if alias else unescaped(name) for name in shape.version]
    return [*(f"{version} desc nulls last" for version in versions), f"{alias}origin desc", f"{alias}n desc"]


def _fold(shape: UpsertShape) -> str:
    """Return the statement that removes the rows of the redone batch from the log, and sets the rows of each key that
    these rows or those of the batches first to last have: the last one, or all of the last batch.

    All parts see the log as it was before: so the rows of the redone batch are excluded by their txid. A row that stays
    is not deleted: the order in which the parts change the table is not defined.
    """
    keys, unique, names = _listed(shape.keys), _listed(shape.unique), _listed(shape.columns)
    present = f"where not coalesce({quoted(shape.deleted)}, false)" if shape.deleted is not None else ""
    others = [column for column in shape.columns if column not in shape.unique]
    sets = ", ".join(f"{quoted(column.name)} = excluded.{quoted(column.name)}" for column in others)
    changed = f"update set {sets}" if others and not shape.whole else "nothing"
    return f"""with gone as (delete from {shape.log.target} where txid = %(reverses)s returning {keys}),
k as materialized (select {keys} from gone union select {keys} from {shape.log.target} where txid between %(first)s and
  %(last)s),
w as materialized ({_of_last_batch(shape) if shape.whole else _last(shape)}),
p as materialized (select * from w {present}),
d as (delete from {shape.target} t using k where {_same(shape.keys, "t", "k")}
  and not exists (select from p where {_same(shape.unique, "p", "t")})),
u as (insert into {shape.target} as t ({names}) select {names} from p order by {unique}
  on conflict ({unique}) do {changed})
select (select count(*) from gone), (select results from txtopo.committer_count o where (o.topology, o.txid,
  o.committer) = (%(topology)s, %(reverses)s::bigint, %(committer)s))"""


def _last(shape: UpsertShape) -> str:
    order = ", ".join(_latest_first(shape, "l."))
    return f"""select {_listed(shape.columns, "l.")} from k cross join lateral (
  select * from {_rows_of_key(shape)} order by {order} limit 1) l"""


def _of_last_batch(shape: UpsertShape) -> str:
    return f"""select {_listed(shape.columns, "l.")} from k cross join lateral (
  select l.origin from {_rows_of_key(shape)} order by l.origin desc limit 1) o
  cross join lateral (select * from {_rows_of_key(shape)} and l.origin = o.origin) l"""


def _rows_of_key(shape: UpsertShape) -> str:
    same = _same(shape.keys, "l", "k")
    return f"{shape.log.target} l where {same} and l.txid is distinct from %(reverses)s"


def _same(columns: Sequence[Column], one: str, other: str) -> str:
    return " and ".join(f"{one}.{quoted(column.name)} = {other}.{quoted(column.name)}" for column in columns)


def _listed(columns: Sequence[Column], alias: str = "") -> str:
    return ", ".join(f"{alias}{quoted(column.name)}" for column in columns)
