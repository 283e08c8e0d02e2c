insert into txtopo.edge_count (topology, txid, edge, sent, received)
select %(topology)s, * from unnest(%(edge_txids)s::bigint[], %(edges)s::text[], %(sent)s::bigint[], %(received)s::bigint[]) as new (txid, edge, sent, received)
order by txid
