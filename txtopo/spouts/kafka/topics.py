"""What the brokers say of topics: their ids and partitions, the offsets they hold, whether they are compacted."""

from __future__ import annotations

import errno
import functools
import re
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from txtopo.errors import BatchDataError, ConfigurationError
from txtopo.spouts.kafka.broker_errors import COMPONENT, TOPIC_GONE, Heard, exception_in_words
from txtopo.spouts.kafka.client_settings import ClientSettings
from txtopo.spouts.kafka.offset_ranges import Held, name_of, partition_of_name

ANSWER_S = 30.0
"""Time limit in seconds of one request."""
REFRESH_MS = 5_000
"""Milliseconds after which the client asks again which brokers there are. Its requests go to one of them: by default,
it would wait five minutes for one that died.
"""
LOOK_S = 0.5
"""Seconds between two looks whether logins are refused."""
ISOLATION = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}
NO_ID = str(Uuid(0, 0))
"""What brokers give a topic that has no id."""
_NO_FETCHING = frozenset({"fetch.queue.backoff.ms", "fetch.wait.max.ms", "queued.max.messages.kbytes"})


class Topics:
    """Asks the brokers. Its methods raise BatchDataError for a topic that is not there, and OSError if the brokers
    cannot be reached or refuse.
    """

    def __init__(self, settings: ClientSettings) -> None:
        """Raises ConfigurationError for settings that the client does not take."""
        self._settings = settings
        self._heard = Heard()
        self._is_stale = False
        """True after a request that failed: the client may wait for a broker that will not come back."""
        self._admin = self._client()
        self._committing = self._admin
        """The client of the last commit: without it, its answer would never come."""

    def _client(self) -> AdminClient:
        read = {"topic.metadata.refresh.interval.ms": REFRESH_MS, **self._settings.read()}
        known = {name: value for name, value in read.items() if name not in _NO_FETCHING}
        try:
            return AdminClient({**known, "error_cb": self._heard.note})
        except (KafkaException, ValueError, TypeError) as error:
            raise ConfigurationError(f"the client of Kafka refuses its settings: {_words(error)}") from error

    def ids(self, topics: Iterable[str], optional: Collection[str] = ()) -> dict[str, tuple[str, int]]:
        """Return the id of each topic, and its number of partitions; without `optional` ones that are not there."""
        found = {}
        self._renew()
        for topic, future in self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=ANSWER_S
        ).items():
            try:
                described = self._result(future, f"topic {topic}")
            except BatchDataError as error:
                if topic in optional and error.fault == TOPIC_GONE:
                    continue  # Deleted since it was listed, or so new that not all brokers know it.
                raise
            if str(described.topic_id) == NO_ID:
                raise BatchDataError(
                    f"the brokers give topic {topic} no id, so one that is made again could not be told from it: Kafka "
                    f"gives ids from version 2.8 on",
                    component=COMPONENT,
                    fault="topic without id",
                )
            found[topic] = (str(described.topic_id), len(described.partitions))
        return found

    def names(self, pattern: str) -> list[str]:
        """Return the topics whose whole name matches, without those of Kafka itself. Topics that this login may not
        describe are not among them.
        """
        self._renew()
        try:
            known = self._admin.list_topics(timeout=ANSWER_S).topics
        except KafkaException as error:
            self._check_login("topics")
            raise self._failed(error, "topics") from error
        return sorted(name for name in known if not name.startswith("__") and re.fullmatch(pattern, name))

    def held(self, ids: Mapping[str, tuple[str, int]], isolation: str) -> dict[str, Held]:
        """Return what each partition of these topics holds, by name."""
        partitions = [(topic, number) for topic, (_, count) in ids.items() for number in range(count)]
        firsts = self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()), isolation)
        ends = self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()), isolation)
        self._heard.answered()  # By the leaders of all partitions.
        return {
            name_of(topic, number): Held(topic_id=ids[topic][0], first=firsts[topic, number], end=ends[topic, number])
            for topic, number in partitions
        }

    def at_time(self, partition: tuple[str, int], millis: int, isolation: str) -> int | None:
        """Return the offset of the first message of a partition with this timestamp, in milliseconds since 1970, or a
        later one; None if there is none yet.
        """
        spec = OffsetSpec.for_timestamp(millis)
        offset = self._offsets({partition: spec}, isolation)[partition]
        return None if offset < 0 else offset

    def compacted(self, topics: Iterable[str]) -> list[str]:
        """Return the topics of which messages are removed because later ones have their key."""
        resources = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in topics}
        answers = self._admin.describe_configs(list(resources.values()), request_timeout=ANSWER_S)
        return [
            topic
            for topic, resource in resources.items()
            if "compact" in self._result(answers[resource], f"settings of topic {topic}")["cleanup.policy"].value
        ]

    def _renew(self) -> None:
        """Take a new client after a refused login, since the file may have the right password now, and after a request
        that failed.
        """
        if self._heard.is_refused() or self._is_stale:
            self._heard = Heard()
            self._is_stale = False
            self._admin = self._client()

    def _check_login(self, what: str) -> None:
        """Raise PermissionError if logins are refused for a while."""
        self._admin.poll(0)  # The client says what it has to say.
        self._heard.check_login(what)

    def _failed(self, error: KafkaException, what: str) -> Exception:
        """Return what to raise for a request that failed."""
        found = exception_in_words(error, what, self._heard)
        self._is_stale = self._is_stale or isinstance(found, OSError)
        return found

    def _result(self, future: Any, what: str) -> Any:
        """Return the answer of the brokers."""
        deadline = time.monotonic() + ANSWER_S + 10
        while True:
            try:
                return future.result(timeout=LOOK_S)
            except KafkaException as error:
                self._check_login(what)
                raise self._failed(error, what) from error
            except FutureTimeoutError:
                self._check_login(what)
                if time.monotonic() > deadline:
                    raise self._failed(KafkaException(KafkaError(KafkaError._TIMED_OUT)), what) from None

    def commit(self, group: str, offsets: Mapping[str, int]) -> Future[Any]:
        """Begin to commit offsets of partitions to a consumer group that no consumer has joined. The result raises
        KafkaException.
        """
        self._committing = self._admin
        places = [TopicPartition(*partition_of_name(name), offset) for name, offset in offsets.items()]
        asked = [ConsumerGroupTopicPartitions(group, places)]
        found: Future[Any] = self._admin.alter_consumer_group_offsets(asked, request_timeout=ANSWER_S)[group]
        return found

    def _offsets(self, wanted: Mapping[tuple[str, int], Any], isolation: str) -> dict[tuple[str, int], int]:
        if not wanted:
            return {}
        asked = {TopicPartition(topic, number): spec for (topic, number), spec in wanted.items()}
        try:
            futures = self._admin.list_offsets(asked, isolation_level=ISOLATION[isolation], request_timeout=ANSWER_S)
        except KafkaException as error:
            raise self._failed(error, "offsets") from error
        try:
            return {
                (one.topic, one.partition): int(self._result(future, name_of(one.topic, one.partition)).offset)
                for one, future in futures.items()
            }
        except BatchDataError as error:
            if error.fault != TOPIC_GONE:
                raise
            # It was there a moment ago: the next look says that it was deleted, or brokers come to know a new topic.
            raise TimeoutError(errno.ETIMEDOUT, f"Kafka has just described it, and now says: {error}") from error


def compacted_error(topic: str) -> BatchDataError:
    """Return the error for a compacted topic whose batches must have the same messages in each attempt."""
    return BatchDataError(
        f"topic {topic} is compacted, so a batch may have other messages in its next attempt: declare the spout with "
        f"kind='opaque'",
        component=COMPONENT,
        position=topic,
        fault="compacted topic",
    )


@functools.lru_cache(maxsize=4)
def topics_of(settings: ClientSettings) -> Topics:
    """Return what asks the brokers in a task; one client for each process."""
    return Topics(settings)


def _words(error: Exception) -> str:
    """Return the client's words, which have names of settings, and no values but those of numbers and choices."""
    found = error.args[0] if error.args else error
    return str(getattr(found, "str", lambda: found)())
