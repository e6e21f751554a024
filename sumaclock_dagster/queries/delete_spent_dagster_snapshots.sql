-- Snapshots of jobs and of execution plans, unless a Dagster run needs them. An execution plan is named in the body of
-- its Dagster run alone, and belongs to the snapshot of its job.
delete from snapshots s
where s.snapshot_id = any (%(jobs)s::text[] || %(plans)s::text[])
  and not exists (select from runs r where r.snapshot_id = s.snapshot_id)
  and not exists (
      select from runs r
      where r.snapshot_id = any (%(jobs)s::text[])
        and r.run_body::json ->> 'execution_plan_snapshot_id' = s.snapshot_id
  )
