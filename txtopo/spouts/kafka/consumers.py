"""Consumers that a process keeps between batches: a new one costs a connection to each broker, with its logins."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, TopicPartition

from txtopo.errors import ConfigurationError
from txtopo.spouts.kafka.broker_errors import Heard
from txtopo.spouts.kafka.client_settings import ClientSettings

KEPT_MAX = 4
"""Maximum number of consumers that a process keeps."""
KEPT_S = 60.0
"""Seconds without use after which a consumer is not used again."""
QUEUE_SIZES = (100, 1_000, 10_000, 100_000)
"""Numbers of messages that the client fetches ahead. With much more than a range has, most is read for nothing."""


@dataclass(eq=False, slots=True, kw_only=True)
class Lent:
    """A consumer while a range is read with it."""

    consumer: Consumer
    key: tuple[object, ...]
    """What it was made for: settings, topic, length of the range."""
    heard: Heard
    """What the client said that belongs to no message."""
    is_kept: bool = False
    """True: it has read other ranges before."""
    used_s: float = field(default=0.0)
    """When it was given back."""

    def assign(self, topic: str, number: int, start: int) -> None:
        """Read a partition from this offset on."""
        self.heard.answered()
        self.consumer.assign([TopicPartition(topic, number, start)])

    def close(self) -> None:
        """End it with its connections."""
        with contextlib.suppress(KafkaException):
            self.consumer.close()


class KeptConsumers:
    """The consumers of a process that no range is read with."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[Lent] = []
        self._pid = os.getpid()

    def take(self, settings: ClientSettings, isolation: str, topic_id: str, length: int, *, fresh: bool) -> Lent:
        """Return a consumer for a range of this length: a kept one of this topic, or unless `fresh` is False a new one.
        Raises ConfigurationError for settings that the client does not take.
        """
        read = settings.read()  # Each time: a password may have changed.
        queued = next((size for size in QUEUE_SIZES if length <= size), QUEUE_SIZES[-1])
        key = (*sorted(read.items()), isolation, topic_id, queued)
        found = None if fresh else self._pop(key)
        return found or _new(read, isolation, queued, key)

    def give_back(self, lent: Lent) -> None:
        """Keep a consumer that has read its range to the end; all others must be closed."""
        try:
            lent.consumer.unassign()
        except KafkaException:
            lent.close()
            return
        lent.is_kept, lent.used_s = True, time.monotonic()
        with self._lock:
            self._own()
            self._kept.append(lent)
            surplus = self._kept[:-KEPT_MAX]
            del self._kept[:-KEPT_MAX]
        for one in surplus:
            one.close()

    def close(self) -> None:
        """Close all."""
        with self._lock:
            self._own()
            kept, self._kept = self._kept, []
        for one in kept:
            one.close()

    def _pop(self, key: tuple[object, ...]) -> Lent | None:
        since = time.monotonic() - KEPT_S
        with self._lock:
            self._own()
            old = [one for one in self._kept if one.used_s < since]
            self._kept = [one for one in self._kept if one.used_s >= since]
            found = next((one for one in reversed(self._kept) if one.key == key), None)
            if found is not None:
                self._kept.remove(found)
        for one in old:
            one.close()
        return found

    def _own(self) -> None:
        """Forget what was kept before a fork: its threads are in the parent."""
        if self._pid != os.getpid():
            self._pid, self._kept = os.getpid(), []


KEPT = KeptConsumers()
"""Those of this process. Spark ends a worker that has nothing to do for a minute, and its connections with it."""


def _new(read: dict[str, str | int | bool], isolation: str, queued: int, key: tuple[object, ...]) -> Lent:
    """Return a consumer that joins no group, commits nothing, and says so where offsets are not there."""
    heard = Heard()
    owned = {
        "group.id": "txtopo",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "check.crcs": True,
        "queued.min.messages": queued,
        "error_cb": heard.note,
    }
    try:
        consumer = Consumer({**read, **owned})
    except (KafkaException, ValueError, TypeError) as error:
        raise ConfigurationError("the client of Kafka refuses its settings: see the properties file") from error
    return Lent(consumer=consumer, key=key, heard=heard)
