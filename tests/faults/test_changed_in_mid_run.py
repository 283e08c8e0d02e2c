"""Rights, roles and tables that somebody changes while a run is under way: it waits with words and an end, or halts; no
batch is left out over it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from psycopg2 import sql

from tests.kit.applications import orders_topology
from tests.kit.asked import Said, runner
from tests.kit.audited import select
from tests.kit.driver import in_process
from tests.kit.drivers import wait_until
from tests.kit.fix_postgres import execute_as_superuser
from tests.kit.orders import Totals, recount, write_orders
from txtopo.app import drive
from txtopo.config import load_settings
from txtopo.core import backoff, crash_points, limits, patience
from txtopo.core.crash_points import CrashPoint
from txtopo.errors import TxtopoError

ROLE = "txtopo_changed"
GRANTS = f"""
create role {ROLE} login;
grant usage on schema txtopo to {ROLE};
grant select, insert, update on all tables in schema txtopo to {ROLE};
grant usage, create on schema public to {ROLE};
"""
END_SESSIONS = f"select pg_terminate_backend(pid) from pg_stat_activity where usename = '{ROLE}'"
HANGS_AFTER_S = 90


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int
    words: str
    next: str | None = None


class Changed:
    """A run in this process, as a role without a superuser's rights, and somebody who changes something once a batch is
    committed.
    """

    def __init__(self, database: str, zookeeper: str, folder: Path, ask: Callable[..., Said]) -> None:
        scheme, _, rest = database.partition("://")
        self.owner = database
        self.dsn = f"{scheme}://{ROLE}@{rest.rpartition('@')[2]}"
        self.folder = folder
        self.ask = ask
        self._zookeeper = zookeeper

    def run(
        self, change: str | Callable[[], None], *, at: tuple[CrashPoint, int] = (CrashPoint.COMMITTED, 2), **flags: Any
    ) -> Ended:
        """The orders topology; `change` happens the first time that it comes to that point. One that hangs ends with
        143.
        """
        left = [change]

        def listener(point: CrashPoint, txid: int | None) -> None:
            if (point, txid) == at and left:
                now = left.pop()
                if isinstance(now, str):
                    execute_as_superuser(self.owner, sql.SQL(now))
                else:
                    now()

        # One batch a commit: the change comes between two commits, whatever is ready by then.
        alone = {"workers": 1, "run_txids_max": 1}
        given = {"once": True, "dsn": self.dsn, "zookeeper": self._zookeeper, "quiet": True, **alone, **flags}
        settings = load_settings(given, cwd=Path.cwd(), environment={}, target=None)
        timer = threading.Timer(HANGS_AFTER_S, lambda: os.kill(os.getpid(), signal.SIGTERM))
        timer.start()
        crash_points.listen(listener)
        try:
            return Ended(drive(orders_topology(self.folder), "app.py:topology", settings, in_process), "")
        except TxtopoError as error:
            return Ended(error.exit_code, str(error), getattr(error, "next_command", None))
        finally:
            crash_points.listen(None)
            timer.cancel()

    def status(self) -> Said:
        """`txtopo status orders`."""
        return self.ask("status", "orders", "--dsn", self.owner)

    def show(self, txid: int) -> Said:
        """`txtopo show orders TXID`."""
        return self.ask("show", "orders", str(txid), "--dsn", self.owner)

    def states(self) -> list[str]:
        """Of the batches in the ledger."""
        return [row[0] for row in select(self.owner, "select state from txtopo.ledger where txid > 0 order by txid")]

    def totals(self) -> Totals:
        """The target table."""
        rows = select(self.owner, "select shop, article, rows, pieces, price from order_totals")
        return {row[:2]: (int(row[2]), row[3], row[4]) for row in rows}


@pytest.fixture
def changed(
    database: str,
    zookeeper_root: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Changed]:
    """Six files, a role that may run a topology, and waits that are short."""
    monkeypatch.setattr(backoff, "BACKOFF_MAX_S", 0.05)
    monkeypatch.setattr(limits, "HEARTBEAT_EVERY_S", 0.05)
    execute_as_superuser(database, sql.SQL(GRANTS))
    write_orders(tmp_path / "in", 6)
    yield Changed(database, zookeeper_root, tmp_path / "in", runner(capsys))
    execute_as_superuser(
        database, sql.SQL(f"reassign owned by {ROLE} to current_user; drop owned by {ROLE}; drop role {ROLE}")
    )


def refusing(code: str, when: str = "insert or update") -> str:
    """A trigger of the user's that always raises this code."""
    return (
        f"create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'refused' "
        f"using errcode = '{code}'; end $$; "
        f"create trigger refuse before {when} on public.order_totals for each row execute function public.refuse()"
    )


def assert_halted_without_skip(changed: Changed, ended: Ended, words: str) -> None:
    """Said on the terminal, in `status` and in `show`, with what to do; to leave the batch out is not offered."""
    status, show = changed.status(), changed.show(3)
    assert (ended.code, words in ended.words) == (1, True), ended
    assert (status.code, "HALTED" in status.out, words in status.out) == (1, True, True), status.out
    assert ended.next is not None and "start `txtopo run` again" in ended.next
    assert ended.next in status.out
    assert "txtopo skip" not in ended.next + status.out + show.out
    assert changed.states() == ["applied", "applied"]


def test_a_right_on_the_target_that_is_taken_away_halts_and_is_no_reason_to_skip(changed: Changed) -> None:
    """Promise: a right is missing: the topology halts and says what; once it is there again, all is counted."""
    ended = changed.run(f"revoke all on public.order_totals from {ROLE}", on_poison="quarantine_batch")

    assert_halted_without_skip(changed, ended, "permission denied for table order_totals")
    assert "1 failed attempt: 0 data, 0 infrastructure, 0 suspect, 1 halt" in changed.status().out
    dry = changed.ask("skip", "orders", "3", "--reason", "x", "--dry-run", "--dsn", changed.owner)
    assert "may lose a good batch" in dry.out
    assert changed.run(f"grant all on public.order_totals to {ROLE}", at=(CrashPoint.ELECTED, 0)).code == 1
    execute_as_superuser(changed.owner, sql.SQL(f"grant all on public.order_totals to {ROLE}"))
    assert changed.run("select 1").code == 0
    assert changed.totals() == recount(changed.folder)


def test_a_driver_that_can_note_nothing_ends_with_1_and_status_says_no_more_than_it_knows(changed: Changed) -> None:
    """Where the heartbeat and the end cannot be written the driver halts; `status` says how old the last word is, then
    STALLED.
    """
    ended = changed.run(f"revoke update on txtopo.topology from {ROLE}", once=False)

    assert (ended.code, "permission denied for table topology" in ended.words) == (1, True), ended
    assert "RUNNING" in changed.status().out and "heartbeat" in changed.status().out
    execute_as_superuser(
        changed.owner, sql.SQL("update txtopo.topology set heartbeat_at = heartbeat_at - interval '1 min'")
    )
    status = changed.status()
    assert (status.code, "STALLED" in status.out, "txtopo run app.py:topology" in status.out) == (1, True, True)
    assert set(changed.states()) == {"applied"}


def test_a_run_whose_end_may_not_be_noted_has_not_finished(changed: Changed) -> None:
    """The exit code 0 and FINISHED belong together."""
    ended = changed.run(f"revoke update on txtopo.topology from {ROLE}", at=(CrashPoint.COMMITTED, 6))

    assert ended.code == 1 and "permission denied for table topology" in ended.words, ended
    assert changed.states() == ["applied"] * 6


def test_a_lock_that_a_trigger_makes_up_is_not_waited_for_without_end(
    changed: Changed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W1: that somebody holds a lock is believed of the server's own wait alone."""
    monkeypatch.setitem(patience._MAX, "store", 3)

    ended = changed.run(refusing("55P03"))

    assert_halted_without_skip(changed, ended, "its commit failed 3 times, and Postgres answers")


TABLES = [
    "topology",
    "fence",
    "ledger",
    "attempt",
    "plan",
    "committer_count",
    "source_file",
    "request",
    "edge_count",
    "rejected_row",
    "action",
]


@pytest.mark.attack
@pytest.mark.parametrize("table", TABLES)
def test_a_right_on_a_table_of_schema_txtopo_that_is_taken_away_halts(changed: Changed, table: str) -> None:
    """Every table that a commit needs. What cannot be noted is told on the terminal."""
    ended = changed.run(
        f"revoke all on txtopo.{table} from {ROLE}", on_poison="quarantine_batch", once=False, spout_pending_max=2
    )

    assert (ended.code, f"permission denied for table {table}" in ended.words) == (1, True), ended
    assert ended.next is not None and "start `txtopo run` again" in ended.next
    assert set(changed.states()) == {"applied"}
    status = changed.status()
    assert ("RUNNING" if table in ("topology", "fence") else "HALTED") in status.out
    execute_as_superuser(changed.owner, sql.SQL(f"grant select, insert, update on txtopo.{table} to {ROLE}"))
    assert changed.run("select 1").code == 0
    assert changed.totals() == recount(changed.folder)


@pytest.mark.attack
@pytest.mark.parametrize(
    "change",
    [
        f"alter role {ROLE} set default_transaction_read_only = on; {END_SESSIONS}",
        f"alter role {ROLE} set statement_timeout = 1; {END_SESSIONS}",
        f"alter role {ROLE} nologin",
        END_SESSIONS,
    ],
)
def test_what_a_role_has_set_and_sessions_that_end_change_nothing(changed: Changed, change: str) -> None:
    """P8: no setting of a role weakens a database transaction; a pool's connections are made anew."""
    assert changed.run(change, on_poison="quarantine_batch").code == 0

    assert changed.states() == ["applied"] * 6
    assert changed.totals() == recount(changed.folder)


@pytest.mark.attack
def test_a_role_that_may_not_log_in_is_waited_for_with_its_words(
    changed: Changed, capsys: pytest.CaptureFixture[str]
) -> None:
    """R16: the driver stays, says why, and goes on by itself."""
    back = threading.Timer(12, lambda: execute_as_superuser(changed.owner, sql.SQL(f"alter role {ROLE} login")))
    back.start()

    ended = changed.run(f"alter role {ROLE} nologin; {END_SESSIONS}", on_poison="quarantine_batch", quiet=False)

    back.join()
    assert ended.code == 0, ended
    assert "is not permitted to log in" in capsys.readouterr().err
    assert changed.states() == ["applied"] * 6
    assert changed.totals() == recount(changed.folder)


NOBODYS = {
    "a column that is gone": ("alter table order_totals drop column price", "price numeric is missing"),
    "another type": (
        "alter table order_totals alter column price type text using price::text",
        "price is text, not numeric",
    ),
    "the table is gone": (
        "alter table order_totals rename to other",
        "no longer exists although batches were counted in it",
    ),
    "no unique key": (
        "alter table order_totals drop constraint order_totals_shop_article_key",
        "needs one row for each key",
    ),
    "a rule": ("create rule r as on insert to order_totals do instead nothing", "INSERT RETURNING"),
    "the schema is closed": (f"revoke all on schema public from public, {ROLE}", "permission denied for schema public"),
    "a serialization failure each time": (refusing("40001"), "its commit failed 20 times, and Postgres answers"),
    "a deadlock each time": (refusing("40P01"), "its commit failed 20 times, and Postgres answers"),
    "a full disk each time": (refusing("53100"), "its commit failed 20 times, and Postgres answers"),
}
"""The same whatever on_poison says."""
PROVEN = {
    "a column that must be there": (
        "alter table order_totals add extra int not null default 0; alter table order_totals alter extra drop default",
        "null value in column",
    ),
    "a trigger": (refusing("P0001"), "refused (SQLSTATE P0001)"),
    "a trigger over updates": (refusing("P0001", "update"), "refused (SQLSTATE P0001)"),
    "a broken connection that is none": (refusing("08006"), "refused (SQLSTATE 08006)"),
    "a check": (
        "alter table order_totals add constraint small check (rows < 3) not valid",
        'violates check constraint "small"',
    ),
    "rows that vanish": (
        refusing("P0001").replace("raise exception 'refused' using errcode = 'P0001'", "return null"),
        "its numbers disagree",
    ),
    "time that is always up": (refusing("57014"), "refused (SQLSTATE 57014)"),
}
"""Taken for data, until `quarantine_batch` would leave the batch out: then what was good before is tried, and fails
too.
"""


@pytest.mark.attack
@pytest.mark.parametrize("on_poison", ["halt", "quarantine_batch", "dead_letter_rows"])
@pytest.mark.parametrize("change", [*NOBODYS, *PROVEN])
def test_a_change_of_the_target_halts_with_its_words(changed: Changed, change: str, on_poison: str) -> None:
    """W1 to W5: nothing hangs, no batch is left out, none is offered to be skipped where it is proven not to be at
    fault.
    """
    statement, words = {**NOBODYS, **PROVEN}[change]

    ended = changed.run(statement, on_poison=on_poison)

    if change in NOBODYS or on_poison == "quarantine_batch":
        assert "no batch is at fault" in ended.words
        assert_halted_without_skip(changed, ended, words)
    else:
        assert (ended.code, words in ended.words, ended.next) == (1, True, "txtopo show orders 3"), ended
        assert 'txtopo skip orders 3 --reason "…"' in changed.status().out
    assert changed.states() == ["applied", "applied"]


@pytest.mark.attack
@pytest.mark.parametrize("on_poison", ["halt", "quarantine_batch"])
def test_a_key_that_is_too_long_is_its_batchs_own_fault(changed: Changed, on_poison: str) -> None:
    """Said with committer and key; left out only where that was asked for, and then told."""
    shop = "".join(chr(0x4E00 + 7919 * number % 20000) for number in range(3000))
    (changed.folder / "order_0003.csv").write_text(f"id,shop,article,pieces,price\n1,{shop},a1,1,1.00\n", "utf-8")

    ended = changed.run("select 1", on_poison=on_poison)

    if on_poison == "halt":
        assert (ended.code, "key shop has 9,000 bytes" in ended.words) == (1, True), ended
        assert changed.states() == ["applied", "applied"]
    else:
        assert ended.code == 0
        assert changed.states() == ["applied", "applied", "quarantined", "applied", "applied", "applied"]
        assert "batch 3 is quarantined and not redone" in changed.status().out


@pytest.mark.attack
def test_a_real_deadlock_with_somebody_else_is_waited_out(changed: Changed) -> None:
    """P10: whichever of the two the server ends, every batch is counted once."""
    with contextlib.closing(psycopg2.connect(changed.owner)) as beside:
        keys = "select ctid from order_totals order by shop {0} nulls last, article {0} limit 1"
        other = threading.Thread(target=lambda: _cross(changed, beside, keys))

        def begin() -> None:
            with beside.cursor() as cursor:
                cursor.execute(f"update order_totals set rows = rows where ctid = ({keys.format('desc')})")
            other.start()

        ended = changed.run(begin, at=(CrashPoint.LEDGER_APPENDED, 3), on_poison="quarantine_batch")
        other.join(60)

    assert ended.code == 0, ended
    assert changed.totals() == recount(changed.folder)
    assert changed.states() == ["applied"] * 6


def _cross(changed: Changed, beside: Any, keys: str) -> None:
    """Once the run waits for the one row, ask for all others, then let go."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and usename = '" + ROLE + "'"
    wait_until(lambda: select(changed.owner, waiting)[0][0] > 0, "the wait of the run")
    with contextlib.suppress(psycopg2.errors.DeadlockDetected), beside.cursor() as cursor:
        cursor.execute("update order_totals set rows = rows")
    beside.rollback()
