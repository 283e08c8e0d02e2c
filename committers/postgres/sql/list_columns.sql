-- For a partitioned table: kind and persistence of its worst partition, one that is foreign or not logged.
-- The last column is how a generated column is computed.
select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, coalesce(parts.kind, c.relkind::text), coalesce(parts.persistence, c.relpersistence::text),
       case when a.attgenerated <> '' then pg_get_expr(d.adbin, d.adrelid) end
from pg_class c join pg_namespace n on n.oid = c.relnamespace
cross join lateral (select max(p.relkind::text) filter (where p.relkind = 'f') as kind, max(p.relpersistence::text) as persistence
                    from pg_partition_tree(c.oid) t join pg_class p on p.oid = t.relid) parts
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where n.nspname = %(schema)s and c.relname = %(table)s
order by a.attnum
