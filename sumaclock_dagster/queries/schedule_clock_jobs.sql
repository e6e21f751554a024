select pg_catalog.count(cron.schedule_in_database(made.name, made.schedule, made.command, %(database)s))
from unnest(%(names)s::text[], %(schedules)s::text[], %(commands)s::text[]) as made (name, schedule, command)
