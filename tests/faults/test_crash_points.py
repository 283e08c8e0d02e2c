"""Kill -9 at every named crash point, on real stores: afterwards the table equals an independent recount, each txid
once and in order.
"""

from __future__ import annotations

import pytest

from tests.kit.drivers import World
from tests.kit.orders import recount, write_orders
from txtopo.core.crash_points import CrashPoint

FILES = 6
A_WAVE = (CrashPoint.ATTEMPT_BEGUN, CrashPoint.PROCESSED)
A_BATCH = (
    CrashPoint.FENCE_LOCKED,
    CrashPoint.LEDGER_APPENDED,
    CrashPoint.APPLIED,
    CrashPoint.BEFORE_COMMIT,
    CrashPoint.COMMITTED,
)
HITS = {**dict.fromkeys(A_WAVE, 2), **dict.fromkeys(A_BATCH, 3)}
"""In the middle of the run where a point is reached once a wave, of which the first has two batches, or once a batch;
elsewhere the first time.
"""


@pytest.mark.parametrize("point", list(CrashPoint), ids=lambda point: point.value)
def test_counts_stay_right_when_the_driver_dies_at(point: CrashPoint, world: World) -> None:
    """Counts that stay right under any crash."""
    write_orders(world.folder, FILES)
    killed = world.start(failpoints=f"{point.value}=exit@{HITS.get(point, 1)}")
    assert killed.wait() == -9, f"the point was not reached; the driver said:\n{killed.output()}"

    second = world.start()

    assert second.wait() == 0, second.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(FILES)
    world.check_nothing_left_over()
