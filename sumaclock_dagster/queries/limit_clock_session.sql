select pg_catalog.set_config('statement_timeout', '30s', false)
