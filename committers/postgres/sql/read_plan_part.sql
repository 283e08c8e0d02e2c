select bytes from txtopo.plan_part where digest = %(digest)s
