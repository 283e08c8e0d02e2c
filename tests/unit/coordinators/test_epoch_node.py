"""The epoch node as the fence of ZooKeeper: nothing is written without it, and it is set by compare-and-set (R2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from txtopo.coordinators.memory import MemorySession, MemoryZooKeeper
from txtopo.coordinators.topology_nodes import TopologyCoordinator
from txtopo.core.values import Lead
from txtopo.errors import Fenced, InvariantBroken
from txtopo.ports import Operation

INCARNATION = "11111111-1111-4111-8111-111111111111"


def lead(epoch: int) -> Lead:
    return Lead(topology="t", incarnation=INCARNATION, epoch=epoch, owner_nonce=f"n{epoch}", code_hash=b"c")


def coordinator_on(zookeeper: MemoryZooKeeper) -> TopologyCoordinator:
    return TopologyCoordinator(MemorySession(zookeeper), "t")


class SlowSession(MemorySession):
    """Something happens after it has looked and before it writes, once."""

    between: Callable[[], None] | None = None

    def multi(self, operations: Sequence[Operation]) -> None:
        act, self.between = self.between, None
        if act is not None:
            act()
        super().multi(operations)


def test_an_epoch_written_between_look_and_write_is_not_overwritten() -> None:
    """R2: compare-and-set. A driver that paused in between must not put the epoch back and let itself write."""
    zookeeper = MemoryZooKeeper()
    coordinator_on(zookeeper).write_epoch(lead(1), "cluster")
    session = SlowSession(zookeeper)
    session.between = lambda: coordinator_on(zookeeper).write_epoch(lead(3), "cluster")

    with pytest.raises(Fenced):
        TopologyCoordinator(session, "t").write_epoch(lead(2), "cluster")

    assert coordinator_on(zookeeper).read().epoch == 3


@pytest.mark.parametrize(
    "write",
    [lambda coordinator: coordinator.record_attempts({1: 1}), lambda coordinator: coordinator.checkpoint(1, 1)],
    ids=["record_attempts", "checkpoint"],
)
def test_who_has_not_written_the_epoch_writes_nothing(write: Callable[[TopologyCoordinator], None]) -> None:
    """R2: without its own epoch write a driver knows no version to check, and would pass by every other leader."""
    zookeeper = MemoryZooKeeper()
    coordinator_on(zookeeper).write_epoch(lead(1), "cluster")
    before = coordinator_on(zookeeper).read()

    with pytest.raises(InvariantBroken):
        write(coordinator_on(zookeeper))

    assert coordinator_on(zookeeper).read() == before
