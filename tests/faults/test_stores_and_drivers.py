"""Whole-system faults on real stores: servers restarted or wiped, two drivers at once, a paused leader, kills at random
moments.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.drivers import World, wait_until, zookeeper_client
from tests.kit.orders import recount, write_orders
from txtopo.coordinators.ended_processes import new_nonce
from txtopo.coordinators.paths import TopologyPaths
from txtopo.local.postgres import LocalPostgres
from txtopo.local.zookeeper import LocalZooKeeper

SHORT_SESSION_S = "1"
"""Each driver waits for the end of the session of the one before. One that loses its own tries again."""
LONG_SESSION_S = 60.0
"""The longest session that the server of the tests grants."""


@pytest.fixture
def fragile(database_to_crash: str, own_zookeeper: LocalZooKeeper, tmp_path: Path) -> Iterator[World]:
    """On servers that may be crashed."""
    made = World(database_to_crash, f"{own_zookeeper.hosts}/txtopo", tmp_path / "orders", tmp_path)
    made.folder.mkdir()
    yield made
    made.close()


def test_postgres_crashes_in_mid_run(fragile: World, postgres_to_crash: LocalPostgres) -> None:
    """Postgres away is waited out: no loss, no duplicate, no operator."""
    write_orders(fragile.folder, 5)
    driver = fragile.start(once=False)
    wait_until(lambda: fragile.last_txid() >= 5, "the first five batches")

    postgres_to_crash.crash()
    write_orders(fragile.folder, 5, first=6)
    postgres_to_crash.start()
    wait_until(lambda: fragile.last_txid() == 10, "all ten batches")

    driver.process.terminate()
    assert driver.wait() == 143, driver.output()
    assert fragile.totals() == recount(fragile.folder)
    fragile.check_ledger(10)


def test_zookeeper_restarts_in_mid_run(fragile: World, own_zookeeper: LocalZooKeeper) -> None:
    """ZooKeeper away is waited out, whether or not the session survives."""
    write_orders(fragile.folder, 5)
    driver = fragile.start(once=False)
    wait_until(lambda: fragile.last_txid() >= 5, "the first five batches")

    own_zookeeper.crash()
    write_orders(fragile.folder, 5, first=6)
    own_zookeeper.start()
    wait_until(lambda: fragile.last_txid() == 10, "all ten batches")

    driver.process.terminate()
    assert driver.wait() == 143, driver.output()
    assert fragile.totals() == recount(fragile.folder)
    fragile.check_ledger(10)


def test_zookeeper_wiped_between_two_runs(fragile: World, own_zookeeper: LocalZooKeeper) -> None:
    """R11: absent in ZooKeeper and present in Postgres is restored; what was consumed stays consumed."""
    write_orders(fragile.folder, 4)
    assert fragile.start().wait() == 0

    own_zookeeper.wipe()
    write_orders(fragile.folder, 3, first=5)
    second = fragile.start()

    assert second.wait() == 0, second.output()
    assert fragile.totals() == recount(fragile.folder)
    fragile.check_ledger(7)


def test_zookeeper_wiped_after_a_driver_died_with_mirrored_plans(fragile: World, own_zookeeper: LocalZooKeeper) -> None:
    """R9, R11: plans that were mirrored and not committed come back from Postgres."""
    write_orders(fragile.folder, 4)
    killed = fragile.start(failpoints="before_commit=exit@2")
    assert killed.wait() == -9

    own_zookeeper.wipe()
    second = fragile.start()

    assert second.wait() == 0, second.output()
    assert fragile.totals() == recount(fragile.folder)
    fragile.check_ledger(4)


def test_a_paused_leader_wakes_after_another_has_committed(world: World) -> None:
    """R4: the woken one changes nothing and exits with 4."""
    write_orders(world.folder, 6)
    leader = world.start(failpoints="before_commit=stop@3")
    wait_until(lambda: leader.is_stopped, "the pause of the leader")
    standby = world.start()
    assert standby.wait() == 0, standby.output()
    before = world.totals(), world.query("select * from txtopo.ledger order by txid")

    leader.wake()

    assert leader.wait() == 4, leader.output()
    assert (world.totals(), world.query("select * from txtopo.ledger order by txid")) == before
    assert world.totals() == recount(world.folder)
    world.check_ledger(6)
    world.check_nothing_left_over()


def test_a_leader_paused_between_two_batches_exits_with_4(world: World) -> None:
    """The same outside a database transaction: the fence refuses, or the lost session is noticed."""
    write_orders(world.folder, 6)
    leader = world.start(failpoints="committed=stop@3", TXTOPO_RUN_TXIDS_MAX="1")
    wait_until(lambda: leader.is_stopped, "the pause of the leader")
    standby = world.start()
    assert standby.wait() == 0, standby.output()

    leader.wake()

    assert leader.wait() == 4, leader.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(6)


def test_a_second_driver_says_who_leads_and_takes_over_when_the_leader_dies(world: World) -> None:
    """Starting a second driver for the same topology prints who holds it. When its process has ended, the second one
    need not wait for its session (R30), which is longer than this test waits.
    """
    write_orders(world.folder, 3)
    leader = world.start(once=False, TXTOPO_ZOOKEEPER_SESSION_S=str(LONG_SESSION_S))
    wait_until(lambda: world.last_txid() == 3, "the first three batches")
    standby = world.start(once=False)
    wait_until(lambda: f"pid {leader.process.pid}" in standby.output(), "the name of the leader")

    leader.process.kill()
    leader.wait()
    write_orders(world.folder, 3, first=4)
    wait_until(lambda: world.last_txid() == 6, "six batches", LONG_SESSION_S / 2)

    standby.process.terminate()
    assert standby.wait() == 143, standby.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(6)


def test_kills_at_random_moments(world: World) -> None:
    """Kills while files keep coming; the last driver finishes."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    written = 0
    for _ in range(5):
        write_orders(world.folder, 3, first=written + 1)
        written += 3
        driver = world.start(once=False, TXTOPO_ZOOKEEPER_SESSION_S=SHORT_SESSION_S)
        target = chance.randrange(world.last_txid(), written + 1)
        wait_until(lambda target=target: world.last_txid() >= target, f"batch {target}")  # type: ignore[misc]
        driver.process.kill()
        driver.wait()

    last = world.start()

    assert last.wait() == 0, last.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(written)
    world.check_nothing_left_over()


def test_another_topology_name_on_the_same_table_is_refused(world: World) -> None:
    """A renamed topology cannot count everything twice."""
    write_orders(world.folder, 2)
    assert world.start().wait() == 0
    before = world.totals()

    renamed = world.start(DRIVER_NAME="renamed")

    assert renamed.wait() == 1, renamed.output()
    assert "order_totals" in renamed.output()
    assert world.totals() == before


def test_an_unreadable_znode_halts_with_its_path(world: World) -> None:
    """Z14: anything unreadable halts with the path, never reads as "no state"."""
    write_orders(world.folder, 2)
    assert world.start().wait() == 0
    with zookeeper_client(world.zookeeper) as client:
        client.set("/orders/coordinator/currtx", b"what?")

    driver = world.start()

    assert driver.wait() == 1
    assert "/orders/coordinator/currtx" in driver.output()


def test_a_standby_whose_session_ended_stands_in_the_queue_again(world: World) -> None:
    """An outage of ZooKeeper that is longer than the session must not end all standbys: the place is taken anew, and
    the lead when it comes.
    """
    write_orders(world.folder, 2)
    leader = world.start(once=False)
    wait_until(lambda: world.last_txid() == 2, "both batches")
    standby = world.start(once=False)
    wait_until(lambda: "waiting as standby" in standby.output(), "the standby")

    with zookeeper_client(world.zookeeper) as client:
        standby.pause()
        wait_until(lambda: len(client.get_children("/orders/leader")) == 1, "the end of the session of the standby")
        standby.wake()
        wait_until(lambda: len(client.get_children("/orders/leader")) == 2, "its return to the queue")
    assert "no lead: zookeeper: " in standby.output() and "; trying again" in standby.output()
    leader.process.kill()
    write_orders(world.folder, 1, first=3)
    wait_until(lambda: world.last_txid() == 3, "a batch of the standby")

    standby.process.terminate()
    assert standby.wait() == 143, standby.output()
    assert world.totals() == recount(world.folder)


def test_what_strangers_do_to_the_nodes_of_a_leader_makes_it_take_the_lead_anew(world: World) -> None:
    """Its place in the queue is removed; then the epoch is overwritten, as if another driver led. Postgres knows
    better: nobody has led since. Its new place does not say where its process is: whoever removed the first one because
    of that would remove each of them (R30).
    """
    write_orders(world.folder, 2)
    leader = world.start(once=False)
    wait_until(lambda: world.last_txid() == 2, "both batches")
    with zookeeper_client(world.zookeeper) as client:
        (place,) = client.get_children("/orders/leader")
        client.delete(f"/orders/leader/{place}")
        wait_until(lambda: "leading with epoch 2" in leader.output(), "a new lead")
        assert "was removed, although its session is alive; trying again" in leader.output()
        (again,) = client.get_children("/orders/leader")
        paths = TopologyPaths("orders")
        first, second = (uuid.UUID(paths.candidate(name)[0]).node for name in (place, again))
        assert first == uuid.UUID(new_nonce()).node != second

        epoch = client.get("/orders/epoch")[0]
        client.set("/orders/epoch", epoch.replace(b'"epoch":2', b'"epoch":7'))
        write_orders(world.folder, 2, first=3)
        wait_until(lambda: "leading with epoch 8" in leader.output(), "a lead above what the stranger wrote")
    assert "the fence in Postgres is still this driver's, so something else wrote it" in leader.output()
    wait_until(lambda: world.last_txid() == 4, "all batches")

    leader.process.terminate()
    assert leader.wait() == 143, leader.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(4)
