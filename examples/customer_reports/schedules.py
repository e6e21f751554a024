"""The same from Python, for each new customer of an app: `python schedules.py globex America/New_York`."""

import sys
from uuid import UUID

from sumaclock_dagster.db import Connection, connect
from sumaclock_dagster.settings import Settings
from sumaclock_dagster.tasks import api


def report_weekly(conn: Connection, customer: str, timezone: str, cron: str = "0 9 * * MON") -> UUID:
    """A weekly report for `customer`, on the clocks of `timezone`. Joins the transaction that is open on `conn`."""
    return api.create(
        conn,
        organization_id=customer,
        user_id="app",
        kind="dagster",
        title="Weekly report",
        cron=cron,
        timezone=timezone,
        payload={
            "assets": ["orders", "customer_report"],
            "partition_key": "{organization_id}",
            "run_config": {"ops": {"orders": {"config": {"week": "{scheduled_local-7d:%G-W%V}"}}}},
        },
    )


if __name__ == "__main__":
    with connect(Settings().app_url, "customer reports") as app:
        print(report_weekly(app, *sys.argv[1:]))  # noqa: T201
