insert into txtopo.attempt (topology, txid, attempt, epoch, code_hash, alone, host, inputs)
select %(topology)s, txid, attempt, %(epoch)s, %(code_hash)s, alone, %(host)s, inputs::jsonb
from unnest(%(txids)s::bigint[], %(attempts)s::integer[], %(alones)s::boolean[], %(inputs)s::text[]) as new (txid, attempt, alone, inputs)
where not exists (select from txtopo.attempt a
                  where (a.topology, a.txid, a.attempt, a.epoch, a.state) = (%(topology)s, new.txid, new.attempt, %(epoch)s, 'begun'))
order by txid, attempt
