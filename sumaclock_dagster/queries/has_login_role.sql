select r.rolcanlogin from pg_catalog.pg_roles r where r.rolname = %(role)s
