-- Several batches in one database transaction: each with its own row, its own seal and its own step of the fence. No trigger of the fence is changed.

-- As before, but the fence may be past the batch: a later batch of the same database transaction moved it on.
create or replace function txtopo.complete() returns trigger language plpgsql as $$
declare row txtopo.ledger; fence txtopo.fence; begin
  select * into row from txtopo.ledger where topology = new.topology and txid = new.txid;
  select * into fence from txtopo.fence where topology = new.topology;
  if row.state not in ('applied', 'quarantined', 'genesis') then
    raise exception 'txtopo: COMMIT before batch % was complete', new.txid; end if;
  if new.txid > 0 and ((fence.epoch, fence.incarnation, fence.code_hash) is distinct from (row.epoch, row.incarnation, row.code_hash)
                       or coalesce(fence.last_txid < row.txid, true)) then
    raise exception 'txtopo: batch % does not match the fence (epoch %, last %)', new.txid, fence.epoch, fence.last_txid; end if;
  if row.state <> 'genesis' and not exists (select from txtopo.plan p
      where (p.topology, p.txid, p.cut, p.digest) = (row.topology, row.txid, row.cut, row.digest)) then
    raise exception 'txtopo: batch % has no mirrored plan with its digest', new.txid; end if;
  if row.committers <> (select count(*) from txtopo.committer_count c where (c.topology, c.txid) = (row.topology, row.txid)) then
    raise exception 'txtopo: batch % does not have a count of each committer', new.txid; end if;
  if coalesce(row.rejected, 0) <> (select count(*) from txtopo.rejected_row r where (r.topology, r.txid) = (row.topology, row.txid)) then
    raise exception 'txtopo: batch % does not have each of its rejected records', new.txid; end if;
  if coalesce(row.dead_lettered, 0) <> (select count(*) from txtopo.dead_letter d where (d.topology, d.txid) = (row.topology, row.txid)) then
    raise exception 'txtopo: batch % does not have each of its dead letters', new.txid; end if;
  return null; end $$;

-- Once a row instead of twice: the check reads the row as it is then, and a final row never changes.
drop trigger complete on txtopo.ledger;
create constraint trigger complete after insert on txtopo.ledger
  deferrable initially deferred for each row execute function txtopo.complete();
drop trigger seal on txtopo.ledger;
create trigger seal before insert or update on txtopo.ledger for each row when (new.state <> 'applying') execute function txtopo.seal();

-- What the commits of these batches one by one would do, in the same order: the attempt ends, the row is final and sealed, the fence moves by one.
-- One UPDATE for all rows would seal them in any order. The deferred checks run at the end, since a statement timeout does not end COMMIT.
create function txtopo.finish_run(topology_ text, txids bigint[], attempts integer[], reads bigint[], rejecteds bigint[], dead bigint[], spans_ jsonb[],
                                  committers_ integer) returns integer language plpgsql as $$ begin
  for i in 1 .. cardinality(txids) loop
    update txtopo.attempt set state = 'applied', ended_at = clock_timestamp(), spans = spans_[i]
     where topology = topology_ and txid = txids[i] and attempt = attempts[i] and state = 'begun';
    if not found then raise exception 'txtopo: attempt %:% may not be applied: it was never begun or has ended', txids[i], attempts[i]; end if;
    update txtopo.ledger set state = 'applied', read = reads[i], rejected = rejecteds[i], dead_lettered = dead[i], committers = committers_,
                             committed_at = clock_timestamp()
     where topology = topology_ and txid = txids[i] and state = 'applying';
    if not found then raise exception 'txtopo: batch % is not being applied', txids[i]; end if;
    update txtopo.fence set last_txid = txids[i] where topology = topology_ and last_txid = txids[i] - 1;
    if not found then raise exception 'txtopo: batch % is finished out of turn', txids[i]; end if;
  end loop;
  set constraints txtopo.complete, txtopo.agrees immediate;
  return cardinality(txids); end $$;

-- On each contribution table: contributions come while their batch is applied, as its counts do. Rows of txid 0 are those that a committer adopted.
create function txtopo.contributes() returns trigger language plpgsql as $$ declare whose text; n bigint; begin
  select k.topology into whose from txtopo.target k where k.target || '_contribution' = tg_table_schema || '.' || tg_table_name;
  if whose is null then return null; end if;
  select r.txid into n from (select distinct c.txid from new_rows c where c.txid > 0) r
   where not exists (select from txtopo.ledger l where (l.topology, l.txid, l.state) = (whose, r.txid, 'applying')) limit 1;
  if found then raise exception 'txtopo: contributions of batch %, which is not being applied', n; end if;
  return null; end $$;
