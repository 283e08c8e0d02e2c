"""The SQL of the reading commands. Only SELECTs; each one is for one topology and returns a limited number of rows.

Read through the primary keys (topology, txid, …) from the newest batch down. Lists are joined outside of the server,
table by table: a join over tables without statistics can take minutes.
"""

from __future__ import annotations

TOPOLOGIES = """
select f.topology, f.epoch, f.incarnation::text as incarnation, f.last_txid,
       t.application, t.state, t.host, t.pid, t.started_at, t.heartbeat_at, t.problem, t.reason, t.halted_txid,
       to_jsonb(t) -> 'waiting' as waiting,
       to_jsonb(t) ->> 'advice' as advice, to_jsonb(t) -> 'settings' as settings,
       greatest(-1e10, least(1e10, extract(epoch from clock_timestamp()) - extract(epoch from t.heartbeat_at)))::float8
       as heartbeat_age_s,
       greatest(t.planned_txid, f.last_txid,
                (select max(p.txid) from txtopo.plan p where p.topology = f.topology)) as planned_txid,
       (select l.committed_at from txtopo.ledger l
         where (l.topology, l.txid) = (f.topology, f.last_txid) and l.txid > 0) as last_committed_at,
       (select count(*) from txtopo.request r where r.topology = f.topology and r.state = 'open') as open_order_count
  from txtopo.fence f left join txtopo.topology t using (topology)
 where cast(:topology as text) is null or f.topology = :topology
 order by f.topology collate "C"
"""

FAILURES = """
select count(*) as failed_attempts, count(*) filter (where kind = 'data') as data,
       count(*) filter (where kind = 'infrastructure') as infrastructure, count(*) filter (where kind = 'suspect') as
       suspect,
       count(*) filter (where kind = 'halt') as halt
  from txtopo.attempt where topology = :topology and state = 'failed'
"""

LEDGER_SUMS = """
select coalesce(sum(rejected), 0)::bigint as rejected, coalesce(sum(dead_lettered), 0)::bigint as dead_lettered,
       count(*) filter (where state = 'quarantined') as quarantined
  from txtopo.ledger where topology = :topology
"""

HOLES = """
with recursive filled (txid) as (
  select redo_of from txtopo.ledger where topology = :topology and redo_of is not null and state = 'applied'
  union
  select l.redo_of from filled join txtopo.ledger l on l.topology = :topology and l.txid = filled.txid where l.redo_of
  is not null)
select count(*) as holes, (array_agg(l.txid order by l.txid))[1:cast(:named as integer)] as hole_txids
  from txtopo.ledger l
 where l.topology = :topology and l.state = 'quarantined' and l.redo_of is null
   and to_jsonb(l) ->> 'backfills' is null and l.txid not in (select txid from
 filled)
"""
"""A quarantined redo is not a hole: the batch that it redoes is one, or has its effect."""

OPEN_ORDERS = """
select request_id as order_id, kind, arguments from txtopo.request where topology = :topology and state = 'open'
 order by request_id limit :limit
"""

FILLED = """
select count(*) as number from txtopo.ledger l
 where topology = :topology and committer = :committer and backfills is not null and state = 'applied'
"""
"""Batches that backfills have counted into a committer."""

FAILED_RUNS = """
select count(*) as failed_runs_total, count(*) filter (where a.at >= t.started_at) as failed_runs
  from txtopo.action a left join txtopo.topology t using (topology)
 where a.topology = :topology and a.command = 'run_failed'
"""
"""Commit runs that were rolled back (R25), so that their batches were committed one by one: of all leaders, and of the
last one.
"""

NAMES = """select topology from txtopo.fence order by topology collate "C" limit 1000"""

OPEN_PLANS = """select distinct txid from txtopo.plan where topology = :topology and txid > :last limit 100000"""

OPEN_ATTEMPTS = """
select distinct on (txid) txid, state from txtopo.attempt where topology = :topology and txid > :last
 order by txid, state = 'cancelled', attempt desc limit 100000
"""

LEDGER_ROWS = """
select txid, case state when 'applied' then 'committed' else state end as state, attempt, read, rejected, redo_of,
  (to_jsonb(l) ->> 'backfills')::bigint as backfills, to_jsonb(l) ->> 'committer' as committer, committed_at
  from txtopo.ledger l
 where topology = :topology and txid between :low and :high and (cast(:state as text) is null or state = :state)
   and exists (select from unnest(cast(:firsts as bigint[]), cast(:lasts as bigint[])) as wanted (first, last) where
   txid between wanted.first and wanted.last)
 order by txid desc limit :limit
"""

ATTEMPTS_OF = """
select txid, attempt, state, started_at from txtopo.attempt where topology = :topology and txid = any(cast(:txids as
  bigint[]))
"""

COMMITTERS_OF = """
select txid, committer, arrived, counted, results, written, ignored, reversed, digest::text as digest
  from txtopo.committer_count where topology = :topology and txid = any(cast(:txids as bigint[])) order by committer
  collate "C"
"""

FILES_OF = """
select txid, count(*) as files from txtopo.source_file
 where topology = :topology and txid = any(cast(:txids as bigint[])) group by txid
"""

FENCE = """
select f.last_txid, t.application, case when t.state = 'halted' then t.halted_txid end as halted_txid, to_jsonb(t) ->>
  'advice' as advice
  from txtopo.fence f left join txtopo.topology t using (topology) where f.topology = :topology
"""

LEDGER_ROW = """
select case state when 'applied' then 'committed' else state end as state, attempt, epoch, cut, read, rejected,
  dead_lettered, reason,
       redo_of, (to_jsonb(l) ->> 'backfills')::bigint as backfills, to_jsonb(l) ->> 'committer' as committer,
       committed_at, planned_at, encode(digest, 'hex') as digest, encode(code_hash, 'hex') as code_hash,
       encode(seal, 'hex') as seal
  from txtopo.ledger l where (topology, txid) = (:topology, :txid) and txid > 0
"""

PLAN = """
select bytes, encode(digest, 'hex') as digest, created_at from txtopo.plan
 where (topology, txid) = (:topology, :txid) and (cast(:cut as integer) is null or cut = :cut) order by cut desc limit 1
"""

PLAN_PART = """select bytes from txtopo.plan_part where digest = decode(:digest, 'hex')"""

SOURCE_FILES = """
select spout, path, encode(fingerprint, 'hex') as fingerprint from txtopo.source_file
 where topology = :topology and txid = :txid order by spout collate "C", path collate "C" limit 100000
"""

ATTEMPTS = """
select attempt, epoch, state, alone, kind, cause, component, position, message, detail, host, started_at, ended_at,
  spans, inputs
  from txtopo.attempt where (topology, txid) = (:topology, :txid) order by attempt limit 10000
"""

INPUTS_OF = """
select distinct on (txid) txid, to_jsonb(a) -> 'inputs' as inputs from txtopo.attempt a
 where topology = :topology and txid = any(cast(:txids as bigint[])) and to_jsonb(a) ->> 'inputs' is not null order by
 txid, attempt desc
"""

FILES_OF_FAILED = """
select txid, path from txtopo.source_file where topology = :topology and txid = any(cast(:txids as bigint[])) order by
  txid, path limit 1000
"""

COMMITTERS = """
select committer, arrived, counted, results, written, ignored, reversed, digest::text as digest
  from txtopo.committer_count where (topology, txid) = (:topology, :txid) order by committer collate "C"
"""

KNOWS_BACKFILLS = """
select exists (select from pg_catalog.pg_attribute
 where attrelid = 'txtopo.ledger'::regclass and attname = 'backfills' and not attisdropped) as known
"""
"""False on the schema of an earlier release."""

FILLED_BY = """
select txid, committer, 'committed' as state from txtopo.ledger
 where topology = :topology and backfills = :txid and backfills is not null and state = 'applied' order by txid limit
 1000
"""
"""The backfills that count this batch."""

REDOS = """
select txid, case state when 'applied' then 'committed' else state end as state
  from txtopo.ledger where topology = :topology and redo_of = :txid order by txid limit 1000
"""

OPEN_PLAN_BYTES = """
select distinct on (txid) txid, bytes from txtopo.plan where topology = :topology and txid > :last order by txid, cut
  desc limit 1000
"""
"""Plans that are not in the ledger yet: as many as may be pending, so that an uncommitted redo is found."""

REJECTED_ROWS = """
select spout, path, line, unit, reason, substring(raw for cast(:raw_bytes_max as integer)) as raw, raw_bytes
  from txtopo.rejected_row where topology = :topology and txid = :txid order by spout, path, line limit :limit
"""
"""In the order of their key. Without a limit (NULL) only if all were requested."""

DEAD_LETTERS = """
select spout, position, component, reason, substring(raw for cast(:raw_bytes_max as integer)) as raw
  from txtopo.dead_letter where topology = :topology and txid = :txid order by spout collate "C", position collate "C"
  limit :limit
"""

ORDERS_ABOUT = """
select request_id as order_id, kind, arguments, reason, actor, host, created_at, state, answer, done_at
  from txtopo.request
 where topology = :topology
   and (arguments -> 'txids' @> to_jsonb(cast(:txid as bigint)) or request_id = any(cast(:order_ids as bigint[])))
 order by request_id limit 1000
"""

ORDERS_OF = """
select request_id as order_id, kind, arguments, reason, actor, host, created_at, state, answer, done_at
  from txtopo.request
 where topology = :topology and (cast(:state as text) is null or state = :state)
   and (cast(:order_id as bigint) is null or request_id = :order_id)
 order by request_id desc limit :limit
"""

ACTIONS_ABOUT = """
select action_id, at, actor, host, command, reason, request_id as order_id, txid, before, after
  from txtopo.action where topology = :topology and txid = :txid order by action_id limit 1000
"""

EDGES = """select edge, sent, received from txtopo.edge_count where (topology, txid) = (:topology, :txid) order by edge
  collate "C" """

TARGETS = """select committer, target from txtopo.target where topology = :topology order by committer collate "C" """
