"""Operators' orders on both real stores, from the command line: what was ordered happens once, and the totals are those
of the files.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import txtopo
from tests.kit.asked import Said, everything, runner
from tests.kit.drivers import SESSION_S, DriverProcess, World, wait_until
from tests.kit.orders import recount, write_orders
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.components import Topology

APPLICATION = """
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from tests.kit.orders import FIELDS

def build(fields, added=False):
    builder = TopologyBuilder("orders")
    builder.set_spout("files", FileSpout({folder!r}, fields, files_per_batch=1, settled_s=0.05))
    builder.set_committer_bolt("totals", CountCommitter(
        "order_totals", ["shop", "article"], count="rows", sums=["pieces", "price"])).shuffle_grouping("files")
    if added:
        builder.set_committer_bolt(
            "by_shop", CountCommitter("shop_totals", ["shop"], count="rows")).shuffle_grouping("files")
    return builder.build()

topology = build(FIELDS)
added = build(FIELDS, added=True)
wrong = build(FIELDS.replace("price decimal(12,2)", "price int"))
"""


class Site:
    """Both stores, a folder of orders, an application, and the command line in this process with executors in this
    process.
    """

    def __init__(self, world: World, application: str, run: Callable[..., Said]) -> None:
        self.world, self.application, self.run = world, application, run
        self.bad: set[int] = set()
        """Txids on which the user's code fails."""

    def make_executor(self, topology: Topology, digest: bytes, _: Any) -> InProcessExecutor:
        return InProcessExecutor(topology, digest, faults=self._fail)

    def _fail(self, attempt: TransactionAttempt) -> None:
        if attempt.txid in self.bad:
            raise BatchDataError("bolts.py:12 ValueError: no hour", component="clean")

    def once(self, attribute: str = "topology") -> Said:
        """`txtopo run --once`."""
        return self.run("run", f"{self.application}:{attribute}", "--once", "--attempts-max", "1")

    def states(self) -> list[tuple[int, str, int | None]]:
        """(txid, state, redo_of) of the ledger, in order."""
        return self.world.query("select txid, state, redo_of from txtopo.ledger where txid > 0 order by txid")

    def actions(self) -> list[tuple[Any, ...]]:
        """(command, txid, reason) of the action log; each has an actor and a host."""
        assert self.world.query("select 1 from txtopo.action where actor = '' or host = ''") == []
        return self.world.query("select command, txid, reason from txtopo.action order by action_id")

    def is_whole(self) -> bool:
        """Are the totals those of the files?"""
        return self.world.totals() == recount(self.world.folder)


@pytest.fixture
def site(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Site:
    """Four files of orders, nothing has run."""
    monkeypatch.setenv("TXTOPO_DSN", world.dsn)
    monkeypatch.setenv("TXTOPO_ZK", world.zookeeper)
    monkeypatch.setenv("TXTOPO_ZOOKEEPER_SESSION_S", str(SESSION_S))
    monkeypatch.setenv("TXTOPO_ATTEMPTS_MAX", "1")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"orders_{abs(hash(tmp_path))}.py"
    file.write_text(APPLICATION.format(folder=str(world.folder)))
    made = Site(world, file.name, runner(capsys))
    monkeypatch.setattr("txtopo.app.spark_executor", made.make_executor)
    write_orders(world.folder, 4)
    return made


def test_a_failed_batch_is_retried_after_newer_files_arrived(site: Site) -> None:
    """Promise: retry is every failed batch again, with its stored metadata, after newer files arrived; no new input is
    planned; failing again is 1.
    """
    site.bad = {2}
    halted = site.once()
    write_orders(site.world.folder, 2, first=5)
    again = site.run("retry", "orders")
    site.bad = set()

    fixed = site.run("retry", "orders", "--reason", "the bolt is mended")
    after = site.states()
    nothing = site.run("retry", "orders")

    assert (halted.code, again.code, fixed.code, nothing.code) == (1, 1, 0, 0)
    assert "no hour" in again.err
    assert "batch 2 is committed" in fixed.out
    assert after == [(txid, "applied", None) for txid in (1, 2, 3, 4)]
    assert "Nothing to retry" in nothing.out
    assert ("retry", None, "the bolt is mended") in site.actions()
    assert site.world.query("select count(*) from txtopo.request where state = 'open'") == [(0,)]
    assert site.once().code == 0
    assert site.is_whole()


def test_a_skipped_batch_is_redriven_once(site: Site) -> None:
    """Promise: skip quarantines a batch in its place; redrive brings it back as a new txid, twice commits once, the
    source does not move.
    """
    site.bad = {2}
    site.once()

    before = everything(site.world.dsn)
    dry = [site.run("skip", "orders", "2", "--dry-run"), site.run("retry", "orders", "--dry-run")]
    unchanged = everything(site.world.dsn) == before
    skipped = site.run("skip", "orders", "2", "--reason", "damaged")
    behind = site.states()
    site.bad = set()
    redriven, twice = site.run("redrive", "orders", "2"), site.run("redrive", "orders", "2")

    assert [said.code for said in (*dry, skipped, redriven, twice)] == [0] * 5
    assert unchanged
    assert behind[:2] == [(1, "applied", None), (2, "quarantined", None)]
    assert site.states() == [
        (1, "applied", None),
        (2, "quarantined", None),
        (3, "applied", None),
        (4, "applied", None),
        (5, "applied", 2),
    ]
    assert "batch 2 was redone as batch 5" in twice.out
    assert site.is_whole()
    assert [(command, reason) for command, _, reason in site.actions()] == [("skip", "damaged"), ("redrive", None)]
    assert site.once().code == 0
    assert len(site.states()) == 5
    assert site.run("audit", "orders").code == 0


def test_a_wrong_schema_is_planned_anew(site: Site) -> None:
    """Promise: replan drops plans that were never mirrored, for a declared schema that was wrong; a retry alone keeps
    the stored one.
    """
    site.bad = {1, 2, 3, 4}
    halted = site.once("wrong")
    site.bad = set()
    kept = site.run("retry", "orders", "--app", f"{site.application}:topology")

    replanned = site.run("replan", "orders", "--reason", "price has cents", "--app", f"{site.application}:topology")

    assert (halted.code, kept.code, replanned.code) == (1, 1, 0), replanned.err
    assert "planned with" in kept.err
    assert "plans of batches 1, 2, 3, 4 dropped" in replanned.out
    assert ("replan", None, "price has cents") in site.actions()
    assert site.once().code == 0
    assert site.is_whole()


def test_recomputed_batches_equal_a_rebuild(site: Site) -> None:
    """Promise: --recompute of a subset after the source was corrected: the table equals a rebuild, and the audit says
    MATCH.
    """
    assert site.once().code == 0
    for txid in (2, 4):
        file = site.world.folder / f"order_{txid:04}.csv"
        file.write_text("\n".join(file.read_text().splitlines()[:11]) + "\n")

    done = site.run("replay", "orders", "1,2,4", "--recompute", "--execute", "--reason", "corrected")
    again = site.run("replay", "orders", "2", "--recompute", "--execute", "--reason", "once more")

    assert (done.code, again.code) == (0, 0), done.err + again.err
    assert site.states()[4:] == [(5, "applied", 1), (6, "applied", 2), (7, "applied", 4), (8, "applied", 6)]
    assert site.is_whole()
    audited = site.run("audit", "orders")
    assert audited.code == 0, audited.out
    assert site.run("replay", "orders", "..", "--verify").code == 0


def test_rows_that_come_late_into_a_counted_file_are_told_by_every_run_and_found_by_the_audit(site: Site) -> None:
    """A cron job over a log that grows: never a green run without a word. A recompute counts them."""
    assert site.once().code == 0
    late = site.world.folder / "order_0002.csv"
    with late.open("a") as out:
        out.write("9001,shop 7,a7,1,1.00\n")

    for _ in range(2):
        again = site.once()
        assert again.code == 0 and f"{str(late)!r} was read before and has other content now: ignored" in again.err
    assert not site.is_whole()
    audited = site.run("audit", "orders")
    assert audited.code == 1 and str(late) in audited.out

    assert site.run("replay", "orders", "2", "--recompute", "--execute", "--reason", "late rows").code == 0
    assert site.is_whole()
    assert "was read before" not in site.once().err


@contextmanager
def leading(site: Site) -> Iterator[DriverProcess]:
    """A driver process that leads and has committed everything."""
    driver: DriverProcess = site.world.start(once=False)
    wait_until(lambda: driver.process.poll() is None and site.states()[-1:] == [(4, "applied", None)], "four commits")
    yield driver
    driver.process.kill()
    driver.wait()


def test_a_living_leader_carries_orders_out(site: Site) -> None:
    """Promise: beside a live leader it is an order that the leader carries out, in its turn, and the command follows
    along.
    """
    with leading(site) as driver:
        recomputed = site.run("replay", "orders", "2,3", "--recompute", "--execute", "--reason", "to see")
        replanned = site.run("replan", "orders", "--reason", "to see")
        write_orders(site.world.folder, 1, first=5)
        wait_until(lambda: len(site.states()) == 7, "a commit after the lead was taken anew")

        assert (recomputed.code, replanned.code) == (0, 0), recomputed.err + replanned.err + driver.output()
        assert "in place of batch 2" in recomputed.err
        assert site.states()[4:] == [(5, "applied", 2), (6, "applied", 3), (7, "applied", None)]
        assert site.is_whole()


def test_an_order_that_a_leader_had_begun_when_it_died_is_carried_out_once(site: Site) -> None:
    """Promise: an order that a leader had begun when it died is carried out once, by the next one."""
    with leading(site) as driver:
        driver.pause()
        left = site.run("replay", "orders", "2", "--recompute", "--execute", "--reason", "x", "--no-run")
    dying = site.world.start(failpoints="metadata_written=exit@1")
    died = dying.wait()

    next_one = site.once()

    assert died == -9, dying.output()
    assert (left.code, next_one.code) == (0, 0), next_one.err
    assert site.states()[4:] == [(5, "applied", 2)]
    assert site.world.query("select state from txtopo.request") == [("done",)]
    assert len(site.actions()) == 1
    assert site.is_whole()


def test_any_subset_of_fifty_batches_recomputed_equals_a_rebuild(site: Site) -> None:
    """Promise: --recompute of any subset of 50 batches after the source was corrected: the table equals a rebuild, and
    the audit says MATCH.
    """
    seed = secrets.randbelow(1 << 30)
    chance = random.Random(seed)
    write_orders(site.world.folder, 50, rows=12)
    assert site.once().code == 0
    for _ in range(2):
        corrected = sorted(chance.sample(range(1, 51), 12))
        for txid in corrected:
            correct(site.world.folder / f"order_{txid:04}.csv", chance)
        also = chance.sample(range(1, 51), 3)  # a recompute of what was right changes nothing
        spans = ",".join(map(str, sorted({*corrected, *also})))

        done = site.run("replay", "orders", spans, "--recompute", "--execute", "--reason", "corrected")

        assert done.code == 0, f"seed {seed}: {done.err}"
        assert site.is_whole(), f"seed {seed}"
    audited = site.run("audit", "orders")
    assert audited.code == 0, f"seed {seed}: {audited.out}"


def correct(path: Path, chance: random.Random) -> None:
    """Another truth under the same name: rows fewer, more, changed, or none at all."""
    header, *rows = path.read_text().splitlines(keepends=True)
    match chance.randrange(4):
        case 0:
            rows = rows[: chance.randrange(len(rows) + 1)]  # an earlier correction may have left none
        case 1:
            rows = [*rows, *rows, "1,shop 9,a9,3,4.50\n"]
        case 2:
            rows = [row.replace("shop", "Shop") for row in rows]
        case _:
            rows = []
    path.write_text(header + "".join(rows))


def test_a_committer_that_was_added_is_filled_by_a_command(site: Site) -> None:
    """Promise: the start says what it lacks, `backfill` counts each batch into it once, every command knows such
    batches, and a recompute replaces them.
    """
    world = site.world
    site.once()
    write_orders(world.folder, 1, first=5)
    started = site.once("added")
    dry = site.run("backfill", "orders", "by_shop", "--dry-run")
    strange = site.run("backfill", "orders", "nobody", "--app", f"{site.application}:added")
    before = site.states()

    with txtopo.connect(world.dsn) as client:
        order = client.backfill("orders", "by_shop", reason="by shop, ticket 12")
        status = site.run("status", "orders")
        filled = site.run("backfill", "orders", "by_shop")
        nothing = client.backfill("orders", "by_shop")
    twice = site.run("backfill", "orders", "by_shop")

    assert order is not None and (order.kind, order.state, nothing) == ("backfill", "open", None)
    assert f"backfill of by_shop (order {order.order_id}, 0 batches counted so far)" in status.out
    assert "committer by_shop is new: it counts from batch 5 on, and txtopo backfill orders by_shop" in started.err
    assert "4 batches of orders, 1 to 4, would be counted into by_shop (table public.shop_totals)" in dry.out
    assert (strange.code, "has no committer nobody" in strange.err) == (1, True)
    assert before == [(txid, "applied", None) for txid in range(1, 6)]
    assert (filled.code, "4 batches counted into by_shop" in filled.out) == (0, True), filled
    assert (twice.code, "has counted every batch; nothing to do" in twice.out) == (0, True)
    counts = "select txid, backfills, committer from txtopo.ledger where backfills is not null order by txid"
    assert world.query(counts) == [(5 + txid, txid, "by_shop") for txid in (1, 2, 3, 4)]
    assert site.actions() == [("backfill", 5 + txid, "by shop, ticket 12") for txid in (1, 2, 3, 4)]
    assert "backfills batch 2, into committer by_shop" in " ".join(site.run("show", "orders", "7").out.split())
    verified = site.run("replay", "orders", "1..9", "--verify")
    assert (verified.code, verified.out.count("MATCH")) == (0, 9), verified
    assert site.run("audit", "orders").code == 0

    file = world.folder / "order_0002.csv"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:5]))
    again = site.run("replay", "orders", "7", "--recompute", "--execute", "--reason", "corrected")

    assert again.code == 0, again
    assert site.states()[-1] == (10, "applied", 2)
    verified = site.run("replay", "orders", "1..10", "--verify")
    assert (verified.code, verified.out.count("MATCH")) == (0, 8), verified
    assert site.run("audit", "orders").code == 0
    sums = "select sum(rows) from shop_totals union all select sum(rows) from order_totals"
    assert len(set(world.query(sums))) == 1
    assert site.is_whole()
