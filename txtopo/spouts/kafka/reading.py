"""Reads exactly one range of offsets: every message below its end, and the proof that there is no other."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from txtopo.errors import BatchDataError, ConfigurationError
from txtopo.spouts.kafka.broker_errors import COMPONENT, RIGHTS, error_in_words, exception_in_words
from txtopo.spouts.kafka.client_settings import ClientSettings
from txtopo.spouts.kafka.offset_ranges import is_complete, partition_of_name
from txtopo.spouts.kafka.topics import ANSWER_S, topics_of

BLOCK_MESSAGES = 10_000
"""Maximum number of messages of one block."""
QUEUED_MAX = 100_000
WAIT_S = 0.1
STALLED_S = 60.0
"""Seconds without any progress after which the brokers count as away."""


def read_range(
    settings: ClientSettings, name: str, planned: Mapping[str, Any], isolation: str
) -> Iterator[Sequence[Message]]:
    """Yield the messages of a planned range in blocks, in the order of their offsets.

    Raises BatchDataError if the topic is another one now, or if offsets have expired; OSError if the brokers cannot be
    reached or refuse.
    """
    # Of a topic that is not there the client says nothing for a long time.
    _check_topic(settings, name, planned)
    try:
        if planned["start"] < planned["end"]:
            yield from _messages(settings, name, planned, isolation)
    except BatchDataError:
        # A topic that was made again explains it better.
        _check_topic(settings, name, planned)
        raise
    # Ids never come back, so the topic was the planned one all the time.
    _check_topic(settings, name, planned)


def _check_topic(settings: ClientSettings, name: str, planned: Mapping[str, Any]) -> None:
    topic, _ = partition_of_name(name)
    found, _ = topics_of(settings).ids([topic])[topic]
    if found != planned["topic_id"]:
        raise BatchDataError(
            f"{name}: the topic was deleted and made again: planned with id {planned['topic_id']}, now it has id "
            f"{found}",
            component=COMPONENT,
            position=name,
            fault="topic made again",
        )


def _messages(
    settings: ClientSettings, name: str, planned: Mapping[str, Any], isolation: str
) -> Iterator[Sequence[Message]]:
    topic, number = partition_of_name(name)
    start, end = int(planned["start"]), int(planned["end"])
    refused: list[KafkaError] = []
    consumer = _consumer(settings, isolation, end - start, refused)
    try:
        consumer.assign([TopicPartition(topic, number, start)])
        last_progress, position = time.monotonic(), start
        while True:
            found = consumer.consume(BLOCK_MESSAGES, 0) or consumer.consume(1, WAIT_S)
            block, complete = _taken(consumer, found, name, planned)
            if block:
                yield block
            reached = position if found else _position(consumer, topic, number)
            if complete or is_complete(end, position=None if found else reached):
                return
            if block or reached > position:
                # The time that the caller takes for a block is no silence of the brokers.
                last_progress, position = time.monotonic(), max(position, reached)
            elif time.monotonic() - last_progress > STALLED_S:
                what = f"{name}, offsets {start} to {end - 1}"
                if refused:
                    raise error_in_words(refused[-1], what)
                raise TimeoutError(errno.ETIMEDOUT, f"Kafka gave nothing for {STALLED_S:.0f} s", what)
    finally:
        consumer.close()


def _taken(
    consumer: Consumer, found: Sequence[Message], name: str, planned: Mapping[str, Any]
) -> tuple[list[Message], bool]:
    """Return the messages of the range, and whether one of the proofs was among what was found."""
    end, block, complete = int(planned["end"]), [], False
    for message in found:
        error, offset = message.error(), message.offset()
        if error is None:
            if is_complete(end, message=offset):
                complete = True
            else:
                block.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            complete = complete or is_complete(end, eof=offset)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise _expired(consumer, name, planned)
        elif error.code() in RIGHTS or not error.retriable():
            raise error_in_words(error, name)
    return block, complete


def _consumer(settings: ClientSettings, isolation: str, length: int, refused: list[KafkaError]) -> Consumer:
    """Return a consumer that joins no group, commits nothing, and says so where offsets are not there."""
    owned = {
        "group.id": "txtopo",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "check.crcs": True,
        "queued.min.messages": max(1, min(length, QUEUED_MAX)),
        "error_cb": refused.append,
    }
    try:
        return Consumer({**settings.read(), **owned})
    except (KafkaException, ValueError, TypeError) as error:
        raise ConfigurationError("the client of Kafka refuses its settings: see the properties file") from error


def _position(consumer: Consumer, topic: str, number: int) -> int:
    """Return the offset after everything that was delivered or passed over; -1 if nothing was yet."""
    try:
        (found,) = consumer.position([TopicPartition(topic, number)])
    except KafkaException as error:
        raise exception_in_words(error, f"{topic}/{number}") from error
    return int(found.offset) if found.error is None and found.offset >= 0 else -1


def _expired(consumer: Consumer, name: str, planned: Mapping[str, Any]) -> BatchDataError:
    topic, number = partition_of_name(name)
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ANSWER_S, cached=False)
        now = f"now the partition has {first} to {end}"
    except KafkaException as error:
        now = f"what the partition has now is not known ({error.args[0].str()})"
    return BatchDataError(
        f"{name}: planned offsets {planned['start']} to {planned['end'] - 1} are not all there any more: {now}",
        component=COMPONENT,
        position=f"{name}@{planned['start']}",
        fault="offsets expired",
    )
