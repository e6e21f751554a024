-- The slot clock: one clock job for all jobs of a schedule. Applied by the owner role; the app role gets row rights only, named one by one.

create table sumaclock.clock_slots (
    id        uuid        primary key,
    schedule  text        not null unique check (length(schedule) between 1 and 999),
    placed_at timestamptz not null default now()
);
comment on table sumaclock.clock_slots is 'The slots: schedules whose jobs share one clock job. A row says that its clock job is in place in pg_cron.';
comment on column sumaclock.clock_slots.id is 'UUID version 5 of the schedule, so that it is known without a look.';

alter table sumaclock.cron_jobs add column slot_since timestamptz check (isfinite(slot_since));
comment on column sumaclock.cron_jobs.slot_since is 'Since when the slot of its schedule fires the job, from the next minute on. Null: a clock job of its own does.';
comment on table sumaclock.cron_jobs is 'What is to run and when: kind, owner, payload and a raw UTC schedule. Each enabled row has one clock job in pg_cron, its own or the slot of its schedule.';

create index cron_jobs_slot on sumaclock.cron_jobs (schedule) where enabled and slot_since is not null;

do $$
declare app text := current_setting('sumaclock.app_role');
begin
    execute format('grant select, insert, update, delete on sumaclock.clock_slots to %I', app);
end $$;
