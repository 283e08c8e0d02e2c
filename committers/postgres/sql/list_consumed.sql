select path, fingerprint from txtopo.source_file where topology = %(topology)s and spout = %(spout)s order by txid
