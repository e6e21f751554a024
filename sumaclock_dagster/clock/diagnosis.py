"""All faults of the clock, from the URLs alone: connecting, looking and naming. For checks, metrics and the doctor."""

from __future__ import annotations

import re
from contextlib import ExitStack

import psycopg

from sumaclock_dagster.clock.faults import Fault, FaultKind, diagnose, quoted
from sumaclock_dagster.clock.look import read_signs
from sumaclock_dagster.clock.reach import describe_target, first_line
from sumaclock_dagster.clock.refusals import clock_refusal
from sumaclock_dagster.db import Connection, connect, database_name, query
from sumaclock_dagster.model import SumaclockError

CONNECT_SECONDS = 5
APPLICATION = "sumaclock look"
APP_VARIABLE, CRON_VARIABLE = "SUMACLOCK_DATABASE_URL", "SUMACLOCK_CRON_DATABASE_URL"
GONE = re.compile(r'(database|role) "([^"]*)" does not exist')
MAY_NOT = re.compile(r"permission denied for database|not permitted to log in")


def find_faults(app_url: str, cron_url: str) -> list[Fault]:
    """Every fault that the app role can see now, [] where all is well. Raises SumaclockError for what is no URL."""
    with ExitStack() as stack:
        opened: dict[str, Connection] = {}
        refused = []
        for variable, url in ((APP_VARIABLE, app_url), (CRON_VARIABLE, cron_url)):
            target = describe_target(url, variable)
            try:
                opened[variable] = stack.enter_context(connect(url, APPLICATION, connect_timeout=CONNECT_SECONDS))
            except psycopg.OperationalError as error:
                refused.append(_refusal(error, url, variable, target))
        if refused:
            return [_with_new_name(fault, opened.get(CRON_VARIABLE)) for fault in dict.fromkeys(refused)]
        try:
            return diagnose(read_signs(opened[APP_VARIABLE], opened[CRON_VARIABLE]))
        except psycopg.Error as error:
            return [_unread(error)]
        except SumaclockError as error:
            return [
                Fault(FaultKind.UNREACHABLE, str(error).split(". ")[0].rstrip(".") + ".", "See `sumaclock doctor`.")
            ]


def _refusal(error: psycopg.Error, url: str, variable: str, target: str) -> Fault:
    """Why nobody gets in: what a running stack sees of a renamed database or role, and of a right that was taken."""
    text = str(error)
    if gone := GONE.search(text):
        what, name = gone.groups()
        return Fault(
            FaultKind.RENAMED,
            f"There is no {what} '{name}' on the server: it was renamed or dropped.",
            f"Rename it back, or let {APP_VARIABLE} and {CRON_VARIABLE} name the {what} of today, then restart what "
            "uses them and run `sumaclock doctor`.",
        )
    if MAY_NOT.search(text):
        database = database_name(url)
        return Fault(
            FaultKind.PRIVILEGE_MISSING,
            f"The app role may not connect: {first_line(error, url)}.",
            f"As a superuser run sql/first_boot.sql, which grants LOGIN and CONNECT on database {quoted(database)}.",
        )
    return Fault(
        FaultKind.UNREACHABLE,
        f"Cannot connect to {target}: {first_line(error, url)}.",
        f"Start the server, or correct {variable}; `sumaclock doctor` says more.",
    )


def _with_new_name(fault: Fault, cron: Connection | None) -> Fault:
    """A database that is gone may be one of those that are there."""
    if fault.kind is not FaultKind.RENAMED or cron is None:
        return fault
    names = ", ".join(f"'{name}'" for (name,) in cron.execute(query("list_app_databases")).fetchall())
    known = f" (first_boot.sql has made {names} there)" if names else ""
    return Fault(fault.kind, f"{fault.problem.rstrip('.')}{known}.", fault.remedy)


def _unread(error: psycopg.Error) -> Fault:
    if isinstance(error, (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)):
        return Fault(
            FaultKind.UNREACHABLE,
            f"The clock cannot be read ({error.diag.message_primary}).",
            "Run sql/first_boot.sql as a superuser and `sumaclock migrate`; `sumaclock doctor` says more.",
        )
    problem, _, remedy = str(clock_refusal(error)).partition(". ")
    denied = isinstance(error, psycopg.errors.InsufficientPrivilege)
    kind = FaultKind.PRIVILEGE_MISSING if denied else FaultKind.UNREACHABLE
    return Fault(kind, f"{problem.rstrip('.')}.", remedy or "`sumaclock doctor` says more.")
