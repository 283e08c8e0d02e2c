-- One array, and one scan of the index for all of it: this is asked for every file of a folder when a driver starts.
with asked as materialized (select array(select json_array_elements_text(%(paths)s::json)) as paths)
select unnest(paths) as path from asked
except
select path from txtopo.source_file, asked
where topology = %(topology)s and spout = %(spout)s and path = any(asked.paths)
