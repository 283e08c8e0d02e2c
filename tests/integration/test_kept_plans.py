"""R31: what the server keeps of a statement in its session may vanish or become old between two commits. Both kinds of
commit go on in the same session, on a table that was changed as well.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg2
import psycopg2.extensions

from tests.integration.test_commit_runs import KEPT, leader
from txtopo.core.values import Committed, RunEnded

COMMITS_BEFORE = 7
"""A session decides after five uses of a plan whether it keeps it."""
BY_A_POOLER = ("discard all", "set search_path = public", "set default_transaction_isolation = serializable")
"""What a pooler leaves of a session when it hands it to another client, and what another client may leave."""
BY_OTHERS = (
    "alter table txtopo.ledger add column note text",
    "alter table txtopo.attempt add column note text",
    "alter table txtopo.committer_count add column note text",
    "alter table txtopo.fence alter column last_txid set statistics 10",
    "create index later on txtopo.ledger (committed_at)",
    "alter table flights_count_contribution add column note text",
    "alter table flights_count rename to other; alter table other rename to flights_count",
    "analyze",
)
"""What is done to tables meanwhile."""


def test_what_a_session_keeps_of_a_statement_may_vanish_or_change_between_two_commits(database: str) -> None:
    """R31: nothing is prepared by a name, so that no session of a pooler lacks it (26000), and no plan is kept that
    DDL makes stale (0A000).
    """
    driver = leader(database, KEPT)
    pooled: Any = driver.ledger
    txid, pids = 1, set()

    def commits(runs: int, singles: int) -> None:
        nonlocal txid
        for _ in range(runs):
            ended = driver.commit_run([driver.ready(txid), driver.ready(txid + 1)])
            assert isinstance(ended, RunEnded), ended
            txid += 2
        for _ in range(singles):
            assert isinstance(outcome := driver.commit(driver.ready(txid)), Committed), outcome
            txid += 1
        with pooled._database.pooled.connect() as connection:
            pids.add(connection.connection.dbapi_connection.info.backend_pid)

    commits(COMMITS_BEFORE, COMMITS_BEFORE)
    for change in BY_A_POOLER:
        with pooled._database.pooled.connect() as connection:
            raw: Any = connection.connection.dbapi_connection
            with raw.cursor(cursor_factory=psycopg2.extensions.cursor) as cursor:  # sends no BEGIN
                cursor.execute(change)
        commits(1, 1)
    with closing(psycopg2.connect(database)) as other, other.cursor() as cursor:
        other.autocommit = True
        for change in BY_OTHERS:
            cursor.execute(change)
            commits(1, 1)
        cursor.execute("select count(*) from txtopo.ledger where seal is not null and txid > 0")
        assert cursor.fetchall() == [(txid - 1,)]
    assert len(pids) == 1, "each commit was in the session that was changed"


def test_a_table_that_is_plain_no_more_ends_runs_in_a_session_that_knew_it_as_plain(database: str) -> None:
    """R20, R31: the look at the tables sees what others did since it was planned, in the same session."""
    driver = leader(database, KEPT)
    for first in range(1, 2 * COMMITS_BEFORE, 2):
        assert isinstance(driver.commit_run([driver.ready(first), driver.ready(first + 1)]), RunEnded)
    with closing(psycopg2.connect(database)) as other, other, other.cursor() as cursor:
        cursor.execute("alter table flights_count add constraint small check (count < 1e9)")
    txid = 2 * COMMITS_BEFORE + 1

    failed: Any = driver.commit_run([driver.ready(txid), driver.ready(txid + 1)])

    assert "has a CHECK constraint" in failed.off
