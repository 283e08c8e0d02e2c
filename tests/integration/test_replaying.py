"""`txtopo replay` on committed batches: the plan it prints, and what --verify finds when it processes them again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.kit.asked import Said, everything, runner
from tests.kit.audited import Leader, behind_the_back, run_batches, select
from tests.kit.orders import write_orders
from txtopo.app import spark_executor
from txtopo.errors import PostgresUnavailable
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.components import Topology

APPLICATION = """
from pathlib import Path
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from tests.kit.orders import FIELDS

def build(name="orders", contributions=True, committer="totals"):
    builder = TopologyBuilder(name)
    builder.set_spout("files", FileSpout({folder!r}, FIELDS, settled_s=0.05))
    builder.set_committer_bolt(committer, CountCommitter(
        "order_totals", ["shop", "article"], count="rows", sums=["pieces", "price"], contributions=contributions)).shuffle_grouping("files")
    return builder.build()

topology = build()
keepless = build(contributions=False)
trains = build(name="trains")
renamed = build(committer="sums")
"""  # noqa: E501


class Place:
    """A database with committed orders, and the application that counted them."""

    def __init__(self, dsn: str, folder: Path, application: Path, run: Callable[..., Said]) -> None:
        self.dsn, self.folder, self.run = dsn, folder, run
        self.application = str(application)

    def topology(self, attribute: str = "topology") -> Topology:
        from txtopo.driver.load_application import load_application

        return load_application(f"{self.application}:{attribute}")

    def verify(self, txids: str, attribute: str = "topology", *flags: str) -> Said:
        """Process batches again with the application's code."""
        return self.run("replay", "orders", txids, "--verify", "--app", f"{self.application}:{attribute}", *flags)

    def file(self, txid: int) -> Path:
        return self.folder / f"order_{txid:04}.csv"


@pytest.fixture
def place(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Place:
    """Three files of orders and no batch yet; executors are in this process."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    monkeypatch.chdir(tmp_path)
    application = tmp_path / f"orders_{abs(hash(tmp_path))}.py"
    application.write_text(APPLICATION.format(folder=str(tmp_path / "in")))

    def in_process(topology: Topology, digest: bytes, _: Any) -> InProcessExecutor:
        return InProcessExecutor(topology, digest)

    monkeypatch.setattr("txtopo.app.spark_executor", in_process)
    write_orders(tmp_path / "in", 3)
    return Place(database, tmp_path / "in", application, runner(capsys))


@pytest.fixture
def committed(place: Place) -> Place:
    """Three batches of twenty orders."""
    assert run_batches(place.dsn, place.topology()) == 3
    return place


def test_the_plan_says_what_a_replay_is_about_and_changes_nothing(committed: Place) -> None:
    """Promise: per batch txid, state, when, files with sizes, attempt, rows read, committers and their tables; exit 0."""  # noqa: E501
    before = everything(committed.dsn)

    said = committed.run("replay", "orders", "2..")
    shown = committed.run("replay", "orders", "1,3", "--json").json

    lines = said.out.splitlines()
    assert said.code == 0
    assert lines[0].split() == [
        "txid",
        "state",
        "committed",
        "at",
        "attempt",
        "read",
        "rejected",
        "totals",
        "counts",
        "as",
        "files",
    ]
    assert [line.split()[:2] for line in lines[1:3]] == [["2", "committed"], ["3", "committed"]]
    assert f"{committed.file(2)} ({committed.file(2).stat().st_size} B)" in lines[1]
    assert "totals > public.order_totals" in lines
    assert (
        "--verify     would read the files of 2 batches again with Spark and compare with what was committed; it "
        "changes nothing" in lines
    )
    assert (
        "--recompute  would process 2 batches again and replace what they contributed, under new txids after the last"
        in said.out
    )
    assert (shown["schema"], shown["txids"], shown["obstacle"]) == ("txtopo.replay/1", [1, 3], None)
    assert shown["batches"][1]["batch"]["files"][0]["path"] == str(committed.file(3))
    assert everything(committed.dsn) == before


def test_what_was_committed_is_verified_and_nothing_is_changed(committed: Place) -> None:
    """Promise: --verify recomputes from the source and compares, changing nothing: no lead, no attempt, no order."""
    before = everything(committed.dsn)

    said = committed.verify("1..3")

    assert (said.code, said.out) == (0, "batch 1  MATCH\nbatch 2  MATCH\nbatch 3  MATCH\n")
    assert "3 MATCH; nothing was changed" in said.err
    assert everything(committed.dsn) == before


@pytest.mark.spark
def test_spark_finds_the_rows_that_were_committed(
    committed: Place, spark_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: --verify recomputes from the source with Spark, on the session that is there."""
    monkeypatch.setattr("txtopo.app.spark_executor", spark_executor)
    behind_the_back(committed.dsn, f"delete from {CONTRIBUTION}")
    committed.file(3).unlink()

    said = committed.verify("1..3")

    assert said.code == 1
    assert [line for line in said.out.splitlines() if line.startswith("batch")] == [
        "batch 1  MATCH",
        "batch 2  MISMATCH",
        "batch 3  UNVERIFIED",
    ]
    assert f"could not be processed again: {committed.file(3)}" in said.out


def test_verified_in_pieces_and_as_json(place: Place) -> None:
    """File lists that lie in `plan_part` are put back; --json is one document."""
    run_batches(place.dsn, place.topology(), in_pieces=True)

    said = place.verify("1,2", "topology", "--json").json

    assert (said["schema"], said["exit_code"]) == ("txtopo.verify/1", 0)
    assert [(one["txid"], one["verdict"]) for one in said["batches"]] == [(1, "MATCH"), (2, "MATCH")]


CONTRIBUTION = "order_totals_contribution where txid = 2 and shop = 'shop 1' and article = 'a0'"


@pytest.mark.parametrize(
    ("planted", "finding"),
    [
        (
            f"update {CONTRIBUTION.replace(' where', ' set pieces = pieces + 1 where')}",
            "committer totals, shop 'shop 1', article 'a0': rows ",
        ),
        (f"delete from {CONTRIBUTION}", " committed"),
        (
            "insert into order_totals_contribution values (2, null, 'shop 9', null, 1, 2, 3.00)",
            "shop 'shop 9', article NULL: nothing now, rows 1, pieces 2, price 3.00 committed",
        ),
        (
            "update txtopo.committer_count set digest = digest + 1 where txid = 2",
            "its contributions are not those that were committed",
        ),
        (
            "update txtopo.committer_count set arrived = 21, counted = 21 where txid = 2",
            "20 tuples arrive, 21 did when it was committed",
        ),
        ("update txtopo.ledger set read = 21 where txid = 2", "the source has 20 records, 21 were committed"),
        (
            "update txtopo.ledger set rejected = 1 where txid = 2",
            "0 records are rejected, 1 were when it was committed",
        ),
    ],
)
def test_what_differs_from_the_source_is_a_mismatch_with_its_key(committed: Place, planted: str, finding: str) -> None:
    """Promise: MISMATCH per batch with the first few differing keys; 1."""
    behind_the_back(committed.dsn, planted)

    said = committed.verify("1..3")

    assert said.code == 1
    assert [line for line in said.out.splitlines() if line.startswith("batch")] == [
        "batch 1  MATCH",
        "batch 2  MISMATCH",
        "batch 3  MATCH",
    ]
    assert finding in said.out


@pytest.mark.parametrize(
    "planted",
    [
        None,
        "update txtopo.committer_count set digest = digest + 1 where txid = 2",
        "update txtopo.committer_count set results = results + 1, written = written + 1 where txid = 2",
    ],
)
def test_without_contributions_the_digest_decides(place: Place, planted: str | None) -> None:
    """Promise: without contributions the digest is computed again in Postgres."""
    run_batches(place.dsn, place.topology("keepless"))
    if planted:
        behind_the_back(place.dsn, planted)

    said = place.verify("2", "keepless")

    assert said.code == (1 if planted else 0)
    if planted:
        assert "committer totals: " in said.out
        assert "were committed" in said.out


def test_a_source_that_is_gone_or_changed_is_unverified(committed: Place) -> None:
    """Promise: UNVERIFIED with the reason, both fingerprints where it changed; 3, and 1 wins over 3."""
    (planned,) = select(committed.dsn, "select encode(fingerprint, 'hex') from txtopo.source_file where txid = 1")[0]
    committed.file(1).write_text("id,shop,article,pieces,price\n1,shop 1,a0,1,1.00\n")
    committed.file(2).unlink()

    unverified = committed.verify("1..3")
    behind_the_back(committed.dsn, "update txtopo.ledger set read = 21 where txid = 3")
    both = committed.verify("1..3")

    assert (unverified.code, both.code) == (3, 1)
    lines = unverified.out.splitlines()
    assert [lines[0], lines[2], lines[4]] == ["batch 1  UNVERIFIED", "batch 2  UNVERIFIED", "batch 3  MATCH"]
    assert planned in lines[1]
    assert lines[1].count("sha256") == 2
    assert f"{committed.file(2)}: " in lines[3]


@pytest.mark.parametrize(
    ("attribute", "code", "words"),
    [
        ("renamed", 3, "it was committed by totals; the topology now has sums"),
        ("trains", 2, "is the topology trains, not orders"),
        ("nothing", 2, "'nothing' does not exist"),
    ],
)
def test_another_topology_verifies_nothing(committed: Place, attribute: str, code: int, words: str) -> None:
    """A comparison with something else would be worth nothing."""
    said = committed.verify("1", attribute)

    assert said.code == code
    assert words in said.out + said.err


def test_a_plan_that_is_gone_is_unverified(committed: Place) -> None:
    """Promise: "could not" with the reason."""
    behind_the_back(
        committed.dsn,
        "delete from txtopo.plan where txid = 1",
        "update txtopo.plan set bytes = 'x' where txid = 2",
        "drop table order_totals_contribution",
    )

    said = committed.verify("1..3")

    assert said.code == 3
    for words in ("its plan is no longer in Postgres", "its plan cannot be read", "could not be compared"):
        assert words in said.out


def test_postgres_away_is_3_and_no_verdict(committed: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: 3 could not find out."""

    def away(*_: Any) -> None:
        raise PostgresUnavailable("gone")

    monkeypatch.setattr("txtopo.operating.verify.reading", away)

    said = committed.verify("1")

    assert (said.code, said.out) == (3, "")


def test_a_difference_under_other_code_says_so(committed: Place) -> None:
    """The committed rows were made by other code (R12): the reader must know."""
    behind_the_back(committed.dsn, f"delete from {CONTRIBUTION}")

    assert "it was committed by other code (636363636363)" in committed.verify("2").out


def test_a_batch_that_was_redone_is_verified_as_its_last_redo(place: Place) -> None:
    """Promise: batches redone already: the last applied redo in the chain is what counts; quarantined ones are listed
    with `redrive`.
    """
    with closing(Leader(place.dsn, place.topology())) as leader:
        leader.cut(quarantined={2: "damaged", 3: "damaged too"})
        place.file(1).write_text("id,shop,article,pieces,price\n1,shop 1,a0,1,1.00\n")
        assert leader.redo(1) == 4
        assert leader.redo(4, quarantined="by mistake") == 5
        assert leader.redo(3, "redrive") == 6

    said = place.verify("1..4")
    plan = place.run("replay", "orders", "1..6", "--json").json
    refused = place.run("replay", "orders", "1..3", "--recompute")

    assert (said.code, said.out) == (0, "batch 4  MATCH\nbatch 6  MATCH\n")
    assert "batch 1 was redone: batch 4 counts in its place" in said.err
    assert "batch 2 is quarantined, there is nothing to compare: txtopo redrive orders 2" in said.err
    assert [item["counts_as"] for item in plan["batches"]] == [4, None, 6, 4, 4, 6]
    assert refused.code == 1
    assert "batch 2 is quarantined" in refused.err
    assert place.verify("2").code == 3
    only = place.run("replay", "orders", "1,3..5", "--recompute", "--json").json
    assert (only["txids"], only["obstacle"]) == ([4, 6], None)
