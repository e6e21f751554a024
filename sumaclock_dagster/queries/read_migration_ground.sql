select current_database(),
       current_user::text,
       pg_get_userbyid(schema.nspowner)::text,
       pg_has_role(schema.nspowner, 'usage'),
       current_setting('sumaclock.app_role', true)
from (select) as one
left join pg_namespace as schema on schema.nspname = 'sumaclock'
