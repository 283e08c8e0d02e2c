update txtopo.topology set heartbeat_at = clock_timestamp(), state = %(state)s, problem = %(problem)s, planned_txid = %(planned_txid)s
where topology = %(topology)s;
select request_id, kind, arguments::text from txtopo.request where topology = %(topology)s and state = 'open' order by request_id
