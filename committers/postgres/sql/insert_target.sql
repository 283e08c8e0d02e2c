insert into txtopo.target (target, topology, committer, baseline_digest) values (%(target)s, %(topology)s, %(committer)s, %(baseline_digest)s)
