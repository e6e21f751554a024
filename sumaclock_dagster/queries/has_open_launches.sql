select exists (select from sumaclock.dagster_launches where state <> 'ended')
