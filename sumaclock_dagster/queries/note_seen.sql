update sumaclock.dagster_launches l
set seen_on = g.seen_on
from unnest(%(ids)s::bigint[], %(seen_on)s::text[]) as g (id, seen_on)
where l.id = g.id and l.state = 'launched'
