-- R20, as before, but a target may have columns that the server computes as txtopo declared them (`computed`: name -> type -> spellings): it computes
-- them from the final values of a row, which are those of the batches one by one. What would see one sum instead of the amounts of each batch, in the tables of counting committers, as text; null: nothing. A contribution
-- table has every row of every batch; only foreign triggers, rules and row security matter there, and its trigger `contributes` must be there.
-- A function, since each session plans it once: planning takes several times as long as the look itself.
create or replace function txtopo.run_obstacles(tables jsonb) returns text language plpgsql as $$ begin
  if tables is null then return null; end if;
  return (select string_agg(format('table %s %s', found.table_name, found.problem), '; ') from (
    select w.table_name, p.problem
    from jsonb_to_recordset(tables) as w (table_name text, quoted text, keys text[], columns jsonb, computed jsonb, is_target boolean)
    left join pg_class c on c.oid = to_regclass(w.quoted)
    cross join lateral (
      select 'does not exist' as problem where c.oid is null
      union all
      select 'is not a plain table' where w.is_target and (c.relkind <> 'r' or exists (select from pg_inherits i where c.oid in (i.inhrelid, i.inhparent)))
      union all
      select 'has a CHECK constraint' where w.is_target and c.relchecks > 0
      union all
      select 'has row security' where c.relrowsecurity
      union all
      select 'has rule ' || r.rulename from pg_rewrite r where r.ev_class = c.oid
      union all
      select case when t.tgisinternal then 'has a foreign key' else 'has trigger ' || t.tgname end from pg_trigger t
      where t.tgrelid = c.oid and (w.is_target or t.tgisinternal or t.tgfoid not in ('txtopo.frozen()'::regprocedure, 'txtopo.contributes()'::regprocedure))
      union all
      select 'lacks its trigger contributes (docs/operating.md, Roles)' where not w.is_target and not exists (
        select from pg_trigger t where t.tgrelid = c.oid and t.tgname = 'contributes' and t.tgfoid = 'txtopo.contributes()'::regprocedure
                                   and t.tgenabled in ('O', 'A') and t.tgtype = 4 and t.tgqual is null)
      union all
      select 'has index ' || x.relname || ' next to its keys' from pg_index i join pg_class x on x.oid = i.indexrelid
      where w.is_target and i.indrelid = c.oid and (i.indexprs is not null or i.indpred is not null or i.indisexclusion or i.indisunique and (
        select array_agg(a.attname::text order by a.attname) from pg_attribute a where a.attrelid = i.indrelid and a.attnum = any (i.indkey[0:i.indnkeyatts - 1])) <> w.keys)
      union all
      select 'has column ' || a.attname || ', which is ' || format_type(a.atttypid, a.atttypmod) || case when a.attgenerated <> '' then ' and generated' else '' end
             || case when o.collisdeterministic then '' else ', of a collation that is not deterministic' end
      from pg_attribute a left join pg_collation o on o.oid = a.attcollation
      left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
      where w.is_target and a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and not coalesce(
        case when a.attgenerated <> '' then w.computed -> a.attname -> format_type(a.atttypid, a.atttypmod) ? pg_get_expr(d.adbin, d.adrelid)
             else (w.columns ->> a.attname) in (format_type(a.atttypid, a.atttypmod), replace(format_type(a.atttypid, a.atttypmod), 'character varying', 'text')) end
        and coalesce(o.collisdeterministic, true), false)
    ) as p
    order by 1, 2
    limit 5
  ) found); end $$;
