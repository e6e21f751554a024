-- The newest period of each system job stays: it says when the job was last executed.
delete from sumaclock.system_job_runs r
using (
    select o.name, o.period
    from sumaclock.system_job_runs o
    where o.period < now() - make_interval(days => %(retention_days)s)
      and exists (select from sumaclock.system_job_runs n where n.name = o.name and n.period > o.period)
    order by o.name, o.period
    limit %(batch)s
) old
where r.name = old.name and r.period = old.period
