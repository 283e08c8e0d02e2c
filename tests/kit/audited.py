"""A topology run to its end on a real database, without ZooKeeper, for tests that audit what it left and plant faults in it."""

from __future__ import annotations

import time
import uuid
from contextlib import closing
from typing import Any

import psycopg2
from psycopg2.extras import execute_values

from txtopo.committers.commit import commit_batch
from txtopo.committers.ledger import PostgresLedger
from txtopo.core.plan import Plan, canonical, genesis_digest
from txtopo.core.values import Committed, Failure, Processed, TransactionAttempt
from txtopo.ports import Assignment, AttemptStart, Claim, MirrorEntry
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.components import SpoutContext, Topology

CODE = b"c" * 32


def run_batches(
    dsn: str, topology: Topology, *, code_hash: bytes = CODE, fail_first: bool = False, in_pieces: bool = False
) -> int:
    """Plan, process and commit whatever the spout gives, batch by batch; returns how far it got. `fail_first`: each first attempt fails. `in_pieces`: file lists lie in plan_part."""
    with closing(PostgresLedger(dsn, topology.name)) as ledger:
        fence = ledger.read_fence()
        claimed = ledger.claim_fence(
            Claim(
                topology=topology.name,
                owner_nonce=str(uuid.uuid4()),
                code_hash=code_hash,
                epoch_above=0,
                incarnation=fence.incarnation if fence else None,
                new_incarnation=str(uuid.uuid4()),
                host="box",
                pid=1,
                application="app.py:topology",
                description=topology.describe(),
            )
        )
        lead, digest, txid = claimed.lead, claimed.last_digest, claimed.last_txid
        ledger.prepare_targets(lead, topology.committers)
        executor = InProcessExecutor(topology, code_hash)
        component = topology.spouts[0]
        coordinator = component.spout.open_coordinator(
            SpoutContext(
                topology=topology.name,
                spout=component.name,
                consumed=ledger.consumed(component.name),
                once=True,
                monotonic=time.monotonic,
                say=lambda _: None,
            )
        )
        while not coordinator.is_exhausted():
            if not coordinator.is_ready():
                time.sleep(0.01)
                continue
            txid += 1
            metadata = {component.name: coordinator.initialize_transaction(txid, None)}
            stored = (
                {name: {"$part": ledger.store_part(canonical(value))} for name, value in metadata.items()}
                if in_pieces
                else metadata
            )
            plan = Plan(
                topology=topology.name,
                incarnation=lead.incarnation,
                txid=txid,
                previous_digest=digest,
                metadata=stored,
            )
            digest = plan.digest
            inputs = {component.name: component.spout.inputs(metadata[component.name])}
            ledger.mirror(lead, [MirrorEntry(plan=plan, inputs=inputs)])
            if fail_first:
                first = TransactionAttempt(txid, 0)
                ledger.begin_attempts(lead, [AttemptStart(attempt=first)])
                ledger.end_attempt(
                    lead,
                    first,
                    "failed",
                    Failure(kind="data", message="a bad line", component="files", position="in.csv:7"),
                )
            attempt = TransactionAttempt(txid, int(fail_first))
            ledger.begin_attempts(lead, [AttemptStart(attempt=attempt)])
            (outcome,) = executor.process([Assignment(attempt=attempt, metadata=metadata)])
            assert isinstance(outcome, Processed), outcome
            committed = commit_batch(ledger, lead, plan, outcome, topology.committers)
            assert isinstance(committed, Committed), committed
        ledger.note_end(lead, "finished", None, None)
        return txid


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
    """Many batches at once, as honest commits leave them: each with `keys` contributions and a plan without files. Nothing was really run."""
    run_batches(dsn, topology)  # the tables
    incarnation = select(dsn, "select incarnation::text from txtopo.fence")[0][0]
    digest, plans = genesis_digest(topology.name, incarnation), []
    for txid in range(1, batches + 1):
        plan = Plan(
            topology=topology.name, incarnation=incarnation, txid=txid, previous_digest=digest, metadata={"files": {"files": []}}
        )  # fmt: skip
        plans.append((topology.name, txid, plan.digest, plan.bytes, digest))
        digest = plan.digest
    with closing(psycopg2.connect(dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("create temporary table planned (topology text, txid bigint, digest bytea, bytes bytea, previous bytea, at timestamptz default now())")  # fmt: skip
        execute_values(cursor, "insert into planned (topology, txid, digest, bytes, previous) values %s", plans, page_size=1000)  # fmt: skip
        cursor.execute(_FILL, {"keys": keys, "last": batches})


_FILL = """
alter table txtopo.ledger enable always trigger seal;
set local session_replication_role = replica;
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
update txtopo.fence set last_txid = %(last)s;
alter table txtopo.ledger enable trigger seal;
"""
