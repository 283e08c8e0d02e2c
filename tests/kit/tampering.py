"""Changes of somebody who may write to schema txtopo and seals nothing anew, each with what the audit says of it."""

from __future__ import annotations

from tests.kit.planting import BATCHES

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
    "unit of a rejected record": ("ledger.seal", ["update txtopo.rejected_row set unit = 'row'"]),
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
