"""Where a range of a table may begin, when it is settled, which arguments are refused, what errors mean."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txtopo import TableSpout
from txtopo.errors import BatchDataError, ConfigurationError, TopologyError
from txtopo.spouts.partitioned import NOTHING
from txtopo.spouts.table.database import TableDatabase, database_of, said_by_server
from txtopo.spouts.table.row_ranges import (
    Look,
    OtherServerError,
    OtherTableError,
    RowPiece,
    RowPlace,
    Settled,
    Settling,
    check_after,
    check_xmin,
    settled_by,
)
from txtopo.spouts.table.table_coordinator import TableCoordinator
from txtopo.spouts.table.table_reading import _check_horizon, _checked
from txtopo.spouts.table.table_statements import Statements
from txtopo.topology.components import SpoutContext, Tally

FIELDS = "id bigint"
SECRET = "s3cret-canary"


@given(st.integers(0, 100), st.integers(0, 100), st.booleans())
def test_a_place_is_settled_when_no_transaction_before_it_is_open(at: int, horizon: int, within: bool) -> None:
    """The horizon itself may be open: a place within its transaction is not settled, one before it is."""
    place = RowPlace(at, ("1",) if within else None)
    still_open = range(horizon, 300)
    before = range(at + 1) if within else range(at)
    assert place.is_settled(horizon) == (not {*before} & {*still_open})
    assert RowPlace.of(place.stored) == place


def test_a_horizon_is_used_when_the_disk_has_what_is_below() -> None:
    """At the start of a page the next position is after its header."""
    assert Settling(9, 500).is_on_disk(500)
    assert not Settling(9, 500).is_on_disk(499)
    assert Settling(9, 8192 + 24).is_on_disk(8192)
    assert not Settling(9, 8192 + 80).is_on_disk(8192)
    assert not Settling(9, 8193 + 24).is_on_disk(8193)


def test_a_row_whose_hash_is_0_is_counted() -> None:
    """The sum alone does not see it."""
    asking = Statements(("public", "t"), settled_by("xmin"), ("id",), ("id",))
    found = pa.table({"c0": [b"1", b"2"], "c1": [b"5", b"0"]})
    assert _checked("t", 0, {"rows": 2, "sum": f"{5:016x}"}, found, asking).num_rows == 2
    with pytest.raises(BatchDataError, match=r"planned with 1 rows .* found 2"):
        _checked("t", 0, {"rows": 1, "sum": f"{5:016x}"}, found, asking)


def look(horizon: int, written: int, on_disk: int) -> Look:
    """An answer of a server."""
    return Look(server="7/1", horizon=horizon, in_recovery=True, written=written, on_disk=on_disk, oid=1, file=1)


@pytest.mark.parametrize("once", [False, True])
def test_rows_wait_for_the_disk_of_the_server_and_a_run_does_not_end_before(once: bool) -> None:
    """A crash of the server may give out ids again whose transactions were seen and not yet written to the disk."""
    spout = TableSpout("t", FIELDS)
    context = SpoutContext(topology="t", spout="s", consumed={}, once=once, monotonic=lambda: 0.0, say=print)
    half = spout.get_coordinator({}, context)
    assert isinstance(half, TableCoordinator)
    half._name = "t"
    asked: list[RowPlace] = []

    def nothing(after: RowPlace | None, to: RowPlace, *, unlimited: bool = False) -> tuple[list[RowPiece], RowPlace]:
        asked.append(to)
        return [], to

    half._pieces = nothing  # type: ignore[method-assign]
    for answer, horizon in (
        (look(10, 500, 400), None),
        (look(12, 600, 550), 10),
        (look(12, 600, 600), 10 if once else 12),
    ):
        half._look = answer
        half._settle(answer)
        assert half.next_range("t", None) is NOTHING
        assert asked[-1:] == ([] if horizon is None else [RowPlace(horizon)])
        assert half.is_exhausted() is (horizon is not None)


def half_of(spout: TableSpout, answer: Look) -> TableCoordinator:
    """A driver half that was given an answer of a server in place of asking one."""
    context = SpoutContext(topology="t", spout="s", consumed={}, once=True, monotonic=lambda: 0.0, say=print)
    half = spout.get_coordinator({}, context)
    assert isinstance(half, TableCoordinator)
    half._name = "t"
    half._look = answer
    half._settle(answer)
    return half


def test_rows_of_the_last_transaction_below_the_horizon_are_asked_for() -> None:
    """A range may end within it. With the horizon itself nothing is left."""
    half = half_of(TableSpout("t", FIELDS), look(10, 500, 500))
    asked: list[RowPlace | None] = []

    def nothing(after: RowPlace | None, to: RowPlace, *, unlimited: bool = False) -> tuple[list[RowPiece], RowPlace]:
        asked.append(after)
        return [], to

    half._pieces = nothing  # type: ignore[method-assign]
    last = {"to": {"id": "9", "key": ["7"]}, "settled": "xid8:written_by", "key": [], "server": "7/1", "table": 1}
    half.next_range("t", last)
    half.next_range("t", {**last, "to": {"id": "10"}})
    assert asked == [RowPlace(9, ("7",))]


def test_the_place_of_a_start_at_the_end_does_not_move() -> None:
    """Rows that come before it is in a plan are in the second batch."""
    half = half_of(TableSpout("t", FIELDS, start="latest"), look(10, 500, 500))
    first = half.next_range("t", None)
    half._horizon = 20
    assert half.next_range("t", None) == first
    assert first["from"] == first["to"] == {"id": "10"}


def test_a_redo_waits_for_a_replica_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would find fewer rows."""
    half = half_of(TableSpout("t", FIELDS), look(10, 500, 500))
    monkeypatch.setattr(TableCoordinator, "partition_names", lambda self, known: ["t"])
    planned: dict[str, Any] = {
        "to": {"id": "11"},
        "from": None,
        "settled": "xid8:written_by",
        "key": [],
        "server": "7/1",
        "table": 1,
    }
    with pytest.raises(TimeoutError, match="a replica that has only come to id 10"):
        half.range_again("t", planned)


def test_another_key_cannot_continue_within_a_transaction() -> None:
    """Its order is another one; where a batch ends with its transaction, it can."""
    last = {"to": {"id": "9", "key": ["7"]}, "settled": "xmin", "key": ["id"], "server": "7/1", "table": 1}
    answer = look(10, 500, 500)
    check_after("t", last, answer, Settled(None), ["id"], "halt")
    with pytest.raises(OtherTableError, match=r"at key \(id\), now the key is \(n\)"):
        check_after("t", last, answer, Settled(None), ["n"], "halt")
    check_after("t", {**last, "to": {"id": "9"}}, answer, Settled(None), ["n"], "halt")


def test_xmin_is_refused_where_it_is_not_the_whole_id() -> None:
    """After 4 billion transactions, in the driver and in a task."""
    with pytest.raises(BatchDataError, match="xmin has 32 bits"):
        _check_horizon("t", Statements(("s", "t"), Settled(None), ("id",), ("id",)), RowPlace(7), 2**32)
    check_xmin("t", Settled(None), 2**32 - 1)
    check_xmin("t", Settled("written_by"), 2**40)
    with pytest.raises(OtherTableError, match="xmin has 32 bits"):
        check_xmin("t", Settled(None), 2**32)
    assert not issubclass(OtherServerError, OtherTableError)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TableSpout("", FIELDS), "'' is no name of a table"),
        (lambda: TableSpout("t", FIELDS, settled="id"), "settled 'id' is neither"),
        (lambda: TableSpout("t", FIELDS, settled="xid8:"), "settled 'xid8:' is neither"),
        (lambda: TableSpout("t", FIELDS, key=[]), r"key \[\] is neither"),
        (lambda: TableSpout("t", FIELDS, key=["a", "a"]), "is neither a column nor a list of different"),
        (lambda: TableSpout("t", FIELDS, dsn_env="A", service="a"), "give one of them"),
        (lambda: TableSpout("t", FIELDS, service="a b"), "'a b' is no name of a service"),
        (lambda: TableSpout("t", FIELDS, start="now"), "start 'now' is neither"),  # type: ignore[arg-type]
        (lambda: TableSpout("t", FIELDS, max_rows=0), "max_rows 0 is not"),
        (lambda: TableSpout("t", FIELDS, max_bytes=True), "max_bytes True is not"),
        (lambda: TableSpout("t", FIELDS, on_other_server="go"), "on_other_server 'go' is"),  # type: ignore[arg-type]
        (lambda: TableSpout("t", FIELDS, rejected_max=2), "rejected_max 2 is not"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(make: Callable[[], TableSpout], words: str) -> None:
    """Each in words that name it."""
    with pytest.raises(TopologyError, match=words):
        make()


def test_a_connection_string_is_never_in_what_is_stored_or_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in tasks, plans and descriptions, and not in the words of a string that cannot be read or reached."""
    dsn = f"postgresql://ann:{SECRET}@127.0.0.1:1/shop"
    with pytest.raises(TopologyError) as refused:
        TableSpout("t", FIELDS, dsn_env=dsn)
    monkeypatch.setenv("SHOP_DSN", dsn)
    spout = TableSpout("t", FIELDS, dsn_env="SHOP_DSN")
    kept: list[Any] = [pickle.dumps(spout), spout.describe(), spout._planned_settings(), refused.value]
    with pytest.raises(TimeoutError, match="cannot be reached") as away:
        spout.database.connect()
    kept.append(away.value)
    for wrong in (f"password={SECRET} {SECRET}", f"postgresql://ann:{SECRET}@[x", f"nope={SECRET}"):
        monkeypatch.setenv("SHOP_DSN", wrong)
        with pytest.raises(ConfigurationError, match="SHOP_DSN is no connection string") as unread:
            spout.database.connect()
        kept += [unread.value, unread.value.__cause__]
    assert all(SECRET not in str(one) for one in kept)
    monkeypatch.delenv("SHOP_DSN")
    with pytest.raises(ConfigurationError, match="set SHOP_DSN to a connection string on every host"):
        spout.database.connect()
    assert database_of(None, None) == TableDatabase("TXTOPO_TABLE_DSN")
    assert settled_by("xmin") == Settled(None)


class Said(Exception):
    """An error of the client."""

    def __init__(self, pgcode: str | None) -> None:
        super().__init__(f"words of {pgcode}\nmore")
        self.pgcode = pgcode


def test_what_the_server_says_is_sorted_by_who_is_at_fault() -> None:
    """Unreachable or busy: wait. Not allowed: the rights. Anything else: the batch."""

    for code in (None, "08006", "40001", "53300", "55P03", "57014"):
        assert isinstance(said_by_server(Said(code), "t"), TimeoutError)
    assert isinstance(said_by_server(Said("42501"), "t"), PermissionError)
    error = said_by_server(Said("42703"), "t")
    assert isinstance(error, BatchDataError)
    assert str(error) == "t: the database says: words of 42703"


def test_a_plan_of_another_release_is_not_read() -> None:
    """What reading depends on is in the plan: an entry that is not known may change every value, and halts (R12)."""
    spout = TableSpout("t", FIELDS)
    metadata = {
        "format": {**spout.layout(), "sideways": 1},
        "schema": FIELDS,
        "names": ["public.t"],
        "partitions": [{"range": {"parts": [{"rows": 1}]}}],
    }
    with pytest.raises(BatchDataError, match="'sideways': 1}, which this release cannot read") as refused:
        list(spout.emit_part(metadata, {"partition": 0, "piece": 0}, Tally()))
    assert refused.value.halts
