-- For this transaction only. Names in migrations are schema-qualified: the short path makes a forgotten schema an error
-- instead of a surprise. What is made belongs to the owner role, also when a superuser migrates.
select set_config('search_path', 'pg_catalog', true),
       set_config('role', pg_get_userbyid(nspowner), true)
from pg_namespace
where nspname = 'sumaclock'
