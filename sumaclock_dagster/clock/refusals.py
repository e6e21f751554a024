"""What PostgreSQL and pg_cron refuse, as sentences with the remedy. Never quotes rows, parameters or URLs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from sumaclock_dagster.model import SumaclockError

CONSTRAINTS = {
    "cron_jobs_kind_check": "The kind must be 1 to 100 letters, digits or _ . : - (for example 'invoice_due').",
    "cron_jobs_organization_id_check": "The organization id must have 1 to 200 characters.",
    "cron_jobs_user_id_check": "The user id must have 1 to 200 characters.",
    "cron_jobs_schedule_check": "The schedule must have 1 to 999 characters.",
    "cron_jobs_catch_up_check": "catch_up must be 'one' or 'none'.",
    "cron_jobs_overlap_check": "overlap must be 'skip', 'allow' or 'auto' (skip for seconds, allow for the rest).",
    "ai_tasks_cron_job_id_fkey": "The job belongs to a task. Delete the task instead (sumaclock.delete_task).",
    "cron_jobs_pkey": "A job with this id exists already. Change it, or leave the id out to get a new one.",
}


@contextmanager
def job_refusals() -> Iterator[None]:
    """Turns what the app database refuses about a job into SumaclockError."""
    try:
        yield
    except errors.IntegrityError as error:
        name = error.diag.constraint_name or ""
        text = CONSTRAINTS.get(name, f"The database refuses the job: {error.diag.message_primary}.")
        raise SumaclockError(text) from None
    except errors.DataError as error:
        raise SumaclockError(f"The database cannot store the job: {error.diag.message_primary or error}.") from None
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        raise SumaclockError("The app database has no sumaclock tables; run `sumaclock migrate`.") from None
    except errors.InsufficientPrivilege as error:
        raise SumaclockError(
            f"The app role may not do this with jobs ({error.diag.message_primary}). "
            "Run `sumaclock migrate`, which grants it."
        ) from None


def clock_refusal(error: psycopg.Error) -> SumaclockError:
    """What the pg_cron database refused."""
    said = error.diag.message_primary or type(error).__name__
    if isinstance(error, errors.InsufficientPrivilege):
        return SumaclockError(
            f"The app role may not use pg_cron ({said}). "
            "Run sql/first_boot.sql as a superuser, which grants what it needs."
        )
    if isinstance(error, (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedFunction)):
        return SumaclockError(
            f"pg_cron 1.4.2 or later is not installed in the pg_cron database ({said}). Run sql/first_boot.sql as a "
            "superuser, and let SUMACLOCK_CRON_DATABASE_URL name the database in the server's cron.database_name."
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return SumaclockError(
            "The pg_cron server is a standby or read-only, so no clock job can change there. "
            "Let SUMACLOCK_CRON_DATABASE_URL name the primary."
        )
    if isinstance(error, errors.QueryCanceled):
        return SumaclockError(
            "pg_cron did not answer within 30 s: another session may hold a lock on cron.job. "
            "End that session, then try again."
        )
    if isinstance(error, psycopg.OperationalError):
        return SumaclockError(f"The connection to the pg_cron database broke twice ({said}). Try again.")
    return SumaclockError(f"pg_cron refused: {said}.")
