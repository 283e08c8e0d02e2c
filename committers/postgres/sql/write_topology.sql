-- Description and code hash of a known topology do not change before the new leader has found that it is compatible:
-- see describe_topology.
update txtopo.request set state = 'refused', answer = 'the leader that it was meant for has ended', done_at = clock_timestamp()
where topology = %(topology)s and state = 'open' and kind = 'stop';
insert into txtopo.topology (topology, application, description, code_hash, state, host, pid, epoch, planned_txid)
values (%(topology)s, %(application)s, %(description)s::jsonb, %(code_hash)s, 'running', %(host)s, %(pid)s, %(epoch)s, %(planned_txid)s)
on conflict (topology) do update set
  (application, state, host, pid, epoch, planned_txid, started_at, heartbeat_at, problem, reason, advice, halted_txid, waiting) =
  (excluded.application, excluded.state, excluded.host, excluded.pid, excluded.epoch, excluded.planned_txid,
   clock_timestamp(), clock_timestamp(), null, null, null, null, '{}')
