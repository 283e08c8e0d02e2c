-- Actor, host and reason are those of the order; without an order the leader itself acted. No row if the order belongs
-- to another topology.
insert into txtopo.action (topology, actor, host, command, reason, request_id, txid, before, after)
select %(topology)s, case when r.request_id is null then %(actor)s else coalesce(r.actor, 'unknown') end,
       case when r.request_id is null then %(host)s else coalesce(r.host, 'unknown') end,
       %(command)s, coalesce(r.reason, %(reason)s), r.request_id, %(txid)s, %(before)s::jsonb, %(after)s::jsonb
from (select 1) as one left join txtopo.request r on r.topology = %(topology)s and r.request_id = %(order_id)s
where r.request_id is not null or %(order_id)s::bigint is null
