insert into txtopo.dead_letter (topology, txid, spout, position, component, reason, raw)
select %(topology)s, %(txid)s, * from unnest(%(spouts)s::text[], %(positions)s::text[], %(components)s::text[], %(reasons)s::text[], %(raws)s::bytea[])
