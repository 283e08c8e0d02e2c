-- W7, W8: the last batches that read a record, and those that on_poison quarantined, newest first. Batches that an
-- operator skipped, or that read nothing, are not counted.
select l.txid, case when l.state = 'quarantined' then coalesce(a.after ->> 'cause', 'unknown') end
from txtopo.ledger l left join txtopo.action a on a.topology = l.topology and a.txid = l.txid and a.command = 'on_poison' and l.state = 'quarantined'
where l.topology = %(topology)s and ((l.state = 'applied' and l.read > 0) or a.action_id is not null)
order by l.txid desc limit %(count)s
