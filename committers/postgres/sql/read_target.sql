select (select topology || '/' || committer from txtopo.target where target = %(target)s),
       (select target from txtopo.target where topology = %(topology)s and committer = %(committer)s)
