"""What every coordinator must do with plans, attempts, epochs and clean-up, as tests to inherit with a fixture `world`."""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contracts.coordinator_kit import (
    INCARNATION,
    PATHS,
    TOPOLOGY,
    CoordinatorWorld,
    LossySession,
    dump,
    lead,
    leading,
    plan,
)
from txtopo.coordinators.codec import encode_mark
from txtopo.coordinators.topology_nodes import TopologyCoordinator
from txtopo.core import limits
from txtopo.core.remedies import rebuild_zookeeper
from txtopo.errors import Fenced, Halted, InvariantBroken, LeadLost, ZooKeeperUnavailable
from txtopo.ports import (
    DeleteNode,
    SetNode,
)


class CoordinatorContract:
    """Promises of `txtopo.ports.Coordinator`."""

    def test_nothing_there_reads_as_never_used(self, world: CoordinatorWorld) -> None:
        """incarnation None: nothing there, never used or wiped."""
        view = TopologyCoordinator(world.open(), TOPOLOGY).read()

        assert (view.incarnation, view.epoch, view.mark) == (None, 0, 0)
        assert (dict(view.plans), dict(view.attempts)) == ({}, {})

    def test_what_was_written_is_read_by_the_next_leader(self, world: CoordinatorWorld) -> None:
        """Everything there is."""
        coordinator = leading(world.open(), 1)
        coordinator.record_plans([plan(1), plan(2)])
        coordinator.record_attempts({2: 3})

        view = TopologyCoordinator(world.open(), TOPOLOGY).read()

        assert (view.incarnation, view.epoch, view.system_identifier) == (INCARNATION, 1, "cluster")
        assert dict(view.plans) == {1: plan(1).bytes, 2: plan(2).bytes}
        assert dict(view.attempts) == {1: 0, 2: 3}

    @pytest.mark.parametrize("epoch", [1, 2])
    def test_epoch_must_grow(self, world: CoordinatorWorld, epoch: int) -> None:
        """R2: raises Fenced when ZooKeeper has this epoch already or a newer one."""
        leading(world.open(), 2)

        with pytest.raises(Fenced):
            leading(world.open(), epoch)

        assert TopologyCoordinator(world.open(), TOPOLOGY).read().epoch == 2

    def test_other_incarnation_halts(self, world: CoordinatorWorld) -> None:
        """R11: absent in Postgres and present in ZooKeeper, or different: HALT."""
        leading(world.open(), 1)
        other = lead(9, incarnation="22222222-2222-4222-8222-222222222222")

        with pytest.raises(Halted, match="/flights/epoch"):
            TopologyCoordinator(world.open(), TOPOLOGY).write_epoch(other, "cluster")

        assert TopologyCoordinator(world.open(), TOPOLOGY).read().epoch == 1

    @pytest.mark.parametrize(
        "write",
        [
            lambda old: old.record_plans([plan(2)]),
            lambda old: old.restore_plan(plan(2)),
            lambda old: old.record_attempts({1: 1}),
            lambda old: old.checkpoint(1, 2),
            lambda old: old.drop_plans({1: plan(1).bytes}),
        ],
        ids=["record_plans", "restore_plan", "record_attempts", "checkpoint", "drop_plans"],
    )
    def test_old_leader_changes_nothing(
        self, world: CoordinatorWorld, write: Callable[[TopologyCoordinator], None]
    ) -> None:
        """R2: every later ZooKeeper write is multi(check(epoch, version), ...)."""
        session = world.open()
        old = leading(session, 1)
        old.record_plans([plan(1)])
        leading(world.open(), 2)
        before = dump(session)

        with pytest.raises(Fenced):
            write(old)

        assert dump(session) == before

    def test_leader_whose_epoch_node_is_gone_has_lost_the_lead(self, world: CoordinatorWorld) -> None:
        """R11: a wiped ZooKeeper names no other leader; the next candidacy restores it from Postgres or finds itself
        fenced there.
        """
        session = world.open()
        coordinator = leading(session, 1)
        session.multi([DeleteNode(PATHS.epoch)])

        with pytest.raises(LeadLost):
            coordinator.record_plans([plan(1)])

    def test_lead_of_another_topology_is_refused(self, world: CoordinatorWorld) -> None:
        """One coordinator serves one topology."""
        session = world.open()

        with pytest.raises(InvariantBroken):
            TopologyCoordinator(session, "other").write_epoch(lead(1), "cluster")

        assert session.children("/") == []

    def test_write_before_the_epoch_is_a_mistake(self, world: CoordinatorWorld) -> None:
        """R2: the epoch write precedes every other."""
        with pytest.raises(InvariantBroken):
            TopologyCoordinator(world.open(), TOPOLOGY).record_plans([plan(1)])

    @pytest.mark.parametrize("earlier", [False, True], ids=["first leader", "later leader"])
    @pytest.mark.parametrize("applied", [False, True])
    def test_lost_reply_of_the_epoch_write_is_settled_by_reading_back(
        self, world: CoordinatorWorld, applied: bool, earlier: bool
    ) -> None:
        """Z6: timed-out or lost calls still happen later."""
        if earlier:
            leading(world.open(), 1)
        session = LossySession(world.open())
        session.lose_multis = [applied]

        coordinator = leading(session, 2)

        coordinator.record_plans([plan(1)])
        assert coordinator.read().epoch == 2

    def test_same_epoch_of_another_driver_is_not_taken_for_a_lost_reply(self, world: CoordinatorWorld) -> None:
        """R2: after a restore of Postgres two drivers may hold one number; only one of them writes."""
        leading(world.open(), 1)
        session = LossySession(world.open())
        session.lose_multis = [False] * 9
        second = TopologyCoordinator(session, TOPOLOGY)
        with pytest.raises(ZooKeeperUnavailable):
            second.write_epoch(lead(2), "cluster")
        leading(world.open(), 2)

        session.lose_multis = []
        with pytest.raises(Fenced):
            second.write_epoch(lead(2), "cluster")

    @pytest.mark.parametrize("applied", [False, True])
    def test_plans_may_be_recorded_again_after_a_lost_reply(self, world: CoordinatorWorld, applied: bool) -> None:
        """A node that is there with the same bytes is mine (a lost reply, Z6)."""
        session = LossySession(world.open())
        coordinator = leading(session, 1)
        session.lose_multis = [applied]
        with pytest.raises(ZooKeeperUnavailable):
            coordinator.record_plans([plan(1), plan(2)])

        coordinator.record_plans([plan(1), plan(2), plan(3)])

        view = coordinator.read()
        assert dict(view.plans) == {n: plan(n).bytes for n in (1, 2, 3)}
        assert dict(view.attempts) == {1: 0, 2: 0, 3: 0}

    def test_metadata_is_create_only(self, world: CoordinatorWorld) -> None:
        """R3: with other bytes raises LeadLost, so that the next candidacy adopts what is there."""
        first = leading(world.open(), 1)
        first.record_plans([plan(1, "found.csv")])
        second = leading(world.open(), 2)

        with pytest.raises(LeadLost):
            second.record_plans([plan(1, "other.csv"), plan(2)])

        assert dict(second.read().plans) == {1: plan(1, "found.csv").bytes}

    def test_plans_that_follow_each_other_are_asked_for(self, world: CoordinatorWorld) -> None:
        """Create the metadata nodes of consecutive txids."""
        coordinator = leading(world.open(), 1)

        with pytest.raises(InvariantBroken):
            coordinator.record_plans([plan(1), plan(3)])

        assert dict(coordinator.read().plans) == {}

    def test_plan_above_the_limit_is_refused(self, world: CoordinatorWorld) -> None:
        """A plan above METADATA_BYTES_MAX is an InvariantBroken."""
        coordinator = leading(world.open(), 1)

        with pytest.raises(InvariantBroken, match="Z9"):
            coordinator.record_plans([plan(1, padding=limits.METADATA_BYTES_MAX)])

    def test_plan_of_another_life_is_refused(self, world: CoordinatorWorld) -> None:
        """R12: identity of a batch = (incarnation, topology, txid, digest)."""
        coordinator = TopologyCoordinator(world.open(), TOPOLOGY)
        coordinator.write_epoch(lead(1, incarnation="22222222-2222-4222-8222-222222222222"), "cluster")

        with pytest.raises(InvariantBroken):
            coordinator.record_plans([plan(1)])

    def test_many_fat_plans_go_in_as_few_writes_as_fit(self, world: CoordinatorWorld) -> None:
        """... in as few multis as fit (Z9: counted as a whole)."""
        session = LossySession(world.open())
        coordinator = leading(session, 1)
        plans = [plan(txid, padding=60_000) for txid in range(1, 21)]
        session.writes = 0

        coordinator.record_plans(plans)

        assert session.writes == 3
        assert dict(coordinator.read().plans) == {p.txid: p.bytes for p in plans}
        assert dict(coordinator.read().attempts) == dict.fromkeys(range(1, 21), 0)

    @pytest.mark.parametrize("plans", [2, 33])
    def test_a_new_leader_waits_as_often_for_many_plans_as_for_few(self, world: CoordinatorWorld, plans: int) -> None:
        """Every wait of a takeover is one of a standby too: the epoch, its counters, the names of the plans, the
        plans.
        """
        leading(world.open(), 1).record_plans([plan(txid) for txid in range(1, plans + 1)])
        session = LossySession(world.open())
        coordinator = leading(session, 2)
        after_epoch, session.waits = session.waits, 0

        view = coordinator.read(plans_above=1)

        assert sorted(view.plans) == list(range(2, plans + 1))
        assert (after_epoch, session.waits) == (3, 4)

    def test_steady_state_costs_one_proposal_a_call(self, world: CoordinatorWorld) -> None:
        """A wave's metadata and attempt ids are one multi."""
        session = LossySession(world.open())
        coordinator = leading(session, 1)
        coordinator.record_plans([plan(n) for n in range(1, 65)])
        session.writes = 0

        coordinator.record_plans([plan(n) for n in range(65, 129)])
        after_plans = session.writes
        coordinator.checkpoint(64, 50)
        after_checkpoint = session.writes
        coordinator.checkpoint(64, 50)
        coordinator.record_attempts({5: 1, 128: 0})

        assert (after_plans, after_checkpoint, session.writes) == (1, 2, 2)

    def test_restored_plan_is_there_and_may_be_restored_again(self, world: CoordinatorWorld) -> None:
        """Put back the metadata of a mirrored plan (R9); there with the same bytes: nothing to do."""
        coordinator = leading(world.open(), 1)

        coordinator.restore_plan(plan(5))
        coordinator.restore_plan(plan(5))

        assert dict(coordinator.read().plans) == {5: plan(5).bytes}

    def test_restored_plan_that_differs_halts(self, world: CoordinatorWorld) -> None:
        """R9: other bytes: Halted."""
        coordinator = leading(world.open(), 1)
        coordinator.record_plans([plan(5, "found.csv")])

        with pytest.raises(Halted) as raised:
            coordinator.restore_plan(plan(5, "mirrored.csv"))

        assert raised.value.txid == 5
        assert PATHS.plan(5) in str(raised.value)
        assert dict(coordinator.read().plans) == {5: plan(5, "found.csv").bytes}

    def test_attempt_ids_never_go_back(self, world: CoordinatorWorld) -> None:
        """Remember the highest attempt id of each uncommitted txid, so that ids never go back."""
        coordinator = leading(world.open(), 1)
        coordinator.record_attempts({1: 4, 2: 1})
        coordinator.record_attempts({1: 2})
        coordinator.record_plans([plan(1)])

        later = leading(world.open(), 2)
        later.record_attempts({1: 3})

        assert dict(later.read().attempts) == {1: 4, 2: 1}

    def test_checkpoint_advances_the_mark_and_cleans_behind_it(self, world: CoordinatorWorld) -> None:
        """R8: advance the mark to `last_txid` and delete metadata of txids below `keep_from`."""
        coordinator = leading(world.open(), 1)
        coordinator.record_plans([plan(n) for n in range(1, 6)])

        coordinator.checkpoint(4, 3)

        view = coordinator.read()
        assert view.mark == 4
        assert sorted(view.plans) == [3, 4, 5]
        assert dict(view.attempts) == {5: 0}

    def test_next_leader_cleans_what_the_one_before_left(self, world: CoordinatorWorld) -> None:
        """R8: metadata is not cleaned by what a leader remembers."""
        leading(world.open(), 1).record_plans([plan(n) for n in range(1, 6)])
        later = leading(world.open(), 2)

        later.checkpoint(4, 3)

        assert sorted(later.read().plans) == [3, 4, 5]
        assert sorted(later.read(plans_above=3).plans) == [4, 5]

    def test_mark_never_goes_back(self, world: CoordinatorWorld) -> None:
        """P7: ZooKeeper keeps a high-water mark; a Postgres that lost commits does not lower it."""
        leading(world.open(), 1).checkpoint(7, 1)
        later = leading(world.open(), 2)

        later.checkpoint(5, 1)

        assert later.read().mark == 7

    def test_metadata_of_uncommitted_batches_is_never_cleaned(self, world: CoordinatorWorld) -> None:
        """R8: cleanup of metadata n only if n <= last_durable - K."""
        coordinator = leading(world.open(), 1)
        coordinator.record_plans([plan(1), plan(2), plan(3)])

        with pytest.raises(InvariantBroken):
            coordinator.checkpoint(1, 3)

        assert sorted(coordinator.read().plans) == [1, 2, 3]

    @pytest.mark.parametrize("applied", [False, True])
    def test_checkpoint_may_be_repeated_after_a_lost_reply(self, world: CoordinatorWorld, applied: bool) -> None:
        """Idempotent; a node that is gone is done."""
        session = LossySession(world.open())
        coordinator = leading(session, 1)
        coordinator.record_plans([plan(1), plan(2), plan(3)])
        session.lose_multis = [applied]
        with pytest.raises(ZooKeeperUnavailable):
            coordinator.checkpoint(2, 3)

        coordinator.checkpoint(2, 3)

        view = coordinator.read()
        assert (view.mark, sorted(view.plans), dict(view.attempts)) == (2, [3], {3: 0})

    def test_dropped_plans_are_gone_and_their_attempt_ids_are_not(self, world: CoordinatorWorld) -> None:
        """R3's one exception: the whole suffix goes, ids never go back, and the same txids may be planned anew."""
        leading(world.open(), 1).record_plans([plan(1), plan(2), plan(3)])
        later = leading(world.open(), 2)
        later.record_attempts({2: 3})

        later.drop_plans({2: plan(2).bytes, 3: plan(3).bytes})
        later.record_plans([plan(2, "other.csv")])

        view = later.read()
        assert dict(view.plans) == {1: plan(1).bytes, 2: plan(2, "other.csv").bytes}
        assert dict(view.attempts) == {1: 0, 2: 3, 3: 0}

    @pytest.mark.parametrize(
        "wrong", [{2: b"{}", 3: plan(3).bytes}, {2: plan(2).bytes}], ids=["other bytes", "not the whole suffix"]
    )
    def test_nothing_is_dropped_that_is_not_exactly_what_was_found(
        self, world: CoordinatorWorld, wrong: dict[int, bytes]
    ) -> None:
        """R3: a plan is removed only by the order that names it, and never out of the middle."""
        coordinator = leading(world.open(), 1)
        coordinator.record_plans([plan(1), plan(2), plan(3)])

        with pytest.raises(LeadLost):
            coordinator.drop_plans(wrong)

        assert sorted(coordinator.read().plans) == [1, 2, 3]

    @pytest.mark.parametrize("applied", [False, True])
    def test_plans_may_be_dropped_again_after_a_lost_reply(self, world: CoordinatorWorld, applied: bool) -> None:
        """Z6: what happened is found done."""
        session = LossySession(world.open())
        coordinator = leading(session, 1)
        coordinator.record_plans([plan(1), plan(2)])
        session.lose_multis = [applied]
        with pytest.raises(ZooKeeperUnavailable):
            coordinator.drop_plans({2: plan(2).bytes})

        coordinator.drop_plans({2: plan(2).bytes})

        assert sorted(coordinator.read().plans) == [1]

    @pytest.mark.parametrize("path", [PATHS.epoch, PATHS.mark, PATHS.attempts, PATHS.plan(1)])
    @pytest.mark.parametrize("data", [b"", b"garbage", b'{"v":99}', b"[1]", b'{"v":1}', b"\xff\xfe"])
    def test_unreadable_node_halts_with_its_path(self, world: CoordinatorWorld, path: str, data: bytes) -> None:
        """Z14: unparsable data never reads as "no state"."""
        session = world.open()
        coordinator = leading(session, 1)
        coordinator.record_plans([plan(1)])
        session.multi([SetNode(path, data)])

        with pytest.raises(Halted, match=path) as halt:
            TopologyCoordinator(session, TOPOLOGY).read()
        assert halt.value.next_command == rebuild_zookeeper(TOPOLOGY)

    @pytest.mark.parametrize("name", ["junk", "7", "0000000000000000000x", "00000000000000000000"])
    def test_junk_below_the_metadata_halts_with_its_path(self, world: CoordinatorWorld, name: str) -> None:
        """Z14: unreadable nodes raise Halted with the path."""
        session = world.open()
        leading(session, 1)
        session.create(f"{PATHS.plans}/{name}", b"")

        with pytest.raises(Halted, match=f"{PATHS.plans}/{name}"):
            TopologyCoordinator(session, TOPOLOGY).read()

    def test_plan_under_another_txid_halts(self, world: CoordinatorWorld) -> None:
        """R12: identity of a batch."""
        session = world.open()
        leading(session, 1)
        session.create(PATHS.plan(2), plan(1).bytes)

        with pytest.raises(Halted, match=PATHS.plan(2)) as halt:
            TopologyCoordinator(session, TOPOLOGY).read()
        assert halt.value.next_command == rebuild_zookeeper(TOPOLOGY)

    @pytest.mark.parametrize("path", [PATHS.epoch, PATHS.mark, PATHS.attempts])
    def test_half_a_topology_halts(self, world: CoordinatorWorld, path: str) -> None:
        """Z13: ZooKeeper restored in part does not read as new."""
        session = world.open()
        leading(session, 1)
        session.multi([DeleteNode(path)])

        with pytest.raises(Halted, match=path) as halt:
            TopologyCoordinator(session, TOPOLOGY).read()
        assert halt.value.next_command == rebuild_zookeeper(TOPOLOGY)
        with pytest.raises(Halted, match=path):
            leading(world.open(), 2)

    def test_leader_halts_when_its_nodes_are_removed(self, world: CoordinatorWorld) -> None:
        """R17: halt is loud."""
        session = world.open()
        coordinator = leading(session, 1)
        session.multi([DeleteNode(PATHS.mark)])

        with pytest.raises(Halted, match=PATHS.mark):
            coordinator.checkpoint(1, 1)

    def test_leader_reads_the_mark_that_is_there(self, world: CoordinatorWorld) -> None:
        """Z8: the new leader's own epoch write precedes its reads on the same session."""
        session = world.open()
        leading(session, 1)
        session.multi([SetNode(PATHS.mark, encode_mark(3))])
        later = leading(session, 2)

        later.record_plans([plan(4)])
        later.record_attempts({2: 1})

        assert later.read().mark == 3
        assert dict(later.read().attempts) == {4: 0}
