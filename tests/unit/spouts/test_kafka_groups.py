"""Offsets that a consumer group is told: in the background, and whatever fails there stops nothing."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from txtopo.spouts.kafka import group_offsets
from txtopo.spouts.kafka.group_offsets import GroupOffsets


class Brokers:
    """Notes what is asked; a test answers."""

    def __init__(self) -> None:
        self.asked: list[dict[str, int]] = []
        self.answers: list[Future[Any]] = []

    def commit(self, group: str, offsets: Mapping[str, int]) -> Future[Any]:
        assert group == "g"
        self.asked.append(dict(offsets))
        self.answers.append(Future())
        return self.answers[-1]

    def answer(self, error: KafkaError | None = None) -> None:
        self.answers[-1].set_result(Answer(error))


class Answer:
    def __init__(self, error: KafkaError | None) -> None:
        self.topic_partitions = [self]
        self.error = error


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    monkeypatch.setattr(group_offsets, "LAST_S", 0)
    return Brokers()


def test_one_request_at_a_time_and_the_newest_offsets(brokers: Brokers) -> None:
    """A batch never waits for the answer; what was settled meanwhile goes with the next request or with the end."""
    said: list[str] = []
    group = GroupOffsets(brokers, "g", said.append)
    group.commit({"t/0": 5, "t/1": 7})
    group.commit({"t/0": 9})
    group.commit({"t/0": 12})
    assert brokers.asked == [{"t/0": 5, "t/1": 7}]
    brokers.answer()
    group.commit({"t/1": 8})
    assert brokers.asked[1:] == [{"t/0": 12, "t/1": 8}]
    group.commit({"t/0": 13})
    brokers.answer()
    group.close()
    assert brokers.asked[2:] == [{"t/0": 13}]


def test_a_refusal_is_said_once_and_the_offsets_go_with_the_next_request(brokers: Brokers) -> None:
    """A group with members refuses; newer offsets replace those that were not committed."""
    said: list[str] = []
    group = GroupOffsets(brokers, "g", said.append)
    for offset in (5, 6, 7):
        group.commit({"t/0": offset, f"t/{offset}": 1})
        brokers.answer(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))
    assert brokers.asked[-1] == {"t/0": 7, "t/5": 1, "t/6": 1, "t/7": 1}
    group.commit({"t/0": 8})
    brokers.answers[-1].set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
    group.close()
    assert len(said) == 3
    assert said[0].startswith("the offsets of group g are not committed: ")
    assert brokers.asked[-1]["t/0"] == 8
