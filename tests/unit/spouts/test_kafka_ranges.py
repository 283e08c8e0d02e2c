"""Which offsets a batch of KafkaSpout has, when they are read completely, and which settings are refused."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txtopo import KafkaSpout
from txtopo.errors import BatchDataError, ConfigurationError, TopologyError
from txtopo.formats import Json
from txtopo.spouts.kafka.client_settings import ClientSettings, client_settings
from txtopo.spouts.kafka.offset_ranges import (
    ExpiredError,
    Held,
    OtherTopicError,
    first_range,
    is_complete,
    partition_of_name,
    range_after,
    shares,
)

FIELDS = "id bigint"


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 10_000), min_size=1), st.integers(1, 5_000))
def test_a_batch_is_full_and_no_partition_starves(waiting: dict[str, int], most: int) -> None:
    """Never more than `max_records`, unless there are more partitions than that; never less than what is there."""
    found = shares(waiting, most)

    assert found.keys() == waiting.keys()
    assert all(1 <= found[name] <= waiting[name] for name in waiting)
    assert sum(found.values()) <= max(most, len(waiting))
    assert sum(found.values()) >= min(most, sum(waiting.values()))


@given(st.integers(0, 50), st.lists(st.integers(0, 20), max_size=8), st.integers(1, 7))
def test_ranges_tile(first: int, grown: list[int], share: int) -> None:
    """Each begins where the last one ended, whatever arrived between two looks."""
    held = Held(topic_id="a", first=first, end=first)
    last: dict[str, Any] | None = None
    seen: list[int] = []
    for more in [*grown, *([0] * 200)]:
        held = Held(topic_id="a", first=first, end=held.end + more)
        if last is None:
            found = first_range("t/0", held.first, held, share) if held.first < held.end else None
        else:
            found = range_after("t/0", last, held, share, goes_on=False)
        if found is not None:
            seen += range(found["start"], found["end"])
            last = found
    assert seen == list(range(first, held.end))


def test_what_is_not_there_any_more_is_no_range() -> None:
    """Expired, of another topic, or behind the end: named with both positions."""
    last = {"topic_id": "a", "start": 0, "end": 5}
    with pytest.raises(ExpiredError, match="5 to 7 have expired"):
        range_after("t/0", last, Held(topic_id="a", first=8, end=9), 1, goes_on=False)
    gone_on = range_after("t/0", last, Held(topic_id="a", first=8, end=9), 1, goes_on=True)
    assert gone_on == {"topic_id": "a", "start": 8, "end": 9, "lost": [5, 8]}
    with pytest.raises(OtherTopicError, match="id a, now it has id b"):
        range_after("t/0", last, Held(topic_id="b", first=0, end=9), 1, goes_on=True)
    with pytest.raises(OtherTopicError, match="ends at offset 5, the partition at 4"):
        range_after("t/0", last, Held(topic_id="a", first=0, end=4), 1, goes_on=True)
    with pytest.raises(ExpiredError, match="from, 9, is not"):
        first_range("t/0", 9, Held(topic_id="a", first=0, end=4), 1)
    assert partition_of_name("a.b_c-1/12") == ("a.b_c-1", 12)


def test_only_a_proof_ends_a_range() -> None:
    """A message at its end, a position, an end of the partition; the last message of the range is none."""
    assert not is_complete(10)
    assert not is_complete(10, message=9, position=9, eof=9)
    assert is_complete(10, message=10)
    assert is_complete(10, position=10)
    assert is_complete(10, eof=12)


def test_where_the_brokers_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the spout, else that of the host, else the address of `dev up`; without any, words that help."""
    for name in ("KAFKA_CONFIG", "TXTOPO_KAFKA"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="no address of Kafka: give KafkaSpout servers="):
        ClientSettings().read()
    monkeypatch.setenv("TXTOPO_KAFKA", "here:1")
    assert ClientSettings().read()["bootstrap.servers"] == "here:1"
    file = tmp_path / "host.properties"
    file.write_text("# brokers\n\n bootstrap.servers = a:1,b:2 \nsasl.password=p=q#r\n")
    monkeypatch.setenv("KAFKA_CONFIG", str(file))
    assert ClientSettings().read()["bootstrap.servers"] == "a:1,b:2"
    assert ClientSettings().read()["sasl.password"] == "p=q#r"
    assert ClientSettings(servers="c:3").read()["bootstrap.servers"] == "c:3"
    assert "sasl.password" not in ClientSettings(servers="c:3").read()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("isolation.level=read_uncommitted", "isolation.level belongs to KafkaSpout: remove it"),
        ("a=1\na=2", ":2: a is there twice"),
        ("secret", ":1: no line `key=value`"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_wrong_properties_file_is_named_without_its_values(content: str | None, words: str, tmp_path: Path) -> None:
    """The words have file and line, and nothing that may be a password."""
    file = tmp_path / "kafka.properties"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigurationError) as refused:
        client_settings(None, file).read()
    assert words in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: KafkaSpout([], FIELDS), "no list of different names"),
        (lambda: KafkaSpout(["a", "a"], FIELDS), "no list of different names"),
        (lambda: KafkaSpout("a/b", FIELDS), "'a/b' is no name of a topic"),
        (lambda: KafkaSpout("a", FIELDS, value="xml"), "value 'xml' is none of"),  # type: ignore[arg-type]
        (lambda: KafkaSpout("a", FIELDS, value="string"), "is one field of type string"),
        (lambda: KafkaSpout("a", "_offset int"), "_offset is declared int: declare it as bigint"),
        (lambda: KafkaSpout("a", FIELDS, value=Json(paths={"x": "y"})), "paths has 'x'"),
        (lambda: KafkaSpout("a", FIELDS, start="now"), "start 'now' is none of"),  # type: ignore[arg-type]
        (lambda: KafkaSpout("a", FIELDS, start=datetime.datetime(2026, 1, 1)), "has no time zone"),
        (lambda: KafkaSpout("a", FIELDS, start={0: -1}), "is not {partition: offset}"),
        (lambda: KafkaSpout("a", FIELDS, start=datetime.datetime(1969, 12, 31, tzinfo=datetime.UTC)), "is before 1970"),
        (lambda: KafkaSpout(["a", "b"], FIELDS, start={0: 1}), "of one topic"),
        (lambda: KafkaSpout("a", FIELDS, start="latest", kind="opaque"), "would move whenever"),
        (lambda: KafkaSpout("a", FIELDS, kind="odd"), "kind 'odd' is neither"),  # type: ignore[arg-type]
        (lambda: KafkaSpout("a", FIELDS, isolation="none"), "isolation 'none' is neither"),  # type: ignore[arg-type]
        (lambda: KafkaSpout("a", FIELDS, max_records=0), "max_records 0 is not"),
        (lambda: KafkaSpout("a", FIELDS, max_bytes=0), "max_bytes 0 is not"),
        (lambda: KafkaSpout("a", FIELDS, group_id="a b"), "group_id 'a b' is no name"),
        (lambda: KafkaSpout(re.compile("a", re.IGNORECASE), FIELDS), "has flags: write flags into it"),
        (lambda: KafkaSpout(re.compile("(?i)a"), FIELDS, start={0: 1}), "of one topic"),
        (lambda: KafkaSpout("a", FIELDS, max_wait_s=-1), "max_wait_s -1 is not"),
        (lambda: KafkaSpout("a", FIELDS, max_wait_s=float("inf")), "max_wait_s inf is not a number from 0 to 3600"),
        (lambda: KafkaSpout("a", FIELDS, rejected_max=2), "rejected_max 2 is not a number from 0 to 1"),
        (lambda: KafkaSpout("a", FIELDS, servers=" "), "servers ' ' is no list"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(make: Callable[[], KafkaSpout], words: str) -> None:
    """Each in words that name it."""
    with pytest.raises(TopologyError) as refused:
        make()
    assert words in str(refused.value)


def test_a_batch_that_is_not_full_waits_but_never_one_of_a_run_with_an_end() -> None:
    """`max_wait_s` from the first look at what waits; a full batch does not wait."""
    from txtopo.spouts.kafka.kafka_coordinator import KafkaCoordinator, KafkaCuts
    from txtopo.spouts.partitioned import NOTHING

    class Brokers:
        end = 3

        def ids(self, topics: object, optional: object) -> dict[str, tuple[str, int]]:
            return {"t": ("a", 1)}

        def compacted(self, topics: object) -> list[str]:
            return []

        def held(self, ids: object, isolation: str) -> dict[str, Held]:
            return {"t/0": Held(topic_id="a", first=0, end=self.end)}

    clock, brokers = [0.0], Brokers()
    cutting = KafkaCuts(
        topics=("t",),
        settings=ClientSettings(),
        start="earliest",
        isolation="read_committed",
        records_max=5,
        wait_s_max=2.0,
        opaque=False,
    )

    def look(*, once: bool = False) -> Callable[[], Any]:
        known: Any = brokers
        half = KafkaCoordinator(cutting, once=once, monotonic=lambda: clock[0], say=print, topics=known)

        def ask() -> Any:
            assert half.is_ready()
            assert half.partition_names({}) == ["t/0"]
            waits.append(half.ready_in_s())
            return half.next_range("t/0", None)

        return ask

    waits: list[float] = []
    ask = look()
    assert ask() is NOTHING
    clock[0] = 1.5
    assert ask() is NOTHING
    assert waits == [2.0, 0.5]
    clock[0] = 2.0
    assert ask() == {"topic_id": "a", "start": 0, "end": 3}
    assert look(once=True)() == {"topic_id": "a", "start": 0, "end": 3}
    brokers.end = 9
    assert look()() == {"topic_id": "a", "start": 0, "end": 5}


def test_topics_by_a_pattern_come_and_do_not_go_silently() -> None:
    """A new topic is read from its first offset; a planned one that was deleted is asked for, unless the pattern
    excludes it.
    """
    from txtopo.spouts.kafka.kafka_coordinator import KafkaCoordinator, KafkaCuts

    asked: list[list[str]] = []

    class Brokers:
        there: ClassVar[list[str]] = []

        def names(self, pattern: str) -> list[str]:
            return [name for name in self.there if re.fullmatch(pattern, name)]

        def ids(self, topics: list[str], optional: object) -> dict[str, tuple[str, int]]:
            asked.append(topics)
            gone = [name for name in topics if name not in self.there]
            if gone:
                raise BatchDataError(f"topic {gone[0]}: there is no such topic", component="spout")
            return {name: (f"id-{name}", 1) for name in topics}

        def compacted(self, topics: object) -> list[str]:
            return []

        def held(self, ids: dict[str, Any], isolation: str) -> dict[str, Held]:
            return {f"{name}/0": Held(topic_id=f"id-{name}", first=3, end=9) for name in ids}

    def half(pattern: str) -> KafkaCoordinator:
        known: Any = Brokers()
        cutting = KafkaCuts(
            topics=(),
            pattern=pattern,
            settings=ClientSettings(),
            start="latest",
            isolation="read_committed",
            records_max=99,
            wait_s_max=0,
            opaque=False,
        )
        return KafkaCoordinator(cutting, once=False, monotonic=lambda: 0.0, say=said.append, topics=known)

    said: list[str] = []
    one = half("o-.*")
    assert one.partition_names({}) == one.partition_names({}) == []
    assert said == ["no topic matches o-.*"]
    Brokers.there = ["o-a", "xo-b", "o-b"]
    last = {"topic_id": "id-o-a", "start": 3, "end": 9}
    assert one.partition_names({"o-a/0": last}) == ["o-a/0", "o-b/0"]
    assert one.next_range("o-b/0", None) == {"topic_id": "id-o-b", "start": 3, "end": 9}
    Brokers.there = ["o-b"]
    with pytest.raises(BatchDataError, match="o-a: there is no such topic"):
        one.partition_names({"o-a/0": last})
    assert half("o-(?!a).*").partition_names({"o-a/0": last}) == ["o-b/0"]


def test_what_waits_is_what_no_committed_batch_has() -> None:
    """`lag`: planned offsets wait until their batch is settled; a redo of an earlier batch adds nothing."""
    from txtopo.spouts.kafka.kafka_coordinator import KafkaCoordinator, KafkaCuts

    class Brokers:
        def ids(self, topics: object, optional: object) -> dict[str, tuple[str, int]]:
            return {"t": ("a", 2)}

        def compacted(self, topics: object) -> list[str]:
            return []

        def held(self, ids: object, isolation: str) -> dict[str, Held]:
            return {f"t/{number}": Held(topic_id="a", first=10, end=100) for number in (0, 1)}

    known: Any = Brokers()
    cutting = KafkaCuts(
        topics=("t",),
        settings=ClientSettings(),
        start="earliest",
        isolation="read_committed",
        records_max=5,
        wait_s_max=0,
        opaque=False,
    )
    half = KafkaCoordinator(cutting, once=False, monotonic=lambda: 0.0, say=print, topics=known)
    assert half.lag() == {}
    half.partition_names({})
    assert half.lag() == {"t/0": 90, "t/1": 90}
    half.settled(1, {"t/0": {"topic_id": "a", "start": 10, "end": 60}}, "applied")
    half.settled(2, {"t/0": {"topic_id": "a", "start": 60, "end": 70}}, "quarantined")
    half.settled(3, {"t/0": {"topic_id": "a", "start": 10, "end": 60}}, "applied")
    half.partition_names({"t/0": {"topic_id": "a", "start": 70, "end": 90}, "t/1": None})
    assert half.lag() == {"t/0": 30, "t/1": 90}


def test_a_plan_of_an_unknown_layout_halts() -> None:
    """R12: what this release cannot read exactly is not read."""
    from txtopo.topology.components import Tally

    spout = KafkaSpout("t", FIELDS, servers="x:1")
    span = {"range": {"topic_id": "a", "start": 0, "end": 1}}
    wrong = (
        {"key": "json"},
        {"key": {"kind": "json"}},
        {"key": {"kind": "xml", "fields": []}},
        {"value": {"kind": "xml"}},
        {"value": {"kind": "string", "more": 1}},
        {"value": {"kind": "json", "more": 1}},
        {"value": {"kind": "csv", "more": 1}},
        {"more": 1},
    )
    for layout in ({**spout.layout(), **one} for one in wrong):
        metadata = {"txid": 1, "format": layout, "schema": FIELDS, "names": ["t/0"], "partitions": [span]}
        with pytest.raises(BatchDataError, match="cannot read") as refused:
            list(spout.emit_part(metadata, {"partition": 0}, Tally()))
        assert refused.value.halts
