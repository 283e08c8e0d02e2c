"""The runner's loop on memory stores: what it writes down, how it ends, what it does with trouble in a queue."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.kit.applications import orders_topology
from tests.kit.orders import write_orders
from txtopo import AggregateCommitter, CountCommitter
from txtopo.committers.memory.memory_ledger import MemoryLedger
from txtopo.core.events import AttemptEnded
from txtopo.core.state import Rules, State
from txtopo.core.values import Outcome, TransactionAttempt
from txtopo.errors import Halted, PostgresUnavailable
from txtopo.ports import Assignment, Executor, Tell, tell_nobody
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.testing.simulated import SerialInbox, SimulatedDriver, SimulatedStores
from txtopo.topology.components import Topology


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_orders(tmp_path / "orders", 3, rows=5)
    return tmp_path / "orders"


def test_a_stop_order_ends_the_run_and_is_answered(folder: Path) -> None:
    """`txtopo stop`: the leader finishes what is in processing, answers and ends."""
    stores = SimulatedStores()
    driver = SimulatedDriver(topology=orders_topology(folder), stores=stores, once=False)
    asked: list[int] = []

    def ask(state: State) -> None:
        if not asked and state.last_txid == 3:
            asked.append(stores.postgres.ask("orders", "stop"))

    driver.watch = ask
    end = driver.run()

    assert end.kind == "stopped"
    assert stores.postgres.orders[asked[0]][1].state == "done"
    assert stores.postgres.topologies["orders"].life["state"] == "stopped"


def test_a_run_goes_on_with_new_files_until_it_is_stopped(folder: Path) -> None:
    """New files become new batches while it runs."""
    stores = SimulatedStores()
    driver = SimulatedDriver(topology=orders_topology(folder), stores=stores, once=False)
    steps: list[str] = []

    def act(state: State) -> None:
        if state.last_txid == 3 and not steps:
            steps.append("more")
            write_orders(folder, 2, rows=5, first=4)
        if state.last_txid == 5 and len(steps) == 1:
            steps.append("stop")
            stores.postgres.ask("orders", "stop")

    driver.watch = act

    assert driver.run().kind == "stopped"
    assert stores.postgres.topologies["orders"].fence.last_txid == 5


def test_a_bad_file_halts_after_the_batches_before_it_and_a_mended_bolt_goes_on(folder: Path) -> None:
    """The batch, the cause (file and line) and the next command are in the message; nothing after it is committed."""
    bad = folder / "order_0002.csv"
    bad.write_text(bad.read_text() + "9,shop 1,a1,many,1.00\n")
    stores = SimulatedStores()

    end = SimulatedDriver(topology=orders_topology(folder), stores=stores).run()

    assert end.kind == "halted"
    assert f"{bad}:7" in end.reason
    assert "batch 2 of orders" in end.reason
    assert end.next_command == "txtopo show orders 2"
    inputs = stores.postgres.topologies["orders"].attempts[(2, 0)].inputs
    assert [file["path"] for value in inputs.values() for file in value["files"]] == [
        str(bad)
    ]  # known without ZooKeeper
    assert stores.postgres.topologies["orders"].fence.last_txid == 1
    assert stores.postgres.topologies["orders"].life["state"] == "halted"


def test_a_file_that_cannot_be_planned_halts_after_the_batches_before_it(folder: Path) -> None:
    """A missing column halts naming file and column; the good files before it are committed."""
    (folder / "order_0003.csv").write_text("id,shop,article,price\n1,s,a,1.00\n")
    stores = SimulatedStores()

    end = SimulatedDriver(topology=orders_topology(folder), stores=stores).run()

    assert end.kind == "halted"
    assert "order_0003.csv" in end.reason and "pieces" in end.reason
    assert stores.postgres.topologies["orders"].fence.last_txid == 2


def test_a_file_whose_name_is_not_utf_8_halts_with_its_bytes_and_what_to_do(folder: Path) -> None:
    """Neither store can keep such a name, and a file must not be left out in silence: the files before it are
    committed, then it is named.
    """
    (folder / "order_0003.csv").rename(folder / os.fsdecode(b"order_0003\xff.csv"))
    stores = SimulatedStores()

    end = SimulatedDriver(topology=orders_topology(folder), stores=stores).run()

    assert end.kind == "halted"
    assert r"order_0003\xff.csv' is not UTF-8: rename the file" in end.reason
    assert stores.postgres.topologies["orders"].fence.last_txid == 2


class BrokenExecutor(InProcessExecutor):
    """Loses its JVM, so to speak, with its first batch."""

    def process(self, wave: Sequence[Assignment], tell: Tell = tell_nobody) -> Sequence[Outcome]:
        self.broken = "the JVM is gone"
        return super().process(wave, tell)


def test_a_driver_whose_executor_is_broken_ends(folder: Path) -> None:
    """K11: never a second Spark in the same epoch."""

    def make(topology: Topology, code_hash: bytes) -> Executor:
        return BrokenExecutor(topology, code_hash)

    stores = SimulatedStores()

    end = SimulatedDriver(topology=orders_topology(folder), stores=stores, make_executor=make).run()

    assert (end.kind, end.reason) == ("executor_lost", "the JVM is gone; start `txtopo run` again")
    rows = stores.postgres.topologies["orders"]
    assert (rows.life["state"], rows.life["reason"]) == ("stopped", end.reason)
    assert "begun" in {attempt.state for attempt in rows.attempts.values()}, "what it may have died of is a suspect"


def test_an_outcome_is_an_event_before_the_rest_of_its_wave_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wave that runs batch by batch may take long: the batch whose turn it is commits meanwhile."""
    write_orders(tmp_path / "orders", 8, rows=1)
    ended: list[int] = []
    heard: dict[int, list[int]] = {}
    put = SerialInbox.put

    def noting(inbox: SerialInbox, item: object) -> None:
        if isinstance(item, AttemptEnded):
            ended.append(item.outcome.attempt.txid)
        put(inbox, item)

    monkeypatch.setattr(SerialInbox, "put", noting)

    def make(topology: Topology, code_hash: bytes) -> Executor:
        return InProcessExecutor(topology, code_hash, faults=lambda one: heard.update({one.txid: list(ended)}))

    end = SimulatedDriver(
        topology=orders_topology(tmp_path / "orders"),
        stores=SimulatedStores(),
        make_executor=make,
        rules=Rules(workers=1, wave_txids_max=8),
    ).run()

    assert end.kind == "finished"
    assert heard == {txid: list(range(1, txid)) for txid in range(1, 9)}


def test_metadata_beyond_64_kib_goes_to_postgres(tmp_path: Path) -> None:
    """The znode keeps digest and pointer; the batch is emitted from the piece in Postgres."""
    folder = tmp_path / "orders"
    write_orders(folder, 400, rows=1)
    stores = SimulatedStores()

    end = SimulatedDriver(topology=orders_topology(folder, files_per_batch=400), stores=stores).run()

    assert end.kind == "finished"
    rows = stores.postgres.topologies["orders"]
    assert rows.fence.last_txid == 1
    assert len(stores.postgres.parts) == 1
    assert len(rows.plans[1][1]) < 1000
    assert len(rows.sources) == 400


def test_postgres_may_be_away_at_every_reading_of_long_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also right after the batch was planned: it is waited for, and nothing ends the run."""
    folder = tmp_path / "orders"
    write_orders(folder, 400, rows=1)
    read, away = MemoryLedger.read_part, [True, True, True]

    def read_later(ledger: MemoryLedger, digest: str) -> bytes:
        if away:
            away.pop()
            raise PostgresUnavailable("away")
        return read(ledger, digest)

    monkeypatch.setattr(MemoryLedger, "read_part", read_later)
    stores = SimulatedStores()

    end = SimulatedDriver(topology=orders_topology(folder, files_per_batch=400), stores=stores).run()

    assert end.kind == "finished"
    assert stores.postgres.topologies["orders"].fence.last_txid == 1
    assert not away


def test_results_of_other_code_are_never_committed(folder: Path) -> None:
    """R12: the code hash belongs to the attempt, and an attempt commits only if it is the leader's."""

    def make(topology: Topology, _code_hash: bytes) -> Executor:
        return InProcessExecutor(topology, b"another")

    stores = SimulatedStores()

    end = SimulatedDriver(topology=orders_topology(folder), stores=stores, make_executor=make).run()

    assert end.kind == "halted"
    assert stores.postgres.topologies["orders"].fence.last_txid == 0


def test_assignments_carry_whole_metadata(folder: Path) -> None:
    """Pieces are put back before an executor sees them."""
    seen: list[Assignment] = []

    class Watching(InProcessExecutor):
        def process(self, wave: Sequence[Assignment], tell: Tell = tell_nobody) -> Sequence[Outcome]:
            seen.extend(wave)
            return super().process(wave, tell)

    def make(topology: Topology, code_hash: bytes) -> Executor:
        return Watching(topology, code_hash)

    SimulatedDriver(
        topology=orders_topology(folder, files_per_batch=3), stores=SimulatedStores(), make_executor=make
    ).run()

    assert [len(assignment.metadata["files"]["files"]) for assignment in seen] == [3]


@pytest.mark.parametrize("loss", ["session", "fenced"])
def test_a_lost_lead_stops_the_jobs_that_run(folder: Path, loss: str) -> None:
    """R15: step-down stops jobs, whoever ended the lead. Some seeds have none left by then."""
    write_orders(folder, 30, rows=1)
    stopped: set[str] = set()
    for seed in range(8):
        stores = SimulatedStores()
        cancelled: list[str] = []
        running: set[str] = set()

        class Noting(InProcessExecutor):
            def cancel(self, attempt: TransactionAttempt, cancelled: list[str] = cancelled) -> None:
                cancelled.append(str(attempt))
                super().cancel(attempt)

        driver = SimulatedDriver(topology=orders_topology(folder), stores=stores, make_executor=Noting, seed=seed)
        watching = partial(lose_once, driver, stores, loss, [])

        def watch(state: State, running: set[str] = running, watching: Callable[[State], None] = watching) -> None:
            running.clear()
            running.update(map(str, state.running))
            watching(state)

        driver.watch = watch
        end = driver.run()

        assert end.kind == ("lead_lost" if loss == "session" else "fenced")
        assert running <= set(cancelled), seed
        stopped |= running
    assert stopped


def lose_once(driver: SimulatedDriver, stores: SimulatedStores, loss: str, lost: list[str], state: State) -> None:
    """Take the lead away when the first attempts run."""
    if lost or not state.running:
        return
    lost.append(loss)
    if loss == "session" and driver.session is not None:
        stores.zookeeper.expire(driver.session)
    else:
        rows = stores.postgres.topologies["orders"]
        rows.fence = replace(rows.fence, epoch=99)


def test_a_run_once_on_a_folder_that_is_not_there_halts_and_says_so(tmp_path: Path) -> None:
    """A typo in a path must not look like "no files yet"."""
    stores = SimulatedStores()

    end = SimulatedDriver(topology=orders_topology(tmp_path / "nowhere"), stores=stores).run()

    assert end.kind == "halted"
    assert str(tmp_path / "nowhere") in end.reason


def test_a_folder_that_is_not_there_yet_is_waited_for_aloud(tmp_path: Path) -> None:
    """Without `once` it may come; the operator is told once."""
    stores = SimulatedStores()
    driver = SimulatedDriver(topology=orders_topology(tmp_path / "later"), stores=stores, once=False)
    steps: list[str] = []

    def act(state: State) -> None:
        if stores.clock.now > 1060 and not steps:
            steps.append("made")
            write_orders(tmp_path / "later", 1, rows=2)
        if state.last_txid == 1 and len(steps) == 1:
            steps.append("stop")
            stores.postgres.ask("orders", "stop")

    driver.watch = act

    assert driver.run().kind == "stopped"
    assert len([line for line in driver.said if "cannot be read" in line]) == 1


def renamed(folder: Path, **names: str) -> Topology:
    """The same topology with another name for its spout or its committer, or a committer that keeps no contributions."""  # noqa: E501
    topology = orders_topology(folder)
    spout, committer = topology.spouts[0], topology.committers[0]
    source = names.get("spout", spout.name)
    inputs = tuple(replace(one, source=source) for one in committer.inputs)
    changed = replace(
        committer,
        name=names.get("committer", committer.name),
        input=replace(committer.input, source=source),
        inputs=inputs,
        bolt=CountCommitter(
            "order_totals", ["shop", "article"], count="rows", sums=["pieces", "price"], contributions=False
        )
        if "contributions" in names
        else AggregateCommitter(
            "order_totals",
            ["shop", "article"],
            count="rows",
            sums=["pieces", "price"],
            distinct={names["distinct"]: "sizes"},
        )
        if "distinct" in names
        else committer.bolt,
    )
    return replace(topology, spouts=(replace(spout, name=source),), committers=(changed, *topology.committers[1:]))


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (
            {"spout": "deliveries"},
            "spout files was removed and deliveries is new. If deliveries is files renamed, .* counted again",
        ),
        ({"committer": "by_store"}, "belongs to committer totals of topology orders"),
        (
            {"distinct": "pieces"},
            "committer totals of orders has counted batches, and now has distinct values of pieces as sizes, which it",
        ),
        (
            {"contributions": "none"},
            "and now has contributions False instead of True: what it counted before does not fit",
        ),
    ],
)
def test_a_topology_that_does_not_fit_what_is_committed_is_refused_and_changes_nothing(
    folder: Path, names: dict[str, str], why: str
) -> None:
    """Under a new name a spout would give all its input again. What the topology is stays what it was, for audits;
    `status` is told why.
    """
    stores = SimulatedStores()
    SimulatedDriver(topology=orders_topology(folder), stores=stores).run()
    rows = stores.postgres.topologies["orders"]
    before, counts = rows.life["description"], dict(stores.postgres.tables)

    with pytest.raises(Halted, match=why):
        SimulatedDriver(topology=renamed(folder, **names), stores=stores).run()

    assert rows.life["description"] == before
    assert stores.postgres.tables == counts
    assert rows.life["state"] == "halted"
    assert re.search(why, rows.life["reason"])
    assert SimulatedDriver(topology=orders_topology(folder), stores=stores).run().kind == "finished"
    assert rows.life["state"] == "finished"


def test_a_source_is_replaced_by_way_of_both(folder: Path) -> None:
    """One run with the old and the new one; then the old one may go, and another come later."""
    stores = SimulatedStores()
    old, new = orders_topology(folder), renamed(folder, spout="deliveries")
    both = replace(old, spouts=(*old.spouts, *new.spouts))
    later = replace(new, spouts=(*new.spouts, replace(new.spouts[0], name="third")))

    for topology in (old, both, new, later):
        assert SimulatedDriver(topology=topology, stores=stores).run().kind == "finished"
    assert stores.postgres.topologies["orders"].life["description"]["spouts"].keys() == {"deliveries", "third"}


def test_a_committer_that_is_added_says_from_where_it_counts(folder: Path) -> None:
    """Its table has nothing of the batches before; the next start has nothing to say."""
    stores, topology = SimulatedStores(), orders_topology(folder)
    SimulatedDriver(topology=topology, stores=stores).run()
    by_shop = CountCommitter("shop_totals", ["shop"], count="rows")
    both = replace(topology, committers=(*topology.committers, replace(topology.committers[0], name="s", bolt=by_shop)))
    again = [SimulatedDriver(topology=both, stores=stores) for _ in range(2)]

    for driver in again:
        assert driver.run().kind == "finished"
    last_txid = stores.postgres.topologies["orders"].fence.last_txid
    said = [[line for line in driver.said if "is new" in line] for driver in again]
    words = f"committer s is new: it counts from batch {last_txid + 1} on, and txtopo backfill orders s counts the"
    assert said == [[f"{words} batches before"], []]
