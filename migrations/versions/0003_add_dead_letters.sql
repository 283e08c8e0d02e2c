-- Dead letters: source records that were taken out of their batch because a bolt failed on them.

-- They come with the good rows of their batch, in the batch's own database transaction.
create table txtopo.dead_letter (
  topology  text   not null,
  txid      bigint not null,
  spout     text   not null,
  position  text   not null check (length(position) > 0),   -- file:line, or partition and number where the source knows no lines
  component text   not null,                                -- the bolt that failed on it, or on a tuple that came of it
  reason    text   not null check (length(reason) > 0),
  raw       bytea  not null,                                -- the record as it stands in the source, or its values as JSON
  primary key (topology, txid, spout, position),
  foreign key (topology, txid) references txtopo.ledger);
create trigger with_batch before insert on txtopo.dead_letter for each row execute function txtopo.with_batch();
create trigger frozen before update or delete on txtopo.dead_letter for each row execute function txtopo.frozen();
create trigger kept_whole before truncate on txtopo.dead_letter for each statement execute function txtopo.frozen();

-- As before, and: every dead letter that the ledger row counts is there.
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
  if coalesce(row.dead_lettered, 0) <> (select count(*) from txtopo.dead_letter d where (d.topology, d.txid) = (row.topology, row.txid)) then
    raise exception 'txtopo: batch % does not have each of its dead letters', new.txid; end if;
  return null; end $$;

-- As before; the seal of a batch with dead letters covers them too, as one more value at its end.
create or replace function txtopo.seal() returns trigger language plpgsql as $$ begin
  if new.state <> 'applying' then
    new.seal := sha256(convert_to((jsonb_build_array(
      new.topology, new.txid, new.cut, encode(new.digest, 'hex'), new.incarnation, new.epoch, new.attempt, encode(new.code_hash, 'hex'),
      new.state, new.read, new.rejected, new.dead_lettered, new.committers, new.reason, new.redo_of,
      (select jsonb_agg(jsonb_build_array(committer, arrived, counted, results, written, ignored, reversed, digest::text) order by committer collate "C")
         from txtopo.committer_count c where (c.topology, c.txid) = (new.topology, new.txid)),
      (select jsonb_agg(jsonb_build_array(edge, sent, received) order by edge collate "C")
         from txtopo.edge_count e where (e.topology, e.txid) = (new.topology, new.txid)),
      (select encode(l.seal, 'hex') from txtopo.ledger l where (l.topology, l.txid) = (new.topology, new.prev_txid)))
      || coalesce((select jsonb_build_array(jsonb_agg(jsonb_build_array(spout, position, component, reason, encode(sha256(raw), 'hex'))
                                                      order by spout collate "C", position collate "C"))
                     from txtopo.dead_letter d where (d.topology, d.txid) = (new.topology, new.txid) having count(*) > 0), '[]'))::text, 'UTF8'));
  end if;
  return new; end $$;
