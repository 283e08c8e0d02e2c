select txid, digest, bytes from txtopo.plan where topology = %(topology)s and txid > %(last_txid)s order by txid, cut
