"""What the turn of a batch may hold and how long it may take, with bolts downstream of committers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.committers.test_downstream_of_committers import Basic, Batch, Keep, Passing, Words, kept, ran
from txtopo import TopologyBuilder
from txtopo.bolts import (
    BasicBolt,
    CommitCollector,
    CommitTransaction,
    Tuple,
)
from txtopo.committers.protocol import downstream
from txtopo.core import limits
from txtopo.core.values import TransactionAttempt
from txtopo.errors import Halted, PostgresUnavailable


class Many(Passing):
    """Emits far more than it got."""

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        for n in range(11):
            collector.emit(["a", n])


class Times(BasicBolt):
    """Emits each tuple eleven times."""

    outputs = ["word string", "n bigint"]

    def execute(self, tup: Tuple, collector: Any) -> None:
        for _ in range(11):
            collector.emit(tup.values)


@pytest.mark.parametrize(
    ("first", "bolt", "who", "limit"),
    [(Many, Basic, "first", 10), (Passing, Times, "bolt", 10), (Passing, Basic, "bolt", 9)],
    ids=["committer", "bolt", "together"],
)
def test_more_tuples_than_a_turn_may_have_fail_the_batch(
    monkeypatch: pytest.MonkeyPatch, first: type[Any], bolt: type[Any], who: str, limit: int
) -> None:
    """The driver holds them, and a lock: the limit is told, and who passed it."""
    monkeypatch.setattr(limits, "TURN_TUPLES_MAX", limit)

    def build(builder: TopologyBuilder) -> None:
        builder.set_committer_bolt("first", first()).shuffle_grouping("words")
        builder.set_bolt("bolt", bolt()).shuffle_grouping("first")
        builder.set_committer_bolt("keep", Keep()).shuffle_grouping("bolt")

    with pytest.raises(
        Halted,
        match=f"failed in {who}: .*{who}: in the commit of a batch .* may emit {limit} tuples together, and batch 1 "
        f"has more",
    ):
        ran(build, capture=False)


class Long(BasicBolt):
    """Emits far longer words than it gets."""

    outputs = ["word string", "n bigint"]

    def execute(self, tup: Tuple, collector: Any) -> None:
        collector.emit(["x" * 2_000, tup["n"]])


class LongFirst(Passing):
    """A committer that does."""

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        collector.emit(["x" * 2_000, 1])


@pytest.mark.parametrize(("first", "bolt", "who"), [(LongFirst, Basic, "first"), (Passing, Long, "keep")])
def test_more_bytes_than_a_turn_may_have_fail_the_batch(
    monkeypatch: pytest.MonkeyPatch, first: type[Any], bolt: type[Any], who: str
) -> None:
    """The driver holds what committers emit, and the results of those downstream: whoever's it is."""
    monkeypatch.setattr(limits, "RESULTS_BYTES_MAX", 1_500)

    def build(builder: TopologyBuilder) -> None:
        builder.set_committer_bolt("first", first()).shuffle_grouping("words")
        builder.set_bolt("bolt", bolt()).shuffle_grouping("first")
        builder.set_committer_bolt("keep", Keep()).shuffle_grouping("bolt")

    with pytest.raises(Halted, match=f"{who}: its tuples take .* MiB in the commit of a batch"):
        ran(build, capture=False)


@pytest.mark.parametrize("order", [1, -1])
def test_what_a_committer_emits_goes_on_in_one_order(order: int) -> None:
    """A bolt that depends on the order of its tuples gives the same in each attempt."""
    builder = TopologyBuilder("downstream")
    builder.set_spout("words", Words())
    builder.set_committer_bolt("first", Passing()).shuffle_grouping("words")
    builder.set_bolt("bolt", Basic()).shuffle_grouping("first")
    builder.set_committer_bolt("keep", Keep()).shuffle_grouping("bolt")
    topology = builder.build()
    run = downstream.CommitPhases(topology, TransactionAttempt(1, 0), [], lambda: None)
    (first,) = (one for one in topology.committers if one.name == "first")
    emitted = run.collector(first)
    assert emitted is not None
    for values in [("b", 1), ("a", 2), (None, 3), ("a", 1)][::order]:
        emitted.emit(values)

    run.applied(first, emitted)

    assert [tuple(row.values()) for row in run._given["first", "default"].to_pylist()] == [
        ("a", 1),
        ("a", 2),
        ("b", 1),
        (None, 3),
    ]


class Clock:
    """Seconds that pass by a call of user code."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


CLOCK = Clock()


class Slow(Basic):
    """Each tuple takes three seconds."""

    def execute(self, tup: Tuple, collector: Any) -> None:
        CLOCK.now += 3
        super().execute(tup, collector)


class Slower(Batch):
    """The end of its batch takes six."""

    def finish_batch(self) -> None:
        CLOCK.now += 6
        super().finish_batch()


class Server:
    """A database that ends a transaction that waits for five seconds."""

    def __init__(self) -> None:
        self.told: list[float] = [0.0]

    def keep_alive(self, *_: Any) -> None:
        if CLOCK.now - self.told[-1] >= 5:
            raise PostgresUnavailable("terminating connection due to idle-in-transaction timeout")
        self.told.append(CLOCK.now)


@pytest.mark.parametrize(
    ("bolt", "failed"),
    [(Slow, None), (Slower, "bolt let the database transaction of the batch wait for 6.0 s in one call")],
)
def test_the_server_is_told_that_a_turn_is_alive(
    monkeypatch: pytest.MonkeyPatch, bolt: type[Any], failed: str | None
) -> None:
    """P6: twelve seconds of work in pieces of three are a healthy batch; one call that takes longer than the server
    waits fails the batch by name.
    """
    from txtopo.committers.memory.memory_session import MemoryLedgerSession

    server = Server()
    CLOCK.now = 0.0
    monkeypatch.setattr(downstream, "time", CLOCK)
    monkeypatch.setattr(downstream, "ROWS_PER_MESSAGE", 1)
    monkeypatch.setattr(MemoryLedgerSession, "keep_alive", server.keep_alive)

    def build(builder: TopologyBuilder) -> None:
        builder.set_committer_bolt("first", Passing()).shuffle_grouping("words")
        builder.set_bolt("bolt", bolt()).shuffle_grouping("first")
        builder.set_committer_bolt("keep", Keep()).shuffle_grouping("bolt")

    if failed is None:
        harness = ran(build)
        assert len(kept(harness, 1)) == 4
        assert server.told[:5] == [0, 3, 6, 9, 12]
    else:
        with pytest.raises(Halted, match=failed):
            ran(build)


class Quick(Basic):
    """Each tuple takes a second and a half."""

    def execute(self, tup: Tuple, collector: Any) -> None:
        CLOCK.now += 1.5
        super().execute(tup, collector)


def test_a_server_that_goes_away_while_a_turn_is_at_work_is_no_fault_of_the_bolt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """W1: six seconds into the commit, and one and a half after it was told: trouble of the store, which the batch
    outlives without a failed attempt.
    """
    from txtopo.committers.memory.memory_session import MemoryLedgerSession

    calls: list[float] = []

    def keep_alive(session: Any) -> None:
        calls.append(CLOCK.now)
        if len(calls) == 4:
            raise PostgresUnavailable("terminating connection due to administrator command")

    CLOCK.now = 0.0
    monkeypatch.setattr(downstream, "time", CLOCK)
    monkeypatch.setattr(downstream, "ROWS_PER_MESSAGE", 1)
    monkeypatch.setattr(MemoryLedgerSession, "keep_alive", keep_alive)

    def build(builder: TopologyBuilder) -> None:
        builder.set_committer_bolt("first", Passing()).shuffle_grouping("words")
        builder.set_bolt("bolt", Quick()).shuffle_grouping("first")
        builder.set_committer_bolt("keep", Keep()).shuffle_grouping("bolt")

    harness = ran(build)

    assert calls[3] == 6.0
    assert [(batch.state, batch.attempt) for batch in harness.batches][:1] == [("applied", 0)]
