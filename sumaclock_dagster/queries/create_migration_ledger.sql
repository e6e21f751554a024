do $$
begin
    if to_regclass('sumaclock.migrations') is null then
        create table sumaclock.migrations (
            number     integer     primary key,
            name       text        not null,
            checksum   text        not null,
            applied_at timestamptz not null default now()
        );
        comment on table sumaclock.migrations is 'Which files of sql/migrations this database has got, with their SHA-256.';
        -- The app role checks that the database fits its code; it has no business writing here.
        execute format('grant select on sumaclock.migrations to %I', current_setting('sumaclock.app_role'));
    end if;
end $$
