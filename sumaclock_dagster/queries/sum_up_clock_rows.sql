-- The current role's clock jobs, by where they fire. Stray: at another server. Lost: into a database that does not exist,
-- by its name, with the ids of the jobs, and those of the slots, that a hundred of its clock jobs each are named after.
with own as (
    select c.database::text as database, c.jobname::text as name,
           c.nodename <> %(host)s or c.nodeport <> pg_catalog.current_setting('port')::integer as stray,
           pg_catalog.format('%%s (port %%s)', c.nodename, c.nodeport) as place
    from cron.job c
    where c.username = current_user
), lost as (
    select database, count(*) as jobs,
           (array_agg(right(name, 36)) filter (where left(name, -36) = database || ':cron:'))[1:100] as ids,
           (array_agg(right(name, 36)) filter (where left(name, -36) = database || ':slot:'))[1:100] as slots
    from own
    where not exists (select from pg_catalog.pg_database d where d.datname = own.database)
    group by database
)
select (select count(*) from own where database = %(database)s) as jobs,
       (select count(*) from own where database = %(database)s and stray) as stray,
       (select min(place) from own where database = %(database)s and stray) as stray_place,
       coalesce((select array_agg(row_to_json(lost) order by jobs desc) from lost), '{}') as lost
