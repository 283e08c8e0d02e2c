select request_id, kind, arguments::text, reason, progress::text, exists (select from txtopo.action a where a.request_id = r.request_id)
from txtopo.request r where topology = %(topology)s and state = 'open' order by request_id
