-- Functions of schema txtopo that commits call and this role may not execute, as text; null: none. The server itself calls triggers.
select string_agg(p.oid::regprocedure::text, ', ' order by p.proname) from pg_proc p
where p.pronamespace = 'txtopo'::regnamespace and p.prorettype <> 'trigger'::regtype and not has_function_privilege(p.oid, 'execute')
