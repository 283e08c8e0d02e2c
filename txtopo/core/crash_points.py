"""Named crash points, silent in production.

`reach(CrashPoint.X, txid=n)` costs a call and a comparison. A test installs a listener with `listen`;
`txtopo.driver.failpoints` has one that ends or pauses the process. The enum lists all points; `tests/faults` kills a
driver at each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class CrashPoint(Enum):
    """Moments from "about to plan" to "cleaned up" at which a driver may die or be paused."""

    ELECTED = "elected"
    """First in the queue, before the fence is claimed."""
    FENCE_CLAIMED = "fence_claimed"
    """Epoch raised in Postgres, not yet in ZooKeeper (between R1 and R2)."""
    EPOCH_WRITTEN = "epoch_written"
    """Epoch raised in both stores, nothing read back yet."""
    BEFORE_METADATA = "before_metadata"
    """Batch planned, nothing written."""
    METADATA_WRITTEN = "metadata_written"
    """Plan created in ZooKeeper (R3), not yet known to the machine."""
    ATTEMPT_BEGUN = "attempt_begun"
    """Attempt recorded as begun, nothing emitted."""
    STAGED = "staged"
    """Tasks have stored a committer's result rows in Postgres (R10), nothing of them is in the driver or applied."""
    PROCESSED = "processed"
    """Results are in the driver, not yet reported."""
    BEFORE_MIRROR = "before_mirror"
    """About to mirror the plan (R9)."""
    MIRROR_OPEN = "mirror_open"
    """Plan inserted, the mirror's database transaction still open."""
    MIRRORED = "mirrored"
    """Plan is durable in Postgres."""
    FENCE_LOCKED = "fence_locked"
    """Commit holds the fence row (R4), nothing inserted."""
    LEDGER_APPENDED = "ledger_appended"
    """Ledger row inserted as 'applying'."""
    APPLIED = "applied"
    """A committer's rows are applied inside the open database transaction."""
    RUN_FINISHED = "run_finished"
    """Every ledger row of a commit run is final, COMMIT not sent. Reached once, with its first txid; the other points
    of a commit are reached once for each batch of the run, those of one kind together.
    """
    BEFORE_COMMIT = "before_commit"
    """Everything is written, COMMIT not sent."""
    COMMITTED = "committed"
    """COMMIT acknowledged, ZooKeeper not yet notified (R7, R8)."""
    BEFORE_CLEANUP = "before_cleanup"
    """About to advance the counter and remove metadata in ZooKeeper."""
    CLEANED = "cleaned"
    """Counter advanced and metadata removed."""


Listener = Callable[[CrashPoint, int | None], None]
_listener: Listener | None = None


def reach(point: CrashPoint, txid: int | None = None) -> None:
    """Report that execution has reached `point`; does nothing unless a test listens."""
    if _listener is not None:
        _listener(point, txid)


def listen(listener: Listener | None) -> None:
    """Install the only listener of this process, or remove it with None."""
    global _listener
    _listener = listener
