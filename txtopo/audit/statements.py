"""The SQL of the reading commands. Only SELECTs; every one is bound to a topology and ends after a bounded number of rows.

Read through the primary keys (topology, txid, …) from the newest batch down, so that ten thousand batches cost no more than twenty.
"""

from __future__ import annotations

TOPOLOGIES = """
select f.topology, f.epoch, f.incarnation::text as incarnation, f.last_txid,
       t.application, t.state, t.host, t.pid, t.started_at, t.heartbeat_at, t.problem, t.reason, t.halted_txid,
       extract(epoch from clock_timestamp() - t.heartbeat_at)::float8 as heartbeat_age_s,
       greatest(t.planned_txid, f.last_txid,
                (select max(p.txid) from txtopo.plan p where p.topology = f.topology)) as planned_txid,
       (select l.committed_at from txtopo.ledger l
         where (l.topology, l.txid) = (f.topology, f.last_txid) and l.txid > 0) as last_committed_at,
       (select count(*) from txtopo.attempt a where a.topology = f.topology and a.state = 'failed') as failed_attempts,
       (select count(*) from txtopo.ledger l where l.topology = f.topology and l.state = 'quarantined') as quarantined,
       (select count(*) from txtopo.request r where r.topology = f.topology and r.state = 'open') as open_requests
  from txtopo.fence f left join txtopo.topology t using (topology)
 where cast(:topology as text) is null or f.topology = :topology
 order by f.topology collate "C"
"""

NAMES = """select topology from txtopo.fence order by topology collate "C" limit 1000"""

BATCHES = """
with open as materialized (
  select o.txid,
         case when (select a.state from txtopo.attempt a where (a.topology, a.txid) = (:topology, o.txid)
                     order by a.attempt desc limit 1) = 'failed' then 'failed' else 'planned' end as state
    from (select p.txid from txtopo.plan p where p.topology = :topology and p.txid > :last
          union
          select a.txid from txtopo.attempt a where a.topology = :topology and a.txid > :last) o),
picked as materialized (
  select * from (
    (select txid, state from open
      where cast(:state as text) is null or state = :state order by txid desc limit :limit)
    union all
    (select l.txid, case l.state when 'applied' then 'committed' else l.state end from txtopo.ledger l
      where l.topology = :topology and l.txid between 1 and :last
        and (cast(:state as text) is null or l.state = case :state when 'committed' then 'applied' else :state end)
      order by l.txid desc limit :limit)) both_kinds
  order by txid desc limit :limit),
consumed as materialized (
  select s.txid, count(*) as files from txtopo.source_file s
   where s.topology = :topology and s.txid in (select txid from picked) group by s.txid)
select p.txid, p.state, l.read, l.rejected, l.committed_at,
       a.attempts, a.failed_attempts, coalesce(c.files, 0) as files, n.numbers,
       (select extract(epoch from l.committed_at - w.started_at)::float8 from txtopo.attempt w
         where (w.topology, w.txid, w.attempt) = (:topology, p.txid, l.attempt) and l.state = 'applied') as duration_s
  from picked p
  left join txtopo.ledger l on (l.topology, l.txid) = (:topology, p.txid)
  left join consumed c on c.txid = p.txid
  left join lateral (select count(*) as attempts, count(*) filter (where t.state = 'failed') as failed_attempts
                       from txtopo.attempt t where (t.topology, t.txid) = (:topology, p.txid)) a on true
  left join lateral (
    select jsonb_agg(jsonb_build_object('committer', k.committer, 'arrived', k.arrived, 'counted', k.counted,
             'results', k.results, 'written', k.written, 'ignored', k.ignored, 'reversed', k.reversed,
             'digest', k.digest::text) order by k.committer collate "C") as numbers
      from txtopo.committer_count k where (k.topology, k.txid) = (:topology, p.txid)) n on true
 order by p.txid desc
"""

FENCE = """
select f.last_txid, t.application from txtopo.fence f left join txtopo.topology t using (topology) where f.topology = :topology
"""

LEDGER_ROW = """
select case state when 'applied' then 'committed' else state end as state, attempt, epoch, cut, read, rejected, dead_lettered, reason,
       redo_of, committed_at, planned_at, encode(digest, 'hex') as digest, encode(code_hash, 'hex') as code_hash, encode(seal, 'hex') as seal
  from txtopo.ledger where (topology, txid) = (:topology, :txid) and txid > 0
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
select attempt, epoch, state, alone, kind, component, position, message, detail, host, started_at, ended_at, spans
  from txtopo.attempt where (topology, txid) = (:topology, :txid) order by attempt limit 10000
"""

COMMITTERS = """
select committer, arrived, counted, results, written, ignored, reversed, digest::text as digest
  from txtopo.committer_count where (topology, txid) = (:topology, :txid) order by committer collate "C"
"""

EDGES = """select edge, sent, received from txtopo.edge_count where (topology, txid) = (:topology, :txid) order by edge collate "C" """

TARGETS = """select committer, target from txtopo.target where topology = :topology order by committer collate "C" """

REQUEST = """select request_id, state, answer from txtopo.request where request_id = :request_id"""
