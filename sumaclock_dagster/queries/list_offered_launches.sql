-- Launches that Dagster was asked for and that nobody has found yet.
select id, cron_run_id, launch_key
from sumaclock.dagster_launches
where state = 'requested' and offers > 0
order by id
limit 1000
