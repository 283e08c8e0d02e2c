update txtopo.request set progress = %(progress)s::jsonb where topology = %(topology)s and request_id = %(order_id)s and state = 'open'
