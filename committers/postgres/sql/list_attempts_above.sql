select txid, attempt, epoch, state, kind, alone, code_hash from txtopo.attempt where topology = %(topology)s and txid > %(last_txid)s order by txid, attempt
