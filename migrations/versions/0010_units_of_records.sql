-- What the number of a rejected record counts: the line of a text file, the row of a table file, the offset of a partition, the key of a table.
alter table txtopo.rejected_row
  add column unit text not null default 'line' check (unit in ('line', 'row', 'offset', 'key')),
  drop constraint rejected_row_line_check,
  add constraint rejected_row_line_check check (line > 0 or line = 0 and unit in ('offset', 'key'));

-- Version 2 of seals as before: a record that is counted in lines is sealed as it was, any other one with its unit.
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
                (jsonb_build_array(line, reason, encode(sha256(raw), 'hex'), raw_bytes) ||
                  case when unit = 'line' then '[]' else jsonb_build_array(unit) end)::text, 'UTF8')), ''::bytea order by line)), 'hex') as digest
         from txtopo.rejected_row r where (r.topology, r.txid) = (new.topology, new.txid) group by spout, path) files),
    (select jsonb_agg(jsonb_build_array(spout, position, component, reason, encode(sha256(raw), 'hex')) order by spout collate "C", position collate "C")
       from txtopo.dead_letter d where (d.topology, d.txid) = (new.topology, new.txid)),
    (select jsonb_agg(jsonb_build_array(attempt, epoch, encode(code_hash, 'hex'), alone, host, txtopo.micros(started_at)) || case when state = 'begun' then '[]' else
              jsonb_build_array(state, kind, cause, component, position, message, encode(sha256(convert_to(detail, 'UTF8')), 'hex'), txtopo.micros(ended_at), spans::text, inputs::text) end
              order by attempt)
       from txtopo.attempt a where (a.topology, a.txid) = (new.topology, new.txid)),
    new.sealed_description, encode(of_description, 'hex'), new.sealed_action, encode(of_action, 'hex'), encode(before, 'hex'))::text, 'UTF8'));
  return new; end $$;
