insert into txtopo.ledger (topology, txid, prev_txid, prev_digest, digest, incarnation, epoch, attempt, cut, code_hash, state, planned_at)
select %(topology)s, new.txid, new.txid - 1, new.prev_digest, new.digest, %(incarnation)s::uuid, %(epoch)s, new.attempt, new.cut, %(code_hash)s, 'applying',
       (select p.created_at from txtopo.plan p where (p.topology, p.txid, p.cut) = (%(topology)s, new.txid, new.cut))
from unnest(%(txids)s::bigint[], %(prev_digests)s::bytea[], %(digests)s::bytea[], %(attempts)s::integer[], %(cuts)s::integer[]) as new (txid, prev_digest, digest, attempt, cut)
order by new.txid
