"""Is pg_cron there, of a version that counts right, in UTC, alive, and able to fire into the app database?"""

from __future__ import annotations

from sumaclock_dagster.clock.faults import FaultKind
from sumaclock_dagster.clock.pg_cron import DATABASE_NAME_MAX_BYTES, Clock
from sumaclock_dagster.db import query
from sumaclock_dagster.doctor.asking import value
from sumaclock_dagster.doctor.context import Context
from sumaclock_dagster.doctor.faults import finding_of
from sumaclock_dagster.doctor.findings import Finding
from sumaclock_dagster.doctor.phrases import quoted, two_sentences
from sumaclock_dagster.doctor.reach import CRON_VARIABLE
from sumaclock_dagster.model import SumaclockError

UTC_NAMES = {"gmt", "utc", "etc/utc", "etc/gmt", "etc/uct", "uct", "zulu", "universal"}


def _settings(context: Context) -> dict[str, str]:
    return dict(context.app.execute(query("read_clock_settings")).fetchall())


def loaded(context: Context) -> Finding:
    """Needs no first boot, which cannot be made before pg_cron is loaded."""
    major = context.cron.info.server_version // 10_000
    if not value(context.cron, "is_pg_cron_installed"):
        return Finding(
            "pg_cron is not installed",
            "The server has no pg_cron.",
            f"Install its package (Debian and Ubuntu: postgresql-{major}-cron) on the server.",
        )
    known = value(context.app, "has_clock_settings")
    there = bool(_settings(context)) if known else bool(value(context.cron, "find_launcher"))
    if there:
        return Finding("pg_cron is in shared_preload_libraries")
    return Finding(
        "pg_cron does not run",
        "pg_cron is installed but not loaded.",
        "Set shared_preload_libraries = 'pg_cron' in postgresql.conf (after any others) and restart PostgreSQL.",
    )


def extension(context: Context) -> Finding:
    here, there = context.cron.info.dbname, _settings(context).get("cron.database_name", "postgres")
    if here != there:
        return Finding(
            f"database '{here}', but cron.database_name = '{there}'",
            f"{CRON_VARIABLE} names database '{here}', but pg_cron works in database '{there}'.",
            f"Let {CRON_VARIABLE} name database '{there}'.",
        )
    installed = value(context.cron, "find_pg_cron_extension")
    if installed is None:
        return Finding(
            "no extension pg_cron",
            f"Database '{here}' lacks the extension pg_cron.",
            f"As a superuser run `create extension pg_cron;` in database {quoted(here)}, then sql/first_boot.sql.",
        )
    return Finding(f"extension pg_cron {installed} in database '{here}'")


def time_zone(context: Context) -> Finding:
    # 1.4 has no such setting: it counts in GMT.
    return judge_zone(_settings(context).get("cron.timezone", "GMT"))


def judge_zone(zone: str) -> Finding:
    if zone.lower() in UTC_NAMES:
        return Finding(f"pg_cron counts in {zone}")
    return Finding(
        f"cron.timezone = {zone}",
        f"pg_cron counts in time zone {zone}, so every job would fire at another hour than was computed.",
        "Set cron.timezone = 'GMT' in postgresql.conf and restart PostgreSQL.",
    )


def job_names(context: Context) -> Finding:
    name = context.app.info.dbname
    size = len(name.encode())
    if size <= DATABASE_NAME_MAX_BYTES:
        return Finding(f"clock jobs are named {name}:cron:<job id>")
    return Finding(
        f"a database name of {size} bytes",
        f"The database name '{name}' has {size} bytes, and clock jobs have room for {DATABASE_NAME_MAX_BYTES}.",
        f"Make an app database with a shorter name by sql/first_boot.sql, or as a superuser rename {quoted(name)}.",
    )


def version(context: Context) -> Finding:
    with Clock(context.settings.cron_url, context.app.info.dbname) as clock:
        try:
            known = clock.features()
        except SumaclockError as refused:
            problem, remedy = two_sentences(refused, "Install pg_cron 1.6.4 or newer.")
            return Finding("a pg_cron that is not supported", problem, remedy)
    return Finding(f"behaves like pg_cron {'1.6.3 or newer' if known.last_day else '1.5' if known.seconds else '1.4'}")


def firing_role(context: Context) -> Finding:
    """pg_cron logs in as the role that scheduled, which is the one that CRON_VARIABLE names."""
    app_role, role, database = context.app.info.user, context.cron.info.user, context.app.info.dbname
    if role != app_role:
        return Finding(
            f"role '{role}' schedules, role '{app_role}' works",
            f"Clock jobs would fire as role '{role}' of {CRON_VARIABLE} instead of the app role '{app_role}'.",
            f"Let {CRON_VARIABLE} name role '{app_role}'.",
        )
    may_log_in, may_connect = context.cron.execute(query("may_fire"), {"database": database}).fetchone() or (
        False,
        False,
    )
    if not may_log_in:
        return Finding(
            f"role '{role}' has no LOGIN",
            f"Role '{role}' may not log in, so every firing would fail.",
            f"As a superuser run `alter role {quoted(role)} login;`.",
        )
    if not may_connect:
        return Finding(
            f"role '{role}' has no CONNECT on database '{database}'",
            f"Role '{role}' may not connect to database '{database}', so every firing would fail.",
            f"As a superuser run `grant connect on database {quoted(database)} to {quoted(role)};`.",
        )
    return Finding(f"firings log in as '{role}' to database '{database}'")


def firing_login(context: Context) -> Finding:
    """pg_cron's own login can only be seen by what came of it."""
    if fault := context.fault(FaultKind.LOGINS_REFUSED):
        return finding_of(fault)
    settings, role = _settings(context), context.cron.info.user
    if settings.get("cron.use_background_workers") == "on":
        return Finding("background workers, which need no login")
    return Finding(f"pg_cron logs in at {settings.get('cron.host', 'localhost')} as '{role}', as far as it has")


def firing_target(context: Context) -> Finding:
    """Host and port are stored in each row: those of a promoted clone still lead to the server it was cloned from."""
    if fault := context.fault(FaultKind.FIRES_ELSEWHERE):
        return finding_of(fault)
    settings = _settings(context)
    if settings.get("cron.use_background_workers") == "on":
        return Finding("background workers, which fire where they run")
    return Finding(f"{context.signs.rows.jobs} clock jobs, all of them firing at {context.signs.host}")
