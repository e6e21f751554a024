select current_user::text, pg_catalog.current_setting('port')::integer
