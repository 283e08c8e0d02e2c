update txtopo.fence set epoch = %(epoch)s, owner_nonce = %(owner_nonce)s, code_hash = %(code_hash)s, opaque = %(opaque)s where topology = %(topology)s
