-- What a new leader needs besides the fence row: last digest, the plan of the highest txid that read new input, the
-- cluster, the last description, what tasks of former leaders left in tables (R10; NULL: there is no schema of such tables).
select l.digest,
       newest.txid,
       (select p.bytes from txtopo.plan p where (p.topology, p.txid, p.cut, p.digest) = (l.topology, newest.txid, newest.cut, newest.digest)),
       (select system_identifier::text from pg_control_system()),
       (select t.description::text from txtopo.topology t where t.topology = l.topology),
       l.epoch,
       case when to_regnamespace('txtopo_staging') is not null then array(
         select c.relname::text from pg_class c where c.relnamespace = to_regnamespace('txtopo_staging') and c.relkind = 'r'
         and starts_with(c.relname::text, %(staging)s) order by 1) end
from txtopo.ledger l
left join lateral (select n.txid, n.cut, n.digest from txtopo.ledger n where n.topology = l.topology and n.redo_of is null and n.backfills is null and n.txid > 0
                   order by n.txid desc limit 1) newest on true
where l.topology = %(topology)s and l.txid = %(last_txid)s
