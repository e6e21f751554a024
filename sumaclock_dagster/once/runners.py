"""The runners: clock jobs that run a role's queued commands as that role, and the watcher beside them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from psycopg.rows import class_row

from sumaclock_dagster.clock.pg_cron import Clock, check_database_name
from sumaclock_dagster.db import Connection, query
from sumaclock_dagster.model import SumaclockError

PREFIX = ":job-"
EVERY_MINUTE = "* * * * *"
EVERY_FEW_SECONDS = "5 seconds"
# A runner that looks until then leaves the next one its minute.
LOOK_SECONDS = 57


@dataclass(frozen=True, slots=True)
class RunnerJob:
    """What a clock job of a runner should be."""

    name: str
    schedule: str
    command: str


@dataclass(frozen=True, slots=True)
class FoundRunnerJob:
    """A row of `cron.job` that is named like a runner of this database."""

    jobid: int
    name: str
    schedule: str
    command: str
    database: str
    active: bool


@dataclass(frozen=True, slots=True)
class Runners:
    """What became of a role's runners. start_delay: how soon a due command starts, about."""

    role: str | None
    runners: int
    start_delay: timedelta
    placed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def place_runners(app: Connection, clock: Clock, count: int, role: str | None = None) -> Runners:
    """Make the clock jobs of `count` runners and their watcher, and remove what is too many; 0 removes all.

    role: whose they are; None is the role of both connections. Another's takes a superuser's connections. Raises
    SumaclockError.
    """
    check_database_name(clock.database_name)
    if role is not None:
        _check_role(app, role)
    background = bool(app.execute(query("uses_background_workers")).fetchall()[0][0])
    seconds = clock.features().seconds
    wanted = _wanted(clock.database_name, count, seconds, background)
    if role is not None and count:
        app.execute(query("allow_once"), {"role": role})
    if not count:
        _note(app, role, 0)
    placed, removed = clock.call(lambda conn: _change(conn, clock.database_name, wanted, role))
    if count:
        _note(app, role, count)
    delay = timedelta(seconds=60 if background and not seconds else 5)
    warnings = _warnings(app, role, seconds, background) if count else []
    return Runners(role, count, delay, placed, removed, warnings)


def list_runner_jobs(clock: Clock, role: str | None = None) -> list[FoundRunnerJob]:
    """The clock jobs of a role's runners and watcher. Raises SumaclockError."""
    return clock.call(lambda conn: _list(conn, clock.database_name, role))


def _wanted(database: str, count: int, seconds: bool, background: bool) -> list[RunnerJob]:
    """The watcher first. A background worker that stays would be missing elsewhere, or even hold up pg_cron itself."""
    if not count:
        return []
    jobs = []
    for slot in range(count + 1):
        fires = EVERY_FEW_SECONDS if seconds and (slot or background) else EVERY_MINUTE
        looks = fires == EVERY_MINUTE and not background
        name = f"{database}{PREFIX}{f'runner-{slot}' if slot else 'watcher'}"
        jobs.append(RunnerJob(name, fires, _command(slot, LOOK_SECONDS if looks else 0)))
    return jobs


def _warnings(app: Connection, role: str | None, seconds: bool, background: bool) -> list[str]:
    warnings = []
    if background and not seconds:
        warnings.append(
            "pg_cron 1.4 with background workers waits for each clock job to end: a long command holds up all others, "
            "and due ones start within a minute. Set cron.use_background_workers = off, restart the server, and "
            "`sumaclock once enable` again."
        )
    timeout = app.execute(query("find_statement_timeout"), {"role": role}).fetchone()
    if timeout is not None:
        warnings.append(
            f"The role has statement_timeout = {timeout[0]}, which ends a runner after that time and cancels the "
            "command that it is at. `alter role ... set statement_timeout = 0`, and give commands a timeout instead."
        )
    return warnings


def _command(slot: int, seconds: int) -> str:
    text = query("run_jobs_from_clock" if slot else "watch_jobs_from_clock").decode().strip()
    return text.replace("{slot}", str(int(slot))).replace("{seconds}", str(int(seconds)))


def _change(conn: Connection, database: str, wanted: list[RunnerJob], role: str | None) -> tuple[list[str], list[str]]:
    placed, removed = [], []
    with conn.transaction():
        found = {job.name: job for job in _list(conn, database, role)}
        for job in wanted:
            there = found.pop(job.name, None)
            if there is not None and there.database != database:
                raise SumaclockError(
                    f"A clock job '{job.name}' exists for database '{there.database}', so it is not ours to change. "
                    "Whoever made it must rename or remove it."
                )
            if there and there.active and (there.schedule, there.command) == (job.schedule, job.command):
                continue
            if there and not there.active:
                # Scheduling an existing name never makes it active again.
                conn.execute(query("unschedule_clock_job"), {"jobid": there.jobid})
            values = {
                "name": job.name,
                "schedule": job.schedule,
                "command": job.command,
                "database": database,
                "role": role,
            }
            conn.execute(query("schedule_runner_job"), values)
            placed.append(job.name)
        for surplus in found.values():
            if surplus.database == database:
                conn.execute(query("unschedule_clock_job"), {"jobid": surplus.jobid})
                removed.append(surplus.name)
    return placed, removed


def _list(conn: Connection, database: str, role: str | None) -> list[FoundRunnerJob]:
    cursor = conn.cursor(row_factory=class_row(FoundRunnerJob))
    return cursor.execute(query("list_runner_jobs"), {"prefix": f"{database}{PREFIX}", "role": role}).fetchall()


def _note(app: Connection, role: str | None, count: int) -> None:
    app.execute(query("note_runners"), {"role": role, "slots": count})


def _check_role(app: Connection, role: str) -> None:
    row = app.execute(query("has_login_role"), {"role": role}).fetchone()
    if row is None:
        raise SumaclockError(f"There is no role '{role}'. Create it first, with LOGIN.")
    if row[1]:
        raise SumaclockError(
            f"Role '{role}' is a superuser. The owner of schema sumaclock decides what runners do, so it would become "
            "as powerful. Let a role without that queue the commands."
        )
    if not row[0]:
        raise SumaclockError(
            f"Role '{role}' may not log in, and pg_cron logs in as the role whose commands it runs. "
            f'`alter role "{role}" login` first.'
        )
