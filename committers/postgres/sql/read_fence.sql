select incarnation::text, owner_nonce::text, epoch, code_hash, last_txid from txtopo.fence where topology = %(topology)s
