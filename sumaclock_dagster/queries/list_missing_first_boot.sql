-- Empty when all is there and the current role may use it. A function without schema is null to to_regprocedure.
select coalesce(array_agg(needed.what order by needed.nr), '{}')
from (values
    (1, 'schema sumaclock', pg_catalog.to_regnamespace('sumaclock') is not null),
    (2, 'function sumaclock.clock_settings()',
        coalesce(pg_catalog.has_function_privilege(pg_catalog.to_regprocedure('sumaclock.clock_settings()'), 'EXECUTE'), false)),
    (3, 'function sumaclock.oldest_transaction()',
        coalesce(pg_catalog.has_function_privilege(pg_catalog.to_regprocedure('sumaclock.oldest_transaction()'), 'EXECUTE'), false)),
    (4, 'setting sumaclock.app_role',
        coalesce(pg_catalog.current_setting('sumaclock.app_role', true), '') <> '')
) as needed (nr, what, there)
where not needed.there
