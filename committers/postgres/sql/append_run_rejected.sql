insert into txtopo.rejected_row (topology, txid, spout, path, line, reason, raw, raw_bytes, unit)
select %(topology)s, * from unnest(%(rejected_txids)s::bigint[], %(rejected_spouts)s::text[], %(rejected_paths)s::text[], %(rejected_lines)s::bigint[],
                                   %(rejected_reasons)s::text[], %(rejected_raws)s::bytea[], %(rejected_sizes)s::bigint[],
                                   %(rejected_units)s::text[])
  as new (txid, spout, path, line, reason, raw, raw_bytes, unit)
order by txid
