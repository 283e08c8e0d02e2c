-- Written by a driver that does not lead. It does not decide who may write, and a live leader overwrites it with its
-- next heartbeat.
update txtopo.topology set state = 'halted', reason = %(reason)s, advice = %(advice)s, halted_txid = %(txid)s, problem = null, waiting = '{}'
where topology = %(topology)s
  and (state not in ('running', 'stalled') or heartbeat_at < clock_timestamp() - %(silent_s)s * interval '1 s')
