select txid, bytes from txtopo.plan where topology = %(topology)s and txid < %(txid)s order by txid desc, cut desc limit %(count)s
