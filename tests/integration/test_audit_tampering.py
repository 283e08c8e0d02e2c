"""What somebody changes behind the triggers without sealing anew shows: times, attempts, reasons, actions, orders, the
fence, the guards, the description.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.kit.fix_postgres import fresh_database
from tests.kit.planting import Planted, fill
from tests.kit.tampering import COUNTED, FAULTS, FORGED
from txtopo.audit.audit_text import audit_json, audit_text
from txtopo.audit.check_schema import NotAsMadeError
from txtopo.audit.verdicts import Verdict
from txtopo.local.postgres import LocalPostgres


@pytest.fixture(scope="module")
def planted(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Planted]:
    """One database for all plants: each is rolled back."""
    folder = tmp_path_factory.mktemp("planted")
    with fresh_database(postgres_server, migrated_template) as dsn:
        fill(dsn, folder)
        yield Planted(dsn, folder)


@pytest.mark.parametrize("name", FAULTS)
def test_what_was_changed_without_sealing_anew_is_found(planted: Planted, name: str) -> None:
    """Promise: everything that a report shows is guarded; the verdict is MISMATCH, by the check that is about it."""
    check, statements = FAULTS[name]

    report = planted.audit(*statements)

    assert report.verdict is Verdict.MISMATCH
    assert check in {one.check for one in report.findings}, [one.message for one in report.findings]
    assert json.loads(audit_json(report))["verdict"] == "MISMATCH"
    assert audit_text(report).startswith("orders  MISMATCH")


def test_nothing_planted_is_nothing_found(planted: Planted) -> None:
    """The control for all of these: the same database is right, and each check had something to compare."""
    report = planted.audit(recount=True)

    assert report.findings == ()
    assert {one.name for one in report.checks if not one.comparisons} == {"kept.seals"}


def test_a_description_changed_by_a_plain_update_is_found(planted: Planted) -> None:
    """Promise: also where the server noted the change as it notes a leader's: one code describes itself in one way."""
    report = planted.audit(FORGED, COUNTED, guarded=True)
    other = planted.audit(f"{FORGED}, code_hash = sha256('x')", COUNTED, guarded=True)

    for one in (report, other):
        assert {found.check for found in one.findings if found.verdict is Verdict.MISMATCH} >= {"topology.described"}


def test_a_trigger_of_somebody_elses_is_told_and_is_not_wrong(planted: Planted) -> None:
    """Promise: an alarm of the operator's own on a table of txtopo is no fault; that nobody looked at what it does is
    said.
    """
    report = planted.audit(
        "create function public.alarm() returns trigger language plpgsql as $$ begin return null; end $$; "
        "create trigger alarm after insert on txtopo.attempt for each row execute function public.alarm(); select 1"
    )

    assert (report.verdict, report.findings) == (Verdict.MATCH, ())
    assert [one.reason for one in report.by_design if one.check == "schema.guards"] == [
        "table txtopo.attempt has a trigger that no migration made, alarm: its effect was not checked"
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "alter table txtopo.committer_count rename ignored to x",
            "table txtopo.committer_count has no column ignored: bigint",
        ),
        (
            "alter table txtopo.committer_count alter arrived type numeric",
            "table txtopo.committer_count has no column arrived: bigint",
        ),
        ("alter table txtopo.ledger drop column reason", "table txtopo.ledger has no column reason: text"),
        ("drop table txtopo.edge_count", "there is no table txtopo.edge_count"),
        (
            (
                "create table public.more () inherits (txtopo.ledger); insert into public.more select * from "
                "txtopo.ledger where txid = 5"
            ),
            "table txtopo.ledger has child tables, whose rows are read with its own",
        ),
        (
            (
                "create schema old; alter table txtopo.attempt set schema old; "
                "alter table txtopo.edge_count set schema old"
            ),
            "there is no table txtopo.attempt; there is no table txtopo.edge_count",
        ),
        (
            """alter table txtopo.attempt alter message type text collate "C\"""",
            "table txtopo.attempt has no column message: text",
        ),
        (
            (
                "do $x$ declare one record; begin for one in select attname from pg_attribute where attnum > 0 "
                "and attrelid = 'txtopo.attempt'::regclass order by attname limit 11 loop "
                "execute 'alter table txtopo.attempt rename ' || quote_ident(one.attname) || ' to x_' || one.attname; "
                "end loop; end $x$"
            ),
            "; and 1 more",
        ),
    ],
)
def test_tables_that_cannot_be_read_as_they_were_made_are_wrong(planted: Planted, change: str, said: str) -> None:
    """Promise: a schema that was rebuilt is 1 and named, never a crash, and never a matter of a migration that was
    forgotten.
    """
    with pytest.raises(NotAsMadeError, match=re.escape(f"{said}. That is not as the migrations made it")) as found:
        planted.audit(f"{change}; select 1")

    assert found.value.exit_code == 1


def test_what_somebody_made_on_a_target_is_told_and_is_not_wrong(planted: Planted) -> None:
    """Promise: a trigger, rule or policy of the operator's own on a target is no fault; that nobody looked at what it
    does is said.
    """
    report = planted.audit(
        "create function public.alarm() returns trigger language plpgsql as $$ begin return null; end $$; "
        "create trigger alarm after insert on order_totals for each row execute function public.alarm(); "
        "alter table order_totals_contribution enable row level security; create rule quiet as on delete to "
        "order_totals do instead nothing; select 1"
    )

    assert (report.verdict, report.findings) == (Verdict.MATCH, ())
    assert [one.reason.partition(",")[0] for one in report.by_design if one.check == "target.shape"] == [
        "table public.order_totals has rule quiet",
        "table public.order_totals has trigger alarm",
        "table public.order_totals_contribution has row level security",
    ]


def test_what_an_administrator_may_do_is_no_fault(planted: Planted) -> None:
    """Promise: another owner, rights, comments, indexes, columns, statistics and tables of somebody's own raise no
    alarm.
    """
    report = planted.audit(
        "create role another; alter schema txtopo owner to another; alter table txtopo.ledger owner to another; "
        "alter function txtopo.seal() owner to another",
        "alter table order_totals owner to another; grant select on all tables in schema txtopo to public; comment "
        "on table txtopo.ledger is 'x'",
        "create index on txtopo.ledger (committed_at); create index on order_totals (rows); create statistics s on "
        "shop, article from order_totals",
        "alter table txtopo.attempt add column note text; alter table order_totals set (fillfactor = 50); alter "
        "table order_totals add check (rows < 1000000)",
        "create table txtopo.mine (a int); create table child () inherits (txtopo.mine); "
        "create function txtopo.mine() returns int language sql as 'select 1'; "
        "alter role current_user in database postgres set session_replication_role = replica; "
        "cluster txtopo.ledger using ledger_pkey; analyze; select 1",
    )

    assert (report.verdict, report.findings) == (Verdict.MATCH, ())
    assert [one.reason for one in report.by_design if one.check == "schema.guards"] == []


def test_functions_that_are_gone_and_changed_are_told_apart(planted: Planted) -> None:
    report = planted.audit(
        "alter function txtopo.frozen() rename to thawed; "
        "create or replace function txtopo.final() returns trigger language plpgsql as $$ begin return new; end $$; "
        "select 1"
    )

    found = {one.message for one in report.findings if one.message.startswith("function ")}
    assert found == {
        "function txtopo.frozen no longer exists",
        "function txtopo.final is not as the migrations made it",
    }


def test_of_a_revision_that_is_not_known_nothing_is_said_to_be_right(planted: Planted) -> None:
    """Promise: a database of a later release is not verified by this one, and not called wrong for its revision."""
    report = planted.audit("update txtopo.schema_version set version_num = '9999'")

    (found,) = [one for one in report.findings if one.check == "schema.guards"]
    assert (found.verdict, report.verdict) == (Verdict.UNVERIFIED, Verdict.UNVERIFIED)
    assert found.message == "schema txtopo is of revision 9999, which this release does not know"


def test_contributions_without_their_triggers_are_told(planted: Planted) -> None:
    """Promise: a table that an administrator made in advance has none, which is no fault; that nothing keeps its rows
    is said.
    """
    report = planted.audit("drop trigger frozen on order_totals_contribution; select 1")

    assert (report.verdict, report.findings) == (Verdict.MATCH, ())
    assert ["no trigger frozen" in one.reason for one in report.by_design if one.check == "target.shape"] == [True]


def test_an_attempt_that_ends_after_its_batch_is_sealed_is_right(planted: Planted) -> None:
    """Promise: the books of an attempt may come later than the commit of its batch; only its beginning is sealed then."""  # noqa: E501
    late = planted.audit(
        "insert into txtopo.attempt (topology, txid, attempt, epoch, code_hash, state, ended_at) "
        "select topology, 4, 9, epoch, code_hash, 'cancelled', now() from txtopo.fence",
    )

    assert late.findings == ()
