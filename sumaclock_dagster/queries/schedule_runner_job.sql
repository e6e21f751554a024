-- Without a role: as whoever asks. pg_cron lets only superusers name one.
select cron.schedule_in_database(%(name)s, %(schedule)s, %(command)s, %(database)s, %(role)s, true)
