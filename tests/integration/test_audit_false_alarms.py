"""The audit does not cry wolf: what is right, hidden from its role, or not there yet is never called wrong, and nothing
stops its report.
"""

from __future__ import annotations

import shlex
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg2 import sql

from tests.kit.audited import Leader, run_batches
from tests.kit.audits import Audited, findings
from tests.kit.fix_postgres import execute_as_superuser
from tests.kit.orders import write_orders
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.cli import main
from txtopo.topology.components import Topology


def shops(folder: Path, *, contributions: bool = True) -> Topology:
    """Counts orders by shop."""
    builder = TopologyBuilder("orders")
    builder.set_spout("files", FileSpout(str(folder), "shop string, article string", settled_s=0.05))
    committer = CountCommitter("order_totals", ["shop"], contributions=contributions)
    builder.set_committer_bolt("totals", committer).shuffle_grouping("files")
    return builder.build()


def test_a_batch_that_was_taken_back_is_not_counted_again_where_only_the_total_is_compared(audited: Audited) -> None:
    """Promise: the total of a table is that of the batches in effect."""
    write_orders(audited.folder, 3)
    with closing(Leader(audited.dsn, shops(audited.folder))) as leader:
        leader.cut()
        leader.redo(2)
    run_batches(audited.dsn, shops(audited.folder, contributions=False), code_hash=b"d" * 32)

    good, report = audited.audit()
    audited.plant("update order_totals set count = count + 1 where shop = 'shop 1'")

    assert (good, report["findings"], audited.audit()[0]) == (0, [], 1)
    assert any("keeps no contributions" in one["reason"] for one in report["by_design"])


def test_rows_that_a_policy_hides_from_the_auditor_are_unverified(orders: Audited) -> None:
    """Promise: what the auditor's role may not see is unknown to it: neither wrong nor right."""
    name = f"hidden_from_{orders.dsn.rpartition('/')[2]}"
    role = sql.Identifier(name)
    execute_as_superuser(
        orders.dsn,
        sql.SQL("create role {} login").format(role),
        sql.SQL("grant usage on schema txtopo to {}").format(role),
        sql.SQL("grant select on all tables in schema txtopo to {}").format(role),
        sql.SQL("grant select on order_totals, order_totals_contribution to {}").format(role),
        sql.SQL("insert into order_totals values ('hidden', 'a1', 1, 1, 1)"),
        sql.SQL("alter table order_totals enable row level security"),
        sql.SQL("create policy part on order_totals using (shop is distinct from 'hidden')"),
    )
    scheme, _, rest = orders.dsn.partition("://")
    try:
        code, report = orders.audit("--dsn", f"{scheme}://{quote(name)}@{rest.rpartition('@')[2]}")
    finally:
        execute_as_superuser(orders.dsn, sql.SQL("drop owned by {0}; drop role {0}").format(role))

    assert (code, report["verdict"]) == (3, "UNVERIFIED")
    assert ["row-level security" in one["message"] for one in report["findings"]] == [True]
    assert orders.audit()[0] == 1


def test_a_topology_that_was_refused_at_its_first_start_has_nothing_that_could_be_wrong(audited: Audited) -> None:
    """Promise: nothing committed is nothing wrong, also where the tables were never made."""
    audited.plant("create table order_totals (shop text, count numeric not null)")
    with pytest.raises(Exception, match="count is numeric"):
        run_batches(audited.dsn, shops(audited.folder))

    code, report = audited.audit()

    assert (code, report["verdict"], report["findings"]) == (0, "MATCH", [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "alter table order_totals_contribution alter rows type numeric",
            "order_totals_contribution has other columns: rows is numeric, not bigint",
        ),
        (
            "alter table order_totals alter rows type numeric",
            "order_totals has other columns: rows is numeric, not bigint",
        ),
        ("alter table order_totals alter price type double precision", "price is double precision, not numeric"),
        ("alter table order_totals add note text", "note is not expected"),
        ("alter table order_totals set unlogged", "table public.order_totals is not logged"),
        (
            "alter table order_totals rename to kept; create view order_totals as select * from kept",
            "public.order_totals is no table any more, but a view",
        ),
    ],
)
def test_tables_of_another_shape_are_named_and_stop_no_report(orders: Audited, change: str, said: str) -> None:
    """Promise: a table that is made otherwise than a start would demand is wrong, even where its numbers agree; the
    JSON is whole.
    """
    orders.plant(change)

    code, report = orders.audit("--no-recount")

    assert code == 1
    (found,) = findings(report)
    assert (found["check"], said in found["message"]) == ("target.shape", True), found


def test_a_key_as_varchar_is_as_right_as_at_the_start(orders: Audited) -> None:
    """Promise: what a driver takes for its table the audit takes too."""
    orders.plant("alter table order_totals alter shop type varchar")

    assert orders.audit("--no-recount")[0] == 0


def test_what_is_said_of_one_or_of_an_attempt_is_a_true_sentence(orders: Audited) -> None:
    """Promise: the words name what differs: the code, where only the code does; one batch is one batch."""
    orders.plant(
        "update txtopo.attempt set code_hash = sha256('x') where txid = 2",
        "insert into txtopo.committer_count values ('orders', 77, 'totals', 1, 1, 1, 1, 0, 0, 1)",
        "insert into order_totals_contribution values (4, null, 'shop 9', 'a1', 1, 1, 1)",
    )

    said = [one["message"] for one in findings(orders.audit("--no-recount")[1])]

    (attempt,) = (one for one in said if "of its attempts" in one)
    ran, of_its = attempt.split("; of its attempts ")
    assert ran.removeprefix("it says that ").removesuffix(" was applied") != of_its.removesuffix(" was")
    assert "by code 6363636363636363" in ran
    assert "1 committer's count of batch 77, which is not in the ledger" in said
    assert any("(batch 4)" in one for one in said)


def test_next_names_no_batch_that_only_contributed_to_a_wrong_row(orders: Audited) -> None:
    """Promise: where only a row of the table is wrong, what comes next shows how that row was made."""
    orders.plant("update order_totals set pieces = pieces + 3 where shop is null and article = 'a0'")

    code, text = orders.text("--no-recount")
    line = text.splitlines()[-1]
    words = shlex.split(line.removeprefix("next       txtopo "))

    assert code == 1
    assert line == "next       txtopo trace --table public.order_totals --null shop --key article=a0"
    assert main(words) == 1
