"""Tables of rows on Postgres: audited with and without planted faults, recomputed, verified and traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.contracts.executor_contract import plan_batches
from tests.integration.conftest import FilledDatabase, copied, filled
from tests.kit.audited import CODE, Leader, select
from tests.kit.audits import Audited, findings
from tests.kit.fix_spark import executors_on
from txtopo import AppendCommitter, FileSpout, TopologyBuilder
from txtopo.cli import main
from txtopo.core.values import Processed, TransactionAttempt
from txtopo.local.postgres import LocalPostgres
from txtopo.operating.verify import Recount, verify
from txtopo.ports import Assignment
from txtopo.reports.read import read_batch, reading
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.components import Topology

pytestmark = pytest.mark.postgres
FIELDS = "who string, at timestamp, ratio double, price decimal(10,2)"
LINE = "{who},2026-01-01 00:00:0{at}Z,{ratio},1.50"


def site(folder: Path) -> Topology:
    """Rows as they are read."""
    builder = TopologyBuilder("site")
    builder.set_spout("files", FileSpout(folder, FIELDS, settled_s=0))
    builder.set_committer_bolt("visits", AppendCommitter("visits")).shuffle_grouping("files")
    return builder.build()


def write(folder: Path, number: int, *people: str) -> None:
    lines = [LINE.format(who=who, at=at, ratio="0.1" if at else "nan") for at, who in enumerate(people)]
    (folder / f"{number}.csv").write_text("\n".join(["who,at,ratio,price", *lines]) + "\n", encoding="utf-8")


def _fill(dsn: str, folder: Path) -> None:
    for number in range(1, 4):
        write(folder, number, "ada", '"b, ""q"""', "")
    with closing(Leader(dsn, site(folder))) as leader:
        leader.cut()
        write(folder, 2, "eve")
        leader.redo(2)
        write(folder, 2, "eve", "ada")
        leader.redo(4)


@pytest.fixture(scope="module")
def filled_with_visits(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FilledDatabase]:
    """See `visited`."""
    with filled(postgres_server, migrated_template, tmp_path_factory.mktemp("visits"), _fill) as database:
        yield database


@pytest.fixture
def visited(
    postgres_server: LocalPostgres,
    filled_with_visits: FilledDatabase,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Audited]:
    """Three files; batch 4 redoes batch 2 after its file was corrected, 5 redoes 4."""
    with copied(postgres_server, filled_with_visits, capsys, monkeypatch) as database:
        yield database


def test_the_table_has_the_rows_of_the_batches_in_effect_and_the_audit_agrees(visited: Audited) -> None:
    """Promise: a recompute leaves what a rebuild from the corrected files would, and the audit says MATCH."""
    assert select(visited.dsn, "select txid, n, who from visits order by txid, n") == [
        *[(1, 1, "ada"), (1, 2, 'b, "q"'), (1, 3, None)],
        *[(3, 1, "ada"), (3, 2, 'b, "q"'), (3, 3, None)],
        *[(5, 1, "ada"), (5, 2, "eve")],
    ]
    code, report = visited.audit(topology="site")
    assert report["findings"] == []
    assert (code, report["verdict"]) == (0, "MATCH")
    contributed = {one["txid"]: one["contributed"] for one in report["batches"]}
    assert contributed == {1: {"visits": 3}, 2: {"visits": 0}, 3: {"visits": 3}, 4: {"visits": 0}, 5: {"visits": 2}}
    assert any("visits stores rows" in one["reason"] for one in report["by_design"])


FAULTS = {
    "changed": (3, "update visits set price = 1.51 where (txid, n) = (3, 1)"),
    "numbered otherwise": (3, "update visits set n = 7 where (txid, n) = (3, 1)"),
    "removed": (3, "delete from visits where (txid, n) = (3, 1)"),
    "added": (
        3,
        "insert into visits select txid, attempt, 9, who, at, ratio, price from visits where txid = 3 limit 1",
    ),
    "moved to another batch": (3, "update visits set (txid, n) = (5, 9) where (txid, n) = (3, 1)"),
    "of a batch that was redone": (2, "update visits set txid = 2 where (txid, n) = (5, 1)"),
    "of a batch that never was": (77, "insert into visits (txid, attempt, n) values (77, 0, 1)"),
    "count of what was removed": (5, "update txtopo.committer_count set reversed = 7 where txid = 5"),
    "key dropped": (0, "alter table visits drop constraint visits_txid_n_key"),
    "table gone": (0, "drop table visits"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_in_a_table_of_rows_is_mismatch_and_named(visited: Audited, name: str) -> None:
    """Promise: whatever of a row was changed, the audit says MISMATCH and names the batch."""
    txid, statement = FAULTS[name]
    visited.plant(statement)

    code, report = visited.audit("--no-recount", topology="site")

    found = [one for one in findings(report) if one["check"] != "ledger.seal"]
    assert (code, report["verdict"]) == (1, "MISMATCH")
    assert found and (not txid or txid in {number for one in found for number in one["txids"]}), report["findings"]


def test_batches_are_verified_by_processing_them_again(visited: Audited) -> None:
    """Promise: `replay --verify` compares the rows made now, those in the table and those committed."""
    topology = site(visited.folder)
    recount = Recount(dsn=visited.dsn, topology=topology, code_hash=CODE, executor=InProcessExecutor(topology, CODE))

    def verdicts() -> list[tuple[str, tuple[str, ...]]]:
        with reading(visited.dsn) as connection:
            batches = [one for txid in (1, 5) if (one := read_batch(connection, "site", txid)) is not None]
        return [(one.verdict, one.findings) for one in verify(recount, batches)]

    assert verdicts() == [("MATCH", ()), ("MATCH", ())]
    visited.plant("update visits set who = 'x' where (txid, n) = (5, 1)")
    (first, _), (second, said) = verdicts()
    assert (first, second) == ("MATCH", "MISMATCH")
    assert "its rows in public.visits are not those that were committed" in said[0]


def test_trace_says_where_the_batch_of_a_row_stands(visited: Audited, capsys: pytest.CaptureFixture[str]) -> None:
    """Promise: each row has its batch in a column."""
    code = main(("trace", "--table", "visits", "--key", "who=ada"))
    assert (code, "column txid says which batch" in capsys.readouterr().err) == (3, True)


@pytest.mark.spark
def test_rows_come_from_spark_as_they_are(spark_session: SparkSession, tmp_path: Path) -> None:
    """The rows that tasks send are those of the same batch in this process, each once."""
    for number in range(1, 4):
        write(tmp_path, number, *(f"p{at % 7}" for at in range(9)))
    topology = site(tmp_path)
    wave = [
        Assignment(attempt=TransactionAttempt(txid, 0), metadata=found)
        for txid, found in enumerate(plan_batches(topology), 1)
    ]

    def rows(outcome: Any) -> list[str]:
        assert isinstance(outcome, Processed), outcome
        [result] = outcome.results
        assert (result.arrived, result.row_count) == (9, 9)
        return sorted(map(repr, result.rows.to_pylist()))

    with executors_on(spark_session) as make:
        there = [rows(one) for one in make(topology).process(wave)]
    assert there == [rows(one) for one in InProcessExecutor(topology, CODE).process(wave)]
