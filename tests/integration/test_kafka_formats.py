"""Every format of values and keys on a real broker, from messages to counts and their audit; each odd message is a
rejected row of its own.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer

from tests.kit.audited import run_batches, select
from tests.kit.audits import Audited
from tests.kit.kafka_topics import Cluster, coordinator_of, planned, rows_of
from tests.kit.secured_kafka import SecuredKafka
from txtopo import CountCommitter, KafkaSpout, TopologyBuilder
from txtopo.errors import BatchDataError
from txtopo.formats import Avro, Csv
from txtopo.topology.components import Topology

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
OLD: dict[str, Any] = {"type": "record", "name": "order", "fields": [{"name": "shop", "type": "string"}]}
NEW: dict[str, Any] = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "pieces", "type": ["null", "int"]}, {"name": "shop", "type": "string"}],
}
BUYER: dict[str, Any] = {"type": "record", "name": "buyer", "fields": [{"name": "customer", "type": "long"}]}
Message = tuple[bytes | None, bytes | None]
"""Key and value."""


def avro(schema: Any, record: Any, number: int | None = None) -> bytes:
    """A record, after the number of its schema if it has one."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return (b"" if number is None else b"\0" + number.to_bytes(4, "big")) + stream.getvalue()


@dataclass(frozen=True)
class Case:
    """Messages, how they are read, and what is counted."""

    name: str
    fields: str
    settings: dict[str, Any]
    messages: Sequence[Message]
    counted: Sequence[tuple[Any, ...]]
    """Customer, shop, number and pieces."""
    rejected: Sequence[int]
    """Offsets."""


CASES = (
    Case(
        "csv_json",
        "customer bigint, shop string, pieces int",
        {"value": Csv(header=False, delimiter=";"), "key": "json", "key_fields": ["customer"]},
        (
            (b'{"customer": 1}', b'"a;\nb";2'),
            (b'{"customer": 1}', b'"a;\nb";3\r\n'),
            (None, b"c;1"),
            (b'{"customer": 2}', b'"c;1'),  # A quote is not closed.
            (b'{"customer": 2}', None),
            (b"{", b"c;1"),
            (b'{"customer": 2}', b"c;1\nc;1"),  # Two records.
            (b'{"customer": 2}', b"c;"),
        ),
        ((1, "a;\nb", 2, 5), (2, "c", 1, 0), (None, "c", 1, 1)),
        (3, 4, 5, 6),
    ),
    Case(
        "avro_avro",
        "customer bigint, shop string, pieces int",
        {"value": Avro(schemas={7: OLD, 300: NEW}), "key": Avro(BUYER), "key_fields": ["customer"]},
        (
            (avro(BUYER, {"customer": 1}), avro(OLD, {"shop": "a"}, 7)),
            (avro(BUYER, {"customer": 1}), avro(NEW, {"shop": "a", "pieces": 4}, 300)),
            (avro(BUYER, {"customer": 1}), avro(NEW, {"shop": "a", "pieces": 4}, 300) + b"x"),
            (avro(BUYER, {"customer": 1}), avro(NEW, {"shop": "a", "pieces": 4})),  # Without a number.
            (b"", avro(OLD, {"shop": "a"}, 7)),
            (None, avro(OLD, {"shop": "a"}, 7)),
            (avro(BUYER, {"customer": 1}), None),
        ),
        ((1, "a", 2, 4), (None, "a", 1, 0)),
        (2, 3, 4, 6),
    ),
    Case(
        "avro_csv",
        "customer bigint not null, shop string, pieces int",
        {"value": Avro(NEW), "key": "csv", "key_fields": ["customer"]},
        (
            (b"5", avro(NEW, {"shop": "", "pieces": None})),
            (None, avro(NEW, {"shop": "a", "pieces": 1})),  # No key, and NOT NULL.
            (b"5,6", avro(NEW, {"shop": "a", "pieces": 1})),
            (b"6", avro(NEW, {"shop": "a", "pieces": -1})),
            (b"6", b"\2\2\2\xff"),  # No UTF-8.
        ),
        ((5, "", 1, 0), (6, "a", 1, -1)),
        (1, 2, 4),
    ),
    Case(
        "json_string",
        "customer string, shop string, pieces int",
        {"value": "json", "key": "string", "key_fields": ["customer"]},
        (
            ("ä".encode(), b'{"shop": "a", "pieces": 1}'),
            (b"\xff", b'{"shop": "a", "pieces": 1}'),
            (b"", b'{"pieces": 2}'),
            (None, b'{"shop": "a", "pieces": 3000000000}'),
            (None, b'{"shop": "a", "pieces": 3}'),
        ),
        (("", None, 1, 2), ("ä", "a", 1, 1), (None, "a", 1, 3)),
        (1, 3),
    ),
)


@pytest.fixture(scope="module")
def cluster(kafka_server: SecuredKafka) -> Cluster:
    """The broker that all tests of a run share."""
    return Cluster(kafka_server)


def send(cluster: Cluster, topic: str, messages: Sequence[Message]) -> None:
    producer = Producer({"bootstrap.servers": cluster.servers, "acks": "all", "log_level": 0})
    for key, value in messages:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0


def counting(case: Case, cluster: Cluster, topic: str) -> Topology:
    builder = TopologyBuilder(case.name)
    spout = KafkaSpout(topic, case.fields, servers=cluster.servers, max_records=3, rejected_max=1, **case.settings)
    builder.set_spout("messages", spout)
    committer = CountCommitter(f"{case.name}_totals", ["customer", "shop"], count="n", sums={"pieces": "pieces"})
    builder.set_committer_bolt("totals", committer).shuffle_grouping("messages")
    return builder.build()


def test_values_and_keys_of_each_format_are_counted_and_audited(
    cluster: Cluster, topic: str, audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of three messages; what is odd in a message, in its key or value, takes nothing from its neighbours."""
    monkeypatch.setenv("TXTOPO_KAFKA", cluster.servers)
    monkeypatch.delenv("KAFKA_CONFIG", raising=False)
    for case in CASES:
        name = f"{topic}_{case.name}"
        cluster.make(name)
        send(cluster, name, case.messages)
        run_batches(audited.dsn, counting(case, cluster, name))

        found = select(audited.dsn, f"select customer, shop, n, pieces from {case.name}_totals order by 1, 2")
        assert found == [*case.counted], case.name
        rows = select(
            audited.dsn,
            f"select line, unit from txtopo.rejected_row "
            f"where topology = '{case.name}' and path = '{name}/0' order by 1",
        )
        assert rows == [(offset, "offset") for offset in case.rejected], case.name
        code, report = audited.audit(topology=case.name)
        assert (code, report["verdict"], report["findings"]) == (0, "MATCH", []), case.name


def test_a_number_without_schema_halts_and_is_read_once_its_schema_is_there(cluster: Cluster, topic: str) -> None:
    """Not a rejected row: all messages from here on may have it."""
    cluster.make(topic)
    send(cluster, topic, [(None, avro(OLD, {"shop": "a"}, 7)), (None, avro(NEW, {"shop": "b", "pieces": 1}, 8))])

    def reading(schemas: dict[int, Any]) -> KafkaSpout:
        return KafkaSpout(topic, "shop string", servers=cluster.servers, value=Avro(schemas=schemas), max_wait_s=0)

    old, new = reading({7: OLD}), reading({7: OLD, 8: NEW})
    with pytest.raises(BatchDataError, match="a message has schema 8") as halted:
        rows_of(old, planned(coordinator_of(old)))
    assert halted.value.halts
    assert rows_of(new, planned(coordinator_of(new))) == [("a",), ("b",)]
