select r.rolcanlogin, r.rolsuper from pg_catalog.pg_roles r where r.rolname = %(role)s
