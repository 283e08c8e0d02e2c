"""Opaque batches on the coordinator, the planner and the ledger in memory: cut again from the right place, with new
ids, and pinned in their turn.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.opaque import TOPOLOGY, OpaqueNumbers, check_numbers, numbers_topology, plans_of
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.committers.memory.memory_ledger import MemoryLedger
from txtopo.committers.protocol.commit import commit_batch
from txtopo.coordinators.codec import CandidateNode
from txtopo.coordinators.election import Election
from txtopo.coordinators.memory import MemorySession
from txtopo.coordinators.topology_nodes import TopologyCoordinator
from txtopo.core.events import CutRedo, Redo, RedoCut
from txtopo.core.plan import Plan, read_plan
from txtopo.core.state import Rules
from txtopo.core.values import Processed, TransactionAttempt
from txtopo.driver.planner import Planner
from txtopo.driver.takeover import CandidateIdentity, is_opaque, take_lead
from txtopo.errors import BatchDataError, Halted, TopologyError, ZooKeeperUnavailable
from txtopo.ports import Assignment, AttemptStart, Executor, MirrorEntry
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.testing.simulated import SimulatedClock, SimulatedDriver, SimulatedStores
from txtopo.topology.components import SpoutContext, SpoutCoordinator, Topology

CODE = b"code"


class Twos(random.Random):
    """Every batch gets `size` numbers."""

    size = 2

    def randint(self, a: int, b: int) -> int:
        return self.size


class Leader:
    """A driver in the lead, in the hands of a test."""

    def __init__(self, stores: SimulatedStores, chance: random.Random, count: int = 20) -> None:
        self.stores = stores
        self.chance: Any = chance
        self.topology = numbers_topology(count, chance)
        self.session = MemorySession(stores.zookeeper)
        self.coordinator = TopologyCoordinator(self.session, TOPOLOGY, opaque=True)
        self.ledger = MemoryLedger(stores.postgres, TOPOLOGY)
        nonce = str(uuid.uuid4())
        identity = CandidateIdentity(
            topology=TOPOLOGY,
            owner_nonce=nonce,
            new_incarnation=str(uuid.uuid4()),
            code_hash=CODE,
            host="h",
            pid=1,
            application="a",
            description={},
            epoch_seen=1 << 40,
            opaque=True,
        )
        election = Election(self.session, TOPOLOGY, CandidateNode(host="h", pid=1, since="-", nonce=nonce))
        election.enter()
        self.leadership = take_lead(identity, election, self.coordinator, self.ledger, lambda message: None)
        self.ledger.prepare_targets(self.leadership.lead, self.topology.committers)
        self.planner = Planner(
            lead=self.leadership.lead,
            spouts=self.topology.spouts,
            coordinator=self.coordinator,
            ledger=self.ledger,
            clock=SimulatedClock(),
            once=True,
            say=lambda message: None,
            last_digest=self.leadership.last_digest,
            last_metadata=self.leadership.last_metadata,
            last_txid=self.leadership.last_txid,
            opaque=True,
        )
        self.planner.open(self.leadership.reconciled.plans)
        self.executor: Executor = InProcessExecutor(self.topology, CODE)

    def mirror(self, plan: Plan) -> None:
        self.ledger.mirror(self.leadership.lead, [self.planner.mirror_entry(plan)])

    def commit(self, plan: Plan) -> None:
        """Process and commit it, mirrored before."""
        attempt = TransactionAttempt(plan.txid, plan.cut)
        self.ledger.begin_attempts(self.leadership.lead, [AttemptStart(attempt=attempt)])
        (outcome,) = self.executor.process([Assignment(attempt=attempt, metadata=self.planner.metadata(plan))])
        assert isinstance(outcome, Processed), outcome
        commit_batch(self.ledger, self.leadership.lead, plan, outcome, self.topology)

    def die(self) -> None:
        self.ledger.close()
        self.session.close()

    @property
    def mirrored(self) -> dict[int, tuple[int, int]]:
        """The winners that Postgres knows."""
        rows = self.stores.postgres.topologies[TOPOLOGY].plans
        return {txid: ranges([read_plan(data, "test")])[0] for txid, (_, data) in rows.items()}

    @property
    def cuts(self) -> dict[int, list[int]]:
        """Attempts by txid that have a node in ZooKeeper."""
        return {txid: sorted(found) for txid, found in self.coordinator.read().cuts.items()}


def ranges(plans: Any) -> list[tuple[int, int]]:
    return [(plan.metadata["numbers"]["start"], plan.metadata["numbers"]["end"]) for plan in plans]


def leader(stores: SimulatedStores | None = None, chance: random.Random | None = None) -> Leader:
    return Leader(stores or SimulatedStores(), chance or Twos())


class TestPartitionedExecutor:
    def test_the_winners_are_stored_one_by_one_as_they_are_committed(self) -> None:
        """PE-04: metas (0,2),(2,4); none is stored until the commit of 1; then {1:(0,2)}; then {1,2}; after the
        clean-up at 2 {2:(2,4)}.
        """
        it = leader()
        first, second = it.planner.cut(1, 2).plans
        assert ranges((first, second)) == [(0, 2), (2, 4)]
        assert it.mirrored == {}

        it.mirror(first)
        it.commit(first)
        after_one = it.mirrored
        it.mirror(second)
        it.commit(second)
        after_two = it.mirrored
        it.coordinator.checkpoint(2, 2)

        assert (after_one, after_two) == ({1: (0, 2)}, {1: (0, 2), 2: (2, 4)})
        assert it.cuts == {2: [0]}

    def test_the_second_is_not_mirrored_before_the_first_is_committed(self) -> None:
        """R9: an opaque plan only as last+1; the store itself refuses another."""
        it = leader()
        first, second = it.planner.cut(1, 2).plans
        it.mirror(first)

        with pytest.raises(Halted, match="out of order"):
            it.mirror(second)

    def test_a_mirrored_batch_that_was_not_committed_is_emitted_again_as_it_was(self) -> None:
        """PE-06: 1 is committed, 2 stored, and the driver dies before currtx moves: the next one emits (2,4) again."""
        it = leader()
        first, second = it.planner.cut(1, 2).plans
        it.mirror(first)
        it.commit(first)
        it.mirror(second)
        it.die()

        chance = Twos()
        chance.size = 5
        later = leader(it.stores, chance)

        assert later.leadership.reconciled.plans == (second,)
        later.commit(second)
        assert ranges(later.planner.cut(3, 1, last_txid=2).plans) == [(4, 9)]

    def test_what_was_not_mirrored_is_cut_again_behind_the_last_winner(self) -> None:
        """PE-06, before the store: node 2 is dropped from view, last = (0,2), and 2 is cut anew with an id of its own."""  # noqa: E501
        it = leader()
        first, _ = it.planner.cut(1, 2).plans
        it.mirror(first)
        it.commit(first)
        it.die()

        chance = Twos()
        chance.size = 3
        later = leader(it.stores, chance)
        attempts = later.leadership.reconciled.next_attempts
        (again,) = later.planner.cut(2, 1, last_txid=1, attempts=attempts).plans

        assert (ranges([again]), again.cut, again.previous_digest) == ([(2, 5)], 1, first.digest)
        assert later.cuts == {1: [0], 2: [0, 1]}

    def test_a_commit_that_currtx_does_not_know_is_not_emitted_again(self) -> None:
        """PE-06, after COMMIT: Postgres is the authority."""
        it = leader()
        first, second = it.planner.cut(1, 2).plans
        for plan in (first, second):
            it.mirror(plan)
            it.commit(plan)
        it.die()

        later = leader(it.stores)

        assert (later.leadership.last_txid, later.leadership.reconciled.plans) == (2, ())
        assert ranges(later.planner.cut(3, 1).plans) == [(4, 6)]


class TestCuttingAgain:
    def test_it_goes_on_from_the_batch_before_the_one_that_failed(self) -> None:
        it = leader()
        old = it.planner.cut(1, 4).plans
        it.chance.size = 3

        new = it.planner.cut(3, 2, attempts={3: 1, 4: 1}).plans

        assert ranges(new) == [(4, 7), (7, 10)]
        assert [(plan.txid, plan.cut) for plan in new] == [(3, 1), (4, 1)]
        assert new[0].previous_digest == old[1].digest
        assert new[1].previous_digest == new[0].digest

    def test_it_may_go_back_to_what_the_lead_was_taken_with(self) -> None:
        it = leader()
        it.planner.cut(1, 2)

        (again,) = it.planner.cut(1, 1, attempts={1: 1, 2: 1}).plans

        assert ranges([again]) == [(0, 2)]
        assert again.previous_digest == it.leadership.last_digest

    def test_it_may_go_back_to_a_batch_that_is_committed(self) -> None:
        it = leader()
        plans = it.planner.cut(1, 3).plans
        it.planner.cut(4, 1, last_txid=2)

        (again,) = it.planner.cut(3, 1, last_txid=2, attempts={3: 1}).plans

        assert (ranges([again]), again.previous_digest) == ([(4, 6)], plans[1].digest)

    def test_a_source_that_believes_itself_at_its_end_is_opened_anew(self) -> None:
        """Else what was cut and failed at the end of the input would never come again."""
        it = Leader(SimulatedStores(), Twos(), count=4)
        it.planner.cut(1, 9)
        assert it.planner.cut(3, 9).exhausted

        again = it.planner.cut(2, 9, attempts={2: 1})

        assert ranges(again.plans) == [(2, 4)]
        assert not again.exhausted

    def test_plans_that_may_lie_in_zookeeper_use_up_their_ids(self) -> None:
        """Z6, R3: the reply was lost, and by the time of the next try a batch before them has failed."""
        it = leader()
        it.planner.cut(1, 1)
        it.stores.zookeeper.lose_next_reply(applied=True)
        with pytest.raises(ZooKeeperUnavailable):
            it.planner.cut(2, 2)
        it.chance.size = 3

        again = it.planner.cut(1, 3, attempts={1: 1}).plans

        assert [(plan.txid, plan.cut) for plan in again] == [(1, 1), (2, 1), (3, 1)]
        assert it.cuts == {1: [0, 1], 2: [0, 1], 3: [0, 1]}

    def test_without_a_failure_they_are_recorded_again_as_they_are(self) -> None:
        """Z6: the very same bytes, never another cut."""
        it = leader()
        it.stores.zookeeper.lose_next_reply(applied=True)
        with pytest.raises(ZooKeeperUnavailable):
            it.planner.cut(1, 2)
        it.chance.size = 3

        assert ranges(it.planner.cut(1, 2).plans) == [(0, 2), (2, 4)]
        assert it.cuts == {1: [0], 2: [0]}

    def test_a_redo_is_planned_behind_what_is_left(self) -> None:
        it = leader()
        plans = it.planner.cut(1, 2).plans
        it.mirror(plans[0])
        it.commit(plans[0])

        redo = Redo(order_id=1, kind="recompute", txid=1)
        found = it.planner.redo(CutRedo(first_txid=2, redo=redo, open_redos=(), last_txid=1, attempts={2: 1}))

        assert isinstance(found, RedoCut) and found.plan is not None
        assert (found.plan.txid, found.plan.cut, found.plan.previous_digest) == (2, 1, plans[0].digest)
        assert found.plan.metadata == plans[0].metadata
        assert ranges(it.planner.cut(3, 1, last_txid=1, attempts={3: 0}).plans) == [(2, 4)]

    def test_what_it_remembers_is_forgotten_once_committed(self) -> None:
        it = leader()
        for txid in range(1, 8):
            it.planner.cut(txid, 1, last_txid=txid - 1)

        assert [plan.txid for plan in it.planner._chain] == [6, 7]

    def test_inputs_of_discarded_cuts_count_as_consumed_by_nobody(self) -> None:
        """What was consumed is told to the source that is opened anew: committed and planned batches only."""
        it = leader()
        it.planner.cut(1, 3)
        seen: list[set[str]] = []
        spout = it.topology.spouts[0].spout
        assert isinstance(spout, OpaqueNumbers)
        before = spout.open_coordinator

        def noting(context: SpoutContext) -> SpoutCoordinator:
            seen.append(set(context.consumed))
            return before(context)

        object.__setattr__(spout, "open_coordinator", noting)

        it.planner.cut(2, 1, attempts={2: 1, 3: 1})

        assert seen == [{"/0", "/1"}]


def failing(chance: random.Random) -> Callable[[Topology, bytes], Executor]:
    """Three attempts of ten find the source away."""

    def fail(attempt: TransactionAttempt) -> None:
        if chance.random() < 0.3:
            raise ConnectionError("away")

    return lambda topology, code: InProcessExecutor(topology, code, faults=fail)


class TestRunning:
    def run(self, rules: Rules, refuse: Any, count: int = 12, stores: SimulatedStores | None = None) -> Any:
        stores = stores or SimulatedStores()
        driver = SimulatedDriver(
            topology=numbers_topology(count, random.Random(5)),
            stores=stores,
            rules=rules,
            seed=1,
            make_executor=lambda topology, code: InProcessExecutor(topology, code, faults=refuse),
        )
        return driver.run(), stores

    def refuse_third(self, attempt: TransactionAttempt) -> None:
        if attempt.txid == 3:
            raise BatchDataError("poison", component="numbers")

    def test_a_quarantined_batch_keeps_its_place_and_its_numbers(self) -> None:
        """At `attempts_max` the policy decides; its ledger row has a plan, and what follows begins where it ends."""
        end, stores = self.run(Rules(workers=2, attempts_max=2, on_poison="quarantine_batch"), self.refuse_third)

        assert end.kind == "finished"
        row = stores.postgres.topologies[TOPOLOGY].ledger[3]
        third = plans_of(stores)[2].metadata["numbers"]
        assert (row.state, row.attempt) == ("quarantined", 1)
        check_numbers(stores, 12, missing=range(third["start"], third["end"]))

    def test_redrive_brings_back_exactly_its_numbers(self) -> None:
        _, stores = self.run(Rules(workers=2, attempts_max=2, on_poison="quarantine_batch"), self.refuse_third)
        order = stores.postgres.ask(TOPOLOGY, "redrive", (3,), "mended")

        end, _ = self.run(Rules(workers=2), None, stores=stores)

        assert end.kind == "finished"
        assert stores.postgres.orders[order][1].state == "done"
        check_numbers(stores, 12)

    @pytest.mark.parametrize("cut", [True, False], ids=["run", "retry"])
    def test_a_halted_batch_is_cut_again_by_an_order(self, cut: bool) -> None:
        end, stores = self.run(Rules(workers=2, attempts_max=1), self.refuse_third)
        assert (end.kind, end.txid) == ("halted", 3)
        order = stores.postgres.ask(TOPOLOGY, "retry", (3,), "mended")

        driver = SimulatedDriver(topology=numbers_topology(12, random.Random(6)), stores=stores, seed=2, cut=cut)
        assert driver.run().kind == ("finished" if cut else "stopped")

        assert stores.postgres.orders[order][1].state == "done"
        if cut:
            check_numbers(stores, 12)

    def test_a_skipped_batch_is_quarantined_when_it_is_cut_again(self) -> None:
        _, stores = self.run(Rules(workers=2, attempts_max=1), self.refuse_third)
        order = stores.postgres.ask(TOPOLOGY, "skip", (3,), "bad")

        end, _ = self.run(Rules(workers=2, attempts_max=1), self.refuse_third, stores=stores)

        assert end.kind == "finished"
        assert stores.postgres.orders[order][1].answer == "batch 3 is quarantined"
        third = plans_of(stores)[2].metadata["numbers"]
        check_numbers(stores, 12, missing=range(third["start"], third["end"]))

    def test_replan_drops_what_is_not_mirrored_and_removes_no_node(self) -> None:
        """R3: there is nothing to remove, since what is not mirrored is cut again by every new leader."""
        _, stores = self.run(Rules(workers=2, attempts_max=1), self.refuse_third)
        order = stores.postgres.ask(TOPOLOGY, "replan", (), "other sizes")
        nodes = {path for path in stores.zookeeper.paths() if path.count("/") == 5}

        end, _ = self.run(Rules(workers=2), None, stores=stores)

        assert end.kind == "finished"
        assert stores.postgres.orders[order][1].answer.startswith("plans of batches 3")
        assert nodes <= set(stores.zookeeper.paths())
        check_numbers(stores, 12)

    def test_an_attempt_that_was_discarded_while_it_waited_for_a_worker_never_begins(self) -> None:
        """Ids never go back: a later one of its txid may have begun."""
        for seed in range(12):
            stores, chance = SimulatedStores(), random.Random(seed)

            driver = SimulatedDriver(
                topology=numbers_topology(30, chance, most=2),
                stores=stores,
                seed=seed,
                rules=Rules(workers=6, wave_bytes_max=0),
                make_executor=failing(chance),
            )
            assert driver.run().kind == "finished"
            check_numbers(stores, 30)


class TestKinds:
    def topology(self, *kinds: str) -> Topology:
        builder = TopologyBuilder("mixed")
        for number, kind in enumerate(kinds):
            spout = OpaqueNumbers(3, random.Random(1)) if kind == "opaque" else FileSpout("/data", "n bigint")
            builder.set_spout(f"s{number}", spout)
            builder.set_committer_bolt(
                f"c{number}", CountCommitter(table=f"t{number}", keys=["n"], count="rows")
            ).shuffle_grouping(f"s{number}")
        return builder.build()

    @pytest.mark.parametrize(
        ("kinds", "opaque"), [(["opaque"], True), (["files"], False), (["opaque", "opaque"], True)]
    )
    def test_a_topology_with_an_opaque_spout_is_opaque(self, kinds: list[str], opaque: bool) -> None:
        assert is_opaque(self.topology(*kinds)) is opaque

    def test_opaque_spouts_and_others_do_not_mix(self) -> None:
        with pytest.raises(TopologyError, match="spout 's1' is opaque and spout 's0' is not"):
            is_opaque(self.topology("files", "opaque"))


def test_a_ledger_entry_names_the_cut_that_it_applied() -> None:
    """The ledger row says which cut it applied."""
    it = leader()
    it.planner.cut(1, 1)
    (again,) = it.planner.cut(1, 1, attempts={1: 1}).plans

    entry = it.planner.mirror_entry(again)

    assert isinstance(entry, MirrorEntry)
    assert (entry.plan.cut, read_plan(entry.plan.bytes, "test").cut) == (1, 1)
