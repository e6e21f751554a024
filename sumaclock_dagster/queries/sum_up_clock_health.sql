-- What a look at the queue needs, in one row; times are UTC. The clock writes in the order of time, so its newest run has
-- the highest id, which is found from the end.
select now() as seen_at,
       (select r.scheduled_at from sumaclock.cron_runs r
        where r.trigger = 'clock' and r.scheduled_at >= now() - %(days)s * interval '1 day'
        order by r.id desc limit 1) as last_firing,
       (select count(*) from sumaclock.cron_runs r where r.finished_at is null and r.status = 'pending' and r.due_at <= now()) as pending,
       (select extract(epoch from now() - min(r.due_at))::float8
        from sumaclock.cron_runs r where r.finished_at is null and r.status = 'pending' and r.due_at <= now()) as oldest_pending_seconds,
       (select count(*) from sumaclock.workers w
        where w.stopped_at is null and w.id in (select s.worker_id from sumaclock.worker_sessions s)) as live_workers,
       late.tasks as late_tasks,
       late.seconds as latest_task_seconds,
       coalesce(pg_catalog.pg_stat_get_dead_tuples('sumaclock.cron_runs'::regclass), 0) as dead_rows
from (
    select count(*) as tasks, extract(epoch from now() - min(t.next_run_at))::float8 as seconds
    from sumaclock.ai_tasks t
    where t.status = 'active' and t.deleted_at is null and t.next_run_at <= now() - %(late)s * interval '1 second'
) late
