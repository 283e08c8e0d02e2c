"""The audit of dead letters and of committers of one's own: right where nothing was changed, every change found, and
what cannot be compared said.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests.contracts.user_committer_contract import Words
from tests.kit.applications import orders_topology
from tests.kit.audited import CODE, Leader, select
from tests.kit.audits import Audited, findings
from tests.kit.orders import write_orders
from txtopo.cli import main
from txtopo.core.values import CommitterResult, DeadLetter, EdgeCount, Outcome, Processed
from txtopo.operating.verify import Recount, verify
from txtopo.ports import Assignment, Executor, Tell, tell_nobody
from txtopo.reports.read import read_batch, reading
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.batch_committer import CommitCollector, CommitTransaction
from txtopo.topology.components import CommitterComponent, Subscription, Topology

LINE = 4
"""Of the record that is a dead letter in batch 2."""


class Shops(Words):
    """Writes what it gets; its table is nobody else's business."""

    def commit(self, transaction: CommitTransaction, rows: Any, collector: CommitCollector) -> int | None:
        """Keep the names."""
        for row in rows:
            transaction.execute("insert into shops values (%s)", [row["shop"]])
        return None


class Poisoned:
    """Executor in process whose batch 2 has a dead letter, and which feeds a committer of its own."""

    def __init__(self, inner: Executor, file: Any) -> None:
        self._inner = inner
        self._file = file

    def process(self, wave: list[Assignment], tell: Tell = tell_nobody) -> list[Outcome]:
        """As the inner one, changed."""
        outcomes: list[Outcome] = []

        def told(outcome: Outcome) -> None:
            outcomes.append(self._changed(outcome))
            tell(outcomes[-1])

        self._inner.process(wave, told)
        return outcomes

    def _changed(self, outcome: Outcome) -> Outcome:
        assert isinstance(outcome, Processed), outcome
        (counted,) = outcome.results
        letters: tuple[DeadLetter, ...] = ()
        if outcome.attempt.txid == 2:
            raw = self._file.read_bytes().splitlines()[LINE - 1]
            rows = [row for row in counted.rows.to_pylist() if row["shop"] != "poison"]
            kept = type(counted.rows).from_pylist(rows, schema=counted.rows.schema)
            counted = replace(counted, rows=kept, row_count=len(rows), arrived=counted.arrived - 1)
            letters = (
                DeadLetter(
                    spout="files", position=f"{self._file}:{LINE}", component="split", reason="b.py:3: no", raw=raw
                ),
            )
        shops = [{"shop": f"shop of {outcome.attempt.txid}"}]
        schema = arrow_schema(own_component(orders_topology(Path("/"))).result_fields)
        own = type(counted.rows).from_pylist(shops, schema=schema)
        mine = CommitterResult(committer="shops", arrived=3, rows=own, row_count=1, bytes=1)
        edges = (EdgeCount(edge="files -> shops", sent=3, received=3),)
        return replace(outcome, results=(counted, mine), edges=edges, dead_letters=letters)


def own_component(topology: Topology) -> CommitterComponent:
    """A committer of one's own beside the counting one, behind a bolt."""
    (totals,) = topology.committers
    bolt = Shops()
    type(bolt).result = ["shop string"]
    return replace(totals, name="shops", bolt=bolt)


@pytest.fixture
def audited(
    database: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Audited]:
    """Three batches: the second has a dead letter; every one has a committer of its own."""
    write_orders(tmp_path, 3)
    monkeypatch.setenv("TXTOPO_DSN", database)
    found = Audited(database, tmp_path, capsys)
    lines = found.file(2).read_text().splitlines()
    shop = lines[0].split(",").index("shop")
    cells = lines[LINE - 1].split(",")
    cells[shop] = "poison"
    lines[LINE - 1] = ",".join(cells)
    found.file(2).write_text("\n".join(lines) + "\n")
    plain = orders_topology(tmp_path)
    topology = replace(plain, committers=(*plain.committers, own_component(plain)))
    with closing(Leader(database, topology)) as leader:
        leader._executor = Poisoned(InProcessExecutor(plain, CODE), found.file(2))  # type: ignore[assignment]
        make_shops(database)
        leader.cut()
    yield found


def make_shops(dsn: str) -> None:
    """The user's own table."""
    with closing(psycopg2.connect(dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("create table public.shops (shop text)")


def test_dead_letters_and_own_code_match_and_are_told(audited: Audited) -> None:
    """Row equation with dead letters, their records taken out of the recount; own code is counted, and what it wrote is
    said to be unverified by design.
    """
    code, report = audited.audit()

    assert report["findings"] == []
    assert (code, report["verdict"]) == (0, "MATCH")
    reasons = {one["reason"] for one in report["by_design"] if one["check"] in ("target.keys", "contributions.rows")}
    assert reasons == {
        "committer shops writes by its own code: what it wrote was not compared",
        "shops writes by its own code",
    }
    compared = {one["name"]: one["comparisons"] for one in report["checks"]}
    assert compared["dead_letters.rows"] == 6
    assert select(audited.dsn, "select * from shops order by 1") == [(f"shop of {n}",) for n in (1, 2, 3)]


COPY = (
    "insert into txtopo.dead_letter select topology, {txid}, spout, {position}, component, reason, raw from "
    "txtopo.dead_letter"
)
FAULTS: dict[str, tuple[str, int, list[str]]] = {
    "deleted": ("dead_letters.rows", 2, ["delete from txtopo.dead_letter"]),
    "added": ("dead_letters.rows", 3, [COPY.format(txid=3, position="position")]),
    "of no batch": ("ledger.gaps", 77, [COPY.format(txid=77, position="position")]),
    "reason edited": ("ledger.seal", 2, ["update txtopo.dead_letter set reason = 'x'"]),
    "raw edited": ("ledger.seal", 2, ["update txtopo.dead_letter set raw = 'x'"]),
    "moved": ("ledger.seal", 2, ["update txtopo.dead_letter set position = position || '0'"]),
    "count edited": ("dead_letters.rows", 2, ["update txtopo.ledger set dead_lettered = 0 where txid = 2"]),
    "count and row gone": (
        "ledger.equation",
        2,
        ["update txtopo.ledger set dead_lettered = 0 where txid = 2", "delete from txtopo.dead_letter"],
    ),
    "own numbers edited": (
        "ledger.seal",
        1,
        ["update txtopo.committer_count set arrived = 4, counted = 4 where committer = 'shops' and txid = 1"],
    ),
    "own numbers gone": (
        "ledger.counts",
        1,
        ["delete from txtopo.committer_count where committer = 'shops' and txid = 1"],
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_in_dead_letters_or_own_counts_is_found(audited: Audited, name: str) -> None:
    """Promise: each planted fault gives MISMATCH and 1 and names the txid, also without the recount."""
    check, txid, statements = FAULTS[name]
    audited.plant(*statements)

    code, report = audited.audit("--no-recount")

    assert (code, report["verdict"]) == (1, "MISMATCH")
    assert (check, [txid]) in [(one["check"], one["txids"]) for one in findings(report)]


@pytest.mark.parametrize(
    ("position", "verdict", "check"),
    [
        ("3", "MISMATCH", "source.keys"),
        ("999", "MISMATCH", "dead_letters.rows"),
        (None, "UNVERIFIED", "dead_letters.rows"),
    ],
)
def test_the_recount_leaves_out_the_record_that_is_named(
    audited: Audited, position: str | None, verdict: str, check: str
) -> None:
    """A dead letter that names another record, none, or no place at all, is found by the source, or said to be unknown."""  # noqa: E501
    where = "'part 1, number 7'" if position is None else f"'{audited.file(2)}:{position}'"
    audited.plant(f"update txtopo.dead_letter set position = {where}")

    _, report = audited.audit()

    assert check in {one["check"] for one in findings(report, verdict) if one["txids"] == [2]}


def test_show_lists_dead_letters_and_status_counts_them(audited: Audited) -> None:
    """`txtopo show` lists them: position, component, reason. What is in no table is not only found by those who look at
    the right batch.
    """
    assert main(("status", "orders")) == 0
    assert "\n  removed   1 source row in all, as dead letters\n" in audited._capsys.readouterr().out
    assert main(("show", "orders", "2")) == 0
    text = audited._capsys.readouterr().out

    assert "dead letters: 1 source row" in text
    assert f"{audited.file(2)}:{LINE}  bolt split: b.py:3: no" in text
    assert "poison" in text


def verified(audited: Audited, txid: int, **component: Any) -> tuple[str, str]:
    """Verdict and findings of `replay --verify` on a batch; `component` changes the committer of one's own."""
    plain = orders_topology(audited.folder)
    topology = replace(plain, committers=(*plain.committers, replace(own_component(plain), **component)))
    executor = Poisoned(InProcessExecutor(plain, CODE), audited.file(2))
    with reading(audited.dsn) as connection:
        batch = read_batch(connection, "orders", txid)
    assert batch is not None
    recount = Recount(dsn=audited.dsn, topology=topology, code_hash=CODE, executor=executor)  # type: ignore[arg-type]
    (one,) = verify(recount, [batch])
    return one.verdict, " ".join(one.findings)


def test_verify_compares_the_rows_of_own_code_and_the_dead_letters(audited: Audited) -> None:
    """`replay --verify` compares the digest of what own code was handed; what is made in the commit phase only is
    UNVERIFIED.
    """
    assert verified(audited, 2) == ("MATCH", "")

    verdict, said = verified(audited, 2, input=Subscription(source="totals"), inputs=())
    assert (verdict, "downstream of another committer" in said) == ("UNVERIFIED", True)

    audited.plant("update txtopo.committer_count set digest = digest + 1 where committer = 'shops' and txid = 2")
    verdict, said = verified(audited, 2)
    assert (verdict, "committer shops: 1 rows" in said) == ("MISMATCH", True)

    audited.plant("update txtopo.ledger set dead_lettered = 2 where txid = 2")
    assert "1 records are dead letters, 2 were" in verified(audited, 2)[1]
