-- Row-level security shows the current role's own jobs; those of other databases are none of ours.
with ours as (
    select nodename, nodeport,
           nodename <> %(host)s or nodeport <> pg_catalog.current_setting('port')::integer as stray
    from cron.job
    where database = %(database)s
)
select count(*), count(*) filter (where stray),
       min(pg_catalog.format('%%s (port %%s)', nodename, nodeport)) filter (where stray)
from ours
