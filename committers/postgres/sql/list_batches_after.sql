select l.txid, l.state, l.redo_of, l.backfills, l.digest, p.bytes
from txtopo.ledger l
join txtopo.plan p on (p.topology, p.txid, p.cut, p.digest) = (l.topology, l.txid, l.cut, l.digest)
where l.topology = %(topology)s and l.txid > %(after)s and l.txid > 0
order by l.txid
