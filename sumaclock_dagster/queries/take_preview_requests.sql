select id, cron, instant, timezone, count, language, clock_timestamp()
from sumaclock.preview_requests
where result is null
order by id
for update skip locked
