"""Kill -9 and SIGSTOP in the turn of a batch, with bolts and counting committers downstream of committers, on real
stores: all of a turn or nothing, once.
"""

from __future__ import annotations

import csv
import json
import signal
from collections import Counter
from typing import Any

import pytest

from tests.kit.downstream_driver import BUCKETS, TABLES
from tests.kit.drivers import World, wait_until
from tests.kit.orders import write_orders
from txtopo.cli import main
from txtopo.core.crash_points import CrashPoint

MODULE = ("tests.kit.downstream_driver",)
FILES = 10
COMMITTERS = 4
"""In each turn `applied` is reached so often."""
BETWEEN = [f"applied=exit@{COMMITTERS + nth}" for nth in range(1, COMMITTERS + 1)]
"""In the second turn of a driver, behind each committer: of phase 0, of phase 1 (two), of phase 2."""
AROUND = [
    f"{point.value}=exit@2"
    for point in (CrashPoint.FENCE_LOCKED, CrashPoint.LEDGER_APPENDED, CrashPoint.BEFORE_COMMIT, CrashPoint.COMMITTED)
]


@pytest.fixture
def orders(world: World) -> World:
    """Orders, two of which come again in a later file."""
    for table in TABLES:
        world.execute(table)
    write_orders(world.folder, FILES, rows=12)
    with (world.folder / f"order_{FILES:04}.csv").open("a") as out:
        out.write("1003,shop 1,a1,1,1.00\n2004,shop 2,a2,2,2.00\n")
    return world


def ids(world: World) -> dict[int, str | None]:
    """Shop by order, as a reader of the files finds them."""
    found: dict[int, str | None] = {}
    for path in sorted(world.folder.glob("*.csv")):
        with path.open(newline="") as lines:
            for row in csv.DictReader(lines):
                found.setdefault(int(row["id"]), row["shop"] or None)
    return found


def check(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Each id once, with the attempt that the ledger names; counts of both phases; nothing for the audit to find."""
    wanted = ids(world)
    assert sorted(row[0] for row in world.query("select id from kept")) == sorted(wanted)
    shops = Counter(wanted.values())
    sums = {shop: sum(order for order, other in wanted.items() if other == shop) for shop in shops}
    assert {row[0]: (row[1], int(row[2])) for row in world.query("select shop, rows, id from by_shop")} == {
        shop: (count, sums[shop]) for shop, count in shops.items()
    }
    buckets = Counter(order % BUCKETS for order in wanted)
    assert dict(world.query("select bucket, rows from by_bucket")) == dict(buckets)
    ledger = world.query("select txid, attempt from txtopo.ledger where txid > 0 order by txid")
    assert [row[0] for row in ledger] == list(range(1, FILES + 1))
    assert set(world.query("select txid, attempt from kept")) == set(ledger)
    main(("audit", "orders", "--dsn", world.dsn, "--json"))
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["findings"] == []
    world.check_nothing_left_over()


def test_a_turn_with_components_downstream_of_committers_is_all_or_nothing_when_its_driver_dies(
    orders: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind the first committer of the second phase, and before COMMIT: each time another driver makes the turn whole,
    once.
    """
    for failpoint in (BETWEEN[1], "before_commit=exit@2"):
        killed = orders.start(module=MODULE, failpoints=failpoint)
        assert killed.wait() == -9, killed.output()
    last = orders.start(module=MODULE)

    assert last.wait() == 0, last.output()
    check(orders, capsys)


@pytest.mark.attack
def test_every_point_of_a_turn_can_be_the_last_of_its_driver_on_real_stores(
    orders: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """One driver after the other dies in its second turn, at the next point of it; and once by what a bolt does there."""  # noqa: E501
    sign = orders.logs / "sign"
    for failpoint in ("", *BETWEEN, *AROUND):
        before = orders.last_txid()
        killed = orders.start(module=MODULE, failpoints=failpoint, DOWNSTREAM_SIGNAL=f"{signal.SIGKILL:d} 1000 {sign}")
        assert killed.wait() == -9, f"{failpoint}: {killed.output()}"
        assert orders.last_txid() - before <= 2
    assert sign.exists()
    last = orders.start(module=MODULE)

    assert last.wait() == 0, last.output()
    check(orders, capsys)


@pytest.mark.attack
@pytest.mark.parametrize("where", ["between two committers", "in a bolt", "before COMMIT"])
def test_a_leader_paused_in_its_turn_past_its_session_changes_nothing_when_it_wakes(
    orders: World, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """R4, P6: the server ends its database transaction, a standby leads and commits everything; the woken one ends with
    4.
    """
    settings: dict[str, Any] = (
        {"DOWNSTREAM_SIGNAL": f"{signal.SIGSTOP:d} 2003 {orders.logs / 'sign'}"} if where == "in a bolt" else {}
    )
    points = {"between two committers": f"applied=stop@{COMMITTERS + 2}", "before COMMIT": "before_commit=stop@2"}
    leader = orders.start(module=MODULE, failpoints=points.get(where, ""), **settings)
    wait_until(lambda: leader.is_stopped, "the pause of the leader")
    assert orders.last_txid() == 1
    standby = orders.start(module=MODULE)
    assert standby.wait() == 0, standby.output()
    tables = ("kept", "seen", "by_shop", "by_bucket", "txtopo.ledger", "txtopo.attempt", "txtopo.fence")
    before = [orders.query(f"select t::text from {table} t order by 1") for table in tables]

    leader.wake()

    assert leader.wait() == 4, leader.output()
    assert [orders.query(f"select t::text from {table} t order by 1") for table in tables] == before
    check(orders, capsys)
