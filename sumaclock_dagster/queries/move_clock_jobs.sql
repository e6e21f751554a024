-- Each row of cron.job keeps the host and port of the day that it was made. At most 1,000 rows a transaction, since
-- pg_cron never notices a larger change.
update cron.job
set nodename = %(host)s, nodeport = %(port)s
where jobid in (
    select jobid from cron.job where (nodename, nodeport) is distinct from (%(host)s, %(port)s) limit 1000
)
