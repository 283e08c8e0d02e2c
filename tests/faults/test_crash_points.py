"""Kill -9 at every named crash point, on real stores: afterwards the table equals an independent recount, each txid
once and in order.
"""

from __future__ import annotations

from tests.kit.drivers import World
from tests.kit.orders import recount, write_orders
from txtopo.core.crash_points import CrashPoint

FILES = 4
"""New ones for each driver."""
DEATHS = {
    CrashPoint.BEFORE_MIRROR: 1,
    CrashPoint.FENCE_LOCKED: 3,
    CrashPoint.ELECTED: 1,
    CrashPoint.MIRROR_OPEN: 1,
    CrashPoint.FENCE_CLAIMED: 1,
    CrashPoint.LEDGER_APPENDED: 3,
    CrashPoint.EPOCH_WRITTEN: 1,
    CrashPoint.MIRRORED: 1,
    CrashPoint.APPLIED: 3,
    CrashPoint.BEFORE_METADATA: 1,
    CrashPoint.BEFORE_COMMIT: 3,
    CrashPoint.METADATA_WRITTEN: 1,
    CrashPoint.COMMITTED: 3,
    CrashPoint.ATTEMPT_BEGUN: 2,
    CrashPoint.BEFORE_CLEANUP: 1,
    CrashPoint.PROCESSED: 2,
    CrashPoint.CLEANED: 1,
}
"""At which time to die there, in this order. A batch that runs alone in three drivers that die is left out, so of three
deaths in a row at which a batch may run, one commits it: a third commit, or what comes after one. No batch runs at the
death of a driver that is only elected or has only claimed the fence. Waves are the second ones.
"""
IN_RUNS = {CrashPoint.RUN_FINISHED}
"""Reached only if several batches are ready at one moment, which these drivers do not promise; `test_commit_runs.py`
makes sure of it.
"""
ONE_BY_ONE = "1"
"""Batches in a database transaction: deaths within a run of several commit nothing, and which run they meet is chance.
`test_commit_runs.py` has the runs.
"""
SESSION_S = "1"
"""Each driver waits for the end of the session of the one before. One that loses its own tries again."""


def test_counts_stay_right_when_drivers_die_at_every_point(world: World) -> None:
    """Counts that stay right under any crash: each driver takes up what the one before it left, and dies at the next
    point.
    """
    assert {*DEATHS, *IN_RUNS} == set(CrashPoint)
    for number, (point, hit) in enumerate(DEATHS.items()):
        write_orders(world.folder, FILES, first=1 + number * FILES)
        killed = world.start(
            failpoints=f"{point.value}=exit@{hit}",
            TXTOPO_ZOOKEEPER_SESSION_S=SESSION_S,
            TXTOPO_RUN_TXIDS_MAX=ONE_BY_ONE,
        )
        assert killed.wait() == -9, f"{point} was not reached; the driver said:\n{killed.output()}"
        world.wait_for_end_of_sessions()
        if done := world.last_txid():
            world.check_ledger(done)
            assert world.totals() == recount(world.folder, files=done), f"dead at {point}"

    last = world.start()

    assert last.wait() == 0, last.output()
    assert world.totals() == recount(world.folder)
    world.check_ledger(len(DEATHS) * FILES)
    world.check_nothing_left_over()
