select pg_catalog.pg_reload_conf()
