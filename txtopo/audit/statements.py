"""The SQL of the reading commands. Only SELECTs; every one is bound to a topology and ends after a bounded number of rows.

Read through the primary keys (topology, txid, …) from the newest batch down. Lists are put together outside the server, table by table: a join
over tables that were never analysed can take minutes.
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

OPEN_PLANS = """select distinct txid from txtopo.plan where topology = :topology and txid > :last limit 100000"""

OPEN_ATTEMPTS = """
select distinct on (txid) txid, state from txtopo.attempt where topology = :topology and txid > :last
 order by txid, attempt desc limit 100000
"""

LEDGER_ROWS = """
select txid, case state when 'applied' then 'committed' else state end as state, attempt, read, rejected, committed_at
  from txtopo.ledger
 where topology = :topology and txid between 1 and :last and (cast(:state as text) is null or state = :state)
 order by txid desc limit :limit
"""

ATTEMPTS_OF = """
select txid, attempt, state, started_at from txtopo.attempt where topology = :topology and txid = any(cast(:txids as bigint[]))
"""

COMMITTERS_OF = """
select txid, committer, arrived, counted, results, written, ignored, reversed, digest::text as digest
  from txtopo.committer_count where topology = :topology and txid = any(cast(:txids as bigint[])) order by committer collate "C"
"""

FILES_OF = """
select txid, count(*) as files from txtopo.source_file
 where topology = :topology and txid = any(cast(:txids as bigint[])) group by txid
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
