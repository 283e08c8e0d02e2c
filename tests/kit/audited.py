"""A topology run to its end on a real database, without ZooKeeper, for tests that audit what it left and plant faults
in it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import Any, Literal

import psycopg2
from psycopg2.extras import execute_values

from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.committers.protocol.commit import commit_batch, quarantine_batch
from txtopo.core.plan import Plan, canonical, genesis_digest
from txtopo.core.values import Committed, Failure, Processed, Quarantine, TransactionAttempt
from txtopo.ports import Assignment, AttemptStart, Claim, Claimed, Executor, MirrorEntry
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.components import SpoutContext, SpoutCoordinator, Topology
from txtopo.topology.consumed_inputs import ConsumedInputs

CODE = b"c" * 32


class Leader:
    """A leader's work by hand, batch by batch: plan, mirror, process, commit; quarantine and redo where a test asks for
    it.
    """

    def __init__(
        self,
        dsn: str,
        topology: Topology,
        *,
        code_hash: bytes = CODE,
        in_pieces: bool = False,
        executor: Executor | None = None,
    ) -> None:
        """Takes the lead. `in_pieces`: file lists lie in plan_part. `executor`: by default one in this process."""
        self._dsn = dsn
        self._topology = topology
        self._in_pieces = in_pieces
        self._ledger = PostgresLedger(dsn, topology.name)
        claimed = self._claim(code_hash)
        self._lead, self._digest, self.txid = claimed.lead, claimed.last_digest, claimed.last_txid
        self._ledger.prepare_targets(self._lead, topology.committers, topology.describe())
        self._executor: Executor = executor or InProcessExecutor(topology, code_hash)
        self._spout = topology.spouts[0]

    def close(self) -> None:
        """Leave as a leader that has finished."""
        self._ledger.note_end(self._lead, "finished", None, None, self.txid)
        self._ledger.close()

    def cut(self, *, fail_first: bool = False, quarantined: Mapping[int, str] | None = None) -> None:
        """Every batch that the source gives. `fail_first`: each first attempt fails. `quarantined`: txid -> why, by an
        order of its own.
        """
        coordinator = self._coordinator()
        metadata: Mapping[str, Any] | None = None
        while not coordinator.is_exhausted():
            if not coordinator.is_ready():
                time.sleep(0.01)
                continue
            metadata = coordinator.initialize_transaction(self.txid + 1, metadata)
            plan = self._plan(metadata)
            if fail_first:
                self._fail(plan.txid)
            reason = (quarantined or {}).get(plan.txid)
            if reason is None:
                self._commit(plan, metadata, TransactionAttempt(plan.txid, int(fail_first)))
            else:
                self._quarantine(plan, reason, self._order("skip", plan.txid, reason))

    def redo(
        self, txid: int, kind: Literal["redrive", "recompute"] = "recompute", *, quarantined: str | None = None
    ) -> int:
        """Redo a batch as a new txid, which is returned, by an order of its own. `quarantined`: why this one comes to
        nothing.
        """
        order = self._order(kind, txid, f"{kind} of {txid}")
        stored = select(self._dsn, f"select convert_from(bytes, 'UTF8') from txtopo.plan where txid = {txid}")[0][0]
        metadata = self._coordinator().initialize_redo(json.loads(stored)["metadata"][self._spout.name])
        plan = self._plan(metadata, kind="redo", redo_of=txid, order=order)
        if quarantined is None:
            self._commit(plan, metadata, TransactionAttempt(plan.txid, 0))
        else:
            self._quarantine(plan, quarantined, None)
        return plan.txid

    def backfill(self, txid: int, committer: str) -> int:
        """Count a batch into a committer that was added, as a new txid, which is returned, by an order of its own."""
        order = self._order("backfill", txid, f"{committer} is new", committer)
        stored = select(self._dsn, f"select convert_from(bytes, 'UTF8') from txtopo.plan where txid = {txid}")[0][0]
        metadata = json.loads(stored)["metadata"][self._spout.name]
        plan = self._plan(metadata, kind="backfill", backfills=txid, committer=committer, order=order)
        self._commit(plan, metadata, TransactionAttempt(plan.txid, 0))
        return plan.txid

    def _claim(self, code_hash: bytes) -> Claimed:
        fence = self._ledger.read_fence()
        return self._ledger.claim_fence(
            Claim(
                topology=self._topology.name,
                owner_nonce=str(uuid.uuid4()),
                code_hash=code_hash,
                epoch_above=0,
                incarnation=fence.incarnation if fence else None,
                new_incarnation=str(uuid.uuid4()),
                host="box",
                pid=1,
                application="app.py:topology",
                description=self._topology.describe(),
            )
        )

    def _coordinator(self) -> SpoutCoordinator:
        return self._spout.spout.open_coordinator(
            SpoutContext(
                topology=self._topology.name,
                spout=self._spout.name,
                consumed=ConsumedInputs(
                    partial(self._ledger.consumed, self._spout.name),
                    partial(self._ledger.consumed_after, self._spout.name),
                    {},
                    partial(self._ledger.not_consumed, self._spout.name),
                ),
                once=True,
                monotonic=time.monotonic,
                say=lambda _: None,
            )
        )

    def _plan(self, metadata: Mapping[str, Any], *, order: int | None = None, **again: Any) -> Plan:
        stored = {"$part": self._ledger.store_part(canonical(metadata))} if self._in_pieces else metadata
        plan = Plan(
            topology=self._topology.name,
            incarnation=self._lead.incarnation,
            txid=self.txid + 1,
            previous_digest=self._digest,
            metadata={self._spout.name: stored},
            order_id=order,
            **again,
        )
        inputs = {self._spout.name: self._spout.spout.inputs(metadata)}
        self._ledger.mirror(self._lead, [MirrorEntry(plan=plan, inputs=inputs)])
        self._digest, self.txid = plan.digest, plan.txid
        return plan

    def _fail(self, txid: int) -> None:
        attempt = TransactionAttempt(txid, 0)
        failure = Failure(kind="data", message="a bad line", component="files", position="in.csv:7")
        self._ledger.begin_attempts(self._lead, [AttemptStart(attempt=attempt)])
        self._ledger.end_attempt(self._lead, attempt, "failed", failure)

    def _commit(self, plan: Plan, metadata: Mapping[str, Any], attempt: TransactionAttempt) -> None:
        self._ledger.begin_attempts(self._lead, [AttemptStart(attempt=attempt)])
        (outcome,) = self._executor.process([Assignment(attempt=attempt, metadata={self._spout.name: metadata})])
        assert isinstance(outcome, Processed), outcome
        committed = commit_batch(self._ledger, self._lead, plan, outcome, self._topology)
        assert isinstance(committed, Committed), committed

    def _quarantine(self, plan: Plan, reason: str, order: int | None) -> None:
        decision = Quarantine(attempt=TransactionAttempt(plan.txid, 0), reason=reason, order_id=order)
        committed = quarantine_batch(self._ledger, self._lead, plan, decision)
        assert isinstance(committed, Committed), committed

    def _order(self, kind: str, txid: int, reason: str, committer: str | None = None) -> int:
        """An operator's order that is answered already."""
        with closing(psycopg2.connect(self._dsn)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(
                "insert into txtopo.request (topology, kind, arguments, reason, actor, host, state, answer, done_at) "
                "values (%s, %s, %s, %s, 'ada', 'desk', 'done', 'carried out', clock_timestamp()) returning request_id",
                (
                    self._topology.name,
                    kind,
                    json.dumps({"txids": [txid]} if committer is None else {"committer": committer}),
                    reason,
                ),
            )
            return int(cursor.fetchall()[0][0])


def run_batches(
    dsn: str,
    topology: Topology,
    *,
    code_hash: bytes = CODE,
    fail_first: bool = False,
    in_pieces: bool = False,
    quarantined: Mapping[int, str] | None = None,
) -> int:
    """Plan, process and commit whatever the spout gives; returns how far it got. `fail_first`, `quarantined`: see
    `Leader.cut`.
    """
    with closing(Leader(dsn, topology, code_hash=code_hash, in_pieces=in_pieces)) as leader:
        leader.cut(fail_first=fail_first, quarantined=quarantined)
        return leader.txid


def behind_the_back(dsn: str, *statements: str) -> None:
    """What a superuser may do: statements with every trigger and foreign key switched off."""
    with closing(psycopg2.connect(dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("set local session_replication_role = replica")
        for statement in statements:
            cursor.execute(statement)
            assert cursor.rowcount != 0, f"planted nothing: {statement}"


def select(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    """Rows of a statement of the test's own."""
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def fill(dsn: str, topology: Topology, *, batches: int, keys: int) -> None:
    """Many batches at once, as honest commits leave them: each with `keys` contributions and a plan without files.
    Nothing was really run.
    """
    run_batches(dsn, topology)  # the tables
    incarnation = select(dsn, "select incarnation::text from txtopo.fence")[0][0]
    digest, plans = genesis_digest(topology.name, incarnation), []
    for txid in range(1, batches + 1):
        plan = Plan(
            topology=topology.name,
            incarnation=incarnation,
            txid=txid,
            previous_digest=digest,
            metadata={"files": {"files": []}},
        )
        plans.append((topology.name, txid, plan.digest, plan.bytes, digest))
        digest = plan.digest
    with closing(psycopg2.connect(dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(
            "create temporary table planned (topology text, txid bigint, digest bytea, bytes bytea, previous bytea, "
            "at timestamptz default now())"
        )
        execute_values(
            cursor, "insert into planned (topology, txid, digest, bytes, previous) values %s", plans, page_size=1000
        )
        cursor.execute(_FILL, {"keys": keys, "last": batches})


_FILL = """
alter table txtopo.ledger enable always trigger seal;
set local session_replication_role = replica;
update txtopo.fence set last_txid = %(last)s;
insert into order_totals_contribution select txid, null, 'shop ' || k, 'a1', 2, 3, 4.50 from planned, generate_series(1, %(keys)s) k;
insert into order_totals select shop, article, sum(rows), sum(pieces), sum(price) from order_totals_contribution group by 1, 2;
insert into txtopo.committer_count
  select 'orders', txid, 'totals', sum(rows), sum(rows), count(*), count(*), 0, 0,
         sum(('x' || encode(substring(sha256(convert_to(row(shop, article, rows, pieces, price)::text, 'UTF8')) for 8), 'hex'))::bit(64)::bigint)
    from order_totals_contribution group by txid;
insert into txtopo.edge_count select 'orders', txid, 'files -> totals', 2 * %(keys)s, 2 * %(keys)s from planned;
insert into txtopo.plan select topology, txid, digest, bytes, 0, 1, at from planned;
insert into txtopo.attempt (topology, txid, attempt, epoch, code_hash, state, started_at, ended_at, spans)
  select topology, txid, 0, 1, (select code_hash from txtopo.fence), 'applied', at, at, '{"processing": 0}' from planned;
insert into txtopo.ledger (topology, txid, prev_txid, prev_digest, digest, incarnation, epoch, attempt, code_hash, state, read, rejected, dead_lettered,
                           committers, planned_at, committed_at)
  select topology, txid, txid - 1, previous, digest, (select incarnation from txtopo.fence), 1, 0, (select code_hash from txtopo.fence), 'applied',
         2 * %(keys)s, 0, 0, 1, at, at from planned order by txid;
alter table txtopo.ledger enable trigger seal;
"""  # noqa: E501
