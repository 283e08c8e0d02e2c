"""What to type after a halt over evidence: sentences that were tried for each, shared by all who find such evidence."""

from __future__ import annotations

RESTORE = (
    "stop every driver, find out who changed schema txtopo, and restore the whole database from a backup "
    "(docs/operating.md, Backups); never repair its rows by hand"
)
"""For rows of Postgres that contradict each other: no command repairs them, and a mended row hides the evidence."""


RUN_AGAIN = "set right what is named, then start `txtopo run` again"
"""For what is no batch's fault and is named: a right, a table, a setting of the server."""
REPORT = (
    "keep what was said and the server's log, and start `txtopo run` again; if it comes back, it is a bug: report it"
)
"""For what only a mistake in txtopo brings about."""


def rebuild_zookeeper(topology: str) -> str:
    """For znodes that are unreadable, half there, or contradict Postgres: Postgres is the authority, and what was never
    mirrored is cut again.
    """
    return (
        f"stop every driver, remove /{topology} below the chroot with ZooKeeper's own client (`deleteall`), and "
        f"start `txtopo run` again: "
        "mirrored plans are restored from Postgres, all others are cut anew"
    )


def go_on_from_restored(topology: str) -> str:
    """For a Postgres that has lost commits."""
    return f"make sure that --dsn names the right database; to go on from what it holds, {rebuild_zookeeper(topology)}"
