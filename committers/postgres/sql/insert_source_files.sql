insert into txtopo.source_file (topology, spout, path, fingerprint, txid, redo)
select %(topology)s, * from unnest(%(spouts)s::text[], %(paths)s::text[], %(fingerprints)s::bytea[], %(txids)s::bigint[], %(redos)s::boolean[])
on conflict (topology, spout, path) where not redo do nothing
returning 1
