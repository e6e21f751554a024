"""The clock's faults, one check for each place where one shows. What they are is said in `clock.faults`."""

from __future__ import annotations

import psycopg

from sumaclock_dagster.clock.faults import Fault, FaultKind
from sumaclock_dagster.db import connect, query
from sumaclock_dagster.doctor.asking import value
from sumaclock_dagster.doctor.context import APPLICATION, Context
from sumaclock_dagster.doctor.findings import Finding
from sumaclock_dagster.doctor.phrases import address
from sumaclock_dagster.doctor.refusals import misread, refusal

SUPERUSER_VARIABLE = "SUMACLOCK_SUPERUSER_DATABASE_URL"


def every_row(context: Context) -> Finding:
    """Opens the superuser's connection, where there is a URL for it."""
    url = context.settings.superuser_url
    if url is None:
        return Finding(f"not seen: {SUPERUSER_VARIABLE} is not set")
    if slip := misread(url, SUPERUSER_VARIABLE):
        return slip
    try:
        superuser = context.superuser = connect(url, APPLICATION)
        rows = int(value(superuser, "count_clock_rows"))
        without_role = superuser.execute(query("list_clock_jobs_without_role")).fetchall()
    except psycopg.OperationalError as error:
        if context.settings.superuser_database_url is None:
            return Finding("not seen: this user may not be the private cluster's superuser")
        return refusal(error, url, SUPERUSER_VARIABLE)
    bad = sum(len(ids) for _, ids in without_role)
    return Finding(f"{rows} rows seen at {address(url)} as '{superuser.info.user}', {bad} of them without their role")


def launcher(context: Context) -> Finding:
    fault = context.fault(FaultKind.LAUNCHER_GONE, FaultKind.LAUNCHER_CRASHES)
    return (
        finding_of(fault) if fault else Finding(f"pg_cron's launcher is process {value(context.cron, 'find_launcher')}")
    )


def names(context: Context) -> Finding:
    database, role = context.app.info.dbname, context.app.info.user
    return _unless(context, FaultKind.RENAMED, f"database '{database}' and role '{role}' are as clock jobs know them")


def server_clock(context: Context) -> Finding:
    return _unless(context, FaultKind.CLOCK_SET_BACK, "was not set back since the last firing")


def worker_slots(context: Context) -> Finding:
    return _unless(context, FaultKind.WORKER_SLOTS_SHORT, "no firing of the last minutes wanted for one")


def clock_changes(context: Context) -> Finding:
    return _unless(context, FaultKind.CHANGE_MISSED, "the launcher missed none")


def clock_queue(context: Context) -> Finding:
    return _unless(context, FaultKind.QUEUE_FULL, "pg_cron starts what is due")


def finding_of(fault: Fault) -> Finding:
    return Finding(fault.kind.value, fault.problem, fault.remedy)


def _unless(context: Context, kind: FaultKind, well: str) -> Finding:
    fault = context.fault(kind)
    return finding_of(fault) if fault else Finding(well)
