"""The queue of one-off commands: its runners in pg_cron, and its rows. What it does is SQL; this only speaks to it."""
