-- Those whose names can stand in pg_ident.conf without meaning something else there.
select r.rolname::text from pg_catalog.pg_roles r where r.rolcanlogin and r.rolname ~ '^[^"/+\\\s][^"\\\s]*$' order by 1
