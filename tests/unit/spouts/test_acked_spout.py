"""The spouts of Storm's ack API over batches: a message is in one planned batch, acked once COMMIT is known, failed
when it is quarantined.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from txtopo.errors import BatchDataError
from txtopo.spouts.acked_spout import AckedCoordinator, ReliableSpout, RichSpout, SpoutOutputCollector, UnreliableSpout
from txtopo.topology.components import SpoutContext, Tally
from txtopo.topology.tuple_bolts import FailedException

CONTEXT = SpoutContext(
    topology="t", spout="queue", consumed={}, once=True, monotonic=lambda: 0.0, say=lambda line: None
)


class Broker:
    """Messages on their way, and what became of them."""

    def __init__(self, *messages: tuple[Any, Sequence[Any]]) -> None:
        self.waiting = deque(messages)
        self.told: list[Any] = []
        self.error: Exception | None = None

    def emit_next(self, collector: SpoutOutputCollector) -> None:
        if self.error is not None:
            raise self.error
        if self.waiting:
            message_id, values = self.waiting.popleft()
            collector.emit(values, message_id)


class Queue(RichSpout):
    """Two messages a batch."""

    outputs = ["word string"]
    batch_size = 2

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def next_tuple(self, collector: SpoutOutputCollector) -> None:
        self.broker.emit_next(collector)

    def ack(self, message_id: Any) -> None:
        self.broker.told.append(("ack", message_id))

    def fail(self, message_id: Any) -> None:
        self.broker.told.append(("fail", message_id))


def opened(spout: RichSpout) -> AckedCoordinator:
    coordinator = spout.open_coordinator(CONTEXT)
    assert isinstance(coordinator, AckedCoordinator)
    return coordinator


def planned(coordinator: AckedCoordinator, txid: int) -> Any:
    """The metadata of the next batch as it comes back from storage."""
    assert coordinator.is_ready()
    return json.loads(json.dumps(coordinator.initialize_transaction(txid, None)))


def rows(spout: RichSpout, metadata: Any) -> list[tuple[Any, ...]]:
    tally = Tally()
    found = [
        tuple(row.values())
        for part in spout.parts(metadata)
        for batch in spout.emit_part(metadata, part, tally)
        for row in batch.to_pylist()
    ]
    assert tally.read == len(found)
    return found


def test_a_batch_is_what_was_emitted_and_no_more_than_its_size() -> None:
    """The tuples stand in the metadata: a replay does not need the source."""
    spout = Queue(Broker(("m1", ["a"]), ("m2", ["b"]), ("m3", ["c"])))
    coordinator = opened(spout)

    one = planned(coordinator, 1)
    two = planned(coordinator, 2)

    assert (rows(spout, one), rows(spout, one), rows(spout, two)) == ([("a",), ("b",)], [("a",), ("b",)], [("c",)])
    assert not coordinator.is_ready()
    assert spout.batch_bytes(one) > spout.batch_bytes(two) > 0


def test_nothing_is_acked_before_the_commit_is_known() -> None:
    """`ack` follows the COMMIT; a quarantined batch fails its messages."""
    broker = Broker(("m1", ["a"]), ("m2", ["b"]), ("m3", ["c"]))
    coordinator = opened(Queue(broker))
    one, two = planned(coordinator, 1), planned(coordinator, 2)
    assert broker.told == []

    coordinator.settled(1, one, "applied")
    coordinator.settled(2, two, "quarantined")

    assert broker.told == [("ack", "m1"), ("ack", "m2"), ("fail", "m3")]


def test_a_message_without_id_is_neither_acked_nor_failed() -> None:
    """AK-08 (iii): emit without message id: neither ack nor fail, not counted as pending."""
    broker = Broker((None, ["a"]), ("m2", ["b"]))
    coordinator = opened(Queue(broker))
    one = planned(coordinator, 1)

    coordinator.settled(1, one, "applied")
    coordinator.settled(1, one, "quarantined")

    assert broker.told == [("ack", "m2"), ("fail", "m2")]


def test_messages_of_an_earlier_driver_are_acked_by_their_ids() -> None:
    """After a restart the metadata knows ids and values; a tuple as id comes back as a tuple."""
    before = Broker((("p", 7), ["a"]), (12, ["b"]))
    one = planned(opened(Queue(before)), 1)
    after = Broker()

    opened(Queue(after)).settled(1, one, "applied")

    assert (before.told, after.told) == ([], [("ack", ("p", 7)), ("ack", 12)])


def test_who_wants_the_values_back_gets_them() -> None:
    """JStorm's IAckValueSpout: ack(messageId, values), fail(messageId, values); exact also where JSON has no such type."""  # noqa: E501
    values = [
        "x",
        Decimal("1.50"),
        date(2024, 5, 17),
        datetime(2024, 5, 17, 12, tzinfo=UTC),
        datetime(2024, 5, 17, 12),
        b"\xff",
        float("inf"),
        None,
        True,
    ]

    class Valued(Queue):
        outputs = [
            "s string",
            "d decimal(9,2)",
            "day date",
            "at timestamp",
            "wall timestamp_ntz",
            "raw binary",
            "f double",
            "n int",
            "b boolean",
        ]

        def ack_value(self, message_id: Any, values: Sequence[Any]) -> None:
            self.broker.told.append(("ack", message_id, values))

        def fail_value(self, message_id: Any, values: Sequence[Any]) -> None:
            self.broker.told.append(("fail", message_id, values))

    spout = Valued(Broker(("m", values)))
    coordinator = opened(spout)
    one = planned(coordinator, 1)
    coordinator.settled(1, one, "applied")
    coordinator.settled(1, one, "quarantined")

    assert spout.broker.told == [("ack", "m", values), ("fail", "m", values)]
    assert rows(spout, one) == [tuple(values)]


def test_a_run_once_waits_until_every_batch_is_settled() -> None:
    """What fails may be emitted again; without acks there is nothing to wait for."""
    coordinator = opened(Queue(Broker(("m1", ["a"]))))
    one = planned(coordinator, 1)
    assert not coordinator.is_ready()
    assert not coordinator.is_exhausted()
    coordinator.settled(1, one, "applied")
    assert coordinator.is_exhausted()

    unreliable = opened(Careless(Broker((None, ["a"]))))
    planned(unreliable, 1)
    assert not unreliable.is_ready()
    assert unreliable.is_exhausted()


class Careless(UnreliableSpout):
    outputs = ["word string"]

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def next_tuple(self, collector: SpoutOutputCollector) -> None:
        self.broker.emit_next(collector)


def test_what_a_spout_with_and_without_acks_guarantees() -> None:
    assert [(spout.kind, spout.wants_settled) for spout in (Queue, Careless, Retrying)] == [
        ("at_least_once", True),
        ("at_most_once", False),
        ("at_least_once", True),
    ]


def test_an_unreliable_spout_emits_without_ids() -> None:
    with pytest.raises(BatchDataError, match="queue is an unreliable spout: it emits without message ids"):
        opened(Careless(Broker(("m1", ["a"])))).is_ready()


def test_what_was_pulled_before_an_error_is_not_lost() -> None:
    """FailedException and OSError are trouble that may pass; the next batch begins with what was emitted."""
    broker = Broker(("m1", ["a"]))

    class Breaking(Queue):
        def next_tuple(self, collector: SpoutOutputCollector) -> None:
            super().next_tuple(collector)
            if not broker.waiting and broker.error is None:
                broker.error = FailedException("broker away")

    spout = Breaking(broker)
    coordinator = opened(spout)
    with pytest.raises(OSError, match="queue: next_tuple failed: broker away"):
        coordinator.is_ready()
    broker.error = None
    broker.waiting.append(("m2", ["b"]))

    assert rows(spout, planned(coordinator, 1)) == [("a",), ("b",)]


@pytest.mark.parametrize(
    ("message_id", "values", "why"),
    [
        ("m", [7], "message 'm': field word: 7 is a int"),
        ("m", ["a", "b"], "message 'm': .* is no tuple of 1 values"),
        (None, "a", "a message: 'a' is no tuple"),
        (1.5, ["a"], "message id 1.5 is neither text"),
        (True, ["a"], "message id True"),
        ((1, None), ["a"], "message id None"),
    ],
)
def test_a_message_that_cannot_be_in_a_batch_is_named(message_id: Any, values: Any, why: str) -> None:
    with pytest.raises(BatchDataError, match=why) as caught:
        opened(Queue(Broker((message_id, values)))).is_ready()

    assert caught.value.component == "queue"


def test_a_failing_tuple_is_told_by_its_message() -> None:
    spout = Queue(Broker(("m1", ["a"]), (None, ["b"])))
    metadata = planned(opened(spout), 1)

    places = [spout.locate(metadata, {}, number) for number in range(3)]

    assert [place and (place.position, place.raw) for place in places] == [
        ("message 'm1'", '{"word": "a"}'),
        ("tuple 2", '{"word": "b"}'),
        None,
    ]


def test_a_mistake_in_ack_names_the_spout_and_the_line() -> None:
    class Wrong(Queue):
        def ack(self, message_id: Any) -> None:
            raise KeyError(message_id)

    coordinator = opened(Wrong(Broker(("m1", ["a"]))))
    with pytest.raises(BatchDataError, match=r"test_acked_spout\.py:\d+: KeyError in ack"):
        coordinator.settled(1, planned(coordinator, 1), "applied")


# ------------------------------------------------------------------------------------------------- pystorm's ReliableSp


class Retrying(ReliableSpout):
    outputs = ["word string"]
    batch_size = 2

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def open(self, config: Any, context: SpoutContext) -> None:
        self.broker.told.append(self)  # the copy that runs

    def next_tuple(self, collector: SpoutOutputCollector) -> None:
        self.broker.emit_next(collector)


def retrying(*messages: tuple[Any, Sequence[Any]]) -> tuple[Retrying, AckedCoordinator]:
    broker = Broker(*messages)
    coordinator = opened(Retrying(broker))
    return broker.told[0], coordinator


def test_a_reliable_spout_needs_ids() -> None:
    """PY-06: emit without id: value error."""
    running, _ = retrying()

    with pytest.raises(ValueError, match="needs an id for every message"):
        running.collector.emit(["a"])


def test_an_ack_clears_the_books() -> None:
    """PY-06: ack: bookkeeping cleared."""
    running, coordinator = retrying(("m", ["a"]))
    one = planned(coordinator, 1)
    running.fails["m"] = 2
    assert running.unacked == {"m": ("a",)}

    coordinator.settled(1, one, "applied")

    assert (running.unacked, dict(running.fails)) == ({}, {})


def test_a_message_that_failed_is_emitted_again() -> None:
    """PY-06: fail with 2 previous: counter 3 and re-emitted with the same id and values."""
    running, coordinator = retrying(("m", ["a"]))
    one = planned(coordinator, 1)
    running.fails["m"] = 2

    coordinator.settled(1, one, "quarantined")

    assert running.fails["m"] == 3
    two = planned(coordinator, 2)
    assert two["tuples"] == [[["a"], "m"]]


def test_a_message_that_failed_too_often_counts_as_acked() -> None:
    """PY-06: fail with 3 previous: not re-emitted, treated as acked."""
    running, coordinator = retrying(("m", ["a"]))
    one = planned(coordinator, 1)
    running.fails["m"] = 3

    coordinator.settled(1, one, "quarantined")

    assert not coordinator.is_ready()
    assert (running.unacked, dict(running.fails)) == ({}, {})


def test_who_gives_a_message_up_may_keep_it_elsewhere() -> None:
    """`give_up` is called in place of `ack`; the books are cleared all the same."""
    kept = []

    class Keeping(Retrying):
        def give_up(self, message_id: Any) -> None:
            kept.append((message_id, self.unacked[message_id]))

    broker = Broker(("m", ["a"]))
    coordinator = opened(Keeping(broker))
    running = broker.told[0]
    one = planned(coordinator, 1)
    running.fails["m"] = 3

    coordinator.settled(1, one, "quarantined")

    assert kept == [("m", ("a",))]
    assert (running.unacked, dict(running.fails)) == ({}, {})
    assert not coordinator.is_ready()


def test_what_failed_comes_again_in_batches_of_their_own_before_anything_new() -> None:
    """It may have failed because of another message of its batch: alone it is committed."""
    _, coordinator = retrying(("m1", ["a"]), ("m2", ["b"]), ("m3", ["c"]), ("m4", ["d"]))
    one = planned(coordinator, 1)
    first = len(one["tuples"])

    coordinator.settled(1, one, "quarantined")

    again = [planned(coordinator, txid)["tuples"] for txid in range(2, 2 + first)]
    assert again == [[entry] for entry in one["tuples"]]
    assert not coordinator.is_exhausted()


def test_an_id_cannot_stand_for_two_messages_at_once() -> None:
    """Its first values would be lost when it fails. What is refused is in nobody's books."""
    running, coordinator = retrying(("m", ["a"]), ("m", ["b"]))

    with pytest.raises(
        BatchDataError, match="message 'm' is neither acked nor failed yet, and is emitted again with other values"
    ):
        coordinator.is_ready()
    assert running.unacked == {"m": ("a",)}
    with pytest.raises(BatchDataError, match="message 'n'"):
        running.collector.emit([5], "n")
    assert running.unacked == {"m": ("a",)}


def test_a_list_that_is_used_again_is_remembered_as_it_was() -> None:
    values = ["a"]
    running, _ = retrying()
    running.collector.emit(values, "m")
    values[0] = "b"

    assert running.unacked == {"m": ("a",)}


def test_a_failure_of_an_earlier_driver_is_left_to_the_source() -> None:
    """It was never acked, so that the source gives it again: emitted twice it would count twice."""
    _, coordinator = retrying()

    coordinator.settled(1, {"txid": 1, "tuples": [[["a"], "m"]]}, "quarantined")

    assert not coordinator.is_ready()


def test_the_books_are_those_of_one_leader() -> None:
    spout = Retrying(Broker(("m", ["a"])))
    planned(opened(spout), 1)

    opened(spout)

    first, second = spout.broker.told
    assert (first.unacked, second.unacked) == ({"m": ("a",)}, {})
