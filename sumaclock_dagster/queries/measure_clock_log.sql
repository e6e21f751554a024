-- How many firings a minute this role's newest 1,000 in pg_cron's log are; null where there are fewer.
with newest as (
    select d.start_time from cron.job_run_details d order by d.runid desc limit 1000
)
select case when count(*) = 1000
            then (60000 / greatest(extract(epoch from now() - min(newest.start_time)), 1))::float8 end
from newest
