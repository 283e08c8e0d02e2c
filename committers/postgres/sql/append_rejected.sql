insert into txtopo.rejected_row (topology, txid, spout, path, line, reason, raw, raw_bytes, unit)
select %(topology)s, %(txid)s, * from unnest(%(spouts)s::text[], %(paths)s::text[], %(lines)s::bigint[], %(reasons)s::text[], %(raws)s::bytea[], %(sizes)s::bigint[], %(units)s::text[])
