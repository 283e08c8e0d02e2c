"""SqlTableSpout on files of SQLite, with a clock of the test's own: ranges of keys, settling, late rows, values."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from txtopo import CountCommitter, SqlTableSpout, TopologyBuilder
from txtopo.audit.readers.kafka_reader import NoRangeError
from txtopo.audit.readers.sql_table_reader import SqlTableReader, _text
from txtopo.audit.readers.table_reader import OtherRangeError
from txtopo.cli.explain import explain_text
from txtopo.cli.explaining import WavesExplained, explained
from txtopo.config import load_settings
from txtopo.core.fields import parse_fields
from txtopo.core.plan import Metadata
from txtopo.errors import BatchDataError, ConfigurationError, TopologyError
from txtopo.spouts.table import pieced_spout, sql_database
from txtopo.spouts.table.sql_database import SqlDatabase, identity_of, said_by_database
from txtopo.spouts.table.sql_rows import spelled
from txtopo.spouts.table.sql_table import SqlTable
from txtopo.testing import TopologyHarness
from txtopo.topology.components import SpoutContext, SpoutCoordinator, Tally

VARIABLE = "SHOP_URL"
SECRET = "s3cret-canary"
ORDERS = "create table orders (id integer primary key autoincrement, shop text, pieces int)"


class Clock:
    """Seconds that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database with a table of orders."""
    monkeypatch.setenv(VARIABLE, f"sqlite:///{tmp_path}/shop.db")
    run(tmp_path / "shop.db", ORDERS)
    return tmp_path / "shop.db"


def run(database: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run one statement."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("pragma synchronous = off")
        with connection:
            return connection.execute(statement, values).fetchall()


def add(database: Path, *numbers: int) -> None:
    """Add orders with these numbers."""
    for number in numbers:
        run(database, "insert into orders (id, shop, pieces) values (?, 's' || (? % 2), ?)", number, number, number)


def orders(**settings: Any) -> SqlTableSpout:
    """A spout over the table."""
    settings = {"settled_s": 0, "url_env": VARIABLE, "fields": "id bigint, shop string, pieces int", **settings}
    return SqlTableSpout(settings.pop("table", "orders"), settings.pop("fields"), **settings)


def half_of(
    spout: SqlTableSpout,
    clock: Callable[[], float] | None = None,
    *,
    once: bool = False,
    previous: Metadata | None = None,
    said: list[str] | None = None,
) -> SpoutCoordinator:
    """The driver half of a spout."""
    return spout.open_coordinator(
        SpoutContext(
            topology="t",
            spout="s",
            consumed={},
            once=once,
            monotonic=clock or Clock(),
            say=(said if said is not None else []).append,
            previous=previous,
        )
    )


def planned(half: SpoutCoordinator, previous: Metadata | None = None, txid: int = 1) -> Metadata:
    """The metadata of the next batch, which is there."""
    assert half.is_ready()
    return half.initialize_transaction(txid, previous)


def range_of(metadata: Metadata) -> Any:
    """The only range of a batch."""
    return metadata["partitions"][0]["range"]


def rows_of(spout: SqlTableSpout, metadata: Metadata, tally: Tally | None = None) -> list[tuple[Any, ...]]:
    """The rows of all parts of a batch."""
    found: list[tuple[Any, ...]] = []
    for part in spout.parts(metadata):
        for batch in spout.emit_part(metadata, part, tally or Tally()):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def ids(spout: SqlTableSpout, metadata: Metadata) -> list[int]:
    """The keys of a batch."""
    return [row[0] for row in rows_of(spout, metadata)]


def audited(metadata: Metadata) -> list[Any]:
    """What the audit reads of a batch."""
    reader = SqlTableReader(metadata["format"], parse_fields(metadata["schema"]))
    return list(reader.read(metadata["names"][0], range_of(metadata)))


def test_ranges_tile_and_are_cut_by_rows_and_by_bytes(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is in exactly one batch and one piece; a row is found again by its number."""
    monkeypatch.setattr(pieced_spout, "PIECE_ROWS", 3)
    add(shop, *range(1, 26), 30)
    spout = orders(max_rows=10)
    half = half_of(spout)
    batches = [planned(half)]
    while half.is_ready():
        batches.append(half.initialize_transaction(len(batches) + 1, batches[-1]))
    assert [[part["rows"] for part in range_of(one)["parts"]] for one in batches] == [
        [3, 3, 3, 1],
        [3, 3, 3, 1],
        [3, 3],
    ]
    assert [key for one in batches for key in ids(spout, one)] == [*range(1, 26), 30]
    assert [(range_of(one)["from"], range_of(one)["to"]) for one in batches] == [(None, 10), (10, 20), (20, 30)]
    position = spout.locate(batches[1], spout.parts(batches[1])[1], 1)
    assert position is not None
    assert (position.position, position.raw) == ("orders, row 5", '{"id": "15", "shop": "s1", "pieces": "15"}')
    by_bytes = orders(max_bytes=1)
    assert ids(by_bytes, planned(half_of(by_bytes))) == [1]
    assert [read.values[0] for one in batches for read in audited(one)] == [*range(1, 26), 30]


def test_rows_wait_until_what_was_below_them_has_settled(shop: Path) -> None:
    """A row is read `settled_s` after a row with its key or a higher one was seen; a new driver waits again."""
    clock, spout = Clock(), orders(settled_s=60)
    half = half_of(spout, clock)
    add(shop, 2)
    assert not half.is_ready()
    clock.now = 30
    add(shop, 3, 1)  # 1 comes late, and in time.
    assert not half.is_ready()
    assert half.ready_in_s() == 30  # type: ignore[attr-defined]
    clock.now = 59.9
    assert not half.is_ready()
    clock.now = 60
    first = planned(half)
    assert ids(spout, first) == [1, 2]
    assert not half.is_ready()
    clock.now = 90
    assert ids(spout, planned(half, first, 2)) == [3]

    second = half_of(spout, clock, previous=first)
    assert not second.is_ready()
    clock.now = 150
    assert ids(spout, planned(second, first, 2)) == [3]


def test_looks_are_not_remembered_without_end(shop: Path) -> None:
    """A table that grows all the time has its rows after `settled_s` and a twentieth of it."""
    clock, spout = Clock(), orders(settled_s=60)
    half = spout.get_coordinator({}, context(clock))
    for number in range(1, 200):
        clock.now = number / 2
        add(shop, number)
        half.partition_names({})
    found = half.next_range("orders", None)
    assert 199 - 2 * 60 - 2 * 3 - 1 <= found["to"] <= 199 - 2 * 60
    assert len(half._marks) <= 21  # type: ignore[attr-defined]


def context(clock: Callable[[], float]) -> SpoutContext:
    """What a coordinator half receives."""
    return SpoutContext(topology="t", spout="s", consumed={}, once=False, monotonic=clock, say=print)


def test_a_row_that_comes_later_than_the_user_said_halts_or_is_told(shop: Path) -> None:
    """It is in no batch: it is noticed when the next range is planned, and by the audit; a recompute counts it."""
    add(shop, 1, 2, 5)
    spout, said = orders(), list[str]()
    first = planned(half_of(spout))
    add(shop, 3, 9)
    with pytest.raises(BatchDataError, match=r"1 rows with keys up to 5 .* settled_s=0 .* on_late='continue'"):
        half_of(spout, previous=first).is_ready()
    with pytest.raises(OtherRangeError, match="has 4 rows where 3 were planned"):
        audited(first)
    lenient = orders(on_late="continue")
    half = half_of(lenient, previous=first, said=said)
    second = planned(half, first, 2)
    assert ids(lenient, second) == [9]
    assert "1 rows with keys up to 5" in "".join(said)
    again = half.initialize_redo(first)
    assert ids(lenient, again) == [1, 2, 3, 5]
    assert (range_of(again)["from"], range_of(again)["to"]) == (None, 5)


def test_a_deleted_row_hides_no_late_one(shop: Path) -> None:
    """What was found when it was counted last is compared, of as many ranges as a batch has rows."""
    add(shop, 1, 2, 5, 8)
    spout = orders(max_rows=2)
    half = half_of(spout)
    first = planned(half)
    second = planned(half, first, 2)
    run(shop, "delete from orders where id in (5, 8)")
    add(shop, 10)
    third = planned(half, second, 3)
    assert ids(spout, third) == [10]
    add(shop, 7, 11, 12)
    run(shop, "delete from orders where id = 10")
    fourth = planned(half, third, 4)
    add(shop, 13, 14)
    assert ids(spout, fourth) == [11, 12]
    wide = orders(max_rows=100)
    half = half_of(wide)
    first = planned(half)
    add(shop, 20)
    second = planned(half, first, 2)
    add(shop, 6, 21)
    with pytest.raises(BatchDataError, match="1 rows with keys up to 20"):
        planned(half, second, 3)


@pytest.mark.parametrize(
    "change",
    [
        "update orders set pieces = pieces + 1 where id = 2",
        "update orders set pieces = 3 - pieces where id < 3",
        "delete from orders where id = 2",
        "insert into orders values (3, 'late', 1)",
        "update orders set shop = hex(zeroblob(1000))",
    ],
)
def test_rows_that_are_not_as_planned_fail_the_batch(shop: Path, change: str) -> None:
    """A changed, deleted or added row is never counted in place of the planned ones; a redo plans what is there."""
    add(shop, 1, 2, 4)
    spout = orders()
    half = half_of(spout)
    batch = planned(half)
    assert rows_of(spout, batch) == rows_of(spout, batch)
    run(shop, change)
    with pytest.raises(BatchDataError, match=r"orders: rows were changed, deleted or added .* planned with 3 rows"):
        rows_of(spout, batch)
    with pytest.raises((OtherRangeError, NoRangeError)):
        audited(batch)
    again = half.initialize_redo(batch)
    assert len(rows_of(spout, again)) == run(shop, "select count(*) from orders")[0][0]


def test_another_table_or_database_halts(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose keys may begin anew, unless it is said that new rows have higher ones."""
    add(shop, 1, 2)
    spout, other = orders(), orders(on_other_table="continue")
    first = planned(half_of(spout))
    run(shop, "delete from orders")
    with pytest.raises(BatchDataError, match="ends at key 2, and the highest key is None: rows were deleted, or"):
        half_of(spout, previous=first).is_ready()
    run(shop, "insert into orders (shop, pieces) values ('s', 1)")
    assert ids(other, planned(half_of(other, previous=first), first, 2)) == [3]
    run(shop, "create unique index u on orders (pieces)")
    with pytest.raises(BatchDataError, match="by key 'id', now it is 'number'"):
        run(shop, "create table t (id int, shop text, pieces int, number integer primary key autoincrement)")
        moved = {**first, "names": ["t"]}
        half_of(orders(table="t"), previous=moved).is_ready()
    monkeypatch.setenv(VARIABLE, f"sqlite:///{tmp_path}/copy.db")
    (tmp_path / "copy.db").write_bytes(shop.read_bytes())
    with pytest.raises(BatchDataError, match=r"planned in database sqlite:///.*shop.db, this is sqlite:///.*copy.db"):
        half_of(spout, previous=first).is_ready()
    with pytest.raises(NoRangeError, match="was read in sqlite"):
        audited(first)


@pytest.mark.parametrize(
    ("made", "settings", "words"),
    [
        ("create table t (id integer primary key)", {}, "make the table with id integer primary key autoincrement"),
        ("create table t (a int, b int, id int, primary key (a, b))", {}, "its primary key has 2 columns"),
        ("create table t (id integer)", {}, "its primary key has 0 columns"),
        ("create table t (id text primary key)", {"fields": "id string"}, "key 'id' has no whole numbers"),
        ("create table t (id integer not null)", {"key": "id"}, "key 'id' is not unique"),
        ("create table t (id integer unique)", {"key": "id"}, "key 'id' may be NULL"),
        ("create table t (id integer)", {"key": "number"}, "there is no column 'number', which is the key"),
        ("create table t (at integer primary key autoincrement)", {}, "there is no column 'id'; it has at"),
        ("create view t as select id from orders", {}, "it is a view"),
        ("select 1", {}, "t: there is no such table"),
        (
            "create table t (id integer primary key autoincrement, price numeric)",
            {"fields": "price decimal(10,2)"},
            "column 'price' has NUMERIC, declared decimal",
        ),
        (
            "create table t (id integer primary key autoincrement, price real)",
            {"fields": "price decimal(10,2)"},
            "has floating point, declared .*: declare it as double",
        ),
        (
            "create table t (id integer primary key autoincrement, at datetime)",
            {"fields": "at timestamp"},
            "has time, declared timestamp: declare it as timestamp_ntz",
        ),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(shop: Path, made: str, settings: dict[str, Any], words: str) -> None:
    """With what can be done."""
    run(shop, made)
    with pytest.raises(BatchDataError, match=words):
        half_of(orders(**{"table": "t", "fields": "id bigint", **settings})).is_ready()


VALUES: tuple[tuple[str, str, object, object], ...] = (
    ("integer", "bigint", -7, -7),
    ("integer", "int", 2**40, None),
    ("integer", "bigint", "seven", None),
    ("integer", "decimal(5,2)", 120, Decimal("120.00")),
    ("real", "double", 1e300, 1e300),
    ("real", "double", "x", None),
    ("boolean", "boolean", 1, True),
    ("boolean", "boolean", 2, None),
    ("date", "date", "2026-02-03", date(2026, 2, 3)),
    ("date", "date", "0000-00-00", None),
    ("datetime", "timestamp_ntz", "2026-02-03 04:05:06.5", datetime(2026, 2, 3, 4, 5, 6, 500000)),
    ("datetime", "timestamp_ntz", 1700000000, None),
    ("blob", "binary", b"\x00\xff", b"\x00\xff"),
    ("blob", "binary", "text", None),
    ("text", "string", 'a "quoted",\n\\.\r ä line', 'a "quoted",\n\\.\r ä line'),
    ("text", "string", "", ""),
    ("text", "string", b"bytes", None),
    ("text", "string", "a\0b", None),
    ("real", "double", float("inf"), float("inf")),
    ("integer", "decimal(30,0)", 2**63 - 1, Decimal(2**63 - 1)),
    ("text", "string", None, None),
)


def test_values_are_those_of_the_table_or_the_row_is_rejected(shop: Path) -> None:
    """Each type by tasks and audit: the value exactly, or a rejected row with its key, which the audit rejects, too."""
    columns = [f"c{number}" for number in range(len(VALUES))]
    made = ", ".join(f"{name} {value[0]}" for name, value in zip(columns, VALUES, strict=True))
    run(shop, f"create table t (k integer primary key autoincrement, {made})")
    for number, (name, value) in enumerate(zip(columns, VALUES, strict=True)):
        run(shop, f"insert into t (k, {name}) values (?, ?)", number, value[2])
    declared = ", ".join(f"{name} {value[1]}" for name, value in zip(columns, VALUES, strict=True))
    spout, tally = orders(table="t", fields=f"{declared}, k int"), Tally()
    batch = planned(half_of(spout))
    rows = rows_of(spout, batch, tally)
    good = [number for number, value in enumerate(VALUES) if value[3] is not None or value[2] is None]
    assert [(row[-1], row[row[-1]]) for row in rows] == [(number, VALUES[number][3]) for number in good]
    rejected = [number for number in range(len(VALUES)) if number not in good]
    assert [(one.line, one.unit, one.reason.split(":")[0]) for one in tally.rejects] == [
        (number + 1, "row", f"k {number}") for number in rejected
    ]
    found = audited(batch)
    assert [tuple(read.values) for read in found if read.reason is None] == rows
    refused = [read for read in found if read.reason is not None]
    assert [(read.number, read.raw) for read in refused] == [(one.line, one.raw) for one in tally.rejects]


def test_values_of_other_clients_are_spelled_alike_by_tasks_and_audit() -> None:
    """What a client gives as an object, and what it must not be taken for."""
    noon = datetime(2026, 2, 3, 12, 0, 0, 5)
    for kind, value, text in (
        ("decimal", Decimal("1E+2"), "100"),
        ("decimal", Decimal("-0.50"), "-0.50"),
        ("decimal", 1.5, None),
        ("decimal", True, None),
        ("bigint", "12", None),
        ("double", Decimal(1), None),
        ("boolean", False, "false"),
        ("boolean", 1.0, None),
        ("date", date(2026, 2, 3), "2026-02-03"),
        ("date", noon, None),
        ("timestamp_ntz", noon, "2026-02-03 12:00:00.000005"),
        ("timestamp_ntz", noon.replace(tzinfo=UTC), None),
        ("timestamp", noon.replace(tzinfo=UTC), "2026-02-03 12:00:00.000005+00:00"),
        ("timestamp", noon, None),
        ("string", 7, "7"),
        ("string", True, None),
        ("string", noon, None),
        ("string", 1.5, None),
        ("string", {"a": 1}, None),
        ("binary", memoryview(b"a"), "\\x61"),
        ("binary", 1, None),
    ):
        assert spelled(kind, value) == text, (kind, value)
        judged = _text(kind, value)
        assert judged is not None
        assert judged[1] is None if text is not None else judged[1], (kind, value)
        assert text is None or judged[0] == text, (kind, value)


def test_a_run_with_an_end_has_what_it_saw_first(shop: Path) -> None:
    """It waits for that to settle, and ends; rows that come meanwhile belong to the next run."""
    clock, spout = Clock(), orders(settled_s=60, max_rows=1)
    add(shop, 1, 2)
    half = half_of(spout, clock, once=True)
    assert not half.is_ready()
    assert not half.is_exhausted()
    add(shop, 3)
    clock.now = 61
    first = planned(half)
    second = planned(half, first, 2)
    assert ids(spout, first) + ids(spout, second) == [1, 2]
    clock.now = 200
    assert not half.is_ready()
    assert half.is_exhausted()
    empty = orders(table="e", fields="id bigint")
    run(shop, "create table e (id integer primary key autoincrement)")
    half = half_of(empty, once=True)
    assert not half.is_ready()
    assert half.is_exhausted()


def test_the_first_batch_may_begin_at_the_end(shop: Path) -> None:
    """With start='latest' it is empty and marks the place; what comes then is in the second, also in an empty table."""
    for before in ((), (1,)):
        add(shop, *before)
        spout = orders(start="latest")
        half = half_of(spout)
        first = planned(half)
        assert rows_of(spout, first) == [] == audited(first)
        add(shop, 5)
        second = planned(half, first, 2)
        assert ids(spout, second) == [5]
        run(shop, "delete from orders")
        if before:
            with pytest.raises(BatchDataError, match="the last range ends at key 1, and the highest key is None"):
                half_of(spout, previous=first).is_ready()


def test_a_url_is_never_in_what_is_stored_or_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in tasks, plans and descriptions, and not in the words of a URL that cannot be read or reached."""
    url = f"postgresql+psycopg2://ann:{SECRET}@127.0.0.1:1/shop?password={SECRET}"
    with pytest.raises(TopologyError) as refused:
        orders(url_env=url)
    monkeypatch.setenv(VARIABLE, url)
    spout = orders()
    assert identity_of(make_url(url)) == "postgresql://127.0.0.1:1/shop"
    kept: list[Any] = [pickle.dumps(spout), spout.describe(), spout._planned_settings(), refused.value]
    with pytest.raises(TimeoutError, match="cannot be reached") as away:
        half_of(spout).is_ready()
    kept.append(away.value)
    for wrong, words in (
        (f"{SECRET}", "is no URL"),
        (f"nope://ann:{SECRET}@h/d", "SQLAlchemy has no client for"),
        (f"sqlite://?{SECRET}=1", "no file by its whole path"),
        (f"sqlite:///{SECRET}.db", "no file by its whole path"),
        (f"postgresql+psycopg2://ann@127.0.0.1:1/d?password={SECRET}&x=1", "settings that the client does not know"),
        (f"postgresql+asyncpg://ann:{SECRET}@127.0.0.1:1/d", "for asyncio only"),
        (f"mysql+pymysql://ann:{SECRET}@127.0.0.1:1/d", "the client of mysql is not installed: pymysql"),
    ):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(ConfigurationError, match=words) as unread:
            half_of(spout).is_ready()
        kept += [unread.value, unread.value.__cause__]
    assert all(SECRET not in str(one) for one in kept)
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(ConfigurationError, match=f"set {VARIABLE} to a URL"):
        half_of(spout).is_ready()


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite would make an empty file."""
    monkeypatch.setenv(VARIABLE, f"sqlite:///{tmp_path}/gone.db")
    with pytest.raises(FileNotFoundError, match="no such database"):
        half_of(orders()).is_ready()
    assert list(tmp_path.iterdir()) == []


def test_what_the_database_says_is_sorted_by_who_is_at_fault(shop: Path) -> None:
    """What can pass is waited for; a column that is gone is about the table."""
    add(shop, 1)
    spout = orders()
    half = half_of(spout)
    batch = planned(half)
    with closing(sqlite3.connect(shop)) as holder:
        holder.execute("begin exclusive")
        assert sql_database._TIME_LIMITS["pysqlite"] == {"timeout": 60}
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sql_database._TIME_LIMITS, "pysqlite", {"timeout": 0})
            with pytest.raises(TimeoutError, match="locked"):
                rows_of(spout, batch)
    run(shop, "alter table orders drop column pieces")
    with pytest.raises(BatchDataError, match="the database says: no such column"):
        rows_of(spout, batch)
    with pytest.raises(NoRangeError, match=r"cannot be read .no such column"):
        audited(batch)
    run(shop, "alter table orders add column pieces int")
    run(shop, "update orders set shop = cast(x'ff' as text)")
    with pytest.raises(BatchDataError, match="Could not decode to UTF-8"):
        half_of(orders(), previous=None).is_ready()
    assert SqlTable("main", "t", "id").shown == "main.t"
    assert SqlDatabase().url_env == "TXTOPO_TABLE_URL"


class Said(Exception):
    """What a client says: its words, and a name or number of the error."""

    def __init__(self, *args: Any, **names: str) -> None:
        super().__init__(*args)
        vars(self).update(names)


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        (Said("x", sqlite_errorname="SQLITE_BUSY_SNAPSHOT"), True),
        (Said("x", sqlite_errorname="SQLITE_ERROR"), False),
        (Said("x", pgcode="57014"), True),
        (Said("x", sqlstate="40001"), True),
        (Said("x", pgcode="42703"), False),
        (Said(1205, "Lock wait timeout exceeded"), True),
        (Said(1054, "Unknown column"), False),
        (Said(10400, "no such number"), False),
        (Said("40 columns"), False),
        (Said(), False),
    ],
)
def test_what_is_not_known_to_pass_is_not_waited_for(said: Said, passes: bool) -> None:
    """Clients put both into one class of errors. The password is in no word of it."""
    url = make_url(f"mysql+pymysql://ann:{SECRET}@h/d")
    for gone in (False, True):
        said.args = (*said.args[:1], SECRET)
        found = said_by_database(SimpleNamespace(orig=said, connection_invalidated=gone), "t", url)
        assert isinstance(found, TimeoutError if passes or gone else BatchDataError)
        assert SECRET not in str(found)


def test_a_key_that_stands_twice_is_not_cut(shop: Path) -> None:
    """Of its rows one would be before a cut, the other in no batch."""
    run(shop, "create table t (id integer primary key autoincrement, number integer not null)")
    run(shop, "create unique index u on t (number)")
    run(shop, "insert into t (number) values (1), (2), (3)")
    spout = orders(table="t", fields="id bigint", key="number")
    half = half_of(spout)
    batch = planned(half)
    run(shop, "drop index u")
    run(shop, "update t set number = 2 where number = 1")
    with pytest.raises(BatchDataError, match="key 2 is in two rows"):
        rows_of(spout, batch)
    run(shop, "insert into t (number) values (4), (4)")
    with pytest.raises(BatchDataError, match="key 4 is in two rows"):
        half.is_ready()


def test_a_table_under_another_name_is_not_read_from_its_beginning(shop: Path) -> None:
    """It may be the same table, whose rows are counted."""
    add(shop, 1)
    first = planned(half_of(orders()))
    for other in (orders(table="main.orders"), orders(table="main.orders", on_other_table="continue")):
        with pytest.raises(BatchDataError, match="planned of table orders: write its name as before"):
            half_of(other, previous=first).is_ready()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: orders(table=""), "SqlTableSpout: '' is no name of a table"),
        (lambda: orders(settled_s=-1), "settled_s -1 is not a number of seconds"),
        (lambda: orders(settled_s=float("nan")), "settled_s nan is not"),
        (lambda: orders(settled_s=True), "settled_s True is not"),
        (lambda: orders(key=["id"]), r"key \['id'\] is no name of a column"),
        (lambda: orders(start="now"), "start 'now' is neither"),
        (lambda: orders(max_rows=0), "max_rows 0 is not"),
        (lambda: orders(max_bytes=0), "max_bytes 0 is not"),
        (lambda: orders(on_late="go"), "on_late 'go' is neither"),
        (lambda: orders(on_other_table="go"), "on_other_table 'go' is neither"),
        (lambda: orders(rejected_max=2), "rejected_max 2 is not a share"),
        (lambda: orders(fields="a float"), "declare double"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(make: Callable[[], SqlTableSpout], words: str) -> None:
    """Each in words that name it."""
    with pytest.raises(TopologyError, match=words):
        make()


def test_a_table_is_counted_and_explain_says_what_the_guarantee_stands_on(shop: Path) -> None:
    """The user's word is behind the guarantee, wherever it is shown."""
    builder = TopologyBuilder("orders")
    builder.set_spout("rows", orders(settled_s=0, max_rows=4))
    committer = CountCommitter("totals", ["shop"], count="orders", sums={"pieces": "pieces"})
    builder.set_committer_bolt("by_shop", committer).fields_grouping("rows", ["shop"])
    topology = builder.build()
    add(shop, *range(1, 11))
    with TopologyHarness(topology) as harness:
        harness.run()
        assert harness.table("totals") == {("s0",): (5, 30), ("s1",): (5, 25)}
        assert len(harness.batches) == 3
    settings = load_settings({}, cwd=shop.parent, environment={}, target=None)
    text = explain_text(explained(topology, settings, WavesExplained(True)))
    assert (
        "rows -> by_shop: exactly_once (transactional spout), if every row can be seen within 0 s after any row with a "
        "higher key"
    ) in text


def test_a_row_that_was_deleted_is_not_counted_for_one_that_comes_late(shop: Path) -> None:
    """Once it was noticed that rows are gone, those that are left count."""
    add(shop, 1, 2, 5)
    spout = orders()
    half = half_of(spout)
    first = planned(half)
    run(shop, "delete from orders where id = 2")
    add(shop, 10)
    second = planned(half, first, 2)
    add(shop, 3, 20)
    with pytest.raises(BatchDataError, match="1 rows with keys up to 10"):
        planned(half, second, 3)


def test_the_place_of_a_start_at_the_end_does_not_move_before_it_is_planned(shop: Path) -> None:
    """Rows that come between two questions are in the second batch."""
    add(shop, 1)
    half = orders(start="latest").get_coordinator({}, context(Clock()))
    half.partition_names({})
    first = half.next_range("orders", None)
    add(shop, 2)
    half.partition_names({})
    assert half.next_range("orders", None) == first
