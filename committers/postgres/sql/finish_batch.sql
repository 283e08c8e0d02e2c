-- The attempt first: the seal of the row covers its end.
update txtopo.attempt set state = 'applied', ended_at = clock_timestamp(), spans = %(spans)s::jsonb
where topology = %(topology)s and txid = %(txid)s and attempt = %(attempt)s and state = 'begun';
with row as (
  update txtopo.ledger set state = 'applied', read = %(read)s, rejected = %(rejected)s, dead_lettered = %(dead_lettered)s, committers = %(committers)s,
                           committed_at = clock_timestamp()
  where topology = %(topology)s and txid = %(txid)s and state = 'applying' returning 1),
fence as (
  update txtopo.fence set last_txid = %(txid)s where topology = %(topology)s and last_txid = %(txid)s - 1 returning 1)
select (select count(*) from row), (select count(*) from fence),
       (select count(*) from txtopo.attempt where (topology, txid, attempt, state) = (%(topology)s, %(txid)s, %(attempt)s, 'applied')), pg_current_xact_id()::text
