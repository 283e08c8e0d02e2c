-- No row if the newest one of its command says the same. The lock is that of the action log: whoever wrote the same and got
-- no answer has committed or rolled back when it is given.
select pg_advisory_xact_lock(hashtextextended('txtopo.action ' || %(topology)s, 0));
insert into txtopo.action (topology, actor, host, command, reason, txid, before, after)
select %(topology)s, %(actor)s, %(host)s, %(command)s, %(reason)s, %(txid)s, %(before)s::jsonb, %(after)s::jsonb
where not exists (
  select from (select a.txid, a.reason, a.before, a.after from txtopo.action a where a.topology = %(topology)s and a.command = %(command)s
               order by a.action_id desc limit 1) as last
  where (last.txid, last.reason, last.before, last.after) is not distinct from (%(txid)s::bigint, %(reason)s::text, %(before)s::jsonb, %(after)s::jsonb))
