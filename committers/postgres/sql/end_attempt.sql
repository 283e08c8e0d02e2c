update txtopo.attempt set state = %(state)s, kind = %(kind)s, component = %(component)s, position = %(position)s, message = %(message)s, detail = %(detail)s,
                          cause = %(cause)s, ended_at = clock_timestamp()
where topology = %(topology)s and txid = %(txid)s and attempt = %(attempt)s and state = 'begun'
