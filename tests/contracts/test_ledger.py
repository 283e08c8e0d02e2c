"""The ledger keeps its promises in memory and on a real Postgres."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import psycopg2
import pytest

from tests.contracts.commit_run_contract import TOTALS, CommitRunContract
from tests.contracts.ledger_contract import LedgerContract
from tests.contracts.ledger_driver import FIELDS, TOPOLOGY, Row, committer, lead_on, listen
from tests.kit.drivers import wait_until
from tests.kit.fix_postgres import fresh_database
from tests.kit.row_batches import RowBatches
from txtopo.committers.count_committer import CountCommitter
from txtopo.committers.memory.memory_ledger import MemoryLedger, MemoryPostgres
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.core.values import Committed, OrderKind, RunEnded, Unknown
from txtopo.errors import InvariantBroken, NotFoundError, PostgresUnavailable
from txtopo.local.postgres import LocalPostgres
from txtopo.ports import Ledger
from txtopo.topology.components import CommitterComponent
from txtopo.trident import MapGet, ReadOnlyMapState, TridentTopology

__all__ = ["listen"]


class MemoryWorld:
    """A store in memory."""

    def __init__(self) -> None:
        self.store = MemoryPostgres(lock_timeout_s=0.2)

    def open(self, topology: str = TOPOLOGY) -> Ledger:
        """A driver's view of it."""
        return MemoryLedger(self.store, topology)

    def rows(self, table: str) -> dict[Row, Row]:
        """Count and sums by key."""
        return dict(self.store.tables[f"public.{table}"])

    def contributions(self, table: str) -> list[Row]:
        """By txid."""
        return sorted(self.store.contributions[f"public.{table}"], key=lambda row: int(row[0]))

    def seed(self, committer: CommitterComponent, rows: Mapping[Row, Row]) -> None:
        """Rows that no topology has counted."""
        self.store.tables["public.flights_count"] = dict(rows)

    def ask(
        self, kind: OrderKind, txids: Sequence[int] = (), reason: str | None = None, committer: str | None = None
    ) -> int:
        """An operator's order."""
        return self.store.ask(TOPOLOGY, kind, txids, reason, committer)

    def order(self, order_id: int) -> Row:
        """State, answer and progress."""
        row = self.store.orders[order_id][1]
        return row.state, row.answer, dict(row.progress)

    def actions(self) -> list[Row]:
        """The action log."""
        return [
            (row.actor, one.command, row.reason, one.order_id, one.txid, dict(one.before), dict(one.after))
            for row in self.store.actions
            for one in [row.action]
        ]

    def rejected(self, txid: int) -> list[Row]:
        """Of one batch."""
        rows = [one.row for one in self.store.rejected if (one.topology, one.txid) == (TOPOLOGY, txid)]
        return [(row.spout, row.path, row.line, row.reason, row.raw, row.raw_bytes, row.unit) for row in rows]

    def dead_letters(self, txid: int) -> list[Row]:
        """Of one batch."""
        rows = [one.row for one in self.store.dead_letters if (one.topology, one.txid) == (TOPOLOGY, txid)]
        return sorted((row.spout, row.position, row.component, row.reason, row.raw) for row in rows)

    def counts(self, txid: int) -> dict[str, Row]:
        """As committed."""
        counts = self.store.topologies[TOPOLOGY].ledger[txid].counts
        return {one.committer: (one.arrived, one.counted, one.results, one.written, one.ignored) for one in counts}

    def edges(self, txid: int) -> dict[str, Row]:
        """As committed."""
        return {one.edge: (one.sent, one.received) for one in self.store.topologies[TOPOLOGY].ledger[txid].edges}

    def make_table(self, name: str, columns: str) -> None:
        """Nothing is carried out here."""

    def own_rows(self, name: str) -> list[Row]:
        """Out of the statements that were executed."""
        rows = [
            tuple(one.parameters)
            for one in self.store.executed
            if f"insert into {name} " in one.statement and not isinstance(one.parameters, Mapping)
        ]
        return sorted(rows, key=repr)

    def ledger_row(self, txid: int) -> Row | None:
        """As committed."""
        row = self.store.topologies[TOPOLOGY].ledger.get(txid)
        return None if row is None else (row.state, row.reason, row.redo_of, row.rejected)

    def reversed(self, txid: int) -> dict[str, int]:
        """As committed."""
        return {count.committer: count.reversed for count in self.store.topologies[TOPOLOGY].ledger[txid].counts}

    def change_by_hand(self, table: str, key: Row, numbers: Row | None) -> None:
        """Behind the ledger's back."""
        rows = self.store.tables[f"public.{table}"]
        del rows[key]
        if numbers is not None:
            rows[key] = numbers

    def attempt_state(self, txid: int, attempt: int) -> str | None:
        """As remembered."""
        row = self.store.topologies[TOPOLOGY].attempts.get((txid, attempt))
        return row.state if row else None

    def said(self) -> tuple[str, str | None, str | None]:
        """What the row of table `topology` would say."""
        life = self.store.topologies[TOPOLOGY].life
        return life["state"], life.get("reason"), life.get("advice")

    def add_check(self, table: str, condition: str = "count >= 0") -> None:
        """What Postgres would find in its catalogs."""
        self.store.not_plain[f"public.{table}"] = "a CHECK"

    def break_commit(self) -> None:
        """The next COMMIT does not happen and is not answered."""
        self.store.fail_next_commit("aborted")


class PostgresWorld:
    """A database of a real server."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._opened: list[PostgresLedger] = []
        self._connection = psycopg2.connect(dsn)
        self._connection.autocommit = True

    def open(self, topology: str = TOPOLOGY) -> Ledger:
        """A driver's connections to it."""
        self._opened.append(PostgresLedger(self._dsn, topology))
        return self._opened[-1]

    def query(self, sql: str, *values: Any) -> list[Row]:
        """Rows as a reader sees them."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall()) if cursor.description else []

    def rows(self, table: str) -> dict[Row, Row]:
        """Count and sums by key."""
        return {row[:2]: row[2:] for row in self.query(f"select carrier, origin, count, distance from {table}")}

    def contributions(self, table: str) -> list[Row]:
        """By txid."""
        return self.query(
            f"select txid, reverses, carrier, origin, count, distance from {table}_contribution order by txid"
        )

    def seed(self, committer: CommitterComponent, rows: Mapping[Row, Row]) -> None:
        """Rows that no topology has counted."""
        self.query(
            "create table flights_count (carrier text, origin text, count bigint not null, distance numeric not "
            "null, unique nulls not distinct (origin, carrier))"
        )
        for key, numbers in rows.items():
            self.query("insert into flights_count values (%s, %s, %s, %s)", *key, *numbers)

    def ask(
        self, kind: OrderKind, txids: Sequence[int] = (), reason: str | None = None, committer: str | None = None
    ) -> int:
        """An operator's order."""
        arguments = (
            {"now": True}
            if kind == "stop"
            else {"txids": list(txids)} | ({} if committer is None else {"committer": committer})
        )
        [(order_id,)] = self.query(
            "insert into txtopo.request (topology, kind, arguments, reason, actor, host) values (%s, %s, %s, %s, "
            "'operator', 'there') returning request_id",
            TOPOLOGY,
            kind,
            json.dumps(arguments),
            reason,
        )
        return int(order_id)

    def order(self, order_id: int) -> Row:
        """State, answer and progress."""
        [row] = self.query("select state, answer, progress from txtopo.request where request_id = %s", order_id)
        return row

    def actions(self) -> list[Row]:
        """The action log."""
        return self.query(
            "select actor, command, reason, request_id, txid, before, after from txtopo.action order by action_id"
        )

    def rejected(self, txid: int) -> list[Row]:
        """Of one batch."""
        rows = self.query(
            "select spout, path, line, reason, raw, raw_bytes, unit from txtopo.rejected_row where txid = %s "
            "order by line",
            txid,
        )
        return [(*row[:4], bytes(row[4]), *row[5:]) for row in rows]

    def dead_letters(self, txid: int) -> list[Row]:
        """Of one batch."""
        rows = self.query(
            "select spout, position, component, reason, raw from txtopo.dead_letter where txid = %s order by position",
            txid,
        )
        return [(*row[:4], bytes(row[4])) for row in rows]

    def counts(self, txid: int) -> dict[str, Row]:
        """As committed."""
        rows = self.query(
            "select committer, arrived, counted, results, written, ignored from txtopo.committer_count where txid = %s",
            txid,
        )
        return {row[0]: row[1:] for row in rows}

    def edges(self, txid: int) -> dict[str, Row]:
        """As committed."""
        return {
            row[0]: row[1:]
            for row in self.query("select edge, sent, received from txtopo.edge_count where txid = %s", txid)
        }

    def make_table(self, name: str, columns: str) -> None:
        """As a user would."""
        self.query(f"create table public.{name} ({columns})")

    def own_rows(self, name: str) -> list[Row]:
        """As a reader sees them."""
        return sorted(self.query(f"select * from public.{name}"), key=repr)

    def ledger_row(self, txid: int) -> Row | None:
        """As committed."""
        found = self.query(
            "select state, reason, redo_of, rejected from txtopo.ledger where topology = %s and txid = %s",
            TOPOLOGY,
            txid,
        )
        return found[0] if found else None

    def reversed(self, txid: int) -> dict[str, int]:
        """As committed."""
        return dict(self.query("select committer, reversed from txtopo.committer_count where txid = %s", txid))

    def change_by_hand(self, table: str, key: Row, numbers: Row | None) -> None:
        """Behind the ledger's back."""
        self.query(f"delete from {table} where (carrier, origin) = (%s, %s)", *key)
        if numbers is not None:
            self.query(f"insert into {table} values (%s, %s, %s, %s)", *key, *numbers)

    def attempt_state(self, txid: int, attempt: int) -> str | None:
        """As remembered."""
        found = self.query("select state from txtopo.attempt where txid = %s and attempt = %s", txid, attempt)
        return str(found[0][0]) if found else None

    def said(self) -> tuple[str, str | None, str | None]:
        """What the row of table `topology` says."""
        ((state, reason, advice),) = self.query(
            f"select state, reason, advice from txtopo.topology where topology = '{TOPOLOGY}'"
        )
        return str(state), reason, advice

    def add_check(self, table: str, condition: str = "count >= 0") -> None:
        """As a user would."""
        self.query(f"alter table {table} add constraint not_negative check ({condition})")

    def break_commit(self) -> None:
        """End the server process that is about to get COMMIT."""
        ended = self.query(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name like 'txtopo/%%/1' "
            "and state = 'idle in transaction'"
        )
        assert ended == [(True,)]

    def close(self) -> None:
        """Leave no connection."""
        for ledger in self._opened:
            ledger.close()
        busy = (
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
            "and state <> 'idle'"
        )
        try:
            # A server process sees that its client is gone when it next reads from it, not at once.
            wait_until(lambda: self.query(busy) == [(0,)], "no connection of the ledger is at work any more")
        finally:
            self._connection.close()


class TestMemoryLedger(LedgerContract):
    """`txtopo.committers.memory.memory_ledger`."""

    @pytest.fixture
    def world(self) -> MemoryWorld:
        """A store of its own."""
        return MemoryWorld()

    def test_lost_reply_of_a_commit_that_happened(self, world: MemoryWorld) -> None:
        """R7: the reply is lost, the ledger knows."""
        driver = lead_on(world)
        plan = driver.ready(1)
        world.store.fail_next_commit("lost")

        assert isinstance(driver.commit(plan), Unknown)
        assert isinstance(driver.ledger.resolve(driver.lead, [(1, plan.digest)])[0], Committed)

    def test_store_that_is_away_ends_open_sessions(self, world: MemoryWorld) -> None:
        """A server that restarts keeps nothing of an open database transaction."""
        driver = lead_on(world)
        driver.ready(1)
        with driver.ledger.session(driver.lead) as session:
            session.lock_fence()
            world.store.unavailable = True
            with pytest.raises(PostgresUnavailable):
                session.ledger_digest(1)
            with pytest.raises(PostgresUnavailable):
                driver.ledger.read_fence()
            world.store.unavailable = False
            with pytest.raises(PostgresUnavailable):
                session.ledger_digest(1)

        assert isinstance(driver.commit(driver.plan(1)), Committed)

    def test_abandoned_session_goes_with_its_ledger(self, world: MemoryWorld) -> None:
        """A driver that is killed holds no lock."""
        old, new = lead_on(world), world.open()
        abandoned = old.ledger.session(old.lead)
        abandoned.__enter__().lock_fence()

        old.ledger.close()

        with new.session(old.lead) as session:
            assert session.lock_fence().last_txid == 0


class TestMemoryCommitRuns(CommitRunContract):
    """Several batches in one database transaction, in memory."""

    @pytest.fixture
    def world(self) -> MemoryWorld:
        """A store of its own."""
        return MemoryWorld()

    def test_fence_moves_by_one(self, world: MemoryWorld) -> None:
        """R23, with the words of this ledger: no row is final before the one before it."""
        driver = lead_on(world)
        plans = driver.ready_run()

        with driver.ledger.run_session(driver.lead) as session:
            self._apply(session, driver, plans)
            with pytest.raises(InvariantBroken, match="the fence was not at batch 1"):
                session.finish_run({2: TOTALS, 3: TOTALS})

    def test_lost_reply_of_a_run_that_happened(self, world: MemoryWorld) -> None:
        """R26: the reply is lost, the ledger knows of all of them."""
        driver = lead_on(world)
        plans = driver.ready_run()
        world.store.fail_next_commit("lost")

        ended = driver.commit_run(plans)

        assert isinstance(ended, RunEnded)
        assert [type(one) for one in ended.outcomes] == [Unknown] * 3
        resolved = driver.ledger.resolve(driver.lead, [(plan.txid, plan.digest) for plan in plans])
        assert [type(one) for one in resolved] == [Committed] * 3


class TestPostgresLedger(LedgerContract):
    """`txtopo.committers.postgres.ledger`."""

    @pytest.fixture
    def world(self, database: str) -> Iterator[PostgresWorld]:
        """A database of its own."""
        world = PostgresWorld(database)
        yield world
        world.close()

    def test_a_query_reads_one_state_and_names_its_batch(self, world: PostgresWorld, database: str) -> None:
        """A batch that is committed while the query is under way is not in its answer, in none of its steps."""
        topology = TridentTopology(TOPOLOGY)
        rows = topology.new_stream("spout", RowBatches(FIELDS.ddl, [[]]))
        bolt = CountCommitter("flights_count", ["carrier", "origin"], sums=["distance"])
        state = rows.persist("by_route", bolt)
        made = "n bigint, miles decimal(38,0)"
        asked = topology.new_query("route", "carrier string, origin string").state_query(state, Committing(), made)
        asked.state_query(state, MapGet(), "m bigint, d decimal(38,0)", of=("carrier", "origin"))
        app = topology.build()
        with pytest.raises(NotFoundError, match="no topology 'flights'"):
            app.query("route", "AA", None, dsn=database)
        driver = lead_on(world, committer())
        assert app.query("route", "AA", None, dsn=database).txid == 0
        assert isinstance(driver.commit(driver.ready(1)), Committed)

        Committing.commit = staticmethod(lambda: driver.commit(driver.ready(2)))
        try:
            answer = app.query("route", questions=[("AA", None), ("x", "y")], dsn=database)
        finally:
            Committing.commit = staticmethod(lambda: None)

        whole = {"carrier": "AA", "origin": None, "n": 1, "miles": 50, "m": 1, "d": 50}
        assert answer.rows == [whole, {"carrier": "x", "origin": "y", **dict.fromkeys(("n", "miles", "m", "d"))}]
        assert (answer.txid, answer.epoch) == (1, driver.lead.epoch)
        after = app.query("route", "AA", None, dsn=database)
        assert (after.txid, after.rows[0]["n"], after.rows[0]["m"]) == (2, 2, 2)


class Committing(MapGet):
    """Lets a batch be committed before it asks."""

    commit: ClassVar[Any] = staticmethod(lambda: None)

    def batch_retrieve(self, state: ReadOnlyMapState, arguments: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """Asks afterwards."""
        Committing.commit()
        return super().batch_retrieve(state, arguments)


EMPTY = """
do $$ declare one record; begin
  set local session_replication_role = replica;
  for one in select format('%I.%I', schemaname, tablename) as name, schemaname from pg_tables
             where schemaname = 'public' or (schemaname = 'txtopo' and tablename <> 'schema_version') loop
    execute case one.schemaname when 'public' then 'drop table ' || one.name || ' cascade' else 'delete from ' || one.name end;
  end loop;
  alter table txtopo.request alter request_id restart;
  alter table txtopo.action alter action_id restart;
end $$
"""  # noqa: E501
"""Makes a database as it was after `txtopo migrate`, in less time than it takes to copy one."""


@pytest.fixture(scope="module")
def one_database(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    """A database for all tests of commit runs."""
    with fresh_database(postgres_server, migrated_template) as dsn:
        yield dsn


class TestPostgresCommitRuns(CommitRunContract):
    """Several batches in one database transaction, on a real server."""

    @pytest.fixture
    def world(self, one_database: str) -> Iterator[PostgresWorld]:
        """An empty database."""
        world = PostgresWorld(one_database)
        world.query(EMPTY.replace("%", "%%"))
        yield world
        world.close()
