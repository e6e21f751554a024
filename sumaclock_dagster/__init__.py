"""Run-time-defined schedules on PostgreSQL: pg_cron is the clock, Dagster the executor and the window."""
