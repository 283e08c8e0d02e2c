"""Finds out, under the fence lock, whether a COMMIT that was not answered happened (R7, an unknown outcome is
resolved).
"""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from txtopo.committers.postgres.sql_errors import sqlstate, translate
from txtopo.committers.postgres.sqlstates import LOCK_NOT_AVAILABLE
from txtopo.committers.postgres.transactions import Database, begin, commit, run, tag
from txtopo.committers.protocol.rules import compare_lead, outcome_of
from txtopo.core.values import CommitOutcome, Lead
from txtopo.errors import PostgresUnavailable

TRIES_MAX = 5


def resolve_commit(database: Database, lead: Lead, txid: int, digest: bytes) -> CommitOutcome:
    """Wait until the old server process has ended, or end it, then read the ledger row: from then on the answer cannot
    change. Returns Committed or Aborted. Raises PostgresUnavailable if the fence row stays locked; Fenced; Halted.
    """
    for _ in range(TRIES_MAX):
        # A new connection: what broke the last one may have broken the whole pool.
        with database.connected(database.fresh) as connection:
            try:
                outcome = _look(connection, lead, txid, digest)
                commit(connection, f"resolving batch {txid}")
                database.unresolved_pids.clear()
                return outcome
            except DBAPIError as error:
                if sqlstate(error) != LOCK_NOT_AVAILABLE:
                    raise translate(error, f"resolving batch {txid}") from error
        with database.transaction("ending the session of the unanswered COMMIT", database.fresh) as connection:
            run(
                connection,
                "terminate_older",
                topology=lead.topology,
                epoch=lead.epoch,
                pids=sorted(database.unresolved_pids),
            )
    raise PostgresUnavailable(f"the fence row of {lead.topology} stayed locked while batch {txid} was to be resolved")


def _look(connection: Connection, lead: Lead, txid: int, digest: bytes) -> CommitOutcome:
    fence, _ = begin(connection, lead.topology, tag(lead), "lock_fence_to_commit")
    compare_lead(fence, lead)
    found = run(connection, "read_ledger_digest", topology=lead.topology, txid=txid).scalar_one_or_none()
    return outcome_of(txid, digest, None if found is None else bytes(found))
