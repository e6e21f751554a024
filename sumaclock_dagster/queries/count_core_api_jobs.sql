-- Of those that have ended, the failed ones only: all that were ever delivered would be a long count.
select status::text, count(*)
from sumaclock.core_api_jobs
where status in ('pending', 'sending', 'failed')
group by status
