update txtopo.request set state = %(state)s, answer = %(answer)s, done_at = clock_timestamp()
where topology = %(topology)s and request_id = %(order_id)s and state = 'open'
