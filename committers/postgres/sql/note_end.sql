update txtopo.topology set state = %(state)s, reason = %(reason)s, advice = %(advice)s, halted_txid = %(txid)s, problem = null, waiting = '{}',
                           planned_txid = %(planned_txid)s, heartbeat_at = clock_timestamp()
where topology = %(topology)s
