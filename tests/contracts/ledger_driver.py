"""A driver taken step by step, and the world it lives in: what the contract of the ledger is written with."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa
import pytest

from txtopo.committers.count_committer import CountCommitter
from txtopo.committers.protocol.commit import commit_batch, quarantine_batch
from txtopo.committers.protocol.commit_run import commit_run
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.events import CommitItem
from txtopo.core.fields import parse_fields
from txtopo.core.plan import Plan
from txtopo.core.values import (
    ActionRecord,
    CommitOutcome,
    CommitterResult,
    DeadLetter,
    Lead,
    OrderKind,
    Processed,
    Quarantine,
    RejectedRow,
    RunEnded,
    RunFailed,
    TransactionAttempt,
)
from txtopo.ports import AttemptStart, Claim, Claimed, Ledger, MirrorEntry
from txtopo.topology.components import (
    CommitterComponent,
    Input,
    SpoutComponent,
    Subscription,
    Topology,
    TupleBoltComponent,
)

TOPOLOGY = "flights"
CODE = b"c" * 32
Row = tuple[Any, ...]
FIELDS = parse_fields("carrier string, origin string, distance int")
ROWS: list[Row] = [("AA", "JFK", 2, 200), ("AA", None, 1, 50), ("UA", "EWR", 3, 900)]
"""Six tuples under three keys, one of them with NULL."""


class LedgerWorld(Protocol):
    """A store that several drivers share."""

    def open(self, topology: str = TOPOLOGY) -> Ledger:
        """A driver's own ledger; closed by the world in the end."""

    def rows(self, table: str) -> dict[Row, Row]:
        """Count and sums by key."""

    def contributions(self, table: str) -> list[Row]:
        """Rows (txid, reverses, key…, count, sum…) of the target's contribution table, sorted by txid."""

    def seed(self, committer: CommitterComponent, rows: Mapping[Row, Row]) -> None:
        """Make the committer's target table with rows that no topology has counted."""

    def ask(
        self, kind: OrderKind, txids: Sequence[int] = (), reason: str | None = None, committer: str | None = None
    ) -> int:
        """Leave an operator's order; returns its id."""

    def order(self, order_id: int) -> Row:
        """State, answer and progress of an order."""

    def actions(self) -> list[Row]:
        """Rows (actor, command, reason, order id, txid, before, after) of the action log, oldest first."""

    def rejected(self, txid: int) -> list[Row]:
        """Rows (spout, path, line, reason, raw, raw_bytes, unit) of a batch's rejected records, by line."""

    def dead_letters(self, txid: int) -> list[Row]:
        """Rows (spout, position, component, reason, raw) of a batch's dead letters, by position."""

    def counts(self, txid: int) -> dict[str, Row]:
        """Arrived, counted, results, written and ignored of a batch, by committer."""

    def edges(self, txid: int) -> dict[str, Row]:
        """Sent and received of a batch, by edge."""

    def make_table(self, name: str, columns: str) -> None:
        """Make a table of the user's own in schema public."""

    def own_rows(self, name: str) -> list[Row]:
        """Rows of a table of the user's own into which committers insert one row a statement, sorted."""

    def ledger_row(self, txid: int) -> Row | None:
        """State, reason, redo_of, number of rejected records of a batch; None: it is not in the ledger."""

    def reversed(self, txid: int) -> dict[str, int]:
        """Contribution rows that the batch took back, by committer."""

    def change_by_hand(self, table: str, key: Row, numbers: Row | None) -> None:
        """Overwrite a row of a target table, or delete it, behind the ledger's back."""

    def attempt_state(self, txid: int, attempt: int) -> str | None:
        """State of a remembered attempt."""

    def said(self) -> tuple[str, str | None, str | None]:
        """State, reason and next command that `status` would show."""

    def add_check(self, table: str, condition: str = "count >= 0") -> None:
        """Give a target table a CHECK that a sum may pass and a batch not."""

    def break_commit(self) -> None:
        """Called when COMMIT is about to be sent: it will not be answered, and did not happen."""


def committer(name: str = "by_route", table: str = "flights_count", **more: Any) -> CommitterComponent:
    """A counting committer over the fields of these tests."""
    bolt = CountCommitter(table, ["carrier", "origin"], sums=["distance"], **more)
    return CommitterComponent(name=name, bolt=bolt, input=Subscription(source="spout"), fields=FIELDS)


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Result rows as the executor hands them over."""
    columns = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
    sums = [None if value is None else Decimal(value) for value in columns[3]]
    arrays = [
        pa.array(columns[0], pa.string()),
        pa.array(columns[1], pa.string()),
        pa.array(columns[2], pa.int64()),
        pa.array(sums, pa.decimal128(38, 0)),
    ]
    return pa.table(arrays, names=["carrier", "origin", "count", "distance"])


def result_of(rows: Sequence[Row], name: str = "by_route", **wrong: Any) -> CommitterResult:
    """A committer's result; `wrong` overrides a number."""
    numbers = {"arrived": sum(row[2] for row in rows), "row_count": len(rows), **wrong}
    return CommitterResult(committer=name, rows=table_of(rows), bytes=100, **numbers)


def rejected_row(line: int, **other: Any) -> RejectedRow:
    """A record that did not parse; `other` overrides."""
    values = {"spout": "spout", "path": "/in/1.csv", "reason": "distance: no int", "raw": b"AA,JFK,x", "raw_bytes": 8}
    return RejectedRow(line=line, **{**values, **other})


def dead_letter(position: str = "/in/1.csv:4", **other: Any) -> DeadLetter:
    """A record that a bolt failed on; `other` overrides."""
    values = {"spout": "spout", "component": "split", "reason": "bolts.py:7: ValueError: no", "raw": b"AA,JFK,7"}
    return DeadLetter(position=position, **{**values, **other})


class Driver:
    """A driver that leads and takes the steps of a batch one by one."""

    def __init__(self, ledger: Ledger, claimed: Claimed, committers: Sequence[CommitterComponent]) -> None:
        self.ledger = ledger
        self.claimed = claimed
        self.lead: Lead = claimed.lead
        self.committers = committers
        self.spouts: Sequence[SpoutComponent] = ()
        """Whose tuples components downstream of committers read besides."""
        self.bolts: Sequence[TupleBoltComponent] = ()
        """Downstream of committers."""
        self.digests = {claimed.last_txid: claimed.last_digest}

    def plan(self, txid: int, path: str | None = None, **other: Any) -> Plan:
        """The plan of a batch of one file; remembered, so that the next one chains to it."""
        plan = Plan(
            topology=self.lead.topology,
            incarnation=self.lead.incarnation,
            txid=txid,
            previous_digest=self.digests[txid - 1],
            metadata={"spout": {"path": path or f"/in/{txid}.csv"}},
            **other,
        )
        self.digests[txid] = plan.digest
        return plan

    def entry(self, plan: Plan) -> MirrorEntry:
        """The plan with the file that it consumes."""
        path = plan.metadata["spout"]["path"]
        return MirrorEntry(plan=plan, inputs={"spout": [Input(path=path, fingerprint=path.encode())]})

    def mirror(self, *plans: Plan) -> None:
        """Mirror plans in one go."""
        self.ledger.mirror(self.lead, [self.entry(plan) for plan in plans])

    def begin(self, txid: int, attempt: int = 0, *, alone: bool = False) -> None:
        """Record an attempt."""
        self.ledger.begin_attempts(self.lead, [AttemptStart(attempt=TransactionAttempt(txid, attempt), alone=alone)])

    def ready(self, txid: int, **other: Any) -> Plan:
        """Plan, mirror and begin a batch."""
        plan = self.plan(txid, **other)
        self.mirror(plan)
        self.begin(txid)
        return plan

    def ready_run(self, first: int = 1, count: int = 3) -> list[Plan]:
        """Plan, mirror and begin consecutive batches."""
        plans = [self.plan(txid) for txid in range(first, first + count)]
        self.mirror(*plans)
        for plan in plans:
            self.begin(plan.txid)
        return plans

    def redo(self, txid: int, redo_of: int, order_id: int | None = None) -> Plan:
        """Plan, mirror and begin a batch that redoes another one with the same file."""
        return self.ready(txid, path=f"/in/{redo_of}.csv", kind="redo", redo_of=redo_of, order_id=order_id)

    def processed(self, txid: int, rows: Sequence[Row] = ROWS, **other: Any) -> Processed:
        """What came out of the processing phase: the same rows for every committer."""
        results = tuple(result_of(rows, component.name) for component in self.committers)
        values = {
            "code_hash": self.lead.code_hash,
            "read": 10,
            "results": results,
            "spans": {"processing": 0.5},
            **other,
        }
        return Processed(attempt=TransactionAttempt(txid, values.pop("attempt", 0)), **values)

    @property
    def topology(self) -> Topology:
        """What is committed."""
        return Topology(
            name=self.lead.topology,
            spouts=tuple(self.spouts),
            bolts=tuple(self.bolts),
            committers=tuple(self.committers),
        )

    def commit(self, plan: Plan, rows: Sequence[Row] = ROWS, **other: Any) -> CommitOutcome:
        """One try at the commit."""
        processed = self.processed(plan.txid, rows, **other)
        return commit_batch(self.ledger, self.lead, plan, processed, self.topology)

    def commit_with_mirror(self, plan: Plan, **other: Any) -> CommitOutcome:
        """One try at the commit that mirrors the plan as well."""
        processed = self.processed(plan.txid, **other)
        return commit_batch(self.ledger, self.lead, plan, processed, self.topology, self.entry(plan))

    def commit_run(
        self,
        plans: Sequence[Plan],
        other: Mapping[int, Mapping[str, Any]] | None = None,
        now: Callable[[], float] = lambda: 0.0,
    ) -> RunEnded | RunFailed:
        """One try at the commit of several batches together; `other` overrides values, by txid."""
        items = [
            CommitItem(plan=plan, processed=self.processed(plan.txid, **(other or {}).get(plan.txid, {})))
            for plan in plans
        ]
        return commit_run(self.ledger, self.lead, items, self.topology, now)

    @staticmethod
    def run_failed(first: int, last: int, reason: str) -> ActionRecord:
        """What a leader logs of a run that failed."""
        before = {"first": first, "last": last}
        return ActionRecord(command="run_failed", txid=first, reason=reason, before=before, after={})

    def quarantine(self, plan: Plan, reason: str = "poison", attempt: int = 0, **other: Any) -> CommitOutcome:
        """One try at the quarantine."""
        quarantine = Quarantine(attempt=TransactionAttempt(other.pop("of", plan.txid), attempt), reason=reason, **other)
        return quarantine_batch(self.ledger, self.lead, plan, quarantine)


def claim_for(topology: str = TOPOLOGY, **other: Any) -> Claim:
    """What a new leader says; `other` overrides."""
    values: dict[str, Any] = {
        "topology": topology,
        "owner_nonce": str(uuid.uuid4()),
        "code_hash": CODE,
        "epoch_above": 0,
        "incarnation": None,
        "new_incarnation": str(uuid.uuid4()),
        "host": "here",
        "pid": 1,
        "application": "flights.py:topology",
        "description": {"name": topology},
    }
    return Claim(**{**values, **other})


def lead_on(world: LedgerWorld, *committers: CommitterComponent, topology: str = TOPOLOGY, **other: Any) -> Driver:
    """A new driver that has just taken the lead and prepared its tables."""
    ledger = world.open(topology)
    driver = Driver(ledger, ledger.claim_fence(claim_for(topology, **other)), committers or (committer(),))
    ledger.prepare_targets(driver.lead, driver.committers)
    return driver


def die_at(listen: Callable[[crash_points.Listener], None], point: CrashPoint) -> None:
    """From now on whoever reaches the crash point dies of a KeyboardInterrupt."""

    def die(reached: CrashPoint, _: int | None) -> None:
        if reached is point:
            raise KeyboardInterrupt

    listen(die)


@pytest.fixture
def listen() -> Iterator[Callable[[crash_points.Listener], None]]:
    """Listen to crash points for the length of a test."""
    yield crash_points.listen
    crash_points.listen(None)
