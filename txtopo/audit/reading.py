"""Reads the rows of schema `txtopo` into the model: SELECTs in one read-only snapshot, for any role that may read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.engine import RowMapping
from sqlalchemy.exc import SQLAlchemyError

from txtopo.audit import statements
from txtopo.audit.listing import list_batches, one, open_state, rows
from txtopo.audit.model import (
    AttemptRow,
    BatchDetail,
    BatchRow,
    BatchState,
    Committed,
    CommitterNumbers,
    EdgeNumbers,
    Leader,
    RequestRow,
    SourceFile,
    TopologyState,
    TopologyStatus,
)
from txtopo.committers.connecting import make_engine, mask_dsn
from txtopo.committers.outcomes import one_line, sqlstate
from txtopo.core import limits
from txtopo.core.plan import read_plan
from txtopo.errors import ConfigurationError, Halted, PostgresUnavailable, TxtopoError

_PART_KEY = "$part"
"""A file list too long for a plan is a pointer under this key, to a piece in `plan_part`."""
_UNDEFINED = ("42P01", "3F000", "42703")


@contextmanager
def reading(dsn: str) -> Iterator[Connection]:
    """A connection that can only read and sees one state of the database throughout (I12).

    Raises PostgresUnavailable where Postgres does not answer or does not allow it, ConfigurationError where schema `txtopo` is missing.
    """
    engine = make_engine(dsn, "txtopo/reading", pooled=False)
    try:
        with engine.connect().execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        ) as connection:
            connection.execute(text(f"set local statement_timeout = {limits.STATEMENT_TIMEOUT_MS}"))
            yield connection
    except SQLAlchemyError as error:
        raise reading_error(error, dsn) from error
    finally:
        engine.dispose()


def reading_error(error: SQLAlchemyError, dsn: str) -> TxtopoError:
    """What the operator reads when a SELECT did not go through."""
    state = sqlstate(error)
    if state in _UNDEFINED:
        return ConfigurationError(
            f"{mask_dsn(dsn)} has no up-to-date schema txtopo: run `txtopo migrate` ({one_line(error)})"
        )
    return PostgresUnavailable(f"{mask_dsn(dsn)}: {mask_dsn(one_line(error))}")


def read_topologies(connection: Connection, topology: str | None = None) -> list[TopologyStatus]:
    """All topologies by name, or the one; empty where there is none."""
    return [_status(row) for row in rows(connection, statements.TOPOLOGIES, topology=topology)]


def read_names(connection: Connection) -> list[str]:
    """Names of all topologies."""
    return [row["topology"] for row in rows(connection, statements.NAMES)]


def read_batches(
    connection: Connection, topology: str, *, state: BatchState | None = None, limit: int = 20
) -> list[BatchRow] | None:
    """The newest batches first, at most `limit`; None where the topology is unknown."""
    fence = one(connection, statements.FENCE, topology=topology)
    if fence is None:
        return None
    return list_batches(connection, topology, fence["last_txid"], state, limit)


def read_batch(connection: Connection, topology: str, txid: int) -> BatchDetail | None:
    """Everything about one batch; None where nothing knows that txid."""
    fence = one(connection, statements.FENCE, topology=topology)
    ledger = one(connection, statements.LEDGER_ROW, topology=topology, txid=txid)
    plan = one(connection, statements.PLAN, topology=topology, txid=txid, cut=ledger["cut"] if ledger else None)
    attempts = [_attempt(row) for row in rows(connection, statements.ATTEMPTS, topology=topology, txid=txid)]
    if fence is None or not (ledger or plan or attempts):
        return None
    metadata, problem = _metadata(connection, plan)
    return BatchDetail(
        topology=topology,
        txid=txid,
        state=ledger["state"] if ledger else open_state(attempts[-1].state if attempts else None),
        application=fence["application"],
        digest=ledger["digest"] if ledger else plan["digest"] if plan else None,
        planned_at=plan["created_at"] if plan else ledger["planned_at"] if ledger else None,
        plan_problem=problem,
        metadata=metadata,
        ledger=_committed(ledger) if ledger else None,
        files=_files(metadata, rows(connection, statements.SOURCE_FILES, topology=topology, txid=txid)),
        attempts=tuple(attempts),
        committers=tuple(
            CommitterNumbers(**row) for row in rows(connection, statements.COMMITTERS, topology=topology, txid=txid)
        ),
        edges=tuple(EdgeNumbers(**row) for row in rows(connection, statements.EDGES, topology=topology, txid=txid)),
        targets={row["committer"]: row["target"] for row in rows(connection, statements.TARGETS, topology=topology)},
    )


def read_request(connection: Connection, request_id: int) -> RequestRow | None:
    """An operator's order as it stands."""
    row = one(connection, statements.REQUEST, request_id=request_id)
    return RequestRow(**row) if row else None


def _status(row: RowMapping) -> TopologyStatus:
    led = row["state"] is not None
    leader = Leader(
        host=row["host"], pid=row["pid"], since=row["started_at"], heartbeat_at=row["heartbeat_at"], heartbeat_age_s=row["heartbeat_age_s"]
    ) if led else None  # fmt: skip
    own = ("topology", "epoch", "incarnation", "application", "last_txid", "last_committed_at", "planned_txid", "problem", "reason",
           "halted_txid", "failed_attempts", "quarantined", "open_requests")  # fmt: skip
    return TopologyStatus(state=_state(row), leader=leader, **{name: row[name] for name in own})


def _state(row: RowMapping) -> TopologyState:
    match row["state"]:
        case "running":
            return "STALLED" if row["heartbeat_age_s"] > limits.STALLED_AFTER_S else "RUNNING"
        case "halted":
            return "HALTED"
        case "finished":
            return "FINISHED"
        case _:
            return "STOPPED"


def _attempt(row: RowMapping) -> AttemptRow:
    return AttemptRow(**{**row, "spans": row["spans"] or {}})


def _committed(row: RowMapping) -> Committed:
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
    return Committed(**{name: row[name] for name in own})


def _metadata(connection: Connection, plan: RowMapping | None) -> tuple[Mapping[str, Any], str | None]:
    """What the plan says, by spout, pieces put back; or why it cannot be said. A plan that cannot be read must not hide the rest."""
    if plan is None:
        return {}, None
    try:
        stored = read_plan(bytes(plan["bytes"]), "table txtopo.plan").metadata
        return {spout: _whole(connection, value) for spout, value in stored.items()}, None
    except (Halted, ValueError) as error:
        return {}, str(error)


def _whole(connection: Connection, metadata: Any) -> Any:
    if not isinstance(metadata, Mapping) or _PART_KEY not in metadata:
        return metadata
    part = one(connection, statements.PLAN_PART, digest=str(metadata[_PART_KEY]))
    if part is None:
        raise Halted(f"table txtopo.plan_part has no piece {metadata[_PART_KEY]}")
    return json.loads(bytes(part["bytes"]))


def _files(metadata: Mapping[str, Any], consumed: Sequence[RowMapping]) -> tuple[SourceFile, ...]:
    """Inputs as `source_file` remembers them for ever, with the sizes that the plan knows."""
    sizes = {(spout, path): size for spout, value in metadata.items() for path, size in _sizes(value)}
    return tuple(
        SourceFile(
            spout=row["spout"],
            path=row["path"],
            size=sizes.get((row["spout"], row["path"])),
            fingerprint=row["fingerprint"],
        )
        for row in consumed
    )


def _sizes(metadata: Any) -> Iterator[tuple[str, int]]:
    files = metadata.get("files") if isinstance(metadata, Mapping) else None
    for entry in files if isinstance(files, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("size"), int):
            yield str(entry.get("path")), entry["size"]
