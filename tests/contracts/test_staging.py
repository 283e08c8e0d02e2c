"""Large results: rows that tasks stored in Postgres are merged by the commit as if they came through the driver (R10),
in memory and on a real server.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.append_contract import any_row, appended, visits
from tests.contracts.backfill_contract import ADDED
from tests.contracts.ledger_driver import ROWS, TOPOLOGY, Driver, Row, committer, lead_on, listen, result_of, table_of
from tests.contracts.test_committer import MemoryTables, PostgresTables
from tests.contracts.upsert_contract import any_order, ordered, orders
from tests.kit.drivers import wait_until
from tests.kit.fix_postgres import fresh_database
from txtopo import ReplaceCommitter
from txtopo.audit.staging_tables import find_left
from txtopo.committers.postgres import append_rows, staged_rows, time_limits
from txtopo.committers.postgres.connect import make_engine
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.fields import parse_fields
from txtopo.core.plan import Plan
from txtopo.core.values import (
    Aborted,
    CommitOutcome,
    Committed,
    CommitterResult,
    Staged,
    StagedPart,
    TransactionAttempt,
)
from txtopo.errors import Fenced, StagingFailed
from txtopo.local.postgres import LocalPostgres
from txtopo.ports import Staging, StagingPlace, StagingTable
from txtopo.topology.components import CommitterComponent

__all__ = ["listen"]

MORE: list[Row] = [("AA", "JFK", 5, 500), ("BB", None, 1, 7)]


def staging_of(driver: Driver, place: StagingPlace | None) -> Staging:
    """The staging tables of a leader, as its process makes them."""
    staging = driver.ledger.staging(driver.lead, place, driver.claimed.staging_tables)
    staging.begin()
    return staging


def store(table: StagingTable, rows: Sequence[Row], part: int = 0, task: int = 1) -> StagedPart:
    """What a task does with its rows."""
    return StagedPart(part=part, task_attempt=task, rows=table.writer.store(part, task, iter([table_of(rows)])))


def staged_result(table: StagingTable, rows: Sequence[Row], *parts: StagedPart) -> CommitterResult:
    """What comes to the driver of rows that tasks stored."""
    small = result_of(rows)
    where = Staged(table=table.name, parts=parts)
    return CommitterResult(
        committer=small.committer,
        arrived=small.arrived,
        rows=table_of([]),
        row_count=where.rows,
        bytes=0,
        staged=where,
    )


def _visits(chance: random.Random) -> Stored:
    rows = [any_row(chance) for _ in range(80)]
    floats = [(*row[:9], value, *row[10:]) for row in rows[:9] for value in (0.0, -0.0, float("nan"))]
    return visits(), appended([*rows, *floats]), "public.visits"


def _orders(chance: random.Random) -> Stored:
    return orders(), ordered([any_order(chance) for _ in range(40)]), "public.orders_log"


def _stock(chance: random.Random) -> Stored:
    component = replace(orders(), bolt=ReplaceCommitter("orders", partition=["shop", "id"]))
    return component, ordered([any_order(chance) for _ in range(40)]), "public.orders_log"


Stored = tuple[CommitterComponent, CommitterResult, str]
"""A committer that stores rows, a result of it, and the table that gets all of them."""
KINDS: Mapping[str, Callable[[random.Random], Stored]] = {"append": _visits, "upsert": _orders, "replace": _stock}


def in_parts(table: StagingTable, result: CommitterResult) -> CommitterResult:
    """What comes to the driver of a result whose rows three tasks stored."""
    size = -(-result.row_count // 3)
    parts = []
    for part in range(3):
        rows = result.rows.slice(part * size, size)
        parts.append(
            StagedPart(part=part, task_attempt=20 + part, rows=table.writer.store(part, 20 + part, iter([rows])))
        )
    staged = Staged(table=table.name, parts=tuple(parts))
    return replace(result, rows=result.rows.slice(0, 0), bytes=0, staged=staged)


class StagingContract:
    """What holds on every ledger."""

    world: Any
    place: StagingPlace

    def tables(self) -> list[str]:
        """Staging tables that exist."""
        raise NotImplementedError

    def crash(self) -> None:
        """What a crash of the server leaves of an unlogged table (P5): nothing in it."""
        raise NotImplementedError

    def committed(self, driver: Driver, plan: Plan, result: CommitterResult, attempt: int = 0) -> CommitOutcome:
        return driver.commit(plan, results=(result,), attempt=attempt)

    def test_rows_of_tasks_are_merged_as_those_of_the_driver(self) -> None:
        """Same table, same contributions, same numbers, same digest; the table of the attempt goes after COMMIT."""
        driver = lead_on(self.world)
        staging = staging_of(driver, self.place)
        assert isinstance(driver.commit(driver.ready(1)), Committed)
        table = staging.create(TransactionAttempt(2, 0), driver.committers[0])
        parts = [store(table, ROWS[:2], 0, 7), store(table, ROWS[2:], 3, 8)]

        outcome = self.committed(driver, driver.ready(2), staged_result(table, ROWS, *parts))

        assert isinstance(outcome, Committed), outcome
        assert self.world.rows("flights_count") == {row[:2]: (2 * row[2], 2 * row[3]) for row in ROWS}
        contributions = self.world.contributions("flights_count")
        assert sorted(map(repr, (row[2:] for row in contributions if row[0] == 1))) == sorted(
            map(repr, (row[2:] for row in contributions if row[0] == 2))
        )
        assert self.world.counts(1) == self.world.counts(2)
        [count] = outcome.counts
        assert (count.arrived, count.counted, count.results, count.written) == (6, 6, 3, 3)
        staging.settled(2)
        assert self.tables() == []

    def test_rows_of_another_task_attempt_count_nothing(self) -> None:
        """A task that ran twice (K2), or goes on after its job (K1), stores beside; what was reported counts."""
        driver = lead_on(self.world)
        staging = staging_of(driver, self.place)
        table = staging.create(TransactionAttempt(1, 0), driver.committers[0])
        store(table, ROWS[:2], 0, 1)
        parts = [store(table, ROWS[:2], 0, 2), store(table, ROWS[2:], 1, 3)]
        store(table, MORE, 1, 4)

        outcome = self.committed(driver, driver.ready(1), staged_result(table, ROWS, *parts))

        assert isinstance(outcome, Committed), outcome
        assert self.world.rows("flights_count") == {row[:2]: row[2:] for row in ROWS}

    def test_rows_that_are_gone_are_no_fault_of_the_batch(self) -> None:
        """P5: the commit applies nothing, no data is at fault, and another attempt commits."""
        driver = lead_on(self.world)
        staging = staging_of(driver, self.place)
        plan = driver.ready(1)
        table = staging.create(TransactionAttempt(1, 0), driver.committers[0])
        result = staged_result(table, ROWS, store(table, ROWS))
        self.crash()

        outcome = self.committed(driver, plan, result)

        assert isinstance(outcome, Aborted) and outcome.failure.kind == "suspect", outcome
        assert self.world.rows("flights_count") == {}
        driver.begin(1, 1)
        again = staging.create(TransactionAttempt(1, 1), driver.committers[0])
        second = staged_result(again, ROWS, store(again, ROWS))
        assert isinstance(self.committed(driver, plan, second, attempt=1), Committed)
        assert self.world.rows("flights_count") == {row[:2]: row[2:] for row in ROWS}
        staging.settled(1)
        assert self.tables() == []

    def test_a_part_of_the_rows_is_not_enough(self) -> None:
        """All rows that tasks reported are merged, or nothing is committed."""
        driver = lead_on(self.world)
        staging = staging_of(driver, self.place)
        table = staging.create(TransactionAttempt(1, 0), driver.committers[0])
        there, lost = store(table, ROWS[:2], 0, 1), StagedPart(part=1, task_attempt=2, rows=1)

        outcome = self.committed(driver, driver.ready(1), staged_result(table, ROWS, there, lost))

        assert isinstance(outcome, Aborted) and outcome.failure.kind == "suspect", outcome
        assert self.world.rows("flights_count") == {}

    def test_a_table_that_is_gone_is_no_fault_of_the_batch(self) -> None:
        """As after a failover to a server that never had it."""
        driver = lead_on(self.world)
        staging = staging_of(driver, self.place)
        table = staging.create(TransactionAttempt(1, 0), driver.committers[0])
        result = staged_result(table, ROWS, store(table, ROWS))
        staging.drop(table.name)

        outcome = self.committed(driver, driver.ready(1), result)

        assert isinstance(outcome, Aborted) and outcome.failure.kind == "suspect", outcome

    def test_a_commit_that_is_tried_again_finds_the_rows(
        self, listen: Callable[[crash_points.Listener | None], None]
    ) -> None:
        """A rollback takes nothing from them."""
        driver = lead_on(self.world)
        staging = staging_of(driver, self.place)
        plan = driver.ready(1)
        table = staging.create(TransactionAttempt(1, 0), driver.committers[0])
        result = staged_result(table, ROWS, store(table, ROWS))

        def die(point: CrashPoint, _: int | None) -> None:
            if point is CrashPoint.APPLIED:
                raise KeyboardInterrupt

        listen(die)
        with pytest.raises(KeyboardInterrupt):
            self.committed(driver, plan, result)
        listen(None)

        assert isinstance(self.committed(driver, plan, result), Committed)
        assert self.world.rows("flights_count") == {row[:2]: row[2:] for row in ROWS}

    def test_the_next_leader_removes_what_the_one_before_left(self) -> None:
        """Dead between COPY and merge, or after COMMIT. A former leader that goes on creates and removes nothing more,
        and its tasks find no table.
        """
        old = lead_on(self.world)
        before = staging_of(old, self.place)
        table = before.create(TransactionAttempt(1, 0), old.committers[0])
        store(table, ROWS)
        new = lead_on(self.world)
        after = staging_of(new, self.place)

        assert self.tables() == []
        mine = after.create(TransactionAttempt(1, 1), new.committers[0])
        with pytest.raises(Fenced):
            before.create(TransactionAttempt(1, 2), old.committers[0])
        with contextlib.suppress(Fenced):
            before.begin()
        before.close()
        with pytest.raises(StagingFailed, match="infrastructure"):
            store(table, ROWS)
        assert self.tables() == [mine.name]

    def test_a_leader_without_a_place_removes_them_as_well(self) -> None:
        """Whoever takes staging_dsn away leaves nothing behind."""
        old = lead_on(self.world)
        staging_of(old, self.place).create(TransactionAttempt(1, 0), old.committers[0])

        staging_of(lead_on(self.world), None)

        assert self.tables() == []

    def test_another_topology_is_left_alone(self) -> None:
        """Names begin with the topology."""
        other = lead_on(self.world, topology="other")
        table = staging_of(other, self.place).create(TransactionAttempt(1, 0), other.committers[0])

        staging_of(lead_on(self.world, committer(table="third_count"), topology="third"), self.place)

        assert self.tables() == [table.name]

    def test_only_tables_of_batches_in_the_ledger_are_removed(self) -> None:
        """The next batches still need theirs. Every attempt has one of its own."""
        driver = lead_on(self.world)
        staging = staging_of(driver, self.place)
        names = [
            staging.create(TransactionAttempt(txid, attempt), driver.committers[0]).name
            for txid, attempt in ((1, 0), (1, 0), (1, 1), (2, 0))
        ]
        assert len(set(names)) == 4

        staging.settled(1)
        assert self.tables() == [names[3]]
        staging.close()
        assert self.tables() == []

    def test_a_redo_is_stored_by_tasks_as_well(self) -> None:
        """What the redone batch contributed goes, what tasks stored comes."""
        driver = lead_on(self.world)
        staging = staging_of(driver, self.place)
        first = staging.create(TransactionAttempt(1, 0), driver.committers[0])
        assert isinstance(
            self.committed(driver, driver.ready(1), staged_result(first, ROWS, store(first, ROWS))), Committed
        )
        second = staging.create(TransactionAttempt(2, 0), driver.committers[0])

        outcome = self.committed(driver, driver.redo(2, redo_of=1), staged_result(second, MORE, store(second, MORE)))

        assert isinstance(outcome, Committed), outcome
        assert self.world.rows("flights_count") == {row[:2]: row[2:] for row in MORE}
        assert self.world.reversed(2) == {"by_route": 3}

    def test_a_backfill_is_stored_by_tasks_as_well(self) -> None:
        """R32: its rows go into the committer that lacks them, and what tasks stored for others goes nowhere."""
        before = lead_on(self.world)
        assert isinstance(before.commit(before.ready(1)), Committed)
        driver = lead_on(self.world, committer(), ADDED)
        driver.digests = dict(before.digests)
        staging = staging_of(driver, self.place)
        results = []
        for component in driver.committers:
            table = staging.create(TransactionAttempt(2, 0), component)
            results.append(replace(staged_result(table, ROWS, store(table, ROWS)), committer=component.name))

        plan = driver.ready(2, path="/in/1.csv", kind="backfill", backfills=1, committer="added")
        outcome = driver.commit(plan, results=tuple(results))

        assert isinstance(outcome, Committed), outcome
        assert self.world.rows("added_count") == self.world.rows("flights_count") == {row[:2]: row[2:] for row in ROWS}
        staging.settled(2)
        assert self.tables() == []

    @pytest.mark.parametrize("kind", sorted(KINDS))
    def test_rows_that_are_stored_as_they_are_get_the_numbers_of_the_driver(self, kind: str) -> None:
        """Same rows, numbers and digest as through the driver, whatever part they come from; the redo of such a batch
        is stored by tasks as well.
        """
        component, result, name = KINDS[kind](random.Random(4711))
        driver = lead_on(self.world, component)
        staging = staging_of(driver, self.place)
        first = driver.commit(driver.ready(1), results=(result,))
        assert isinstance(first, Committed), first

        outcomes = []
        for txid, redo_of in ((2, None), (3, 2)):
            plan = driver.ready(txid) if redo_of is None else driver.redo(txid, redo_of=redo_of)
            table = staging.create(TransactionAttempt(txid, 0), component)
            table.writer.store(1, 5, iter([result.rows]))
            outcomes.append(driver.commit(plan, results=(in_parts(table, result),)))
            assert isinstance(outcomes[-1], Committed), outcomes[-1]
            staging.settled(txid)

        assert self.tables() == []
        [before], [after], [again] = (one.counts for one in (first, *outcomes) if isinstance(one, Committed))
        assert after == before
        assert again == replace(before, reversed=result.row_count)
        found: dict[int, list[Any]] = {}
        for row in self.world.table(name):
            values = [bytes(value) if isinstance(value, memoryview) else value for value in row.values()]
            found.setdefault(row["txid"], []).append(repr([row["n"], *values[-len(component.fields.items) :]]))
        assert set(found) == {1, 3}
        assert sorted(found[1]) == sorted(found[3])

    @pytest.mark.parametrize("kind", sorted(KINDS))
    def test_rows_that_were_lost_are_not_stored(self, kind: str) -> None:
        """P5: as of counting committers."""
        component, result, name = KINDS[kind](random.Random(4711))
        driver = lead_on(self.world, component)
        staging = staging_of(driver, self.place)
        plan = driver.ready(1)
        for is_there in (True, False):
            table = staging.create(TransactionAttempt(1, 0), component)
            staged = in_parts(table, result)
            self.crash() if is_there else staging.drop(table.name)

            outcome = driver.commit(plan, results=(staged,))

            assert isinstance(outcome, Aborted) and outcome.failure.kind == "suspect", outcome
            assert self.world.table(name) == []

    def test_two_rows_of_a_key_in_two_tasks_fail_the_batch(self) -> None:
        """Tasks look at their own rows only: the commit looks at all, and names the key."""
        component = orders(version=())
        driver = lead_on(self.world, component)
        staging = staging_of(driver, self.place)
        result = ordered([("a", 1, None, 1, "new", None), ("b", 7, None, 1, "new", None), ("a", 1, None, 2, "x", None)])
        table = staging.create(TransactionAttempt(1, 0), component)

        outcome = driver.commit(driver.ready(1), results=(in_parts(table, result),))

        assert isinstance(outcome, Aborted) and outcome.failure.kind == "data", outcome
        assert "2 rows of key shop 'a', id 1, and nothing says which is the last" in outcome.failure.message


class TestMemoryStaging(StagingContract):
    """In memory, as in simulation."""

    @pytest.fixture(autouse=True)
    def _world(self) -> None:
        self.world, self.place = MemoryTables(), StagingPlace(dsn="")

    def tables(self) -> list[str]:
        return list(self.world.store.staging)

    def crash(self) -> None:
        for rows in self.world.store.staging.values():
            rows.clear()


class TestPostgresStaging(StagingContract):
    """On a real server."""

    @pytest.fixture(autouse=True)
    def _world(self, postgres_server: LocalPostgres, migrated_template: str) -> Iterator[None]:
        with fresh_database(postgres_server, migrated_template) as dsn:
            self.world, self.place = PostgresTables(dsn), StagingPlace(dsn=dsn)
            yield
            self.world.close()

    def tables(self) -> list[str]:
        return [
            name
            for (name,) in self.world.query(
                "select relname from pg_class where relnamespace = to_regnamespace('txtopo_staging') and relkind = 'r' "
                "order by 1"
            )
        ]

    def crash(self) -> None:
        for name in self.tables():
            self.world.query(f'truncate txtopo_staging."{name}"')

    def test_an_audit_names_the_tables_that_no_open_attempt_needs(self) -> None:
        """Of batches in the ledger, and of former leaders; never those of another topology."""
        driver = lead_on(self.world)
        staging = staging_of(driver, self.place)
        first, second = (staging.create(TransactionAttempt(txid, 0), driver.committers[0]).name for txid in (1, 2))
        epoch = driver.lead.epoch
        engine = make_engine(self.place.dsn, "audit")
        with engine.connect() as connection:
            assert list(find_left(connection, TOPOLOGY, epoch, 0)) == []
            assert list(find_left(connection, TOPOLOGY, epoch, 1)) == [f"txtopo_staging.{first}"]
            both = [f"txtopo_staging.{name}" for name in sorted((first, second))]
            assert list(find_left(connection, TOPOLOGY, epoch + 1, 0)) == both
            assert list(find_left(connection, "other", epoch + 1, 9)) == []
        engine.dispose()

    def test_statements_over_all_rows_of_a_large_batch_may_take_longer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As long as pieces of them may take together, and so may the redo of it; then the limit is as before."""
        monkeypatch.setattr(time_limits, "ROWS_PER_LIMIT", 10)
        component, result, _ = KINDS["append"](random.Random(4711))
        driver = lead_on(self.world, component)
        staging = staging_of(driver, self.place)
        limits: list[str] = []
        monkeypatch.setattr(append_rows, "insert_rows", self._noting(limits, staged_rows.insert_rows))
        table = staging.create(TransactionAttempt(1, 0), component)
        large = driver.commit(driver.ready(1), results=(in_parts(table, result),))
        again = staging.create(TransactionAttempt(2, 0), component)
        small = replace(result, rows=result.rows.slice(0, 3), arrived=3, row_count=3)
        redo = driver.commit(driver.redo(2, redo_of=1), results=(in_parts(again, small),))

        assert isinstance(large, Committed) and isinstance(redo, Committed)
        minutes = -(-result.row_count // 10)
        assert limits == [f"{minutes}min", f"{minutes}min"]

    @staticmethod
    def _noting(limits: list[str], insert: Callable[..., None]) -> Callable[..., None]:
        def noted(connection: Any, *given: Any) -> None:
            limits.append(connection.exec_driver_sql("show statement_timeout").scalar_one())
            insert(connection, *given)

        return noted

    def test_texts_are_numbered_by_their_bytes_whatever_the_database_compares_by(self) -> None:
        """As the driver does."""
        assert list(staged_rows._order(parse_fields("who string, n int"))) == [
            's."who" collate pg_catalog."C"',
            's."n"',
        ]

    def test_many_rows_are_merged_piece_by_piece(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each row is in one piece, whatever the number of blocks and pieces, with rows of other attempts between."""
        rows: list[Row] = [(f"C{number:05}", "JFK", 1, number) for number in range(3_000)]
        driver = lead_on(self.world)
        staging = staging_of(driver, self.place)
        monkeypatch.setattr(staged_rows, "ROWS_PER_PIECE", 400)
        table = staging.create(TransactionAttempt(1, 0), driver.committers[0])
        parts = []
        for part in range(3):
            store(table, rows[part * 1000 : part * 1000 + 1000], part, 10 + part)
            parts.append(store(table, rows[part * 1000 : part * 1000 + 1000], part, 20 + part))

        outcome = self.committed(driver, driver.ready(1), staged_result(table, rows, *parts))

        assert isinstance(outcome, Committed), outcome
        assert self.world.rows("flights_count") == {row[:2]: row[2:] for row in rows}
        [count] = outcome.counts
        assert (count.counted, count.written) == (3_000, 3_000)

    def test_the_digest_is_that_of_rows_that_came_through_the_driver(self) -> None:
        """An audit compares it with the contributions."""
        driver = lead_on(self.world)
        staging = staging_of(driver, self.place)
        driver.commit(driver.ready(1))
        table = staging.create(TransactionAttempt(2, 0), driver.committers[0])
        self.committed(driver, driver.ready(2), staged_result(table, ROWS, store(table, ROWS)))

        digests = self.world.query("select digest from txtopo.committer_count order by txid")

        assert digests[0] == digests[1]

    def test_a_table_that_a_task_still_writes_into_is_removed_later(self) -> None:
        """A paused task holds a lock: the leader waits for it two seconds at most, and tries again."""
        driver = lead_on(self.world)
        staging = staging_of(driver, self.place)
        table = staging.create(TransactionAttempt(1, 0), driver.committers[0])
        again = staging.create(TransactionAttempt(2, 0), driver.committers[0])

        def paused() -> Iterator[Any]:
            yield table_of([(f"C{number}", "JFK", 1, 1) for number in range(50_001)])
            staging.settled(1)
            assert table.name in self.tables()
            yield table_of(ROWS)

        assert table.writer.store(0, 1, paused()) == 50_004
        staging.settled(2)
        assert again.name not in self.tables()
        wait_until(lambda: self.tables() == [], "the table of the paused task is removed as well")

    def test_tasks_need_only_the_right_to_insert(self) -> None:
        """Without it the topology halts with words; with it nothing can be read, changed or removed."""
        driver = lead_on(self.world)
        staging = staging_of(driver, self.place)
        dsn = f"{self.place.dsn}{'&' if '?' in self.place.dsn else '?'}options=-crole%3Dstager"
        self.world.query("do $$ begin create role stager; exception when duplicate_object then null; end $$")
        stagers = driver.ledger.staging(driver.lead, StagingPlace(dsn=dsn), [])
        table = stagers.create(TransactionAttempt(1, 0), driver.committers[0])
        with pytest.raises(StagingFailed) as refused:
            store(table, ROWS)
        assert refused.value.kind == "halt" and "permission denied" in refused.value.message

        self.world.query("grant usage on schema txtopo_staging to stager")
        self.world.query("alter default privileges in schema txtopo_staging grant insert on tables to stager")
        granted = stagers.create(TransactionAttempt(1, 0), driver.committers[0])
        result = staged_result(granted, ROWS, store(granted, ROWS))

        assert isinstance(self.committed(driver, driver.ready(1), result), Committed)
        for verb in ("select", "update", "delete", "truncate"):
            [(may,)] = self.world.query(
                "select has_table_privilege('stager', %s, %s)", f'txtopo_staging."{granted.name}"', verb
            )
            assert not may, verb
        staging.close()
        stagers.close()
        self.world.query("alter default privileges in schema txtopo_staging revoke insert on tables from stager")
        self.world.query("revoke usage on schema txtopo_staging from stager")
