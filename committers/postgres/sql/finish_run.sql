-- The last column is how long the server took for this statement, with the one before it: what the driver waits for it
-- beyond that is one round trip (R24).
-- Follows `with obstacles (name, problem) as (list_run_obstacles)`: the tables are locked by now.
select txtopo.finish_run(%(topology)s, %(txids)s::bigint[], %(attempts)s::integer[], %(reads)s::bigint[], %(rejecteds)s::bigint[],
                         %(dead_lettereds)s::bigint[], %(spans)s::jsonb[], %(committers)s),
       (select string_agg(format('table %%s %%s', name, problem), '; ') from obstacles), pg_current_xact_id()::text,
       extract(epoch from clock_timestamp() - statement_timestamp())::double precision
