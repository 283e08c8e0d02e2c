"""Kill -9 of drivers with real Spark: in the middle of processing, before a COMMIT, and at a random moment.

The demo's test kills one right after a COMMIT, and `test_crash_points.py` kills at every point without Spark.
"""

from __future__ import annotations

import random

import pytest

from tests.kit.drivers import World, wait_until
from tests.kit.orders import recount, write_orders
from txtopo.core.crash_points import CrashPoint

MODULE = ("tests.kit.spark_driver",)
FILES = 40
POINTS = [
    (CrashPoint.ATTEMPT_BEGUN, 2),
    (CrashPoint.BEFORE_COMMIT, 5),
]


@pytest.mark.slow
@pytest.mark.spark
def test_counts_stay_right_when_spark_drivers_die_one_after_the_other(world: World) -> None:
    """Each new driver takes up the work of the one before it, which was killed in the middle of a run on Spark."""
    write_orders(world.folder, FILES)
    for point, nth in POINTS:
        driver = world.start(failpoints=f"{point.value}=exit@{nth}", module=MODULE)
        assert driver.wait() == -9, f"{point} was not reached:\n{driver.output()}"
    assert 0 < world.last_txid() < FILES
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    target = random.Random(seed).randrange(world.last_txid() + 1, FILES)
    driver = world.start(module=MODULE)
    wait_until(lambda: world.last_txid() >= target or driver.process.poll() is not None, f"batch {target}")
    driver.process.kill()

    last = world.start(module=MODULE)

    assert last.wait() == 0, last.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(FILES)
    world.check_nothing_left_over()
