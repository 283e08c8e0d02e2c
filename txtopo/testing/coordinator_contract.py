"""What every coordinator session, coordinator and election must do, as tests to inherit: `class TestMine(CoordinatorContract)` with a fixture `world`."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

import pytest

from txtopo.coordinators import election
from txtopo.coordinators.batches import TopologyCoordinator
from txtopo.coordinators.codec import Identity, encode_identity, encode_mark
from txtopo.coordinators.election import Election, current_leader
from txtopo.coordinators.paths import TopologyPaths
from txtopo.core import limits
from txtopo.core.plan import Plan, genesis_digest
from txtopo.core.values import Lead
from txtopo.errors import Fenced, Halted, InvariantBroken, LeadLost, ZooKeeperUnavailable
from txtopo.ports import (
    CheckNode,
    CoordinatorSession,
    CreateNode,
    DeleteNode,
    NodeExists,
    NodeMissing,
    Operation,
    SessionState,
    SetNode,
    VersionDiffers,
)

TOPOLOGY = "flights"
PATHS = TopologyPaths(TOPOLOGY)
INCARNATION = "11111111-1111-4111-8111-111111111111"
PATIENCE_S = 20.0


class CoordinatorWorld(Protocol):
    """The fixture `world`: an empty ZooKeeper, or something like it, of this test's own."""

    def open(self) -> CoordinatorSession:
        """A new session; the fixture closes it."""

    def expire(self, session: CoordinatorSession) -> None:
        """End a session at the server, and return when its owner knows."""


class LossySession:
    """A session that counts its writes and loses replies: the wrapped one did the write, or never saw it."""

    def __init__(self, session: CoordinatorSession) -> None:
        self._session = session
        self.writes = 0
        self.lose_creates: list[bool] = []
        """For the next creates: lose the reply, with the write applied or not."""
        self.lose_multis: list[bool] = []
        """For the next multis likewise."""

    @property
    def session_s(self) -> float:
        """See the port."""
        return self._session.session_s

    def state(self) -> SessionState:
        """See the port."""
        return self._session.state()

    def get(self, path: str) -> tuple[bytes, int] | None:
        """See the port."""
        return self._session.get(path)

    def children(self, path: str) -> list[str]:
        """See the port."""
        return self._session.children(path)

    def watch(self, path: str, changed: Callable[[], None]) -> bool:
        """See the port."""
        return self._session.watch(path, changed)

    def close(self) -> None:
        """See the port."""
        self._session.close()

    def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False) -> str:
        """See the port."""
        return self._lossy(
            self.lose_creates, lambda: self._session.create(path, data, ephemeral=ephemeral, sequential=sequential)
        )

    def multi(self, operations: Sequence[Operation]) -> None:
        """See the port."""

        def write() -> str:
            self._session.multi(operations)
            return ""

        self._lossy(self.lose_multis, write)

    def _lossy(self, lose: list[bool], write: Callable[[], str]) -> str:
        self.writes += 1
        applied = lose.pop(0) if lose else None
        result = write() if applied is not False else ""
        if applied is not None:
            raise ZooKeeperUnavailable("reply lost by the test")
        return result


class WatchedSession(LossySession):
    """A session that tells when somebody watches, and may be deaf."""

    def __init__(self, session: CoordinatorSession, *, deaf: bool = False) -> None:
        super().__init__(session)
        self.watching = threading.Event()
        """Set when a watch is in place."""
        self._deaf = deaf

    def watch(self, path: str, changed: Callable[[], None]) -> bool:
        """See the port; a deaf session forgets to tell."""
        there = self._session.watch(path, _nothing if self._deaf else changed)
        self.watching.set()
        return there


def eventually(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, and fail after `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen in time")
        threading.Event().wait(0.01)


def lead(epoch: int, *, incarnation: str = INCARNATION) -> Lead:
    """The lead of a new driver."""
    return Lead(
        topology=TOPOLOGY, incarnation=incarnation, epoch=epoch, owner_nonce=str(uuid.uuid4()), code_hash=b"c" * 32
    )


def plan(txid: int, file: str = "a.csv", *, padding: int = 0) -> Plan:
    """A plan of one file."""
    metadata = {"files": {"path": file, "padding": "x" * padding}}
    return Plan(
        topology=TOPOLOGY,
        incarnation=INCARNATION,
        txid=txid,
        previous_digest=genesis_digest(TOPOLOGY, INCARNATION),
        metadata=metadata,
    )


def identity(host: str = "one") -> Identity:
    """A new candidate."""
    return Identity(host=host, pid=7, since="2026-01-01T00:00:00Z", nonce=str(uuid.uuid4()))


class CoordinatorSessionContract:
    """Promises of `txtopo.ports.CoordinatorSession`."""

    def test_created_node_is_read_back_with_version_zero(self, world: CoordinatorWorld) -> None:
        """Create a node with its missing (persistent, empty) parents."""
        session = world.open()

        created = session.create("/a/b/c", b"data")

        assert created == "/a/b/c"
        assert session.get("/a/b/c") == (b"data", 0)
        assert session.get("/a/b") == (b"", 0)
        assert session.children("/a") == ["b"]

    def test_missing_node_reads_as_none_and_has_no_children(self, world: CoordinatorWorld) -> None:
        """Data and version, or None where there is no node; children empty where there is no node."""
        session = world.open()

        assert session.get("/nowhere") is None
        assert session.children("/nowhere") == []

    def test_create_never_overwrites(self, world: CoordinatorWorld) -> None:
        """Raises NodeExists."""
        session = world.open()
        session.create("/a", b"first")

        with pytest.raises(NodeExists):
            session.create("/a", b"second")

        assert session.get("/a") == (b"first", 0)

    def test_multi_does_all_operations(self, world: CoordinatorWorld) -> None:
        """All of them or none."""
        session = world.open()
        for path in ("/a", "/b"):
            session.create(path, b"")

        session.multi([CheckNode("/a", 0), SetNode("/a", b"1", 0), DeleteNode("/b"), CreateNode("/c", b"3")])

        assert session.get("/a") == (b"1", 1)
        assert session.get("/b") is None
        assert session.get("/c") == (b"3", 0)

    @pytest.mark.parametrize(
        ("culprit", "refusal"),
        [
            (CheckNode("/a", 5), VersionDiffers),
            (SetNode("/a", b"x", 5), VersionDiffers),
            (CheckNode("/gone", 0), NodeMissing),
            (SetNode("/gone", b"x"), NodeMissing),
            (DeleteNode("/gone"), NodeMissing),
            (CreateNode("/gone/child", b""), NodeMissing),
            (CreateNode("/a", b""), NodeExists),
        ],
    )
    def test_refused_multi_names_the_path_and_changes_nothing(
        self, world: CoordinatorWorld, culprit: Operation, refusal: type[Exception]
    ) -> None:
        """Raises NodeExists, NodeMissing, VersionDiffers for the first that failed (Z3: kazoo itself raises nothing)."""
        session = world.open()
        session.create("/a", b"old")
        session.create("/b", b"old")

        with pytest.raises(refusal) as raised:
            session.multi(
                [SetNode("/a", b"new", 0), DeleteNode("/b"), CreateNode("/c", b""), culprit, SetNode("/d", b"")]
            )

        # The first operation raised the version of /a inside the multi, which is undone too.
        assert raised.value.args == (culprit.path,)
        assert session.get("/a") == (b"old", 0)
        assert session.get("/b") == (b"old", 0)
        assert session.get("/c") is None

    def test_sequential_names_grow_with_ten_digits(self, world: CoordinatorWorld) -> None:
        """Returns the path, with ZooKeeper's suffix when sequential."""
        session = world.open()

        first, second = (session.create("/queue/n-", b"", sequential=True) for _ in range(2))

        assert first == "/queue/n-0000000000"
        assert second == "/queue/n-0000000001"

    def test_close_removes_ephemeral_nodes_and_leaves_the_others(self, world: CoordinatorWorld) -> None:
        """End the session; its ephemeral nodes go at once. Safe to repeat."""
        session, other = world.open(), world.open()
        session.create("/mine", b"", ephemeral=True)
        session.create("/ours", b"")

        session.close()
        session.close()

        assert other.get("/mine") is None
        assert other.get("/ours") is not None
        assert session.state() is SessionState.LOST

    def test_closed_session_refuses_every_call(self, world: CoordinatorWorld) -> None:
        """After `close`, or once LOST, every call raises ZooKeeperUnavailable."""
        session, other = world.open(), world.open()
        session.create("/a", b"")
        session.close()

        _expect_unavailable(session)

        assert other.get("/new") is None

    def test_lost_session_is_never_used_again(self, world: CoordinatorWorld) -> None:
        """Nothing queued is ever sent by a later session (Z2)."""
        session, other = world.open(), world.open()
        session.create("/mine", b"", ephemeral=True)

        world.expire(session)

        assert session.state() is SessionState.LOST
        _expect_unavailable(session)
        assert other.get("/new") is None
        assert other.get("/mine") is None

    def test_watch_of_a_missing_node_says_so(self, world: CoordinatorWorld) -> None:
        """Is the node there?"""
        assert world.open().watch("/nowhere", _nothing) is False

    @pytest.mark.parametrize("change", [SetNode("/a", b"1"), DeleteNode("/a")])
    def test_watch_fires_once_when_the_node_changes(self, world: CoordinatorWorld, change: Operation) -> None:
        """If so `changed` is called once, from another thread, when it goes or changes."""
        session, other = world.open(), world.open()
        session.create("/a", b"")
        calls: list[int] = []

        there = session.watch("/a", lambda: calls.append(1))
        before = list(calls)
        other.multi([change])

        assert there is True
        assert before == []
        eventually(lambda: calls)
        if isinstance(change, SetNode):
            other.multi([SetNode("/a", b"2")])
        session.close()
        assert calls == [1]

    def test_watch_fires_when_an_ephemeral_node_goes_with_its_session(self, world: CoordinatorWorld) -> None:
        """... when it goes."""
        session, other = world.open(), world.open()
        other.create("/theirs", b"", ephemeral=True)
        gone = threading.Event()
        session.watch("/theirs", gone.set)

        other.close()

        assert gone.wait(PATIENCE_S)

    def test_watch_fires_on_session_trouble(self, world: CoordinatorWorld) -> None:
        """... and on session trouble."""
        session = world.open()
        session.create("/a", b"")
        fired = threading.Event()
        session.watch("/a", fired.set)

        world.expire(session)

        assert fired.wait(PATIENCE_S)

    def test_watch_fires_when_the_session_is_closed(self, world: CoordinatorWorld) -> None:
        """Nobody goes on waiting on a session that is gone."""
        session = world.open()
        session.create("/a", b"")
        fired = threading.Event()
        session.watch("/a", fired.set)

        session.close()

        assert fired.wait(PATIENCE_S)

    def test_too_big_a_write_is_refused_before_it_is_sent(self, world: CoordinatorWorld) -> None:
        """Z9: a 1 MiB znode cuts the connection."""
        session = world.open()
        half = bytes(limits.MULTI_BYTES_MAX // 2)

        with pytest.raises(InvariantBroken, match="bytes"):
            session.create("/a", half + half)
        with pytest.raises(InvariantBroken, match="bytes"):
            session.multi([CreateNode("/a", half), CreateNode("/b", half)])

        assert session.state() is SessionState.CONNECTED
        assert session.children("/") == []

    def test_several_threads_share_one_session(self, world: CoordinatorWorld) -> None:
        """All methods may be called from several threads."""
        session = world.open()
        threads = [threading.Thread(target=lambda: session.create("/queue/n-", b"", sequential=True)) for _ in range(8)]

        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)

        assert len(session.children("/queue")) == 8


class CoordinatorContract:
    """Promises of `txtopo.ports.Coordinator`."""

    def test_nothing_there_reads_as_never_used(self, world: CoordinatorWorld) -> None:
        """incarnation None: nothing there, never used or wiped."""
        view = TopologyCoordinator(world.open(), TOPOLOGY).read()

        assert (view.incarnation, view.epoch, view.mark) == (None, 0, 0)
        assert (dict(view.plans), dict(view.attempts)) == ({}, {})

    def test_what_was_written_is_read_by_the_next_leader(self, world: CoordinatorWorld) -> None:
        """Everything there is."""
        coordinator = _leading(world.open(), 1)
        coordinator.record_plans([plan(1), plan(2)])
        coordinator.record_attempts({2: 3})

        view = TopologyCoordinator(world.open(), TOPOLOGY).read()

        assert (view.incarnation, view.epoch, view.system_identifier) == (INCARNATION, 1, "cluster")
        assert dict(view.plans) == {1: plan(1).bytes, 2: plan(2).bytes}
        assert dict(view.attempts) == {1: 0, 2: 3}

    @pytest.mark.parametrize("epoch", [1, 2])
    def test_epoch_must_grow(self, world: CoordinatorWorld, epoch: int) -> None:
        """R2: raises Fenced when ZooKeeper has this epoch already or a newer one."""
        _leading(world.open(), 2)

        with pytest.raises(Fenced):
            _leading(world.open(), epoch)

        assert TopologyCoordinator(world.open(), TOPOLOGY).read().epoch == 2

    def test_other_incarnation_halts(self, world: CoordinatorWorld) -> None:
        """R11: absent in Postgres and present in ZooKeeper, or different: HALT."""
        _leading(world.open(), 1)
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
        ],
        ids=["record_plans", "restore_plan", "record_attempts", "checkpoint"],
    )
    def test_old_leader_changes_nothing(
        self, world: CoordinatorWorld, write: Callable[[TopologyCoordinator], None]
    ) -> None:
        """R2: every later ZooKeeper write is multi(check(epoch, version), ...)."""
        session = world.open()
        old = _leading(session, 1)
        old.record_plans([plan(1)])
        _leading(world.open(), 2)
        before = _dump(session)

        with pytest.raises(Fenced):
            write(old)

        assert _dump(session) == before

    def test_leader_whose_epoch_node_is_gone_is_fenced(self, world: CoordinatorWorld) -> None:
        """NodeMissing of the epoch node is Fenced."""
        session = world.open()
        coordinator = _leading(session, 1)
        session.multi([DeleteNode(PATHS.epoch)])

        with pytest.raises(Fenced):
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
            _leading(world.open(), 1)
        session = LossySession(world.open())
        session.lose_multis = [applied]

        coordinator = _leading(session, 2)

        coordinator.record_plans([plan(1)])
        assert coordinator.read().epoch == 2

    def test_same_epoch_of_another_driver_is_not_taken_for_a_lost_reply(self, world: CoordinatorWorld) -> None:
        """R2: after a restore of Postgres two drivers may hold one number; only one of them writes."""
        _leading(world.open(), 1)
        session = LossySession(world.open())
        session.lose_multis = [False] * 9
        second = TopologyCoordinator(session, TOPOLOGY)
        with pytest.raises(ZooKeeperUnavailable):
            second.write_epoch(lead(2), "cluster")
        _leading(world.open(), 2)

        session.lose_multis = []
        with pytest.raises(Fenced):
            second.write_epoch(lead(2), "cluster")

    @pytest.mark.parametrize("applied", [False, True])
    def test_plans_may_be_recorded_again_after_a_lost_reply(self, world: CoordinatorWorld, applied: bool) -> None:
        """A node that is there with the same bytes is mine (a lost reply, Z6)."""
        session = LossySession(world.open())
        coordinator = _leading(session, 1)
        session.lose_multis = [applied]
        with pytest.raises(ZooKeeperUnavailable):
            coordinator.record_plans([plan(1), plan(2)])

        coordinator.record_plans([plan(1), plan(2), plan(3)])

        view = coordinator.read()
        assert dict(view.plans) == {n: plan(n).bytes for n in (1, 2, 3)}
        assert dict(view.attempts) == {1: 0, 2: 0, 3: 0}

    def test_metadata_is_create_only(self, world: CoordinatorWorld) -> None:
        """R3: with other bytes raises LeadLost, so that the next candidacy adopts what is there."""
        first = _leading(world.open(), 1)
        first.record_plans([plan(1, "found.csv")])
        second = _leading(world.open(), 2)

        with pytest.raises(LeadLost):
            second.record_plans([plan(1, "other.csv"), plan(2)])

        assert dict(second.read().plans) == {1: plan(1, "found.csv").bytes}

    def test_plans_that_follow_each_other_are_asked_for(self, world: CoordinatorWorld) -> None:
        """Create the metadata nodes of consecutive txids."""
        coordinator = _leading(world.open(), 1)

        with pytest.raises(InvariantBroken):
            coordinator.record_plans([plan(1), plan(3)])

        assert dict(coordinator.read().plans) == {}

    def test_plan_above_the_limit_is_refused(self, world: CoordinatorWorld) -> None:
        """A plan above METADATA_BYTES_MAX is an InvariantBroken."""
        coordinator = _leading(world.open(), 1)

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
        coordinator = _leading(session, 1)
        plans = [plan(txid, padding=60_000) for txid in range(1, 21)]
        session.writes = 0

        coordinator.record_plans(plans)

        assert session.writes == 3
        assert dict(coordinator.read().plans) == {p.txid: p.bytes for p in plans}
        assert dict(coordinator.read().attempts) == dict.fromkeys(range(1, 21), 0)

    def test_steady_state_costs_one_proposal_a_call(self, world: CoordinatorWorld) -> None:
        """A wave's metadata and attempt ids are one multi."""
        session = LossySession(world.open())
        coordinator = _leading(session, 1)
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
        coordinator = _leading(world.open(), 1)

        coordinator.restore_plan(plan(5))
        coordinator.restore_plan(plan(5))

        assert dict(coordinator.read().plans) == {5: plan(5).bytes}

    def test_restored_plan_that_differs_halts(self, world: CoordinatorWorld) -> None:
        """R9: other bytes: Halted."""
        coordinator = _leading(world.open(), 1)
        coordinator.record_plans([plan(5, "found.csv")])

        with pytest.raises(Halted) as raised:
            coordinator.restore_plan(plan(5, "mirrored.csv"))

        assert raised.value.txid == 5
        assert PATHS.plan(5) in str(raised.value)
        assert dict(coordinator.read().plans) == {5: plan(5, "found.csv").bytes}

    def test_attempt_ids_never_go_back(self, world: CoordinatorWorld) -> None:
        """Remember the highest attempt id of each uncommitted txid, so that ids never go back."""
        coordinator = _leading(world.open(), 1)
        coordinator.record_attempts({1: 4, 2: 1})
        coordinator.record_attempts({1: 2})
        coordinator.record_plans([plan(1)])

        later = _leading(world.open(), 2)
        later.record_attempts({1: 3})

        assert dict(later.read().attempts) == {1: 4, 2: 1}

    def test_checkpoint_advances_the_mark_and_cleans_behind_it(self, world: CoordinatorWorld) -> None:
        """R8: advance the mark to `last_txid` and delete metadata of txids below `keep_from`."""
        coordinator = _leading(world.open(), 1)
        coordinator.record_plans([plan(n) for n in range(1, 6)])

        coordinator.checkpoint(4, 3)

        view = coordinator.read()
        assert view.mark == 4
        assert sorted(view.plans) == [3, 4, 5]
        assert dict(view.attempts) == {5: 0}

    def test_next_leader_cleans_what_the_one_before_left(self, world: CoordinatorWorld) -> None:
        """R8: metadata is not cleaned by what a leader remembers."""
        _leading(world.open(), 1).record_plans([plan(n) for n in range(1, 6)])
        later = _leading(world.open(), 2)

        later.checkpoint(4, 3)

        assert sorted(later.read().plans) == [3, 4, 5]

    def test_mark_never_goes_back(self, world: CoordinatorWorld) -> None:
        """P7: ZooKeeper keeps a high-water mark; a Postgres that lost commits does not lower it."""
        _leading(world.open(), 1).checkpoint(7, 1)
        later = _leading(world.open(), 2)

        later.checkpoint(5, 1)

        assert later.read().mark == 7

    def test_metadata_of_uncommitted_batches_is_never_cleaned(self, world: CoordinatorWorld) -> None:
        """R8: cleanup of metadata n only if n <= last_durable - K."""
        coordinator = _leading(world.open(), 1)
        coordinator.record_plans([plan(1), plan(2), plan(3)])

        with pytest.raises(InvariantBroken):
            coordinator.checkpoint(1, 3)

        assert sorted(coordinator.read().plans) == [1, 2, 3]

    @pytest.mark.parametrize("applied", [False, True])
    def test_checkpoint_may_be_repeated_after_a_lost_reply(self, world: CoordinatorWorld, applied: bool) -> None:
        """Idempotent; a node that is gone is done."""
        session = LossySession(world.open())
        coordinator = _leading(session, 1)
        coordinator.record_plans([plan(1), plan(2), plan(3)])
        session.lose_multis = [applied]
        with pytest.raises(ZooKeeperUnavailable):
            coordinator.checkpoint(2, 3)

        coordinator.checkpoint(2, 3)

        view = coordinator.read()
        assert (view.mark, sorted(view.plans), dict(view.attempts)) == (2, [3], {3: 0})

    @pytest.mark.parametrize("path", [PATHS.epoch, PATHS.mark, PATHS.attempts, PATHS.plan(1)])
    @pytest.mark.parametrize("data", [b"", b"garbage", b'{"v":99}', b"[1]", b'{"v":1}', b"\xff\xfe"])
    def test_unreadable_node_halts_with_its_path(self, world: CoordinatorWorld, path: str, data: bytes) -> None:
        """Z14: unparsable data never reads as "no state"."""
        session = world.open()
        coordinator = _leading(session, 1)
        coordinator.record_plans([plan(1)])
        session.multi([SetNode(path, data)])

        with pytest.raises(Halted, match=path):
            TopologyCoordinator(session, TOPOLOGY).read()

    @pytest.mark.parametrize("name", ["junk", "7", "0000000000000000000x", "00000000000000000000"])
    def test_junk_below_the_metadata_halts_with_its_path(self, world: CoordinatorWorld, name: str) -> None:
        """Z14: unreadable nodes raise Halted with the path."""
        session = world.open()
        _leading(session, 1)
        session.create(f"{PATHS.plans}/{name}", b"")

        with pytest.raises(Halted, match=f"{PATHS.plans}/{name}"):
            TopologyCoordinator(session, TOPOLOGY).read()

    def test_plan_under_another_txid_halts(self, world: CoordinatorWorld) -> None:
        """R12: identity of a batch."""
        session = world.open()
        _leading(session, 1)
        session.create(PATHS.plan(2), plan(1).bytes)

        with pytest.raises(Halted, match=PATHS.plan(2)):
            TopologyCoordinator(session, TOPOLOGY).read()

    @pytest.mark.parametrize("path", [PATHS.epoch, PATHS.mark, PATHS.attempts])
    def test_half_a_topology_halts(self, world: CoordinatorWorld, path: str) -> None:
        """Z13: ZooKeeper restored in part does not read as new."""
        session = world.open()
        _leading(session, 1)
        session.multi([DeleteNode(path)])

        with pytest.raises(Halted, match=path):
            TopologyCoordinator(session, TOPOLOGY).read()
        with pytest.raises(Halted, match=path):
            _leading(world.open(), 2)

    def test_leader_halts_when_its_nodes_are_removed(self, world: CoordinatorWorld) -> None:
        """R17: halt is loud."""
        session = world.open()
        coordinator = _leading(session, 1)
        session.multi([DeleteNode(PATHS.mark)])

        with pytest.raises(Halted, match=PATHS.mark):
            coordinator.checkpoint(1, 1)

    def test_leader_reads_the_mark_that_is_there(self, world: CoordinatorWorld) -> None:
        """Z8: the new leader's own epoch write precedes its reads on the same session."""
        session = world.open()
        _leading(session, 1)
        session.multi([SetNode(PATHS.mark, encode_mark(3))])
        later = _leading(session, 2)

        later.record_plans([plan(4)])
        later.record_attempts({2: 1})

        assert later.read().mark == 3
        assert dict(later.read().attempts) == {4: 0}


class ElectionContract:
    """Promises of `txtopo.ports.Candidacy`."""

    def test_first_candidate_leads_and_second_names_it(self, world: CoordinatorWorld) -> None:
        """Who stands first, in words (`host pid since`), or None if it is me."""
        first, second = _candidate(world.open(), "one"), _candidate(world.open(), "two")

        assert first.leader() is None
        assert first.wait(0) is True
        assert second.leader() == "one pid 7 since 2026-01-01T00:00:00Z"
        assert second.wait(0) is False

    def test_lookers_see_who_leads(self, world: CoordinatorWorld) -> None:
        """Commands that only look do not join the queue."""
        session = world.open()
        before = current_leader(session, TOPOLOGY)

        _candidate(world.open(), "one")

        assert before is None
        assert current_leader(session, TOPOLOGY) == "one pid 7 since 2026-01-01T00:00:00Z"

    @pytest.mark.parametrize("end", ["close", "expire"])
    def test_second_candidate_takes_over_when_the_leader_dies(
        self, world: CoordinatorWorld, end: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wait until I stand first: the watch tells, not the next look."""
        monkeypatch.setattr(election, "RECHECK_S", 10 * PATIENCE_S)
        leader_session = world.open()
        _candidate(leader_session, "one")
        second_session = WatchedSession(world.open())
        second = _candidate(second_session, "two")
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

    def test_lost_watch_does_not_stop_the_takeover(
        self, world: CoordinatorWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The queue is read again at least every RECHECK_S."""
        monkeypatch.setattr(election, "RECHECK_S", 0.05)
        leader_session = world.open()
        _candidate(leader_session, "one")
        deaf = WatchedSession(world.open(), deaf=True)
        second = _candidate(deaf, "two")
        won = threading.Event()
        waiting = threading.Thread(target=lambda: won.set() if second.wait(PATIENCE_S) else None)
        waiting.start()
        assert deaf.watching.wait(PATIENCE_S)

        leader_session.close()

        assert won.wait(PATIENCE_S / 2)
        waiting.join(PATIENCE_S)

    def test_candidate_with_another_ones_data_halts(self, world: CoordinatorWorld) -> None:
        """Z14: a node that says two things is not believed."""
        session = world.open()
        _candidate(session, "one")
        (name,) = session.children(PATHS.leader)
        session.multi([SetNode(f"{PATHS.leader}/{name}", encode_identity(identity("liar")))])

        with pytest.raises(Halted, match=name):
            current_leader(session, TOPOLOGY)

    def test_third_candidate_waits_when_the_second_leaves(self, world: CoordinatorWorld) -> None:
        """Only the one before is watched; when it leaves that does not make a leader."""
        first = _candidate(world.open(), "one")
        second_session = world.open()
        _candidate(second_session, "two")
        third = _candidate(world.open(), "three")

        second_session.close()

        assert third.wait(0) is False
        assert third.leader() == "one pid 7 since 2026-01-01T00:00:00Z"
        assert first.leader() is None

    @pytest.mark.parametrize("applied", [False, True])
    def test_lost_reply_makes_one_candidate(self, world: CoordinatorWorld, applied: bool) -> None:
        """Z4: a second node (orphan contender) would block the queue."""
        session = LossySession(world.open())
        session.lose_creates = [applied]

        candidate = _candidate(session, "one")

        assert len(session.children(PATHS.leader)) == 1
        assert candidate.wait(0) is True

    def test_entering_again_keeps_the_place(self, world: CoordinatorWorld) -> None:
        """Z4: one node a candidacy."""
        session = world.open()
        candidate = _candidate(session, "one")

        candidate.enter()

        assert len(session.children(PATHS.leader)) == 1

    def test_confirm_writes_to_my_own_node(self, world: CoordinatorWorld) -> None:
        """Version-checked write to my own node right before the fence is claimed."""
        session = world.open()
        candidate = _candidate(session, "one")

        candidate.confirm()
        candidate.confirm()

        (name,) = session.children(PATHS.leader)
        found = session.get(f"{PATHS.leader}/{name}")
        assert found is not None
        assert found[1] == 2

    def test_candidate_whose_node_is_gone_has_lost_the_lead(self, world: CoordinatorWorld) -> None:
        """Z1: so that a woken candidate does not bump the epoch. Raises LeadLost."""
        session, other = world.open(), world.open()
        candidate = _candidate(session, "one")
        (name,) = session.children(PATHS.leader)
        other.multi([DeleteNode(f"{PATHS.leader}/{name}")])

        with pytest.raises(LeadLost):
            candidate.confirm()
        with pytest.raises(LeadLost):
            candidate.leader()
        with pytest.raises(LeadLost):
            candidate.wait(0)

    def test_second_candidate_cannot_confirm(self, world: CoordinatorWorld) -> None:
        """Being second is no lead."""
        _candidate(world.open(), "one")

        with pytest.raises(LeadLost):
            _candidate(world.open(), "two").confirm()

    def test_lost_session_ends_the_wait(self, world: CoordinatorWorld) -> None:
        """Raises ZooKeeperUnavailable when the session is lost."""
        _candidate(world.open(), "one")
        session = world.open()
        second = _candidate(session, "two")
        ended: list[Exception] = []
        waiting = threading.Thread(target=lambda: _note_error(ended, lambda: second.wait(PATIENCE_S)))
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
            _candidate(session, "one")

    def test_unreadable_candidate_halts_with_its_path(self, world: CoordinatorWorld) -> None:
        """Z14."""
        session, other = world.open(), world.open()
        _candidate(session, "one")
        (name,) = session.children(PATHS.leader)
        second = _candidate(other, "two")
        session.multi([SetNode(f"{PATHS.leader}/{name}", b"garbage")])

        with pytest.raises(Halted, match=name):
            second.leader()


def _leading(session: CoordinatorSession, epoch: int) -> TopologyCoordinator:
    coordinator = TopologyCoordinator(session, TOPOLOGY)
    coordinator.write_epoch(lead(epoch), "cluster")
    return coordinator


def _candidate(session: CoordinatorSession, host: str) -> Election:
    candidate = Election(session, TOPOLOGY, identity(host))
    candidate.enter()
    return candidate


def _dump(session: CoordinatorSession, path: str = PATHS.root) -> dict[str, object]:
    """Data and version of every node of the topology."""
    nodes: dict[str, object] = {path: session.get(path)}
    for name in session.children(path):
        nodes |= _dump(session, f"{path}/{name}")
    return nodes


def _expect_unavailable(session: CoordinatorSession) -> None:
    calls: list[Callable[[], object]] = [
        lambda: session.create("/new", b""),
        lambda: session.get("/a"),
        lambda: session.children("/a"),
        lambda: session.multi([CreateNode("/new", b"")]),
        lambda: session.watch("/a", _nothing),
    ]
    for call in calls:
        with pytest.raises(ZooKeeperUnavailable):
            call()


def _note_error(errors: list[Exception], act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as error:
        errors.append(error)


def _nothing() -> None:
    """A watch nobody waits for."""
