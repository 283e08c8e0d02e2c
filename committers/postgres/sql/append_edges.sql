insert into txtopo.edge_count (topology, txid, edge, sent, received)
select %(topology)s, %(txid)s, * from unnest(%(edges)s::text[], %(sent)s::bigint[], %(received)s::bigint[])
