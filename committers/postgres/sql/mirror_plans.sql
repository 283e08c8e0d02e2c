-- Inserts the plans that are missing, and the inputs of these; returns the txids of the former and the number of the latter.
-- A look for each plan, by its key: NOT EXISTS may become a join that reads all plans there are.
with created as (
  insert into txtopo.plan (topology, txid, digest, bytes, cut, epoch)
  select %(topology)s, txid, digest, bytes, cut, %(epoch)s
  from unnest(%(txids)s::bigint[], %(digests)s::bytea[], %(bodies)s::bytea[], %(cuts)s::integer[]) as new (txid, digest, bytes, cut)
  where (select p.txid from txtopo.plan p where (p.topology, p.txid, p.cut) = (%(topology)s, new.txid, new.cut)) is null
  order by txid
  returning txid),
consumed as (
  insert into txtopo.source_file (topology, spout, path, fingerprint, txid, redo)
  select %(topology)s, file.*
  from unnest(%(spouts)s::text[], %(paths)s::text[], %(fingerprints)s::bytea[], %(of_txids)s::bigint[], %(redos)s::boolean[])
    as file (spout, path, fingerprint, txid, redo)
  where file.txid in (select txid from created)
  on conflict (topology, spout, path) where not redo do nothing
  returning 1)
select (select coalesce(array_agg(txid), '{}') from created), (select count(*) from consumed)
