"""The statements that TableSpout sends: names are quoted by the client, values are bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg2 import sql

from txtopo.spouts.table.row_ranges import RowPlace, Settled

LOOK = """
select s.system_identifier::text || '/' ||
       case when pg_is_in_recovery() then c.timeline_id
            else ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int end,
       pg_snapshot_xmin(pg_current_snapshot())::text,
       pg_is_in_recovery(),
       case when not pg_is_in_recovery() then pg_current_wal_insert_lsn() - '0/0' else 0 end,
       case when not pg_is_in_recovery() then pg_current_wal_flush_lsn() - '0/0' else 0 end,
       %(oid)s::oid::bigint, coalesce(pg_relation_filenode(%(oid)s::oid), 0)::bigint
  from pg_control_system() s, pg_control_checkpoint() c
"""
NUMBER = """
select c.oid::bigint from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = %(schema)s and c.relname = %(name)s
"""
TAKE_ID = "select pg_current_xact_id()"
HORIZON = "select pg_snapshot_xmin(pg_current_snapshot())::text"
TABLE = """
select c.oid::bigint, n.nspname, c.relname, c.relkind, c.relpersistence,
       exists (select from pg_inherits i where i.inhparent = c.oid) and c.relkind <> 'p',
       current_setting('server_version_num')::int, current_setting('server_encoding')
  from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(%(table)s)
"""
COLUMNS = """
select a.attname, b.typname, a.attnotnull, coalesce(pg_get_expr(d.adbin, d.adrelid), '')
  from pg_attribute a join pg_type t on t.oid = a.atttypid
  join pg_type b on b.oid = case when t.typtype = 'd' then t.typbasetype else t.oid end
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
 where a.attrelid = %(oid)s and a.attnum > 0 and not a.attisdropped order by a.attnum
"""
INDEXES = """
select i.indisprimary, i.indisunique and i.indimmediate,
       array(select a.attname::text from unnest(i.indkey::int2[]) with ordinality k(attnum, n)
               join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
              where k.n <= i.indnkeyatts order by k.n)
  from pg_index i
 where i.indrelid = %(oid)s and i.indisvalid and i.indpred is null and i.indexprs is null
"""
HOLDER = """
select 'process ' || pid || ' of database ' || coalesce(datname, '?'),
       extract(epoch from clock_timestamp() - xact_start)::bigint
  from pg_stat_activity where backend_xid = %(id)s::xid
union all
select 'prepared transaction ' || quote_literal(gid) || ' of database ' || database,
       extract(epoch from clock_timestamp() - prepared)::bigint
  from pg_prepared_xacts where transaction = %(id)s::xid
"""
"""Who has the transaction of an id, and for how many seconds it has been open."""


@dataclass(frozen=True, slots=True)
class Statements:
    """Statements on one table, by its planned names."""

    table: tuple[str, str]
    """Schema and name."""
    settled: Settled
    key: tuple[str, ...]
    columns: tuple[str, ...]
    """All columns that are read: the key, then the other fields."""

    def rows(self, after: RowPlace | None, to: RowPlace) -> tuple[sql.Composed, list[str]]:
        """Return the COPY of the rows between two positions, with the hash of each, and its values."""
        within, values = self._within(after, to)
        texts = sql.SQL(", ").join(self._texts)
        return (
            sql.SQL(
                "copy (select {texts}, {hash} from {table} t cross join lateral (select {row} as body) r "
                "where {within} order by {order}) to stdout (format csv)"
            ).format(texts=texts, hash=_HASH, table=self._table, row=self._row, within=within, order=self._order),
            values,
        )

    def pieces(
        self, after: RowPlace | None, to: RowPlace, *, rows_max: int, bytes_max: int, piece_rows: int, piece_bytes: int
    ) -> tuple[sql.Composed, list[Any]]:
        """Return the query for the last row of each piece of a batch: number of rows up to it, their bytes and sum of
        hashes, its id and key, and how many rows were found.

        Each piece has at most `piece_rows` rows, and `piece_bytes` bytes and one row more.
        """
        within, values = self._within(after, to)
        keys = [sql.Identifier(f"k{number}") for number in range(len(self.key))]
        named = [
            sql.SQL("{} as {}").format(sql.Identifier("t", column), key)
            for column, key in zip(self.key, keys, strict=True)
        ]
        statement = sql.SQL(
            "with r as (select {id} as id, {named}, octet_length(r.body)::bigint as size, {hash} as hash "
            "from {table} t cross join lateral (select {row} as body) r where {within} order by {order} limit %s), "
            "n as (select *, row_number() over w as n, sum(size) over w as bytes, sum(hash) over w as hashes from r "
            "window w as (order by id, {keys} rows unbounded preceding)), "
            "p as (select *, (n - 1) / %s + div(bytes - size, %s) as piece from n where n = 1 or bytes <= %s), "
            "q as (select *, lead(piece) over (order by n) as next from p) "
            "select n, bytes::text, hashes::text, id::text, array[{key_texts}], (select count(*) from r) from q "
            "where next is distinct from piece order by n"
        ).format(
            id=self._id,
            named=sql.SQL(", ").join(named),
            hash=_HASH,
            table=self._table,
            row=self._row,
            within=within,
            order=self._order,
            keys=sql.SQL(", ").join(keys),
            key_texts=sql.SQL(", ").join(sql.SQL("{}::text").format(key) for key in keys),
        )
        return statement, [*values, rows_max, piece_rows, piece_bytes, bytes_max]

    def locked(self) -> sql.Composed:
        """Return the statement after which nobody gives the table's name to another one before the end of the database
        transaction.
        """
        return sql.SQL("lock table {} in access share mode").format(self._table)

    def not_given_out(self) -> sql.Composed:
        """Return the query for the lowest id in the table that the server has not given out yet, and for its next
        one.
        """
        return sql.SQL(
            "select (select {id}::text from {table} t where {id} >= pg_snapshot_xmax(pg_current_snapshot()) "
            "order by {id} limit 1), pg_snapshot_xmax(pg_current_snapshot())::text"
        ).format(id=self._id, table=self._table)

    def waiting(self, after: RowPlace) -> tuple[sql.Composed, list[str]]:
        """Return the query whether rows that can be seen are after a position."""
        bound, values = self._after(after)
        return sql.SQL("select exists (select from {} t where {})").format(self._table, bound), values

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(*self.table)

    @property
    def _id(self) -> sql.Composable:
        return (
            sql.SQL("t.xmin::text::bigint") if self.settled.column is None else sql.Identifier("t", self.settled.column)
        )

    @property
    def _texts(self) -> list[sql.Composed]:
        return [sql.SQL("{}::text").format(sql.Identifier("t", column)) for column in self.columns]

    @property
    def _row(self) -> sql.Composed:
        """The text of a row that is hashed: a list of JSON, each value as text."""
        return sql.SQL("array_to_json(array[{}])::text").format(sql.SQL(", ").join(self._texts))

    @property
    def _order(self) -> sql.Composed:
        return sql.SQL(", ").join([self._id, *(sql.Identifier("t", column) for column in self.key)])

    def _within(self, after: RowPlace | None, to: RowPlace) -> tuple[sql.Composed, list[str]]:
        """Return the condition of the rows after one position up to another."""
        lower, values = self._after(after) if after is not None else (sql.SQL("true").format(), [])
        upper, more = self._bound(to, "<", "<=")
        return sql.SQL("{} and {}").format(lower, upper), [*values, *more]

    def _after(self, place: RowPlace) -> tuple[sql.Composed, list[str]]:
        return self._bound(place, ">=", ">")

    def _bound(self, place: RowPlace, whole: str, keyed: str) -> tuple[sql.Composed, list[str]]:
        """Return a comparison. The server gives each bound text the type of its column."""
        if place.key is None:
            return sql.SQL("{} {} %s").format(self._id, sql.SQL(whole)), [str(place.id)]
        marks = sql.SQL(", ").join([sql.Placeholder()] * (1 + len(place.key)))
        return (
            sql.SQL("({}) {} ({})").format(self._order, sql.SQL(keyed), marks),
            [str(place.id), *place.key],
        )


_HASH = sql.SQL("('x' || encode(substring(sha256(convert_to(r.body, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint")


def statements_of(planned: Any, names: Sequence[str]) -> Statements:
    """Return the statements for a planned range and the planned fields."""
    from txtopo.spouts.table.row_ranges import settled_by

    key = tuple(planned["key"])
    schema, name = planned["name"]
    return Statements((schema, name), settled_by(planned["settled"]), key, tuple(dict.fromkeys((*key, *names))))
