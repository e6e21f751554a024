-- A clock job has no year, so one that has fired must go. This one sees to it, and goes with the last of them.
select cron.schedule_in_database(%(name)s, '* * * * *', format($sweep$with direct as (
    select j.jobid, j.username, j.command, to_timestamp(substring(j.jobname::text from ':once:([0-9]{12}):[0-9a-f]{8}$') || '+00', 'YYYYMMDDHH24MITZH') as fires_at
    from cron.job j
    where j.username = current_user and j.database = %%1$L and left(j.jobname::text, length(%%1$L) + 6) = %%1$L || ':once:'
      and j.jobname::text ~ ':once:[0-9]{12}:[0-9a-f]{8}$'
), swept as (
    select d.jobid from direct d
    where d.fires_at < now() - interval '2 minutes'
      and not exists (select from pg_stat_activity a where a.usename = d.username and a.state = 'active' and left(a.query, 60) = left(d.command, 60))
)
select cron.unschedule(j.jobid) from cron.job j
where j.jobid in (select jobid from swept)
   or (j.username = current_user and j.jobname = %%2$L and not exists (select from direct))$sweep$,
    %(database)s::text, %(name)s::text), current_database())
