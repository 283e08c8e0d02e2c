-- A look for each attempt, by its key: NOT EXISTS may become a join that reads all attempts there are.
insert into txtopo.attempt (topology, txid, attempt, epoch, code_hash, alone, host, inputs)
select %(topology)s, txid, attempt, %(epoch)s, %(code_hash)s, alone, %(host)s, inputs::jsonb
from unnest(%(txids)s::bigint[], %(attempts)s::integer[], %(alones)s::boolean[], %(inputs)s::text[]) as new (txid, attempt, alone, inputs)
where (select (a.epoch, a.state) = (%(epoch)s, 'begun') from txtopo.attempt a
        where (a.topology, a.txid, a.attempt) = (%(topology)s, new.txid, new.attempt)) is not true
order by txid, attempt
