select new.path, f.txid, new.txid
from unnest(%(spouts)s::text[], %(paths)s::text[], %(txids)s::bigint[]) as new (spout, path, txid)
join txtopo.source_file f on f.topology = %(topology)s and f.spout = new.spout and f.path = new.path and not f.redo
where f.txid <> new.txid
order by new.txid, new.path limit 1
