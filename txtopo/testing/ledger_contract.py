"""What every ledger must do, as tests to inherit: `class TestMine(LedgerContract)` with a fixture `world`."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa
import pytest

from txtopo import faults
from txtopo.committers.commit import commit_batch
from txtopo.committers.counting import CountCommitter
from txtopo.core.fields import parse_fields
from txtopo.core.plan import Plan, genesis_digest
from txtopo.core.values import (
    Aborted,
    AlreadyCommitted,
    CommitOutcome,
    Committed,
    CommitterResult,
    EdgeCount,
    Failure,
    Lead,
    Processed,
    TransactionAttempt,
    Unknown,
)
from txtopo.errors import Fenced, Halted, InvariantBroken, PostgresUnavailable
from txtopo.faults import CrashPoint
from txtopo.ports import AttemptStart, Claim, Claimed, Ledger, LedgerEntry, MirrorEntry
from txtopo.topology.components import CommitterComponent, Input, Subscription

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

    def ask_to_stop(self) -> int:
        """Leave an operator's order; returns its id."""

    def attempt_state(self, txid: int, attempt: int) -> str | None:
        """State of a remembered attempt."""

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


class Driver:
    """A driver that leads and takes the steps of a batch one by one."""

    def __init__(self, ledger: Ledger, claimed: Claimed, committers: Sequence[CommitterComponent]) -> None:
        self.ledger = ledger
        self.claimed = claimed
        self.lead: Lead = claimed.lead
        self.committers = committers
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

    def commit(self, plan: Plan, rows: Sequence[Row] = ROWS, **other: Any) -> CommitOutcome:
        """One try at the commit."""
        return commit_batch(self.ledger, self.lead, plan, self.processed(plan.txid, rows, **other), self.committers)


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


@pytest.fixture
def listen() -> Iterator[Callable[[faults.Listener], None]]:
    """Listen to crash points for the length of a test."""
    yield faults.listen
    faults.listen(None)


class ClaimContract:
    """The fence: one leader, told by the epoch."""

    def test_first_claim_makes_fence_and_genesis_row(self, world: LedgerWorld) -> None:
        """R1: epoch and incarnation come from Postgres."""
        ledger = world.open()
        assert ledger.read_fence() is None

        claim = claim_for()
        claimed = ledger.claim_fence(claim)

        assert (claimed.lead.epoch, claimed.lead.incarnation, claimed.last_txid) == (1, claim.new_incarnation, 0)
        assert claimed.last_digest == genesis_digest(TOPOLOGY, claim.new_incarnation)
        assert (claimed.last_metadata, list(claimed.plans), list(claimed.attempts)) == (None, [], [])
        assert claimed.system_identifier
        fence = ledger.read_fence()
        assert fence is not None
        assert (fence.epoch, fence.owner_nonce, fence.code_hash) == (1, claim.owner_nonce, CODE)

    def test_epoch_is_above_both_stores(self, world: LedgerWorld) -> None:
        """R1: the epoch becomes the larger of both plus one."""
        lead_on(world)

        assert lead_on(world).lead.epoch == 2
        assert lead_on(world, epoch_above=10).lead.epoch == 11

    def test_other_incarnation_halts(self, world: LedgerWorld) -> None:
        """R11: different incarnations in the two stores halt."""
        lead_on(world)

        with pytest.raises(Halted, match="incarnation"):
            world.open().claim_fence(claim_for(incarnation=str(uuid.uuid4())))

    def test_lost_postgres_halts(self, world: LedgerWorld) -> None:
        """R11: absent in Postgres and present in ZooKeeper halts."""
        ledger = world.open()

        with pytest.raises(Halted, match="Postgres does not"):
            ledger.claim_fence(claim_for(incarnation=str(uuid.uuid4())))

        assert ledger.read_fence() is None

    def test_wiped_zookeeper_goes_on_with_the_incarnation_of_postgres(self, world: LedgerWorld) -> None:
        """R11: absent in ZooKeeper and present in Postgres goes on."""
        first = lead_on(world)

        assert lead_on(world).lead.incarnation == first.lead.incarnation

    def test_new_leader_learns_what_is_left_to_do(self, world: LedgerWorld) -> None:
        """R1: last txid, its digest, plans and attempts above it, metadata of the last batch cut."""
        old = lead_on(world)
        plans = [old.ready(txid) for txid in (1, 2, 3)]
        old.commit(plans[0])
        old.ledger.end_attempt(old.lead, TransactionAttempt(2, 0), "failed", Failure(kind="suspect", message="died"))
        old.begin(2, 1, alone=True)

        claimed = world.open().claim_fence(claim_for())

        assert (claimed.last_txid, claimed.last_digest) == (1, plans[0].digest)
        assert claimed.last_metadata == plans[0].metadata
        assert list(claimed.plans) == [plan.bytes for plan in plans[1:]]
        found = [(str(row.attempt), row.epoch, row.state, row.kind, row.alone) for row in claimed.attempts]
        assert found == [
            ("2:0", 1, "failed", "suspect", False),
            ("2:1", 1, "begun", None, True),
            ("3:0", 1, "begun", None, False),
        ]

    def test_stale_epoch_is_fenced_everywhere(self, world: LedgerWorld) -> None:
        """R4: a leader of an older epoch changes nothing."""
        old = lead_on(world)
        plan = old.ready(1)
        lead_on(world)
        ledger, lead, attempt = old.ledger, old.lead, TransactionAttempt(1, 0)

        writes: list[Callable[[], object]] = [
            lambda: ledger.prepare_targets(lead, old.committers),
            lambda: ledger.mirror(lead, [old.entry(plan)]),
            lambda: ledger.begin_attempts(lead, [AttemptStart(attempt=TransactionAttempt(1, 1))]),
            lambda: ledger.end_attempt(lead, attempt, "cancelled", None),
            lambda: ledger.heartbeat(lead, "running", None, 1),
            lambda: ledger.answer_request(lead, 1, "done", "yes"),
            lambda: ledger.note_end(lead, "stopped", None, None),
            lambda: ledger.resolve(lead, 1, plan.digest),
            lambda: old.commit(plan),
        ]

        for write in writes:
            with pytest.raises(Fenced):
                write()
        assert world.attempt_state(1, 0) == "begun"
        assert world.attempt_state(1, 1) is None
        assert world.rows("flights_count") == {}

    @pytest.mark.parametrize(
        "other",
        [{"owner_nonce": str(uuid.UUID(int=7))}, {"incarnation": str(uuid.UUID(int=7))}, {"code_hash": b"d" * 32}],
    )
    def test_lead_that_differs_in_anything_is_fenced(self, world: LedgerWorld, other: dict[str, Any]) -> None:
        """R4: epoch, nonce, incarnation and code hash all count."""
        driver = lead_on(world)
        plan = driver.ready(1)
        driver.lead = replace(driver.lead, **other)

        with pytest.raises(Fenced):
            driver.commit(plan)
        with pytest.raises(Fenced):
            driver.ledger.heartbeat(driver.lead, "running", None, 1)

    def test_takeover_ends_the_session_of_a_leader_that_hangs(self, world: LedgerWorld) -> None:
        """P6: a leader stopped inside its database transaction blocks nobody for long, and commits nothing."""
        old = lead_on(world)
        plan = old.ready(1)

        with pytest.raises(PostgresUnavailable):
            with old.ledger.session(old.lead) as session:
                session.lock_fence()
                session.append_ledger(LedgerEntry(plan=plan, attempt=TransactionAttempt(1, 0)))
                session.apply(old.committers[0], result_of(ROWS))
                new = lead_on(world)
                session.apply(old.committers[0], result_of(ROWS))

        assert new.claimed.last_txid == 0
        assert world.rows("flights_count") == {}


class MirrorContract:
    """Plans, inputs, pieces of metadata."""

    def test_mirroring_again_is_fine(self, world: LedgerWorld) -> None:
        """R9: a row that is there with the same digest is mine."""
        driver = lead_on(world)
        first, second = driver.plan(1), driver.plan(2)
        driver.mirror(first)

        driver.mirror(first, second)

        assert driver.ledger.consumed("spout") == {"/in/1.csv": b"/in/1.csv", "/in/2.csv": b"/in/2.csv"}
        assert driver.ledger.consumed("other") == {}

    def test_other_plan_for_the_same_txid_halts(self, world: LedgerWorld) -> None:
        """R9: another digest halts."""
        driver = lead_on(world)
        driver.mirror(driver.plan(1))

        with pytest.raises(Halted, match="another plan"):
            driver.mirror(driver.plan(1, "/in/other.csv"))

    def test_plans_have_no_holes(self, world: LedgerWorld) -> None:
        """R9: the mirrored plans above last are always last+1..m."""
        driver = lead_on(world)
        first, _, third = (driver.plan(txid) for txid in (1, 2, 3))
        driver.mirror(first)

        with pytest.raises(Halted, match="out of order"):
            driver.mirror(third)
        with pytest.raises(InvariantBroken):
            driver.mirror(first, third)
        assert len(world.open().claim_fence(claim_for()).plans) == 1

    def test_file_is_input_once(self, world: LedgerWorld) -> None:
        """A file that a batch consumed halts the next batch that names it, and nothing of that mirror stays."""
        driver = lead_on(world)
        driver.mirror(driver.plan(1, "/in/a.csv"))
        second, third = driver.plan(2), driver.plan(3, "/in/a.csv")

        with pytest.raises(Halted, match=r"/in/a\.csv is planned into batch 3, but batch 1 consumed it"):
            driver.mirror(second, third)

        assert list(driver.ledger.consumed("spout")) == ["/in/a.csv"]
        assert len(world.open().claim_fence(claim_for()).plans) == 1

    def test_mirror_does_not_wait_behind_a_commit(self, world: LedgerWorld) -> None:
        """R9: FOR KEY SHARE goes beside FOR NO KEY UPDATE."""
        driver = lead_on(world)
        plan = driver.ready(1)
        with driver.ledger.session(driver.lead) as session:
            session.lock_fence()
            mirroring = threading.Thread(target=driver.mirror, args=(driver.plan(2),))
            mirroring.start()
            mirroring.join(timeout=1.5)
            assert not mirroring.is_alive()

        assert isinstance(driver.commit(plan), Committed)

    def test_pieces_of_metadata_are_found_by_their_digest(self, world: LedgerWorld) -> None:
        """Long metadata is content-addressed: repeatable, verified, and its absence halts."""
        ledger = world.open()

        digest = ledger.store_part(b"\x00piece")

        assert ledger.store_part(b"\x00piece") == digest
        assert ledger.read_part(digest) == b"\x00piece"
        with pytest.raises(Halted, match="missing"):
            ledger.read_part("ab" * 32)


class AttemptContract:
    """Attempts and what the leader says of itself."""

    def test_attempt_ids_never_go_back(self, world: LedgerWorld) -> None:
        """Attempt ids only grow; the same call again is the same attempt."""
        driver = lead_on(world)
        driver.begin(1, 1)
        driver.begin(1, 1)

        with pytest.raises(InvariantBroken):
            driver.begin(1, 0)
        with pytest.raises(InvariantBroken):
            lead_on(world).begin(1, 1)

    def test_attempt_ends_once(self, world: LedgerWorld) -> None:
        """A state moves once, from begun to its end; hostile text does not hinder the record."""
        driver = lead_on(world)
        driver.begin(1)
        attempt = TransactionAttempt(1, 0)

        driver.ledger.end_attempt(
            driver.lead, attempt, "failed", Failure(kind="data", message="bad \0 \ud800 text", detail="\0")
        )
        driver.ledger.end_attempt(driver.lead, attempt, "cancelled", None)

        assert world.attempt_state(1, 0) == "failed"

    def test_orders_reach_the_leader_and_are_answered_once(self, world: LedgerWorld) -> None:
        """The heartbeat returns open requests; an answered one does not come again."""
        driver = lead_on(world)
        request_id = world.ask_to_stop()

        found = driver.ledger.heartbeat(driver.lead, "running", "waiting for ZooKeeper", 5)
        driver.ledger.answer_request(driver.lead, request_id, "done", "stopping")

        assert [(request.request_id, request.kind, dict(request.arguments)) for request in found] == [
            (request_id, "stop", {"now": True})
        ]
        assert list(driver.ledger.heartbeat(driver.lead, "running", None, 5)) == []
        driver.ledger.note_end(driver.lead, "halted", "gap", 5)

    def test_closed_ledger_does_nothing(self, world: LedgerWorld) -> None:
        """R15: after step-down no connection is left to write with."""
        driver = lead_on(world)
        driver.ledger.close()
        driver.ledger.close()

        with pytest.raises(PostgresUnavailable):
            driver.ledger.heartbeat(driver.lead, "running", None, 0)
        with pytest.raises(PostgresUnavailable):
            driver.ledger.read_fence()


class CommitContract:
    """The commit of a batch, once and in order."""

    def test_committed_batch_is_counted(self, world: LedgerWorld) -> None:
        """One database transaction applies the rows, records their numbers and moves the fence."""
        driver = lead_on(world)
        plan = driver.ready(1)

        outcome = driver.commit(plan, edges=(EdgeCount(edge="spout>by_route", sent=6, received=6),))

        assert isinstance(outcome, Committed)
        [count] = outcome.counts
        assert (count.arrived, count.counted, count.results, count.written, count.ignored) == (6, 6, 3, 3, 0)
        assert count.digest != 0
        assert world.rows("flights_count") == {("AA", "JFK"): (2, 200), ("AA", None): (1, 50), ("UA", "EWR"): (3, 900)}
        assert sorted(world.contributions("flights_count"), key=repr) == sorted(
            ((1, None, *row) for row in ROWS), key=repr
        )
        assert world.attempt_state(1, 0) == "applied"
        fence = driver.ledger.read_fence()
        assert fence is not None
        assert fence.last_txid == 1

    def test_batches_add_up_null_keys_included(self, world: LedgerWorld) -> None:
        """NULL is a key like any other; the target is the sum of the contributions."""
        driver = lead_on(world)
        for txid in (1, 2):
            driver.commit(driver.ready(txid), [("AA", None, 1, 50), (None, None, 2, -7)])

        assert world.rows("flights_count") == {("AA", None): (2, 100), (None, None): (4, -14)}
        assert [row[0] for row in world.contributions("flights_count")] == [1, 1, 2, 2]

    def test_digest_depends_on_rows_and_not_on_their_order(self, world: LedgerWorld) -> None:
        """The digest is the order-free sum of the hashes of the rows applied."""
        driver = lead_on(world)
        outcomes = [
            driver.commit(driver.ready(txid), rows) for txid, rows in enumerate([ROWS, ROWS[::-1], ROWS[:2]], 1)
        ]

        digests = [outcome.counts[0].digest for outcome in outcomes if isinstance(outcome, Committed)]
        assert len(digests) == 3
        assert digests[0] == digests[1] != digests[2]

    def test_empty_batch_is_a_batch(self, world: LedgerWorld) -> None:
        """K6: a batch without rows is committed in its turn."""
        driver = lead_on(world)

        outcome = driver.commit(driver.ready(1), [], read=0)

        assert isinstance(outcome, Committed)
        assert outcome.counts[0].digest == 0
        assert isinstance(driver.commit(driver.ready(2)), Committed)

    def test_same_batch_again_is_skipped(self, world: LedgerWorld) -> None:
        """R5: skip if the ledger's digest equals mine."""
        driver = lead_on(world)
        plan = driver.ready(1)
        driver.commit(plan)

        assert driver.commit(plan) == AlreadyCommitted(txid=1)
        assert world.rows("flights_count")["AA", "JFK"] == (2, 200)

    def test_other_batch_with_the_same_txid_halts(self, world: LedgerWorld) -> None:
        """R5: otherwise HALT."""
        driver = lead_on(world)
        driver.commit(driver.ready(1))

        with pytest.raises(Halted, match="another plan"):
            driver.commit(driver.plan(1, "/in/other.csv"))

    def test_gap_halts(self, world: LedgerWorld) -> None:
        """R6: only last == n-1 applies."""
        driver = lead_on(world)
        driver.ready(1)

        with pytest.raises(Halted, match="gap"):
            driver.commit(driver.ready(2))
        assert world.rows("flights_count") == {}

    def test_batch_that_chains_to_another_predecessor_halts(self, world: LedgerWorld) -> None:
        """R12: the digest of the batch before is part of the batch."""
        driver = lead_on(world)
        driver.digests[0] = b"e" * 32

        with pytest.raises(Halted, match="ledger refuses"):
            driver.commit(driver.ready(1))

    def test_batch_that_was_not_mirrored_halts(self, world: LedgerWorld) -> None:
        """R9: the plan is in Postgres before the first commit attempt."""
        driver = lead_on(world)
        driver.begin(1)

        with pytest.raises(Halted, match="no mirrored plan"):
            driver.commit(driver.plan(1))
        assert world.rows("flights_count") == {}

    def test_attempt_that_never_began_is_not_committed(self, world: LedgerWorld) -> None:
        """What commits is an attempt that was remembered before anything was emitted."""
        driver = lead_on(world)
        driver.mirror(driver.plan(1))

        with pytest.raises(InvariantBroken):
            driver.commit(driver.plan(1))

    def test_results_of_other_code_are_refused(self, world: LedgerWorld) -> None:
        """R12: an attempt commits only if its code hash is the leader's."""
        driver = lead_on(world)

        outcome = driver.commit(driver.ready(1), code_hash=b"x" * 32)

        assert isinstance(outcome, Aborted)
        assert (outcome.failure.kind, b"x".hex() * 6 in outcome.failure.message) == ("data", True)

    def test_batch_without_one_of_its_committers_is_refused(self, world: LedgerWorld) -> None:
        """R13: all committers of a batch, each once."""
        driver = lead_on(world)
        plan = driver.ready(1)

        for results in ((), (result_of(ROWS), result_of(ROWS)), (result_of(ROWS, "else"),)):
            outcome = driver.commit(plan, results=results)
            assert isinstance(outcome, Aborted)
            assert outcome.failure.kind == "data"

    @pytest.mark.parametrize("wrong", [{"arrived": 7}, {"row_count": 4}])
    def test_numbers_that_disagree_are_refused(self, world: LedgerWorld, wrong: dict[str, Any]) -> None:
        """I6: arrived = counted and results = written + ignored; the message has the numbers."""
        driver = lead_on(world)
        result = result_of(ROWS, **wrong)

        outcome = driver.commit(driver.ready(1), results=(result,))

        assert isinstance(outcome, Aborted)
        assert (outcome.failure.kind, outcome.failure.component) == ("data", "by_route")
        assert (
            f"{result.arrived} tuples arrived, the rows applied count 6; {result.row_count} result rows were handed over, 3 written"
            in outcome.failure.message
        )
        assert world.rows("flights_count") == {}

    def test_edges_and_totals_that_disagree_are_refused(self, world: LedgerWorld) -> None:
        """What was sent was received; no more is rejected than was read."""
        driver = lead_on(world)
        plan = driver.ready(1)

        for wrong in ({"edges": (EdgeCount(edge="a>b", sent=2, received=1),)}, {"read": 1, "rejected": 2}):
            outcome = driver.commit(plan, **wrong)
            assert isinstance(outcome, Aborted)
            assert outcome.failure.kind == "data"

    @pytest.mark.parametrize(
        "row",
        [("A\0", "JFK", 1, 1), ("AA", "JFK", 2**63 - 1, 1), ("AA", "JFK", 1, None)],
        ids=["NUL", "overflow", "NULL sum"],
    )
    def test_rows_that_do_not_fit_fail_the_batch(self, world: LedgerWorld, row: Row) -> None:
        """P14: what the table cannot hold is a data failure naming the committer, and nothing of the batch stays."""
        driver = lead_on(world)
        driver.commit(driver.ready(1))

        outcome = driver.commit(driver.ready(2), [row])

        assert isinstance(outcome, Aborted)
        assert (outcome.failure.kind, outcome.failure.component) == ("data", "by_route")
        assert world.rows("flights_count")["AA", "JFK"] == (2, 200)
        assert isinstance(driver.commit(driver.plan(2)), Committed)

    def test_key_that_comes_twice_fails_the_batch(self, world: LedgerWorld) -> None:
        """Result rows are one a key."""
        driver = lead_on(world)

        outcome = driver.commit(driver.ready(1), [ROWS[1], ROWS[1]])

        assert isinstance(outcome, Aborted)
        assert outcome.failure.kind == "data"

    def test_all_committers_or_none(self, world: LedgerWorld) -> None:
        """R13: what the first committer wrote goes with the second one's failure."""
        driver = lead_on(world, committer("one", "one"), committer("two", "two"))
        plan = driver.ready(1)

        outcome = driver.commit(plan, results=(result_of(ROWS, "one"), result_of(ROWS, "two", arrived=1)))

        assert isinstance(outcome, Aborted)
        assert world.rows("one") == world.rows("two") == {}
        assert isinstance(driver.commit(plan), Committed)
        assert world.rows("one") == world.rows("two") != {}

    @pytest.mark.parametrize(
        "point", [CrashPoint.FENCE_LOCKED, CrashPoint.LEDGER_APPENDED, CrashPoint.APPLIED, CrashPoint.BEFORE_COMMIT]
    )
    def test_crash_before_commit_leaves_nothing(
        self, world: LedgerWorld, listen: Callable[[faults.Listener], None], point: CrashPoint
    ) -> None:
        """A database transaction that was not committed never was."""
        driver = lead_on(world)
        plan = driver.ready(1)
        self._die_at(listen, point)

        with pytest.raises(KeyboardInterrupt):
            driver.commit(plan)

        faults.listen(None)
        assert world.rows("flights_count") == {}
        assert world.attempt_state(1, 0) == "begun"
        assert isinstance(driver.commit(plan), Committed)

    def test_crash_after_commit_changes_nothing(
        self, world: LedgerWorld, listen: Callable[[faults.Listener], None]
    ) -> None:
        """What was committed stays, and is not applied again."""
        driver = lead_on(world)
        plan = driver.ready(1)
        self._die_at(listen, CrashPoint.COMMITTED)

        with pytest.raises(KeyboardInterrupt):
            driver.commit(plan)

        faults.listen(None)
        assert driver.commit(plan) == AlreadyCommitted(txid=1)
        assert world.rows("flights_count")["AA", "JFK"] == (2, 200)

    def test_unanswered_commit_is_unknown_and_then_resolved(
        self, world: LedgerWorld, listen: Callable[[faults.Listener], None]
    ) -> None:
        """R7: unknown is resolved under the fence lock, on a new connection."""
        driver = lead_on(world)
        plan = driver.ready(1)

        def break_it(point: CrashPoint, _: int | None) -> None:
            if point is CrashPoint.BEFORE_COMMIT:
                world.break_commit()

        listen(break_it)
        outcome = driver.commit(plan)
        faults.listen(None)

        assert isinstance(outcome, Unknown)
        resolved = driver.ledger.resolve(driver.lead, 1, plan.digest)
        assert isinstance(resolved, Aborted)
        assert resolved.failure.kind == "infrastructure"
        assert isinstance(driver.commit(plan), Committed)

    def test_resolve_finds_the_batch_or_another_one(self, world: LedgerWorld) -> None:
        """R7: ledger row present and digest equal is committed, another digest halts."""
        driver = lead_on(world)
        plan = driver.ready(1)
        driver.commit(plan)

        assert driver.ledger.resolve(driver.lead, 1, plan.digest) == Committed(txid=1)
        with pytest.raises(Halted, match="another plan"):
            driver.ledger.resolve(driver.lead, 1, b"o" * 32)

    def test_commit_before_the_batch_is_complete_is_refused(self, world: LedgerWorld) -> None:
        """P9: whoever ends the database transaction early commits nothing."""
        driver = lead_on(world)
        plan = driver.ready(1)

        with pytest.raises(Halted, match="COMMIT before batch 1 was complete"):
            with driver.ledger.session(driver.lead) as session:
                session.lock_fence()
                session.append_ledger(LedgerEntry(plan=plan, attempt=TransactionAttempt(1, 0)))
                session.apply(driver.committers[0], result_of(ROWS))
                session.commit()

        assert world.rows("flights_count") == {}

    @staticmethod
    def _die_at(listen: Callable[[faults.Listener], None], point: CrashPoint) -> None:
        def die(reached: CrashPoint, _: int | None) -> None:
            if reached is point:
                raise KeyboardInterrupt

        listen(die)


class TargetContract:
    """Tables of committers: one owner, nothing counted twice."""

    def test_preparing_again_is_fine(self, world: LedgerWorld) -> None:
        """Tables are created once and kept."""
        driver = lead_on(world)
        driver.commit(driver.ready(1))

        driver.ledger.prepare_targets(driver.lead, driver.committers)
        lead_on(world)

        assert len(world.rows("flights_count")) == 3

    def test_table_of_another_topology_is_refused(self, world: LedgerWorld) -> None:
        """A target table belongs to one committer of one topology."""
        lead_on(world)

        with pytest.raises(Halted, match="belongs to committer by_route of topology flights"):
            lead_on(world, topology="renamed")
        with pytest.raises(Halted, match="belongs to committer by_route"):
            lead_on(world, committer("other"))

    def test_committer_keeps_its_table(self, world: LedgerWorld) -> None:
        """A committer that turns to another table would begin to count anew, unseen."""
        lead_on(world)

        with pytest.raises(Halted, match="cannot change"):
            lead_on(world, committer(table="elsewhere"))

    def test_rows_that_nobody_counted_are_refused(self, world: LedgerWorld) -> None:
        """An unregistered table that holds rows is refused, and nothing is registered."""
        world.seed(committer(), {("AA", None): (5, 500)})

        with pytest.raises(Halted, match="baseline=True"):
            lead_on(world)
        with pytest.raises(Halted, match="baseline=True"):
            lead_on(world)

    def test_baseline_adopts_rows_once(self, world: LedgerWorld) -> None:
        """baseline=True makes the rows contributions of txid 0, once."""
        adopting = committer(baseline=True)
        world.seed(adopting, {("AA", None): (5, 500)})

        driver = lead_on(world, adopting)
        driver.commit(driver.ready(1), [("AA", None, 1, 50)])
        lead_on(world, adopting)

        assert world.rows("flights_count") == {("AA", None): (6, 550)}
        assert world.contributions("flights_count") == [(0, None, "AA", None, 5, 500), (1, None, "AA", None, 1, 50)]

    def test_table_with_other_columns_is_refused(self, world: LedgerWorld) -> None:
        """A table that cannot hold the results is refused before the first batch."""
        bolt = CountCommitter("flights_count", ["carrier"])
        other = CommitterComponent(name="by_route", bolt=bolt, input=Subscription(source="spout"), fields=FIELDS)
        lead_on(world)

        with pytest.raises(Halted, match="columns"):
            lead_on(world, other)

    def test_committer_without_contributions(self, world: LedgerWorld) -> None:
        """contributions=False keeps none and counts the same."""
        driver = lead_on(world, committer(contributions=False))

        outcome = driver.commit(driver.ready(1))

        assert isinstance(outcome, Committed)
        assert outcome.counts[0].counted == 6
        assert len(world.rows("flights_count")) == 3


class LedgerContract(ClaimContract, MirrorContract, AttemptContract, CommitContract, TargetContract):
    """All of it."""
