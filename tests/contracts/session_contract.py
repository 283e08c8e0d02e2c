"""What every coordinator session must do, as tests to inherit: `class TestMine(CoordinatorSessionContract)` with a
fixture `world`.
"""

from __future__ import annotations

import threading

import pytest

from tests.contracts.coordinator_kit import (
    PATIENCE_S,
    CoordinatorWorld,
    eventually,
    expect_unavailable,
    nothing,
)
from txtopo.core import limits
from txtopo.errors import InvariantBroken, ZooKeeperUnavailable
from txtopo.ports import (
    CheckNode,
    CreateNode,
    DeleteNode,
    NodeExists,
    NodeMissing,
    Operation,
    SessionState,
    SetNode,
    VersionDiffers,
)


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

    def test_many_nodes_are_read_in_the_order_asked_for(self, world: CoordinatorWorld) -> None:
        """What `get` returns of each."""
        session = world.open()
        names = [f"/n{number}" for number in range(150)]
        for name in names[::2]:
            session.create(name, name.encode())

        found = session.get_all(names)

        assert found == [session.get(name) for name in names]
        assert found[:3] == [(b"/n0", 0), None, (b"/n2", 0)]
        session.close()
        with pytest.raises(ZooKeeperUnavailable):
            session.get_all(names)

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
        """Raises NodeExists, NodeMissing, VersionDiffers for the first that failed (Z3: kazoo itself raises nothing)."""  # noqa: E501
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

        expect_unavailable(session)

        assert other.get("/new") is None

    def test_lost_session_is_never_used_again(self, world: CoordinatorWorld) -> None:
        """Nothing queued is ever sent by a later session (Z2)."""
        session, other = world.open(), world.open()
        session.create("/mine", b"", ephemeral=True)

        world.expire(session)

        assert session.state() is SessionState.LOST
        expect_unavailable(session)
        assert other.get("/new") is None
        assert other.get("/mine") is None

    def test_watch_of_a_missing_node_says_so(self, world: CoordinatorWorld) -> None:
        """Is the node there?"""
        assert world.open().watch("/nowhere", nothing) is False

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
