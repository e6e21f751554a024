-- Workers belong to the code location that keeps them. Applied by the owner role.

alter table sumaclock.workers add column code_location text check (length(code_location) between 1 and 1000);
comment on column sumaclock.workers.code_location is 'The Dagster code location whose sensor asked for it; only newer code of the same one retires it. Null: nobody''s, for example of a worker launched by hand.';
