"""Reads exactly one range of offsets: every message below its end, and the proof that there is no other."""

from __future__ import annotations

import errno
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from txtopo.errors import BatchDataError
from txtopo.spouts.kafka.broker_errors import COMPONENT, RIGHTS, TOO_LARGE, error_in_words, exception_in_words
from txtopo.spouts.kafka.client_settings import ClientSettings
from txtopo.spouts.kafka.consumers import KEPT, Lent
from txtopo.spouts.kafka.offset_ranges import is_complete, partition_of_name
from txtopo.spouts.kafka.topics import ANSWER_S, compacted_error, topics_of

BLOCK_MESSAGES = 5_000
"""Maximum number of messages of one block."""
BLOCK_BYTES = 16 * 1024 * 1024
"""Bytes of keys and values after which a block is not filled up. What the client has fetched by then may be added."""
GATHER_S = 0.01
"""Seconds to wait for more messages of a block that is not full."""
WAIT_S = 0.1
STALLED_S = 60.0
"""Seconds without any progress after which the brokers count as away."""
KEPT_STALLED_S = 5.0
"""Seconds without any progress after which a kept consumer is replaced, and the next message counts as too large if the
client said that one is.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How ranges are read."""

    isolation: str
    bytes_max: int | None = None
    """Maximum number of bytes of the values of a range."""
    may_be_compacted: bool = False
    """True: messages may be missing because later ones have their key."""


def read_range(
    settings: ClientSettings, name: str, planned: Mapping[str, Any], asked: Asked
) -> Iterator[Sequence[Message]]:
    """Yield the messages of a planned range in blocks, in the order of their offsets.

    Raises BatchDataError if the topic is another one now, if offsets have expired or may have been compacted, or if
    the values have too many bytes; OSError if the brokers cannot be reached or refuse.
    """
    if planned["start"] == planned["end"]:
        return  # A mark: of an empty partition, or where counting begins.
    # Of a topic that is not there the client says nothing for a long time.
    _check_topic(settings, name, planned)
    try:
        reading = RangeReading(settings, name, planned, asked.isolation)
        yield from _limited(reading.blocks(), name, planned, asked.bytes_max)
        if reading.has_gaps and not asked.may_be_compacted:
            _check_compacted(settings, name)
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


def _check_compacted(settings: ClientSettings, name: str) -> None:
    """Raise BatchDataError if the topic is compacted, maybe since the batch was planned: then gaps may be more than
    aborted messages and control records.
    """
    topic, _ = partition_of_name(name)
    if topics_of(settings).compacted([topic]):
        raise compacted_error(topic)


def _limited(
    blocks: Iterator[Sequence[Message]], name: str, planned: Mapping[str, Any], bytes_max: int | None
) -> Iterator[Sequence[Message]]:
    """Pass blocks on. Raises BatchDataError at the message with which the values have too many bytes."""
    if bytes_max is None:
        yield from blocks
        return
    size = 0
    for block in blocks:
        more = sum(map(len, block))
        if size + more > bytes_max:
            for message in block:
                size += len(message)
                if size > bytes_max:
                    raise BatchDataError(
                        f"{name}: the values of offsets {planned['start']} to {message.offset()} have {size:,} bytes, "
                        f"more than max_bytes, {bytes_max:,}: raise it, or lower max_records and type txtopo replan",
                        component=COMPONENT,
                        position=f"{name}@{message.offset()}",
                        fault="too many bytes",
                    )
        size += more
        yield block


class NotNextError(Exception):
    """A kept consumer gave another message than the next one."""


class RangeReading:
    """One pass over a range.

    A consumer that has read other ranges before is believed only while it gives the very next offset: should a message
    or an end that belongs to an earlier range come late, it must not count as a proof. At the first gap a new consumer
    takes its place, for which gaps are aborted messages, control records and what was compacted away.
    """

    def __init__(self, settings: ClientSettings, name: str, planned: Mapping[str, Any], isolation: str) -> None:
        self._settings = settings
        self._name = name
        self._topic, self._number = partition_of_name(name)
        self._planned = planned
        self._isolation = isolation
        self._end = int(planned["end"])
        self._at = int(planned["start"])
        """Everything below this offset was delivered or passed over."""
        self._count = 0

    @property
    def has_gaps(self) -> bool:
        """Return True if offsets of the range had no message that may be read."""
        return self._count < self._end - int(self._planned["start"])

    def blocks(self) -> Iterator[Sequence[Message]]:
        """Yield the messages. Raises BatchDataError and OSError."""
        try:
            yield from self._blocks(fresh=False)
        except NotNextError:
            yield from self._blocks(fresh=True)

    def _blocks(self, *, fresh: bool) -> Iterator[Sequence[Message]]:
        length, topic_id = self._end - self._at, str(self._planned["topic_id"])
        lent = KEPT.take(self._settings, self._isolation, topic_id, length, fresh=fresh)
        is_read = False
        try:
            lent.assign(self._topic, self._number, self._at)
            yield from self._read(lent)
            is_read = True
        except KafkaException as error:
            if lent.is_kept:
                raise NotNextError from error
            raise exception_in_words(error, self._name) from error
        finally:
            if is_read:
                KEPT.give_back(lent)
            else:
                lent.close()

    def _read(self, lent: Lent) -> Iterator[Sequence[Message]]:
        last_progress = time.monotonic()
        while True:
            before = self._at
            found = _some(lent.consumer, self._end - before)
            errors = _has_errors(found)
            if errors:
                found = [message for message in found if not _is_of_group(message)]
            block, complete = (
                (self._next(found, errors), False) if lent.is_kept else self._taken(lent.consumer, found, errors)
            )
            if block:
                self._count += len(block)
                yield block
            if lent.is_kept:
                complete = self._at >= self._end
                if not complete and (len(block) < len(found) or self._position(lent.consumer) > self._at):
                    raise NotNextError
            elif not found:
                self._at = max(before, self._position(lent.consumer))
                complete = is_complete(self._end, position=self._at)
            if complete:
                return
            if self._at > before:
                # The time that the caller takes for a block is no silence of the brokers.
                last_progress = time.monotonic()
                lent.heard.answered()
            else:
                self._check_silence(lent, time.monotonic() - last_progress)

    def _next(self, found: Sequence[Message], errors: bool) -> Sequence[Message]:
        """Return the messages at the beginning that stand at the very next offsets."""
        good = list(takewhile(lambda message: message.error() is None, found)) if errors else found
        places = {message.partition() for message in good}, {message.topic() for message in good}
        if places[0] <= {self._number} and places[1] <= {self._topic}:
            expected = range(self._at, min(self._end, self._at + len(good)))
            offsets = [message.offset() for message in good]
            count = len(expected)
            if offsets[:count] != list(expected):
                count = next(at for at, offset in enumerate(expected) if offsets[at] != offset)
            self._at += count
            return good[:count]
        return ()

    def _taken(self, consumer: Consumer, found: Sequence[Message], errors: bool) -> tuple[Sequence[Message], bool]:
        """Return the messages of the range, and whether one of the proofs was among what was found."""
        complete = False
        if errors:
            for message in found:
                complete = self._is_proof(consumer, message) or complete
            found = [message for message in found if message.error() is None]
        if not found:
            return found, complete
        last = found[-1].offset()
        self._at = max(self._at, min(self._end, last + 1))
        if is_complete(self._end, message=last):
            return found[: bisect_left(found, self._end, key=lambda message: message.offset())], True
        return found, complete or self._at >= self._end

    def _is_proof(self, consumer: Consumer, message: Message) -> bool:
        """Return True if this is an end of the partition that proves the range complete. Raises for other errors."""
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            return is_complete(self._end, eof=message.offset())
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise _expired(consumer, self._name, self._planned)
        if error.code() in RIGHTS or not error.retriable():
            raise error_in_words(error, self._name)
        return False

    def _position(self, consumer: Consumer) -> int:
        """Return the offset after everything that was delivered or passed over; -1 if nothing was yet."""
        (found,) = consumer.position([TopicPartition(self._topic, self._number)])
        return int(found.offset) if found.error is None and found.offset >= 0 else -1

    def _check_silence(self, lent: Lent, silent_s: float) -> None:
        if lent.is_kept and silent_s > min(STALLED_S, KEPT_STALLED_S):
            raise NotNextError
        cause = lent.heard.cause
        is_too_large = cause is not None and cause.code() in TOO_LARGE and silent_s > KEPT_STALLED_S
        if is_too_large or silent_s > STALLED_S:
            what = f"{self._name}, offsets {self._planned['start']} to {self._end - 1}"
            if cause is not None:
                raise error_in_words(cause, what)
            raise TimeoutError(errno.ETIMEDOUT, f"Kafka gave nothing for {STALLED_S:.0f} s", what)


def _has_errors(found: Sequence[Message]) -> bool:
    # A set takes half the time of any(), or of map with a method's name: there are many messages.
    return False in {message.error() is None for message in found}


def _is_of_group(message: Message) -> bool:
    """Return True if a right on the group is missing, which a client must name: nothing is read by it."""
    error = message.error()
    return error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def _some(consumer: Consumer, wanted: int) -> list[Message]:
    """Return what is there, at most one block; wait a little if that is nothing."""
    most = min(wanted, BLOCK_MESSAGES)
    found: list[Message] = consumer.consume(most, 0) or consumer.consume(1, WAIT_S)
    more, size = found, 0
    while more and len(found) < most:
        size += sum(len(message) + len(message.key() or b"") for message in more)
        if size >= BLOCK_BYTES:
            break
        more = consumer.consume(most - len(found), GATHER_S)
        found += more
    return found


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
