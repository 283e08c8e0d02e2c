"""`Ledger` in memory, with the same rules as the one on Postgres: for simulation, and to test a topology without
services.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Literal

from txtopo.committers.memory.memory_halves import memory_half
from txtopo.committers.memory.memory_mirror import mirrored
from txtopo.committers.memory.memory_session import MemoryLedgerSession
from txtopo.committers.memory.memory_staging import MemoryStaging
from txtopo.committers.memory.memory_store import (
    MemoryPostgres,
    StoredAction,
    StoredAttempt,
    StoredBatch,
    StoredOrder,
    TopologyRows,
)
from txtopo.committers.protocol.rules import (
    ANSWERS,
    ATTEMPT_STATES,
    END_STATES,
    LIFE_STATES,
    check_incarnation,
    check_mirrored,
    checked_part,
    compare_lead,
    expired_plan,
    last_metadata,
    outcomes_of_run,
)
from txtopo.core.crash_points import CrashPoint, reach
from txtopo.core.limits import LEADER_SILENT_S, PLAN_PART_BYTES_MAX, RECENT_TXIDS
from txtopo.core.plan import genesis_digest, read_plan
from txtopo.core.values import (
    ActionRecord,
    AttemptRecord,
    CommitOutcome,
    Failure,
    Fence,
    Lacking,
    Lead,
    LedgerBatch,
    Left,
    Order,
    TransactionAttempt,
)
from txtopo.errors import Halted, PostgresUnavailable, invariant
from txtopo.ports import AttemptStart, Claim, Claimed, MirrorEntry, StagingPlace
from txtopo.topology.components import CommitterComponent

__all__ = ["MemoryLedger", "MemoryPostgres"]


class MemoryLedger:
    """The view of one driver on one topology in a shared store.

    >>> store = MemoryPostgres()
    >>> MemoryLedger(store, "flights").read_fence() is None
    True
    """

    def __init__(self, store: MemoryPostgres, topology: str) -> None:
        self._store = store
        self._topology = topology
        self._sessions: list[MemoryLedgerSession] = []
        self._is_closed = False

    def claim_fence(self, claim: Claim) -> Claimed:
        invariant(claim.topology == self._topology, f"this ledger is of {self._topology}, not of {claim.topology}")
        with self._transaction():
            rows = self._store.topologies.get(claim.topology)
            check_incarnation(claim.topology, None if rows is None else rows.fence.incarnation, claim.incarnation)
            before = 0 if rows is None else rows.fence.epoch
            fence = Fence(
                incarnation=claim.new_incarnation if rows is None else rows.fence.incarnation,
                owner_nonce=claim.owner_nonce,
                epoch=max(before, claim.epoch_above) + 1,  # R1
                code_hash=claim.code_hash,
                last_txid=0 if rows is None else rows.fence.last_txid,
            )
            if rows is None:
                genesis = StoredBatch(digest=genesis_digest(claim.topology, fence.incarnation), epoch=fence.epoch)
                rows = TopologyRows(fence=fence, ledger={0: genesis})
            left = sorted(name for name in self._store.staging if name.startswith(f"{claim.topology}/"))
            claimed = _claimed(claim.topology, rows, fence, self._store.actions, left)
            for topology, order in self._store.orders.values():
                if (topology, order.kind, order.state) == (claim.topology, "stop", "open"):
                    order.state, order.answer = "refused", "the leader that it was meant for has ended"
            if rows.holder is not None:
                # P6: the database transaction of an older leader is ended; here immediately, on Postgres after the lock
                # timeout.
                self._store.release(rows, rows.holder)
            rows.fence, rows.opaque, rows.spoke_at = fence, claim.opaque, time.monotonic()
            rows.life = {
                "application": claim.application,
                "description": claimed.description or dict(claim.description),
                "state": "running",
                "host": claim.host,
                "pid": claim.pid,
                "epoch": fence.epoch,
                "planned_txid": claimed.last_txid + len(claimed.plans),
            }
            self._store.topologies[claim.topology] = rows
            return replace(claimed, orders=self._store.open_orders(claim.topology))

    def read_fence(self) -> Fence | None:
        with self._transaction():
            rows = self._store.topologies.get(self._topology)
            return None if rows is None else rows.fence

    def prepare_targets(
        self,
        lead: Lead,
        committers: Sequence[CommitterComponent],
        description: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        with self._fenced(lead) as rows:
            kept = [
                dict(self._store.tables),
                dict(self._store.columns),
                dict(self._store.targets),
                dict(self._store.contributions),
            ]
            try:
                for committer in committers:
                    memory_half(committer).prepare(self._store, lead, committer)
            except BaseException:
                self._store.tables, self._store.columns, self._store.targets, self._store.contributions = kept  # type: ignore[assignment]
                raise
            if description is not None:
                rows.life.update(description=dict(description), settings=dict(settings or {}))

    def consumed(self, spout: str, paths: Sequence[str]) -> Mapping[str, bytes]:
        found = self._consumed(spout)
        return {path: found[path] for path in paths if path in found}

    def not_consumed(self, spout: str, paths: Sequence[str]) -> set[str]:
        return {*paths} - self._consumed(spout).keys()

    def consumed_after(self, spout: str, path: str, count: int) -> Sequence[tuple[str, bytes]]:
        return [item for item in sorted(self._consumed(spout).items()) if item[0] > path][:count]

    def _consumed(self, spout: str) -> dict[str, bytes]:
        with self._transaction():
            rows = self._store.topologies.get(self._topology)
            sources = rows.sources if rows else {}
            return {path: fingerprint for (name, path), (fingerprint, _) in sources.items() if name == spout}

    def plans_below(self, txid: int, count: int) -> Sequence[tuple[int, bytes]]:
        with self._transaction():
            rows = self._store.topologies.get(self._topology)
            below = sorted((number for number in (rows.plans if rows else {}) if number < txid), reverse=True)
            return [(number, rows.plans[number][1]) for number in below[:count]] if rows else []

    def store_part(self, data: bytes) -> str:
        invariant(
            len(data) <= PLAN_PART_BYTES_MAX,
            f"a part of metadata has {len(data)} bytes, at most {PLAN_PART_BYTES_MAX} are allowed",
        )
        with self._transaction():
            digest = hashlib.sha256(data).hexdigest()
            self._store.parts.setdefault(digest, data)
            return digest

    def read_part(self, digest: str) -> bytes:
        with self._transaction():
            return checked_part(digest, self._store.parts.get(digest))

    def mirror(self, lead: Lead, entries: Sequence[MirrorEntry]) -> None:
        if not entries:
            return
        with self._fenced(lead) as rows:
            new = mirrored(rows, lead, entries)
            reach(CrashPoint.MIRROR_OPEN, entries[0].plan.txid)
            new.publish(rows)

    def begin_attempts(self, lead: Lead, starts: Sequence[AttemptStart]) -> None:
        with self._fenced(lead) as rows:
            attempts = dict(rows.attempts)
            for start in sorted(starts, key=lambda start: start.attempt):
                txid, number = start.attempt.txid, start.attempt.attempt
                found = attempts.get((txid, number))
                if found is not None and (found.epoch, found.state) == (lead.epoch, "begun"):
                    continue  # the reply was lost and the driver asks again
                newest = max((other for one, other in attempts if one == txid), default=-1)
                invariant(number > newest, f"attempt {start.attempt} would go back: {txid}:{newest} is known")
                attempts[(txid, number)] = StoredAttempt(lead.epoch, start.alone, lead.code_hash, inputs=start.inputs)
            rows.attempts = attempts

    def end_attempt(self, lead: Lead, attempt: TransactionAttempt, state: str, failure: Failure | None) -> None:
        invariant(
            state in ATTEMPT_STATES and (state == "cancelled" or failure),
            f"attempt {attempt} cannot end as {state} without a failure",
        )
        with self._fenced(lead) as rows:
            row = rows.attempts.get((attempt.txid, attempt.attempt))
            if row is not None and row.state == "begun":
                row.state, row.failure = state, failure

    @contextmanager
    def session(self, lead: Lead) -> Iterator[MemoryLedgerSession]:
        with self._transaction():
            session = MemoryLedgerSession(self._store, lead)
            self._sessions.append(session)
        try:
            yield session
        finally:
            session.end()
            if session in self._sessions:
                self._sessions.remove(session)

    def single_commits(self, committers: Sequence[CommitterComponent]) -> str | None:
        with self._transaction():
            tables = (table for committer in committers for table in memory_half(committer).tables(committer))
            found = [
                f"table {table} has {self._store.not_plain[table]}"
                for table in tables
                if table in self._store.not_plain
            ]
            return "; ".join(found) or None

    def run_session(self, lead: Lead) -> AbstractContextManager[MemoryLedgerSession]:
        return self.session(lead)

    def resolve(self, lead: Lead, plans: Sequence[tuple[int, bytes]]) -> Sequence[CommitOutcome]:
        with self._fenced(lead) as rows:
            if rows.holder is not None:
                self._store.release(rows, rows.holder)  # the session of the unanswered COMMIT
            return outcomes_of_run(plans, {txid: row.digest for txid, row in rows.ledger.items()})

    def log_action(self, lead: Lead, action: ActionRecord) -> None:
        with self._fenced(lead):
            same = [
                row.action
                for row in self._store.actions
                if (row.topology, row.action.command) == (lead.topology, action.command)
            ]
            if same[-1:] != [action]:
                self._store.actions.append(self._store.action_row(lead.topology, action))

    def heartbeat(
        self,
        lead: Lead,
        state: str,
        problem: str | None,
        planned_txid: int,
        waiting: Mapping[str, Any] | None = None,
    ) -> Sequence[Order]:
        invariant(state in LIFE_STATES, f"a leader cannot be {state}")
        with self._fenced(lead) as rows:
            rows.life.update(state=state, problem=problem, planned_txid=planned_txid, waiting=dict(waiting or {}))
            rows.life.update(reason=None, advice=None, halted_txid=None)
            rows.spoke_at = time.monotonic()
            return self._store.open_orders(lead.topology)

    def waits_for(self) -> str | None:
        return None  # nothing else takes locks in memory

    def answer_order(
        self, lead: Lead, order_id: int, state: str, answer: str, action: ActionRecord | None = None
    ) -> None:
        invariant(state in ANSWERS, f"an order cannot end as {state}")
        with self._fenced(lead):
            row = self._open_order(lead, order_id)
            if row is not None:
                logged = [] if action is None else [self._store.action_row(lead.topology, action)]
                row.state, row.answer = state, answer
                self._store.actions.extend(logged)

    def note_progress(self, lead: Lead, order_id: int, progress: Mapping[str, Any]) -> None:
        with self._fenced(lead):
            row = self._open_order(lead, order_id)
            if row is not None:
                row.progress = dict(progress)

    def redo_chain(self, txid: int) -> Sequence[LedgerBatch]:
        with self._transaction():
            rows = self._store.topologies.get(self._topology)
            return [] if rows is None else _redo_chain(rows, txid)

    def lacking(self, committer: str, above: int, planned: Sequence[int]) -> Lacking | None:
        with self._transaction():
            rows = self._store.topologies[self._topology]
            found = sorted(txid for txid in rows.ledger if txid > above and _lacks(rows, txid, committer))
            txid = next((one for one in found if one not in planned), None)
            if txid is None:
                return None
            tried = tuple(
                (number, read_plan(rows.plans[number][1], "memory").order_id, row.reason)
                for number, row in sorted(rows.ledger.items())
                if (row.backfills, row.committer, row.state) == (txid, committer, "quarantined")
            )
            return Lacking(txid=txid, plan=rows.plans.get(txid, (b"", None))[1], tried=tried)

    def batches_after(self, txid: int) -> Sequence[LedgerBatch]:
        with self._transaction():
            rows = self._store.topologies.get(self._topology)
            kept = sorted(rows.ledger.items()) if rows is not None else []
            return [
                _batch(rows, number)
                for number, row in kept
                if rows is not None and row.state != "genesis" and number > txid and number in rows.plans
            ]

    def note_halt(self, halt: Halted) -> None:
        with self._transaction():
            rows = self._store.topologies.get(self._topology)
            is_led = rows is not None and time.monotonic() - rows.spoke_at < LEADER_SILENT_S
            if rows is not None and not (is_led and rows.life.get("state") in LIFE_STATES):
                rows.life.update(
                    state="halted",
                    reason=halt.reason,
                    advice=halt.next_command,
                    halted_txid=halt.txid,
                    problem=None,
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
        with self._fenced(lead) as rows:
            rows.life.update(
                state=state,
                reason=reason,
                advice=next_command,
                halted_txid=txid,
                problem=None,
                planned_txid=planned_txid,
            )

    def staging(self, lead: Lead, place: StagingPlace | None, left: Sequence[str] | None) -> MemoryStaging:
        return MemoryStaging(self._store, lead, place, left)

    def close(self) -> None:
        self._is_closed = True
        for session in self._sessions:
            session.end()
        self._sessions.clear()

    def _open_order(self, lead: Lead, order_id: int) -> StoredOrder | None:
        topology, row = self._store.orders.get(order_id, (None, None))
        return row if row is not None and topology == lead.topology and row.state == "open" else None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._is_closed:
            raise PostgresUnavailable("this driver has closed its connections")
        with self._store.transaction():
            yield

    @contextmanager
    def _fenced(self, lead: Lead) -> Iterator[TopologyRows]:
        with self._transaction():
            rows = self._store.topologies.get(lead.topology)
            compare_lead(rows.fence if rows else None, lead)
            yield self._store.topologies[lead.topology]


def _redo_chain(rows: TopologyRows, txid: int) -> list[LedgerBatch]:
    chain: list[LedgerBatch] = []
    members = {txid}
    for number, row in sorted(rows.ledger.items()):
        if row.state == "genesis" or not (number == txid or row.redo_of in members):
            continue
        members.add(number)
        if number not in rows.plans:
            raise expired_plan(number)
        chain.append(_batch(rows, number))
    return chain


def _batch(rows: TopologyRows, txid: int) -> LedgerBatch:
    row = rows.ledger[txid]
    state: Literal["applied", "quarantined"] = "applied" if row.state == "applied" else "quarantined"
    return LedgerBatch(txid=txid, state=state, redo_of=row.redo_of, plan=rows.plans[txid][1], backfills=row.backfills)


def _lacks(rows: TopologyRows, txid: int, committer: str) -> bool:
    """True if the batch is in effect and this committer has not counted it."""
    row = rows.ledger[txid]
    applied = [one for one in rows.ledger.values() if one.state == "applied"]
    of_batch = [row, *(one for one in applied if one.backfills == txid)]
    counted = any(count.committer == committer for one in of_batch for count in one.counts)
    in_effect = row.state == "applied" and row.backfills is None
    return in_effect and not counted and not any(one.redo_of == txid for one in applied)


def _claimed(
    topology: str, rows: TopologyRows, fence: Fence, actions: Sequence[StoredAction], left: Sequence[str]
) -> Claimed:
    last = fence.last_txid
    if last not in rows.ledger:
        raise Halted(f"the fence of {topology} is at {last}, but the ledger has no row {last}", txid=last)
    above = sorted(txid for txid in rows.plans if txid > last)
    for expected, txid in enumerate(above, last + 1):
        check_mirrored(txid, expected, *rows.plans[txid])
    newest = max(
        (txid for txid, row in rows.ledger.items() if txid > 0 and (row.redo_of, row.backfills) == (None, None)),
        default=None,
    )
    plan = None if newest is None else rows.plans.get(newest)
    return Claimed(
        lead=Lead(
            topology=topology,
            incarnation=fence.incarnation,
            epoch=fence.epoch,
            owner_nonce=fence.owner_nonce,
            code_hash=fence.code_hash,
        ),
        last_txid=last,
        last_digest=rows.ledger[last].digest,
        description=rows.life.get("description", {}),
        staging_tables=left,
        last_metadata=None if newest is None else last_metadata(newest, plan and plan[1]),
        plans=[rows.plans[txid][1] for txid in above],
        attempts=[
            AttemptRecord(
                attempt=TransactionAttempt(*key),
                epoch=row.epoch,
                state=row.state,
                kind=row.failure.kind if row.failure else None,
                alone=row.alone,
                code_hash=row.code_hash,
            )
            for key, row in sorted(rows.attempts.items())
            if key[0] > last
        ],
        system_identifier="memory",
        recent=_recent(topology, rows, actions),
        last_epoch=rows.ledger[last].epoch,
    )


def _recent(topology: str, rows: TopologyRows, actions: Sequence[StoredAction]) -> list[Left]:
    """The batches that W7 and W8 count. Batches that an operator skipped, and batches that read nothing, are not
    counted.
    """
    mine = [one.action for one in actions if one.topology == topology and one.action.command == "on_poison"]
    causes = {one.txid: str(one.after.get("cause", "unknown")) for one in mine}
    found = [
        Left(txid, causes[txid] if row.state == "quarantined" else None)
        for txid, row in sorted(rows.ledger.items())
        if (row.state == "applied" and row.read) or (row.state == "quarantined" and txid in causes)
    ]
    return found[-RECENT_TXIDS:]
