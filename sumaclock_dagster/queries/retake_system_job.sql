-- After a break of the connection: whether this session holds the job's lock now, and whether the job went to another. It
-- may be neither, while the server still sees the broken session.
select pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('sumaclock system job ' || %(name)s::text, 0)),
       not exists (
           select from sumaclock.system_job_runs r
           where r.name = %(name)s and r.period = %(period)s and r.worker_id = %(worker)s and r.attempts = %(attempt)s
             and r.finished_at is null
       ) or exists (select from sumaclock.system_job_runs n where n.name = %(name)s and n.period > %(period)s)
