-- What becomes of a firing that pg_cron missed, and up to when it was looked for.

alter table sumaclock.cron_jobs add column catch_up text not null default 'one' check (catch_up in ('one', 'none'));
comment on column sumaclock.cron_jobs.catch_up is 'After missed firings: ''one'' run for the last of them, or ''none'', which leaves a skipped run with the reason. Tasks always catch up once.';

create table sumaclock.missed_firings_look (
    the_only_row boolean     primary key default true check (the_only_row),
    looked_until timestamptz not null default date_trunc('minute', now()) check (isfinite(looked_until))
);
insert into sumaclock.missed_firings_look default values;
comment on table sumaclock.missed_firings_look is 'One row: up to which minute missed firings of jobs have been looked for.';

do $$
declare app text := current_setting('sumaclock.app_role');
begin
    execute format('grant select, insert, update, delete on sumaclock.missed_firings_look to %I', app);
end $$;
