-- R32: the lowest batch in effect that the committer has not counted, its plan, and its backfills that are quarantined.
-- Each look is one by key: the batches below are skipped one by one, and only once in an order.
select l.txid, (select p.bytes from txtopo.plan p where (p.topology, p.txid, p.cut, p.digest) = (l.topology, l.txid, l.cut, l.digest)),
       (select json_agg(json_build_array(b.txid, convert_from(p.bytes, 'UTF8')::json -> 'request_id', b.reason) order by b.txid)::text
        from txtopo.ledger b join txtopo.plan p on (p.topology, p.txid, p.cut, p.digest) = (b.topology, b.txid, b.cut, b.digest)
        where b.topology = l.topology and b.backfills = l.txid and b.committer = %(committer)s and b.state = 'quarantined')
from txtopo.ledger l
where l.topology = %(topology)s and l.txid > %(above)s and l.txid <> all(%(planned)s::bigint[]) and l.state = 'applied' and l.backfills is null
  and (select c.txid from txtopo.committer_count c where (c.topology, c.txid, c.committer) = (l.topology, l.txid, %(committer)s)) is null
  and (select r.txid from txtopo.ledger r where r.topology = l.topology and r.redo_of = l.txid and r.state = 'applied') is null
  and (select b.txid from txtopo.ledger b where b.topology = l.topology and b.backfills = l.txid and b.committer = %(committer)s and b.state = 'applied') is null
order by l.txid limit 1
