-- Changes whenever a run fails, is retried or grows too old.
select count(*) as failed, coalesce(max(id), 0) as newest_id, coalesce(max(finished_at), 'epoch') as newest_at
from sumaclock.cron_runs
where status = 'failed'
  and finished_at >= now() - make_interval(hours => %(hours)s);
