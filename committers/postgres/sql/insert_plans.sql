insert into txtopo.plan (topology, txid, digest, bytes, cut, epoch)
select %(topology)s, txid, digest, bytes, cut, %(epoch)s
from unnest(%(txids)s::bigint[], %(digests)s::bytea[], %(bodies)s::bytea[], %(cuts)s::integer[]) as new (txid, digest, bytes, cut)
where not exists (select from txtopo.plan p where (p.topology, p.txid, p.cut) = (%(topology)s, new.txid, new.cut))
order by txid
returning txid
