"""A partition whose leader moves while it is read: every message once, and no silence is taken for an end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import PartitionMetadata
from confluent_kafka.cimpl import NewTopic

from tests.kit.fix_kafka import JARS
from tests.kit.fix_postgres import folder_for_services
from tests.kit.kafka_topics import Cluster, coordinator_of, planned, spans
from tests.kit.second_kafka import SecondKafka
from tests.kit.secured_kafka import SecuredKafka
from txtopo import KafkaSpout
from txtopo.core.plan import Metadata
from txtopo.errors import ConfigurationError
from txtopo.local.processes import wait_until
from txtopo.topology.components import SpoutCoordinator, Tally

pytestmark = [pytest.mark.attack, pytest.mark.kafka]

COUNT = 600
SIZE = 100_000
"""More than the client fetches ahead: the leader moves while the broker still has most of it."""


@pytest.fixture
def brokers() -> Iterator[tuple[SecuredKafka, SecondKafka]]:
    """Two brokers of one cluster; the first one is the controller."""
    with folder_for_services() as folder:
        first = SecuredKafka(folder / "1", jars=JARS)
        second = SecondKafka(folder / "2", first, jars=JARS)
        try:
            first.start()
            second.start()
        except ConfigurationError as error:
            pytest.skip(f"no Kafka: {error}")
        try:
            yield first, second
        finally:
            second.crash()
            first.crash()


def test_a_range_is_read_whole_while_its_leader_dies_and_returns(
    brokers: tuple[SecuredKafka, SecondKafka], topic: str
) -> None:
    """The leader dies in mid-range, and the other one leads; then the lead moves back in mid-range, with both alive.
    Planning fails, or finds what the new leader holds: ranges tile.
    """
    first, second = brokers
    cluster = Cluster(first)
    cluster.servers = f"{first.servers},{second.servers}"
    made = NewTopic(topic, 1, replica_assignment=[[2, 1]], config={"max.message.bytes": "1000000"})
    cluster.admin.create_topics([made])[topic].result(60)

    def partition() -> PartitionMetadata | None:
        """None while the broker that answers does not know the topic yet."""
        return cluster.admin.list_topics(topic, timeout=30).topics[topic].partitions.get(0)

    def leader() -> int | None:
        found = partition()
        return None if found is None else int(found.leader)

    def in_sync() -> int:
        found = partition()
        return 0 if found is None else len(found.isrs)

    def send() -> None:
        cluster.send(topic, [b"x" * SIZE] * COUNT)

    assert wait_until(lambda: leader() == 2 and in_sync() == 2, 60)
    send()
    spout = KafkaSpout(topic, "_offset bigint", servers=cluster.servers, value="bytes", max_records=COUNT, max_wait_s=0)
    coordinator = coordinator_of(spout)
    batch = planned(coordinator)
    assert spans(batch) == {f"{topic}/0": (0, COUNT)}

    def moved(to_first: bool) -> None:
        if to_first:
            second.crash()
            assert wait_until(lambda: leader() == 1, 60)
            return
        second.start()
        assert wait_until(lambda: in_sync() == 2, 60)
        cluster.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(60)
        assert wait_until(lambda: leader() == 2, 60)

    assert read_while(spout, batch, lambda: moved(True)) == list(range(COUNT))

    send()
    batch = next_batch(coordinator, batch)
    assert spans(batch) == {f"{topic}/0": (COUNT, 2 * COUNT)}
    assert read_while(spout, batch, lambda: moved(False)) == list(range(COUNT, 2 * COUNT))

    send()
    batch = next_batch(coordinator, batch)
    assert spans(batch) == {f"{topic}/0": (2 * COUNT, 3 * COUNT)}


def read_while(spout: KafkaSpout, batch: Metadata, happen: Callable[[], None]) -> list[int]:
    """Return the offsets of a batch, of which some are read before something happens, and some after it."""
    (part,) = spout.parts(batch)
    emitted = spout.emit_part(batch, part, Tally())
    found = next(emitted).column(0).to_pylist()
    assert len(found) < COUNT
    happen()
    for rows in emitted:
        found += rows.column(0).to_pylist()
    return list(found)


def next_batch(coordinator: SpoutCoordinator, last: Metadata) -> Metadata:
    """Return the next batch; a look while the lead moves may fail, and is repeated as a driver does."""
    found: list[Metadata] = []

    def is_planned() -> bool:
        try:
            if coordinator.is_ready():
                found.append(coordinator.initialize_transaction(2, last))
        except OSError:
            return False
        return bool(found)

    assert wait_until(is_planned, 120)
    return found[0]
