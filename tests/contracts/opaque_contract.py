"""What every coordinator must do with the plans of opaque batches, a node an attempt, as tests to inherit with a
fixture `world`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contracts.coordinator_kit import PATHS, TOPOLOGY, CoordinatorWorld, LossySession, dump, leading, plan
from txtopo.coordinators import codec
from txtopo.coordinators.topology_nodes import TopologyCoordinator
from txtopo.core import limits
from txtopo.errors import Fenced, Halted, LeadLost, ZooKeeperUnavailable
from txtopo.ports import CreateNode, DeleteNode, SetNode


class OpaqueCoordinatorContract:
    """Promises of `txtopo.ports.Coordinator` for opaque topologies."""

    def test_each_cut_has_a_node_of_its_own(self, world: CoordinatorWorld) -> None:
        """Their metadata lies at meta/<txid>/<attempt>, each node create-only."""
        session = world.open()
        coordinator = leading(session, 1, opaque=True)

        coordinator.record_plans([plan(1), plan(2)])
        coordinator.record_plans([plan(2, "again.csv", cut=3)])

        view = TopologyCoordinator(world.open(), TOPOLOGY).read()
        assert dict(view.plans) == {}
        assert view.cuts == {1: {0: plan(1).bytes}, 2: {0: plan(2).bytes, 3: plan(2, "again.csv", cut=3).bytes}}
        assert session.get("/flights/coordinator/meta/00000000000000000002/3") is not None

    def test_the_id_of_a_cut_is_remembered_with_it(self, world: CoordinatorWorld) -> None:
        """Ids never go back: a node and its attempt id are one multi."""
        session = LossySession(world.open())
        coordinator = leading(session, 1, opaque=True)
        session.writes = 0

        coordinator.record_plans([plan(1, cut=2), plan(2)])

        assert session.writes == 1
        assert dict(coordinator.read().attempts) == {1: 2, 2: 0}

    def test_a_cut_is_create_only(self, world: CoordinatorWorld) -> None:
        """R3: with other bytes raises LeadLost."""
        coordinator = leading(world.open(), 1, opaque=True)
        coordinator.record_plans([plan(1, "found.csv")])

        with pytest.raises(LeadLost):
            coordinator.record_plans([plan(1, "other.csv")])

        assert coordinator.read().cuts == {1: {0: plan(1, "found.csv").bytes}}

    @pytest.mark.parametrize("applied", [False, True])
    @pytest.mark.parametrize("cut", [0, 1], ids=["first cut", "later cut"])
    def test_a_lost_reply_is_settled_by_recording_again(self, world: CoordinatorWorld, applied: bool, cut: int) -> None:
        """Z6: a node that is there with the same bytes is mine."""
        session = LossySession(world.open())
        coordinator = leading(session, 1, opaque=True)
        if cut:
            coordinator.record_plans([plan(1)])
        session.lose_multis = [applied]
        with pytest.raises(ZooKeeperUnavailable):
            coordinator.record_plans([plan(1, cut=cut), plan(2)])

        coordinator.record_plans([plan(1, cut=cut), plan(2)])

        assert coordinator.read().cuts[1][cut] == plan(1, cut=cut).bytes
        assert dict(coordinator.read().attempts) == {1: cut, 2: 0}

    def test_the_next_leader_cuts_beside_what_it_finds(self, world: CoordinatorWorld) -> None:
        """R11: what is not mirrored is dropped from view, not removed; attempts go on from the highest id."""
        leading(world.open(), 1, opaque=True).record_plans([plan(1), plan(2)])
        later = leading(world.open(), 2, opaque=True)

        later.record_plans([plan(1, "b.csv", cut=1)])

        assert {txid: sorted(cuts) for txid, cuts in later.read().cuts.items()} == {1: [0, 1], 2: [0]}

    def test_the_next_leader_finds_cuts_that_came_after_it_looked(self, world: CoordinatorWorld) -> None:
        """Z6: a write of the leader before may arrive late, with the node above the cuts."""
        session = world.open()
        coordinator = leading(session, 1, opaque=True)
        session.multi([CreateNode(PATHS.plan(1), codec.CUTS), CreateNode(PATHS.cut(1, 0), plan(1).bytes)])

        coordinator.record_plans([plan(1, "b.csv", cut=1)])
        coordinator.checkpoint(1, 2)

        assert coordinator.read().cuts == {}
        assert session.children(PATHS.plans) == []

    def test_old_leader_cuts_nothing(self, world: CoordinatorWorld) -> None:
        """R2."""
        session = world.open()
        old = leading(session, 1, opaque=True)
        old.record_plans([plan(1)])
        leading(world.open(), 2, opaque=True)
        before = dump(session)
        writes: list[Callable[[], None]] = [
            lambda: old.record_plans([plan(1, cut=1)]),
            lambda: old.restore_plan(plan(2)),
        ]

        for write in writes:
            with pytest.raises(Fenced):
                write()

        assert dump(session) == before

    def test_all_cuts_of_a_batch_are_cleaned_behind_the_mark(self, world: CoordinatorWorld) -> None:
        """R8: mine and those of the leaders before, the node above them with them."""
        session = world.open()
        leading(session, 1, opaque=True).record_plans([plan(1), plan(2), plan(3)])
        later = leading(world.open(), 2, opaque=True)
        later.record_plans([plan(2, cut=1), plan(3, cut=1), plan(4)])
        later.record_plans([plan(4, cut=1)])

        later.checkpoint(4, 3)
        kept = {txid: sorted(cuts) for txid, cuts in later.read().cuts.items()}
        later.checkpoint(4, 5)

        assert kept == {3: [0, 1], 4: [0, 1]}
        assert session.children(PATHS.plans) == []

    def test_more_cuts_than_fit_a_multi_are_cleaned_in_parts(self, world: CoordinatorWorld) -> None:
        """Z9: a source that was away for hours leaves thousands of cuts; what is removed first is never the node above."""  # noqa: E501
        session = LossySession(world.open())
        coordinator = leading(session, 1, opaque=True)
        for cut in range(4):
            coordinator.record_plans([plan(1, cut=cut)])
        room, limits.MULTI_BYTES_MAX = limits.MULTI_BYTES_MAX, 900
        session.writes = 0
        try:
            session.lose_multis = [True]
            with pytest.raises(ZooKeeperUnavailable):
                coordinator.checkpoint(1, 2)
            left = coordinator.read().cuts
            coordinator.checkpoint(1, 2)
        finally:
            limits.MULTI_BYTES_MAX = room

        assert 0 < len(left[1]) < 4
        assert session.children(PATHS.plans) == []
        assert coordinator.read().mark == 1

    def test_a_mirrored_cut_is_restored_to_its_place(self, world: CoordinatorWorld) -> None:
        """R9: put back the metadata of a mirrored plan; there with other bytes: Halted."""
        coordinator = leading(world.open(), 1, opaque=True)

        coordinator.restore_plan(plan(5, cut=2))
        coordinator.restore_plan(plan(5, cut=2))

        assert coordinator.read().cuts == {5: {2: plan(5, cut=2).bytes}}
        with pytest.raises(Halted):
            coordinator.restore_plan(plan(5, "other.csv", cut=2))

    def test_a_batch_that_was_planned_before_its_spout_became_opaque_is_not_cut(self, world: CoordinatorWorld) -> None:
        """Nothing is ever put below a plan."""
        leading(world.open(), 1).record_plans([plan(1)])
        later = leading(world.open(), 2, opaque=True)

        with pytest.raises(LeadLost):
            later.record_plans([plan(1, cut=1)])

        assert later.read().plans == {1: plan(1).bytes}
        later.checkpoint(1, 2)
        assert later.read().plans == {}

    @pytest.mark.parametrize("name", ["junk", "01", "-1", "00000000000"])
    def test_junk_below_a_batch_halts_with_its_path(self, world: CoordinatorWorld, name: str) -> None:
        """Z14: unreadable nodes raise Halted with the path."""
        session = world.open()
        leading(session, 1, opaque=True).record_plans([plan(1)])
        session.create(f"{PATHS.plan(1)}/{name}", plan(1).bytes)

        with pytest.raises(Halted, match=f"{PATHS.plan(1)}/{name}"):
            TopologyCoordinator(session, TOPOLOGY).read()

    @pytest.mark.parametrize("data", [b"garbage", plan(2).bytes, plan(1, cut=7).bytes], ids=["garbage", "txid", "cut"])
    def test_a_cut_that_is_not_what_its_path_says_halts(self, world: CoordinatorWorld, data: bytes) -> None:
        """R12: identity of a batch, and of its cut."""
        session = world.open()
        leading(session, 1, opaque=True).record_plans([plan(1)])
        session.multi([SetNode(PATHS.cut(1, 0), data)])

        with pytest.raises(Halted, match=PATHS.cut(1, 0)):
            TopologyCoordinator(session, TOPOLOGY).read()

    def test_a_batch_of_which_no_cut_is_left_reads_as_none(self, world: CoordinatorWorld) -> None:
        """Clean-up removes the cuts first."""
        session = world.open()
        coordinator = leading(session, 1, opaque=True)
        coordinator.record_plans([plan(1)])
        session.multi([DeleteNode(PATHS.cut(1, 0))])

        assert coordinator.read().cuts == {}
