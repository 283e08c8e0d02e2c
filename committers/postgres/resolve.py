"""Finds out, under the fence lock, whether a COMMIT that was not answered happened (R7, an unknown outcome is
resolved).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from txtopo.committers.postgres.apply_counts import array_literal
from txtopo.committers.postgres.sql_errors import sqlstate, translate
from txtopo.committers.postgres.sqlstates import LOCK_NOT_AVAILABLE
from txtopo.committers.postgres.transactions import Database, begin, commit, run, run_first, tag
from txtopo.committers.protocol.rules import compare_lead, outcomes_of_run
from txtopo.core.values import CommitOutcome, Lead
from txtopo.errors import PostgresUnavailable

TRIES_MAX = 5


def resolve_commit(
    database: Database, lead: Lead, plans: Sequence[tuple[int, bytes]], batches: str
) -> Sequence[CommitOutcome]:
    """Wait until the old server process has ended, or end it, then read the ledger rows of all batches of the COMMIT in
    one look: from then on the answer cannot change. `plans` are their txids and digests. Returns Committed for each of
    them, or Aborted for each. Raises PostgresUnavailable if the fence row stays locked; Fenced; Halted.
    """
    for _ in range(TRIES_MAX):
        # A new connection: what broke the last one may have broken the whole pool.
        with database.connected(database.fresh) as connection:
            try:
                outcomes = _look(connection, lead, plans)
                commit(connection, f"resolving {batches}")
                database.unresolved_pids.clear()
                return outcomes
            except DBAPIError as error:
                if sqlstate(error) != LOCK_NOT_AVAILABLE:
                    raise translate(error, f"resolving {batches}") from error
        with database.transaction("ending the session of the unanswered COMMIT", database.fresh) as connection:
            run_first(
                connection,
                "terminate_older",
                topology=lead.topology,
                epoch=lead.epoch,
                pids=sorted(database.unresolved_pids),
            )
    raise PostgresUnavailable(f"the fence row of {lead.topology} stayed locked while {batches} waited to be resolved")


def _look(connection: Connection, lead: Lead, plans: Sequence[tuple[int, bytes]]) -> Sequence[CommitOutcome]:
    fence, _ = begin(connection, lead.topology, tag(lead), "lock_fence_to_commit")
    compare_lead(fence, lead)
    txids = array_literal(txid for txid, _ in plans)
    rows = run(connection, "list_ledger_digests", topology=lead.topology, txids=txids).all()
    return outcomes_of_run(plans, {txid: bytes(digest) for txid, digest in rows})
