"""What pg_cron writes for each firing, and what a busy server may leave out."""

from __future__ import annotations

from sumaclock_dagster.db import query
from sumaclock_dagster.doctor.asking import value
from sumaclock_dagster.doctor.context import Context
from sumaclock_dagster.doctor.findings import Finding

# From here on, a week of entries is more than a gigabyte.
BUSY_A_MINUTE = 500


def clock_log(context: Context) -> Finding:
    settings = dict(context.app.execute(query("read_clock_settings")).fetchall())
    a_minute = value(context.cron, "measure_clock_log")
    return judge_log(settings.get("cron.log_run", "on"), settings.get("cron.log_statement", "on"), a_minute)


def judge_log(log_run: str, log_statement: str, firings_a_minute: float | None) -> Finding:
    """firings_a_minute: of the app role, recently; None where there are too few to tell."""
    found = f"cron.log_run = {log_run}, cron.log_statement = {log_statement}"
    if log_run == "off":
        found += ", so nothing tells why a firing failed"
    if firings_a_minute is None or firings_a_minute < BUSY_A_MINUTE:
        return Finding(found)
    places, advice = [], []
    if log_run == "on":
        places.append("cron.job_run_details")
        advice.append("cron.log_run = off, where you can do without the reason why a firing failed")
    if log_statement == "on":
        places.append("the server's log")
        advice.append("cron.log_statement = off, which loses nothing that sumaclock reads")
    if not places:
        return Finding(found)
    return Finding(
        f"{found}, {firings_a_minute:,.0f} firings a minute",
        f"pg_cron writes {firings_a_minute:,.0f} firings a minute to {' and to '.join(places)}.",
        f"Set {' and '.join(advice)}, in postgresql.conf and restart PostgreSQL.",
        warning=True,
    )
