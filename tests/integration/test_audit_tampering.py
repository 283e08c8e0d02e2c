"""What somebody changes behind the triggers without sealing anew shows: times, attempts, reasons, actions, orders, the
fence, the guards, the description.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.kit.fix_postgres import fresh_database
from tests.kit.planting import BATCHES, Planted, fill
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


A_DAY = "- interval '1 day'"
ANOTHER = "set actor = 'eve', reason = 'none', at = at + interval '1 hour'"
FORGED = (
    """update txtopo.topology set description = jsonb_set(description, '{committers,totals,contributions}', 'false')"""
)
COUNTED = (
    "update order_totals set rows = rows + case article when 'a1' then 1 else -1 end where shop = 'shop 1' and "
    "article in ('a1', 'a2')"
)

FAULTS: dict[str, tuple[str, list[str]]] = {
    "time of the last batch": (
        "ledger.seal",
        [
            f"update txtopo.ledger set committed_at = committed_at + interval '20 s' where txid = {BATCHES}",
            f"update txtopo.attempt set ended_at = ended_at + interval '20 s' where txid = {BATCHES}",
        ],
    ),
    "all times": (
        "ledger.seal",
        [
            f"update txtopo.ledger set committed_at = committed_at {A_DAY}, planned_at = planned_at {A_DAY}",
            f"update txtopo.plan set created_at = created_at {A_DAY}",
            f"update txtopo.attempt set started_at = started_at {A_DAY}, ended_at = ended_at {A_DAY}",
        ],
    ),
    "time without an end": (
        "ledger.seal",
        [f"update txtopo.ledger set committed_at = 'infinity' where txid = {BATCHES}"],
    ),
    "time before all others": (
        "ledger.seal",
        ["update txtopo.attempt set started_at = '-infinity' where (txid, attempt) = (2, 0)"],
    ),
    "no time": ("ledger.order", ["update txtopo.ledger set planned_at = null where txid = 3"]),
    "numbers that are none": (
        "contributions.rows",
        [
            "alter table order_totals_contribution alter rows type numeric",
            "update order_totals_contribution set rows = 'NaN' where txid = 5",
        ],
    ),
    "spans that are none": (
        "ledger.seal",
        ["""update txtopo.attempt set spans = '{"processing": "long"}' where (txid, attempt) = (2, 1)"""],
    ),
    "attempts that are none": (
        "ledger.seal",
        ["""update txtopo.ledger set sealed_attempts = '{"a": 1}' where txid = 3"""],
    ),
    "time of planning": (
        "ledger.seal",
        [
            f"update txtopo.ledger set planned_at = planned_at {A_DAY} where txid = 1",
            f"update txtopo.plan set created_at = created_at {A_DAY} where txid = 1",
        ],
    ),
    "failed attempts removed": ("ledger.attempts", ["delete from txtopo.attempt where state = 'failed'"]),
    "one failed attempt removed": ("ledger.attempts", ["delete from txtopo.attempt where (txid, attempt) = (2, 0)"]),
    "words of a failed attempt": (
        "ledger.seal",
        ["update txtopo.attempt set message = 'nothing much' where (txid, attempt) = (2, 0)"],
    ),
    "kind of a failed attempt": (
        "ledger.seal",
        ["update txtopo.attempt set kind = 'infrastructure' where (txid, attempt) = (2, 0)"],
    ),
    "cause of a failed attempt": (
        "ledger.seal",
        ["update txtopo.attempt set cause = 'x' where (txid, attempt) = (2, 0)"],
    ),
    "detail of a failed attempt": (
        "ledger.seal",
        ["update txtopo.attempt set detail = 'x' where (txid, attempt) = (2, 0)"],
    ),
    "host of the applied attempt": (
        "ledger.seal",
        ["update txtopo.attempt set host = 'x' where (txid, attempt) = (2, 1)"],
    ),
    "spans of the applied attempt": (
        "ledger.seal",
        ["""update txtopo.attempt set spans = '{"processing": 0.001}' where (txid, attempt) = (2, 1)"""],
    ),
    "attempt added": (
        "ledger.attempts",
        [
            (
                "insert into txtopo.attempt (topology, txid, attempt, epoch, code_hash, state, ended_at) select "
                "topology, 5, 9, epoch, code_hash, 'cancelled', now() from txtopo.fence"
            )
        ],
    ),
    "reason of a rejected record": ("ledger.seal", ["update txtopo.rejected_row set reason = 'x'"]),
    "rejected record": ("ledger.seal", ["update txtopo.rejected_row set raw = 'no/such,prise'"]),
    "action and order together": (
        "actions.chain",
        [
            f"update txtopo.action {ANOTHER} where txid = 7",
            "update txtopo.request set actor = 'eve', reason = 'none' where request_id = 3",
        ],
    ),
    "time of an action": ("actions.chain", ["update txtopo.action set at = at + interval '1 hour' where txid = 4"]),
    "action and order removed": (
        "actions.chain",
        ["delete from txtopo.action where txid = 6", "delete from txtopo.request where request_id = 2"],
    ),
    "last action removed": ("actions.chain", ["delete from txtopo.action where txid = 7"]),
    "action without a seal": (
        "actions.chain",
        [
            (
                "insert into txtopo.action (topology, actor, host, command, before, after) values ('orders', 'eve', "
                "'x', "
                "'retry', '{}', '{}')"
            )
        ],
    ),
    "order opened again": (
        "actions.signed",
        ["update txtopo.request set state = 'open', answer = null, done_at = null where request_id = 3"],
    ),
    "epoch of the fence lowered": ("ledger.epochs", ["update txtopo.ledger set epoch = 3 where txid = 7"]),
    "epoch of the fence raised": ("ledger.epochs", ["update txtopo.fence set epoch = 99"]),
    "epochs of fence and leader lowered": (
        "ledger.epochs",
        ["update txtopo.ledger set epoch = 2", "update txtopo.fence set epoch = 1"],
    ),
    "code of the fence": ("ledger.epochs", ["update txtopo.fence set code_hash = sha256('x')"]),
    "version of a seal": ("ledger.seal", ["update txtopo.ledger set seal_version = 1 where txid = 7"]),
    "description of the topology": ("topology.described", [FORGED, COUNTED]),
    "description in the chain": ("topology.described", ["update txtopo.description set description = '{}'"]),
    "descriptions removed": ("topology.described", ["delete from txtopo.description"]),
    "a trigger off": ("schema.guards", ["alter table txtopo.ledger disable trigger final"]),
    "all triggers off": ("schema.guards", ["alter table txtopo.committer_count disable trigger all"]),
    "trigger for replicas only": ("schema.guards", ["alter table txtopo.plan enable replica trigger frozen"]),
    "trigger dropped": ("schema.guards", ["drop trigger frozen on txtopo.committer_count"]),
    "trigger on less": (
        "schema.guards",
        [
            "drop trigger frozen on txtopo.rejected_row",
            "create trigger frozen before delete on txtopo.rejected_row for each row execute function txtopo.frozen()",
        ],
    ),
    "function replaced": (
        "schema.guards",
        ["create or replace function txtopo.frozen() returns trigger language plpgsql as $$ begin return new; end $$"],
    ),
    "check dropped": ("schema.guards", ["alter table txtopo.committer_count drop constraint committer_count_check"]),
    "foreign key dropped": (
        "schema.guards",
        ["alter table txtopo.ledger drop constraint ledger_topology_redo_of_fkey"],
    ),
    "index dropped": ("schema.guards", ["drop index txtopo.redone_once"]),
    "check replaced by a weaker one": (
        "schema.guards",
        [
            "alter table txtopo.committer_count drop constraint committer_count_check",
            (
                "alter table txtopo.committer_count add constraint committer_count_check check (arrived >= 0 or "
                "arrived "
                "= counted)"
            ),
        ],
    ),
    "check not valid": (
        "schema.guards",
        [
            "alter table txtopo.committer_count drop constraint committer_count_check",
            (
                "alter table txtopo.committer_count add constraint committer_count_check check (arrived = counted) not "
                "valid"
            ),
        ],
    ),
    "foreign key on less": (
        "schema.guards",
        [
            "alter table txtopo.ledger drop constraint ledger_topology_redo_of_fkey",
            (
                "alter table txtopo.ledger add constraint ledger_topology_redo_of_fkey foreign key (topology) "
                "references "
                "txtopo.fence"
            ),
        ],
    ),
    "index not unique any more": (
        "schema.guards",
        ["drop index txtopo.redone_once", "create index redone_once on txtopo.ledger (topology, redo_of)"],
    ),
    "trigger on other columns": (
        "schema.guards",
        [
            "drop trigger agrees on txtopo.fence",
            (
                "create constraint trigger agrees after insert or update of owner_nonce on txtopo.fence deferrable "
                "initially deferred for each row execute function txtopo.fence_agrees()"
            ),
        ],
    ),
    "trigger that is never true": (
        "schema.guards",
        [
            "drop trigger frozen on txtopo.edge_count",
            (
                "create trigger frozen before update or delete on txtopo.edge_count for each row when (old.txid < 0) "
                "execute function txtopo.frozen()"
            ),
        ],
    ),
    "rule in the way": ("schema.guards", ["create rule quiet as on delete to txtopo.attempt do instead nothing"]),
    "table not logged": ("schema.guards", ["alter table txtopo.plan_part set unlogged"]),
    "commit before Christ": ("ledger.seal", ["update txtopo.ledger set committed_at = '0044-03-15 BC' where txid = 3"]),
    "commit at infinity": ("ledger.seal", ["update txtopo.ledger set committed_at = 'infinity' where txid = 3"]),
    "commit after the year 9999": (
        "ledger.seal",
        ["update txtopo.ledger set committed_at = '20000-01-01', planned_at = '-infinity' where txid = 3"],
    ),
    "attempt before Christ": (
        "ledger.seal",
        ["update txtopo.attempt set started_at = '0044-03-15 BC', ended_at = 'infinity' where txid = 3"],
    ),
    "plan at no time": ("ledger.order", ["update txtopo.plan set created_at = '-infinity' where txid = 3"]),
    "action at infinity": ("actions.chain", ["update txtopo.action set at = 'infinity' where txid = 4"]),
    "action at infinity, its order open": (
        "actions.chain",
        [
            "update txtopo.action set at = 'infinity' where txid = 7",
            "update txtopo.request set state = 'open', done_at = null, answer = null where request_id = 3",
            "update txtopo.topology set heartbeat_at = 'infinity'",
        ],
    ),
    "description before Christ": ("topology.described", ["update txtopo.description set at = '4713-01-01 BC'"]),
    "spans beyond all numbers": (
        "ledger.seal",
        ["""update txtopo.attempt set spans = '{"processing": 1e400}' where (txid, attempt) = (3, 1)"""],
    ),
    "trigger of the contributions on less": (
        "target.shape",
        [
            "drop trigger frozen on order_totals_contribution",
            (
                "create trigger frozen before delete on order_totals_contribution for each row execute function "
                "txtopo.frozen()"
            ),
        ],
    ),
    "contributions may be truncated": (
        "target.shape",
        ["alter table order_totals_contribution disable trigger kept_whole"],
    ),
    "function without its guard, another of its name with it": (
        "schema.guards",
        [
            (
                "do $x$ declare body text; begin select prosrc into body from pg_proc where oid = "
                "'txtopo.frozen'::regproc; "
                "execute 'create or replace function txtopo.frozen() returns trigger language plpgsql as ''begin "
                "return new; end'''; "
                "execute 'create function txtopo.frozen(a int) returns int language plpgsql as ' || "
                "quote_literal(body); end $x$"
            )
        ],
    ),
    "function that is not called for NULL": (
        "schema.guards",
        ["alter function txtopo.seal_of_action(txtopo.action, bytea) strict"],
    ),
    "function with a path of its own": (
        "schema.guards",
        ["alter function txtopo.frozen() set search_path = public, pg_catalog"],
    ),
    "column that may be NULL": ("schema.guards", ["alter table txtopo.ledger alter committed_at drop not null"]),
    "column with another default": (
        "schema.guards",
        ["alter table txtopo.ledger alter committed_at set default now() - interval '1 day'"],
    ),
    "column without its numbers": ("schema.guards", ["alter table txtopo.action alter action_id drop identity"]),
    "sequence set back": ("schema.guards", ["alter sequence txtopo.action_action_id_seq restart"]),
    "rows hidden from drivers": ("schema.guards", ["alter table txtopo.source_file enable row level security"]),
    "triggers off for a role": ("schema.guards", ["alter role current_user set session_replication_role = replica"]),
    "triggers off in this database": (
        "schema.guards",
        [
            (
                "do $x$ begin execute 'alter database ' || quote_ident(current_database()) || "
                "' set session_replication_role = replica'; end $x$"
            )
        ],
    ),
    "sequence of orders set back": ("schema.guards", ["alter sequence txtopo.request_request_id_seq restart"]),
    "function with the rights of its owner": ("schema.guards", ["alter function txtopo.frozen() security definer"]),
    "index that is not valid": (
        "schema.guards",
        [
            "set allow_system_table_mods = on",
            "update pg_index set indisvalid = false where indexrelid = 'txtopo.redone_once'::regclass",
        ],
    ),
    "no revision": ("schema.guards", ["delete from txtopo.schema_version"]),
    "no table of revisions": ("schema.guards", ["drop table txtopo.schema_version"]),
    "two revisions": ("schema.guards", ["insert into txtopo.schema_version select '0001'"]),
    "kind of an order": ("actions.signed", ["update txtopo.request set kind = 'retry' where request_id = 3"]),
    "batch of an order": (
        "actions.signed",
        ["""update txtopo.request set arguments = '{"txids": [2]}' where request_id = 1"""],
    ),
    "target without its key": (
        "target.shape",
        ["alter table order_totals drop constraint order_totals_shop_article_key"],
    ),
    "contributions without their key": (
        "target.shape",
        [
            (
                "alter table order_totals_contribution drop constraint "
                "order_totals_contribution_txid_reverses_shop_article_key"
            )
        ],
    ),
    "number that may be NULL": ("target.shape", ["alter table order_totals alter rows drop not null"]),
    "target with a part that is not logged": (
        "target.shape",
        [
            (
                "alter table order_totals rename to whole; create table order_totals (like whole including all) "
                "partition by list (shop); "
                "create unlogged table part partition of order_totals default; insert into order_totals select * "
                "from whole"
            )
        ],
    ),
    "trigger of the contributions off": (
        "target.shape",
        ["alter table order_totals_contribution disable trigger frozen"],
    ),
}
"""Name -> the check that has to find it, and what to do. Nothing of it needs a seal to be made anew."""


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
