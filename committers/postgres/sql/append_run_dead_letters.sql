insert into txtopo.dead_letter (topology, txid, spout, position, component, reason, raw)
select %(topology)s, * from unnest(%(dead_txids)s::bigint[], %(dead_spouts)s::text[], %(dead_positions)s::text[], %(dead_components)s::text[],
                                   %(dead_reasons)s::text[], %(dead_raws)s::bytea[])
  as new (txid, spout, "position", component, reason, raw)
order by txid
