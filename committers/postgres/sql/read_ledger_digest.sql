select digest from txtopo.ledger where topology = %(topology)s and txid = %(txid)s
