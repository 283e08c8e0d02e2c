"""The contract of committers, on the ledger in memory and on Postgres."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import psycopg2
import psycopg2.extras
import pytest
import sqlalchemy

from tests.contracts.committer_contract import FIELDS, TABLE, CommitterContract, History, sales
from tests.contracts.ledger_driver import lead_on
from tests.contracts.test_ledger import EMPTY, MemoryWorld, PostgresWorld, one_database
from txtopo.audit.check_target import check_target
from txtopo.audit.verdicts import Findings
from txtopo.committers.protocol.count_tables import shape_of
from txtopo.committers.protocol.folds import refold
from txtopo.errors import Halted
from txtopo.reports.stored_description import committers_of
from txtopo.topology.components import CommitterComponent

__all__ = ["one_database"]


class MemoryTables(MemoryWorld):
    """With all columns."""

    def table(self, name: str) -> list[dict[str, Any]]:
        """As stored."""
        names = [column.name for column in self.store.columns[name]]
        return [dict(zip(names, (*key, *row), strict=True)) for key, row in self.store.tables[name].items()]


class PostgresTables(PostgresWorld):
    """With all columns."""

    def table(self, name: str) -> list[dict[str, Any]]:
        """As a reader sees them."""
        with self._connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
            cursor.execute(f"select * from {name}")
            return [dict(row) for row in cursor.fetchall()]

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
                check_target(findings, connection, tables.ordered(self.columns(f"{TABLE}_contribution")))
        finally:
            engine.dispose()
        return [one.message for one in findings.findings()]


class TestMemoryCommitters(CommitterContract):
    """`txtopo.committers.memory`."""

    SEEDS = 25

    @pytest.fixture
    def world(self) -> MemoryTables:
        """A store of its own."""
        return MemoryTables()


class TestPostgresCommitters(CommitterContract):
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

    def test_contributions_are_joined_by_hash_when_a_minimum_is_recomputed(self, world: PostgresTables) -> None:
        """Records are joined by sorting: a million contributions took longer than a statement may."""
        component = sales()
        lead_on(world, component)
        statement = refold(shape_of(component)).replace("%(tables)s", "'{1}'").replace("%(rows)s", "'{\"(0,1)\"}'")
        world.query("set enable_nestloop = off")
        plan = "\n".join(row[0] for row in world.query(f"explain {statement}"))
        assert "Hash Join" in plan
        assert "Merge Join" not in plan
        assert "hashed SubPlan" in plan
