"""The contract of committers, on the ledger in memory and on Postgres."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg2
import psycopg2.extras
import pyarrow as pa
import pytest
import sqlalchemy

from tests.contracts.append_contract import AppendContract
from tests.contracts.committer_contract import FIELDS, TABLE, CommitterContract, History, rows_of, sales
from tests.contracts.ledger_driver import lead_on, listen
from tests.contracts.test_ledger import EMPTY, MemoryWorld, PostgresWorld, one_database
from tests.contracts.upsert_contract import UpsertContract
from txtopo import AggregateCommitter, AppendCommitter, CountCommitter, ReplaceCommitter, UpsertCommitter
from txtopo.audit.check_target import check_target
from txtopo.audit.verdicts import Findings
from txtopo.committers.postgres import refold
from txtopo.committers.protocol.count_tables import shape_of
from txtopo.committers.protocol.folds import left, left_of_keys
from txtopo.core.fields import parse_fields
from txtopo.core.values import Committed, CommitterResult
from txtopo.errors import BatchDataError, Halted
from txtopo.reports.stored_description import committers_of
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.committer_bolt import CommitterBolt
from txtopo.topology.components import CommitterComponent, Subscription
from txtopo.tuples.storable_keys import check_keys, check_row_keys, text_bytes_max

__all__ = ["listen", "one_database"]


ADDED = [column.name for column in shape_of(sales()).numbers[1:] if column.fold == "add"]
"""Columns of the table of sales that may not be NULL, besides the count."""


class MemoryTables(MemoryWorld):
    """With all columns."""

    def table(self, name: str) -> list[dict[str, Any]]:
        """As stored."""
        names = [column.name for column in self.store.columns[name]]
        return [dict(zip(names, (*key, *row), strict=True)) for key, row in self.store.tables[name].items()]

    def forget(self, name: str, txid: int, number: int) -> None:
        """Behind the ledger's back."""
        rows = self.store.tables[name]
        for key in [key for key in rows if (key[0], key[-1]) == (txid, number)]:
            del rows[key]


class PostgresTables(PostgresWorld):
    """With all columns."""

    def table(self, name: str) -> list[dict[str, Any]]:
        """As a reader sees them."""
        with self._connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
            cursor.execute(f"select * from {name}")
            return [dict(row) for row in cursor.fetchall()]

    def forget(self, name: str, txid: int, number: int) -> None:
        """Behind the ledger's back."""
        self.query(f"delete from {name} where (txid, n) = (%s, %s)", txid, number)

    def columns(self, name: str) -> list[str]:
        """In their order."""
        return [
            row[0]
            for row in self.query(
                "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped "
                "order by attnum",
                name,
            )
        ]

    def audit(self, component: CommitterComponent) -> list[str]:
        """What an audit finds wrong with the table."""
        described = {**component.bolt.describe(), "input": "files", "fields": FIELDS.ddl}
        [tables] = committers_of({"committers": {"sales": described}, "spouts": {"files": {}}, "bolts": {}}).values()
        findings = Findings()
        engine = sqlalchemy.create_engine("postgresql+psycopg2://", creator=lambda: psycopg2.connect(self._dsn))
        try:
            with engine.connect() as connection:
                check_target(findings, connection, tables.ordered(self.columns(f"{TABLE}_contribution")), ())
        finally:
            engine.dispose()
        return [one.message for one in findings.findings()]


def keys_index(world: PostgresTables) -> str:
    """Name of the index by which contributions to a key are found."""
    [(name,)] = world.query(
        f"select indexrelid::regclass::text from pg_index where indrelid = '{TABLE}_contribution'::regclass and not "
        "indisunique"
    )
    return str(name)


class TestMemoryCommitters(CommitterContract, AppendContract, UpsertContract):
    """`txtopo.committers.memory`."""

    SEEDS = 25
    APPEND_SEEDS = 20
    UPSERT_SEEDS = 40

    @pytest.fixture
    def world(self) -> MemoryTables:
        """A store of its own."""
        return MemoryTables()


class TestPostgresCommitters(CommitterContract, AppendContract, UpsertContract):
    """`txtopo.committers.postgres`."""

    @pytest.fixture
    def world(self, one_database: str) -> Iterator[PostgresTables]:
        """An empty database."""
        world = PostgresTables(one_database)
        world.query(EMPTY.replace("%", "%%"))
        yield world
        world.close()

    def test_the_audit_agrees_with_any_history_and_finds_what_was_changed_after_it(self, world: PostgresTables) -> None:
        """The audit has a fold of its own: sums over all contributions, minima over those that count."""
        component = sales(averages=True)
        history = History(lead_on(world, component), component, random.Random(3))
        while history.txid < 25 or not any(history.live.values()):
            history.step()

        assert world.audit(component) == []
        for change in ("pieces_min = coalesce(pieces_min, 0) - 1", "paid_max = not coalesce(paid_max, false)"):
            world.query(f"create table kept as table {TABLE}")
            world.query(f"update {TABLE} set {change} where ctid = (select min(ctid) from {TABLE})")
            [said] = world.audit(component)
            assert change.split()[0] in said
            columns = "shop, day, count, pieces, taken, price_avg_sum, price_avg_count"
            measures = ", ".join(name for name in world.columns(TABLE) if name.endswith(("_min", "_max")))
            world.query(f"delete from {TABLE}")
            world.query(f"insert into {TABLE} ({columns}, {measures}) select {columns}, {measures} from kept")
            world.query("drop table kept")
            assert world.audit(component) == []

    def test_a_window_with_its_end_is_no_obstacle_to_runs(self, world: PostgresTables) -> None:
        """R20: the server computes the end from a key; also of a time without zone, in a column with an odd name."""
        fields = parse_fields("shop string, sold timestamp, seen timestamp_ntz")
        for name, time in (("hours", "sold"), ("seen", "seen")):
            bolt = AggregateCommitter(name, ["shop"], window="1 hour", slide="10 minutes", time=time, averages={})
            component = CommitterComponent(name=name, bolt=bolt, input=Subscription(source="spout"), fields=fields)
            driver = lead_on(world, component)
            driver.ledger.prepare_targets(driver.lead, driver.committers)
            assert driver.ledger.single_commits(driver.committers) is None
        world.query("drop view seen_windows; create view seen_windows as select 1 as shop")
        with pytest.raises(Halted, match=r"public\.seen_windows is not the view on public"):
            driver.ledger.prepare_targets(driver.lead, driver.committers)

    def test_a_table_whose_average_is_another_quotient_is_refused_and_found(self, world: PostgresTables) -> None:
        """The server computes it, so nobody else looks at it again."""
        component = sales(averages=True)
        history = History(lead_on(world, component), component, random.Random(3))
        history.step()
        history.step()
        world.query(f"alter table {TABLE} drop column price_avg")
        with pytest.raises(Halted, match="has other computed columns: price_avg numeric is missing"):
            lead_on(world, component)
        world.query(
            f"alter table {TABLE} add column price_avg numeric generated always as (price_avg_sum / nullif(count, 0)) "
            "stored"
        )
        with pytest.raises(Halted, match="has other computed columns: price_avg numeric is computed as"):
            lead_on(world, component)
        why = history.driver.ledger.single_commits([component])
        assert why is not None and "has column price_avg, which is numeric and generated" in why
        world.query(f"update {TABLE} set count = count + 1")
        assert any("whose price_avg is not price_avg_sum / price_avg_count" in said for said in world.audit(component))

    @pytest.mark.parametrize("nullable", [True, False])
    def test_the_longest_key_that_passes_fits_its_indexes(self, world: PostgresTables, nullable: bool) -> None:
        """Also in the row that takes it back, which has one value more; bytes that nothing compresses."""
        fields = parse_fields("url string, raw binary, exact decimal(38,0), sold timestamp, empty string")
        keys = ["url", "raw", "exact", "sold", *(["empty"] if nullable else [])]
        component = CommitterComponent(
            name="pages", bolt=CountCommitter("pages", keys), input=Subscription(source="spout"), fields=fields
        )
        driver = lead_on(world, component)
        schema = arrow_schema(component.result_fields)
        room, chance = text_bytes_max(list(schema.types)[: len(keys)]), random.Random(1)
        row = {
            "url": "".join(chr(chance.randrange(33, 127)) for _ in range(room // 2)),
            "raw": chance.randbytes(room - room // 2),
            "exact": Decimal(10**38 - 1),
            "sold": datetime(2026, 1, 1, tzinfo=UTC),
            "empty": None,
            "count": 1,
        }
        table = pa.Table.from_pylist([row], schema)
        check_keys("pages", table, len(keys))
        result = CommitterResult(committer="pages", arrived=1, rows=table, row_count=1, bytes=1)
        for plan in (driver.ready(1), driver.redo(2, 1)):
            assert isinstance(driver.commit(plan, results=(result,)), Committed)
        assert [(row["url"], row["count"]) for row in world.table("public.pages")] == [(row["url"], 1)]

    @pytest.mark.parametrize("kind", ["upsert", "replace", "minimum", "append"])
    def test_the_longest_key_that_passes_fits_the_indexes_of_each_committer(
        self, world: PostgresTables, kind: str
    ) -> None:
        """The table, the log and the contributions have indexes on the keys; rows that are appended are found by batch
        and number, so their texts are as long as they like.
        """
        fields = parse_fields("url string, raw binary, exact decimal(38,0), seen bigint")
        keys = ["url", "raw", "exact"]
        schema = arrow_schema(fields)
        versions = [pa.int64()] if kind == "upsert" else []  # its log is found by the version, too
        room = text_bytes_max([*list(schema.types)[: len(keys)], *versions]) if kind != "append" else 100_000
        bolts: dict[str, CommitterBolt] = {
            "upsert": UpsertCommitter("pages", keys, version="seen"),
            "replace": ReplaceCommitter("pages", partition=keys),
            "minimum": AggregateCommitter("pages", keys, mins={"seen": "first"}),
            "append": AppendCommitter("pages"),
        }
        component = CommitterComponent(
            name="pages", bolt=bolts[kind], input=Subscription(source="spout"), fields=fields
        )
        chance = random.Random(1)
        long = {
            "url": "".join(chr(chance.randrange(33, 127)) for _ in range(room // 2)),
            "raw": chance.randbytes(room - room // 2),
            "exact": Decimal(10**38 - 1),
        }
        row = {**long, "count": 1, "first": 7} if kind == "minimum" else {**long, "seen": 7}
        table = pa.Table.from_pylist([row], arrow_schema(component.result_fields))
        if kind == "minimum":
            check_keys("pages", table, len(keys))
        else:
            check_row_keys("pages", component.bolt.row_keys, table)
        driver = lead_on(world, component)
        result = CommitterResult(committer="pages", arrived=1, rows=table, row_count=1, bytes=1)
        for plan in (driver.ready(1), driver.redo(2, 1)):
            outcome = driver.commit(plan, results=(result,))
            assert isinstance(outcome, Committed), outcome
        assert [found["url"] for found in world.table("public.pages")] == [row["url"]]
        if kind in ("upsert", "replace"):
            longer = pa.Table.from_pylist([{**row, "url": f"{row['url']}x"}], table.schema)
            with pytest.raises(BatchDataError, match=r"committer pages: key (url|raw) has 1,\d+ bytes"):
                check_row_keys("pages", component.bolt.row_keys, longer)

    def test_contributions_are_joined_by_hash_when_a_minimum_is_recomputed(self, world: PostgresTables) -> None:
        """Records are joined by sorting: a million contributions took longer than a statement may."""
        component = sales()
        lead_on(world, component)
        values = {"tables": "'{1}'", "rows": "'{\"(0,1)\"}'", "first": "1", "last": "9", "gone": "'{3}'"}
        world.query("set enable_nestloop = off")
        plan = "\n".join(row[0] for row in world.query(f"explain {left(shape_of(component)) % values}"))
        assert "Hash Join" in plan
        assert "Merge Join" not in plan

    def test_a_minimum_is_recomputed_in_parts_that_no_statement_limit_ends(
        self, world: PostgresTables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each statement reads some batches only; what was adopted, and batches without contributions, are in one. So
        where the table was made without the index on the keys.
        """
        asked: list[tuple[int, int]] = []
        parts = refold._parts

        def noted(*given: Any) -> Iterator[tuple[int, int]]:
            for part in parts(*given):
                asked.append(part)
                yield part

        monkeypatch.setattr(refold, "PART_ROWS", 3)
        monkeypatch.setattr(refold, "_parts", noted)
        component = sales()
        history = History(lead_on(world, component), component, random.Random(5))
        world.query(f"drop index {keys_index(world)}")
        longest = 0
        for _ in range(40):
            history.step()
            assert rows_of(world, component) == history.expected(), f"batch {history.txid}"
            if asked:
                assert [first for first, _ in asked] == [0, *(last + 1 for _, last in asked[:-1])]
                assert asked[-1][1] == history.txid
                longest = max(len(asked), longest)
            asked.clear()
        assert longest > 5

    def test_a_minimum_is_recomputed_from_the_contributions_to_its_key_alone(
        self, world: PostgresTables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By an index, key by key, also keys with NULL: a redo of a batch does not read what other keys have."""
        monkeypatch.setattr(refold, "KEYS_MAX", 2)
        monkeypatch.setattr(refold, "left", lambda shape: pytest.fail("reads all contributions"))
        component = sales()
        history = History(lead_on(world, component), component, random.Random(5))
        for _ in range(40):
            history.step()
            assert rows_of(world, component) == history.expected(), f"batch {history.txid}"
        index = keys_index(world)
        [(columns,)] = world.query(f"select pg_get_indexdef('{index}'::regclass)")
        assert columns.endswith("(shop, day)")
        world.query(
            f"set session_replication_role = replica; insert into {TABLE}_contribution (txid, shop, day, count, "
            f"{', '.join(ADDED)}) select n, 'shop ' || n, date '2026-01-01' + n, 1, {', '.join('0' for _ in ADDED)} "
            "from generate_series(1000, 21000) n; set session_replication_role = origin; "
            f"analyze {TABLE}_contribution"
        )
        values = {"tables": "'{1}'", "rows": "'{\"(0,1)\"}'", "before": "0", "gone": "'{3}'"}
        for nulls in ([False, False], [True, False]):
            asked = f"explain {left_of_keys(shape_of(component), nulls) % values}"
            plan = "\n".join(row[0] for row in world.query(asked))
            assert index in plan and f"Seq Scan on {TABLE.split('.')[-1]}_contribution" not in plan, plan
