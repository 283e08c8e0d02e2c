update txtopo.topology set description = %(description)s::jsonb, code_hash = %(code_hash)s where topology = %(topology)s
