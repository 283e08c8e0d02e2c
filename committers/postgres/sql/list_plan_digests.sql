select txid, cut, digest from txtopo.plan where topology = %(topology)s and txid = any (%(txids)s::bigint[])
