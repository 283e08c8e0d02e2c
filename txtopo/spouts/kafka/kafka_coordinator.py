"""The coordinator half of KafkaSpout: cuts ranges of offsets, from the last range and what the brokers hold alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from txtopo.errors import BatchDataError
from txtopo.spouts.kafka.client_settings import ClientSettings
from txtopo.spouts.kafka.group_offsets import GroupOffsets
from txtopo.spouts.kafka.offset_ranges import (
    ExpiredError,
    Held,
    OtherTopicError,
    first_range,
    mark,
    partition_of_name,
    range_after,
    range_since,
    shares,
)
from txtopo.spouts.kafka.topics import Topics, compacted_error
from txtopo.spouts.partitioned import NOTHING
from txtopo.spouts.planned_file import COMPONENT

Start = str | int | Mapping[int, int]
"""`earliest`, `latest`, a time in milliseconds since 1970, or offsets by partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCuts:
    """How batches are cut."""

    topics: Sequence[str]
    """Their names; empty if `pattern` says which."""
    pattern: str | None = None
    settings: ClientSettings
    start: Start
    isolation: str
    records_max: int
    wait_s_max: float
    opaque: bool
    group_id: str | None = None


class KafkaCoordinator:
    """Implements `NamedCoordinator`. Its attributes only spare questions: each range follows from the last one."""

    def __init__(
        self,
        cutting: KafkaCuts,
        *,
        once: bool,
        monotonic: Callable[[], float],
        say: Callable[[str], None],
        topics: Topics | None = None,
    ) -> None:
        """`topics` asks the brokers. Raises ConfigurationError for settings of the client that are wrong."""
        self._cutting = cutting
        self._once = once
        self._monotonic = monotonic
        self._say = say
        self._topics = topics or Topics(cutting.settings)
        self._checked: frozenset[str] = frozenset()
        self._held: Mapping[str, Held] = {}
        self._done: dict[str, int] = {}
        """Offset after the last one that is in a committed batch, as far as it is known."""
        self._group = None if cutting.group_id is None else GroupOffsets(self._topics, cutting.group_id, say)
        self._shares: Mapping[str, int] = {}
        self._starts: dict[str, int] = {}
        """Where the first range of a partition began, which may be planned again."""
        self._is_fresh = False
        self._planned: frozenset[str] = frozenset()
        """Topics with a range in the last batch."""
        self._has_waiting = False
        self._may_wait = False
        self._waits = False
        self._waiting_since: float | None = None
        self._said: set[tuple[str, int]] = set()
        self._said_none = False

    def is_ready(self) -> bool:
        """A batch that is not full may wait for more messages; one that is planned again may not."""
        self._may_wait = not self._once
        return True

    def ready_in_s(self) -> float:
        """Return how long a batch that is not full still waits."""
        if not self._waits or self._waiting_since is None:
            return float("inf")
        return max(0.0, self._cutting.wait_s_max - (self._monotonic() - self._waiting_since))

    def partition_names(self, known: Mapping[str, Any]) -> Sequence[str]:
        """Look at all partitions once, for the questions that follow."""
        self._look(known)
        self._is_fresh = all(last is None for last in known.values())
        self._planned = frozenset(partition_of_name(name)[0] for name, last in known.items() if last is not None)
        waiting = {}
        for name, held in self._held.items():
            last = known.get(name)
            if last is not None:
                # Until a batch is settled, all that was planned counts as committed.
                self._done.setdefault(name, int(last["end"]))
            start = held.first if last is None else max(held.first, int(last["end"]))
            if start < held.end:
                waiting[name] = held.end - start
        self._has_waiting = bool(waiting)
        self._shares = shares(waiting, self._cutting.records_max)
        self._waits = self._is_to_wait(sum(waiting.values()))
        self._may_wait = False
        return sorted(self._held, key=partition_of_name)

    def next_range(self, partition: str, last: Any) -> Any:
        """Return the next offsets of a partition. Raises BatchDataError with both positions if they are not there."""
        if self._waits:
            return NOTHING
        held, share = self._held[partition], self._shares.get(partition, self._cutting.records_max)
        try:
            if last is None and partition_of_name(partition)[0] in self._planned:
                # Its topic got it since: what was there had a mark. So it begins at 0.
                last = self._mark(held, 0)
            found = self._begin(partition, held, share) if last is None else self._next(partition, last, held, share)
        except ExpiredError as error:
            raise BatchDataError(str(error), component=COMPONENT, position=partition, fault="offsets expired") from None
        except OtherTopicError as error:
            raise BatchDataError(str(error), component=COMPONENT, position=partition, fault="other topic") from None
        if found is None:
            return NOTHING
        self._say_lost(partition, found)
        return found

    def settled(self, txid: int, ranges: Mapping[str, Any], state: str) -> None:
        """Note which offsets are in committed batches; a redo repeats earlier ones."""
        for name, found in ranges.items():
            self._done[name] = max(int(found["end"]), self._done.get(name, 0))
        if self._group is not None and ranges:
            self._group.commit({name: self._done[name] for name in ranges})

    def lag(self) -> Mapping[str, int]:
        """See LaggingCoordinator. Offsets of aborted messages and control records count."""
        return {name: held.end - max(held.first, self._done.get(name, 0)) for name, held in self._held.items()}

    def close(self) -> None:
        """Wait a little for the offsets of the group; nothing else is held that the process does not release."""
        if self._group is not None:
            self._group.close()

    def _look(self, known: Mapping[str, Any]) -> None:
        cutting = self._cutting
        names = self._names(known)
        planned = {partition_of_name(name)[0] for name, last in known.items() if last is not None}
        ids = self._topics.ids(names, () if cutting.pattern is None else frozenset(names) - planned)
        if self._once and self._held:
            # What came later belongs to the next run; what has expired since is missed now.
            now = self._topics.held(
                {topic: one for topic, one in ids.items() if topic in self._checked}, cutting.isolation
            )
            pairs = [(name, held, now.get(name, held)) for name, held in self._held.items()]
            self._held = {name: replace(found, end=min(held.end, found.end)) for name, held, found in pairs}
            return
        fresh = frozenset(ids) - self._checked
        if fresh and not cutting.opaque:
            for topic in self._topics.compacted(sorted(fresh)):
                raise compacted_error(topic)
        if isinstance(cutting.start, Mapping):
            count = ids[cutting.topics[0]][1]
            missing = sorted(number for number in cutting.start if number >= count)
            if missing:
                raise BatchDataError(
                    f"topic {cutting.topics[0]} has {count} partitions, and start names partition {missing[0]}",
                    component=COMPONENT,
                    fault="no such partition",
                )
        self._checked |= fresh
        self._held = self._topics.held(ids, cutting.isolation)

    def _names(self, known: Mapping[str, Any]) -> Sequence[str]:
        """Return the topics to read. One of which messages were planned is among them also if it was deleted, so that
        it is missed, unless the pattern does not match it any more.
        """
        pattern = self._cutting.pattern
        if pattern is None:
            return self._cutting.topics
        planned = {partition_of_name(name)[0] for name in known}
        found = {*self._topics.names(pattern), *(name for name in planned if re.fullmatch(pattern, name))}
        if not found and not self._said_none:
            self._said_none = True
            self._say(f"no topic matches {pattern}")
        return sorted(found)

    def _is_to_wait(self, number: int) -> bool:
        if not number or number >= self._cutting.records_max or not self._may_wait:
            self._waiting_since = None
            return False
        now = self._monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < self._cutting.wait_s_max:
            return True
        self._waiting_since = None
        return False

    def _next(self, name: str, last: Mapping[str, Any], held: Held, share: int) -> dict[str, Any] | None:
        found = range_after(name, last, held, share, goes_on=self._cutting.opaque)
        if found is None or "since" not in last:
            return found
        at = self._topics.at_time(partition_of_name(name), int(last["since"]), self._cutting.isolation)
        return range_since(found, at, held)

    def _mark(self, held: Held, place: int) -> dict[str, Any]:
        """Return the empty range after which the messages of a partition count."""
        start = self._cutting.start
        return mark(held, place, start if isinstance(start, int) else None)

    def _begin(self, name: str, held: Held, share: int) -> dict[str, Any] | None:
        """Return the first range of a partition, or what is left of it if it is planned again and offsets expired."""
        began = self._starts.get(name)
        if self._cutting.opaque and began is not None and began < held.first:
            return range_after(name, self._mark(held, began), held, share, goes_on=True)
        found = self._first(name, held, share)
        if found is not None:
            self._starts.setdefault(name, int(found["start"]))
        return found

    def _first(self, name: str, held: Held, share: int) -> dict[str, Any] | None:
        """Return the first range of a partition. An empty one marks the place after which messages count: without it,
        messages of a partition that was empty at first could come and expire while no driver runs, and nobody would
        miss them.
        """
        start, number = self._cutting.start, partition_of_name(name)[1]
        match start:
            case "latest" if self._is_fresh:
                # This place must not move before it is in a plan.
                place = self._starts.setdefault(name, held.end)
                return first_range(name, place, held, 0) | {"end": place}
            case int():
                at = self._topics.at_time(partition_of_name(name), start, self._cutting.isolation)
                if at is not None and at < held.end:
                    return first_range(name, at, held, share)
                place = held.end
            case Mapping() if number in start:
                place = start[number]
                found = first_range(name, place, held, share)
                if found["start"] < found["end"]:
                    return found
            case _:
                place = held.first
                if place < held.end:
                    return first_range(name, place, held, share)
        return self._mark(held, place) if self._has_waiting else None

    def _say_lost(self, name: str, found: Mapping[str, Any]) -> None:
        lost = found.get("lost")
        if lost is not None and (name, lost[0]) not in self._said:
            self._said.add((name, lost[0]))
            self._say(
                f"{name}: offsets {lost[0]} to {lost[1] - 1} have expired before they were planned, and are counted "
                f"nowhere"
            )
