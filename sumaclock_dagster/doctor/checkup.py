"""All checks in order: the table of contents of the doctor."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import ValidationError

from sumaclock_dagster.doctor import clock, clock_log, configuration, dagster_storage, database, faults, pooling, reach
from sumaclock_dagster.doctor.context import Context
from sumaclock_dagster.doctor.findings import Check, CheckResult, perform, result_of, skipped
from sumaclock_dagster.settings import Settings

OLD_TRANSACTION_SECONDS = 3600.0

APP, CRON, POOLING, CRON_POOLING = "app database", "cron database", "sessions", "cron sessions"
PRIMARY, VERSION, ONE_SERVER = "primary", "PostgreSQL version", "one server"
LOADED, BOOT, ROLE, EXTENSION = "pg_cron loaded", "first boot", "app role", "pg_cron extension"
CRON_RIGHTS, MIGRATIONS, APP_RIGHTS = "cron rights", "migrations", "app rights"
DAGSTER_URL = "Dagster URL"
WORK = (EXTENSION, CRON_RIGHTS, APP_RIGHTS, MIGRATIONS)

CHECKS = (
    Check("settings", configuration.settings_fit),
    Check("handlers", configuration.handlers_load),
    Check(APP, reach.app_reachable),
    Check(VERSION, reach.version, (APP,)),
    Check(PRIMARY, reach.primary, (APP,)),
    Check(POOLING, pooling.app_sessions, (PRIMARY,)),
    Check(CRON, reach.cron_reachable),
    Check(CRON_POOLING, pooling.cron_sessions, (PRIMARY, CRON)),
    Check(ONE_SERVER, reach.one_server, (APP, CRON)),
    Check(LOADED, clock.loaded, (VERSION, ONE_SERVER, PRIMARY)),
    Check(BOOT, database.first_boot, (VERSION, PRIMARY)),
    Check(MIGRATIONS, database.migrations, (BOOT,)),
    Check(ROLE, database.role_limits, (APP,)),
    Check(APP_RIGHTS, database.app_rights, (BOOT, ROLE)),
    Check(EXTENSION, clock.extension, (LOADED, BOOT)),
    Check(CRON_RIGHTS, database.cron_rights, (EXTENSION, ROLE)),
    Check("clock job names", clock.job_names, (APP,)),
    Check("pg_cron version", clock.version, (EXTENSION, CRON_POOLING, CRON_RIGHTS, "clock job names")),
    Check("pg_cron time zone", clock.time_zone, (EXTENSION,)),
    Check("all clock rows", faults.every_row, (EXTENSION,)),
    Check("pg_cron launcher", faults.launcher, (EXTENSION,)),
    Check("firing role", clock.firing_role, (EXTENSION,)),
    Check("names", faults.names, WORK),
    Check("firing target", clock.firing_target, WORK),
    Check("server clock", faults.server_clock, WORK),
    Check("worker slots", faults.worker_slots, WORK),
    Check("firing login", clock.firing_login, WORK),
    Check("clock changes", faults.clock_changes, WORK),
    Check("clock queue", faults.clock_queue, WORK),
    Check("clock log", clock_log.clock_log, WORK),
    Check("code location", database.code_locations, (MIGRATIONS, APP_RIGHTS)),
    Check("oldest transaction", reach.oldest_transaction, (BOOT,)),
    Check(DAGSTER_URL, dagster_storage.dagster_scheme),
    Check("Dagster database", dagster_storage.dagster_reachable, (DAGSTER_URL,)),
)


def run_checks(settings: Settings, *, old_transaction_seconds: float = OLD_TRANSACTION_SECONDS) -> list[CheckResult]:
    """Every check in order, those on broken ground skipped. Raises nothing that a server or a setting can cause."""
    with Context(settings, old_transaction_seconds) as context:
        return perform(CHECKS, context)


def check_environment(read: Callable[[], Settings], environment: Mapping[str, str]) -> list[CheckResult]:
    """The same, for settings that are yet to be read (`read` is `Settings`) from `environment`."""
    spelling = [result_of("spelling of variables", configuration.unknown_variables(environment))]
    try:
        settings = read()
    except ValidationError as error:
        invalid = [result_of("settings", finding) for finding in configuration.invalid_settings(error)]
        return [*spelling, *invalid, *(_not_looked_at(check) for check in CHECKS if check.name != "settings")]
    return [*spelling, *run_checks(settings)]


def _not_looked_at(check: Check) -> CheckResult:
    return skipped(check.name, "settings")
