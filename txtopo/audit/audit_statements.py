"""The SQL of the audit: SELECTs in the order of the txids, read together by cursors on the server."""

from __future__ import annotations

SETTINGS = """
set local statement_timeout = 0;
set local idle_in_transaction_session_timeout = 0;
set local search_path = pg_catalog;
set local timezone = 'UTC';
set local datestyle = 'ISO, YMD';
set local bytea_output = 'hex';
set local extra_float_digits = 1;
set local row_security = off;
set local enable_sort = off
"""
"""No time limits: files are recounted meanwhile. Values have the same text as in the commits. Rows are read through the
keys of their tables.

If a policy hides rows from the role, the server raises an error, so that the audit never compares a part only.
"""

SCOPE = """
select f.last_txid, f.incarnation::text as incarnation, f.epoch, clock_timestamp() as now, current_user::text as role,
       (select max(p.txid) from txtopo.plan p where p.topology = f.topology) as planned_txid,
       (select max(l.txid) from txtopo.ledger l where l.topology = f.topology) as ledger_txid,
       t.description, t.code_hash, t.epoch as led_epoch, t.state, t.heartbeat_at, f.code_hash as fence_code,
       encode(sha256(convert_to(t.description::text, 'UTF8')), 'hex') as description_digest
  from (select topology, last_txid, incarnation, epoch, code_hash from txtopo.fence where topology = :topology
        union all
        select l.topology, max(l.txid), null, null, null from txtopo.ledger l
         where l.topology = :topology and not exists (select from txtopo.fence f where f.topology = :topology)
         group by l.topology) f
  left join txtopo.topology t on t.topology = f.topology
"""
"""Without a fence row, only the ledger shows how far the topology got."""

CHAINS = """
select txid, redo_of, state from txtopo.ledger where topology = :topology and (redo_of is not null or state =
  'quarantined' and backfills is null) order by txid
"""

BACKFILLS = """
select b.backfills, b.txid, c.committer from txtopo.ledger b
  join txtopo.committer_count c on c.topology = b.topology and c.txid = b.txid
 where b.topology = :topology and b.backfills is not null and b.state = 'applied' order by b.txid
"""
"""Which batch holds what another one contributed to a committer that was added later."""

LEDGER = """
select topology, txid, prev_txid, prev_digest, digest, incarnation::text as incarnation, epoch, attempt, cut,
  code_hash, state, read, rejected,
       dead_lettered, committers, reason, redo_of, backfills, committer, seal, seal_version, sealed_attempts,
       sealed_description,
       sealed_action, planned_at, committed_at
  from txtopo.ledger where topology = :topology and txid between :first - 1 and :last order by txid
"""

COUNTS = """
select txid, committer, arrived, counted, results, written, ignored, reversed, digest::text as digest
  from txtopo.committer_count where topology = :topology and txid between cast(:first as bigint) and :last order by txid
"""

EDGES = """
select txid, edge, sent, received from txtopo.edge_count where topology = :topology and txid between cast(:first as
  bigint) and :last order by txid
"""

PLANS = """
select txid, cut, digest, bytes, created_at from txtopo.plan where topology = :topology and txid between :first and
  :last order by txid
"""

ATTEMPTS = """
select txid, attempt, epoch, code_hash, state, alone, host, kind, cause, component, position, message,
  encode(sha256(convert_to(detail, 'UTF8')), 'hex') as detail_digest,
       started_at, ended_at, spans, spans::text as spans_text, inputs::text as inputs_text
  from txtopo.attempt where topology = :topology and txid between :first and :last order by txid
"""

FILES = """
select txid, spout, path, fingerprint, redo from txtopo.source_file where topology = :topology and txid between :first
  and :last order by txid
"""

FILES_REDONE = """
select l.txid, f.spout, f.path from txtopo.ledger l join txtopo.source_file f on f.topology = l.topology and f.txid =
  coalesce(l.redo_of, l.backfills)
 where l.topology = :topology and (l.redo_of is not null or l.backfills is not null)
   and l.txid between :first and :last order by l.txid
"""
"""The files of the batches that are redone or backfilled, by the txid of the redo or backfill."""

STRAY_PLANS = """
select txid from txtopo.plan where topology = :topology and txid < 1
union
select txid from (select txid, dense_rank() over (order by txid) as place from txtopo.plan where topology = :topology
  and txid > :committed) ahead
 where txid <> :committed + place
 order by txid
"""
"""Plans that belong neither to a committed batch nor to the batches that follow the last committed one without a
gap.
"""

STRAY_FILES = """
select f.txid, count(*) as number, min(f.path) as path, min(f.spout) as spout from txtopo.source_file f
 where f.topology = :topology
   and not exists (select from txtopo.ledger l where l.topology = f.topology and l.txid = f.txid and l.txid > 0)
   and not exists (select from txtopo.plan p where p.topology = f.topology and p.txid = f.txid and p.txid > :committed)
 group by f.txid order by f.txid
"""

REJECTED = """
select txid, spout, path, count(*) as number,
       encode(sha256(string_agg(sha256(convert_to((jsonb_build_array(line, reason, encode(sha256(raw), 'hex'),
       raw_bytes) || case when unit = 'line' then '[]' else jsonb_build_array(unit) end)::text, 'UTF8')),
              ''::bytea order by line)), 'hex') as digest
  from txtopo.rejected_row
 where topology = :topology and txid between cast(:first as bigint) and :last
 group by txid, spout, path order by txid
"""

REJECTED_LINES = """
select line, unit, reason, raw, raw_bytes from txtopo.rejected_row
 where topology = %(topology)s and txid = %(txid)s and spout = %(spout)s and path = %(path)s order by line
"""

DEAD_LETTERS = """
select txid, spout, position, component, reason, encode(sha256(raw), 'hex') as raw_digest from txtopo.dead_letter
 where topology = :topology and txid between cast(:first as bigint) and :last order by txid
"""

ACTIONS = """
select topology, number, action_id, at, actor, host, command, txid, reason, request_id as order_id, before, after,
       before::text as before_text, after::text as after_text, seal
  from txtopo.action where topology = :topology order by number nulls last, action_id
"""

DESCRIPTIONS = """
select topology, number, epoch, code_hash, encode(sha256(convert_to(description::text, 'UTF8')), 'hex') as digest, at,
  seal
  from txtopo.description where topology = :topology order by number
"""

ORDERS = """
select request_id as order_id, kind, arguments, reason, actor, host, created_at, state, answer
  from txtopo.request where topology = :topology order by request_id
"""

PART = """select bytes from txtopo.plan_part where digest = decode(:digest, 'hex')"""

TARGETS = """select committer, target, baseline_digest from txtopo.target where topology = :topology order by committer
  collate "C" """

COLUMNS = """
select a.attname, format_type(a.atttypid, a.atttypmod) as type, a.attnotnull, coalesce(parts.kind, c.relkind::text) as
  relkind,
       coalesce(parts.persistence, c.relpersistence::text) as relpersistence
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  cross join lateral (select max(p.relkind::text) filter (where p.relkind = 'f') as kind, max(p.relpersistence::text)
  as persistence
                        from pg_partition_tree(c.oid) t join pg_class p on p.oid = t.relid) parts
  join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
 where n.nspname = :schema and c.relname = :table order by a.attnum
"""

UNIQUE = """
select array_agg(a.attname::text order by a.attname) as columns, i.indnullsnotdistinct or bool_and(a.attnotnull) as
  one_row_a_key
  from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey[0:i.indnkeyatts - 1])
 where i.indrelid = to_regclass(:table) and i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null and
 i.indexprs is null
 group by i.indexrelid, i.indnullsnotdistinct
"""
"""Unique indexes through which commits can find a row."""

ADDED = """
select 'trigger ' || tgname as what from pg_trigger where tgrelid = to_regclass(:table) and not tgisinternal and tgname
  <> all (cast(:own as text[])) and (tgname <> 'contributes' or tgfoid is distinct from
  to_regproc('txtopo.contributes')::oid)
union all
select 'rule ' || rulename from pg_rewrite where ev_class = to_regclass(:table) and ev_type <> '1'
union all
select 'row level security' from pg_class where oid = to_regclass(:table) and relrowsecurity
order by 1
"""
"""Foreign objects on a table that may change or hide rows."""

GUARDS = """
select t.tgname, t.tgtype, t.tgenabled, n.nspname = 'txtopo' and p.proname = 'frozen' and t.tgqual is null and
  cardinality(t.tgattr::int2[]) = 0 as refuses_all
  from pg_trigger t join pg_proc p on p.oid = t.tgfoid join pg_namespace n on n.oid = p.pronamespace
 where t.tgrelid = to_regclass(:table) and t.tgname in ('frozen', 'kept_whole')
"""
"""Triggers that prevent changes of rows; `tgtype` has a bit for each moment and event."""
