"""What happens to topics while they are read: settings change, rights are missing, messages are too large or expire.
Each stops with words, or is counted rightly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.kit.kafka_topics import Cluster, coordinator_of, planned, rows_of, spans
from tests.kit.secured_kafka import SecuredKafka
from txtopo import KafkaSpout
from txtopo.errors import BatchDataError
from txtopo.local.processes import wait_until
from txtopo.spouts.kafka import reading
from txtopo.topology.components import Tally

PASSWORD = "for tests alone"


@pytest.fixture(scope="module")
def cluster(kafka_server: SecuredKafka) -> Cluster:
    """The broker that all tests of a run share."""
    return Cluster(kafka_server)


def numbers(cluster: Cluster, topic: str, **settings: Any) -> KafkaSpout:
    """Reads each message as text with its offset."""
    settings = {"value": "string", "max_wait_s": 0, "servers": cluster.servers, **settings}
    return KafkaSpout(topic, "value string, _offset bigint", **settings)


def texts(*values: int) -> list[bytes | None]:
    return [b"%d" % value for value in values]


def test_a_topic_that_is_compacted_after_it_was_planned_loses_nothing_silently(cluster: Cluster, topic: str) -> None:
    """The cleaner removed messages of a planned range: its batch fails, and the opaque kind reads what is left."""
    cluster.make(topic)
    cluster.send(topic, texts(0, 1, 2), key=b"k")
    cluster.send(topic, texts(3), key=b"other")
    spout = numbers(cluster, topic)
    batch = planned(coordinator_of(spout))
    assert len(rows_of(spout, batch)) == 4
    settings = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "100",
        "max.compaction.lag.ms": "100",
    }
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    cluster.admin.incremental_alter_configs([resource])[resource].result(30)
    opaque = numbers(cluster, topic, kind="opaque")

    def is_cleaned() -> bool:
        cluster.send(topic, texts(9), key=b"later")  # A segment is closed when another message comes.
        return len(rows_of(opaque, batch)) < 4

    assert wait_until(is_cleaned, 120)
    with pytest.raises(BatchDataError, match=f"topic {topic} is compacted.*kind='opaque'"):
        rows_of(spout, batch)
    with pytest.raises(BatchDataError, match=f"topic {topic} is compacted"):
        coordinator_of(spout).is_ready()
    assert rows_of(opaque, batch) == [("2", 2), ("3", 3)]


def test_all_messages_are_read_where_transactions_do_not_matter(cluster: Cluster, topic: str) -> None:
    """Those of open and aborted ones, too; the markers between them are no messages."""
    cluster.make(topic)
    aborted = cluster.transaction(topic, "aborted")
    aborted.produce(topic, b"0")
    aborted.flush(30)
    aborted.abort_transaction(30)
    assert wait_until(lambda: cluster.end(topic) == 2, 30)
    open_one = cluster.transaction(topic, "open")
    open_one.produce(topic, b"2")
    open_one.flush(30)
    spout = numbers(cluster, topic, isolation="read_uncommitted")
    coordinator = coordinator_of(spout)
    batch = planned(coordinator)
    assert rows_of(spout, batch) == [("0", 0), ("2", 2)]
    open_one.abort_transaction(30)
    assert wait_until(coordinator.is_ready, 30)
    assert rows_of(spout, planned(coordinator, batch, 2)) == []
    assert rows_of(spout, batch) == [("0", 0), ("2", 2)]


def test_a_message_that_the_client_does_not_take_is_named(
    cluster: Cluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before brokers count as silent; with the setting that the words name, it is read."""
    monkeypatch.setattr(reading, "KEPT_STALLED_S", 0.5)
    cluster.make(topic)
    cluster.send(topic, [b"small", b"x" * 500_000, b"small"])
    file = tmp_path / "kafka.properties"
    small = "message.max.bytes=90000\nfetch.max.bytes=100000\nreceive.message.max.bytes=150000\n"
    file.write_text(f"bootstrap.servers={cluster.servers}\n{small}")
    spout = numbers(cluster, topic, servers=None, config=file)
    batch = planned(coordinator_of(spout))

    with pytest.raises(BatchDataError, match=r"a message is larger than receive\.message\.max\.bytes"):
        rows_of(spout, batch)
    file.write_text(f"bootstrap.servers={cluster.servers}\n")
    assert [offset for _, offset in rows_of(spout, batch)] == [0, 1, 2]


def test_rights_on_topics_are_needed_and_none_on_groups(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """A client must name a group, of which it reads nothing; a right on the topic that is missing is named."""
    server = cluster.server
    server.add_user(PASSWORD)
    file = tmp_path / "kafka.properties"
    file.write_text(server.properties(PASSWORD))
    cluster.make(topic)
    cluster.send(topic, texts(0, 1))
    spout = numbers(cluster, topic, servers=None, config=file)
    coordinator = coordinator_of(spout)

    def is_planned() -> bool:
        try:
            return coordinator.is_ready()
        except OSError:
            return False

    with server.only_for_others(ResourceType.GROUP, "txtopo"):
        assert wait_until(is_planned, 60)  # The broker knows the user a moment after its answer.
        batch = planned(coordinator)
        for _ in range(3):
            assert rows_of(spout, batch) == [("0", 0), ("1", 1)]
    with server.only_for_others(ResourceType.TOPIC, topic):
        assert wait_until(lambda: topic in refused(lambda: coordinator_of(spout).is_ready()), 60)
        assert topic in refused(lambda: rows_of(spout, batch))


def test_a_topic_that_is_made_again_while_it_is_read_fails_the_attempt(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has fetched messages of the first one and may go on with those of the second; none of them counts."""
    monkeypatch.setattr(reading, "BLOCK_MESSAGES", 5)
    cluster.make(topic)
    cluster.send(topic, texts(*range(20)))
    spout = numbers(cluster, topic)
    batch = planned(coordinator_of(spout))
    (part,) = spout.parts(batch)
    emitted = spout.emit_part(batch, part, Tally())
    assert next(emitted).num_rows == 5
    cluster.remove(topic)
    cluster.make(topic)
    cluster.send(topic, texts(*range(20)))
    with pytest.raises(BatchDataError, match="was deleted and made again"):
        list(emitted)


def refused(act: Any) -> str:
    """The words of a refusal; empty without one."""
    try:
        act()
    except PermissionError as error:
        return str(error)
    return ""


def test_what_expires_of_a_planned_range_of_the_opaque_kind_is_said(cluster: Cluster, topic: str) -> None:
    """Its plan is discarded; the next one has what is left, and what is lost, also of a partition that was empty."""
    cluster.make(topic, 2)
    cluster.send(topic, texts(0, 1, 2, 3))
    said: list[str] = []
    spout = numbers(cluster, topic, kind="opaque", max_records=2)
    coordinator = cast(Any, coordinator_of(spout, said))
    first = planned(coordinator)
    assert spans(first) == {f"{topic}/0": (0, 2), f"{topic}/1": (0, 0)}
    assert rows_of(spout, first) == [("0", 0), ("1", 1)]
    second = planned(coordinator, first, 2)
    cluster.expire(topic, 3)
    cluster.send(topic, texts(7, 8, 9), 1)
    cluster.expire(topic, 1, 1)
    with pytest.raises(BatchDataError, match="planned offsets 2 to 3 are not all there any more"):
        rows_of(spout, second)
    again = coordinator.initialize_again(2, first, second)
    assert rows_of(spout, again) == [("3", 3), ("8", 1)]
    assert [entry["range"]["lost"] for entry in again["partitions"]] == [[2, 3], [0, 1]]
    assert [line.partition(":")[0] for line in said] == [f"{topic}/0", f"{topic}/1"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_messages_are_read(cluster: Cluster, topic: str, codec: str) -> None:
    """With each codec that brokers know; the client is built with all of them."""
    cluster.make(topic, compression_type=codec)
    cluster.send(topic, texts(*range(50)), headers=[("none", None), ("", b"")], timestamp=-1)
    spout = KafkaSpout(
        topic, "v string, _headers string, _timestamp timestamp", servers=cluster.servers, value="string", max_wait_s=0
    )
    rows = rows_of(spout, planned(coordinator_of(spout)))
    assert rows == [(str(number), '[["none", null], ["", ""]]', None) for number in range(50)]
