"""`AggregateCommitter` says what it stores, and refuses what has no exact aggregate when the topology is built."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from txtopo import AggregateCommitter, CountCommitter
from txtopo.core.fields import parse_fields
from txtopo.errors import TopologyError
from txtopo.topology.committer_bolt import result_fields
from txtopo.topology.event_windows import KeySource

FIELDS = parse_fields(
    "carrier string, price decimal(10,2), weight double, seats bigint, raw binary, left timestamp, open boolean, shown "
    "timestamp_ntz"
)


def test_an_average_is_stored_as_sum_and_number_of_values() -> None:
    """A quotient could not be added to, nor taken back."""
    committer = AggregateCommitter("t", ["carrier"], averages={"price": "paid"}, mins=["seats"], maxs={"left": "last"})

    assert committer.aggregates == (
        ("sum", "price", "paid_sum"),
        ("count", "price", "paid_count"),
        ("min", "seats", "seats"),
        ("max", "left", "last"),
    )
    assert committer.required_fields() == ("carrier", "price", "seats", "left")
    assert result_fields(committer.aggregation(), FIELDS) == parse_fields(
        "carrier string, count bigint not null, paid_sum decimal(38,2) not null, paid_count bigint not null, seats "
        "bigint, last timestamp"
    )
    assert pickle.loads(pickle.dumps(committer)).describe() == committer.describe()


def test_a_count_committer_is_described_as_ever() -> None:
    """Its description is part of the code hash and of what an audit reads: of tables of earlier releases, too."""
    assert CountCommitter("t", ["carrier"], count="n", sums={"price": "paid"}).describe() == {
        "kind": "count",
        "table": "public.t",
        "keys": ["carrier"],
        "count": "n",
        "sums": {"price": "paid"},
        "contributions": True,
    }


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"mins": ["weight"]}, "weight is a double, whose order is not the same everywhere, so it has no min: declare"),
        ({"maxs": ["raw"]}, "raw is a binary, whose order is not the same everywhere, so it has no max$"),
        ({"averages": ["weight"]}, "weight is a double, and only integers and decimals are summed; sums of floats"),
        ({"averages": ["open"]}, "open is a boolean, and only integers and decimals are summed$"),
        ({"mins": ["gone"]}, "there is no field gone"),
        ({"window": "1 hour", "time": "open"}, "time='open' is a boolean; windows need a timestamp"),
        (
            {"window": "1 day", "time": "shown", "zone": "Asia/Tokyo"},
            "time='shown' is a timestamp_ntz, which has no zone",
        ),
    ],
)
def test_fields_without_an_exact_aggregate_are_refused(more: dict[str, Any], message: str) -> None:
    """NaN and -0.0 are ordered differently in Arrow, Spark and Postgres."""
    with pytest.raises(TopologyError, match=message):
        AggregateCommitter("t", ["carrier"], **more).check_fields(FIELDS)


def test_a_window_is_a_key_made_of_a_time() -> None:
    """The field itself is read, and is no column; a window of several slides is stored by slide."""
    committer = AggregateCommitter("t", ["carrier"], window="1 hour", slide="10 minutes", time="left")

    assert committer.required_fields() == ("carrier", "left")
    assert (committer.windows, committer.slides) == ((("left", 600_000_000, "window_start", "window_end", ""),), 6)
    assert result_fields(committer.aggregation(), FIELDS) == parse_fields(
        "carrier string, window_start timestamp, count bigint not null"
    )
    assert committer.describe()["windows"] == [["left", 600_000_000, "window_start", "window_end"]]
    alone = AggregateCommitter("t", [], window="1 day", time="left")
    assert (alone.slides, alone.aggregation().sources) == (1, (KeySource("left", 86_400_000_000),))


def test_a_window_of_local_days_has_local_times() -> None:
    """Without a zone, since the first moment of a local day may not be midnight."""
    committer = AggregateCommitter(
        "t", [], window="2 days", slide="1 day", zone="Europe/Berlin", time="left", distinct={"seats": "n"}
    )

    assert committer.describe()["windows"] == [["left", 86_400_000_000, "window_start", "window_end", "Europe/Berlin"]]
    for bolt in (committer, *committer.parts().values()):
        fields = result_fields(bolt.aggregation(), FIELDS)
        assert [str(one.type) for one in fields.items if one.name == "window_start"] == ["timestamp_ntz"]


def test_a_session_is_made_of_slots_as_wide_as_the_gap() -> None:
    """Slots are windows with their first and last time; so they are added, reversed and recounted like these."""
    committer = AggregateCommitter("t", ["carrier"], gap="30 minutes", time="left", distinct={"seats": "n"})

    assert committer.windows == (("left", 1_800_000_000, "slot_start", "slot_end", ""),)
    assert committer.aggregates == (("min", "left", "first_time"), ("max", "left", "last_time"))
    assert committer.describe()["sessions"] == ["first_time", "last_time", "session_start", "session_end"]
    [part] = committer.parts().values()
    assert result_fields(part.aggregation(), FIELDS) == parse_fields(
        "carrier string, seats bigint, slot_start timestamp, rows bigint not null"
    )
    assert pickle.loads(pickle.dumps(committer)).describe() == committer.describe()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"window": "1 hour"}, "a window needs its width and its time"),
        ({"time": "left"}, "a window needs its width and its time"),
        ({"time": "left", "slide": "1 hour"}, "a window needs its width and its time"),
        ({"zone": "Europe/Berlin"}, "a window needs its width and its time"),
        ({"gap": "1 day", "time": "left", "zone": "Europe/Berlin"}, "has neither window, slide, zone nor baseline"),
        ({"window": "1 day", "time": "left", "zone": "Berlin"}, "zone='Berlin' is no time zone that this Python knows"),
        ({"window": "1 day", "time": "left", "zone": "Europe/Bern"}, "is no time zone that this Python knows"),
        ({"window": "1 day", "time": "left", "zone": "right/Europe/Berlin"}, "is no time zone that this Python knows"),
        ({"window": "1 hour", "time": "left", "zone": "Europe/Berlin"}, "for windows and slides of whole days"),
        ({"window": "1 day", "slide": "1 hour", "time": "left", "zone": "Asia/Tokyo"}, "windows and slides of whole"),
        ({"window": "1 week", "time": "left"}, "window='1 week' is no width; write a number of seconds, minutes"),
        ({"window": "0 hours", "time": "left"}, "is no width"),
        ({"window": "1 hour", "slide": "7 minutes", "time": "left"}, "not made of slides of '7 minutes'"),
        ({"window": "1 hour", "slide": "2 hours", "time": "left"}, "not made of slides of '2 hours'"),
        ({"window": "1 day", "slide": "1 minute", "time": "left"}, "at most 1,000"),
        ({"window": "1 hour", "time": "left", "count": "window_end"}, "column window_end is named twice"),
        ({"baseline": True, "distinct": ["seats"]}, "distinct is not possible with baseline: the values of rows that"),
        ({"gap": "1 hour"}, "a session needs its gap and its time"),
        ({"gap": "1 hour", "time": "left", "window": "1 hour"}, "has neither window, slide, zone nor baseline"),
        ({"gap": "1 hour", "time": "left", "baseline": True}, "has neither window, slide, zone nor baseline"),
        ({"gap": "half an hour", "time": "left"}, "gap='half an hour' is no width"),
        ({"gap": "1 hour", "time": "left", "count": "first_time"}, "column first_time is named twice"),
        ({"gap": "1 hour", "time": "left", "count": "session_end"}, "column session_end is named twice"),
        (
            {"gap": "1 hour", "time": "left", "distinct": {"slot_start": "n"}},
            "slot_start is a column that txtopo makes",
        ),
        (
            {"gap": "1 hour", "time": "left", "distinct": {"seats": "sessions"}},
            "t_sessions is the name of another table",
        ),
        ({"distinct": {"carrier": "n"}}, "carrier is a key, which has one value"),
        ({"distinct": {"seats": "distinct"}}, "t_distinct is the name of another table"),
        ({"distinct": {"seats": "Seats"}}, "is not a table name"),
        ({"distinct": {"seats": "n"}, "sums": {"seats": "n"}}, "column n is named twice"),
        ({"distinct": "seats"}, "lists of field names, not text"),
    ],
)
def test_wrong_windows_and_distinct_values_are_refused(more: dict[str, Any], message: str) -> None:
    """When the topology is built."""
    with pytest.raises(TopologyError, match=message):
        AggregateCommitter("t", ["carrier"], **more)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"mins": ["price"], "maxs": ["price"]}, "column price is named twice"),
        ({"sums": {"price": "a_sum"}, "averages": {"price": "a"}}, "column a_sum is named twice"),
        ({"averages": {"price": "a" * 58}}, "is not a column name of 1 to 63 bytes"),
        ({"maxs": "price"}, "lists of field names, not text"),
    ],
)
def test_wrong_declarations_are_refused(more: dict[str, Any], message: str) -> None:
    """P15: names are validated, also those that are made of other names."""
    with pytest.raises(TopologyError, match=message):
        AggregateCommitter("t", ["carrier"], **more)
