"""Jobs and runs as --json prints them. The names are stable: scripts rely on them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sumaclock_dagster.clock.pg_cron import ClockJob
from sumaclock_dagster.clock.system_jobs import FoundSystemJob
from sumaclock_dagster.model import Job, Run, SumaclockError
from sumaclock_dagster.raw_schedule import next_utc


def job_record(job: Job, now: datetime) -> dict[str, Any]:
    """A job for --json. `next_firing_at` is null while the job is paused."""
    return {
        "id": str(job.id),
        "kind": job.kind,
        "organization_id": job.organization_id,
        "user_id": job.user_id,
        "payload": job.payload,
        "schedule": job.schedule,
        "enabled": job.enabled,
        "catch_up": job.catch_up,
        "overlap": job.overlap,
        "created_at": iso(job.created_at),
        "updated_at": iso(job.updated_at),
        "next_firing_at": iso(next_firing(job, now)),
    }


def run_record(run: Run) -> dict[str, Any]:
    """A run for --json. Lateness and duration are seconds, null before the start or the end."""
    return {
        "id": run.id,
        "job_id": str(run.job_id),
        "kind": run.kind,
        "organization_id": run.organization_id,
        "user_id": run.user_id,
        "status": run.status.value,
        "trigger": run.trigger.value,
        "scheduled_at": iso(run.scheduled_at),
        "due_at": iso(run.due_at),
        "started_at": iso(run.started_at),
        "finished_at": iso(run.finished_at),
        "lateness_seconds": seconds_between(run.scheduled_at, run.started_at),
        "duration_seconds": seconds_between(run.started_at, run.finished_at),
        "attempts": run.attempts,
        "lost": run.lost,
        "worker_id": run.claimed_by,
        "dagster_run_id": str(run.dagster_run_id) if run.dagster_run_id else None,
        "result": run.result,
        "error": run.error,
    }


def iso(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC with microseconds and a Z."""
    if moment is None:
        return None
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def next_firing(job: Job, now: datetime) -> datetime | None:
    """When pg_cron fires the job next; None while it is paused, or for a schedule written past the check."""
    if not job.enabled:
        return None
    try:
        return next_utc(job.schedule, now)
    except SumaclockError:
        return None


def seconds_between(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else round((end - start).total_seconds(), 6)


def clock_job_record(clock_job: ClockJob | FoundSystemJob) -> dict[str, Any]:
    """A clock job for --json. `jobid` is pg_cron's number."""
    return {
        "jobid": clock_job.jobid,
        "schedule": clock_job.schedule,
        "command": clock_job.command,
        "active": clock_job.active,
    }
