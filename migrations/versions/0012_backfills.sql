-- R32: a backfill counts a batch that is committed into one committer that did not count it. It is a row of the ledger of a kind of its own: not a redo, since
-- the other committers keep what they have, and the next redo of the batch still redoes the batch.
alter table txtopo.ledger
  add column backfills bigint check (backfills > 0),         -- the txid whose batch this one counts into `committer` alone
  add column committer text,
  add constraint ledger_backfill_check check ((backfills is null) = (committer is null) and (backfills is null or redo_of is null) and backfills < txid),
  add constraint ledger_backfills_fkey foreign key (topology, backfills) references txtopo.ledger (topology, txid);
create unique index backfilled_once on txtopo.ledger (topology, backfills, committer) where backfills is not null and state in ('applying', 'applied');

-- As before, and these two belong to the identity of a row.
create or replace function txtopo.final() returns trigger language plpgsql as $$ begin
  if tg_op = 'DELETE' or old.state <> 'applying' then raise exception 'txtopo: ledger row % is final', old.txid; end if;
  if (new.topology, new.txid, new.prev_txid, new.prev_digest, new.digest, new.incarnation, new.epoch, new.attempt, new.cut, new.code_hash, new.redo_of, new.backfills, new.committer) is distinct from
     (old.topology, old.txid, old.prev_txid, old.prev_digest, old.digest, old.incarnation, old.epoch, old.attempt, old.cut, old.code_hash, old.redo_of, old.backfills, old.committer) then
    raise exception 'txtopo: ledger row % may not change its identity', old.txid; end if;
  return new; end $$;

-- What is counted twice otherwise: a backfill of a batch that is not in effect, or that a committer has counted; and a redo of a backfill, whose other
-- committers have the batch itself.
create function txtopo.fills() returns trigger language plpgsql as $$ declare batch txtopo.ledger; twice text; begin
  select * into batch from txtopo.ledger l where (l.topology, l.txid) = (new.topology, coalesce(new.backfills, new.redo_of));
  if batch.backfills is not null then
    raise exception 'txtopo: batch % is a backfill of batch %, and is neither redone nor counted again', batch.txid, batch.backfills; end if;
  if new.backfills is null then return null; end if;
  if batch.state is distinct from 'applied' or exists (
      select from txtopo.ledger r where r.topology = new.topology and r.redo_of = new.backfills and r.state = 'applied') then
    raise exception 'txtopo: batch % counts batch %, which is not in effect', new.txid, new.backfills; end if;
  select c.committer into twice from txtopo.committer_count c
   where (c.topology, c.txid) = (new.topology, new.txid)
     and (not (c.committer = new.committer or starts_with(c.committer, new.committer || '_'))
          or exists (select from txtopo.committer_count o where (o.topology, o.txid, o.committer) = (new.topology, new.backfills, c.committer))
          or exists (select from txtopo.ledger b join txtopo.committer_count o on (o.topology, o.txid) = (b.topology, b.txid)
                     where b.topology = new.topology and b.backfills = new.backfills and b.txid <> new.txid and b.state = 'applied' and o.committer = c.committer))
   limit 1;
  if twice is not null then
    raise exception 'txtopo: batch % counts batch % into %, which is another committer or has counted it', new.txid, new.backfills, twice; end if;
  return null; end $$;
create trigger fills after update on txtopo.ledger for each row
  when (new.state = 'applied' and (new.backfills is not null or new.redo_of is not null)) execute function txtopo.fills();

-- The order of an operator.
alter table txtopo.request drop constraint request_kind_check;
alter table txtopo.request add constraint request_kind_check check (kind in ('stop', 'retry', 'skip', 'redrive', 'replan', 'recompute', 'backfill'));
alter table txtopo.request add constraint request_committer_check check (kind <> 'backfill' or coalesce(jsonb_typeof(arguments -> 'committer') = 'string', false));

-- Version 2 of seals as before; that of a backfill covers the batch and the committer, too.
create or replace function txtopo.seal() returns trigger language plpgsql as $$ declare before bytea; of_description bytea; of_action bytea; begin
  if new.state = 'applying' then return new; end if;
  if new.txid > 0 then
    select l.seal into before from txtopo.ledger l where (l.topology, l.txid) = (new.topology, new.prev_txid);
    if before is null then raise exception 'txtopo: batch % is sealed before the one before it', new.txid; end if;
    if new.txid > 1 + (select f.last_txid from txtopo.fence f where f.topology = new.topology) then
      raise exception 'txtopo: batch % is finished out of turn', new.txid; end if;
  end if;
  select d.number, d.seal into new.sealed_description, of_description from txtopo.description d where d.topology = new.topology order by d.number desc limit 1;
  select a.number, a.seal into new.sealed_action, of_action from txtopo.action a where a.topology = new.topology and a.number is not null order by a.number desc limit 1;
  new.sealed_attempts := (select jsonb_agg(jsonb_build_array(attempt, state) order by attempt) from txtopo.attempt a where (a.topology, a.txid) = (new.topology, new.txid));
  new.seal_version := 2;
  new.seal := sha256(convert_to((jsonb_build_array(2,
    new.topology, new.txid, new.cut, encode(new.digest, 'hex'), new.incarnation, new.epoch, new.attempt, encode(new.code_hash, 'hex'),
    new.state, new.read, new.rejected, new.dead_lettered, new.committers, new.reason, new.redo_of, txtopo.micros(new.planned_at), txtopo.micros(new.committed_at),
    (select jsonb_agg(jsonb_build_array(committer, arrived, counted, results, written, ignored, reversed, digest::text) order by committer collate "C")
       from txtopo.committer_count c where (c.topology, c.txid) = (new.topology, new.txid)),
    (select jsonb_agg(jsonb_build_array(edge, sent, received) order by edge collate "C")
       from txtopo.edge_count e where (e.topology, e.txid) = (new.topology, new.txid)),
    (select jsonb_agg(jsonb_build_array(spout, path, number, digest) order by spout collate "C", path collate "C") from (
       select spout, path, count(*) as number, encode(sha256(string_agg(sha256(convert_to(
                (jsonb_build_array(line, reason, encode(sha256(raw), 'hex'), raw_bytes) ||
                  case when unit = 'line' then '[]' else jsonb_build_array(unit) end)::text, 'UTF8')), ''::bytea order by line)), 'hex') as digest
         from txtopo.rejected_row r where (r.topology, r.txid) = (new.topology, new.txid) group by spout, path) files),
    (select jsonb_agg(jsonb_build_array(spout, position, component, reason, encode(sha256(raw), 'hex')) order by spout collate "C", position collate "C")
       from txtopo.dead_letter d where (d.topology, d.txid) = (new.topology, new.txid)),
    (select jsonb_agg(jsonb_build_array(attempt, epoch, encode(code_hash, 'hex'), alone, host, txtopo.micros(started_at)) || case when state = 'begun' then '[]' else
              jsonb_build_array(state, kind, cause, component, position, message, encode(sha256(convert_to(detail, 'UTF8')), 'hex'), txtopo.micros(ended_at), spans::text, inputs::text) end
              order by attempt)
       from txtopo.attempt a where (a.topology, a.txid) = (new.topology, new.txid)),
    new.sealed_description, encode(of_description, 'hex'), new.sealed_action, encode(of_action, 'hex'), encode(before, 'hex')) ||
    case when new.backfills is null then '[]' else jsonb_build_array(new.backfills, new.committer) end)::text, 'UTF8'));
  return new; end $$;
