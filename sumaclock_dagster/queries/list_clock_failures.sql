-- What pg_cron itself could not do within the last so many hours, by message. Row-level security shows own entries only.
-- An entry of a firing that never started has no time: it is as old as its neighbours.
select split_part(coalesce(d.return_message, ''), E'\n', 1) as message,
       count(*) as firings,
       max(coalesce(d.end_time, d.start_time)) as newest
from cron.job_run_details d
where d.database = %(database)s
  and d.status = 'failed'
  and d.runid > coalesce((
      select o.runid
      from cron.job_run_details o
      where o.database = %(database)s and o.start_time < now() - make_interval(hours => %(hours)s)
      order by o.runid desc
      limit 1
  ), 0)
group by 1
order by firings desc, message
