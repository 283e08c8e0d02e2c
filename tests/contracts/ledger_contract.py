"""What every ledger must do, as tests to inherit: `class TestMine(LedgerContract)` with a fixture `world`."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.backfill_contract import BackfillContract
from tests.contracts.commit_contract import CommitContract
from tests.contracts.dead_letter_contract import DeadLetterContract
from tests.contracts.joined_mirror_contract import JoinedMirrorContract
from tests.contracts.ledger_driver import (
    CODE,
    FIELDS,
    ROWS,
    TOPOLOGY,
    LedgerWorld,
    claim_for,
    committer,
    lead_on,
    result_of,
)
from tests.contracts.order_contract import OrderContract
from tests.contracts.quarantine_contract import QuarantineContract, RejectContract
from tests.contracts.redo_contract import RedoContract
from tests.contracts.user_committer_contract import OwnCommitterContract
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.plan import genesis_digest, read_plan
from txtopo.core.values import (
    Committed,
    Failure,
    TransactionAttempt,
)
from txtopo.errors import Fenced, Halted, InvariantBroken, PostgresUnavailable
from txtopo.ports import AttemptStart, LedgerEntry
from txtopo.topology.components import CommitterComponent, Subscription


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
        assert {row.code_hash for row in claimed.attempts} == {old.lead.code_hash}
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
            lambda: ledger.prepare_targets(lead, (), {"name": "of an older epoch"}),
            lambda: ledger.mirror(lead, [old.entry(plan)]),
            lambda: ledger.begin_attempts(lead, [AttemptStart(attempt=TransactionAttempt(1, 1))]),
            lambda: ledger.end_attempt(lead, attempt, "cancelled", None),
            lambda: ledger.heartbeat(lead, "running", None, 1),
            lambda: ledger.answer_order(lead, 1, "done", "yes"),
            lambda: ledger.note_progress(lead, 1, {}),
            lambda: ledger.note_end(lead, "stopped", None, None, 0),
            lambda: ledger.resolve(lead, [(1, plan.digest)]),
            lambda: old.commit(plan),
            lambda: old.quarantine(plan),
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
            driver.quarantine(plan)
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

        named = ["/in/2.csv", "/in/1.csv", "/in/3.csv"]
        assert driver.ledger.consumed("spout", named) == {"/in/1.csv": b"/in/1.csv", "/in/2.csv": b"/in/2.csv"}
        assert driver.ledger.consumed("spout", named[:1]) == {"/in/2.csv": b"/in/2.csv"}
        assert driver.ledger.consumed("other", named) == driver.ledger.consumed("spout", []) == {}
        assert driver.ledger.not_consumed("spout", named) == {"/in/3.csv"}
        assert driver.ledger.not_consumed("other", named) == {*named} and not driver.ledger.not_consumed("spout", [])
        strange = ["/in/a\nb", "/in/a\x01b", "/in/a'b", '/in/a"b', "/in/a\\u0041", "/in/100%(x)s", "/in/é€😀", "/in/ "]
        assert driver.ledger.not_consumed("spout", [*strange, *named]) == {*strange, "/in/3.csv"}
        assert driver.ledger.consumed_after("spout", "", 1) == [("/in/1.csv", b"/in/1.csv")]
        assert driver.ledger.consumed_after("spout", "/in/1.csv", 9) == [("/in/2.csv", b"/in/2.csv")]
        assert driver.ledger.consumed_after("spout", "/in/2.csv", 9) == driver.ledger.consumed_after("x", "", 9) == []

    def test_the_last_plans_are_read_newest_first(self, world: LedgerWorld) -> None:
        """As far as they are asked for, and of this topology alone."""
        driver = lead_on(world)
        plans = [driver.plan(txid) for txid in (1, 2, 3)]
        assert driver.ledger.plans_below(1 << 62, 5) == []
        driver.mirror(*plans)

        assert driver.ledger.plans_below(1 << 62, 2) == [(3, plans[2].bytes), (2, plans[1].bytes)]
        assert driver.ledger.plans_below(2, 5) == [(1, plans[0].bytes)]
        assert world.open("other").plans_below(1 << 62, 5) == []

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

    def test_opaque_plans_are_mirrored_one_by_one_by_the_attempt_that_cut_them(self, world: LedgerWorld) -> None:
        """R9: an opaque plan only as last+1; the ledger row says which cut it applied, and the next leader adopts what
        is mirrored.
        """
        driver = lead_on(world, opaque=True)
        first = driver.plan(1, cut=2)
        driver.mirror(first)
        with pytest.raises(Halted, match="out of order"):
            driver.mirror(driver.plan(2))
        driver.begin(1, 2)

        assert isinstance(driver.commit(first, attempt=2), Committed)
        driver.mirror(driver.plan(2, cut=1))

        claimed = world.open().claim_fence(claim_for(opaque=True))
        assert [read_plan(bytes(data), "test").cut for data in claimed.plans] == [1]
        assert claimed.last_epoch == driver.lead.epoch < claimed.lead.epoch
        assert claimed.last_metadata == first.metadata
        assert [read_plan(one.plan, "test").cut for one in driver.ledger.redo_chain(1)] == [2]

    def test_only_an_opaque_topology_cuts_again(self, world: LedgerWorld) -> None:
        """A failed attempt of an immutable plan never brings another plan."""
        driver = lead_on(world)

        with pytest.raises(InvariantBroken, match="may not be cut again"):
            driver.mirror(driver.plan(1, cut=1))

    def test_file_is_input_once(self, world: LedgerWorld) -> None:
        """A file that a batch consumed halts the next batch that names it, and nothing of that mirror stays."""
        driver = lead_on(world)
        driver.mirror(driver.plan(1, "/in/a.csv"))
        second, third = driver.plan(2), driver.plan(3, "/in/a.csv")

        with pytest.raises(Halted, match=r"/in/a\.csv is planned into batch 3, but batch 1 consumed it"):
            driver.mirror(second, third)

        assert [path for path, _ in driver.ledger.consumed_after("spout", "", 9)] == ["/in/a.csv"]
        assert len(world.open().claim_fence(claim_for()).plans) == 1

    def test_mirror_does_not_wait_behind_a_commit(self, world: LedgerWorld) -> None:
        """R9: FOR KEY SHARE goes beside FOR NO KEY UPDATE."""
        driver = lead_on(world)
        plan = driver.ready(1)
        with driver.ledger.session(driver.lead) as session:
            session.lock_fence()
            driver.mirror(driver.plan(2))  # its wait for a lock has an end, and is an error

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

    def test_closed_ledger_does_nothing(self, world: LedgerWorld) -> None:
        """R15: after step-down no connection is left to write with."""
        driver = lead_on(world)
        driver.ledger.close()
        driver.ledger.close()

        with pytest.raises(PostgresUnavailable):
            driver.ledger.heartbeat(driver.lead, "running", None, 0)
        with pytest.raises(PostgresUnavailable):
            driver.ledger.read_fence()


class TargetContract:
    """Tables of committers: one owner, nothing counted twice."""

    def test_preparing_again_is_fine(self, world: LedgerWorld) -> None:
        """Tables are created once and kept."""
        driver = lead_on(world)
        driver.commit(driver.ready(1))

        driver.ledger.prepare_targets(driver.lead, driver.committers)
        lead_on(world)

        assert len(world.rows("flights_count")) == 3

    def test_a_topology_is_described_by_who_found_that_it_fits(self, world: LedgerWorld) -> None:
        """Claiming the lead alone changes nothing of it: a start that is refused must not spoil audits of what is
        committed.
        """
        first = lead_on(world)
        first.ledger.prepare_targets(first.lead, first.committers, {"name": "accepted"})
        with pytest.raises(Halted, match="cannot change to"):
            moved = (committer(first.committers[0].name, "elsewhere"),)
            first.ledger.prepare_targets(first.lead, moved, {"name": "refused with its table"})

        refused = world.open().claim_fence(claim_for(description={"name": "refused"}))
        seen = world.open().claim_fence(claim_for())

        assert refused.description == seen.description == {"name": "accepted"}

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


class LedgerContract(
    ClaimContract,
    MirrorContract,
    AttemptContract,
    CommitContract,
    JoinedMirrorContract,
    OwnCommitterContract,
    RejectContract,
    DeadLetterContract,
    QuarantineContract,
    RedoContract,
    BackfillContract,
    OrderContract,
    TargetContract,
):
    """All of it."""
