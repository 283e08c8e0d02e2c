select txid, digest from txtopo.ledger where topology = %(topology)s and txid = any (%(txids)s::bigint[])
