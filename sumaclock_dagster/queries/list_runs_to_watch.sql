-- Retried runs are open under an old id, so ids alone do not tell what is still to end.
select id, false as open from sumaclock.cron_runs where id > %(after)s
union all
(select id, true from sumaclock.cron_runs where status = 'pending' limit 10000)
union all
(select id, true from sumaclock.cron_runs where status = 'running' limit 10000)
