-- Constraints and constraint triggers of a table that are checked at COMMIT.
select n.nspname, c.conname from pg_constraint c join pg_class t on t.oid = c.conrelid join pg_namespace n on n.oid = t.relnamespace
where n.nspname = %(schema)s and t.relname = %(table)s and c.condeferrable
