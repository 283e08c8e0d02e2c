"""Which offsets are planned when partitions are empty, come later or lose messages: none is passed over silently."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from txtopo import KafkaSpout
from txtopo.errors import BatchDataError
from txtopo.spouts import kafka_spout
from txtopo.spouts.kafka import topics as asking
from txtopo.spouts.kafka.broker_errors import TOPIC_GONE
from txtopo.spouts.kafka.client_settings import ClientSettings
from txtopo.spouts.kafka.kafka_coordinator import KafkaCoordinator
from txtopo.spouts.kafka.offset_ranges import Held
from txtopo.spouts.partitioned import PartitionedCoordinating
from txtopo.topology.components import SpoutContext


@dataclass
class Brokers:
    """Partitions by name with their first offset and their end, and the timestamps of their messages."""

    held_now: dict[str, tuple[int, int]]
    times: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Partition -> offset -> milliseconds."""
    gone: Collection[str] = ()
    """Topics that are listed, and are not there when they are described."""

    def names(self, pattern: str) -> list[str]:
        return sorted({name.split("/")[0] for name in self.held_now} | set(self.gone))

    def ids(self, topics: Iterable[str], optional: Collection[str]) -> dict[str, tuple[str, int]]:
        lost = [topic for topic in topics if topic in self.gone and topic not in optional]
        if lost:
            raise BatchDataError(f"topic {lost[0]}: there is no such topic", component="spout")
        there = [topic for topic in topics if topic not in self.gone]
        return {topic: (f"id-{topic}", sum(name.startswith(f"{topic}/") for name in self.held_now)) for topic in there}

    def compacted(self, topics: object) -> list[str]:
        return []

    def held(self, ids: Mapping[str, Any], isolation: str) -> dict[str, Held]:
        return {
            name: Held(topic_id=f"id-{name.split('/')[0]}", first=first, end=end)
            for name, (first, end) in self.held_now.items()
            if name.split("/")[0] in ids
        }

    def at_time(self, partition: tuple[str, int], millis: int, isolation: str) -> int | None:
        stamps = self.times.get(f"{partition[0]}/{partition[1]}", {})
        return min((offset for offset, stamp in stamps.items() if stamp >= millis), default=None)


class Driver:
    """Plans batch after batch, as drivers that come and go do."""

    def __init__(self, brokers: Brokers, topics: Any = "t", **settings: Any) -> None:
        self.brokers = brokers
        self.spout = KafkaSpout(topics, "id bigint", servers="x:1", max_wait_s=0, **settings)
        self.said: list[str] = []
        self.last: Mapping[str, Any] | None = None
        self.half: PartitionedCoordinating

    def start(self, *, once: bool = False) -> Driver:
        """A new driver continues after the last batch."""
        context = SpoutContext(
            topology="t",
            spout="s",
            consumed=cast(Any, {}),
            once=once,
            monotonic=lambda: 0.0,
            say=self.said.append,
            previous=self.last,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("txtopo.spouts.kafka.kafka_coordinator.Topics", lambda _: self.brokers)
            half: Any = self.spout.get_coordinator({}, context)
        assert isinstance(half, KafkaCoordinator)
        self.half = PartitionedCoordinating(half, context, empty_batches=False, opaque=self.spout.kind == "opaque")
        return self

    def plan(self) -> dict[str, Any]:
        """The next batch: partition -> offsets; empty if there is none."""
        if not self.half.is_ready():
            return {}
        self.last = self.half.initialize_transaction(1, self.last)
        return self.spans(self.last)

    def plan_again(self, discarded: Mapping[str, Any], previous: Mapping[str, Any] | None) -> dict[str, Any]:
        """The same batch after its plan was discarded."""
        self.last = self.half.initialize_again(1, previous, discarded)
        return self.spans(self.last)

    @staticmethod
    def spans(batch: Mapping[str, Any]) -> dict[str, Any]:
        entries = zip(batch["names"], batch["partitions"], strict=True)
        return {name: (entry["range"]["start"], entry["range"]["end"]) for name, entry in entries if "range" in entry}


@pytest.mark.parametrize("start", ["earliest", {0: 0, 1: 7}, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)])
def test_messages_of_a_partition_that_was_empty_at_first_do_not_expire_silently(start: Any) -> None:
    """They came and went while no driver ran: the place after which they count is in the first batch."""
    stamps = {"t/0": {0: 2**42}}
    driver = Driver(Brokers({"t/0": (0, 3), "t/1": (7, 7)}, stamps), start=start).start()
    assert driver.plan() == {"t/0": (0, 3), "t/1": (7, 7)}
    assert driver.plan() == {}

    driver.brokers = Brokers({"t/0": (0, 3), "t/1": (9, 12)}, {**stamps, "t/1": {9: 2**42}})
    with pytest.raises(BatchDataError, match=r"t/1: offsets 7 to 8 have expired before they were planned.* 7, .* 9"):
        driver.start().plan()


def test_an_opaque_spout_says_what_it_misses_of_a_partition_that_was_empty() -> None:
    """And has it in its plan."""
    driver = Driver(Brokers({"t/0": (0, 3), "t/1": (0, 0)}), kind="opaque").start()
    first = driver.plan()
    assert first == {"t/0": (0, 3), "t/1": (0, 0)}
    # Its plan is discarded, and nothing has changed: the place is the same.
    discarded = driver.last
    assert discarded is not None
    assert driver.plan_again(discarded, None) == first
    driver.brokers = Brokers({"t/0": (0, 3), "t/1": (4, 6)})
    assert driver.start().plan() == {"t/1": (4, 6)}
    assert driver.last is not None
    assert driver.last["partitions"][1]["range"]["lost"] == [0, 4]
    assert driver.said == ["t/1: offsets 0 to 3 have expired before they were planned, and are counted nowhere"]


def test_an_opaque_spout_says_what_expires_before_its_first_batch_is_planned_again() -> None:
    """No earlier batch says where it began."""
    driver = Driver(Brokers({"t/0": (2, 9)}), kind="opaque", max_records=4).start()
    assert driver.plan() == {"t/0": (2, 6)}
    discarded = driver.last
    assert discarded is not None
    driver.brokers.held_now["t/0"] = (5, 9)
    assert driver.plan_again(discarded, None) == {"t/0": (5, 9)}
    assert driver.last is not None
    assert driver.last["partitions"][0]["range"]["lost"] == [2, 5]
    assert driver.said == ["t/0: offsets 2 to 4 have expired before they were planned, and are counted nowhere"]


def test_a_partition_that_its_topic_got_later_begins_at_0() -> None:
    """Also with a time to start from: then at the first message of that time."""
    driver = Driver(Brokers({"t/0": (5, 6)})).start()
    assert driver.plan() == {"t/0": (5, 6)}
    driver.brokers.held_now["t/1"] = (0, 0)
    assert driver.plan() == {}
    driver.brokers.held_now["t/1"] = (0, 2)
    assert driver.plan() == {"t/1": (0, 2)}
    driver.brokers.held_now["t/2"] = (3, 4)
    with pytest.raises(BatchDataError, match=r"t/2: offsets 0 to 2 have expired"):
        driver.plan()

    timed = Driver(
        Brokers({"t/0": (0, 1)}, {"t/0": {0: 2**42}}), start=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    )
    assert timed.start().plan() == {"t/0": (0, 1)}
    timed.brokers = Brokers({"t/0": (0, 1), "t/1": (0, 9)}, {"t/1": {3: 5, 6: 2**42}})
    assert timed.start().plan() == {"t/1": (6, 9)}


def test_a_topic_that_is_named_later_is_read_from_the_first_offset_it_has() -> None:
    """Nothing of it was ever to be counted before, so nothing is missed."""
    driver = Driver(Brokers({"a/0": (5, 6)}), ["a"]).start()
    assert driver.plan() == {"a/0": (5, 6)}
    later = Driver(Brokers({"a/0": (5, 6), "b/0": (100, 105), "b/1": (7, 7)}), ["a", "b"])
    later.last = driver.last
    assert later.start().plan() == {"b/0": (100, 105), "b/1": (7, 7)}


def test_a_time_counts_after_the_mark_of_an_empty_partition() -> None:
    """Messages of an earlier time that come late are not counted there; a mark alone is a batch, and one is enough."""
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    at = int(start.timestamp() * 1000)
    driver = Driver(Brokers({"t/0": (0, 4)}, {"t/0": dict.fromkeys(range(4), at - 1)}), start=start).start()
    assert driver.plan() == {"t/0": (4, 4)}
    assert driver.plan() == {}
    stamps = {"t/0": {**dict.fromkeys(range(6), at - 1), 6: at, 7: at - 1}}
    driver.brokers = Brokers({"t/0": (0, 6)}, stamps)
    assert driver.start().plan() == {}
    driver.brokers = Brokers({"t/0": (0, 8)}, stamps)
    assert driver.start().plan() == {"t/0": (6, 8)}
    driver.brokers = Brokers({"t/0": (0, 9)}, stamps)
    assert driver.start().plan() == {"t/0": (8, 9)}


def test_a_run_with_an_end_misses_what_expires_while_it_runs() -> None:
    """It ends where the partitions ended at first; what has expired since is not planned."""
    driver = Driver(Brokers({"t/0": (0, 6)}), max_records=2).start(once=True)
    assert driver.plan() == {"t/0": (0, 2)}
    driver.brokers.held_now.update({"t/0": (1, 90), "t/1": (0, 5)})
    assert driver.plan() == {"t/0": (2, 4)}
    driver.brokers.held_now["t/0"] = (5, 90)
    with pytest.raises(BatchDataError, match="t/0: offsets 4 to 4 have expired"):
        driver.plan()
    opaque = Driver(driver.brokers, max_records=2, kind="opaque")
    opaque.last = driver.last
    opaque.start(once=True)
    driver.brokers.held_now["t/0"] = (6, 7)
    assert opaque.plan() == {"t/0": (6, 7), "t/1": (0, 1)}
    driver.brokers.held_now["t/0"] = (6, 99)
    assert opaque.plan() == {"t/1": (1, 3)}


def test_a_topic_that_goes_before_any_message_was_planned_stops_nothing() -> None:
    """It is listed, and gone when it is described; one of which messages were planned is missed."""
    import re

    driver = Driver(Brokers({"a/0": (0, 1)}, gone=["b"]), re.compile("[ab]")).start()
    assert driver.plan() == {"a/0": (0, 1)}
    driver.brokers.gone = ["a"]
    with pytest.raises(BatchDataError, match="topic a: there is no such topic"):
        driver.start().plan()


@pytest.mark.parametrize(
    ("start", "millis"),
    [
        (datetime.datetime(2026, 11, 1, 12, 0, 0, 1000, datetime.UTC), 1793534400001),
        (datetime.datetime(2026, 11, 1, 12, 0, 0, 1001, datetime.UTC), 1793534400002),
        (datetime.datetime(1970, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))), 0),
    ],
)
def test_no_message_before_the_time_to_start_from_is_counted(start: datetime.datetime, millis: int) -> None:
    """Kafka has milliseconds: the next one that is not earlier."""
    assert kafka_spout._millis(start) == millis


class Answer:
    """A request that is answered."""

    def __init__(self, found: object) -> None:
        self._found = found

    def result(self, timeout: float) -> object:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def test_a_topic_without_an_id_is_refused_and_one_that_is_just_gone_is_asked_for_again() -> None:
    """Old brokers give none: a topic that is made again could not be told from it."""
    from confluent_kafka import KafkaError, KafkaException, Uuid

    topics = asking.Topics(ClientSettings(servers="127.0.0.1:1"))
    gone = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    described: Any = {
        "old": Answer(SimpleNamespace(topic_id=Uuid(0, 0), partitions=[1])),
        "new": Answer(SimpleNamespace(topic_id=Uuid(1, 2), partitions=[1, 2])),
        "gone": Answer(gone),
    }
    admin: Any = SimpleNamespace(
        describe_topics=lambda asked, **_: {name: described[name] for name in asked.topic_names},
        list_offsets=lambda asked, **_: {one: Answer(gone) for one in asked},
        poll=lambda _: None,
    )
    topics._admin = admin
    with pytest.raises(BatchDataError, match="the brokers give topic old no id"):
        topics.ids(["old"])
    with pytest.raises(BatchDataError, match="no such topic") as missing:
        topics.ids(["new", "gone"])
    assert missing.value.fault == TOPIC_GONE
    found = topics.ids(["new", "gone"], ["gone"])
    assert found == {"new": (str(Uuid(1, 2)), 2)}
    with pytest.raises(TimeoutError, match="has just described it"):
        topics.held(found, "read_committed")
