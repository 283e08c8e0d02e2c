update txtopo.topology set heartbeat_at = clock_timestamp(), state = %(state)s, problem = %(problem)s, planned_txid = %(planned_txid)s,
                           waiting = %(waiting)s::jsonb, reason = null, advice = null, halted_txid = null
where topology = %(topology)s;
select request_id, kind, arguments::text, reason, progress::text, exists (select from txtopo.action a where a.request_id = r.request_id)
from txtopo.request r where topology = %(topology)s and state = 'open' order by request_id
