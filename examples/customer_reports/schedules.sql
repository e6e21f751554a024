-- Every Monday at 9:00 on Madrid's clocks, a report for acme of the week before. From your app, in its own transaction:
--   psql "$SUMACLOCK_DATABASE_URL" -f schedules.sql
select sumaclock.create_task(
    organization_id => 'acme', user_id => 'ada', kind => 'dagster', title => 'Weekly report',
    cron => '0 9 * * MON', timezone => 'Europe/Madrid',
    payload => '{"assets": ["orders", "customer_report"], "partition_key": "{organization_id}",
                 "run_config": {"ops": {"orders": {"config": {"week": "{scheduled_local-7d:%G-W%V}"}}}}}');
