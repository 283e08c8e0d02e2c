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
EOF = KafkaError._PARTITION_EOF


@dataclass
class Fake:
    """A message of the topic t, or an event at an offset."""

    at: int
    code: int | None = None
    number: int = 0
    body: bytes = b"v"

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return self.body

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
    monkeypatch.setattr(reading, "KEPT", KeptConsumers())
    return found


def read(start: int, end: int, **limits: int) -> list[int]:
    planned = {"topic_id": "id", "start": start, "end": end}
    blocks = reading.read_range(SETTINGS, "t/0", planned, "read_committed", **limits)
    return [int(message.offset() or 0) for block in blocks for message in block]


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
    blocks = reading.read_range(SETTINGS, "t/0", planned, "read_committed")
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
    blocks = reading.read_range(SETTINGS, "t/0", planned, "read_committed")
    assert [len(block) for block in blocks] == [6, 6, 6, 2]


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
