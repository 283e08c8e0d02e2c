"""Drivers over a real Kafka topic that are killed, and a broker that is: every message is counted once."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.kit import kafka_driver
from tests.kit.drivers import World
from tests.kit.kafka_topics import Cluster
from tests.kit.secured_kafka import SecuredKafka
from txtopo.core.crash_points import CrashPoint
from txtopo.local.processes import wait_until

ROUNDS = (
    (CrashPoint.METADATA_WRITTEN, CrashPoint.APPLIED),
    (CrashPoint.PROCESSED, CrashPoint.COMMITTED),
)
"""Deaths before a driver that lives: no batch can run at three in a row, after which it would be left out."""


@pytest.mark.attack
@pytest.mark.kafka
def test_messages_are_counted_once_when_drivers_and_the_broker_die(
    world: World, kafka_server: SecuredKafka, topic: str
) -> None:
    """New messages come between any two deaths, some of them aborted; the group has what was committed in the end."""
    cluster = Cluster(kafka_server)
    cluster.make(topic, 2)
    sent: Counter[str] = Counter()

    def send() -> None:
        aborted = cluster.transaction(topic, f"aborted-{len(world.started)}")
        aborted.produce(topic, b"aborted", partition=0)
        aborted.flush(30)
        aborted.abort_transaction(30)
        for partition in (0, 1):
            texts = [f"{partition}-{number % 2}" for number in range(3)]
            cluster.send(topic, [text.encode() for text in texts], partition)
            sent.update(texts)
        assert wait_until(lambda: cluster.end(topic) is not None, 60)  # The marker follows its answer.

    def drive(failpoints: str = "") -> int:
        send()
        driver = world.start(
            failpoints=failpoints,
            module=("tests.kit.kafka_driver",),
            TXTOPO_ZOOKEEPER_SESSION_S="1",
            TXTOPO_RUN_TXIDS_MAX="1",
            DRIVER_SERVERS=cluster.servers,
            DRIVER_TOPIC=topic,
        )
        code = driver.wait()
        if code not in (0, -9):
            raise AssertionError(driver.output())
        return code

    def counted() -> dict[str, int]:
        return {str(text): int(n) for text, n in world.query("select text, n from message_totals")}

    for points in ROUNDS:
        for point in points:
            assert drive(f"{point.value}=exit@1") == -9
            world.wait_for_end_of_sessions()
        kafka_server.crash()
        kafka_server.start()
        assert drive() == 0
        assert counted() == sent

    world.check_ledger(world.last_txid())
    group = f"{topic}-{kafka_driver.GROUP}"
    ends = {f"{topic}/{partition}": cluster.end(topic, partition) for partition in (0, 1)}
    assert wait_until(lambda: cluster.committed(group) == ends, 30)
