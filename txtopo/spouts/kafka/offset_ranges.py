"""Which offsets of a partition a batch has, and when such a range is read completely: pure decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a partition holds now."""

    topic_id: str
    """The topic's own id: a topic that is deleted and made again has another one."""
    first: int
    """The lowest offset that is still there."""
    end: int
    """The offset after the last one that may be read: no open transaction began below it, if those are not read."""


class ExpiredError(ValueError):
    """Offsets that are to be read no longer exist."""


class OtherTopicError(ValueError):
    """What the plans name is not what is there."""


def shares(waiting: Mapping[str, int], records_max: int) -> dict[str, int]:
    """Return how many offsets each partition gives to a batch of at most `records_max`: what few have waiting is taken
    whole, the rest is divided equally. A partition where something waits gives at least one.

    >>> shares({"t/0": 1000, "t/1": 10}, 100)
    {'t/1': 10, 't/0': 90}
    """
    left, found = records_max, {}
    for rank, (name, number) in enumerate(sorted(waiting.items(), key=lambda item: item[1])):
        found[name] = min(number, max(1, left // (len(waiting) - rank)))
        left = max(0, left - found[name])
    return found


def range_after(name: str, last: Mapping[str, Any], held: Held, share: int, *, goes_on: bool) -> dict[str, Any] | None:
    """Return the next range of a partition after `last`; None if nothing waits. With `goes_on`, expired offsets are
    passed over, and the range says which.

    Raises OtherTopicError and ExpiredError, which name both positions.
    """
    if last["topic_id"] != held.topic_id:
        raise OtherTopicError(
            f"{name}: the topic was deleted and made again: batches were planned with id {last['topic_id']}, now it "
            f"has id {held.topic_id}"
        )
    start = int(last["end"])
    if held.end < start:
        raise OtherTopicError(
            f"{name}: the topic lost messages that were planned: the last range ends at offset {start}, the partition "
            f"at {held.end}"
        )
    if start < held.first:
        if not goes_on:
            raise ExpiredError(
                f"{name}: offsets {start} to {held.first - 1} have expired before they were planned: the next one is "
                f"{start}, the first that is there {held.first}"
            )
        return _cut(held, held.first, share) | {"lost": [start, held.first]}
    return _cut(held, start, share) if start < held.end else None


def mark(held: Held, place: int, since: int | None = None) -> dict[str, Any]:
    """Return the empty range of a partition of which nothing was planned: messages after it are missed if they expire.
    With `since`, the first one that counts has this timestamp in milliseconds or a later one, and is not there yet.
    """
    return {"topic_id": held.topic_id, "start": place, "end": place} | ({} if since is None else {"since": since})


def range_since(found: Mapping[str, Any], first: int | None, held: Held) -> dict[str, Any] | None:
    """Return the range `found` after a mark, from the message `first` on with which counting begins; None if that is
    not there yet.
    """
    if first is None or first >= held.end:
        return None
    start = max(int(found["start"]), first)
    lost = {} if "lost" not in found else {"lost": found["lost"]}
    return _cut(held, start, int(found["end"]) - int(found["start"])) | lost


def first_range(name: str, start: int, held: Held, share: int) -> dict[str, Any]:
    """Return the first range of a partition, from a given offset. Raises ExpiredError if it is not in the partition."""
    if not held.first <= start <= held.end:
        raise ExpiredError(
            f"{name}: the offset to start from, {start}, is not in the partition, which has {held.first} to {held.end}"
        )
    return _cut(held, start, share)


def _cut(held: Held, start: int, share: int) -> dict[str, Any]:
    return {"topic_id": held.topic_id, "start": start, "end": min(held.end, start + max(1, share))}


def is_complete(end: int, *, message: int | None = None, position: int | None = None, eof: int | None = None) -> bool:
    """Return True if one of these proves that everything below `end` was delivered: the offset of a message, the
    position of the consumer while its queue is empty, or the offset at which the partition ended. Control records and
    aborted messages have offsets, too, so the last message may be far below; time is never a proof.
    """
    return any(proof is not None and proof >= end for proof in (message, position, eof))


def name_of(topic: str, number: int) -> str:
    """Return the name of a partition; a topic has no slash."""
    return f"{topic}/{number}"


def partition_of_name(name: str) -> tuple[str, int]:
    """Return topic and number of a partition."""
    topic, _, number = name.rpartition("/")
    return topic, int(number)
