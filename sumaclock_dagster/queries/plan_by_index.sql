-- A worker touches few rows of large tables, each by its key. Statistics that are old or of a table that was small would
-- have it read whole tables for that, or plan again with each call.
select set_config(name, value, false)
from (values ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('enable_hashjoin', 'off'),
             ('enable_mergejoin', 'off'), ('jit', 'off'), ('plan_cache_mode', 'force_generic_plan')) as chosen (name, value)
