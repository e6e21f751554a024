"""The table of contents: everything that Dagster shows of sumaclock, and the entry point of the code server."""

from __future__ import annotations

import dagster as dg

from sumaclock_dagster.code_version import code_version
from sumaclock_dagster.defs.alerts import alerts
from sumaclock_dagster.defs.assets import cron_runs, every_kind_has_a_handler, report_failures, run_failures
from sumaclock_dagster.defs.clashes import assets_of, jobs_of, refuse_clashes
from sumaclock_dagster.defs.clock_faults import check_clock, clock_faults, faults_changed
from sumaclock_dagster.defs.edit_schedules import edit_schedules
from sumaclock_dagster.defs.health import clock_health, health_changed, report_health
from sumaclock_dagster.defs.loops import heartbeat_job, heartbeat_schedule, repair_job, repair_schedule
from sumaclock_dagster.defs.once import commands_changed, job_errors, job_queue, report_commands
from sumaclock_dagster.defs.own_io import use_own_io
from sumaclock_dagster.defs.prune_dagster import prune_dagster_job, prune_dagster_schedule
from sumaclock_dagster.defs.reconcile import schedule_drift, sync_job, sync_report, sync_schedule
from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock
from sumaclock_dagster.defs.schedules import prune_job, prune_schedule
from sumaclock_dagster.defs.sensors import failures_changed, pending_runs
from sumaclock_dagster.defs.system_jobs import report_system_jobs, system_jobs, system_jobs_changed
from sumaclock_dagster.defs.targets import make_target_sensors
from sumaclock_dagster.defs.task_jobs import pause_task, resume_task, run_task_now
from sumaclock_dagster.defs.tasks import core_api_jobs, report_tasks, task_runs, tasks_changed, upcoming_firings
from sumaclock_dagster.defs.work import work
from sumaclock_dagster.handlers import load_handlers
from sumaclock_dagster.model import SumaclockError
from sumaclock_dagster.own_handlers import own_handlers
from sumaclock_dagster.settings import Settings


@dg.definitions
def definitions() -> dg.Definitions:
    """What sumaclock's own code server serves, with settings from the environment. Connects to nothing. Raises
    SumaclockError for a SUMACLOCK_HANDLERS entry that can't be loaded, which Dagster shows as the code location's
    error."""
    return build(Settings())


def with_sumaclock(definitions: dg.Definitions, settings: Settings | None = None) -> dg.Definitions:
    """`definitions` with all of sumaclock in the same code location: its jobs, sensors, schedules, assets, checks and
    the resource "sumaclock". The jobs and assets of `definitions` become targets of schedules made at run time.

    One code location per app database, since its sensors keep the workers. Connects to nothing. `settings`: from the
    environment, unless given. Raises SumaclockError for names that both have, with what to do, and as `build` does.
    """
    if not isinstance(definitions, dg.Definitions):
        raise SumaclockError(
            f"with_sumaclock takes a dagster.Definitions and was given a {type(definitions).__name__}: what "
            "@dagster.definitions has made is called first, as in with_sumaclock(definitions())."
        )
    own = _own(settings or Settings())
    refuse_clashes(own, definitions)
    targets = make_target_sensors(jobs_of(definitions), assets_of(definitions))
    return dg.Definitions.merge(definitions, own, dg.Definitions(sensors=targets))


def build(settings: Settings) -> dg.Definitions:
    """Load the handlers that `settings` names, and put everything together."""
    # What is materialised by a click is one step: a process of its own would only double the wait.
    # No target of its own, but those of other code locations, which the sensor reaches and follows.
    targets = make_target_sensors([], [])
    return dg.Definitions.merge(_own(settings), dg.Definitions(sensors=targets, executor=dg.in_process_executor))


def _own(settings: Settings) -> dg.Definitions:
    sumaclock = Sumaclock(
        settings=settings,
        handlers=load_handlers(settings.handlers, own_handlers(settings)),
        code_version=code_version(settings.loaded_code),
    )
    own = dg.Definitions(
        assets=[
            cron_runs,
            run_failures,
            task_runs,
            core_api_jobs,
            upcoming_firings,
            sync_report,
            schedule_drift,
            clock_health,
            job_queue,
            job_errors,
            system_jobs,
        ],
        asset_checks=[every_kind_has_a_handler, clock_faults],
        jobs=[
            work,
            heartbeat_job,
            repair_job,
            sync_job,
            prune_job,
            prune_dagster_job,
            report_failures,
            report_tasks,
            report_health,
            check_clock,
            report_commands,
            report_system_jobs,
            edit_schedules,
            pause_task,
            resume_task,
            run_task_now,
        ],
        sensors=[
            pending_runs,
            failures_changed,
            tasks_changed,
            health_changed,
            faults_changed,
            commands_changed,
            system_jobs_changed,
            alerts,
        ],
        schedules=[heartbeat_schedule, repair_schedule, sync_schedule, prune_schedule, prune_dagster_schedule],
        resources={"sumaclock": sumaclock, OWN_IO_KEY: dg.mem_io_manager},
    )
    use_own_io([*(own.assets or []), *(own.asset_checks or [])])
    return own
