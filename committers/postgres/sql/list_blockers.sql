-- Who holds a lock that a driver of this topology waits for. Locks nothing, and reads only what every role may read;
-- values of other users may be null.
select case when n.nspname is null then null else n.nspname || '.' || c.relname end as relation, holder.pid as holder,
       h.application_name, h.usename, to_char(h.xact_start at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC' as since
from pg_stat_activity w
cross join lateral unnest(pg_blocking_pids(w.pid)) as holder (pid)
left join pg_stat_activity h on h.pid = holder.pid
left join lateral (select l.relation from pg_locks l
                    where l.pid = w.pid and l.relation is not null and (not l.granted or l.locktype = 'tuple')
                    order by l.granted limit 1) as wanted on true
left join pg_class c on c.oid = wanted.relation
left join pg_namespace n on n.oid = c.relnamespace
where w.datname = current_database() and coalesce(w.wait_event_type, 'Lock') = 'Lock'
  and split_part(w.application_name, '/', 1) = 'txtopo' and split_part(w.application_name, '/', 2) = %(topology)s
  and not (split_part(coalesce(h.application_name, ''), '/', 1) = 'txtopo' and split_part(coalesce(h.application_name, ''), '/', 2) = %(topology)s)
order by relation, holder
limit 5
