"""How a range of Kafka offsets is read with kept consumers: what an earlier range left there proves nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from txtopo.errors import BatchDataError
from txtopo.spouts.kafka import consumers, reading
from txtopo.spouts.kafka.client_settings import ClientSettings
from txtopo.spouts.kafka.consumers import KEPT_MAX, KEPT_S, KeptConsumers

SETTINGS = ClientSettings(servers="127.0.0.1:1")
ASKED = reading.Asked(isolation="read_committed")
EOF = KafkaError._PARTITION_EOF


@dataclass
class Fake:
    """A message of the topic t, or an event at an offset."""

    at: int
    code: int | None = None
    number: int = 0
    body: bytes = b"v"
    name: bytes | None = None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return self.body

    def key(self) -> bytes | None:
        return self.name

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def __len__(self) -> int:
        return len(self.body)


@dataclass(eq=False)
class FakeConsumer:
    """Delivers what is left of an earlier range, then a log with holes, and says where the log ends."""

    log: Sequence[int]
    end: int
    left_over: list[Fake] = field(default_factory=list)
    place: int = -1
    is_closed: bool = False
    is_at_end: bool = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.place, self.is_at_end = partitions[0].offset, False

    def unassign(self) -> None:
        self.place = -1

    def close(self) -> None:
        self.is_closed = True

    def consume(self, number: int, timeout: float) -> list[Fake]:
        found, self.left_over = self.left_over[:number], self.left_over[number:]
        if found:
            return found
        here = [offset for offset in self.log if offset >= self.place][:number]
        if here:
            self.place = here[-1] + 1
            return [Fake(offset) for offset in here]
        self.place = max(self.place, self.end)
        if self.is_at_end:
            return []
        self.is_at_end = True
        return [Fake(self.end, EOF)]

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        (asked,) = partitions
        return [TopicPartition(asked.topic, asked.partition, self.place)]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeConsumer]:
    """Consumers that the process makes of a log of the offsets 0 to 99, with the topic that was planned."""
    return fakes(monkeypatch, range(100), 100)


def fakes(monkeypatch: pytest.MonkeyPatch, log: Sequence[int], end: int) -> list[FakeConsumer]:
    found: list[FakeConsumer] = []

    def make(settings: dict[str, Any]) -> FakeConsumer:
        found.append(FakeConsumer(log, end))
        return found[-1]

    monkeypatch.setattr(consumers, "Consumer", make)
    monkeypatch.setattr(reading, "_check_topic", lambda *_: None)
    monkeypatch.setattr(reading, "_check_compacted", lambda *_: None)
    monkeypatch.setattr(reading, "KEPT", KeptConsumers())
    return found


def read(start: int, end: int, **limits: Any) -> list[int]:
    planned = {"topic_id": "id", "start": start, "end": end}
    blocks = reading.read_range(SETTINGS, "t/0", planned, reading.Asked(isolation="read_committed", **limits))
    found = [message for block in blocks for message in block]
    assert not any(message.error() for message in found)
    return [int(message.offset() or 0) for message in found]


def test_a_consumer_is_kept_for_the_next_range(made: list[FakeConsumer]) -> None:
    """One consumer reads range after range, also one that was read before."""
    assert [read(start, start + 10) for start in (0, 10, 20, 0)] == [
        list(range(start, start + 10)) for start in (0, 10, 20, 0)
    ]
    assert len(made) == 1
    assert made[0].place == -1  # It fetches nothing while nobody reads with it.


@pytest.mark.parametrize(
    "left_over",
    [
        pytest.param([Fake(50)], id="a message after the end"),
        pytest.param([Fake(9)], id="a message before the start"),
        pytest.param([Fake(15)], id="a message of the middle"),
        pytest.param([Fake(10, number=1)], id="another partition"),
        pytest.param([Fake(100, EOF)], id="the end of the partition"),
        pytest.param([Fake(10), Fake(50)], id="after the first message"),
        pytest.param([Fake(10, KafkaError._TRANSPORT)], id="an error"),
    ],
)
def test_what_an_earlier_range_left_is_neither_a_message_nor_a_proof(
    made: list[FakeConsumer], left_over: list[Fake]
) -> None:
    """A kept consumer is believed for the very next offset alone; then a new one reads on."""
    read(0, 10)
    made[0].left_over = left_over

    assert read(10, 20) == list(range(10, 20))
    assert made[0].is_closed
    assert len(made) == 2


@given(st.sets(st.integers(0, 29)), st.integers(0, 29), st.integers(1, 30))
def test_holes_are_passed_over_by_a_new_consumer(there: set[int], start: int, length: int) -> None:
    """Aborted messages, control records, offsets that compaction removed: the range has all others."""
    end = min(30, start + length)
    with pytest.MonkeyPatch.context() as patch:
        fakes(patch, sorted(there | {30}), 31)
        read(30, 31)
        assert read(start, end) == sorted(offset for offset in there if start <= offset < end)


def test_a_consumer_that_did_not_finish_is_closed(made: list[FakeConsumer], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what it still delivers."""
    monkeypatch.setattr(reading, "BLOCK_MESSAGES", 4)
    planned = {"topic_id": "id", "start": 0, "end": 10}
    blocks = reading.read_range(SETTINGS, "t/0", planned, ASKED)
    next(iter(blocks))
    blocks.close()  # type: ignore[attr-defined]
    assert made[0].is_closed


def test_values_have_at_most_so_many_bytes(made: list[FakeConsumer]) -> None:
    """The limit is reached at an offset, which is named; a range at the limit is read."""
    assert len(read(0, 10, bytes_max=10)) == 10
    with pytest.raises(BatchDataError, match=r"t/0: the values of offsets 0 to 9 have 10 bytes.*lower max_records"):
        read(0, 12, bytes_max=9)


def test_a_block_has_a_limited_number_of_bytes(made: list[FakeConsumer], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the client has is not gathered without end: a task holds one block."""
    monkeypatch.setattr(reading, "BLOCK_BYTES", 5)
    monkeypatch.setattr(FakeConsumer, "consume", by_threes(FakeConsumer.consume))
    planned = {"topic_id": "id", "start": 0, "end": 20}
    blocks = reading.read_range(SETTINGS, "t/0", planned, ASKED)
    assert [len(block) for block in blocks] == [6, 6, 6, 2]


def test_an_empty_range_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch has one for each partition that is empty, and there may be thousands."""
    monkeypatch.setattr(reading, "_check_topic", lambda *_: pytest.fail("asked"))
    assert read(5, 5) == []


def test_keys_count_as_bytes_of_a_block(made: list[FakeConsumer], monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages with small values and large keys fill the memory of a task, too."""
    monkeypatch.setattr(reading, "BLOCK_BYTES", 30)
    consumer: Any = FakeConsumer(range(9), 9)
    consumer.consume = lambda number, timeout: [Fake(0, body=b"", name=b"k" * 10)]
    assert len(reading._some(consumer, 100)) == 3


def test_gaps_are_looked_into_unless_the_spout_is_for_compacted_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic may be compacted since its last batch was planned: then messages of a planned range are missing."""
    fakes(monkeypatch, [0, 1, 2, 5, 6], 7)
    looked: list[str] = []
    monkeypatch.setattr(reading, "_check_compacted", lambda settings, name: looked.append(name))
    assert read(0, 3) == [0, 1, 2]
    assert looked == []
    assert read(3, 5) == []
    assert read(0, 7) == [0, 1, 2, 5, 6]
    assert looked == ["t/0", "t/0"]
    assert read(0, 7, may_be_compacted=True) == [0, 1, 2, 5, 6]
    assert looked == ["t/0", "t/0"]


def test_a_right_on_the_group_that_is_missing_stops_nothing(made: list[FakeConsumer]) -> None:
    """A client must name a group, and asks for it; nothing is read by it. Another right that is missing is named."""
    read(0, 10)
    refused = [Fake(10, KafkaError.GROUP_AUTHORIZATION_FAILED)]
    made[0].left_over = list(refused)
    assert read(10, 20) == list(range(10, 20))
    assert len(made) == 1
    made[0].left_over = [Fake(99)]
    made[0].log = ()
    new = FakeConsumer(range(100), 100, list(refused))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumers, "Consumer", lambda settings: new)
        assert read(20, 30) == list(range(20, 30))
        new.left_over = [Fake(30, KafkaError.TOPIC_AUTHORIZATION_FAILED)]
        patch.setattr(reading, "KEPT", KeptConsumers())
        with pytest.raises(PermissionError, match="t/0"):
            read(30, 40)


def by_threes(consume: Callable[..., list[Fake]]) -> Callable[..., list[Fake]]:
    return lambda self, number, timeout: consume(self, min(3, number), timeout)


def test_another_topic_password_or_isolation_has_its_own_consumer(
    made: list[FakeConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a topic that was made again: its id is another one."""
    kept = KeptConsumers()

    def lent(*, fresh: bool = False, isolation: str = "read_committed", topic: str = "id", length: int = 9) -> object:
        found = kept.take(SETTINGS, isolation, topic, length, fresh=fresh)
        kept.give_back(found)
        return found.consumer

    first = lent()
    assert lent() is first
    assert lent(length=100) is first
    others = [lent(topic="other"), lent(isolation="read_uncommitted"), lent(length=101), lent(fresh=True)]
    assert first not in others
    assert [one.is_closed for one in made].count(True) == len(made) - KEPT_MAX
    monkeypatch.setattr(ClientSettings, "read", lambda _: {"sasl.password": "new"})
    before = list(made)
    assert lent() not in before
    kept.close()
    assert all(one.is_closed for one in made)


def test_a_consumer_that_was_idle_or_belongs_to_the_parent_is_not_used(
    made: list[FakeConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections may be dead; and after a fork its threads are elsewhere."""
    kept = KeptConsumers()

    def take() -> consumers.Lent:
        return kept.take(SETTINGS, "read_committed", "id", 9, fresh=False)

    lent = take()
    kept.give_back(lent)
    lent.used_s -= KEPT_S + 1
    second = take()
    assert made[0].is_closed
    kept.give_back(second)
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    third = take()
    assert third is not second
    assert not made[1].is_closed
