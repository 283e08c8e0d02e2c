"""TableSpout on a real Postgres: each committed row is in exactly one batch, whatever transactions overlap."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tests.kit.audited import run_batches, select
from tests.kit.audits import Audited, findings
from tests.kit.examples import FOLDER, example
from tests.kit.pages import DOCS
from tests.kit.tables import (
    ORDERS,
    VARIABLE,
    add,
    context_of,
    coordinator_of,
    opened,
    orders,
    planned,
    range_of,
    rows_of,
    run,
)
from txtopo import CountCommitter, SqlTableSpout, TopologyBuilder
from txtopo.audit.readers.kafka_reader import NoRangeError
from txtopo.audit.readers.sql_table_reader import SqlTableReader
from txtopo.audit.readers.table_reader import TableReader
from txtopo.core.fields import parse_fields
from txtopo.core.plan import Metadata
from txtopo.errors import BatchDataError
from txtopo.local.processes import wait_until
from txtopo.spouts.partitioned import NOTHING
from txtopo.spouts.table import pieced_spout, table_coordinator
from txtopo.spouts.table.database import one_snapshot
from txtopo.spouts.table.table_coordinator import TableCoordinator
from txtopo.topology.components import Tally


@pytest.fixture
def shop(database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with a table of orders."""
    monkeypatch.setenv(VARIABLE, database)
    run(database, ORDERS)
    return database


def ids(rows: list[tuple[object, ...]]) -> list[object]:
    return [row[0] for row in rows]


def test_rows_of_a_transaction_that_ends_late_are_not_passed_over(shop: str) -> None:
    """Order 1 is committed after order 2. Who reads `id > last` has 2 and never sees 1."""
    spout = orders()
    coordinator = coordinator_of(spout)
    with opened(shop) as late:
        add(late, "late")
        run(shop, "insert into orders (shop, price) values ('early', 2)")
        last = run(shop, "select max(id) from orders")[0][0]
        assert not coordinator.is_ready()
        late.commit()
    assert run(shop, "select id from orders where id > %s", last) == []
    assert ids(rows_of(spout, planned(coordinator))) == [1, 2]
    assert not coordinator.is_ready()


def test_an_open_transaction_is_the_horizon_for_driver_task_and_audit(shop: str) -> None:
    """However many later ones have ended, and whatever is on the disk: its own rows may come at any time."""
    spout = orders()
    half = spout.get_coordinator({}, context_of([]))
    assert isinstance(half, TableCoordinator)
    run(shop, "insert into orders (shop, price) values ('s', 1)")
    first = planned(coordinator_of(spout))
    with opened(shop) as late, late.cursor() as cursor:
        cursor.execute("select pg_current_xact_id()::text::bigint")
        (open_id,) = cursor.fetchone()
        run(shop, "insert into orders (shop, price) values ('early', 2)")

        def has_horizon() -> bool:
            """The first look may have been taken before."""
            half.partition_names({})
            half.next_range("public.orders", range_of(first))
            return half._horizon is not None and half._horizon >= open_id

        assert wait_until(has_horizon, 60)
        assert half._horizon == open_id
        for end in ({"id": str(open_id + 1)}, {"id": str(open_id), "key": ["9"]}):
            ahead = {**range_of(first), "to": end, "parts": [{**range_of(first)["parts"][0], "to": end}]}
            metadata = {**first, "partitions": [{"range": ahead}]}
            with pytest.raises(TimeoutError, match=f"has only come to transaction id {open_id}"):
                rows_of(spout, metadata)
            with pytest.raises(NoRangeError, match=f"has only come to transaction id {open_id}"):
                audited_rows(metadata)


def audited_rows(metadata: Metadata) -> list[tuple[object, ...]]:
    """The rows of a batch as the audit reads them."""
    reader = TableReader(metadata["format"], parse_fields(metadata["schema"]))
    return [tuple(read.values) for read in reader.read(metadata["names"][0], range_of(metadata))]


def test_a_table_that_was_renamed_is_not_read_from_its_beginning(shop: str) -> None:
    """Its ranges go on under their name, also in a new schema; a redo of them reads the table by its new name."""
    run(shop, "insert into orders (shop, price) values ('a', 1)")
    first = planned(coordinator_of(orders()))
    run(shop, "alter table orders rename to sales; create schema x; alter table sales set schema x")
    run(shop, "insert into x.sales (shop, price) values ('b', 2)")
    spout = orders(table="x.sales")
    coordinator = coordinator_of(spout, previous=first)
    second = planned(coordinator, first, 2)
    assert (second["names"], ids(rows_of(spout, second))) == (["public.orders"], [2])
    assert ids(rows_of(spout, coordinator.initialize_redo(first))) == [1]
    assert ids(rows_of(spout, planned(coordinator_of(spout)))) == [1, 2]


def test_statements_of_a_look_have_one_snapshot_and_write_nothing(shop: str) -> None:
    """What one of them says of the server is true for the rows of the next."""
    with (
        closing(orders().database.connect()) as connection,
        pytest.raises(BatchDataError, match="read-only transaction"),
        one_snapshot(connection, "orders") as cursor,
    ):
        cursor.execute("select count(*) from orders")
        before = cursor.fetchone()
        run(shop, "insert into orders (shop, price) values ('s', 1)")
        cursor.execute("select count(*) from orders")
        assert cursor.fetchone() == before == (0,)
        cursor.execute("delete from orders")


def test_ranges_are_cut_alike_by_tasks_and_audit(shop: str) -> None:
    """At whole transactions, within one, at the id where a range ends, and at the byte; by all columns of the key."""
    run(
        shop,
        'create table t (k text collate "C", n int, primary key (k, n), '
        "written_by xid8 not null default pg_current_xact_id()); create index on t (written_by, k, n)",
    )
    run(shop, "insert into t select chr(97 + n % 2), -n from generate_series(1, 40) n")
    spout = orders(table="t", fields="n int, k string", max_rows=15)
    coordinator = coordinator_of(spout)
    batches = [planned(coordinator)]
    while len(batches) < 3:
        batches.append(planned(coordinator, batches[-1], len(batches) + 1))
    end = range_of(batches[-1])["to"]
    assert "key" not in end
    # A row of the very transaction at which the range ends is not in it.
    run(shop, "insert into t values ('z', 1, %s)", end["id"])
    batches.append(planned(coordinator, batches[-1], 4))
    read = [rows_of(spout, one) for one in batches]
    assert [audited_rows(one) for one in batches] == read
    assert [len(one) for one in read] == [15, 15, 10, 1]
    every = [row for one in read for row in one]
    assert every[:40] == sorted(every[:40], key=lambda row: (row[1], row[0]))
    assert len({*every}) == 41

    size = sum(part["bytes"] for part in range_of(batches[0])["parts"])
    exact = orders(table="t", fields="n int, k string", max_bytes=size)
    assert len(rows_of(exact, planned(coordinator_of(exact)))) == 15


def test_no_row_of_many_writers_is_lost_or_comes_twice(shop: str) -> None:
    """Writers with savepoints and rollbacks, whose transactions overlap, while batches are planned all the time."""
    spout = orders(max_rows=37)

    def write(seed: int) -> None:
        chance = random.Random(seed)
        with opened(shop) as connection, connection.cursor() as cursor:
            for _ in range(25):
                add(connection, "first")
                cursor.execute("savepoint s")
                add(connection, "second", chance.randrange(1, 6))
                if chance.random() < 0.3:
                    cursor.execute("rollback to savepoint s")
                connection.rollback() if chance.random() < 0.1 else connection.commit()

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(6)]
    for writer in writers:
        writer.start()
    coordinator = coordinator_of(spout)
    batches: list[Metadata] = []
    read: list[object] = []

    def read_more() -> None:
        if coordinator.is_ready():
            batches.append(coordinator.initialize_transaction(len(batches) + 1, batches[-1] if batches else None))
            read.extend(ids(rows_of(spout, batches[-1])))

    while any(writer.is_alive() for writer in writers):
        read_more()
    (last,) = ids(run(shop, "insert into orders (shop, price) values ('last', 1) returning id"))

    def is_over() -> bool:
        read_more()
        return last in read

    assert wait_until(is_over, 60)  # The server may not have written its log yet.
    assert Counter(read) == Counter(ids(run(shop, "select id from orders")))
    assert all(len(rows_of(spout, one)) <= 37 for one in batches)
    ends = [range_of(one)["to"] for one in batches]
    assert [range_of(one)["from"] for one in batches] == [None, *ends[:-1]]


def test_a_large_transaction_is_cut_by_the_key_and_read_in_pieces(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one transaction have one id; batches and pieces end at a key, and tile."""
    monkeypatch.setattr(pieced_spout, "PIECE_ROWS", 30)
    run(shop, "insert into orders (shop, price) select 's', n from generate_series(1, 250) n")
    spout = orders(max_rows=100)
    coordinator = coordinator_of(spout)
    batches: list[Metadata] = []
    while len(batches) < 3:
        batches.append(planned(coordinator, batches[-1] if batches else None, len(batches) + 1))
    assert not coordinator.is_ready()
    assert [[part["rows"] for part in range_of(one)["parts"]] for one in batches] == [
        [30, 30, 30, 10],
        [30, 30, 30, 10],
        [30, 20],
    ]
    assert [row for one in batches for row in ids(rows_of(spout, one))] == list(range(1, 251))
    (part, *_) = spout.parts(batches[1])
    position = spout.locate(batches[1], part, 3)
    assert position is not None
    assert (position.position, position.raw) == (
        "public.orders, row 4",
        '{"id": "104", "shop": "s", "price": "104.00"}',
    )
    by_bytes = orders(max_bytes=1)
    assert ids(rows_of(by_bytes, planned(coordinator_of(by_bytes)))) == [1]


@pytest.mark.parametrize(
    "change",
    [
        "update orders set price = price + 1 where id = 2",
        "delete from orders where id = 2",
        "insert into orders (shop, price, written_by) values ('forged', 1, '3')",
        "update orders set shop = repeat('x', 100000)",
    ],
)
def test_rows_that_are_not_as_planned_fail_the_batch(shop: str, change: str) -> None:
    """A changed, deleted or added row is never counted in place of the planned ones; a redo plans what is there."""
    run(shop, "insert into orders (shop, price) select 's', n from generate_series(1, 5) n")
    spout = orders()
    coordinator = coordinator_of(spout)
    batch = planned(coordinator)
    before = rows_of(spout, batch)
    assert rows_of(spout, batch) == before
    run(shop, change)
    tally = Tally()
    with pytest.raises(BatchDataError, match=r"orders: rows were changed, deleted or added .* planned with 5 rows"):
        rows_of(spout, batch, tally)
    assert tally.read == 0

    again = coordinator.initialize_redo(batch)
    assert len(rows_of(spout, again)) == run(shop, "select count(*) from orders")[0][0]
    assert [range_of(one)["to"] for one in (batch, again)] == [range_of(batch)["to"]] * 2


@pytest.mark.parametrize(
    ("made", "settings", "words"),
    [
        ("create table t (id bigint primary key)", {}, r"there is no column 'written_by' .*: alter table public.t add"),
        ("create table t (id bigint primary key, written_by bigint)", {}, "type int8, not xid8: alter table"),
        (
            "create table t (id bigint primary key, written_by xid8 not null)",
            {},
            "alter column written_by set default pg_current_xact_id",
        ),
        (
            "create table t (id bigint primary key, written_by xid8 default pg_current_xact_id())",
            {},
            "alter column written_by set not null",
        ),
        (
            "create table t (id bigint primary key, written_by xid8 not null default pg_current_xact_id())",
            {},
            r"create index on public.t \(written_by, id\)",
        ),
        ("create table t (id bigint, written_by xid8)", {}, "it has no primary key"),
        ("create table t (id bigint unique)", {"key": "id"}, "alter column id set not null"),
        ("create table t (id bigint not null)", {"key": "id"}, r"create unique index on public.t \(id\)"),
        ("create view t as select 1::bigint as id", {}, "it is a view"),
        ("create unlogged table t (id bigint primary key)", {}, "set logged"),
        ("create table t (id bigint primary key); create table c () inherits (t)", {}, "child tables by inheritance"),
        ("create table t (id bigint primary key) partition by hash (id)", {"settled": "xmin"}, "has no xmin"),
        (
            "create table t (id uuid primary key)",
            {},
            "column 'id' has type uuid, declared bigint: declare it as string",
        ),
        ("create table t (at bigint primary key)", {}, "there is no column 'id'; it has at"),
        ("select 1", {}, "t: there is no such table"),
    ],
)
def test_a_table_that_cannot_be_read_exactly_once_is_refused(
    shop: str, made: str, settings: dict[str, object], words: str
) -> None:
    """With the statement after which it can."""
    run(shop, made)
    with pytest.raises(BatchDataError, match=words):
        coordinator_of(orders(table="t", fields="id bigint", **settings)).is_ready()


def test_the_statements_of_a_refusal_are_enough(shop: str) -> None:
    """Done one after the other, they lead to a table that is read; rows from before are in the first batch."""
    run(shop, "create table t (id bigint not null); insert into t values (1), (2)")
    spout = orders(table="t", fields="id bigint", key="id")
    for _ in range(3):
        try:
            batch = planned(coordinator_of(spout))
            break
        except BatchDataError as refusal:
            run(shop, str(refusal).split(": ", 2)[2].replace("create index on", "create index if not exists i on"))
    assert ids(rows_of(spout, batch)) == [1, 2]


def test_xmin_needs_no_column_and_says_when_it_means_nothing_any_more(shop: str) -> None:
    """VACUUM FULL keeps it. A table whose rows were written again halts before they come a second time."""
    run(shop, "create table t (id bigint primary key); insert into t values (1), (2)")
    spout = orders(table="t", fields="id bigint", settled="xmin")
    coordinator = coordinator_of(spout)
    first = planned(coordinator)
    assert ids(rows_of(spout, first)) == [1, 2]
    with opened(shop) as connection:
        connection.rollback()
        connection.autocommit = True
        connection.cursor().execute("vacuum full t")
    run(shop, "insert into t values (3)")
    second = planned(coordinator, first, 2)
    assert ids(rows_of(spout, second)) == [3]
    assert ids(rows_of(spout, first)) == [1, 2]

    run(shop, "alter table t alter column id type numeric")
    with pytest.raises(BatchDataError, match="was rewritten, or emptied"):
        coordinator_of(spout, previous=second).is_ready()


VALUES: tuple[tuple[str, str, str | None, object], ...] = (
    ("integer", "bigint", "-7", -7),
    ("numeric", "decimal(10,2)", "1.50", Decimal("1.50")),
    ("numeric", "decimal(10,2)", "NaN", None),
    ("float8", "double", "1e300", 1e300),
    ("float8", "double", "0.1234567890123456", 0.1234567890123456),
    ("float4", "float", "0.5", 0.5),
    ("boolean", "boolean", "t", True),
    ("date", "date", "2026-02-03", date(2026, 2, 3)),
    ("date", "date", "infinity", None),
    ("timestamptz", "timestamp", "2026-02-03 04:05:06.789+02", datetime(2026, 2, 3, 2, 5, 6, 789000, UTC)),
    ("timestamp", "timestamp_ntz", "2026-02-03 04:05", datetime(2026, 2, 3, 4, 5)),
    ("timestamp", "timestamp_ntz", "0044-03-15 00:00 BC", None),
    ("bytea", "binary", "\\x00ff", b"\x00\xff"),
    ("text", "string", 'a "quoted",\n\\.\r line', 'a "quoted",\n\\.\r line'),
    ("text", "string", "", ""),
    ("jsonb", "string", '{"a": [1, "ä"]}', '{"a": [1, "ä"]}'),
    ("uuid", "string", "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000a"),
    ("integer[]", "string", "{1,NULL}", "{1,NULL}"),
    ("interval", "string", "1 day 02:00", "P1DT2H"),
    ("timestamptz", "string", "2026-02-03 04:05:06+02", "2026-02-03 02:05:06+00"),
)


def test_values_are_those_of_the_table_or_the_row_is_rejected(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each type by tasks and audit: the value exactly, or a rejected row with its key, which the audit rejects, too."""
    monkeypatch.setenv(VARIABLE, audited.dsn)
    for setting in (
        "timezone = 'America/New_York'",
        "datestyle = 'German, DMY'",
        "extra_float_digits = -9",
        "bytea_output = 'escape'",
        "intervalstyle = 'postgres_verbose'",
        "lc_monetary = 'C'",
    ):
        run(audited.dsn, f"alter database {audited.dsn.rsplit('/', 1)[1]} set {setting}")
    columns = [f"c{number}" for number in range(len(VALUES))]
    made = ", ".join(f"{name} {value[0]}" for name, value in zip(columns, VALUES, strict=True))
    run(
        audited.dsn,
        f'create table t (k text collate "C", n int, {made}, written_by xid8 not null default pg_current_xact_id(), '
        "primary key (k, n)); create index on t (written_by, k, n)",
    )
    for number, (name, (_, _, text, _)) in enumerate(zip(columns, VALUES, strict=True)):
        run(audited.dsn, f"insert into t (k, n, {name}) values ('key', %s, %s)", number, text)
    declared = ", ".join(f"{name} {value[1]}" for name, value in zip(columns, VALUES, strict=True))
    spout = orders(table="t", fields=f"n int, {declared}", rejected_max=1)
    tally = Tally()
    rows = rows_of(spout, planned(coordinator_of(spout)), tally)
    good = [number for number, value in enumerate(VALUES) if value[3] is not None]
    assert [(row[0], row[1 + row[0]]) for row in rows] == [(number, VALUES[number][3]) for number in good]
    rejected = [number for number, value in enumerate(VALUES) if value[3] is None]
    assert [(one.line, one.unit, one.reason.split(":")[0]) for one in tally.rejects] == [
        (number + 1, "row", f"k key, n {number}") for number in rejected
    ]

    builder = TopologyBuilder("orders")
    builder.set_spout("rows", spout)
    committer = CountCommitter("counts", [columns[-1]], count="rows")
    builder.set_committer_bolt("counted", committer).fields_grouping("rows", [columns[-1]])
    assert run_batches(audited.dsn, builder.build()) == 1
    code, report = audited.audit()
    assert (code, report["findings"], report["verdict"]) == (0, [], "MATCH")


def test_a_table_is_read_through_sqlalchemy_by_its_key(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the user says of open transactions: one that is open for less loses nothing. Values are exact."""
    run(
        shop,
        "create table t (id bigint primary key, price numeric(10,2), at timestamptz, day date, raw bytea, ok boolean, "
        "ratio float8, name text, other xid8); alter database "
        + shop.rsplit("/", 1)[1]
        + " set timezone = 'Asia/Tokyo'",
    )
    monkeypatch.setenv("SHOP_URL", shop.replace("postgresql://", "postgresql+psycopg2://"))
    fields = "id bigint, price decimal(10,2), at timestamp, day date, raw binary, ok boolean, ratio double, name string"
    spout, now = SqlTableSpout("public.t", fields, settled_s=60, url_env="SHOP_URL"), [0.0]
    half = spout.open_coordinator(replace(context_of([]), monotonic=lambda: now[0]))
    with opened(shop) as late, late.cursor() as cursor:
        cursor.execute(
            "insert into t values (1, 1.10, '2026-02-03 04:05:06.7+02', '2026-02-03', '\\x00ff', true, 0.1, 'ä')"
        )
        run(shop, "insert into t (id) values (2)")
        assert not half.is_ready()
        late.commit()
    now[0] = 60.0
    batch = planned(half)
    moment = datetime(2026, 2, 3, 2, 5, 6, 700000, UTC)
    expected = [(1, Decimal("1.10"), moment, date(2026, 2, 3), b"\x00\xff", True, 0.1, "ä"), (2, *[None] * 7)]
    assert rows_of(spout, batch) == expected
    reader = SqlTableReader(batch["format"], parse_fields(batch["schema"]))
    assert [tuple(read.values) for read in reader.read("public.t", range_of(batch))] == expected
    run(shop, "update t set at = 'infinity' where id = 2")
    with pytest.raises(BatchDataError, match=r"the client of the database cannot read a value|rows were changed"):
        rows_of(spout, batch)


def test_the_audit_reads_the_rows_again(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    """MATCH while they are as they were; MISMATCH for a changed, added or wrongly counted one; UNVERIFIED for a deleted
    one, and where the database is not known.
    """
    monkeypatch.setenv(VARIABLE, audited.dsn)
    run(audited.dsn, ORDERS)
    for _ in range(3):
        run(audited.dsn, "insert into orders (shop, price) select 's' || n % 2, n from generate_series(1, 5) n")
    builder = TopologyBuilder("orders")
    builder.set_spout("rows", orders(max_rows=4))
    committer = CountCommitter("order_totals", ["shop"], count="orders", sums={"price": "turnover"})
    builder.set_committer_bolt("totals", committer).fields_grouping("rows", ["shop"])
    assert run_batches(audited.dsn, builder.build()) == 4
    assert select(audited.dsn, "select shop, orders, turnover from order_totals order by shop") == [
        ("s0", 6, Decimal("18.00")),
        ("s1", 9, Decimal("27.00")),
    ]
    code, report = audited.audit()
    assert (code, report["findings"], report["verdict"]) == (0, [], "MATCH")
    plans = str(select(audited.dsn, "select convert_from(bytes, 'UTF8') from txtopo.plan"))
    assert "postgresql://" not in plans

    forge = "insert into orders (shop, price, written_by) values ('forged', 1, '3')"
    for change, undo, verdict, words in (
        ("update orders set price = 9 where id = 1", "update orders set price = 1 where id = 1", "MISMATCH", "changed"),
        (forge, "delete from orders where shop = 'forged'", "MISMATCH", "had been passed"),
        (
            "update order_totals_contribution set orders = orders + 1 where txid = 1 and shop = 's1'",
            "update order_totals_contribution set orders = orders - 1 where txid = 1 and shop = 's1'",
            "MISMATCH",
            "contributed",
        ),
        ("delete from orders where id = 1", "select 1", "UNVERIFIED", "were deleted or moved"),
    ):
        audited.plant(change)
        _, report = audited.audit()
        assert report["verdict"] == verdict
        assert words in str(findings(report, verdict))
        audited.plant(undo)

    monkeypatch.delenv(VARIABLE)
    _, report = audited.audit()
    assert f"set {VARIABLE}" in str(findings(report, "UNVERIFIED"))


def test_the_example_of_the_page_counts(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/tables.md has the file of the folder `examples`: the statements make the table, and it counts its rows."""
    page = (DOCS / "tables.md").read_text(encoding="utf-8")
    made = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert blocks[0] == (FOLDER / "shop_orders.py").read_text(encoding="utf-8")
    for other in blocks[1:]:
        exec(other, {})
    run(audited.dsn, "create schema shop; create table shop.orders (id bigint primary key, shop text, price numeric)")
    run(audited.dsn, made[0])
    run(audited.dsn, "insert into shop.orders values (1, 'a', 1.10), (2, 'b', 2.25), (3, 'a', 0.05)")
    monkeypatch.setenv("SHOP_DSN", audited.dsn)

    assert run_batches(audited.dsn, example(monkeypatch, "shop_orders")) == 1
    assert select(audited.dsn, "select shop, orders, turnover from orders_by_shop order by shop") == [
        ("a", 2, Decimal("1.15")),
        ("b", 1, Decimal("2.25")),
    ]


def test_a_role_that_may_only_read_the_table_is_enough(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SELECT on the table; without it, or where a policy hides rows, it is said so and nothing is read."""
    run(shop, "insert into orders (shop, price) values ('s', 1)")
    role = f"reader_{shop.rsplit('/', 1)[1]}"
    monkeypatch.setenv(VARIABLE, shop.replace("//postgres@", f"//{role}@"))
    spout = orders()
    run(shop, f"create role {role} login")
    try:
        with pytest.raises(PermissionError, match="permission denied"):
            planned(coordinator_of(spout))
        run(shop, f"grant select on orders to {role}")
        batch = planned(coordinator_of(spout))
        assert ids(rows_of(spout, batch)) == [1]
        run(shop, "alter table orders enable row level security")
        with pytest.raises(PermissionError, match="row-level security"):
            rows_of(spout, batch)
    finally:
        run(shop, f"drop owned by {role}; drop role {role}")


def test_a_table_or_a_server_that_is_another_one_halts(shop: str) -> None:
    """Dropped and made again; ids that went back; another server, unless it is said that nothing was lost."""
    run(shop, "insert into orders (shop, price) values ('s', 1)")
    spout, other = orders(), orders(on_other_server="continue")
    first = planned(coordinator_of(spout))
    run(shop, "insert into orders (shop, price) values ('s', 2)")

    def after(**change: object) -> Metadata:
        return {**first, "partitions": [{"range": {**range_of(first), **change}}]}

    foreign = after(server="7/1")
    with pytest.raises(BatchDataError, match=r"planned on server 7/1 .* on_other_server='continue'"):
        coordinator_of(spout).initialize_transaction(2, foreign)
    assert ids(rows_of(other, planned(coordinator_of(other, previous=foreign), foreign, 2))) == [2]
    ahead = after(to={"id": str(2**40)})
    with pytest.raises(BatchDataError, match="transaction ids went back"):
        coordinator_of(spout).initialize_transaction(2, ahead)
    late = after(parts=[{**range_of(first)["parts"][0], "to": {"id": str(2**40)}}])
    with pytest.raises(TimeoutError, match="has only come to transaction id"):
        rows_of(spout, late)
    with pytest.raises(BatchDataError, match="planned with settled='xid8:written_by', now it is 'xmin'"):
        coordinator_of(orders(settled="xmin")).initialize_transaction(2, first)
    run(shop, "alter table orders alter column shop set not null; create index on orders (written_by, id, shop)")
    by_shop = coordinator_of(orders(key=["id", "shop"])).initialize_redo(first)
    assert range_of(by_shop)["key"] == ["id"]
    run(shop, "drop table orders; " + ORDERS)
    with pytest.raises(BatchDataError, match="was dropped and made again"):
        coordinator_of(spout).initialize_transaction(2, first)
    with pytest.raises(BatchDataError, match="was dropped and made again"):
        coordinator_of(spout).initialize_redo(first)


def test_ids_that_the_server_has_not_given_out_are_refused(shop: str) -> None:
    """Rows that were copied from another server would wait for years; the statement of the refusal is enough."""
    run(shop, "insert into orders (shop, price, written_by) values ('copied', 1, '99999999999')")
    spout = orders()
    with pytest.raises(BatchDataError, match="rows have transaction ids from 99999999999 on") as refusal:
        coordinator_of(spout).is_ready()
    run(shop, str(refusal.value).rsplit(": ", 1)[1])
    assert ids(rows_of(spout, planned(coordinator_of(spout)))) == [1]


def test_a_table_that_is_exchanged_while_a_batch_is_cut_is_not_read(shop: str) -> None:
    """Between the look at the catalog and the rows, another table gets the name."""
    run(shop, "insert into orders (shop, price) values ('s', 1)")
    half = orders().get_coordinator({}, context_of([]))

    def is_there() -> bool:
        half.partition_names({})
        return half.next_range("public.orders", None) is not NOTHING

    assert wait_until(is_there, 30)
    half.partition_names({})
    run(shop, "alter table orders rename to before; " + ORDERS)
    run(shop, "insert into orders (shop, price) values ('other', 1)")
    with pytest.raises(BatchDataError, match="another table has this name now"):
        half.next_range("public.orders", None)


def test_a_run_with_an_end_has_what_was_settled_when_it_began(shop: str) -> None:
    """Rows that come later belong to the next run, as do those of a transaction that is open."""
    spout = orders(max_rows=1)
    run(shop, "insert into orders (shop, price) values ('s', 1), ('s', 2)")
    coordinator = coordinator_of(spout, once=True)
    first = planned(coordinator)
    run(shop, "insert into orders (shop, price) values ('s', 3)")
    second = planned(coordinator, first, 2)
    assert ids(rows_of(spout, first) + rows_of(spout, second)) == [1, 2]
    assert not coordinator.is_ready()
    assert coordinator.is_exhausted()
    assert ids(rows_of(spout, planned(coordinator_of(spout, once=True, previous=second), second, 3))) == [3]


def test_the_first_batch_may_begin_at_the_end(shop: str) -> None:
    """With start='latest' it is empty and marks the place; what comes then is in the second."""
    run(shop, "insert into orders (shop, price) values ('s', 1)")
    spout = orders(start="latest")
    coordinator = coordinator_of(spout)
    first = planned(coordinator)
    assert rows_of(spout, first) == []
    run(shop, "insert into orders (shop, price) values ('s', 2)")
    assert ids(rows_of(spout, planned(coordinator, first, 2))) == [2]


def test_who_holds_rows_back_is_shown(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that is open for long, in whatever table, delays all rows after it: the operator learns which."""
    monkeypatch.setattr(table_coordinator, "HELD_S", 0.0)
    said: list[str] = []
    coordinator = coordinator_of(orders(), said)
    with opened(shop) as holder:
        add(holder, "open")
        run(shop, "insert into orders (shop, price) values ('s', 1)")
        words = f"rows wait for an older transaction to end: process {holder.info.backend_pid} of database"
        assert wait_until(lambda: coordinator.is_ready() or words in "".join(said), 30)
        holder.rollback()
