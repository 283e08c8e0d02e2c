select distinct on (path) path, fingerprint
from txtopo.source_file
where topology = %(topology)s and spout = %(spout)s and path = any(%(paths)s)
order by path, txid desc
