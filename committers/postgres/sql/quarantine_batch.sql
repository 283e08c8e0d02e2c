-- R14: the row is inserted as final, since nothing is applied; so a redo that came too late never counts as the redo of
-- its batch.
-- The attempt first: the seal of the row covers its end.
update txtopo.attempt set state = 'cancelled', ended_at = clock_timestamp()
where topology = %(topology)s and txid = %(txid)s and attempt = %(attempt)s and state = 'begun';
with row as (
  insert into txtopo.ledger (topology, txid, prev_txid, prev_digest, digest, incarnation, epoch, attempt, cut, code_hash, redo_of, backfills, committer, state, reason, committers, planned_at)
  values (%(topology)s, %(txid)s, %(txid)s - 1, %(prev_digest)s, %(digest)s, %(incarnation)s, %(epoch)s, %(attempt)s, %(cut)s, %(code_hash)s, %(redo_of)s, %(backfills)s, %(backfills_into)s,
          'quarantined', %(reason)s, 0, (select created_at from txtopo.plan where topology = %(topology)s and txid = %(txid)s and cut = %(cut)s))
  returning 1),
fence as (
  update txtopo.fence set last_txid = %(txid)s where topology = %(topology)s and last_txid = %(txid)s - 1 returning 1)
select (select count(*) from row), (select count(*) from fence), pg_current_xact_id()::text
