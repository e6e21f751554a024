delete from sumaclock.preview_requests
where id in (select id from sumaclock.preview_requests where created_at < now() - interval '1 day' limit 1000 for update skip locked)
