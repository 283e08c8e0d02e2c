-- What a commit looks up is found by its key, however long the history is, and whatever Postgres knows of the tables.

-- The index that lets a batch be redone once had an entry for every batch. Without statistics, triggers read all of them in each commit. It has one
-- for each redo now: a batch that redoes nothing was never refused by it.
drop index txtopo.redone_once;
create unique index redone_once on txtopo.ledger (topology, redo_of) where redo_of is not null and state in ('applying', 'applied');

-- As before, with a look for each batch: NOT EXISTS became a join that reads the whole ledger.
create or replace function txtopo.contributes() returns trigger language plpgsql as $$ declare whose text; n bigint; begin
  select k.topology into whose from txtopo.target k where k.target || '_contribution' = tg_table_schema || '.' || tg_table_name;
  if whose is null then return null; end if;
  select r.txid into n from (select distinct c.txid from new_rows c where c.txid > 0) r
   where (select l.state from txtopo.ledger l where (l.topology, l.txid) = (whose, r.txid)) is distinct from 'applying' limit 1;
  if found then raise exception 'txtopo: contributions of batch %, which is not being applied', n; end if;
  return null; end $$;
