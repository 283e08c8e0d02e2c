"""Tells a consumer group which offsets are in committed batches, for tools that watch groups. Nothing depends on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDone
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

LAST_S = 5.0
"""Seconds that the end of a run waits for the answer."""


class CommitsOffsets(Protocol):
    """What the brokers are asked."""

    def commit(self, group: str, offsets: Mapping[str, int]) -> Future[Any]:
        """Begin to commit offsets by partition to a group."""


class GroupOffsets:
    """Commits in the background, one request at a time; what comes meanwhile goes with the next one. A failure is said
    once, and stops no batch.
    """

    def __init__(self, brokers: CommitsOffsets, group: str, say: Callable[[str], None]) -> None:
        self._brokers = brokers
        self._group = group
        self._say = say
        self._waiting: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        self._answer: Future[Any] | None = None
        self._said: str | None = None

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Commit the offsets after the last ones that are in committed batches, by partition."""
        self._waiting.update(offsets)
        if self._answer is None or self._answer.done():
            self._take(self._answer, 0)
            self._send()

    def close(self) -> None:
        """Wait a little until all is committed."""
        if self._waiting or self._answer is not None:
            self._take(self._answer, LAST_S)
            if self._waiting:
                self._send()
                self._take(self._answer, LAST_S)

    def _send(self) -> None:
        self._sent, self._waiting = self._waiting, {}
        try:
            self._answer = self._brokers.commit(self._group, self._sent)
        except (KafkaException, ValueError, TypeError) as error:
            self._failed(error)

    def _take(self, answer: Future[Any] | None, wait_s: float) -> None:
        self._answer = None
        if answer is None:
            return
        try:
            places = answer.result(wait_s).topic_partitions
        except (KafkaException, NotDone) as error:
            self._failed(error)
            return
        wrong = [place.error for place in places if place.error is not None]
        if wrong:
            self._failed(KafkaException(wrong[0]))
        else:
            self._said = None

    def _failed(self, error: Exception) -> None:
        """Say it, and keep what was to be committed for the next request."""
        self._waiting = {**self._sent, **self._waiting}
        found = error.args[0] if error.args else None
        words = found.str() if isinstance(found, KafkaError) else type(error).__name__
        if words != self._said:
            self._said = words
            self._say(f"the offsets of group {self._group} are not committed: {words}; batches are not affected")
