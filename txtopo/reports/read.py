"""Reads the rows of schema `txtopo` into the model: SELECTs in one read-only snapshot, for any role that may read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.engine import RowMapping
from sqlalchemy.exc import SQLAlchemyError

from txtopo.committers.postgres.connect import make_engine, mask_dsn
from txtopo.committers.postgres.lock_holders import waits_for
from txtopo.committers.postgres.sql_errors import one_line, sqlstate
from txtopo.committers.postgres.sqlstates import INSUFFICIENT_PRIVILEGE, NO_TABLE
from txtopo.core import limits
from txtopo.errors import ConfigurationError, PostgresUnavailable, TxtopoError
from txtopo.reports import report_statements
from txtopo.reports.inputs import failed_inputs, files_in, inputs_of_attempts, with_files
from txtopo.reports.interventions import (
    actions_about,
    committer_of,
    dead_letters,
    links_of,
    orders_about,
    rejected_rows,
    txids_of,
)
from txtopo.reports.list_batches import Span, list_batches, one, open_state, rows, tried_states
from txtopo.reports.model import (
    ORDERS_NAMED_MAX,
    TXIDS_NAMED_MAX,
    AttemptRow,
    BatchDetail,
    BatchRow,
    BatchState,
    CommitterNumbers,
    EdgeNumbers,
    FailureCounts,
    LastLeader,
    LedgerSummary,
    OpenOrder,
    TopologyState,
    TopologyStatus,
    told_advice,
)
from txtopo.reports.not_found import no_topology
from txtopo.reports.stored_plans import files_of, metadata_of, stored_plan
from txtopo.reports.times import read_any_time

REJECTS_SHOWN = 20
"""Number of rejected rows of a batch that are read by default."""


@contextmanager
def reading(dsn: str) -> Iterator[Connection]:
    """Yield a connection that can only read and sees one state of the database throughout (I12).

    Raises PostgresUnavailable if Postgres does not answer or refuses access, ConfigurationError if schema `txtopo` is
    missing.
    """
    engine = make_engine(dsn, "txtopo/reading", pooled=False)
    try:
        with engine.connect().execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        ) as connection:
            connection.execute(text(f"set local statement_timeout = {limits.STATEMENT_TIMEOUT_MS}"))
            read_any_time(connection)
            yield connection
    except SQLAlchemyError as error:
        raise reading_error(error, dsn) from error
    finally:
        engine.dispose()


def reading_error(error: SQLAlchemyError, dsn: str) -> TxtopoError:
    """Return the error for the operator when a SELECT fails."""
    state = sqlstate(error)
    if state in NO_TABLE:
        if (newer := _newer(dsn)) is not None:
            return ConfigurationError(f"{mask_dsn(dsn)}: {newer}")
        return ConfigurationError(
            f"{mask_dsn(dsn)} has no up-to-date schema txtopo: run `txtopo migrate` ({one_line(error)}); "
            "where that finds it up to date, somebody changed it, and `txtopo audit` says what"
        )
    remedy = "; reading needs USAGE on the schema and SELECT on its tables" if state == INSUFFICIENT_PRIVILEGE else ""
    return PostgresUnavailable(f"{mask_dsn(dsn)}: {mask_dsn(one_line(error))}{remedy}")


def _newer(dsn: str) -> str | None:
    """Return in words that a newer release has migrated the database; None if none has, or nothing tells."""
    from txtopo.committers.postgres.migrate import newer_than_release

    engine = make_engine(dsn, "txtopo/reading", pooled=False)
    try:
        with engine.connect() as connection:
            return newer_than_release(connection)
    except SQLAlchemyError:
        return None
    finally:
        engine.dispose()


def read_topologies(connection: Connection, topology: str | None = None) -> list[TopologyStatus]:
    """Return all topologies by name, or one; empty if there is none."""
    return [_status(connection, row) for row in rows(connection, report_statements.TOPOLOGIES, topology=topology)]


def read_status(connection: Connection, topology: str) -> TopologyStatus:
    """Return one topology. Raises NotFoundError if it is unknown."""
    found = read_topologies(connection, topology)
    if not found:
        raise no_topology(topology, read_names(connection))
    return found[0]


def read_names(connection: Connection) -> list[str]:
    """Return the names of all topologies."""
    return [row["topology"] for row in rows(connection, report_statements.NAMES)]


def read_batches(
    connection: Connection,
    topology: str,
    *,
    spans: Sequence[Span] = (),
    state: BatchState | None = None,
    limit: int = 20,
) -> list[BatchRow] | None:
    """Return the newest batches, or the newest within `spans`, first, at most `limit`; None if the topology is
    unknown.
    """
    fence = one(connection, report_statements.FENCE, topology=topology)
    if fence is None:
        return None
    return with_files(connection, topology, list_batches(connection, topology, fence["last_txid"], spans, state, limit))


def read_batch(
    connection: Connection, topology: str, txid: int, *, rejects: int | None = REJECTS_SHOWN
) -> BatchDetail | None:
    """Return everything about one batch, with at most `rejects` of its rejected rows (None: all); None if the txid is
    unknown.
    """
    fence = one(connection, report_statements.FENCE, topology=topology)
    ledger = one(connection, report_statements.LEDGER_ROW, topology=topology, txid=txid)
    plan = one(connection, report_statements.PLAN, topology=topology, txid=txid, cut=ledger["cut"] if ledger else None)
    attempts = [_attempt(row) for row in rows(connection, report_statements.ATTEMPTS, topology=topology, txid=txid)]
    if fence is None or not (ledger or plan or attempts):
        return None
    metadata, problem = metadata_of(connection, plan)
    files = files_of(metadata, rows(connection, report_statements.SOURCE_FILES, topology=topology, txid=txid))
    if plan is None and not ledger:
        metadata = inputs_of_attempts(connection, attempts)
        files = files_in(metadata)
    actions = actions_about(connection, topology, txid)
    about = ledger or _about(plan)
    redone_as, counted_by = links_of(connection, topology, txid, fence["last_txid"])
    return BatchDetail(
        topology=topology,
        txid=txid,
        state=ledger["state"] if ledger else open_state([attempt.state for attempt in attempts]),
        application=fence["application"],
        advice=told_advice(fence["advice"]) if fence["halted_txid"] == txid else None,
        digest=ledger["digest"] if ledger else plan["digest"] if plan else None,
        planned_at=plan["created_at"] if plan else ledger["planned_at"] if ledger else None,
        plan_problem=problem,
        metadata=metadata,
        ledger=_committed(ledger) if ledger else None,
        files=files,
        attempts=tuple(attempts),
        committers=tuple(
            CommitterNumbers(**row)
            for row in rows(connection, report_statements.COMMITTERS, topology=topology, txid=txid)
        ),
        edges=tuple(
            EdgeNumbers(**row) for row in rows(connection, report_statements.EDGES, topology=topology, txid=txid)
        ),
        targets={
            row["committer"]: row["target"] for row in rows(connection, report_statements.TARGETS, topology=topology)
        },
        redo_of=about["redo_of"],
        backfills=about["backfills"],
        committer=about["committer"],
        redone_as=redone_as,
        counted_by=counted_by,
        rejected_rows=rejected_rows(connection, topology, txid, rejects),
        dead_letters=dead_letters(connection, topology, txid, rejects),
        orders=orders_about(connection, topology, txid, actions),
        actions=actions,
    )


def _about(plan: RowMapping | None) -> Mapping[Any, Any]:
    """Return which batch a plan redoes or counts again, if any."""
    found = None if plan is None else stored_plan(plan["bytes"])
    return {name: getattr(found, name, None) for name in ("redo_of", "backfills", "committer")}


def _status(connection: Connection, row: RowMapping) -> TopologyStatus:
    topology, led = row["topology"], row["state"] is not None
    leader = (
        LastLeader(
            host=row["host"],
            pid=row["pid"],
            since=row["started_at"],
            heartbeat_at=row["heartbeat_at"],
            heartbeat_age_s=row["heartbeat_age_s"],
        )
        if led
        else None
    )
    own = (
        "topology",
        "epoch",
        "incarnation",
        "application",
        "last_txid",
        "last_committed_at",
        "planned_txid",
        "problem",
        "reason",
        "advice",
        "halted_txid",
        "open_order_count",
    )
    failures = dict(rows(connection, report_statements.FAILURES, topology=topology)[0])
    (sums,) = rows(connection, report_statements.LEDGER_SUMS, topology=topology)
    (runs,) = rows(connection, report_statements.FAILED_RUNS, topology=topology)
    (holes,) = rows(connection, report_statements.HOLES, topology=topology, named=TXIDS_NAMED_MAX)
    orders = rows(connection, report_statements.OPEN_ORDERS, topology=topology, limit=ORDERS_NAMED_MAX)
    tried = tried_states(connection, topology, row["last_txid"])
    failed_txids = tuple(txid for txid, state in tried.items() if state == "failed")[:TXIDS_NAMED_MAX]
    own_words = {name: row[name] for name in own}
    if row["state"] in ("running", "stalled"):
        # Asked now: a driver that cannot write its heartbeat because of a lock cannot report the lock either.
        own_words["problem"] = waits_for(connection, topology) or own_words["problem"]
    return TopologyStatus(
        state=_state(row),
        # From the last heartbeat: the batch may be committed now.
        waiting=_next_batch(row),
        lag=_lag((row["waiting"] or {}).get("lag", {})),
        leader=leader,
        settings=row["settings"] or {},
        failed_attempts=failures.pop("failed_attempts"),
        failures=FailureCounts(**failures),
        failed_txids=failed_txids,
        failed_inputs=failed_inputs(connection, topology, failed_txids),
        quarantined=sums["quarantined"],
        holes=holes["holes"],
        hole_txids=tuple(holes["hole_txids"] or ()),
        rejected=sums["rejected"],
        dead_lettered=sums["dead_lettered"],
        failed_runs=runs["failed_runs"],
        failed_runs_total=runs["failed_runs_total"],
        open_orders=tuple(_open_order(connection, topology, order) for order in orders),
        **own_words,
    )


def _open_order(connection: Connection, topology: str, row: RowMapping) -> OpenOrder:
    committer, filled = committer_of(row["arguments"]), None
    if committer is not None:
        (found,) = rows(connection, report_statements.FILLED, topology=topology, committer=committer)
        filled = found["number"]
    return OpenOrder(
        order_id=row["order_id"],
        kind=row["kind"],
        txids=txids_of(row["arguments"]),
        committer=committer,
        filled=filled,
    )


def _state(row: RowMapping) -> TopologyState:
    match row["state"]:
        case "stalled":
            return "STALLED"
        case "running":
            return "STALLED" if row["heartbeat_age_s"] > limits.STALLED_AFTER_S else "RUNNING"
        case "halted":
            return "HALTED"
        case "finished":
            return "FINISHED"
        case _:
            return "STOPPED"


def _lag(lag: Mapping[str, Any]) -> dict[str, Any]:
    """Return what waits by spout; the partitions with most come first: jsonb keeps no order of names."""
    return {
        spout: {**one, "partitions": dict(sorted(one["partitions"].items(), key=lambda item: (-item[1], item[0])))}
        for spout, one in lag.items()
    }


def _next_batch(row: RowMapping) -> dict[str, Any]:
    waiting = {name: value for name, value in (row["waiting"] or {}).items() if name != "lag"}
    return waiting if waiting and waiting["txid"] > row["last_txid"] else {}


def _attempt(row: RowMapping) -> AttemptRow:
    return AttemptRow(**{**row, "spans": row["spans"] or {}, "inputs": row["inputs"] or {}})


def _committed(row: RowMapping) -> LedgerSummary:
    own = (
        "state",
        "attempt",
        "epoch",
        "read",
        "rejected",
        "dead_lettered",
        "reason",
        "redo_of",
        "committed_at",
        "code_hash",
        "seal",
    )
    return LedgerSummary(**{name: row[name] for name in own})
