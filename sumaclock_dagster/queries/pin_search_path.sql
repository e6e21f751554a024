select set_config('search_path', 'pg_catalog', true)
