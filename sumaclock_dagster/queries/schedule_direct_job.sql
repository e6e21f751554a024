-- Once, in the first minute that pg_cron can no longer miss. Its name tells the minute, and its command begins with its
-- name, by which it is found in pg_cron's log when the clock job itself is gone. Nothing that pg_cron runs is older.
with moment as (
    select date_trunc('minute', clock_timestamp() + interval '70 seconds') at time zone 'UTC' as utc
), named as (
    select utc, format('%%s:once:%%s:%%s', %(database)s::text, to_char(utc, 'YYYYMMDDHH24MI'), left(md5(random()::text || clock_timestamp()::text), 8)) as name
    from moment
)
select name, utc at time zone 'UTC' as fires_at,
       cron.schedule_in_database(name, to_char(utc, 'FMMI FMHH24 FMDD FMMM "*"'), format(E'/* sumaclock %%s */\n%%s', name, %(command)s::text),
                                 %(database)s::text)
from named
