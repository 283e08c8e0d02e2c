-- P8: no setting of a role, a database or a pooler may weaken a database transaction of txtopo. P6: none outlives its
-- driver. Triggers and foreign keys keep their plans for as long as a session lasts: one that reads a whole table while it
-- is small would still do so when it has a million rows. Every statement here has an index, and none is worth compiling.
set transaction isolation level read committed, read write;
set local synchronous_commit = on;
set local statement_timeout = %(statement_timeout_ms)s;
set local lock_timeout = %(lock_timeout_ms)s;
select set_config('transaction_timeout', '0', true) where current_setting('server_version_num')::int >= 170000;
set local idle_in_transaction_session_timeout = %(idle_timeout_ms)s;
set local client_connection_check_interval = 1000;
set local search_path = pg_catalog;
set local timezone = 'UTC';
set local datestyle = 'ISO, YMD';
set local bytea_output = 'hex';
set local extra_float_digits = 1;
set local application_name = %(tag)s;
set local enable_seqscan = off;
set local jit = off;
