"""Kill -9 at every named crash point, on real stores, with each kind of table that txtopo keeps: afterwards they equal
an independent recount, each txid once and in order.
"""

from __future__ import annotations

from contextlib import closing

import psycopg2

from tests.kit.drivers import World
from tests.kit.orders import recount, restored, write_orders
from txtopo.core.crash_points import CrashPoint

FILES = 4
"""New ones for each driver."""
COMMITTERS = 4
"""Counts, all rows, last rows, replaced rows. In each commit `applied` is reached so often."""
FIRST = 1
LAST = -1
"""Of the batches that this driver has to commit, so that it commits all others."""
DEATHS = {
    CrashPoint.BEFORE_MIRROR: FIRST,
    CrashPoint.ELECTED: FIRST,
    CrashPoint.MIRROR_OPEN: FIRST,
    CrashPoint.FENCE_LOCKED: LAST,
    CrashPoint.MIRRORED: FIRST,
    CrashPoint.BEFORE_CLEANUP: FIRST,
    CrashPoint.LEDGER_APPENDED: LAST,
    CrashPoint.BEFORE_METADATA: FIRST,
    CrashPoint.FENCE_CLAIMED: FIRST,
    CrashPoint.CLEANED: FIRST,
    CrashPoint.APPLIED: LAST,
    CrashPoint.METADATA_WRITTEN: FIRST,
    CrashPoint.BEFORE_COMMIT: LAST,
    CrashPoint.EPOCH_WRITTEN: FIRST,
    CrashPoint.ATTEMPT_BEGUN: FIRST,
    CrashPoint.COMMITTED: LAST,
    CrashPoint.PROCESSED: FIRST,
    CrashPoint.STAGED: FIRST,
}
"""At which time to die there, in this order. A batch that runs alone in three drivers that die is left out, and which
batches run at a death is chance. So no batch may run at three deaths in a row. LAST commits every batch that earlier
drivers left; a death around a cleanup commits the lowest; no batch runs when a driver dies that is only elected, has
written its epoch or claimed the fence; any other death may commit nothing.
"""
IN_RUNS = {CrashPoint.RUN_FINISHED}
"""Reached only if several batches are ready at one moment, which these drivers do not promise; `test_commit_runs.py`
makes sure of it.
"""
ONE_BY_ONE = "1"
"""Batches in a database transaction: deaths within a run of several commit nothing, and which run they meet is chance.
`test_commit_runs.py` has the runs.
"""
LARGE = "3"
"""Result rows above which tasks store them (R10): batches have more keys."""
SESSION_S = "1"
"""Each driver waits for the end of the session of the one before. One that loses its own tries again."""


def test_counts_stay_right_when_drivers_die_at_every_point(world: World) -> None:
    """Counts that stay right under any crash: each driver takes up what the one before it left, and dies at the next
    point.
    """
    assert {*DEATHS, *IN_RUNS} == set(CrashPoint)
    for number, (point, when) in enumerate(DEATHS.items()):
        write_orders(world.folder, FILES, first=1 + number * FILES)
        hit = when if when == FIRST else (number + 1) * FILES - world.last_txid()
        if point is CrashPoint.APPLIED:
            hit = hit * COMMITTERS - 1  # rows of the last committer are not there yet
        killed = world.start(
            failpoints=f"{point.value}=exit@{hit}",
            TXTOPO_ZOOKEEPER_SESSION_S=SESSION_S,
            TXTOPO_RUN_TXIDS_MAX=ONE_BY_ONE,
            DRIVER_ROWS="1",
            TXTOPO_STAGING_DSN=world.dsn,
            TXTOPO_RESULT_ROWS_MAX=LARGE,
        )
        assert killed.wait() == -9, f"{point} was not reached; the driver said:\n{killed.output()}"
        world.wait_for_end_of_sessions()
        if done := world.last_txid():
            world.check_ledger(done, COMMITTERS)
            assert world.totals() == recount(world.folder, files=done), f"dead at {point}"
            assert world.stored() == restored(world.folder, files=done), f"dead at {point}"

    last = world.start(DRIVER_ROWS="1")

    assert last.wait() == 0, last.output()
    assert world.totals() == recount(world.folder)
    assert world.stored() == restored(world.folder)
    world.check_ledger(len(DEATHS) * FILES, COMMITTERS)
    world.check_nothing_left_over()
    with closing(psycopg2.connect(world.dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("select count(*) from pg_class where relnamespace = 'txtopo_staging'::regnamespace")
        assert cursor.fetchall() == [(0,)], "staging tables are left"
