-- Dagster's tables are wherever the search path of its role says, so they are named without a schema here and below.
select named.name from unnest(%(names)s::text[]) as named (name) where pg_catalog.to_regclass(named.name) is not null
