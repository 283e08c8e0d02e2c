"""Claims the fence row for a new leader (R1): waits for older leaders or ends their sessions, raises the epoch, and
reads what the new leader needs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from txtopo.committers.postgres.actions import order_of
from txtopo.committers.postgres.sql_errors import sqlstate, translate
from txtopo.committers.postgres.sqlstates import LOCK_NOT_AVAILABLE, UNIQUE_VIOLATION
from txtopo.committers.postgres.staging_copy import of_topology
from txtopo.committers.postgres.transactions import Database, begin, commit, run, run_first
from txtopo.committers.protocol.rules import check_incarnation, check_mirrored, last_metadata
from txtopo.core.limits import RECENT_TXIDS
from txtopo.core.plan import genesis_digest
from txtopo.core.remedies import RESTORE
from txtopo.core.values import AttemptRecord, Fence, Lead, Left, TransactionAttempt
from txtopo.errors import Halted, PostgresUnavailable, TxtopoError
from txtopo.ports import Claim, Claimed

TRIES_MAX = 5


def claim_fence(database: Database, claim: Claim) -> Claimed:
    """Raise the epoch above those of both stores and return what the new leader needs. Raises PostgresUnavailable if
    another session keeps the row locked, Halted if the stores contradict each other.
    """
    for _ in range(TRIES_MAX):
        with database.connected() as connection:
            try:
                claimed = _claim(connection, claim)
                commit(connection, "claiming the fence")
                return claimed
            except DBAPIError as error:
                if sqlstate(error) not in (LOCK_NOT_AVAILABLE, UNIQUE_VIOLATION):
                    raise _for_good(translate(error, "claiming the fence")) from error
        # P6: a leader that is paused inside its database transaction would block this one until its timeout. It has
        # lost the election, so its session may be ended. (Or another driver has just created the fence row: then the
        # next round finds it.)
        _end_older_sessions(database, claim.topology)
    raise PostgresUnavailable(
        f"the fence row of {claim.topology} stays locked by another session; while a driver waits for it, `txtopo "
        f"status {claim.topology}` names who holds it"
    )


def _claim(connection: Connection, claim: Claim) -> Claimed:
    fence, _ = begin(connection, claim.topology, f"txtopo/{claim.topology}/claim", "lock_fence_to_claim")
    lead = _lead(fence, claim)
    values = {
        "topology": lead.topology,
        "epoch": lead.epoch,
        "owner_nonce": lead.owner_nonce,
        "code_hash": lead.code_hash,
        "opaque": claim.opaque,
    }
    if fence is None:
        digest = genesis_digest(lead.topology, lead.incarnation)
        run(connection, "create_fence", **values, incarnation=lead.incarnation, digest=digest)
    else:
        run(connection, "claim_fence", **values)
    claimed = _read(connection, lead, 0 if fence is None else fence.last_txid)
    run(
        connection,
        "write_topology",
        topology=lead.topology,
        application=claim.application,
        description=json.dumps(dict(claim.description)),
        code_hash=claim.code_hash,
        host=claim.host,
        pid=claim.pid,
        epoch=lead.epoch,
        planned_txid=claimed.last_txid + len(claimed.plans),
    )
    # Only now: `stop` orders for the previous leader have been refused.
    return replace(claimed, orders=[order_of(row) for row in run(connection, "list_orders", topology=lead.topology)])


def _lead(fence: Fence | None, claim: Claim) -> Lead:
    check_incarnation(claim.topology, None if fence is None else fence.incarnation, claim.incarnation)
    return Lead(
        topology=claim.topology,
        incarnation=claim.new_incarnation if fence is None else fence.incarnation,
        epoch=max(0 if fence is None else fence.epoch, claim.epoch_above) + 1,
        owner_nonce=claim.owner_nonce,
        code_hash=claim.code_hash,
    )


def _read(connection: Connection, lead: Lead, last_txid: int) -> Claimed:
    staging = of_topology(lead.topology)
    # R10: the fence row is locked, so no former leader can create another table.
    found = run(connection, "read_claimed", topology=lead.topology, last_txid=last_txid, staging=staging).one_or_none()
    if found is None:
        raise Halted(
            f"the fence of {lead.topology} is at {last_txid}, but the ledger has no row {last_txid}",
            txid=last_txid,
            next_command=RESTORE,
        )
    last_digest, newest, newest_bytes, system_identifier, description, last_epoch, left = found
    return Claimed(
        lead=lead,
        last_txid=last_txid,
        last_digest=bytes(last_digest),
        last_metadata=None
        if newest is None
        else last_metadata(newest, None if newest_bytes is None else bytes(newest_bytes)),
        plans=_plans(connection, lead.topology, last_txid),
        attempts=_attempts(connection, lead.topology, last_txid),
        system_identifier=system_identifier,
        recent=_recent(connection, lead.topology),
        description={} if description is None else json.loads(description),
        last_epoch=last_epoch,
        staging_tables=None if left is None else tuple(left),
    )


def _plans(connection: Connection, topology: str, last_txid: int) -> Sequence[bytes]:
    plans: list[bytes] = []
    for txid, digest, data in run(connection, "list_plans_above", topology=topology, last_txid=last_txid):
        plans.append(bytes(data))
        check_mirrored(txid, last_txid + len(plans), bytes(digest), plans[-1])
    return plans


def _attempts(connection: Connection, topology: str, last_txid: int) -> Sequence[AttemptRecord]:
    return [
        AttemptRecord(
            attempt=TransactionAttempt(txid, attempt),
            epoch=epoch,
            state=state,
            kind=kind,
            alone=alone,
            code_hash=bytes(code_hash),
        )
        for txid, attempt, epoch, state, kind, alone, code_hash in run(
            connection, "list_attempts_above", topology=topology, last_txid=last_txid
        )
    ]


def _recent(connection: Connection, topology: str) -> Sequence[Left]:
    rows = run(connection, "list_recent", topology=topology, count=RECENT_TXIDS).all()
    return [Left(txid, cause) for txid, cause in reversed(rows)]


def _for_good(error: TxtopoError) -> TxtopoError:
    """A new leader's connection is new: it was opened for the checks of this start, or after the wait for the lead. An
    error that a new connection does not fix, such as a standby that cannot write, halts; it is not waited for.
    """
    if isinstance(error, PostgresUnavailable) and error.patience == "once":
        return Halted(str(error), next_command="name the server that takes writes with --dsn")
    return error


def _end_older_sessions(database: Database, topology: str) -> None:
    with database.transaction("ending sessions of older leaders") as connection:
        row = run_first(connection, "read_fence", topology=topology).one_or_none()
        if row is not None:
            run(connection, "terminate_older", topology=topology, epoch=row[2] + 1, pids=[])
