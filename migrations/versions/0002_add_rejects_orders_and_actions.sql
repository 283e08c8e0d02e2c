-- Rejected records, the operators' orders beside `stop`, and the log of what was done by whom.

-- A source record that does not parse under the declared schema: it comes with its batch, in the batch's own database transaction.
create table txtopo.rejected_row (
  topology  text   not null,
  txid      bigint not null,
  spout     text   not null,
  path      text   not null,
  line      bigint not null check (line > 0),           -- where the record starts; the header is line 1
  reason    text   not null check (length(reason) > 0),
  raw       bytea  not null,                            -- the record as it stands in the file, or its beginning
  raw_bytes bigint not null,                            -- length of the whole record
  primary key (topology, txid, spout, path, line),
  foreign key (topology, txid) references txtopo.ledger,
  check (raw_bytes >= length(raw)));
create trigger with_batch before insert on txtopo.rejected_row for each row execute function txtopo.with_batch();
create trigger frozen before update or delete on txtopo.rejected_row for each row execute function txtopo.frozen();
create trigger kept_whole before truncate on txtopo.rejected_row for each statement execute function txtopo.frozen();

-- As before, and: every rejected record that the ledger row counts is there.
create or replace function txtopo.complete() returns trigger language plpgsql as $$
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
  if coalesce(row.rejected, 0) <> (select count(*) from txtopo.rejected_row r where (r.topology, r.txid) = (row.topology, row.txid)) then
    raise exception 'txtopo: batch % does not have each of its rejected records', new.txid; end if;
  return null; end $$;

-- Orders of operators: what the leader may be asked to do, and what it noted on the way.
alter table txtopo.request drop constraint request_kind_check;
alter table txtopo.request add constraint request_kind_check check (kind in ('stop', 'retry', 'skip', 'redrive', 'replan', 'recompute'));
alter table txtopo.request add constraint request_txids_check check (kind = 'stop' or not jsonb_path_exists(arguments,
  'strict $ ? (@.type() != "object" || exists(@.txids ? (@.type() != "array")) || exists(@.txids[*] ? (@.type() != "number" || @ < 1 || @ != @.floor())))'));
alter table txtopo.request add column progress jsonb not null default '{}';

-- Health by commit progress: the batch whose turn it is, and whether none was committed for too long.
alter table txtopo.topology drop constraint topology_state_check;
alter table txtopo.topology add constraint topology_state_check check (state in ('running', 'stalled', 'stopped', 'finished', 'halted'));
alter table txtopo.topology add column waiting jsonb not null default '{}';

-- Who did what, when and why: written in the same database transaction as the change, never rewritten.
create table txtopo.action (
  action_id  bigint generated always as identity primary key,
  topology   text not null references txtopo.fence,
  at         timestamptz not null default clock_timestamp(),
  actor      text not null,
  host       text not null,
  command    text not null,
  reason     text,
  request_id bigint references txtopo.request,
  txid       bigint,
  before     jsonb not null,
  after      jsonb not null);
create index action_of_topology on txtopo.action (topology, action_id);
create index action_of_request on txtopo.action (request_id) where request_id is not null;
create trigger frozen before update or delete on txtopo.action for each row execute function txtopo.frozen();
create trigger kept_whole before truncate on txtopo.action for each statement execute function txtopo.frozen();

-- The chain of redos of a batch is found from its txid.
create index redos_of_batch on txtopo.ledger (topology, redo_of) where redo_of is not null;
