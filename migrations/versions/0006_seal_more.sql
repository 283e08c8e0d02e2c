-- A seal that covers more: times, attempts, rejected records, the description of the topology and the action log. Rows that are there keep theirs.

-- Microseconds since 1970, the same under every setting.
create function txtopo.micros(at timestamptz) returns bigint language sql immutable as $$ select (extract(epoch from at) * 1000000)::bigint $$;

-- What a topology was, each time that it changed: the audit compares tables by it.
create table txtopo.description (
  topology    text    not null references txtopo.fence,
  number      integer not null check (number > 0),          -- 1, 2, 3, … of the topology
  epoch       bigint,                                       -- of the leader that described it; null: it was there before this table
  code_hash   bytea   not null,
  description jsonb   not null,
  at          timestamptz not null default clock_timestamp(),
  seal        bytea   not null,                             -- sha-256 of these values and the seal before
  primary key (topology, number));
create function txtopo.seal_of_description(one txtopo.description, before bytea) returns bytea language sql stable as $$
  select sha256(convert_to(jsonb_build_array(one.topology, one.number, one.epoch, encode(one.code_hash, 'hex'),
    encode(sha256(convert_to(one.description::text, 'UTF8')), 'hex'), txtopo.micros(one.at), encode(before, 'hex'))::text, 'UTF8')) $$;

-- The row of txtopo.topology is locked by the change itself, so numbers follow each other.
create function txtopo.describes() returns trigger language plpgsql as $$ declare before txtopo.description; one txtopo.description; begin
  select * into before from txtopo.description d where d.topology = new.topology order by d.number desc limit 1;
  if (before.code_hash, before.description) is not distinct from (new.code_hash, new.description) then return null; end if;
  one.topology := new.topology; one.number := coalesce(before.number, 0) + 1; one.code_hash := new.code_hash; one.description := new.description;
  one.epoch := (select f.epoch from txtopo.fence f where f.topology = new.topology);
  one.at := clock_timestamp();
  one.seal := txtopo.seal_of_description(one, before.seal);
  insert into txtopo.description select one.*;
  return null; end $$;
insert into txtopo.description (topology, number, epoch, code_hash, description, at, seal)
  select topology, 1, null, code_hash, description, started_at, '' from txtopo.topology;
update txtopo.description d set seal = txtopo.seal_of_description(d, null);
create trigger describes after insert or update of code_hash, description on txtopo.topology for each row execute function txtopo.describes();
create trigger frozen before update or delete on txtopo.description for each row execute function txtopo.frozen();
create trigger kept_whole before truncate on txtopo.description for each statement execute function txtopo.frozen();

-- The action log as a chain of its own, one a topology.
alter table txtopo.action add column number bigint;          -- 1, 2, 3, … of the topology
alter table txtopo.action add column seal bytea;             -- sha-256 of the values and the seal before
create function txtopo.seal_of_action(one txtopo.action, before bytea) returns bytea language sql stable as $$
  select sha256(convert_to(jsonb_build_array(one.topology, one.number, one.action_id, txtopo.micros(one.at), one.actor, one.host, one.command, one.reason,
    one.request_id, one.txid, one.before::text, one.after::text, encode(before, 'hex'))::text, 'UTF8')) $$;
alter table txtopo.action disable trigger frozen;
do $$ declare one txtopo.action; last bytea; whose text; place bigint; begin
  for one in select * from txtopo.action order by topology, action_id loop
    if whose is distinct from one.topology then whose := one.topology; last := null; place := 0; end if;
    place := place + 1; one.number := place; last := txtopo.seal_of_action(one, last);
    update txtopo.action set number = place, seal = last where action_id = one.action_id;
  end loop; end $$;
alter table txtopo.action enable trigger frozen;
create unique index action_in_chain on txtopo.action (topology, number);
create function txtopo.chained() returns trigger language plpgsql as $$ declare before txtopo.action; begin
  perform pg_advisory_xact_lock(hashtextextended('txtopo.action ' || new.topology, 0));   -- commits and answers write it: one at a time, or the chain would fork
  select * into before from txtopo.action a where a.topology = new.topology and a.number is not null order by a.number desc limit 1;
  new.number := coalesce(before.number, 0) + 1;
  new.seal := txtopo.seal_of_action(new, before.seal);
  return new; end $$;
create trigger chained before insert on txtopo.action for each row execute function txtopo.chained();

-- What a seal covers beside the row and its counts. An attempt may end after its batch is sealed: of one that had not, only its beginning is covered.
alter table txtopo.ledger add column seal_version smallint not null default 1 check (seal_version in (1, 2));
alter table txtopo.ledger add column sealed_attempts jsonb;         -- [attempt, state] of each that was there
alter table txtopo.ledger add column sealed_description integer;    -- number of the last description
alter table txtopo.ledger add column sealed_action bigint;          -- number of the last action

-- Version 2. Each row is sealed behind a sealed one, and none beyond the next: whatever a database transaction finishes, it finishes in order.
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
  new.seal := sha256(convert_to(jsonb_build_array(2,
    new.topology, new.txid, new.cut, encode(new.digest, 'hex'), new.incarnation, new.epoch, new.attempt, encode(new.code_hash, 'hex'),
    new.state, new.read, new.rejected, new.dead_lettered, new.committers, new.reason, new.redo_of, txtopo.micros(new.planned_at), txtopo.micros(new.committed_at),
    (select jsonb_agg(jsonb_build_array(committer, arrived, counted, results, written, ignored, reversed, digest::text) order by committer collate "C")
       from txtopo.committer_count c where (c.topology, c.txid) = (new.topology, new.txid)),
    (select jsonb_agg(jsonb_build_array(edge, sent, received) order by edge collate "C")
       from txtopo.edge_count e where (e.topology, e.txid) = (new.topology, new.txid)),
    (select jsonb_agg(jsonb_build_array(spout, path, number, digest) order by spout collate "C", path collate "C") from (
       select spout, path, count(*) as number, encode(sha256(string_agg(sha256(convert_to(
                jsonb_build_array(line, reason, encode(sha256(raw), 'hex'), raw_bytes)::text, 'UTF8')), ''::bytea order by line)), 'hex') as digest
         from txtopo.rejected_row r where (r.topology, r.txid) = (new.topology, new.txid) group by spout, path) files),
    (select jsonb_agg(jsonb_build_array(spout, position, component, reason, encode(sha256(raw), 'hex')) order by spout collate "C", position collate "C")
       from txtopo.dead_letter d where (d.topology, d.txid) = (new.topology, new.txid)),
    (select jsonb_agg(jsonb_build_array(attempt, epoch, encode(code_hash, 'hex'), alone, host, txtopo.micros(started_at)) || case when state = 'begun' then '[]' else
              jsonb_build_array(state, kind, cause, component, position, message, encode(sha256(convert_to(detail, 'UTF8')), 'hex'), txtopo.micros(ended_at), spans::text, inputs::text) end
              order by attempt)
       from txtopo.attempt a where (a.topology, a.txid) = (new.topology, new.txid)),
    new.sealed_description, encode(of_description, 'hex'), new.sealed_action, encode(of_action, 'hex'), encode(before, 'hex'))::text, 'UTF8'));
  return new; end $$;
