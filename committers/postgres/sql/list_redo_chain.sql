-- The batch, its redos, and their redos. A txid redoes only a lower one, so this ends.
with recursive chain (txid) as (
  select txid from txtopo.ledger where topology = %(topology)s and txid = %(txid)s and txid > 0
  union all
  select l.txid from chain c join txtopo.ledger l on l.topology = %(topology)s and l.redo_of = c.txid)
select l.txid, l.state, l.redo_of, l.backfills, l.digest,
       (select p.bytes from txtopo.plan p where (p.topology, p.txid, p.cut, p.digest) = (l.topology, l.txid, l.cut, l.digest))
from chain c join txtopo.ledger l on l.topology = %(topology)s and l.txid = c.txid
order by l.txid
