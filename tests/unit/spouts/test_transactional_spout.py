"""TransactionalSpout: Storm's two halves over the port, and tuples as record batches of the declared fields (STORM.md
1.2).
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from txtopo.core.fields import parse_fields
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError, TopologyError
from txtopo.spouts.transactional import Coordinator, Emitter, EmitterContext, TransactionalSpout
from txtopo.spouts.tuple_emitter import ROWS_PER_BATCH, emit_tuples
from txtopo.topology.components import SpoutContext, Tally


def context(previous: Any = None, config: Mapping[str, Any] | None = None) -> SpoutContext:
    return SpoutContext(
        topology="t",
        spout="numbers",
        consumed={},
        once=True,
        monotonic=lambda: 0.0,
        say=lambda line: None,
        previous=previous,
        config=config or {},
    )


class Numbers(TransactionalSpout):
    """Ranges of three, from where the batch before ended."""

    outputs = ["n bigint", "attempt string"]
    end = 6

    def __init__(self) -> None:
        self.next = 0

    def is_ready(self) -> bool:
        return self.next < self.end

    def initialize_transaction(self, txid: int, previous: Any) -> Any:
        start = 0 if previous is None else previous["end"]
        self.next = start + 3
        return {"start": start, "end": self.next}

    def emit_batch(self, attempt: TransactionAttempt, metadata: Any) -> Iterator[Any]:
        return ((n, str(attempt)) for n in range(metadata["start"], metadata["end"]))


class InStormsShape(TransactionalSpout):
    """Halves of their own; two tasks emit a batch."""

    outputs = ["n bigint"]
    config = {"step": 2}
    emitters = 2

    def get_coordinator(self, config: Mapping[str, Any], context: SpoutContext) -> Coordinator:
        return Halves(dict(config), context.previous)

    def get_emitter(self, config: Mapping[str, Any], context: EmitterContext) -> Emitter:
        return Halves({**config, "index": context.index, "tasks": context.tasks}, None)


class Halves:
    """Metadata may be any JSON value, here a number."""

    def __init__(self, config: dict[str, Any], previous: Any) -> None:
        self.config = config
        self.stands_at = previous
        self.closed = False

    def initialize_transaction(self, txid: int, previous: Any) -> Any:
        return (previous or 0) + self.config["step"] * self.config.get("factor", 1)

    def is_ready(self) -> bool:
        return self.stands_at is None

    def close(self) -> None:
        self.closed = True

    def emit_batch(self, attempt: TransactionAttempt, metadata: Any) -> Sequence[Any]:
        return [(n,) for n in range(metadata) if n % self.config["tasks"] == self.config["index"]]


def rows(batches: Iterator[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_a_txid_follows_the_one_before_and_is_emitted_the_same_again_and_again() -> None:
    """STORM.md 1.2: initializeTransaction(txid, prevMeta) once a txid, emitBatch(attempt, metadata) as often as needed."""  # noqa: E501
    spout = Numbers()
    coordinator = spout.open_coordinator(context())
    assert coordinator.is_ready()
    one = coordinator.initialize_transaction(1, None)
    two = coordinator.initialize_transaction(2, one)
    (part,) = spout.parts(two)

    first, again = Tally(), Tally(attempt=TransactionAttempt(2, 4))
    assert rows(spout.emit_part(two, part, first)) == [(3, "2:0"), (4, "2:0"), (5, "2:0")]
    assert rows(spout.emit_part(two, part, again)) == [(3, "2:4"), (4, "2:4"), (5, "2:4")]
    assert first.read == again.read == 3
    assert not coordinator.is_ready()
    assert coordinator.is_exhausted()


def test_the_coordinator_half_is_fresh_for_every_leader() -> None:
    spout = Numbers()
    spout.open_coordinator(context()).initialize_transaction(1, None)

    assert spout.next == 0


def test_halves_of_their_own_get_configuration_and_context() -> None:
    """Storm's getCoordinator(conf, context) and getEmitter(conf, context); the spout's settings come over the
    topology's.
    """
    spout = InStormsShape()
    coordinator = spout.open_coordinator(context(config={"factor": 3, "step": 99}))
    one = coordinator.initialize_transaction(1, None)
    two = coordinator.initialize_transaction(2, one)

    assert [rows(spout.emit_part(two, part, Tally())) for part in spout.parts(two)] == [
        [(0,), (2,), (4,), (6,), (8,), (10,)],
        [(1,), (3,), (5,), (7,), (9,), (11,)],
    ]
    assert coordinator.is_ready()
    assert not spout.open_coordinator(context(previous=two)).is_ready()


def test_a_spout_is_shipped_as_it_is() -> None:
    """Must be picklable and copyable: tasks and leaders get copies."""
    spout = Numbers()

    assert pickle.loads(pickle.dumps(spout)).fields == copy.deepcopy(spout).fields == spout.fields


@pytest.mark.parametrize(("given", "names"), [("n bigint", ("n",)), (parse_fields("a string, b int"), ("a", "b"))])
def test_fields_may_be_set_when_it_is_made(given: Any, names: tuple[str, ...]) -> None:
    spout = Numbers()
    spout.fields = given

    assert spout.fields.names == names


def test_fields_as_plain_text_are_refused() -> None:
    with pytest.raises(TopologyError, match=r"outputs = \['n bigint'\]"):

        class Wrong(Numbers):
            outputs = "n bigint"  # type: ignore[assignment]


# ----------------------------------------------------------------------------------------------------------------------


FIELDS = parse_fields(
    "s string, b boolean, i int, d double, f float, dec decimal(6,2), day date, at timestamp, wall timestamp_ntz, "
    "raw binary"
)
NOON = datetime(2024, 5, 17, 12, 0, tzinfo=UTC)
GOOD = ("x", True, 7, 1.5, 2, Decimal("12.34"), date(2024, 5, 17), NOON, datetime(2024, 5, 17, 12, 0), b"\0")


def test_every_declared_type_takes_its_python_values() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5)))
    good = [GOOD, [None] * 10, (*GOOD[:7], elsewhere, *GOOD[8:])]

    first, second, third = rows(emit_tuples(good, FIELDS, Tally(), ""))

    assert first == third == GOOD
    assert second == (None,) * 10


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("s", 7, "is a int, the field is declared string"),
        ("s", b"x", "is a bytes"),
        ("s", "\ud800", "does not fit string"),
        ("b", 1, "is a int, the field is declared boolean"),
        ("i", True, "is a bool, the field is declared int"),
        ("i", 2**31, "does not fit int"),
        ("i", 1.0, "is a float"),
        ("d", "1.5", "is a str"),
        ("f", 1e300, "would become infinite"),
        ("dec", Decimal("1.234"), "does not fit decimal"),
        ("dec", 1.5, "is a float"),
        ("day", NOON, "is a datetime"),
        ("at", datetime(2024, 5, 17), "with a time zone"),
        ("wall", NOON, "without a time zone"),
        ("raw", "x", "is a str"),
    ],
)
def test_a_value_that_would_be_changed_is_refused_by_name(field: str, value: Any, why: str) -> None:
    """Field, value and place are named; nothing is cast without a word."""
    at = FIELDS.names.index(field)
    bad = (*GOOD[:at], value, *GOOD[at + 1 :])

    with pytest.raises(BatchDataError, match=rf"part 3 tuple 2: field {field}: .*{why}"):
        list(emit_tuples([GOOD, bad], FIELDS, Tally(), "part 3"))


def test_null_is_refused_where_the_field_is_not_null() -> None:
    fields = parse_fields("n bigint not null")

    with pytest.raises(BatchDataError, match="tuple 2: field n: None is NULL"):
        list(emit_tuples([(1,), (None,)], fields, Tally(), ""))
    with pytest.raises(BatchDataError, match="a record batch has NULL"):
        list(emit_tuples([pa.record_batch({"n": pa.array([None], pa.int64())})], fields, Tally(), ""))


@pytest.mark.parametrize("item", ["ab", 7, (1, 2), {"n": 1}, None, ()])
def test_what_is_no_tuple_of_the_declared_width_is_refused(item: Any) -> None:
    with pytest.raises(BatchDataError, match=r"tuple 1: .* is no tuple of 1 values"):
        list(emit_tuples([item], parse_fields("n bigint"), Tally(), ""))


def test_tuples_and_record_batches_keep_their_order() -> None:
    """Mixed as they come; counted all the same; bounded batches."""
    fields, tally = parse_fields("n bigint"), Tally()
    ready = pa.record_batch({"n": pa.array([2, 3], pa.int64())})
    emitted = [(1,), ready, pa.Table.from_batches([ready]), *((n,) for n in range(ROWS_PER_BATCH + 1))]

    batches = list(emit_tuples(emitted, fields, tally, ""))

    assert [row for batch in batches for row in batch.column(0).to_pylist()][:6] == [1, 2, 3, 2, 3, 0]
    assert tally.read == sum(batch.num_rows for batch in batches) == 5 + ROWS_PER_BATCH + 1
    assert max(batch.num_rows for batch in batches) == ROWS_PER_BATCH


@pytest.mark.parametrize(
    "columns", [{"m": pa.array([1])}, {"n": pa.array(["1"])}, {"n": pa.array([1]), "m": pa.array([1])}]
)
def test_a_record_batch_has_exactly_the_declared_columns(columns: Any) -> None:
    with pytest.raises(BatchDataError, match="a record batch has the columns"):
        list(emit_tuples([pa.record_batch(columns)], parse_fields("n bigint"), Tally(), ""))
