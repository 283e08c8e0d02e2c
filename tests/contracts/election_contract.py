"""What every election must do, as tests to inherit with a fixture `world`."""

from __future__ import annotations

import threading

import pytest

from tests.contracts.coordinator_kit import (
    PATHS,
    PATIENCE_S,
    TOPOLOGY,
    CoordinatorWorld,
    LossySession,
    WatchedSession,
    candidate_on,
    eventually,
    identity,
    note_error,
)
from txtopo.coordinators import election
from txtopo.coordinators.codec import CandidateNode, encode_identity
from txtopo.coordinators.election import Election, current_leader, read_queue
from txtopo.errors import Halted, LeadLost, ZooKeeperUnavailable
from txtopo.ports import (
    DeleteNode,
    SetNode,
)


class ElectionContract:
    """Promises of `txtopo.ports.Candidacy`."""

    def test_first_candidate_leads_and_second_names_it(self, world: CoordinatorWorld) -> None:
        """Who stands first, in words (`host pid since`), or None if it is me."""
        first, second = candidate_on(world.open(), "one"), candidate_on(world.open(), "two")

        assert first.leader() is None
        assert first.wait(0) is True
        assert second.leader() == "one pid 7 since 2026-01-01T00:00:00Z"
        assert second.wait(0) is False

    def test_lookers_see_who_leads(self, world: CoordinatorWorld) -> None:
        """Commands that only look do not join the queue."""
        session = world.open()
        before = current_leader(session, TOPOLOGY)

        candidate_on(world.open(), "one")

        assert before is None
        assert current_leader(session, TOPOLOGY) == "one pid 7 since 2026-01-01T00:00:00Z"

    @pytest.mark.parametrize("end", ["close", "expire"])
    def test_second_candidate_takes_over_when_the_leader_dies(
        self, world: CoordinatorWorld, end: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wait until I stand first: the watch tells, not the next look."""
        monkeypatch.setattr(election, "RECHECK_S", 10 * PATIENCE_S)
        leader_session = world.open()
        candidate_on(leader_session, "one")
        second_session = WatchedSession(world.open())
        second = candidate_on(second_session, "two")
        won = threading.Event()
        waiting = threading.Thread(target=lambda: won.set() if second.wait(2 * PATIENCE_S) else None)
        waiting.start()
        assert second_session.watching.wait(PATIENCE_S)

        if end == "close":
            leader_session.close()
        else:
            world.expire(leader_session)

        assert won.wait(PATIENCE_S)
        waiting.join(PATIENCE_S)
        assert second.leader() is None

    def test_the_place_of_a_driver_whose_process_has_ended_is_removed(
        self, world: CoordinatorWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """R30: nobody waits for the session of such a driver, and only the next candidate looks."""
        monkeypatch.setattr(election, "RECHECK_S", 10 * PATIENCE_S)
        looks: list[str] = []

        def has_ended(candidate: CandidateNode) -> bool:
            """The process of the first one ends while the second one waits."""
            looks.append(candidate.host)
            return candidate.host == "one" and looks.count("one") > 3

        first_session, second_session = world.open(), world.open()
        first, second, third = (
            Election(session, TOPOLOGY, identity(host), has_ended)
            for session, host in ((first_session, "one"), (second_session, "two"), (world.open(), "three"))
        )
        for candidate in (first, second, third):
            candidate.enter()

        assert third.wait(0) is False
        assert second.wait(PATIENCE_S) is True
        assert third.wait(0) is False

        assert set(looks) == {"one", "two"}
        second.confirm()
        assert len(read_queue(second_session, PATHS)) == 2
        with pytest.raises(LeadLost):
            first.confirm()

    def test_a_driver_whose_node_says_another_nonce_is_not_taken_for_ended(self, world: CoordinatorWorld) -> None:
        """R30, Z14: a node that says two things is not believed, and its session decides."""
        session, other = world.open(), world.open()
        candidate_on(session, "one")
        (name,) = session.children(PATHS.leader)
        second = Election(other, TOPOLOGY, identity("two"), lambda _: True)
        second.enter()

        for data in (encode_identity(identity("liar")), b"garbage"):
            session.multi([SetNode(f"{PATHS.leader}/{name}", data)])
            assert second.wait(0) is False

        assert len(read_queue(other, PATHS)) == 2

    def test_lost_watch_does_not_stop_the_takeover(
        self, world: CoordinatorWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The queue is read again at least every RECHECK_S."""
        monkeypatch.setattr(election, "RECHECK_S", 0.05)
        leader_session = world.open()
        candidate_on(leader_session, "one")
        deaf = WatchedSession(world.open(), deaf=True)
        second = candidate_on(deaf, "two")
        won = threading.Event()
        waiting = threading.Thread(target=lambda: won.set() if second.wait(PATIENCE_S) else None)
        waiting.start()
        assert deaf.watching.wait(PATIENCE_S)

        leader_session.close()

        assert won.wait(PATIENCE_S / 2)
        waiting.join(PATIENCE_S)

    def test_a_candidate_that_waits_for_weeks_has_one_watch(self, world: CoordinatorWorld) -> None:
        """A watch takes memory until it fires, and a standby looks several times a second."""
        leader_session, second_session = world.open(), WatchedSession(world.open())
        candidate_on(leader_session, "one")
        second = candidate_on(second_session, "two")

        for _ in range(5):
            assert second.wait(0) is False
        assert len(second_session.watched) == 1

        leader_session.multi([SetNode(second_session.watched[0], b"this fires it")])
        eventually(lambda: second.wait(0) is False and len(second_session.watched) == 2)

    def test_candidate_with_another_ones_data_halts(self, world: CoordinatorWorld) -> None:
        """Z14: a node that says two things is not believed."""
        session = world.open()
        candidate_on(session, "one")
        (name,) = session.children(PATHS.leader)
        session.multi([SetNode(f"{PATHS.leader}/{name}", encode_identity(identity("liar")))])

        with pytest.raises(Halted, match=name):
            current_leader(session, TOPOLOGY)

    def test_third_candidate_waits_when_the_second_leaves(self, world: CoordinatorWorld) -> None:
        """Only the one before is watched; when it leaves that does not make a leader."""
        first = candidate_on(world.open(), "one")
        second_session = world.open()
        candidate_on(second_session, "two")
        third_session = WatchedSession(world.open())
        third = candidate_on(third_session, "three")
        assert third.wait(0) is False
        queue = read_queue(third_session, PATHS)
        assert third_session.watched == [f"{PATHS.leader}/{queue[1]}"]

        second_session.close()

        assert third.wait(0) is False
        assert third.leader() == "one pid 7 since 2026-01-01T00:00:00Z"
        assert first.leader() is None

    @pytest.mark.parametrize("applied", [False, True])
    def test_lost_reply_makes_one_candidate(self, world: CoordinatorWorld, applied: bool) -> None:
        """Z4: a second node (orphan contender) would block the queue."""
        session = LossySession(world.open())
        session.lose_creates = [applied]

        candidate = candidate_on(session, "one")

        assert len(session.children(PATHS.leader)) == 1
        assert candidate.wait(0) is True

    def test_entering_again_keeps_the_place(self, world: CoordinatorWorld) -> None:
        """Z4: one node a candidacy."""
        session = world.open()
        candidate = candidate_on(session, "one")

        candidate.enter()

        assert len(session.children(PATHS.leader)) == 1

    def test_confirm_writes_to_my_own_node(self, world: CoordinatorWorld) -> None:
        """Version-checked write to my own node right before the fence is claimed."""
        session = world.open()
        candidate = candidate_on(session, "one")

        candidate.confirm()
        candidate.confirm()

        (name,) = session.children(PATHS.leader)
        found = session.get(f"{PATHS.leader}/{name}")
        assert found is not None
        assert found[1] == 2

    def test_candidate_whose_node_is_gone_has_lost_the_lead(self, world: CoordinatorWorld) -> None:
        """Z1: so that a woken candidate does not bump the epoch. Raises LeadLost."""
        session, other = world.open(), world.open()
        candidate = candidate_on(session, "one")
        (name,) = session.children(PATHS.leader)
        other.multi([DeleteNode(f"{PATHS.leader}/{name}")])

        with pytest.raises(LeadLost):
            candidate.confirm()
        with pytest.raises(LeadLost):
            candidate.leader()
        with pytest.raises(LeadLost):
            candidate.wait(0)

    def test_a_leader_whose_node_is_removed_has_no_place_and_junk_beside_it_is_no_matter(
        self, world: CoordinatorWorld
    ) -> None:
        """`check_place`: somebody removed it while the session lives. Raises LeadLost."""
        session, other = world.open(), world.open()
        candidate = candidate_on(session, "one")
        candidate.confirm()
        (name,) = session.children(PATHS.leader)
        other.create(f"{PATHS.leader}/junk", b"")

        candidate.check_place()
        other.multi([DeleteNode(f"{PATHS.leader}/{name}")])

        with pytest.raises(LeadLost, match="was removed, although its session is alive"):
            candidate.check_place()

    def test_second_candidate_cannot_confirm(self, world: CoordinatorWorld) -> None:
        """Being second is no lead."""
        candidate_on(world.open(), "one")

        with pytest.raises(LeadLost):
            candidate_on(world.open(), "two").confirm()

    def test_lost_session_ends_the_wait(self, world: CoordinatorWorld) -> None:
        """Raises ZooKeeperUnavailable when the session is lost."""
        candidate_on(world.open(), "one")
        session = world.open()
        second = candidate_on(session, "two")
        ended: list[Exception] = []
        waiting = threading.Thread(target=lambda: note_error(ended, lambda: second.wait(PATIENCE_S)))
        waiting.start()

        world.expire(session)

        waiting.join(PATIENCE_S)
        assert [type(error) for error in ended] == [ZooKeeperUnavailable]

    @pytest.mark.parametrize("name", ["junk", "candidate-zz-0000000001", "candidate-12345678-1"])
    def test_junk_in_the_queue_halts_with_its_path(self, world: CoordinatorWorld, name: str) -> None:
        """Z14."""
        session = world.open()
        session.create(f"{PATHS.leader}/{name}", b"")

        with pytest.raises(Halted, match=f"{PATHS.leader}/{name}"):
            candidate_on(session, "one")

    def test_unreadable_candidate_halts_with_its_path(self, world: CoordinatorWorld) -> None:
        """Z14."""
        session, other = world.open(), world.open()
        candidate_on(session, "one")
        (name,) = session.children(PATHS.leader)
        second = candidate_on(other, "two")
        session.multi([SetNode(f"{PATHS.leader}/{name}", b"garbage")])

        with pytest.raises(Halted, match=name):
            second.leader()
