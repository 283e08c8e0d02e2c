"""`Ledger` on Postgres, schema txtopo. Each method is one database transaction."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from txtopo.committers.postgres.actions import append_action, log_action, order_of
from txtopo.committers.postgres.commit_session import PostgresLedgerSession
from txtopo.committers.postgres.fence import claim_fence
from txtopo.committers.postgres.lock_holders import waits_for
from txtopo.committers.postgres.mirror import mirror_plans
from txtopo.committers.postgres.plain_targets import obstacles
from txtopo.committers.postgres.postgres_halves import PostgresHalf, postgres_half
from txtopo.committers.postgres.postgres_staging import PostgresStaging
from txtopo.committers.postgres.resolve import resolve_commit
from txtopo.committers.postgres.run_session import PostgresRunSession
from txtopo.committers.postgres.sql_errors import translating
from txtopo.committers.postgres.storable_text import storable, storable_json, storable_or_none
from txtopo.committers.postgres.transactions import Database, fence_of, run, run_first
from txtopo.committers.protocol.rules import (
    ANSWERS,
    ATTEMPT_STATES,
    END_STATES,
    LIFE_STATES,
    check_mirrored,
    checked_part,
    expired_plan,
)
from txtopo.core.crash_points import CrashPoint, reach
from txtopo.core.limits import LEADER_SILENT_S, PLAN_PART_BYTES_MAX
from txtopo.core.values import (
    ActionRecord,
    CommitOutcome,
    Failure,
    Fence,
    Lacking,
    Lead,
    LedgerBatch,
    Order,
    TransactionAttempt,
)
from txtopo.errors import ConfigurationError, Halted, invariant
from txtopo.ports import AttemptStart, Claim, Claimed, MirrorEntry, StagingPlace
from txtopo.topology.components import CommitterComponent


class PostgresLedger:
    """`txtopo.ports.Ledger` on Postgres. `migrate` must have created or updated the schema. Connects at the first
    call.
    """

    def __init__(self, dsn: str, topology: str) -> None:
        self._database = Database(dsn, topology)
        self._topology = topology
        self._halves: dict[str, PostgresHalf] = {}

    def claim_fence(self, claim: Claim) -> Claimed:
        invariant(claim.topology == self._topology, f"this ledger is of {self._topology}, not of {claim.topology}")
        return claim_fence(self._database, claim)

    def read_fence(self) -> Fence | None:
        with self._database.transaction("reading the fence") as connection:
            row = run_first(connection, "read_fence", topology=self._topology).one_or_none()
        return None if row is None else fence_of(row)

    def prepare_targets(
        self,
        lead: Lead,
        committers: Sequence[CommitterComponent],
        description: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        with self._database.fenced(lead, "preparing the committers' tables") as connection:
            refused = run(connection, "list_functions_refused").scalar_one()
            if refused is not None:  # before the first batch is processed, and not by its commit
                raise ConfigurationError(
                    f"this role may not execute {refused}, which commits call; grant execute on all functions in "
                    f"schema txtopo"
                )
            for committer in committers:
                self._half(committer).prepare(connection, lead)
            if description is not None:
                run(
                    connection,
                    "describe_topology",
                    topology=lead.topology,
                    description=json.dumps(dict(description)),
                    settings=json.dumps(dict(settings or {})),
                    code_hash=lead.code_hash,
                )

    def consumed(self, spout: str, paths: Sequence[str]) -> Mapping[str, bytes]:
        with self._database.transaction("reading what was consumed") as connection:
            rows = run_first(connection, "list_consumed", topology=self._topology, spout=spout, paths=list(paths)).all()
        return {path: bytes(fingerprint) for path, fingerprint in rows}

    def not_consumed(self, spout: str, paths: Sequence[str]) -> set[str]:
        # As one value: the driver of the database takes ten times as long for an array.
        asked = json.dumps(list(paths), ensure_ascii=False)
        with self._database.transaction("reading what was consumed") as connection:
            rows = run_first(connection, "list_not_consumed", topology=self._topology, spout=spout, paths=asked).all()
        return {path for (path,) in rows}

    def consumed_after(self, spout: str, path: str, count: int) -> Sequence[tuple[str, bytes]]:
        values = {"spout": spout, "path": path, "count": count}
        with self._database.transaction("reading what was consumed") as connection:
            rows = run_first(connection, "list_consumed_after", topology=self._topology, **values).all()
        return [(found, bytes(fingerprint)) for found, fingerprint in rows]

    def plans_below(self, txid: int, count: int) -> Sequence[tuple[int, bytes]]:
        with self._database.transaction("reading the last plans") as connection:
            rows = run_first(connection, "list_plans_below", topology=self._topology, txid=txid, count=count).all()
        return [(number, bytes(data)) for number, data in rows]

    def store_part(self, data: bytes) -> str:
        invariant(
            len(data) <= PLAN_PART_BYTES_MAX,
            f"a part of metadata has {len(data)} bytes, at most {PLAN_PART_BYTES_MAX} are allowed",
        )
        digest = hashlib.sha256(data)
        with self._database.transaction("storing metadata") as connection:
            run_first(connection, "insert_plan_part", topology=self._topology, digest=digest.digest(), bytes=data)
        return digest.hexdigest()

    def read_part(self, digest: str) -> bytes:
        with self._database.transaction("reading metadata") as connection:
            rows = run_first(connection, "read_plan_part", topology=self._topology, digest=bytes.fromhex(digest))
            found = rows.scalar_one_or_none()
        return checked_part(digest, None if found is None else bytes(found))

    def mirror(self, lead: Lead, entries: Sequence[MirrorEntry]) -> None:
        if not entries:
            return
        with self._database.fenced(lead, "mirroring plans") as connection:
            mirror_plans(connection, lead, entries)
            reach(CrashPoint.MIRROR_OPEN, entries[0].plan.txid)

    def begin_attempts(self, lead: Lead, starts: Sequence[AttemptStart]) -> None:
        if not starts:
            return
        with self._database.fenced(lead, "recording attempts") as connection:
            run(
                connection,
                "begin_attempts",
                topology=lead.topology,
                epoch=lead.epoch,
                code_hash=lead.code_hash,
                host=platform.node(),
                txids=[start.attempt.txid for start in starts],
                attempts=[start.attempt.attempt for start in starts],
                alones=[start.alone for start in starts],
                inputs=[storable_json(start.inputs) for start in starts],
            )

    def end_attempt(self, lead: Lead, attempt: TransactionAttempt, state: str, failure: Failure | None) -> None:
        invariant(
            state in ATTEMPT_STATES and (state == "cancelled" or failure),
            f"attempt {attempt} cannot end as {state} without a failure",
        )
        with self._database.fenced(lead, "recording the end of an attempt") as connection:
            run(
                connection,
                "end_attempt",
                topology=lead.topology,
                txid=attempt.txid,
                attempt=attempt.attempt,
                state=state,
                kind=failure.kind if failure else None,
                component=storable_or_none(failure.component if failure else None),
                position=storable_or_none(failure.position if failure else None),
                message=storable_or_none(failure.message if failure else None),
                detail=storable_or_none(failure.detail if failure else None),
                cause=storable_or_none(failure.cause if failure else None),
            )

    @contextmanager
    def session(self, lead: Lead) -> Iterator[PostgresLedgerSession]:
        with self._database.connected() as connection:
            yield PostgresLedgerSession(self._database, lead, connection, self._half)

    def single_commits(self, committers: Sequence[CommitterComponent]) -> str | None:
        tables: list[Mapping[str, Any]] = []
        for committer in committers:
            run_half = self._half(committer).run_half
            if run_half is None:
                return f"committer {committer.name} has no table that txtopo keeps"
            tables += run_half.tables
        with self._database.transaction("comparing the committers' tables") as connection:
            return obstacles(connection, self._topology, tables)

    @contextmanager
    def run_session(self, lead: Lead) -> Iterator[PostgresRunSession]:
        with self._database.connected() as connection:
            yield PostgresRunSession(self._database, lead, connection, self._half)

    def resolve(self, lead: Lead, plans: Sequence[tuple[int, bytes]]) -> Sequence[CommitOutcome]:
        batches = f"batches {plans[0][0]} to {plans[-1][0]}" if len(plans) > 1 else f"batch {plans[0][0]}"
        with translating(f"resolving {batches}"):
            return resolve_commit(self._database, lead, plans, batches)

    def log_action(self, lead: Lead, action: ActionRecord) -> None:
        with self._database.fenced(lead, f"writing the action log: {action.command}") as connection:
            log_action(connection, lead.topology, action)

    def heartbeat(
        self,
        lead: Lead,
        state: str,
        problem: str | None,
        planned_txid: int,
        waiting: Mapping[str, Any] | None = None,
    ) -> Sequence[Order]:
        invariant(state in LIFE_STATES, f"a leader cannot be {state}")
        with self._database.fenced(lead, "writing the heartbeat") as connection:
            rows = run(
                connection,
                "write_heartbeat",
                topology=lead.topology,
                state=state,
                problem=storable_or_none(problem),
                planned_txid=planned_txid,
                waiting=storable_json(waiting or {}),
            ).all()
        return [order_of(row) for row in rows]

    def waits_for(self) -> str | None:
        with self._database.transaction("reading who holds a lock") as connection:
            return waits_for(connection, self._topology)

    def answer_order(
        self, lead: Lead, order_id: int, state: str, answer: str, action: ActionRecord | None = None
    ) -> None:
        invariant(state in ANSWERS, f"an order cannot end as {state}")
        with self._database.fenced(lead, "answering an order") as connection:
            closed = run(
                connection,
                "answer_order",
                topology=lead.topology,
                order_id=order_id,
                state=state,
                answer=storable(answer),
            ).rowcount
            if closed and action is not None:
                append_action(connection, lead.topology, action)

    def note_progress(self, lead: Lead, order_id: int, progress: Mapping[str, Any]) -> None:
        with self._database.fenced(lead, "noting the progress of an order") as connection:
            run(
                connection,
                "note_progress",
                topology=lead.topology,
                order_id=order_id,
                progress=storable_json(progress),
            )

    def redo_chain(self, txid: int) -> Sequence[LedgerBatch]:
        with self._database.transaction("reading what redoes a batch") as connection:
            rows = run_first(connection, "list_redo_chain", topology=self._topology, txid=txid).all()
        return _batches(rows)

    def lacking(self, committer: str, above: int, planned: Sequence[int]) -> Lacking | None:
        values = {"committer": committer, "above": above, "planned": list(planned)}
        with self._database.transaction("reading what a committer has not counted") as connection:
            row = run_first(connection, "find_lacking", topology=self._topology, **values).one_or_none()
        if row is None:
            return None
        txid, plan, tried = row
        return Lacking(
            txid=txid,
            plan=None if plan is None else bytes(plan),
            tried=tuple((number, order_id, reason) for number, order_id, reason in json.loads(tried or "[]")),
        )

    def batches_after(self, txid: int) -> Sequence[LedgerBatch]:
        with self._database.transaction("reading the last batches") as connection:
            return _batches(run_first(connection, "list_batches_after", topology=self._topology, after=txid).all())

    def note_halt(self, halt: Halted) -> None:
        with self._database.transaction("noting a halt") as connection:
            run_first(
                connection,
                "note_halt",
                topology=self._topology,
                reason=storable_or_none(halt.reason),
                advice=storable_or_none(halt.next_command),
                txid=halt.txid,
                silent_s=LEADER_SILENT_S,
            )

    def note_end(
        self,
        lead: Lead,
        state: str,
        reason: str | None,
        txid: int | None,
        planned_txid: int,
        next_command: str | None = None,
    ) -> None:
        invariant(state in END_STATES, f"a leader cannot end as {state}")
        with self._database.fenced(lead, "recording the end") as connection:
            words = storable_or_none(reason)
            run(
                connection,
                "note_end",
                topology=lead.topology,
                state=state,
                reason=words,
                advice=storable_or_none(next_command),
                txid=txid,
                planned_txid=planned_txid,
            )

    def staging(self, lead: Lead, place: StagingPlace | None, left: Sequence[str] | None) -> PostgresStaging:
        return PostgresStaging(self._database, lead, place, left)

    def disconnect(self) -> None:
        """Close the connections while this driver waits for the lead. The next use opens a new one."""
        self._database.disconnect()

    def close(self) -> None:
        self._database.close()

    def _half(self, committer: CommitterComponent) -> PostgresHalf:
        found = self._halves.get(committer.name)
        if found is None or found.component is not committer:
            found = self._halves[committer.name] = postgres_half(committer)
        return found


def _batches(rows: Sequence[Any]) -> list[LedgerBatch]:
    found: list[LedgerBatch] = []
    for number, state, redo_of, backfills, digest, data in rows:
        if data is None:
            raise expired_plan(number)
        check_mirrored(number, number, bytes(digest), bytes(data))
        found.append(LedgerBatch(txid=number, state=state, redo_of=redo_of, plan=bytes(data), backfills=backfills))
    return found
