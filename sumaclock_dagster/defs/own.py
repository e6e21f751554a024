"""The names of what is ours in a Dagster instance, which others share. A test holds them against the definitions."""

import dagster as dg

OWN_JOBS = (
    "work",
    "heartbeat",
    "repair",
    "sync",
    "prune",
    "prune_dagster",
    "report_failures",
    "report_tasks",
    "report_health",
    "check_clock",
    "report_commands",
    "report_system_jobs",
    "edit_schedules",
    "pause_task",
    "resume_task",
    "run_task_now",
)
OWN_ASSETS = tuple(
    dg.AssetKey(name)
    for name in (
        "cron_runs",
        "run_failures",
        "task_runs",
        "core_api_jobs",
        "upcoming_firings",
        "sync_report",
        "schedule_drift",
        "clock_health",
        "job_queue",
        "job_errors",
        "system_jobs",
    )
)
OWN_INSTIGATORS = (
    "pending_runs",
    "dagster_targets",
    "failures_changed",
    "tasks_changed",
    "health_changed",
    "faults_changed",
    "commands_changed",
    "system_jobs_changed",
    "alerts",
    "heartbeat",
    "repair",
    "sync",
    "prune",
    "prune_dagster",
)
