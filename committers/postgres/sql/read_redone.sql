-- The last column: committer -> the backfill that has counted the batch into it (R32).
select l.state, (select r.txid from txtopo.ledger r where r.topology = l.topology and r.redo_of = l.txid and r.state = 'applied'),
       (select json_object_agg(c.committer, c.txid)::text
        from txtopo.ledger b join txtopo.committer_count c on (c.topology, c.txid) = (b.topology, b.txid)
        where b.topology = l.topology and b.backfills = l.txid and b.state = 'applied')
from txtopo.ledger l
where l.topology = %(topology)s and l.txid = %(redone_txid)s and l.state in ('applied', 'quarantined')
