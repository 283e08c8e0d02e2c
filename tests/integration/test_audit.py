"""The audit on a real database filled by real commits: no fault is MATCH, ranges, roles, exit codes, and what is not
compared by design.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
from psycopg2 import sql

from tests.integration.conftest import BATCHES
from tests.kit.applications import orders_topology
from tests.kit.audited import fill, run_batches
from tests.kit.audits import Audited
from tests.kit.fix_postgres import execute_as_superuser
from tests.kit.orders import write_orders
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.cli import main


def test_no_fault_is_match_and_0(orders: Audited) -> None:
    """Promise: no fault gives MATCH and 0; every check that finds something to compare does."""
    code, report = orders.audit()

    assert report["findings"] == []
    assert (code, report["schema"], report["verdict"]) == (0, "txtopo.audit/1", "MATCH")
    assert [(one["txid"], one["verdict"]) for one in report["batches"]] == [
        (txid, "MATCH") for txid in range(1, BATCHES + 1)
    ]
    idle = {check["name"] for check in report["checks"] if not check["comparisons"]}
    assert idle == {"rejects.lines", "quarantine.empty", "actions.signed", "actions.chain", "kept.seals"}
    assert [one["recounted"] for one in report["batches"]] == [20] * BATCHES
    assert [one["contributed"] for one in report["batches"]] == [{"totals": 20}] * BATCHES
    assert report["by_design"] == []


def test_phases_add_up_to_the_wall_time(orders: Audited) -> None:
    """Promise: timings by phase add up."""
    _, report = orders.audit("--no-recount")

    for batch in report["batches"]:
        assert set(batch["phases_s"]) == {"earlier attempts", "processing", "turn and commit"}
        assert sum(batch["phases_s"].values()) == pytest.approx(batch["wall_s"])
        assert batch["wall_s"] > 0
        assert min(batch["phases_s"].values()) >= 0


@pytest.mark.parametrize(
    "fault", ["", "delete from txtopo.plan_part", "update txtopo.plan_part set bytes = '{}', digest = sha256('{}')"]
)
def test_a_file_list_in_a_piece_of_its_own_is_read_and_checked(audited: Audited, fault: str) -> None:
    """Promise: metadata too long for a plan is part of its chain."""
    write_orders(audited.folder, 3)
    run_batches(audited.dsn, orders_topology(audited.folder, files_per_batch=3), in_pieces=True)
    if fault:
        audited.plant(fault)

    code, report = audited.audit()

    assert (code, {(one["check"], *one["txids"]) for one in report["findings"]}) == (
        (1, {("plan.digest", 1)}) if fault else (0, set())
    )
    assert report["batches"][0]["recounted"] == (None if fault else 60)


def test_a_plan_that_is_gone_is_wrong_however_long_ago_it_was_committed(audited: Audited) -> None:
    """Promise: nothing of this release removes plans; without one its source could not be compared, which the audit
    says too.
    """
    write_orders(audited.folder, 12, rows=2)
    run_batches(audited.dsn, orders_topology(audited.folder))
    audited.plant("delete from txtopo.plan where txid <= 2")

    code, report = audited.audit()

    assert (code, [(one["check"], one["verdict"], one["txids"]) for one in report["findings"]]) == (
        1,
        [
            ("plan.digest", "MISMATCH", [1]),
            ("plan.digest", "MISMATCH", [2]),
            ("source.content", "UNVERIFIED", [1]),
            ("source.content", "UNVERIFIED", [2]),
        ],
    )
    assert "its plan is missing, and this release never removes plans" in report["findings"][0]["message"]
    assert report["by_design"] == []


def test_failed_attempts_are_listed_with_their_errors(audited: Audited) -> None:
    """Promise: attempts with their errors, counts of attempts."""
    write_orders(audited.folder, 2)
    run_batches(audited.dsn, orders_topology(audited.folder), fail_first=True)

    code, report = audited.audit()

    assert code == 0
    assert report["attempts"] == {"applied": 2, "failed": 2}
    assert [
        (one["txid"], one["attempt"], one["kind"], one["position"], one["message"]) for one in report["failures"]
    ] == [(1, 0, "data", "in.csv:7", "a bad line"), (2, 0, "data", "in.csv:7", "a bad line")]
    assert [one["attempts"] for one in report["batches"]] == [2, 2]


@pytest.mark.parametrize(
    ("wanted", "txids"),
    [("3", [3]), ("2..4", [2, 3, 4]), ("5..", [5, 6]), ("..2", [1, 2]), ("1..6", [1, 2, 3, 4, 5, 6])],
)
def test_a_range_is_audited_with_its_links_to_both_sides(orders: Audited, wanted: str, txids: list[int]) -> None:
    """Promise: RANGE; the target is compared as a whole all the same."""
    code, report = orders.audit(wanted)
    orders.plant("update order_totals set rows = rows + 1 where shop = 'shop 1' and article = 'a1'")
    wrong, _ = orders.audit(wanted)

    assert (code, wrong) == (0, 1)
    assert [one["txid"] for one in report["batches"]] == txids


def test_a_fault_outside_the_range_does_not_show(orders: Audited) -> None:
    """Promise: a range says nothing about other batches."""
    orders.plant("update txtopo.ledger set reason = 'x' where txid = 5")

    assert [orders.audit(wanted)[0] for wanted in ("1..4", "6", "5", "..5", "") if wanted] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "arguments",
    [("orders", "7"), ("orders", "7.."), ("orders", "0..9"), ("orders", "4..3"), ("orders", "x"), ("ordres",)],
)
def test_what_does_not_exist_is_2_and_never_1(
    orders: Audited, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    """Promise: 1 means that the data is wrong, nothing else."""
    code = main(("audit", *arguments))

    assert (code, capsys.readouterr().out) == (2, "")


def test_postgres_away_is_3(orders: Audited) -> None:
    """Promise: could not find out."""
    code, said = orders.audit("--dsn", "postgresql://me:hush@127.0.0.1:9/nowhere")

    assert code == 3
    assert "hush" not in said


def test_a_topology_without_batches_matches(audited: Audited) -> None:
    """Promise: nothing committed is nothing wrong."""
    run_batches(audited.dsn, orders_topology(audited.folder, may_be_empty=True))

    code, report = audited.audit()

    assert (code, report["batches"]) == (0, [])


@pytest.fixture
def reader(orders: Audited) -> Iterator[Callable[[str], str]]:
    """Makes a role that may only read schema txtopo and the tables named; gives its URL."""
    name = f"auditor_{orders.dsn.rpartition('/')[2]}"

    def make(tables: str) -> str:
        execute_as_superuser(
            orders.dsn,
            sql.SQL("create role {} login").format(sql.Identifier(name)),
            sql.SQL("grant usage on schema txtopo to {}").format(sql.Identifier(name)),
            sql.SQL("grant select on all tables in schema txtopo to {}").format(sql.Identifier(name)),
            *(
                sql.SQL("grant select on {} to {}").format(sql.Identifier(table), sql.Identifier(name))
                for table in tables.split()
            ),
        )
        scheme, _, rest = orders.dsn.partition("://")
        return f"{scheme}://{quote(name)}@{rest.rpartition('@')[2]}"

    yield make
    execute_as_superuser(orders.dsn, sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))


@pytest.mark.parametrize(
    ("tables", "code"),
    [("order_totals order_totals_contribution", 0), ("order_totals", 3), ("order_totals_contribution", 3)],
)
def test_a_role_that_may_only_select_can_audit(
    orders: Audited, reader: Callable[[str], str], tables: str, code: int
) -> None:
    """Promise: works with a SELECT-only role; what it may not read is UNVERIFIED."""
    found, report = orders.audit("--dsn", reader(tables))

    assert found == code
    assert all("permission denied" in one["message"] for one in report["findings"])


def test_rows_that_were_there_before_are_compared_with_what_was_registered(audited: Audited) -> None:
    """Promise: a table that was taken over is the baseline and all contributions; txid 0 is no stranger there."""
    write_orders(audited.folder, 2)
    audited.plant(
        "create table order_totals (shop text, article text, rows bigint not null, pieces numeric not null, price "
        "numeric not null, "
        "unique nulls not distinct (shop, article))",
        "insert into order_totals values ('shop 1', 'a1', 3, 4, 5.50), (null, 'old', 1, 1, 1)",
    )
    builder = TopologyBuilder("orders")
    builder.set_spout(
        "files",
        FileSpout(str(audited.folder), "shop string, article string, pieces int, price decimal(12,2)", settled_s=0.05),
    )
    committer = CountCommitter(
        "order_totals", ["shop", "article"], count="rows", sums=["pieces", "price"], baseline=True
    )
    builder.set_committer_bolt("totals", committer).shuffle_grouping("files")
    run_batches(audited.dsn, builder.build())

    good, partly = audited.audit()[0], audited.audit("1")[0]
    audited.plant(
        "update order_totals_contribution set pieces = 2 where txid = 0 and shop is null",
        "update order_totals set pieces = 2 where article = 'old'",
    )

    assert (good, partly, audited.audit()[0]) == (0, 0, 1)


def test_without_contributions_only_the_total_is_compared_and_it_says_so(audited: Audited) -> None:
    """Promise: what cannot be compared is listed as such by design, which changes no exit code; what can be is."""
    write_orders(audited.folder, 2)
    builder = TopologyBuilder("orders")
    builder.set_spout("files", FileSpout(str(audited.folder), "shop string, article string", settled_s=0.05))
    builder.set_committer_bolt(
        "totals", CountCommitter("order_totals", ["shop"], contributions=False)
    ).shuffle_grouping("files")
    run_batches(audited.dsn, builder.build())

    good, report = audited.audit()
    audited.plant("update order_totals set count = count + 1 where shop = 'shop 1'")

    assert (good, audited.audit()[0]) == (0, 1)
    assert {one["check"] for one in report["by_design"]} == {"source.keys", "contributions.rows", "target.keys"}


HOSTILE = {
    "quotes.csv": 'id,"a key",n,d,at,day\r\n1,"say ""hi""\n, '
    'twice",5,1.50,2013-01-31T10:00:00+01:00,2013-01-31\r\n\r\n2,"",-7,2,2013-01-31,2013-01-31\r\n',
    "mark.csv": "\ufeffday,a key,n,d,at\n2013-02-01,NA,,1e1,\n\n\n2013-02-01,null, 8 ,.25,2013-01-31 10:00:00Z\n",
    "empty.csv": "",
    "header only.csv": "a key,n,d,at,day\n",
    "no end\n*[x] .csv": 'a key,n,d,at,day\r\u2028\u00e9,1,0.01,,\r"NaN",2,3,,2013-02-01',
}


def test_hostile_files_are_counted_as_the_runs_counted_them(audited: Audited) -> None:
    """Promise: quotes, line ends in values, CRLF, CR, a byte order mark, blank lines, empty, header only; keys of many
    types; names with %.
    """
    folder = audited.folder
    for name, content in HOSTILE.items():
        (folder / name).write_bytes(content.encode())
    builder = TopologyBuilder("hostile")
    fields = "`a key` string, n int, d decimal(10,2), at timestamp, day date"
    builder.set_spout("files", FileSpout(str(folder), fields, settled_s=0.05, files_per_batch=2))
    committer = CountCommitter("odd", ["a key", "at", "day", "d"], count='100% "n"', sums={"n": "n:sum", "d": "total"})
    builder.set_committer_bolt("odd", committer).shuffle_grouping("files")
    assert run_batches(audited.dsn, builder.build()) == 3

    code, report = audited.audit(topology="hostile")
    audited.plant("""update odd set "n:sum" = 0 where "a key" = ''""")
    wrong, after = audited.audit(topology="hostile")

    assert (code, report["findings"]) == (0, [])
    assert sum(one["recounted"] for one in report["batches"]) == 6
    assert (wrong, len(after["findings"])) == (1, 1)


def test_the_text_says_what_was_compared_with_what(orders: Audited) -> None:
    """Promise: each check named, with what was compared with what; the runs' own counters beside, never as the proof."""  # noqa: E501
    code, text = orders.text()

    assert code == 0
    assert text.startswith("orders  MATCH  batches 1 to 6: ")
    for part in (
        "source.keys",
        "counts and sums a key, recounted from the files",
        "the contributions of the batch",
        "6 MATCH",
        "120 read by the runs, 120 counted again in the files of 6 batches",
        "6 applied",
        "turn and commit",
    ):
        assert part in text


@pytest.mark.slow
def test_ten_thousand_batches_without_recount_cost_no_more_each_than_a_thousand(audited: Audited) -> None:
    """It took some 3 s here. Held is what no slow machine changes: the work grows with the batches and no faster, in
    processor time of this process.
    """
    fill(audited.dsn, orders_topology(audited.folder, may_be_empty=True), batches=10_000, keys=2)

    def audit(*batches: str) -> tuple[int, float]:
        began = time.process_time()
        code, report = audited.audit(*batches, "--no-recount")
        took_s = time.process_time() - began
        assert (code, report["findings"]) == (0, [])
        return len(report["batches"]), took_s

    audit("1..10")  # what is done once is done before
    (few, few_s), (many, many_s) = audit("1..1000"), audit()

    assert (few, many) == (1_000, 10_000)
    assert many_s < 2 * 10 * few_s
