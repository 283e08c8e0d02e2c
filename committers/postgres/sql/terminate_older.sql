-- P6: sessions of this topology's older leaders, and those named, so that their locks go.
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and usename = current_user and pid <> pg_backend_pid()
  and application_name ~ ('^txtopo/' || %(topology)s || '/[0-9]{1,18}$')
  and (split_part(application_name, '/', 3)::bigint < %(epoch)s or pid = any (%(pids)s::integer[]))
