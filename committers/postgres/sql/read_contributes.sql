-- Whether a contribution table lacks its trigger `contributes`, and whether this role may add it.
select not exists (select from pg_trigger t where t.tgrelid = c.oid and t.tgname = 'contributes'),
       has_table_privilege(c.oid, 'TRIGGER') and coalesce(has_function_privilege(to_regprocedure('txtopo.contributes()'), 'EXECUTE'), false)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname = %(table)s
