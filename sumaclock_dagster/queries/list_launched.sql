-- Launched and not ended, a page at a time.
select id, dagster_run_id, extract(epoch from clock_timestamp() - launched_at)::float8 as seconds, seen_on
from sumaclock.dagster_launches
where state = 'launched' and id > %(after)s
order by id
limit %(most)s
