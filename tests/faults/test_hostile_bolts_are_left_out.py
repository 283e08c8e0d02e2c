"""Hostile bolts in a whole driver on real Spark and real stores: each batch ends in a quarantine that says why, its
neighbours in order.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.drivers import World, jvm_of, wait_until
from tests.kit.orders import recount, write_orders

FILES = 5
HOSTILE = {2: "exit", 4: "raise"}


def tell(path: Path, word: str) -> None:
    """One row of the file, on line 4, tells the bolt what to do."""
    lines = path.read_text().splitlines(keepends=True)
    fields = lines[3].split(",")
    lines[3] = ",".join([*fields[:2], word, *fields[3:]])
    path.write_text("".join(lines))


@pytest.mark.slow
@pytest.mark.spark
def test_hostile_batches_are_quarantined_and_their_neighbours_committed_in_order(world: World) -> None:
    """A bolt that ends its process and one that fails on one row of one file: neither is an endless loop, and both are
    named. At the end its JVM was stopped in order, and nothing that Spark prints was seen.
    """
    paths = dict(enumerate(write_orders(world.folder, FILES, rows=5), 1))
    for txid, word in HOSTILE.items():
        tell(paths[txid], word)

    driver = world.start(
        module=("tests.kit.hostile_driver",),
        TXTOPO_ON_POISON="quarantine_batch",
        TXTOPO_ATTEMPTS_MAX="1",
    )
    wait_until(lambda: "leading with epoch 1" in driver.output() or driver.process.poll() is not None, "the lead", 240)
    jvm = jvm_of(driver.process.pid)
    assert jvm is not None, driver.output()
    assert driver.wait(240) == 0, driver.output()
    assert not Path(f"/proc/{jvm}").exists()
    assert all(line.startswith("orders: ") for line in driver.output().splitlines()), driver.output()

    rows = world.query("select txid, state, coalesce(reason, '') from txtopo.ledger where txid > 0 order by txid")
    assert [(txid, state) for txid, state, _ in rows] == [
        (txid, "quarantined" if txid in HOSTILE else "applied") for txid in range(1, FILES + 1)
    ]
    reasons = {txid: reason for txid, _, reason in rows}
    assert "no verdict from 3 attempts that ran alone" in reasons[2]
    assert "ValueError: told to; on " in reasons[4]
    assert f"{paths[4]}:4" in reasons[4]
    for txid in HOSTILE:
        paths[txid].unlink()
    assert world.totals() == recount(world.folder)
