select txtopo.run_obstacles(%(tables)s::jsonb)
