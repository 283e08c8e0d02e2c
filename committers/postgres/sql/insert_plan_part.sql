insert into txtopo.plan_part (digest, bytes) values (%(digest)s, %(bytes)s) on conflict (digest) do nothing
