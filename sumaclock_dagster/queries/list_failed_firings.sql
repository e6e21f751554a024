-- The messages of these clock jobs' last firings that failed at their moment or later. One that failed before it started
-- has no time, and is as old as its neighbours.
with wanted as (
    select * from unnest(%(jobids)s::bigint[], %(moments)s::timestamptz[]) as w (jobid, moment)
), recent as materialized (
    select d.jobid, d.runid, d.status, d.return_message, d.start_time
    from cron.job_run_details d
    where d.runid > coalesce((
        select o.runid from cron.job_run_details o
        where o.start_time < (select min(moment) from wanted)
        order by o.runid desc
        limit 1
    ), 0)
), last as (
    select distinct on (r.jobid) wanted.jobid, r.status, r.return_message
    from wanted
    join recent r on r.jobid = wanted.jobid and (r.start_time is null or r.start_time >= wanted.moment)
    order by r.jobid, r.runid desc
)
select jobid, coalesce(return_message, '') from last where status = 'failed'
