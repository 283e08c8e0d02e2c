update txtopo.topology set description = %(description)s::jsonb, code_hash = %(code_hash)s, settings = %(settings)s::jsonb
where topology = %(topology)s
