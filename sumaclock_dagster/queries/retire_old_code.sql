-- Another code location keeps its own workers: two that retired each other's would never end.
with retired as (
    update sumaclock.workers
    set retires_at = now() + %(notice)s * interval '1 second'
    where stopped_at is null and started_at is not null and code_version <> %(code_version)s
      and coalesce(code_location = %(code_location)s, true)
      and retires_at > now() + %(notice)s * interval '1 second'
    returning id
)
select count(*) from retired
