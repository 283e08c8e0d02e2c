select l.state, (select r.txid from txtopo.ledger r where r.topology = l.topology and r.redo_of = l.txid and r.state = 'applied')
from txtopo.ledger l
where l.topology = %(topology)s and l.txid = %(redone_txid)s and l.state in ('applied', 'quarantined')
