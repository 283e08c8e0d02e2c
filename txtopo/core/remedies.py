"""Remedies after a halt because of evidence: sentences that were tested for each kind, shared by all checks that find
it.
"""

from __future__ import annotations

RESTORE = (
    "stop every driver, find out who changed schema txtopo, and restore the whole database from a backup "
    "(docs/operating.md, Backups); never repair its rows by hand"
)
"""For rows of Postgres that contradict each other: no command repairs them, and a corrected row hides the evidence."""


RUN_AGAIN = "set right what is named, then start `txtopo run` again"
"""For a cause outside of any batch that the message names: a privilege, a table, a setting of the server."""
SERVER_LOSES_ROWS = (
    "find out in the server's log what ends it, or removes tables of schema txtopo_staging, then start `txtopo run` "
    "again"
)
"""For rows that tasks stored and that do not exist any more, each time, when they are to be committed."""
REPORT = (
    "keep what was said and the server's log, and start `txtopo run` again; if it comes back, it is a bug: report it"
)
"""For a state that only a bug in txtopo can cause."""


def rebuild_zookeeper(topology: str) -> str:
    """Return the remedy for znodes that are unreadable, incomplete, or contradict Postgres: Postgres is the authority,
    and plans that were never mirrored are made again.
    """
    return (
        f"stop every driver, remove /{topology} below the chroot with ZooKeeper's own client (`deleteall`), and "
        f"start `txtopo run` again: "
        "mirrored plans are restored from Postgres, all others are planned again"
    )


def go_on_from_restored(topology: str) -> str:
    """Return the remedy for a Postgres that has lost commits."""
    return f"make sure that --dsn names the right database; to continue from its content, {rebuild_zookeeper(topology)}"
