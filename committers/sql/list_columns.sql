select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, c.relkind, c.relpersistence
from pg_class c join pg_namespace n on n.oid = c.relnamespace
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where n.nspname = %(schema)s and c.relname = %(table)s
order by a.attnum
