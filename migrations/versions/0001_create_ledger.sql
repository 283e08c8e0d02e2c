-- The ledger that enforces the commit protocol: every constraint here refuses something that once went wrong or was tried on purpose.
-- Schema txtopo is there already: the table of applied revisions lives in it.

-- One row a topology: who may write, and how far it got. Locked by every commit (FOR NO KEY UPDATE) and every takeover (FOR UPDATE).
create table txtopo.fence (
  topology    text primary key check (topology ~ '^[a-z][a-z0-9_]{0,40}$'),
  incarnation uuid   not null,                    -- also in ZooKeeper: tells a wiped or restored store from its successor
  owner_nonce uuid   not null,                    -- of the driver that holds the epoch
  epoch       bigint not null check (epoch > 0),
  code_hash   bytea  not null,                    -- of the code that the holder of the epoch runs
  opaque      boolean not null default false,     -- may a batch be cut again on a retry?
  last_txid   bigint not null default 0 check (last_txid >= 0));

-- One row a txid, in order, without gaps, chained by digest, final once written.
create table txtopo.ledger (
  topology      text   not null references txtopo.fence,
  txid          bigint not null check (txid >= 0),          -- 0 is the genesis row
  prev_txid     bigint,
  prev_digest   bytea,
  digest        bytea  not null,                            -- of the canonical plan: ranges, fingerprints, previous digest (R12)
  incarnation   uuid   not null,
  epoch         bigint not null,
  attempt       integer not null check (attempt >= 0),
  cut           integer not null default 0,                 -- which plan of the txid: 0, or for opaque spouts the attempt that cut it
  code_hash     bytea  not null,
  state         text   not null check (state in ('genesis', 'applying', 'applied', 'quarantined')),
  read          bigint check (read >= 0),                   -- source records of the plan
  rejected      bigint check (rejected >= 0),               -- of these: not parsable under the declared schema
  dead_lettered bigint check (dead_lettered >= 0),          -- of these: taken out after a bolt failed on them
  committers    integer,                                    -- rows of committer_count that belong to this batch
  reason        text,
  redo_of       bigint check (redo_of > 0),                 -- the txid whose batch this one redoes
  seal          bytea,                                      -- sha-256 of the final values, the counts and the seal before; the audit recomputes it
  planned_at    timestamptz,
  committed_at  timestamptz not null default clock_timestamp(),
  primary key (topology, txid),
  unique (topology, txid, digest),
  check (txid = 0 or (prev_txid is not null and prev_txid = txid - 1 and prev_digest is not null)),
  check (state <> 'applied' or coalesce(rejected + dead_lettered <= read and committers > 0, false)),
  check (state <> 'quarantined' or coalesce(length(reason) > 0 and committers = 0, false)),   -- read may be unknown
  check (redo_of < txid),
  foreign key (topology, prev_txid, prev_digest) references txtopo.ledger (topology, txid, digest),
  foreign key (topology, redo_of) references txtopo.ledger (topology, txid));

-- Redone at most once; a redo that was quarantined leaves the place free; a recompute of a redone batch redoes its last redo.
create unique index redone_once on txtopo.ledger (topology, redo_of) where state in ('applying', 'applied');

-- One row a batch and committer. The four numbers come from different places, so that their agreement proves something.
create table txtopo.committer_count (
  topology  text   not null,
  txid      bigint not null,
  committer text   not null,
  arrived   bigint not null,   -- tuples that reached the committer, counted by the winning tasks
  counted   bigint not null,   -- sum of the weights of the rows that the apply statement took, returned by that statement
  results   bigint not null,   -- rows that the executor half handed over, by the manifest
  written   bigint not null,   -- target rows inserted, updated or deleted, returned by the apply statement
  ignored   bigint not null default 0,   -- result rows that the committer's own rule leaves out (an older version of a key)
  reversed  bigint not null default 0,   -- contribution rows of the txid redone that were taken back first
  digest    numeric not null,            -- order-free sum of 64-bit hashes of the result rows that the apply statement took, returned by it
  primary key (topology, txid, committer),
  foreign key (topology, txid) references txtopo.ledger,
  check (arrived = counted), check (results = written + ignored));

-- One row a batch and edge of tuple bolts: what one side sent, the other received.
create table txtopo.edge_count (
  topology text not null, txid bigint not null,
  edge     text not null,      -- from component, stream, to component
  sent     bigint not null, received bigint not null,
  primary key (topology, txid, edge),
  foreign key (topology, txid) references txtopo.ledger,
  check (sent = received));

-- The plan of a batch: the same bytes as its znode (R9). Create-only, by the holder of the epoch; removed by retention only.
create table txtopo.plan (
  topology text not null references txtopo.fence, txid bigint not null, digest bytea not null,
  bytes    bytea not null check (length(bytes) <= 65536),
  cut      integer not null default 0,
  epoch    bigint not null, created_at timestamptz not null default clock_timestamp(),
  primary key (topology, txid, cut));

-- What has been planned into some batch, for ever: retention never touches it. A file is input once.
create table txtopo.source_file (
  topology text not null references txtopo.fence, spout text not null, path text not null check (octet_length(path) <= 2000),
  fingerprint bytea not null, txid bigint not null, redo boolean not null default false,
  primary key (topology, spout, path, txid));
create unique index consumed_once on txtopo.source_file (topology, spout, path) where not redo;
create index source_file_of_batch on txtopo.source_file (topology, txid);

-- A target table belongs to one committer of one topology.
create table txtopo.target (
  target text primary key, topology text not null references txtopo.fence, committer text not null,
  baseline_digest numeric,     -- of rows that were there before and were adopted as contributions of txid 0
  unique (topology, committer));

create function txtopo.complete() returns trigger language plpgsql as $$
declare row txtopo.ledger; fence txtopo.fence; begin
  select * into row from txtopo.ledger where topology = new.topology and txid = new.txid;
  select * into fence from txtopo.fence where topology = new.topology;
  if row.state not in ('applied', 'quarantined', 'genesis') then
    raise exception 'txtopo: COMMIT before batch % was complete', new.txid; end if;
  if new.txid > 0 and (fence.epoch, fence.last_txid, fence.incarnation, fence.code_hash)
                      is distinct from (row.epoch, row.txid, row.incarnation, row.code_hash) then
    raise exception 'txtopo: batch % does not match the fence (epoch %, last %)', new.txid, fence.epoch, fence.last_txid; end if;
  if row.state <> 'genesis' and not exists (select from txtopo.plan p
      where (p.topology, p.txid, p.cut, p.digest) = (row.topology, row.txid, row.cut, row.digest)) then
    raise exception 'txtopo: batch % has no mirrored plan with its digest', new.txid; end if;
  if row.committers <> (select count(*) from txtopo.committer_count c where (c.topology, c.txid) = (row.topology, row.txid)) then
    raise exception 'txtopo: batch % does not have a count of each committer', new.txid; end if;
  return null; end $$;
create constraint trigger complete after insert or update on txtopo.ledger
  deferrable initially deferred for each row execute function txtopo.complete();

create function txtopo.final() returns trigger language plpgsql as $$ begin
  if tg_op = 'DELETE' or old.state <> 'applying' then raise exception 'txtopo: ledger row % is final', old.txid; end if;
  if (new.topology, new.txid, new.prev_txid, new.prev_digest, new.digest, new.incarnation, new.epoch, new.attempt, new.cut, new.code_hash, new.redo_of) is distinct from
     (old.topology, old.txid, old.prev_txid, old.prev_digest, old.digest, old.incarnation, old.epoch, old.attempt, old.cut, old.code_hash, old.redo_of) then
    raise exception 'txtopo: ledger row % may not change its identity', old.txid; end if;
  return new; end $$;
create trigger final before update or delete on txtopo.ledger for each row execute function txtopo.final();

create function txtopo.seal() returns trigger language plpgsql as $$ begin
  if new.state <> 'applying' then
    new.seal := sha256(convert_to(jsonb_build_array(
      new.topology, new.txid, new.cut, encode(new.digest, 'hex'), new.incarnation, new.epoch, new.attempt, encode(new.code_hash, 'hex'),
      new.state, new.read, new.rejected, new.dead_lettered, new.committers, new.reason, new.redo_of,
      (select jsonb_agg(jsonb_build_array(committer, arrived, counted, results, written, ignored, reversed, digest::text) order by committer collate "C")
         from txtopo.committer_count c where (c.topology, c.txid) = (new.topology, new.txid)),
      (select jsonb_agg(jsonb_build_array(edge, sent, received) order by edge collate "C")
         from txtopo.edge_count e where (e.topology, e.txid) = (new.topology, new.txid)),
      (select encode(l.seal, 'hex') from txtopo.ledger l where (l.topology, l.txid) = (new.topology, new.prev_txid)))::text, 'UTF8'));
  end if;
  return new; end $$;
create trigger seal before insert or update on txtopo.ledger for each row execute function txtopo.seal();

create function txtopo.frozen() returns trigger language plpgsql as $$ begin
  raise exception 'txtopo: % rows are final', tg_table_name; end $$;
create trigger frozen before update on txtopo.plan            for each row execute function txtopo.frozen();
create function txtopo.plan_kept() returns trigger language plpgsql as $$ begin
  if old.txid > (select last_txid from txtopo.fence where topology = old.topology) then
    raise exception 'txtopo: plan % is not committed yet', old.txid; end if;
  return old; end $$;
create trigger kept before delete on txtopo.plan for each row execute function txtopo.plan_kept();
create trigger frozen before update or delete on txtopo.source_file for each row execute function txtopo.frozen();
create trigger frozen before update or delete on txtopo.target      for each row execute function txtopo.frozen();

-- Counts come while their batch is applied, never later.
create function txtopo.with_batch() returns trigger language plpgsql as $$ begin
  if not exists (select from txtopo.ledger l where (l.topology, l.txid, l.state) = (new.topology, new.txid, 'applying')) then
    raise exception 'txtopo: batch % is not being applied', new.txid; end if;
  return new; end $$;
create trigger with_batch before insert on txtopo.committer_count for each row execute function txtopo.with_batch();
create trigger with_batch before insert on txtopo.edge_count      for each row execute function txtopo.with_batch();

-- Only the holder of the epoch mirrors a plan; a batch is cut again only by an opaque spout.
create function txtopo.plan_by_leader() returns trigger language plpgsql as $$ declare fence txtopo.fence; begin
  select * into fence from txtopo.fence where topology = new.topology for key share;
  if fence.epoch is distinct from new.epoch or new.txid <= fence.last_txid then
    raise exception 'txtopo: plan % of epoch %, but the fence has epoch %, last %', new.txid, new.epoch, fence.epoch, fence.last_txid; end if;
  if new.txid > fence.last_txid + 1 and (fence.opaque or not exists (
      select from txtopo.plan p where (p.topology, p.txid) = (new.topology, new.txid - 1))) then
    raise exception 'txtopo: plan % is out of order', new.txid; end if;
  if new.cut <> 0 and not fence.opaque then raise exception 'txtopo: plan % may not be cut again', new.txid; end if;
  return new; end $$;
create trigger plan_by_leader before insert on txtopo.plan for each row execute function txtopo.plan_by_leader();
create trigger frozen before update or delete on txtopo.committer_count for each row execute function txtopo.frozen();
create trigger frozen before update or delete on txtopo.edge_count      for each row execute function txtopo.frozen();

-- A counter in a row may only move forward, one batch at a time, and an epoch never goes back.
create function txtopo.fence_moves() returns trigger language plpgsql as $$ begin
  if new.epoch < old.epoch or new.last_txid not in (old.last_txid, old.last_txid + 1) then
    raise exception 'txtopo: fence of % may not go from (%, %) to (%, %)', old.topology, old.epoch, old.last_txid, new.epoch, new.last_txid; end if;
  if new.epoch > old.epoch then perform from txtopo.fence where topology = old.topology for update; end if;   -- waits for mirrors too
  if new.epoch = old.epoch and (new.owner_nonce, new.code_hash, new.incarnation, new.opaque) is distinct from
     (old.owner_nonce, old.code_hash, old.incarnation, old.opaque) then
    raise exception 'txtopo: fence of % may not change its owner within epoch %', old.topology, old.epoch; end if;
  return new; end $$;
create trigger moves before update on txtopo.fence for each row execute function txtopo.fence_moves();

-- At COMMIT the fence agrees with the ledger.
create function txtopo.fence_agrees() returns trigger language plpgsql as $$ declare l bigint; begin
  select max(txid) into l from txtopo.ledger where topology = new.topology;
  if l is distinct from (select last_txid from txtopo.fence where topology = new.topology) then
    raise exception 'txtopo: fence of % ahead of its ledger (%)', new.topology, l; end if;
  return null; end $$;
create constraint trigger agrees after insert or update of last_txid on txtopo.fence
  deferrable initially deferred for each row execute function txtopo.fence_agrees();

-- One row a try at a batch. Ids never go back, so rows are never removed, and a state moves once: from begun to its end.
create table txtopo.attempt (
  topology   text    not null references txtopo.fence,
  txid       bigint  not null check (txid > 0),
  attempt    integer not null check (attempt >= 0),
  epoch      bigint  not null check (epoch > 0),
  code_hash  bytea   not null,                              -- of the code that the attempt runs (R12)
  state      text    not null default 'begun' check (state in ('begun', 'applied', 'failed', 'cancelled')),
  alone      boolean not null default false,                -- runs with nothing beside it, because an earlier attempt was a suspect
  kind       text check (kind in ('data', 'infrastructure', 'suspect')),
  component  text,
  position   text,                                          -- file:line in the source
  message    text,
  detail     text,                                          -- traceback or raw record
  host       text,
  started_at timestamptz not null default clock_timestamp(),
  ended_at   timestamptz,
  spans      jsonb,                                         -- seconds by phase
  primary key (topology, txid, attempt),
  check ((state = 'begun') = (ended_at is null)),
  check (state <> 'failed' or coalesce(kind is not null and length(message) > 0, false)));

create function txtopo.attempt_grows() returns trigger language plpgsql as $$ begin
  if exists (select from txtopo.attempt a where (a.topology, a.txid) = (new.topology, new.txid) and a.attempt > new.attempt) then
    raise exception 'txtopo: attempt %:% would go back', new.txid, new.attempt; end if;
  return new; end $$;
create trigger grows before insert on txtopo.attempt for each row execute function txtopo.attempt_grows();

create function txtopo.attempt_ends_once() returns trigger language plpgsql as $$ begin
  if tg_op = 'DELETE' then raise exception 'txtopo: attempt %:% may not be forgotten', old.txid, old.attempt; end if;
  if old.state <> 'begun' then raise exception 'txtopo: attempt %:% has ended', old.txid, old.attempt; end if;
  if (new.topology, new.txid, new.attempt, new.epoch, new.code_hash, new.alone) is distinct from
     (old.topology, old.txid, old.attempt, old.epoch, old.code_hash, old.alone) then
    raise exception 'txtopo: attempt %:% may not change its identity', old.txid, old.attempt; end if;
  return new; end $$;
create trigger ends_once before update or delete on txtopo.attempt for each row execute function txtopo.attempt_ends_once();

-- Pieces of metadata that are too long for a plan, found by their sha-256.
create table txtopo.plan_part (
  digest     bytea primary key check (length(digest) = 32 and digest = sha256(bytes)),
  bytes      bytea not null,
  created_at timestamptz not null default clock_timestamp());
create trigger frozen before update on txtopo.plan_part for each row execute function txtopo.frozen();

-- What the leader last said of itself; nothing here decides who may write.
create table txtopo.topology (
  topology     text primary key references txtopo.fence,
  application  text    not null,                            -- file.py:topology as given to run
  description  jsonb   not null,
  code_hash    bytea   not null,
  state        text    not null check (state in ('running', 'stopped', 'finished', 'halted')),
  host         text    not null,
  pid          integer not null,
  epoch        bigint  not null,
  started_at   timestamptz not null default clock_timestamp(),
  heartbeat_at timestamptz not null default clock_timestamp(),
  planned_txid bigint  not null default 0,
  problem      text,                                        -- what a running leader waits for
  reason       text,                                        -- why it ended
  halted_txid  bigint);

-- Orders of operators to the leader.
create table txtopo.request (
  request_id bigint generated always as identity primary key,
  topology   text  not null references txtopo.fence,
  kind       text  not null check (kind in ('stop')),
  arguments  jsonb not null default '{}',
  reason     text,
  actor      text,
  host       text,
  created_at timestamptz not null default clock_timestamp(),
  state      text  not null default 'open' check (state in ('open', 'done', 'refused')),
  answer     text,
  done_at    timestamptz,
  check ((state = 'open') = (done_at is null)));
create index request_open on txtopo.request (topology) where state = 'open';

-- TRUNCATE passes by triggers of rows.
create trigger kept_whole before truncate on txtopo.fence           for each statement execute function txtopo.frozen();
create trigger kept_whole before truncate on txtopo.ledger          for each statement execute function txtopo.frozen();
create trigger kept_whole before truncate on txtopo.committer_count for each statement execute function txtopo.frozen();
create trigger kept_whole before truncate on txtopo.edge_count      for each statement execute function txtopo.frozen();
create trigger kept_whole before truncate on txtopo.plan            for each statement execute function txtopo.frozen();
create trigger kept_whole before truncate on txtopo.source_file     for each statement execute function txtopo.frozen();
create trigger kept_whole before truncate on txtopo.target          for each statement execute function txtopo.frozen();
create trigger kept_whole before truncate on txtopo.attempt         for each statement execute function txtopo.frozen();
