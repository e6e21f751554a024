-- A firing needs a key share lock on the row, so from here to the deletion no run is added uncounted.
select from sumaclock.cron_jobs where id = %(job_id)s for update
