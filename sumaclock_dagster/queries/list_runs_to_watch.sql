-- The newest runs, ended or not, and all that wait: a retried run waits under an old id.
select id, finished_at from sumaclock.cron_runs where id > %(after)s
union all
(select id, null from sumaclock.cron_runs where finished_at is null and status = 'pending' limit 10000)
