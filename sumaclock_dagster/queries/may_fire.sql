select r.rolcanlogin, pg_catalog.has_database_privilege(r.oid, %(database)s, 'CONNECT')
from pg_catalog.pg_roles r
where r.rolname = current_user
