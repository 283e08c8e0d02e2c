-- P6: end the sessions of older leaders of this topology, and the named ones, so that their locks are released.
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and usename = current_user and pid <> pg_backend_pid()
  and application_name ~ ('^txtopo/' || %(topology)s || '/[0-9]{1,18}$')
  and (split_part(application_name, '/', 3)::bigint < %(epoch)s or pid = any (%(pids)s::integer[]))
