"""Topics of a test: made, filled, read by a KafkaSpout without a driver."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from tests.kit.secured_kafka import SecuredKafka
from txtopo.core.plan import Metadata
from txtopo.spouts.kafka_spout import KafkaSpout
from txtopo.topology.components import SpoutContext, SpoutCoordinator, Tally

WAIT_S = 30.0


class Cluster:
    """A broker and clients of it."""

    def __init__(self, server: SecuredKafka) -> None:
        self.server = server
        self.servers = server.servers
        self.admin = AdminClient({"bootstrap.servers": server.servers, "log_level": 0})

    def make(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Make a topic."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(WAIT_S)

    def remove(self, topic: str) -> None:
        """Delete a topic."""
        self.admin.delete_topics([topic])[topic].result(WAIT_S)

    def send(self, topic: str, values: Sequence[bytes | None], partition: int = 0, **more: Any) -> None:
        """Send messages in one go, until the broker has confirmed them."""
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "log_level": 0})
        for value in values:
            producer.produce(topic, value, partition=partition, **more)
        assert producer.flush(WAIT_S) == 0

    def transaction(self, topic: str, name: str) -> Producer:
        """Return a producer with an open transaction."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": f"{topic}-{name}", "log_level": 0})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        return producer

    def end(self, topic: str, partition: int = 0) -> int | None:
        """Return the offset up to which no transaction is open; None while one is, and while nobody knows who leads the
        partition, as after a restart of the broker.
        """
        place = TopicPartition(topic, partition)
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})  # one that knows of no earlier leader
        ends = []
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
            answers = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)
            try:
                ends.append(int(answers[place].result(WAIT_S).offset))
            except KafkaException as error:
                if error.args[0].code() not in (KafkaError.FENCED_LEADER_EPOCH, KafkaError._NOENT):
                    raise
                return None
        committed, written = ends
        return committed if committed == written else None

    def committed(self, group: str) -> dict[str, int]:
        """Return the offsets of a consumer group by partition."""
        asked = [ConsumerGroupTopicPartitions(group)]
        found = self.admin.list_consumer_group_offsets(asked)[group].result(WAIT_S).topic_partitions
        return {f"{place.topic}/{place.partition}": int(place.offset) for place in found}

    def expire(self, topic: str, first: int, partition: int = 0) -> None:
        """Delete everything below an offset, as retention does."""
        answers = self.admin.delete_records([TopicPartition(topic, partition, first)])
        next(iter(answers.values())).result(WAIT_S)


def coordinator_of(spout: KafkaSpout, said: list[str] | None = None, *, once: bool = False) -> SpoutCoordinator:
    """Return the driver half of a spout."""
    context = SpoutContext(
        topology="t",
        spout="s",
        consumed={},
        once=once,
        monotonic=time.monotonic,
        say=(said if said is not None else []).append,
    )
    return spout.open_coordinator(context)


def planned(coordinator: SpoutCoordinator, previous: Metadata | None = None, txid: int = 1) -> Metadata:
    """Return the metadata of the next batch, which must be there."""
    assert coordinator.is_ready()
    return coordinator.initialize_transaction(txid, previous)


def spans(metadata: Metadata) -> dict[str, tuple[int, int]]:
    """Return the ranges of a batch by partition."""
    entries = zip(metadata["names"], metadata["partitions"], strict=True)
    return {name: (entry["range"]["start"], entry["range"]["end"]) for name, entry in entries if "range" in entry}


def rows_of(spout: KafkaSpout, metadata: Metadata, tally: Tally | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of all parts of a batch."""
    found: list[tuple[Any, ...]] = []
    for part in spout.parts(metadata):
        for batch in spout.emit_part(metadata, part, tally or Tally()):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found
