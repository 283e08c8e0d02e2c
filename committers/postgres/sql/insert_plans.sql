-- A look for each plan, by its key: NOT EXISTS may become a join that reads all plans there are.
insert into txtopo.plan (topology, txid, digest, bytes, cut, epoch)
select %(topology)s, txid, digest, bytes, cut, %(epoch)s
from unnest(%(txids)s::bigint[], %(digests)s::bytea[], %(bodies)s::bytea[], %(cuts)s::integer[]) as new (txid, digest, bytes, cut)
where (select p.txid from txtopo.plan p where (p.topology, p.txid, p.cut) = (%(topology)s, new.txid, new.cut)) is null
order by txid
returning txid
