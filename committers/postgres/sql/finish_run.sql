-- Finishes batches, one or a commit run, and looks at the tables of a run, which are locked by now. Both functions are
-- planned once a session. P9: nothing is finished in another database transaction than the one that locked the fence.
-- The last column is how long the server took for this statement, with the one before it: what the driver waits for it
-- beyond that is one round trip (R24).
select case when pg_current_xact_id()::text = %(xid)s
       then txtopo.finish_run(%(topology)s, %(txids)s::bigint[], %(attempts)s::integer[], %(reads)s::bigint[], %(rejecteds)s::bigint[],
                              %(dead_lettereds)s::bigint[], %(spans)s::jsonb[], %(committers)s) end,
       txtopo.run_obstacles(%(tables)s::jsonb), pg_current_xact_id()::text,
       extract(epoch from clock_timestamp() - statement_timestamp())::double precision
