-- Unique indexes that ON CONFLICT can use: not partial, valid, immediate, plain columns.
select (select array_agg(a.attname::text) from pg_attribute a where a.attrelid = i.indrelid and a.attnum = any (i.indkey[0:i.indnkeyatts - 1])), i.indnullsnotdistinct
from pg_index i join pg_class c on c.oid = i.indrelid join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname = %(table)s
  and i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null and i.indexprs is null
