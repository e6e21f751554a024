-- The run is executed anew: what became of an earlier launch is not its outcome any more.
update sumaclock.dagster_launches
set told = true
where cron_run_id = %(run)s and state = 'ended' and not told
