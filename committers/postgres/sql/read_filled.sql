-- R32: which batch redoes this one, and which has counted it into the committer: itself, or a backfill.
select (select r.txid from txtopo.ledger r where r.topology = l.topology and r.redo_of = l.txid and r.state = 'applied'),
       coalesce((select c.txid from txtopo.committer_count c where (c.topology, c.txid, c.committer) = (l.topology, l.txid, %(committer)s)),
                (select b.txid from txtopo.ledger b where b.topology = l.topology and b.backfills = l.txid and b.committer = %(committer)s and b.state = 'applied'))
from txtopo.ledger l
where l.topology = %(topology)s and l.txid = %(filled_txid)s and l.state = 'applied' and l.backfills is null
