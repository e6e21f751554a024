select cron.schedule_in_database(%(name)s, %(schedule)s, %(command)s, %(database)s)
